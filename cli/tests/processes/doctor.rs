//! What helps a person before the first pool: `doctor`, shell completions, manual pages.

use std::process::Command;

use crate::harness::{given, refused, run, succeeds, text};

#[test]
fn the_doctor_looks_at_this_host_and_has_a_remedy_for_what_is_wrong() {
    let output = run(&["doctor", "--json"]);
    let seen: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = seen["checks"].as_array().unwrap();
    let names: Vec<_> = checks.iter().map(|check| check["name"].as_str().unwrap()).collect();
    for name in [
        "kernel",
        "cores",
        "scheduling",
        "memory",
        "shared memory",
        "overcommit",
        "huge pages",
        "clock source",
        "open files",
        "locked memory",
        "RDMA devices",
    ] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    for check in checks {
        assert!(!check["found"].as_str().unwrap().is_empty(), "{check}");
        assert_eq!(check["verdict"] == "ok", check["remedy"].is_null(), "{check}");
    }
    // What the tests run with is there.
    let of =
        |name: &str| checks.iter().find(|check| check["name"] == name).unwrap()["found"].clone();
    assert!(of("shared memory").as_str().unwrap().starts_with("/dev/shm has "));
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(of("kernel"), release.trim());
    let has_problem = checks.iter().any(|check| check["verdict"] == "problem");
    assert_eq!(output.status.code(), Some(i32::from(has_problem)), "{seen}");
    assert_eq!(seen["verdict"] == "problem", has_problem);

    let told = text(&run(&["doctor"]).stdout);
    let first = told.lines().next().unwrap();
    assert!(
        ["this host is fit", "something will fail"].iter().any(|w| first.starts_with(w)),
        "{told}"
    );
    assert!(told.lines().nth(2).unwrap().starts_with("│ what "), "no header is empty: {told}");
    for name in names {
        assert!(told.contains(name), "{name}: {told}");
    }
}

#[test]
fn bash_completes_commands_options_and_values() {
    let script = succeeds(&["completions", "bash"]);
    let complete = |words: &[&str]| {
        let (last, line) = (words.len() - 1, words.join(" "));
        let ask = format!(
            "{script}\nCOMP_WORDS=({line}) COMP_CWORD={last}\n_selkie selkie '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words[last],
            words[last - 1],
        );
        let mut bash = Command::new("bash");
        let output = given(bash.args(["--norc", "-s"]), ask);
        assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    assert_eq!(complete(&["selkie", "memn"]), "memnode\n");
    assert_eq!(complete(&["selkie", "pool", "li"]), "list\n");
    assert_eq!(complete(&["selkie", "pool", "create", "--max"]), "--max-compute-nodes\n");
    assert_eq!(complete(&["selkie", "tpcc", "--durability", "d"]), "disk\n");
    for (shell, word) in [("zsh", "#compdef selkie"), ("fish", "complete -c selkie")] {
        assert!(succeeds(&["completions", shell]).contains(word), "{shell}");
    }
    let other = run(&["completions", "csh"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("possible values: bash"), "{}", text(&other.stderr));
}

#[test]
fn each_command_has_a_manual_page() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("man1");
    let directory = directory.to_str().unwrap();
    let told = succeeds(&["man", directory]);
    assert!(told.contains(&format!("man {directory}/selkie.1")), "{told}");
    let page = |name: &str| std::fs::read_to_string(format!("{directory}/{name}.1")).unwrap();
    for (name, words) in [
        ("selkie", &["Subcommands", "selkie\\-pool(1)", "doctor"][..]),
        ("selkie-pool-create", &["memory\\-nodes", "lease", "2s"]),
        ("selkie-doctor", &["json"]),
    ] {
        let page = page(name);
        assert!(page.contains(".TH"), "{name}: {page}");
        for word in words {
            assert!(page.to_lowercase().contains(&word.to_lowercase()), "{word}: {page}");
        }
    }
    refused(&["man", "/proc/nothing"], 1, "/proc/nothing: ");
}

/// Where a file says the options of a command, so it does of this one.
#[test]
fn the_doctor_takes_a_configuration_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("selkie.toml");
    std::fs::write(&file, "[doctor]\njson = true\n").unwrap();
    let output = run(&["--config", file.to_str().unwrap(), "doctor"]);
    assert!(output.stdout.starts_with(b"{"), "{}", text(&output.stdout));
}
