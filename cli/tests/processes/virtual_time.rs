//! The subcommands that simulate and measure: arguments, output, exit codes.

use rustix::process::Signal;

use crate::harness::{Process, run, text};

#[test]
fn bad_arguments_are_refused_with_what_is_allowed() {
    for (arguments, expected) in [
        (&["sim", "--seeds", "5..5"][..], "the range is empty: 5 must be less than 5"),
        (&["sim", "--seeds", "9..2"], "the range is empty"),
        (&["sim", "--seeds", "7"], "a range is written A..B"),
        (&["sim", "--seeds", "a..7"], "\"a\" is no number"),
        (
            &["sim", "--seed", "1", "--scenario", "x"],
            "there are counter, bank, history, tree, tpcc",
        ),
        (
            &["sim", "--seed", "1", "--scenario", "ring", "--protocol", "to"],
            "does not run with --protocol to: history and tpcc do",
        ),
        (&["sim", "--seed", "1", "--protocol", "occ"], "together with --scenario"),
        (&["sim", "--seed", "1", "--protocol", "x"], "there are 2pl, to, occ"),
        (&["sim"], "--seeds <A..B>"),
        (&["sim", "--seed", "1", "--seeds", "1..2"], "cannot be used with"),
        (&["micro", "--sim", "x"], "there are paper, modern, cxl, tcp"),
        (&["micro", "--read-ratio", "1.5"], "--read-ratio 1.5: must be 0 to 1"),
        (&["micro", "--sharing-ratio", "-1"], "--sharing-ratio -1: must be 0 to 1"),
        (&["micro", "--locality", "nan"], "--locality NaN: must be 0 to 1"),
        (&["micro", "--zipf", "11"], "--zipf 11: must be 0 (uniform) to less than 10"),
        (&["micro", "--coherence", "x"], "selcc, sel, rpc"),
        (&["micro", "--without", "x"], "there are gamma, ageing"),
        (&["micro", "--memnode-cores", "0"], "--memnode-cores 0: must be 0.01 to 64"),
        (&["figures", "x", "--out", "y"], "there are scalability, locality, skew"),
        (&["figures", "coding", "--out", "y"], "coding-sets, coding-latency, coding-failures"),
        (&["figures", "coding-sets", "--out", "y", "--trials", "0"], "0 is not in 1..=1000000000"),
        (&["figures", "locality"], "--out <DIR>"),
    ] {
        let output = run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_seed_is_replayed_with_its_events() {
    let output = run(&["sim", "--seed", "11", "--scenario", "counter"]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("plan: network") && said.contains("scenario counter, seed 11: ok"),
        "{said}"
    );
    let events = text(&output.stdout);
    assert!(events.lines().count() > 1000 && events.contains("FAA") && events.contains("READ"));
    // What is logged beside them has the time of day.
    let again = run(&["sim", "--seed", "11", "--scenario", "counter"]);
    assert!(output.stdout == again.stdout && again.status.success(), "again the same");
}

#[test]
fn every_protocol_of_transactions_is_run_when_asked_for() {
    for scenario in ["history", "tpcc"] {
        let traces = ["2pl", "to", "occ"].map(|protocol| {
            let asked = ["sim", "--seeds", "5..6", "--scenario", scenario, "--protocol", protocol];
            let output = run(&asked);
            assert!(output.status.success(), "{asked:?}: {}", text(&output.stderr));
            let said = text(&output.stdout);
            said.split_once("traces ").unwrap().1.split_once(',').unwrap().0.to_owned()
        });
        let [two_phase, timestamp, optimistic] = &traces;
        assert!(two_phase != timestamp && timestamp != optimistic && optimistic != two_phase);
    }
}

#[test]
fn a_sweep_says_what_it_did() {
    let output = run(&["sim", "--seeds", "100..108", "--scenario", "ring"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("8 runs ok, seeds 100..108: "));
    assert!(text(&output.stderr).contains("seeds: 100 %"), "{}", text(&output.stderr));
}

#[test]
fn the_micro_benchmark_reports_under_every_protocol_and_repeats_itself_in_virtual_time() {
    for coherence in ["selcc", "sel", "rpc"] {
        let run = || {
            let output = run(&[
                "micro",
                "--sim",
                "modern",
                "--coherence",
                coherence,
                "--compute-nodes",
                "2",
                "--memory-nodes",
                "2",
                "--workers",
                "2",
                "--gcls",
                "4000",
                "--cache-mb",
                "2",
                "--duration-ms",
                "2",
                "--read-ratio",
                "0.5",
                "--json",
            ]);
            assert!(output.status.success(), "{}", text(&output.stderr));
            let mut report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            report["real_seconds"].take();
            report
        };
        let report = run();
        for key in [
            "ops_per_second",
            "hit_ratio",
            "round_trips_per_op",
            "atomics_per_op",
            "invalidations_per_op",
            "messages_per_op",
            "bytes_per_op",
        ] {
            assert!(report[key].is_number(), "{coherence}: no {key} in {report}");
        }
        assert!(report["ops_per_second"].as_f64().unwrap() > 10_000.0, "{report}");
        assert!(report["writes_checked"].as_u64().unwrap() > 100, "{report}");
        assert_eq!(report["config"]["coherence"], coherence);
        assert_eq!(report, run(), "{coherence}: the seed decides");
    }
}

#[test]
fn the_micro_benchmark_runs_in_real_time_too() {
    for coherence in ["selcc", "sel", "rpc"] {
        let output = run(&[
            "micro",
            "--coherence",
            coherence,
            "--compute-nodes",
            "2",
            "--memory-nodes",
            "2",
            "--workers",
            "2",
            "--gcls",
            "4000",
            "--cache-mb",
            "2",
            "--duration-ms",
            "200",
        ]);
        assert!(output.status.success(), "{coherence}: {}", text(&output.stderr));
        assert!(text(&output.stdout).contains("all of them found in the pages"));
    }
}

#[test]
fn figures_are_files_and_a_page() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("figures");
    let out = folder.to_str().unwrap();
    let output = run(&["figures", "fairness", "--out", out, "--duration-ms", "1"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let page = read("README.md");
    assert!(
        page.contains("![fairness](fairness.svg)") && page.contains("the writer's accesses"),
        "{page}"
    );
    let (csv, svg) = (read("fairness.csv"), read("fairness.svg"));
    let (measured, plotted) = csv.lines().partition::<Vec<_>, _>(|line| !line.contains(",,,"));
    assert_eq!(measured.len(), 3, "a heading and two points: {csv}");
    assert!(measured[0].ends_with(",plotted") && svg.contains("<svg"), "{csv}");
    // All that is drawn is there, and in the legend one mark of each line more.
    let lines = plotted.iter().map(|line| line.split('"').nth(1));
    let lines = lines.collect::<std::collections::BTreeSet<_>>().len();
    let marks = svg.matches("<circle").count() + svg.matches("<polygon").count();
    assert_eq!((lines > 1, marks), (true, plotted.len() + lines), "{csv}");
    let file = folder.join("README.md");
    let output = run(&["figures", "fairness", "--out", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1), "a file is no folder");
    assert!(text(&output.stderr).contains("README.md"), "{}", text(&output.stderr));
}

#[test]
fn figures_keep_the_runs_that_a_signal_finds_finished() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let arguments = ["figures", "fairness", "locality", "--out", out, "--duration-ms", "1"];
    let mut measuring = Process::start(&[&arguments[..], &["--threads", "1"]].concat());
    // The two of `fairness`, and one of the others.
    for finished in ["1 of 32 runs finished, ", "4 of 32 runs finished, "] {
        let estimate = measuring.says(finished);
        assert!(estimate.contains("each: the rest may take "), "{estimate}");
    }
    measuring.signal(Signal::TERM);
    let (code, error) = measuring.ends();
    assert_eq!(code, Some(143), "{error}");
    assert_eq!(error.lines().last(), Some("error: interrupted by SIGTERM"), "{error}");
    let kept = error.lines().find(|line| line.contains("runs finished: written are")).unwrap();
    assert!(kept.contains("written are fairness, locality (only "), "{kept}");
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let page = read("README.md");
    assert_eq!(page.matches("**Not all of it: ").count(), 1, "{page}");
    let rows = |name: &str| read(name).lines().filter(|line| !line.contains(",,,")).count() - 1;
    assert_eq!(rows("fairness.csv"), 2, "all of it");
    let locality = rows("locality.csv");
    assert!((1..30).contains(&locality), "{locality} runs");
    assert!(page.contains(&format!("**Not all of it: {locality} of 30 runs")), "{page}");
    assert!(read("locality.svg").contains("<svg"));
}
