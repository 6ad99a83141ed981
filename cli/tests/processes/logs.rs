//! What the `selkie` binary logs, and where.

use std::process::Output;

use crate::harness::{output, selkie};

/// A short run, with a variable and options for its log.
fn micro(variable: Option<&str>, options: &[&str]) -> Output {
    let mut command = selkie(options);
    command.env_remove("SELKIE_LOG");
    if let Some(filter) = variable {
        command.env("SELKIE_LOG", filter);
    }
    command.args(["micro", "--gcls", "100", "--workers", "1", "--duration-ms", "1", "--json"]);
    output(&mut command)
}

#[track_caller]
fn logged(variable: Option<&str>, options: &[&str]) -> String {
    let output = micro(variable, options);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    // Results are never among the log.
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result.is_object());
    // How far it is goes there as well, and is no event.
    let is_progress = |line: &&str| line.ends_with(" %");
    assert!(stderr.lines().any(|line| line == "check: 100 %"), "{stderr}");
    stderr.lines().filter(|line| !is_progress(line)).map(|line| format!("{line}\n")).collect()
}

#[test]
fn option_and_variable_say_what_is_logged_and_the_option_wins() {
    for (variable, options) in [
        (Some("info"), &[][..]),
        (None, &["--log", "info"]),
        (Some("error"), &["--log", "off,selkie_engine=info"]),
    ] {
        let log = logged(variable, options);
        for node in ["cn0", "cn1"] {
            for event in ["started a compute node", "closed a compute node"] {
                let found = |line: &str| line.contains(event) && line.contains(node);
                assert!(log.lines().any(found), "{variable:?} {options:?}: {log}");
            }
        }
        assert!(!log.contains('\u{1b}'), "no colours where there is no terminal: {log}");
    }
    for (variable, options) in
        [(None, &[][..]), (Some(""), &[]), (Some("info"), &["--log=selkie_engine=warn"])]
    {
        assert_eq!(logged(variable, options), "", "{variable:?} {options:?}");
    }
}

#[test]
fn other_filters_are_refused_before_anything_starts() {
    for output in [micro(Some("loud"), &[]), micro(None, &["--log", "loud"])] {
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("\"loud\" is no level: a filter is off, error, warn"), "{error}");
        assert!(output.stdout.is_empty());
    }
}
