//! The SQL shell as a client of a server.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

use rustix::process::Signal;

use crate::harness::{Pool, Setup, given, output, refused, run, selkie, succeeds, text};
use crate::items::{ITEM, TABLES};
use crate::roles;
use crate::server::start;
use crate::terminal::OnTerminal;

/// Runs the shell at a server with a script on the standard input.
#[track_caller]
fn piped(server: &str, arguments: &[&str], script: &str) -> Output {
    given(&mut selkie(&[&["sql", server], arguments].concat()), script)
}

/// Runs a script that must succeed; what it prints.
#[track_caller]
fn gives(server: &str, arguments: &[&str], script: &str) -> String {
    let output = piped(server, arguments, script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

const ROWS: &str = "insert into shop values (1, 'Oslo'), (2, null);
    insert into item values (1, 1, 'it''s', 0.5), (1, 2, 'two', 12.25);";

#[test]
fn a_server_is_asked_as_a_pool_is() {
    let (_server, addr) = start("embedded:");
    let server = &addr.to_string();
    let tags = "CREATE TABLE\nCREATE TABLE\nCREATE INDEX\nCREATE VIEW\nINSERT 0 2\nINSERT 0 2\n";
    assert_eq!(gives(server, &[], &format!("{TABLES}{ROWS}")), tags);
    assert_eq!(gives(server, &[], "\\d item\n"), ITEM);
    let list = gives(server, &["--format", "csv"], "\\dt\n");
    assert!(list.starts_with("Schema,Name,Type,Owner\npublic,item,table,"), "{list}");
    let query = "select id, city, id = 1 as first from shop order by id";
    let table =
        " id | city | first \n----+------+-------\n  1 | Oslo | t\n  2 |      | f\n(2 rows)\n\n";
    assert_eq!(gives(server, &[], &format!("{query};")), table);
    let csv = "id,city,first\n1,Oslo,t\n2,-,f\n";
    assert_eq!(gives(server, &["--format", "csv", "--null", "-"], &format!("{query};")), csv);
    let first = "{\"city\":\"Oslo\",\"first\":true,\"id\":1}";
    let json = format!("{first}\n{{\"city\":null,\"first\":false,\"id\":2}}\n");
    assert_eq!(gives(server, &["--format", "json"], &format!("{query};")), json);
    let expanded = gives(server, &["--format", "expanded"], "select 1 as a;");
    assert_eq!(expanded, "-[ RECORD 1 ]\na | 1\n\n");
    let url = &format!("postgres://me@{addr}/selkie?sslmode=disable&options=-c%20timezone%3DUTC");
    let said = succeeds(&["sql", url, "-c", "select current_user, current_database()"]);
    assert!(said.contains(" me           | selkie"), "{said}");
    // The statements of one -c are one transaction.
    let output = run(&["sql", server, "-c", "insert into shop values (3, 'c'); select 1 / 0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("ERROR:  22012: division by zero"));
    assert_eq!(gives(server, &["--format", "csv"], "select count(*) from shop;"), "count\n2\n");
    // Many rows, and messages that are no errors.
    let many = gives(server, &["--format", "csv"], "select * from generate_series(1, 20000) a;");
    assert_eq!(many.lines().count(), 20_001);
    let output = piped(server, &["--timing"], "drop table if exists nothing;\nselect bad;\n");
    let said = text(&output.stderr);
    assert!(said.contains("NOTICE:  table \"nothing\" does not exist, skipping"), "{said}");
    assert!(said.contains("Time: ") && said.contains("LINE 1: select bad;\n               ^"));
    let explained = gives(server, &[], "insert into shop values (9)\n\\explain\nselect 1;\n");
    assert!(explained.contains("Insert"), "{explained}");
    assert_eq!(gives(server, &["--format", "csv"], "select count(*) from shop;"), "count\n2\n");
}

#[test]
fn data_is_copied_between_files_and_a_server() {
    let (_server, addr) = start("embedded:");
    let server = &addr.to_string();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let lines: String = (0..50_000).map(|n| format!("{n},\"row, {n}\"\n")).collect();
    std::fs::write(at("in.csv"), &lines).unwrap();
    let script = format!(
        "create table t (a int primary key, b text);\n\\copy t from '{}' csv\n\
         copy t from stdin csv;\n-1,typed\n\\.\n\
         \\copy (select * from t where a >= 0 order by a) to '{}' csv\n\
         copy (select * from t where a < 1 order by a) to stdout;\n",
        at("in.csv"),
        at("out.csv")
    );
    let tags = "CREATE TABLE\nCOPY 50000\nCOPY 1\nCOPY 50000\n-1\ttyped\n0\trow, 0\n";
    assert_eq!(gives(server, &[], &script), tags);
    assert_eq!(std::fs::read_to_string(at("out.csv")).unwrap(), lines);
    // What is wrong in a file ends its COPY, and nothing else.
    std::fs::write(at("bad.csv"), format!("1000000,a\n0,twice\n{lines}")).unwrap();
    let script = format!("\\copy t from '{}' csv\n\\copy t from '{}'\n", at("bad.csv"), at("none"));
    let output = piped(server, &["--keep-going"], &format!("{script}select count(*) from t;\n"));
    let said = text(&output.stderr);
    assert!(said.contains("ERROR:  23505: duplicate key value"), "{said}");
    assert!(said.contains("none: No such file"), "{said}");
    assert!(text(&output.stdout).contains(" 50001"), "{}", text(&output.stdout));
}

#[test]
fn what_is_no_server_is_told_in_one_line() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = closed.to_string();
    let ask = |server: &str, code, expected: &str| {
        refused(&["sql", server, "-c", "select 1"], code, expected);
    };
    ask(&server, 1, &format!("there is no server at {closed}: Connection refused"));
    ask("no-such-host.invalid", 1, "no-such-host.invalid: ");
    ask("shm:demo", 2, "a pool is given by --pool");
    ask("postgres://h/d?sslmode=maybe", 2, "the parameter sslmode of a server is disable, ");
    ask("host=h password=sesame", 2, "this is no address of a server");
    let (_server, addr) = start("embedded:");
    ask(&format!("postgres://me@{addr}/other"), 1, "3D000: database \"other\" does not exist");
    ask(&format!("postgres://me@{addr}/?sslmode=require"), 1, "does not do TLS");
    let output = run(&["sql", "--pool", "embedded:", &server, "-c", "select 1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("cannot be used with"), "{}", text(&output.stderr));
}

/// The shell with a password in its environment, or without.
fn by(password: Option<&str>, file: &Path, server: &str) -> Output {
    let mut command =
        selkie(&["sql", server, "--format", "csv", "-c", "select current_user as me"]);
    command.env_remove("PGPASSWORD").env("PGPASSFILE", file);
    password.into_iter().for_each(|password| {
        command.env("PGPASSWORD", password);
    });
    output(&mut command)
}

#[test]
fn a_user_proves_a_password_to_a_server_that_is_believed() {
    let pool = roles::pool("shell-roles");
    roles::make_admin(&pool);
    let own = roles::Certificates::new(&["127.0.0.1", "localhost"]);
    let other = roles::Certificates::new(&["x"]);
    let options = own.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_server, addr) = roles::start(&pool.url, &options);
    let place = tempfile::tempdir().unwrap();
    let (file, none) = (place.path().join("pgpass"), place.path().join("none"));
    std::fs::write(&file, format!("127.0.0.1:{}:*:admin:open sesame\n", addr.port())).unwrap();
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let server = |more: &str| format!("postgres://admin@{addr}/selkie?{more}");
    let is_in = |output: Output| {
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && said == "me\nadmin\n", "{said}{error}");
    };
    let fails = |output: Output, expected: &str| {
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(expected), "{error}");
        assert!(!error.contains("sesame") && !error.contains("wrong"), "{error}");
    };
    let root = |own: &roles::Certificates| format!("&sslrootcert={}", own.path("ca.pem"));
    for more in [
        "sslmode=disable".to_owned(),
        "sslmode=prefer".to_owned(),
        format!("sslmode=prefer{}", root(&own)),
        "sslmode=require&channel_binding=require".to_owned(),
        format!("sslmode=verify-ca{}", root(&own)),
        format!("sslmode=verify-full&channel_binding=require{}", root(&own)),
    ] {
        is_in(by(Some("open sesame"), &none, &server(&more)));
        is_in(by(None, &file, &server(&more)));
    }
    let secret = format!("postgres://admin:open%20sesame@{addr}/selkie");
    is_in(by(None, &none, &secret));
    fails(by(Some("wrong"), &none, &server("")), "28P01: password authentication failed");
    fails(
        by(Some("open sesame"), &none, &server("sslmode=disable&channel_binding=require")),
        "does not offer channel binding",
    );
    // A file of authorities that is named is heeded whatever the mode.
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let unknown = server(&format!("sslmode={mode}{}", root(&other)));
        fails(
            by(Some("open sesame"), &none, &unknown),
            "its certificate is not believed: no authority that is given has signed it",
        );
    }
    let options = other.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let (_other, elsewhere) = roles::start(&pool.url, &options);
    let named =
        |mode: &str| format!("postgres://admin@{elsewhere}/selkie?sslmode={mode}{}", root(&other));
    is_in(by(Some("open sesame"), &none, &named("verify-ca")));
    fails(by(Some("open sesame"), &none, &named("verify-full")), "it is for another name");
    let missing = server("sslmode=verify-full&sslrootcert=/nowhere/ca.pem");
    fails(by(Some("open sesame"), &none, &missing), "/nowhere/ca.pem");
    // Asked for on the terminal, which shows nothing of it.
    let mut command = selkie(&["sql", &server(""), "--no-history"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1").env("PGPASSFILE", &none);
    command.env_remove("PGPASSWORD");
    let mut shell = OnTerminal::start(&mut command);
    shell.shows("Password for user admin at 127.0.0.1:");
    shell.types("open sesame\r");
    shell.shows("selkie=> ");
    let from = shell.screen().len();
    shell.types("select current_user;\r");
    shell.shows_behind(from, " admin");
    assert!(!shell.screen().contains("sesame"), "{}", shell.screen());
    shell.types("\\q\r");
    assert_eq!(shell.ends(), Some(0), "{}", shell.screen());
}

/// A shell on a terminal, without colours.
fn typed(server: &str) -> OnTerminal {
    let mut command = selkie(&["sql", server, "--no-history"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let shell = OnTerminal::start(&mut command);
    shell.shows("selkie=> ");
    shell
}

/// Types a line, and waits for what comes then.
#[track_caller]
fn says(shell: &mut OnTerminal, line: &str, expected: &str) -> usize {
    let from = shell.screen().len();
    shell.types(&format!("{line}\r"));
    shell.shows_behind(from, expected)
}

#[test]
fn who_types_at_a_server_cancels_completes_and_sees_transactions() {
    let (_server, addr) = start("embedded:");
    let mut shell = typed(&addr.to_string());
    shell.shows(&format!("Connected to {addr} as "));
    says(&mut shell, "create table warehouse (quantity int);", "CREATE TABLE");
    says(&mut shell, "insert into ware\tvalues (41);", "INSERT 0 1");
    says(&mut shell, "select quantity + 1 from ware\t;", " 42");
    says(&mut shell, "begin;", "selkie=*> ");
    says(&mut shell, "select 1 / 0;", "selkie=!> ");
    says(&mut shell, "rollback;", "selkie=> ");
    let endless = "select count(*) from generate_series(1, 1000000000) a;";
    for _ in 0..2 {
        let from = shell.screen().len();
        shell.types(&format!("{endless}\r"));
        // After a second or more it says what it does.
        shell.shows_behind(from, "generate_series(1, 1000000000) a; (");
        shell.signal(Signal::INT);
        let end =
            shell.shows_behind(from, "ERROR:  57014: canceling statement due to user request");
        shell.shows_behind(end, "selkie=> ");
    }
    says(&mut shell, "copy warehouse from stdin;", ">> ");
    let end = shell.screen().len();
    shell.types("\u{3}");
    let end = shell.shows_behind(end, "57014");
    shell.shows_behind(end, "selkie=> ");
    says(&mut shell, "select count(*) as one from warehouse;", " 1");
    shell.types("\\q\r");
    assert_eq!(shell.ends(), Some(1), "{}", shell.screen());
}

/// A server that lets one client in, and then says nothing more.
fn silent() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        let mut begin = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
        stream.read_exact(&mut begin).unwrap();
        // The user is in, a key of the session, and ready.
        stream
            .write_all(b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x07\0\0\0\x09Z\0\0\0\x05I")
            .unwrap();
        while stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {}
    });
    addr
}

#[test]
fn who_completes_at_a_server_that_is_silent_types_on() {
    let mut shell = typed(&format!("postgres://me@{}/selkie?sslmode=disable", silent()));
    // The second is not even asked for; the line is given up then.
    shell.types("select * from \tt \t\u{15}\\echo goes on\r");
    shell.shows("goes on\r\n");
    shell.types("\\q\r");
    assert_eq!(shell.ends(), Some(0), "{}", shell.screen());
}

#[test]
fn a_shell_whose_server_is_gone_goes_on_at_another() {
    let setup = Setup { test: "shell-lost", memory_nodes: 1, memory: "500M", ..Setup::default() };
    let pool = Pool::start(&setup);
    let ((mut first, here), (_second, there)) = (start(&pool.url), start(&pool.url));
    let both = |first: SocketAddr, second: SocketAddr| {
        format!("postgres://me@{first},{second}/selkie?sslmode=disable")
    };
    let mut shell = typed(&both(here, there));
    says(&mut shell, "create table t (a int primary key);", "CREATE TABLE");
    says(&mut shell, "insert into t values (1);", "INSERT 0 1");
    says(&mut shell, "begin;", "selkie=*> ");
    says(&mut shell, "insert into t values (2);", "INSERT 0 1");
    first.kill();
    // What was meant for the transaction is not run without it.
    let from = shell.screen().len();
    shell.types("insert into t values (3); insert into t values (4);\r");
    let end = shell.shows_behind(from, "the server closed the connection unexpectedly");
    let end = shell.shows_behind(end, &format!("Connected again, to {there} as me"));
    shell.shows_behind(end, "selkie=> ");
    says(&mut shell, "select string_agg(a::text, ',') || '.' from t;", " 1.\r\n");
    shell.types("\\q\r");
    assert_eq!(shell.ends(), Some(1), "{}", shell.screen());
    // A script ends: what follows was meant for the session that is gone.
    let script = "select pg_terminate_backend(pg_backend_pid());\nselect 'not run' as b;\n";
    let output = piped(&there.to_string(), &["--keep-going"], script);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{error}");
    assert!(error.contains("57P01") && !said.contains("not run"), "{said}{error}");
    let last = format!("error: the connection to the server at {there} is lost\n");
    assert!(error.ends_with(&last), "{error}");
}
