//! Commands of the SQL shell as scripts use them.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::drivers::setup;
use crate::harness::{Over, Pool, Process, ends, given, output, run, selkie, succeeds, text};
use crate::items::{ITEM, TABLES};

/// Runs a script by the standard input.
#[track_caller]
fn piped(arguments: &[&str], script: impl AsRef<[u8]>) -> Output {
    given(&mut selkie(&[&["sql"], arguments].concat()), script)
}

/// Runs a script that must succeed; what it prints.
#[track_caller]
fn gives(arguments: &[&str], script: impl AsRef<[u8]>) -> String {
    let output = piped(arguments, script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn written(place: &Path, name: &str, script: &str) -> String {
    let file = place.join(name);
    std::fs::write(&file, script).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn commands_are_run_wherever_statements_are() {
    let place = tempfile::tempdir().unwrap();
    let list = "List of relations";
    let file = written(place.path(), "a.sql", "create table t (a int);\n  \\dt\nselect 1;");
    let by_file = succeeds(&["sql", "-f", &file]);
    assert!(by_file.contains(list) && by_file.ends_with("(1 row)\n\n"), "{by_file}");
    let by_line = succeeds(&["sql", "-c", "create table t (a int)", "-c", "\\dt"]);
    assert!(by_line.contains(list), "{by_line}");
    assert!(gives(&[], "create table t (a int); \\dt\n").contains(list));
    // What was typed before a command stays, and \q ends all.
    let said =
        gives(&["--format", "csv"], "select 1 as a,\n\\echo two words\n2 as b \\g\n\\q\nselect 3;");
    assert_eq!(said, "two words\na,b\n1,2\n");
    // A comment is no statement, and what a command does not take is not dropped.
    let said = gives(&["--format", "csv"], "select 1 as a; -- so\n\\g\n-- so\n\\g\n");
    assert_eq!(said, "a\n1\n".repeat(3));
    for wrong in ["\\g out.txt", "\\g select 2;", "\\gx | less"] {
        let output = piped(&[], format!("select 1 {wrong}\n"));
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{wrong}");
        assert!(text(&output.stderr).starts_with("error: usage: \\g"), "{wrong}");
    }
}

#[test]
fn a_table_is_described_as_by_psql() {
    let script = format!("{TABLES}\n\\d item\n\\d shop\n\\d item_price\n");
    let said = gives(&["--format", "table"], &script);
    let expected = format!(
        r#"{ITEM}                Table "public.shop"
 Column |  Type   | Collation | Nullable | Default 
--------+---------+-----------+----------+---------
 id     | integer |           | not null | 
 city   | text    |           |          | 
Indexes:
    "shop_pkey" PRIMARY KEY, btree (id)
Referenced by:
    TABLE "item" CONSTRAINT "item_shop_fkey" FOREIGN KEY (shop) REFERENCES shop(id) ON DELETE CASCADE

         Index "public.item_price"
 Column |     Type      | Key? | Definition 
--------+---------------+------+------------
 price  | numeric(10,2) | yes  | price
btree, for table "public.item"

"#
    );
    assert!(said.ends_with(&expected), "{said}");
    let script = format!(
        "{TABLES} comment on table item is 'what is sold'; comment on column item.price is 'in EUR';
         \\d i*m\n\\d+ cheap\n"
    );
    let said = gives(&[], &script);
    assert!(said.contains("| Description \n") && said.contains("| in EUR\n"), "{said}");
    assert!(said.contains("\nComment: what is sold\n"), "{said}");
    let view = "View definition:\n SELECT shop, name FROM item WHERE price < 1;\n\n";
    assert!(said.ends_with(view), "{said}");
    let output = piped(&[], format!("{TABLES}\\d nothing\nselect 1;"));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stderr), "error: did not find any relation named \"nothing\"\n");
    assert!(!text(&output.stdout).contains("(1 row)"));
}

#[test]
fn lists_are_for_people_and_programs() {
    let script = format!(
        "{TABLES} create role app login; create sequence seq;\n\\dt\n\\di item_p*\n\\dv\n\\ds\n\\d seq\n\\du app\n\\l\n\\dn\n"
    );
    let said = gives(&["--format", "csv"], &script);
    let expected = "Schema,Name,Type,Owner
public,item,table,postgres
public,shop,table,postgres
Schema,Name,Type,Owner,Table
public,item_pkey,index,postgres,item
public,item_price,index,postgres,item
Schema,Name,Type,Owner
public,cheap,view,postgres
Schema,Name,Type,Owner
public,seq,sequence,postgres
Type,Start,Minimum,Maximum,Increment,Cycles?,Cache
bigint,1,1,9223372036854775807,1,no,1
Role name,Attributes,Member of
app,\"\",{}
";
    assert!(said.starts_with(expected), "{said}");
    assert!(
        said.contains("\nselkie,postgres,UTF8,") && said.ends_with("\npublic,postgres\n"),
        "{said}"
    );
    let functions = gives(&["--format", "csv"], "\\df pg_catalog.uppe?\n");
    assert_eq!(functions, "Schema,Name,Type\npg_catalog,upper,func\n");
    // That there is nothing is no failure, but not to have what is named is.
    let output = run(&["sql", "-c", "\\dt"]);
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(text(&output.stderr), "Did not find any relations.\n");
    assert_eq!(run(&["sql", "-c", "\\dt none"]).status.code(), Some(1));
}

/// The same statements by psql, of a server.
#[test]
fn rows_look_as_in_psql() {
    let server = Process::start(&["server", "--listen", "127.0.0.1:0"]);
    let line = server.finds("serving ");
    let port = line.rsplit_once(':').unwrap().1;
    let tables = [
        "select 1 as a, 'one' as bbb, null as c union all select 22222222, E'two\\nlines', 'x'",
        "select E'a\\tb\\x01' as \"a long name\", E'\u{4e16}\u{754c}' as w, 1.50 as n",
        "select 1 as a where false",
        "select array[1, 2] as numbers, true as b, '{\"a\": 1}'::jsonb as j, -1::bigint as n",
        "select i, i * 1000 as thousands from generate_series(1, 12) i",
        "create table t (a int)",
        "select '' as \"Empty\", null as \"Null\"",
        "insert into t values (1), (2) returning a",
    ];
    for expanded in ["off", "on"] {
        let set = format!("\\x {expanded}");
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-q",
            "-h",
            "127.0.0.1",
            "-p",
            port,
            "-U",
            "me",
            "-d",
            "selkie",
            "-c",
            &set,
        ]);
        for sql in tables {
            psql.args(["-c", sql]);
        }
        psql.args(["-c", "drop table t"]);
        let expected = text(&output(&mut psql).stdout);
        let mut own = vec!["sql", "-c", &set];
        tables.iter().for_each(|sql| own.extend(["-c", sql]));
        let tags = |line: &&str| !line.starts_with("CREATE ") && !line.starts_with("INSERT ");
        let lines = |said: &str| said.lines().filter(tags).collect::<Vec<_>>().join("\n");
        let said = succeeds(&own);
        assert_eq!(lines(&said), lines(&expected), "{expanded}");
        assert!(said.contains("two"), "{said}");
    }
}

