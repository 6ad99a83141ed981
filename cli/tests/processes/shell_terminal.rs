//! The SQL shell on a terminal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use rustix::termios::LocalModes;

use crate::harness::{run, selkie, until};
use crate::terminal::OnTerminal;

/// A shell whose history is in this file.
fn shell(history: &Path, change: impl FnOnce(&mut Command)) -> OnTerminal {
    let mut command = selkie(&["sql", "--history", history.to_str().unwrap()]);
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    change(&mut command);
    let shell = OnTerminal::start(&mut command);
    shell.shows("selkie=> ");
    shell
}

/// A shell without colours, which come between the words of a line.
fn plain(history: &Path) -> OnTerminal {
    shell(history, |command| {
        command.env("NO_COLOR", "1");
    })
}

/// Types a line, and waits for what comes then.
#[track_caller]
fn says(shell: &mut OnTerminal, line: &str, expected: &str) {
    let from = shell.screen().len();
    shell.types(&format!("{line}\r"));
    shell.shows_behind(from, expected);
}

#[test]
fn a_prompt_tells_the_statement_and_the_transaction() {
    let place = tempfile::tempdir().unwrap();
    let mut shell = plain(&place.path().join("history"));
    says(&mut shell, "create table t (", "selkie(> ");
    says(&mut shell, "a int)", "selkie-> ");
    says(&mut shell, ";", "CREATE TABLE\r\n");
    says(&mut shell, "begin;", "selkie=*> ");
    says(&mut shell, "insert into t", "selkie-*> ");
    says(&mut shell, "values (1", "selkie(*> ");
    says(&mut shell, ");", "selkie=*> ");
    says(&mut shell, "select 'a", "selkie'*> ");
    says(&mut shell, "' as", "selkie-*> ");
    // What is half typed is cleared, but the transaction goes on.
    says(&mut shell, "\u{3}", "selkie=*> ");
    says(&mut shell, "select 1 / 0;", "selkie=!> ");
    says(&mut shell, "rollback;", "selkie=> ");
    says(&mut shell, "\\x auto", "Expanded display is used automatically.");
    says(&mut shell, "select repeat('x', 200) as wide;", "-[ RECORD 1 ]");
    says(&mut shell, "select 7 as", "selkie-> ");
    // Before the prompt is there, the terminal takes Ctrl-D itself.
    says(&mut shell, "narrow;", "selkie=> ");
    assert!(shell.screen().contains("(1 row)"), "{}", shell.screen());
    shell.types("\u{4}");
    assert_eq!(shell.ends(), Some(1), "{}", shell.screen());
}

#[test]
fn a_statement_that_runs_is_cancelled_and_the_shell_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let mut shell = plain(&place.path().join("history"));
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
    let from = shell.screen().len();
    shell.types("select 1 as a \\watch 0\r");
    let once = shell.shows_behind(from, "(1 row)");
    let twice = shell.shows_behind(once, "(1 row)");
    shell.signal(Signal::INT);
    shell.shows_behind(twice, "selkie=> ");
    let file = place.path().join("many.sql");
    std::fs::write(&file, "select 5 as many;\n".repeat(100_000)).unwrap();
    let from = shell.screen().len();
    shell.types(&format!("\\i {}\r", file.display()));
    let many = shell.shows_behind(from, "(1 row)");
    shell.signal(Signal::INT);
    shell.shows_behind(many, "selkie=> ");
    says(&mut shell, "\\i -", "error: statements are typed on the standard input");
    says(&mut shell, "select 6 * 7 as answer;", " 42");
    shell.types("\\q\r");
    assert_eq!(shell.ends(), Some(1), "{}", shell.screen());
}

