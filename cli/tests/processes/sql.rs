//! `selkie sql` as a person types it.

use crate::harness::{given, run, selkie, succeeds, text};

#[test]
fn statements_of_the_command_line_are_run_in_order_up_to_the_first_that_fails() {
    let said = succeeds(&[
        "sql",
        "-c",
        "create table t (a integer primary key, b text)",
        "-c",
        "insert into t values (1, 'one'), (2, null)",
        "-c",
        "select * from t order by a",
    ]);
    assert!(said.contains("CREATE TABLE\nINSERT 0 2\n"), "{said}");
    assert!(said.contains("one") && said.ends_with("(2 rows)\n\n"), "{said}");

    let output = run(&["sql", "-c", "select 1 / 0", "-c", "select 'never'"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(!text(&output.stdout).contains("never"));
    assert!(text(&output.stderr).contains("ERROR:  22012: division by zero"));
    let output = run(&["sql", "--keep-going", "-c", "select 1 / 0", "-c", "select 'behind'"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("behind"));
}

#[test]
fn an_error_shows_its_place() {
    let output = run(&["sql", "-c", "select 1,\n  nothing from generate_series(1, 2)"]);
    let error = text(&output.stderr);
    let shown = "LINE 2:   nothing from generate_series(1, 2)\n          ^";
    assert!(error.contains(shown), "{error}");
}

#[test]
fn rows_are_shown_for_programs() {
    let sql = "select 1 as n, 'a,\"b' as t, null as x, true as b";
    let csv = succeeds(&["sql", "--format", "csv", "-c", sql]);
    assert_eq!(csv, "n,t,x,b\n1,\"a,\"\"b\",,t\n");
    let json = succeeds(&["sql", "--format", "json", "-c", sql]);
    let row: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(row, serde_json::json!({ "n": 1, "t": "a,\"b", "x": null, "b": true }));
}

#[test]
fn statements_of_the_standard_input_are_run_when_their_semicolon_has_come() {
    let script = "select 1 as a; select\n 2 as b; select ';' as c";
    let output = given(&mut selkie(&["sql", "--format", "csv"]), script);
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "a\n1\nb\n2\nc\n;\n");
}

#[test]
fn what_cannot_be_read_is_named() {
    let output = run(&["sql", "-f", "/nowhere/at-all.sql"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("/nowhere/at-all.sql: No such file"));
    let name = format!("test-sql-{}", std::process::id());
    let output = run(&["sql", "--pool", &format!("shm:{name}"), "-c", "select 1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&name));
}

#[test]
fn a_pool_that_is_full_says_so_and_goes_on() {
    let large = "insert into t select i, repeat('x', 1000) from generate_series(1, 40000) i";
    let output = run(&[
        "sql",
        "--memory",
        "16M",
        "--cache",
        "8M",
        "--keep-going",
        "--format",
        "csv",
        "-c",
        "create table t (a int primary key, b text)",
        "-c",
        large,
        "-c",
        "insert into t values (1, 'small')",
        "-c",
        "select count(*) from t",
    ]);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("ERROR:  53100: the pool is full"), "{error}");
    assert_eq!(error.matches("ERROR").count(), 1, "{error}");
    assert!(said.ends_with("count\n1\n"), "{said}");
}
