//! Errors that a person meets first: each names what is wrong once, and what there is instead.

use std::process::Stdio;

use crate::harness::{Over, Pool, Setup, ends, fails, refused, run, selkie, succeeds, text};

#[test]
fn a_pool_that_is_not_there_is_told_by_its_name_with_those_that_are() {
    let own = format!("test-errors-{}", std::process::id());
    succeeds(&["pool", "create", &own]);
    let missing = format!("no pool `{own}-not` on this host; there are");
    let (name, url) = (format!("{own}-not"), format!("shm:{own}-not"));
    for command in [
        &["pool", "status", &name][..],
        &["pool", "destroy", &name],
        &["pool", "drain", &name, "mem0"],
        &["pool", "forgive", &name, "mem0"],
        &["memnode", "--pool", &name, "--memory", "40M"],
        &["top", &name, "--once"],
        &["tpcc", "--pool", &url],
        &["backup", &name, "--to", "file:///nowhere"],
    ] {
        let error = fails(command, 1, &missing);
        assert_eq!(error.matches(&name).count(), 1, "{error}");
        assert!(!error.contains("/dev/shm"), "{error}");
    }
    // Other tests have pools, too, of which only a few are named.
    let error = fails(&["pool", "status", &name], 1, &missing);
    let (_, others) = error.split_once("; there are").unwrap();
    assert!(others.contains(&own) || others.contains("`selkie pool list` shows them"), "{error}");
    let again = format!("there is a pool `{own}` on this host already: `selkie pool status {own}`");
    refused(&["pool", "create", &own], 1, &again);
    succeeds(&["pool", "destroy", &own]);
}

#[test]
fn an_address_is_named_once_and_one_in_use_with_its_process() {
    let said = fails(&["pool", "status", "tcp:127.0.0.1:1"], 1, "given up after");
    // It says what it waits for meanwhile, and then why it waits no more.
    let (waits, error) = said.trim_end().rsplit_once('\n').unwrap();
    assert!(waits.contains("127.0.0.1:1 does not answer; waits 5 s at most"), "{said}");
    assert_eq!(error.matches("127.0.0.1:1").count(), 1, "{said}");
    let error = fails(&["pool", "status", "tcp:127.0.0.1:1,127.0.0.1:2"], 1, "given up after");
    for address in ["127.0.0.1:1 ", "127.0.0.1:2 "] {
        let last = error.lines().last().unwrap();
        assert_eq!(last.matches(address).count(), 1, "{error}");
    }

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = taken.local_addr().unwrap().to_string();
    let holder = format!(": process {} (", std::process::id());
    let metrics = ["tpcc", "--warehouses", "1", "--scale", "100", "--metrics", &at];
    let error = fails(&metrics, 1, &holder);
    assert!(error.contains("Address already in use"), "{error}");
    let name = format!("test-in-use-{}", std::process::id());
    succeeds(&["pool", "create", &name, "--fabric", "tcp"]);
    let lend = ["memnode", "--pool", &name, "--memory", "300M", "--listen", &at];
    let error = fails(&lend, 1, &holder);
    assert!(error.contains("cannot listen at"), "{error}");
    succeeds(&["pool", "destroy", &name]);
    fails(&["server", "--listen", &at], 1, &holder);
    let setup = Setup { test: "held", over: Over::Tcp, memory_nodes: 1, ..Setup::default() };
    let pool = Pool::start(&setup);
    let listen = ["--listen", &at];
    for command in [
        pool.tpcc(&["--load-only"]),
        vec!["backup", &pool.name, "--to", "/nonexistent/backup"],
        vec!["pool", "repair", &pool.name],
    ] {
        let error = fails(&[&command[..], &listen].concat(), 1, &holder);
        assert!(error.contains("cannot listen at"), "{error}");
    }
}

/// Runs a command whose arguments are wrong; what it says.
#[track_caller]
fn usage(arguments: &[&str]) -> String {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
    error
}

#[test]
fn options_are_named_and_wrong_words_are_guessed_at() {
    refused(
        &["tpcc", "--durability", "disk"],
        2,
        "error: --log-dir: is needed for --durability disk",
    );
    refused(&["tpcc", "--load-only"], 2, "error: --load-only: needs a --pool that");
    // Before anything is loaded.
    let commits = ["tpcc", "--record-commits", "/nonexistent/commits"];
    refused(&commits, 2, "--record-commits /nonexistent/commits: must be a file in a directory");
    let coding = ["pool", "create", "a", "--coding", "3+2"];
    refused(&coding, 2, "error: --coding 3+2 is not allowed: a K that divides");
    for (arguments, expected) in [
        (
            &["tpcc", "--duration", "-1"][..],
            "'-1' for '--duration <SECONDS>': must be a whole number",
        ),
        (&["tpcc", "--duration", "soon"], "'soon' for '--duration <SECONDS>': must be a whole"),
        (&["tpcc", "--warehouses", "-1"], "'-1' for '--warehouses <N>'"),
        (&["tpcc", "--threads", "-1"], "'-1' for '--threads <N>'"),
        (&["memnode", "--pool", "a", "--memory", "-1"], "'-1' for '--memory <SIZE>': a size is"),
        (&["pool", "create", "a", "--lease", "-1"], "'-1' for '--lease <TIME>'"),
        (&["tpc"], "a similar subcommand exists: 'tpcc'"),
        (&["pool", "stats"], "a similar subcommand exists: 'status'"),
        (&["tpcc", "--warehouse", "2"], "a similar argument exists: '--warehouses'"),
    ] {
        let error = usage(arguments);
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("selkie.toml");
    let check = |contents: &str, expected: &str| {
        std::fs::write(&file, contents).unwrap();
        refused(&["config", "check", file.to_str().unwrap()], 1, expected);
    };
    check("[tpcc]\nwarehuses = 2\n", "there is no such key, did you mean `warehouses`? there are");
    check("[memnod]\n", "there is no such command, did you mean `memnode`? there are");
    check("[tpcc]\nzzz = 2\n", "zzz = 2: there is no such key; there are");
}

/// `selkie pool status demo | head -1` ended with a panic.
#[test]
fn who_has_read_enough_of_the_output_makes_no_error() {
    let name = format!("test-pipe-{}", std::process::id());
    succeeds(&["pool", "create", &name]);
    let arguments = [&["pool", "status", &name][..], &["pool", "list"], &["completions", "bash"]];
    for arguments in arguments {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = selkie(arguments);
        let output = ends(command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap());
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    }
    succeeds(&["pool", "destroy", &name]);
}