#[test]
fn what_was_typed_is_kept_for_its_user_without_passwords() {
    let place = tempfile::tempdir().unwrap();
    let history = place.path().join("state").join("history");
    let mut first = plain(&history);
    says(&mut first, "select 1 +", "selkie-> ");
    says(&mut first, "41 as kept;", " 42");
    says(&mut first, "create role a login password 'sesame';", "CREATE ROLE");
    says(&mut first, "alter role a", "selkie-> ");
    // Before the prompt is there, the terminal takes Ctrl-D itself.
    says(&mut first, "password 'sesame';", "selkie=> ");
    first.types("\u{4}");
    assert_eq!(first.ends(), Some(0), "{}", first.screen());
    let kept = until("the history", || std::fs::read_to_string(&history).ok());
    assert_eq!(kept, "#V2\nselect 1 +\\n41 as kept;\n");
    let mode = history.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let mut second = plain(&history);
    let from = second.screen().len();
    // Arrow up.
    second.types("\u{1b}[A\r");
    second.shows_behind(from, " 42");
    says(&mut second, "select 5 as own;", "(1 row)");
    second.types("\\q\r");
    assert_eq!(second.ends(), Some(0), "{}", second.screen());
    let kept = std::fs::read_to_string(&history).unwrap();
    assert_eq!(kept, "#V2\nselect 1 +\\n41 as kept;\nselect 5 as own;\n\\\\q\n");

    let mut command = selkie(&["sql", "--no-history"]);
    command.env("TERM", "xterm").env("XDG_STATE_HOME", place.path().join("none"));
    let mut third = OnTerminal::start(&mut command);
    third.shows("selkie=> ");
    third.types("\\q\r");
    assert_eq!(third.ends(), Some(0));
    assert!(!place.path().join("none").exists());
}

#[test]
fn names_are_completed_as_the_session_sees_them() {
    let place = tempfile::tempdir().unwrap();
    let mut shell = plain(&place.path().join("history"));
    says(&mut shell, "create table warehouse (quantity int);", "CREATE TABLE");
    says(&mut shell, "insert into ware\tvalues (41);", "INSERT 0 1");
    // In a transaction names are those that were known before.
    says(&mut shell, "begin;", "selkie=*> ");
    says(&mut shell, "select quan\t\u{3}", "selkie=*> ");
    says(&mut shell, "set transaction isolation level serializable;", "SET\r\n");
    says(&mut shell, "select quan\t+ 1 from ware\t;", " 42");
    says(&mut shell, "select warehouse.quan\t+ 2 from warehouse;", " 43");
    says(&mut shell, "\\dt ware\t", "public | warehouse | table");
    says(&mut shell, "\\tim\t", "Timing is on.");
    says(&mut shell, "sel\t1 / 0;", "selkie=!> ");
    // A transaction that has failed answers no questions.
    says(&mut shell, "roll\t;", "selkie=> ");
    shell.types("\u{4}");
    assert_eq!(shell.ends(), Some(1), "{}", shell.screen());
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = tempfile::tempdir().unwrap();
    let history = place.path().join("history");
    let line = "select 'text' as a; -- so";
    let keyword = "\u{1b}[1;34mselect\u{1b}[0m \u{1b}[32m'text'\u{1b}[0m";
    let mut coloured = shell(&history, |_| ());
    says(&mut coloured, line, "(1 row)");
    coloured.types("\\q\r");
    assert_eq!(coloured.ends(), Some(0));
    assert!(coloured.screen().contains(keyword), "{:?}", coloured.screen());
    let mut plain = plain(&history);
    says(&mut plain, line, "(1 row)");
    plain.types("\\q\r");
    assert_eq!(plain.ends(), Some(0));
    assert!(!plain.screen().contains("\u{1b}[1;34m"), "{:?}", plain.screen());
    let output = run(&["sql", "-c", line, "-c", "\\d", "-c", "\\nothing"]);
    assert!(!output.stdout.contains(&0x1b) && !output.stderr.contains(&0x1b));
}

#[test]
fn data_is_typed_and_a_signal_ends_the_shell_in_order() {
    let place = tempfile::tempdir().unwrap();
    let mut shell = plain(&place.path().join("history"));
    says(&mut shell, "create table t (a int);", "CREATE TABLE");
    says(&mut shell, "copy t from stdin;", ">> ");
    says(&mut shell, "1", ">> ");
    says(&mut shell, "\\.", "COPY 1");
    says(&mut shell, "copy t from stdin;", ">> ");
    let end = shell.screen().len();
    shell.types("\u{3}");
    shell.shows_behind(end, "57014");
    says(&mut shell, "begin;", "selkie=*> ");
    says(&mut shell, "insert into t values (2);", "INSERT 0 1");
    let modes = |shell: &OnTerminal| shell.modes().contains(LocalModes::ICANON);
    until("the shell does not ask", || (!modes(&shell)).then_some(()));
    shell.signal(Signal::TERM);
    assert_eq!(shell.ends(), Some(128 + 15), "{}", shell.screen());
    shell.shows("error: interrupted by SIGTERM");
    let kept = std::fs::read_to_string(place.path().join("history")).unwrap();
    assert!(kept.contains("copy t") && !kept.contains("\\."), "{kept}");
}