#[test]
fn data_of_a_copy_follows_its_statement() {
    let place = tempfile::tempdir().unwrap();
    let script = "create table t (a int primary key, b text);
copy t from stdin;
1\tone; \\\\d
2\t\\N
\\.
select * from t order by a;
copy t (a, b) from stdin with (format csv);
3,\"three
lines\"
\\.
select count(*) from t;
";
    let expected = "a,b\n1,one; \\d\n2,\ncount\n3\n";
    assert_eq!(gives(&["--format", "csv"], script), expected);
    let file = written(place.path(), "copy.sql", script);
    assert_eq!(succeeds(&["sql", "--format", "csv", "-f", &file]), expected);
    // That of the command line is the standard input, as for psql.
    let copy = ["-c", "copy t from stdin"];
    let arguments =
        [&["-c", "create table t (a int)"], &copy[..], &copy[..], &["-f", "-"]].concat();
    let output = piped(&arguments, "1\n2\n\\.\n3\n\\.\nselect sum(a) from t \\gx\n");
    let expected = "CREATE TABLE\nCOPY 2\nCOPY 1\n-[ RECORD 1 ]\nsum | 6\n\n";
    assert_eq!(text(&output.stdout), expected);

    // Each statement of a text has its data.
    let copies = "copy t from stdin; copy t from stdin";
    let arguments = ["-c", "create table t (a int)", "-c", copies, "-c", "select sum(a) from t"];
    let output = piped(&[&["--format", "csv"], &arguments[..]].concat(), "1\n\\.\n2\n\\.\n");
    assert_eq!(text(&output.stdout), "sum\n3\n");

    // Lines behind one that is wrong are no statements, however many there are.
    let behind = "select 'data';\n".repeat(5_000);
    let script =
        format!("create table t (a int);\ncopy t from stdin;\n1\nbad\n{behind}\\.\nselect 7;");
    let output = piped(&["--keep-going", "--format", "csv"], &script);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("22P02") && error.matches("ERROR").count() == 1, "{error}");
    assert_eq!(text(&output.stdout), "?column?\n7\n");
}

