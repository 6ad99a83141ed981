//! The `selkie` binary: arguments, output, exit codes.

use std::collections::BTreeSet;
use std::process::Output;

use crate::harness::run;

fn selkie(arguments: &[&str]) -> Output {
    command("tpcc", arguments)
}

fn command(command: &str, arguments: &[&str]) -> Output {
    run(&[&[command], arguments].concat())
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A short run on the smallest database.
const TINY: [&str; 8] =
    ["--warehouses", "1", "--scale", "100", "--duration", "1", "--threads", "2"];

#[test]
fn bad_arguments_are_refused_before_anything_starts() {
    let cases = [
        (["--warehouses", "0"], "--warehouses 0: must be 1 to 100000"),
        (["--compute-nodes", "59"], "--compute-nodes 59: must be 1 to 58"),
        (["--compute-nodes", "0"], "--compute-nodes 0: must be 1 to 58"),
        (["--memory-nodes", "0"], "--memory-nodes 0: must be 1 to 1024"),
        (["--workers", "0"], "--workers 0: must be 1 to 1024"),
        (["--threads", "0"], "--threads 0: must be 1 to 1024"),
        (["--duration", "0"], "--duration 0: must be above 0 and at most 86400 seconds"),
        (["--gcl", "1000"], "--gcl 1000: must be a power of two in 1024 to 8192"),
        (["--gcl", "256"], "--gcl 256: must be a power of two in 1024 to 8192"),
        (["--gcl", "16384"], "--gcl 16384: must be a power of two in 1024 to 8192"),
        (["--gcl", "512"], "--gcl 512: must be at least 1024 for TPC-C"),
        (["--cache-mb", "1"], "--cache-mb 1: must be 2 to "),
        (["--memory-mb", "1"], "--memory-mb 1: must be 4 to "),
        (["--homes", "0-2"], "--homes 0-2: must be a range within 1-4"),
        (["--homes", "3-2"], "--homes 3-2: must be a range within 1-4"),
        (["--homes", "4-5"], "--homes 4-5: must be a range within 1-4"),
        (["--scale", "101"], "--scale 101: must be 1 to 100"),
        (["--remote-percent", "101"], "--remote-percent 101: must be 0 to 100"),
    ];
    for (arguments, expected) in cases {
        let output = selkie(&arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{arguments:?} started something: {text}");
        assert!(output.stdout.is_empty());
    }
    let output = selkie(&["--affinity", "warehouse", "--warehouses", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--compute-nodes 2: with --affinity warehouse"));
    for (arguments, expected) in [
        (["--protocol", "occ"], "--protocol occ: with --affinity partitioned must be 2pl"),
        (["--homes", "1-4"], "--homes 1-4: is not to be given with --affinity partitioned"),
        (["--pool", "shm:a"], "--affinity partitioned: with a shared --pool must be shared"),
    ] {
        let output = selkie(&[&["--affinity", "partitioned"][..], &arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn what_clap_refuses_exits_with_2_too() {
    let protocol = ["--protocol", "mvcc"];
    for arguments in
        [["--warehouses", "many"], ["--affinity", "none"], protocol, ["--no-such", "1"]]
    {
        let output = selkie(&arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        let (flag, value) = (arguments[0], arguments[1]);
        let text = stderr(&output);
        assert!(text.contains(flag) && (flag == "--no-such" || text.contains(value)), "{text}");
    }
}

#[test]
fn a_pool_too_small_is_a_clear_error() {
    let arguments =
        ["--warehouses", "1", "--scale", "10", "--memory-nodes", "1", "--memory-mb", "5"];
    let output = selkie(&arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("error: pool full: used 4.0 MiB of 4.0 MiB, needs about"), "{text}");
    assert!(!text.contains("panicked"), "{text}");
}

#[test]
fn json_is_one_object_and_nothing_else() {
    let output = selkie(&[&TINY[..], &["--json", "--affinity", "shared", "--seed", "9"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 1);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["consistency"], "ok");
    assert_eq!(json["config"]["seed"], 9);
    assert_eq!(json["config"]["affinity"], "shared");
    assert_eq!(json["config"]["compute_nodes"], 2);
    assert!(json["tps"].as_f64().unwrap() > 0.0 && json["tpmc"].as_f64().unwrap() > 0.0);
    for kind in ["new_order", "payment", "order_status", "delivery", "stock_level"] {
        for percentile in ["p50", "p95", "p99"] {
            let value = json["latency_us"][kind][percentile].as_f64();
            assert!(value.is_some_and(|value| value > 0.0), "{kind} {percentile}: {text}");
        }
    }
    for key in ["hit_ratio", "round_trips_per_txn", "atomics_per_txn", "bytes_per_txn"] {
        assert!(json[key].as_f64().unwrap() > 0.0, "{key}: {text}");
    }
    assert!(json["invalidations_per_txn"].is_number());
    assert!(json["aborts"]["conflict"].is_number());
    assert_eq!((&json["config"]["protocol"], &json["aborts"]["stale"]), (&"2pl".into(), &0.into()));
}

#[test]
fn tpcc_runs_by_every_other_protocol() {
    for (protocol, not_its) in [("occ", "too_late"), ("to", "stale")] {
        let output = selkie(&[&TINY[..], &["--json", "--protocol", protocol]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&json["consistency"], &json["config"]["protocol"]),
            (&"ok".into(), &protocol.into())
        );
        assert_eq!(json["journal"]["missing"], 0);
        assert_eq!(json["aborts"][not_its], 0);
        assert!(json["tps"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn tpcc_runs_as_sql_in_sessions_and_over_the_wire() {
    for via in ["sql", "wire"] {
        let mut unseen: BTreeSet<String> = BTreeSet::new();
        // In one run on a busy machine a rare transaction may not come.
        for seed in ["1", "2", "3", "4", "5", "6"] {
            let output = selkie(&[&TINY[..], &["--json", "--via", via, "--seed", seed]].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let config = &json["config"];
            assert_eq!((&config["via"], &config["protocol"]), (&via.into(), &"snapshot".into()));
            let found = (&json["consistency"], &json["journal"]["missing"]);
            assert_eq!(found, (&"ok".into(), &0.into()));
            assert!(json["journal"]["found"].as_u64() > Some(0), "{json}");
            let by_type = json["by_type"].as_object().unwrap();
            let missed = by_type.iter().filter(|(_, own)| own["completed"] == 0);
            let missed = missed.map(|(kind, _)| kind.clone()).collect();
            unseen = if seed == "1" { missed } else { &unseen & &missed };
            if unseen.is_empty() {
                break;
            }
        }
        assert!(unseen.is_empty(), "{via}: {unseen:?}");
    }
    let output = selkie(&["--via", "sql", "--protocol", "2pl"]);
    let said = "--protocol 2pl: with --via sql must be snapshot";
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

#[test]
fn people_get_tables_and_progress_goes_to_stderr() {
    let output = selkie(&TINY);
    let progress = stderr(&output);
    assert!(output.status.success(), "{progress}");
    let text = String::from_utf8(output.stdout).unwrap();
    for wanted in ["NewOrder", "tpmC", "consistency: ok", "of the loaded database"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let start = "starting 3 memory nodes of ";
    for stage in [start, "load: ", "run: ", "check: ", "looking for commits: "] {
        assert!(progress.contains(stage) && !text.contains(stage), "{progress}");
    }
}

/// Of a large database that took ten seconds, in which nothing was said.
#[test]
fn an_embedded_pool_writes_nothing_home_that_its_end_throws_away() {
    let log = ["--log", "selkie_engine=info"];
    let output = selkie(&[&TINY[..], &log].concat());
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("started a compute node"), "{said}");
    assert!(!said.contains("closing a compute node"), "{said}");
    assert!(!said.contains("dead") && !said.contains("died") && !said.contains("WARN"), "{said}");
    // Logs on disk outlive it, and the pages that they lack are home before they are closed.
    let place = tempfile::tempdir().unwrap();
    let disk = ["--durability", "disk", "--log-dir", place.path().to_str().unwrap()];
    let output = selkie(&[&TINY[..], &log, &disk].concat());
    let said = stderr(&output);
    assert!(output.status.success() && said.contains("closed a compute node"), "{said}");
    assert!(said.contains("writes changed pages home, and closes the logs"), "{said}");
}

/// `--pool` was taken for a misspelt `--protocol`, and `--reload` for `--threads`.
#[test]
fn options_of_other_commands_are_named_as_theirs() {
    for name in ["smallbank", "tatp", "ycsb"] {
        let pool = "demo, tpcc, sql, server, memnode";
        for (option, owners) in [("--pool", pool), ("--reload", "tpcc"), ("--homes", "tpcc")] {
            let output = command(name, &[option, "x"]);
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{name}: {text}");
            let tip = format!("'{option}' is an option of other commands: {owners}");
            assert!(text.contains(&tip), "{name}: {text}");
            for other in ["--protocol", "--threads", "similar"] {
                assert!(!text.contains(other), "{name}: {text}");
            }
        }
        let misspelt = stderr(&command(name, &["--protocl", "occ"]));
        assert!(misspelt.contains("a similar argument exists: '--protocol'"), "{misspelt}");
    }
}

/// Short runs of the other benchmarks, with the names of their transactions.
const BENCHMARKS: [(&str, [&str; 2], &[&str]); 3] = [
    (
        "smallbank",
        ["--accounts", "1000"],
        &[
            "balance",
            "deposit_checking",
            "transact_savings",
            "amalgamate",
            "write_check",
            "send_payment",
        ],
    ),
    (
        "tatp",
        ["--subscribers", "500"],
        &[
            "get_subscriber_data",
            "get_new_destination",
            "get_access_data",
            "update_subscriber_data",
            "update_location",
            "insert_call_forwarding",
            "delete_call_forwarding",
        ],
    ),
    ("ycsb", ["--records", "1000"], &["read", "update"]),
];

/// Runs one of them for a short time.
fn benchmark(name: &str, size: &[&str], more: &[&str]) -> Output {
    let short = ["--duration", "0.3", "--threads", "2"];
    command(name, &[size, &short, more].concat())
}

#[test]
fn other_benchmarks_refuse_bad_arguments_before_anything_starts() {
    let common = [
        (["--compute-nodes", "59"], "--compute-nodes 59: must be 1 to 58"),
        (["--memory-nodes", "0"], "--memory-nodes 0: must be 1 to 1024"),
        (["--workers", "0"], "--workers 0: must be 1 to 1024"),
        (["--threads", "1025"], "--threads 1025: must be 1 to 1024"),
        (["--gcl", "1000"], "--gcl 1000: must be a power of two in 512 to 8192"),
        (["--overflow-mb", "9999999"], "--overflow-mb 9999999: must be 0 to 1048576"),
        (["--gcl", "256"], "--gcl 256: must be a power of two in 512 to 8192"),
        (["--cache-mb", "1"], "--cache-mb 1: must be 2 to "),
        (["--memory-mb", "1"], "--memory-mb 1: must be 4 to "),
        (["--coding", "8+2"], "--coding 8+2: must be "),
    ];
    let of_one = [
        ("smallbank", ["--accounts", "1"], "--accounts 1: must be 2 to 100000000"),
        ("smallbank", ["--hot-accounts", "0"], "--hot-accounts 0: must be 1 to 100000"),
        ("smallbank", ["--hot-accounts", "100001"], "--hot-accounts 100001: must be 1 to 100000"),
        ("smallbank", ["--hot-share", "-0.1"], "--hot-share -0.1: must be 0 to 1"),
        ("tatp", ["--subscribers", "0"], "--subscribers 0: must be 1 to 20000000"),
        ("ycsb", ["--records", "0"], "--records 0: must be 1 to 1000000000"),
        ("ycsb", ["--operations", "0"], "--operations 0: must be 1 to 1000000000000"),
        ("ycsb", ["--value-bytes", "79"], "--value-bytes 79: must be 80 to 1933 with --gcl 2048"),
        ("ycsb", ["--value-bytes", "1934"], "--value-bytes 1934: must be 80 to 1933 with --gcl"),
        ("ycsb", ["--zipf", "1"], "--zipf 1: must be above 0 and below 1"),
        ("ycsb", ["--zipf", "-0.5"], "--zipf -0.5: must be above 0 and below 1"),
        ("ycsb", ["--svg", "/no/such/place.svg"], "--svg /no/such/place.svg: must be a file in a"),
    ];
    let names = ["smallbank", "tatp", "ycsb"];
    let common = names.into_iter().flat_map(|name| common.map(|(given, what)| (name, given, what)));
    for (name, arguments, expected) in common.chain(of_one) {
        let output = command(name, &arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name} {arguments:?}: {text}");
        assert!(text.contains(expected), "{name} {arguments:?}: {text}");
        assert_eq!(text.lines().count(), 1, "{name} {arguments:?} started something: {text}");
        assert!(output.stdout.is_empty());
    }
    for name in names {
        for (arguments, expected) in [
            (&["--duration", "0"][..], "'--duration <SECONDS>': must be 0.001 to 86400 seconds"),
            (
                &["--duration", "-1"],
                "'-1' for '--duration <SECONDS>': must be 0.001 to 86400 seconds",
            ),
            (
                &["--sim", "paper", "--duration", "3600.5"],
                "--duration 3600.5: must be above 0 and at most 3600 seconds of virtual time",
            ),
            (&["--sim", "slow"], "there is no such preset; there are paper"),
            (&["--sim", "paper", "--threads", "2"], "'--sim <PRESET>' cannot be used with"),
            (&["--insecure"], "insecure: goes with --metrics only"),
        ] {
            let output = command(name, arguments);
            let text = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{name} {arguments:?}: {text}");
            assert!(text.contains(expected), "{name} {arguments:?}: {text}");
        }
    }
}

#[test]
fn options_of_ycsb_that_do_not_go_together_are_refused() {
    for (arguments, expected) in [
        (&["--workload", "g"][..], "there is no such workload; there are a, b, c, d, e and f"),
        (&["--distribution", "zipf"], "there is no such distribution; there are uniform, zipfian"),
        (&["--via", "wire"], "[possible values: tree, table, sql]"),
        (&["--coherence", "mesi"], "[possible values: selcc, sel, rpc]"),
        (&["--load", "random"], "[possible values: bulk, rows]"),
        (&["--operations", "5", "--duration", "1"], "cannot be used with"),
        (
            &["--distribution", "uniform", "--zipf", "0.5"],
            "--zipf 0.5: goes with --distribution zipfian and latest only",
        ),
        (&["--via", "tree", "--protocol", "occ"], "--protocol occ: is of transactions: --via tree"),
        (
            &["--via", "tree", "--durability", "memory"],
            "--durability memory: is of transactions: --via tree",
        ),
        (&["--via", "sql", "--protocol", "2pl"], "--protocol 2pl: with --via sql must be snapshot"),
        (&["--via", "sql", "--sim", "paper"], "--via sql: must be tree or table where time is"),
        (
            &["--coherence", "rpc", "--coding", "2+1"],
            "--coherence rpc: must be selcc or sel with --coding 2+1",
        ),
        (
            &["--coherence", "rpc", "--durability", "memory"],
            "--coherence rpc: must be selcc or sel with --durability memory",
        ),
    ] {
        let output = command("ycsb", arguments);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty() && !text.contains("memory node"), "{text}");
    }
}

#[test]
fn ycsb_runs_by_tree_table_and_sql_and_draws_its_latency() {
    let place = tempfile::tempdir().unwrap();
    for (workload, via) in ["a", "b", "c", "d", "e", "f"]
        .into_iter()
        .zip(["tree", "sql", "table", "sql", "sql", "sql"])
    {
        let svg = place.path().join(format!("{workload}.svg"));
        let more = ["--workload", workload, "--via", via, "--operations", "1500", "--json"];
        let drawn = ["--records", "2000", "--threads", "2", "--svg", svg.to_str().unwrap()];
        let output = command("ycsb", &[&more[..], &drawn].concat());
        assert!(output.status.success(), "{workload} {via}: {}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&json["operations"], &json["consistency"]), (&1_500.into(), &"ok".into()));
        let config = &json["config"];
        assert_eq!((&config["workload"], &config["via"]), (&workload.into(), &via.into()));
        for key in ["ops_per_second", "hit_ratio", "round_trips_per_op", "bytes_per_record"] {
            assert!(json[key].as_f64().is_some_and(|value| value > 0.0), "{key}: {json}");
        }
        let drawn = std::fs::read_to_string(svg).unwrap();
        let operation = match workload {
            "e" => "Scan",
            _ => "Read",
        };
        for text in ["<svg", "99 %", "operations that took no longer", operation] {
            assert!(drawn.contains(text), "{workload}: {text}: {drawn}");
        }
    }
    let baseline = ["--coherence", "rpc", "--operations", "500", "--records", "500", "--json"];
    let output = command("ycsb", &baseline);
    assert!(output.status.success(), "{}", stderr(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let config = &json["config"];
    assert_eq!((&config["coherence"], &config["coding"]), (&"rpc".into(), &"plain".into()));
}

#[test]
fn a_load_that_a_full_pool_ends_says_how_far_it_got() {
    let small = ["--memory-nodes", "1", "--memory-mb", "10", "--cache-mb", "2"];
    for load in ["bulk", "rows"] {
        let many = ["--records", "200000", "--value-bytes", "100", "--load", load];
        let output = command("ycsb", &[&many[..], &small].concat());
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.contains("error: pool full: used ") && text.contains(" MiB; the load"),
            "{text}"
        );
        assert!(text.contains(" of 200,000 keys") && !text.contains("panicked"), "{text}");
    }
}

#[test]
fn other_benchmarks_print_one_json_object() {
    for (name, size, kinds) in BENCHMARKS {
        let output = benchmark(name, &size, &["--json", "--seed", "9"]);
        assert!(output.status.success(), "{name}: {}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1);
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["consistency"], "ok");
        let config = &json["config"];
        assert_eq!((&config["seed"], &config["compute_nodes"]), (&9.into(), &2.into()));
        assert_eq!((&config["coding"], &config["network"]), (&"2+1".into(), &"embedded".into()));
        assert!(json["tps"].as_f64().unwrap() >= json["successful_tps"].as_f64().unwrap());
        assert!(json["successful_tps"].as_f64().unwrap() > 0.0);
        for kind in kinds {
            let completed = json["by_type"][kind]["completed"].as_u64();
            assert!(completed.is_some_and(|completed| completed > 0), "{kind}: {text}");
            for percentile in ["p50", "p95", "p99"] {
                let value = json["latency_us"][kind][percentile].as_f64();
                assert!(value.is_some_and(|value| value > 0.0), "{kind} {percentile}: {text}");
            }
        }
        for key in ["hit_ratio", "round_trips_per_txn", "atomics_per_txn", "bytes_per_txn"] {
            assert!(json[key].as_f64().unwrap() > 0.0, "{key}: {text}");
        }
        assert!(json["aborts"]["conflict"].is_number() && json["totals"].is_object());
    }
}

#[test]
fn other_benchmarks_tell_people_and_run_in_virtual_time() {
    for (name, size, _) in BENCHMARKS {
        let output = benchmark(name, &size, &[]);
        let progress = stderr(&output);
        assert!(output.status.success(), "{name}: {progress}");
        let text = String::from_utf8(output.stdout).unwrap();
        for wanted in [
            "p99 us",
            "failed: ",
            ", as the benchmark has it;",
            "consistency: ok",
            "of the loaded database",
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        for stage in ["load: ", "run: ", "check: "] {
            assert!(progress.contains(stage) && !text.contains(stage), "{progress}");
        }
        let virtually = ["--sim", "paper", "--duration", "0.001", "--workers", "2", "--json"];
        let run = || command(name, &[&size[..], &virtually].concat());
        let (first, second) = (run(), run());
        assert!(first.status.success(), "{name}: {}", stderr(&first));
        assert_eq!(first.stdout, second.stdout, "{name}: virtual time depends on something else");
    }
}