#[test]
fn lines_are_taken_as_they_are() {
    let script =
        "create table t (a text);\r\ncopy t from stdin (format csv);\r\n\"a\r\nb\"\r\n\\.\r
select length(a) as n from t;\r\nselect length('a\r\nb') as n \\g\r\n";
    assert_eq!(gives(&["--format", "csv"], script), "n\n4\n".repeat(2));
    let script =
        b"create table t (a text);\ncopy t from stdin;\n\xff\nselect 'data';\n\\.\nselect 7;";
    let output = piped(&["--keep-going", "--format", "csv"], script);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), "?column?\n7\n".into()));
    assert!(text(&output.stderr).contains("22021"), "{}", text(&output.stderr));
}

#[test]
fn output_that_is_not_written_is_a_failure() {
    for sql in ["select 1", "copy (select 1) to stdout (format binary)", "\\echo a"] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let mut command = selkie(&["sql", "-c", sql]);
        let output = ends(command.stdout(full).stderr(Stdio::piped()).spawn().unwrap());
        assert_eq!(output.status.code(), Some(1), "{sql}");
        assert!(text(&output.stderr).contains("No space left"), "{sql}");
    }
    assert_eq!(run(&["sql", "-c", "\\o /dev/full", "-c", "select 1"]).status.code(), Some(1));
}

#[test]
fn the_shell_ends_when_nobody_reads_its_output() {
    for sql in ["select 1 \\watch 0.01", "select i from generate_series(1, 1000000000) i"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let both = writer.try_clone().unwrap();
        let status = selkie(&["sql", "-c", sql]).stdout(writer).stderr(both).status().unwrap();
        assert_eq!(status.code(), Some(128 + 13), "{sql}");
    }
}

#[test]
fn files_are_copied_in_and_out() {
    let place = tempfile::tempdir().unwrap();
    let lines: String = (0..20_000).map(|n| format!("{n},\"row, {n}\"\n")).collect();
    let from = written(place.path(), "it's in.csv", &lines);
    let to = place.path().join("out.csv");
    let script = format!(
        "create table t (a int primary key, b text);
         \\copy t (a, b) from '{}' with (format csv)
         \\copy (select * from t order by a) to {} csv
         \\copy (select min(b) from t) to stdout\n",
        from.replace('\'', "''"),
        to.display()
    );
    let said = gives(&[], &script);
    assert_eq!(said, "CREATE TABLE\nCOPY 20000\nCOPY 20000\nrow, 0\n");
    assert_eq!(std::fs::read_to_string(&to).unwrap(), lines);
    let nowhere = run(&["sql", "-c", "\\copy t from /nowhere/at-all"]);
    assert_eq!(nowhere.status.code(), Some(1));
    assert!(text(&nowhere.stderr).starts_with("error: /nowhere/at-all: No such file"));
    let wrong = text(&run(&["sql", "-c", "\\copy t"]).stderr);
    assert_eq!(wrong, "error: usage: \\copy TABLE|(QUERY) FROM|TO FILE [OPTIONS]\n");
}

#[test]
fn errors_name_their_place_and_what_there_is() {
    let place = tempfile::tempdir().unwrap();
    let inner = written(place.path(), "inner.sql", "select 1;\nselect\n  nothing;\nselect 2;");
    let outer = format!("\\i {inner}\nselect 3;");
    let outer = written(place.path(), "outer.sql", &outer);
    let output = run(&["sql", "--format", "csv", "-f", &outer]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    let expected = format!("{inner}:3: ERROR:  42703: ");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.ends_with("LINE 2:   nothing;\n          ^\n"), "{error}");
    assert_eq!(text(&output.stdout), "?column?\n1\n");
    let output = run(&["sql", "--format", "csv", "--keep-going", "-f", &outer]);
    assert_eq!(text(&output.stdout), "?column?\n1\n?column?\n2\n?column?\n3\n");

    let itself = place.path().join("itself.sql");
    let itself = written(place.path(), "itself.sql", &format!("\\i {}", itself.display()));
    let error = text(&run(&["sql", "-f", &itself]).stderr);
    assert!(error.contains("more than 16 files run each other"), "{error}");
    let output = run(&["sql", "-c", "\\timng"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "error: there is no command \\timng; did you mean \\timing? \\? lists all\n";
    assert_eq!(text(&output.stderr), expected);
    let all = text(&run(&["sql", "-c", "\\unheard-of"]).stderr);
    assert!(all.contains("there are \\? \\h \\q") && all.contains("\\copy"), "{all}");
    assert!(succeeds(&["sql", "-c", "\\?"]).contains("\\watch [SECONDS] [c=TIMES]"));
    assert!(succeeds(&["sql", "-c", "\\h create view"]).contains("CREATE [OR REPLACE] VIEW"));
}

/// Where there is no terminal to show a spinner on.
#[test]
fn a_statement_that_waits_for_a_row_says_so_in_a_pipe() {
    let pool = Pool::start(&setup(Over::Shm, "row-wait", 1));
    let mut holder = selkie(&["sql", "--pool", &pool.url]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut typed = holder.stdin.take().unwrap();
    let script = "create table t (id int primary key, v int);\ninsert into t values (1, 0);\n\
                  begin;\nupdate t set v = 1 where id = 1;\nselect 6 * 7 as answer;\n";
    typed.write_all(script.as_bytes()).unwrap();
    let mut told = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("42")));
    let change = "update t set v = v + 1 where id = 1";
    let waits = Process::start(&["sql", "--pool", &pool.url, "-c", change]);
    let said =
        waits.finds(&format!("{change}: for 1 s so far; a wait for what others have locked"));
    assert!(said.contains("selkie_notice") && said.ends_with("or by lock_timeout"), "{said}");
    typed.write_all(b"commit;\n").unwrap();
    assert!(waits.ends_well().contains("UPDATE 1"));
    drop(typed);
    assert!(ends(holder).status.success());
}

#[test]
fn an_explanation_changes_nothing() {
    let script = "create table t (a int);
insert into t values (1), (2);
\\explain delete from t
begin;
delete from t where a = 2;
\\explain
select count(*) as left from t;
commit;
\\explain select * from t
";
    let said = gives(&["--format", "csv"], script);
    assert_eq!(said.matches("Delete on t").count(), 2, "{said}");
    assert!(said.contains("\nleft\n1\n") && said.contains("Seq Scan on t"), "{said}");
    assert_eq!(said.matches("actual time").count(), 5, "{said}");
    let script = "create table t (a int);
insert into t values (1);
\\explain /* select */ delete from t
\\explain select 1; delete from t
\\explain delete from t; commit
select count(*) as left from t;
";
    let output = piped(&["--keep-going", "--format", "csv"], script);
    let refused = text(&output.stderr).matches("error: \\explain takes one statement\n").count();
    assert_eq!((output.status.code(), refused), (Some(1), 2), "{}", text(&output.stderr));
    assert!(text(&output.stdout).ends_with("\nleft\n1\n"), "{}", text(&output.stdout));
}

#[test]
fn how_rows_are_shown_is_chosen_meanwhile() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("kept.txt");
    let script = format!(
        "select 1 as a, null as b \\gx
         \\x\n\\g\n\\x\n\\pset null -\n\\g
         \\format json\n\\g
         \\format csv\n\\g
         \\o {}\n\\g\n\\o\nselect 2 as c;
         \\format\n\\timing\n\\watch 0.01 c=2\n",
        file.display()
    );
    let output = piped(&[], &script);
    let expanded = "-[ RECORD 1 ]\na | 1\nb | \n\n";
    let table = " a | b \n---+---\n 1 | -\n(1 row)\n\n";
    let expected = format!(
        "{expanded}{expanded}{table}{{\"a\":1,\"b\":null}}\na,b\n1,-\nc\n2\nFormat is csv.\nc\n2\nc\n2\n"
    );
    assert_eq!(text(&output.stdout), expected, "{}", text(&output.stderr));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "a,b\n1,-\n");
    assert_eq!(text(&output.stderr).matches("Time: ").count(), 2);
    let said = succeeds(&["sql", "--format", "expanded", "--null", "?", "-c", "select null as n"]);
    assert_eq!(said, "-[ RECORD 1 ]\nn | ?\n\n");
}

/// Tables were kept whole, and refused beyond a million rows.
#[test]
fn a_table_of_any_length_is_shown() {
    let said = succeeds(&["sql", "-c", "select i from generate_series(1, 1000100) i"]);
    assert!(said.ends_with("\n 1000100\n(1000100 rows)\n\n"), "{}", &said[said.len() - 100..]);
}
