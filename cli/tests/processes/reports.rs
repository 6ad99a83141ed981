//! Reports of drivers: numbers as people read them, and as programs do.

use rustix::process::Signal;

use crate::harness::{Pool, Process, Setup, TINY, run, succeeds, text, until};

#[test]
fn a_driver_that_was_told_to_end_says_so_and_counts_whole_seconds() {
    let place = tempfile::tempdir().unwrap();
    let commits = place.path().join("commits");
    let long = ["--duration", "600", "--json", "--record-commits", commits.to_str().unwrap()];
    let driver = Process::start(&[&["tpcc"], &TINY[..], &long].concat());
    let has_committed = || commits.metadata().is_ok_and(|file| file.len() > 0);
    until("it commits", || has_committed().then_some(()));
    driver.signal(Signal::TERM);
    let report = driver.reports();
    assert_eq!(report["interrupted"], true, "{report}");
    assert!(report["transactions"].as_u64() > Some(0), "{report}");
    let seconds = report["seconds"].as_f64().unwrap();
    let whole = report["per_second"].as_array().unwrap();
    assert!(seconds < 600.0 && whole.len() == seconds as usize, "{report}");
    let whole: u64 = whole.iter().map(|count| count.as_u64().unwrap()).sum();
    let partial = report["partial_second"]["transactions"].as_u64().unwrap_or(0);
    assert_eq!(report["transactions"], whole + partial, "{report}");

    let short = ["smallbank", "--accounts", "1000", "--duration", "1", "--threads", "2", "--json"];
    let report: serde_json::Value = serde_json::from_str(&succeeds(&short)).unwrap();
    let whole = report["per_second"].as_array().unwrap().len();
    assert_eq!((&report["interrupted"], whole), (&false.into(), 1), "{report}");

    let long = short.map(|word| if word == "1" { "600" } else { word });
    let benchmark = Process::start(&long);
    benchmark.says("run: 0 %");
    benchmark.signal(Signal::TERM);
    let report = benchmark.reports();
    assert_eq!(report["interrupted"], true, "{report}");
    assert!(report["seconds"].as_f64().unwrap() < 600.0, "{report}");
}

/// The run's steps are milliseconds, of which it dropped one now and then.
#[test]
fn each_stage_of_a_driver_is_told_of_up_to_its_end() {
    let driver = ["smallbank", "--accounts", "1000", "--duration", "2", "--threads", "2"];
    let output = run(&driver);
    let (report, told) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(ungrouped(&report), Vec::<&str>::new(), "{report}");
    let failed = "failed: accounts without the funds, as the benchmark has it; retries: attempts";
    assert!(report.contains(failed), "{report}");
    for stage in ["load: ", "run: ", "check: "] {
        let last = told.lines().rfind(|line| line.starts_with(stage)).map(str::to_owned);
        assert_eq!(last, Some(format!("{stage}100 %")), "{told}");
    }
}

#[test]
fn tables_have_figures_of_one_form_and_say_what_their_columns_are() {
    let create = ["--log-size", "1M", "--max-compute-nodes", "4"];
    let setup = Setup {
        test: "report",
        memory_nodes: 1,
        memory: "100M",
        create: &create,
        ..Setup::default()
    };
    let pool = Pool::start(&setup);
    succeeds(&pool.tpcc(&["--load-only"]));
    let told = succeeds(&pool.tpcc(&["--duration", "1"]));
    assert!(told.contains("MiB there before, ") && !told.contains("0 rows"), "{told}");
    for what in ["failed: one NewOrder of a hundred", "retries: attempts", "lost: given up"] {
        assert!(told.contains(what), "{what}: {told}");
    }
    // No figure without its thousands apart: those of options and seeds are short. The report
    // begins with the number of the process.
    let (process, report) = told.split_once('\n').unwrap();
    assert!(process.starts_with("process "), "{process}");
    assert_eq!(ungrouped(report), Vec::<&str>::new(), "{told}");
    let status = succeeds(&["pool", "status", &pool.name]);
    let id = pool.status()["id"].as_str().unwrap().to_owned();
    let shown = status.replace(&pool.name, "").replace(&id, "");
    assert_eq!(ungrouped(&shown), Vec::<&str>::new(), "{status}");
    assert!(status.contains(", lease 2 s, "), "{status}");
    assert_eq!(times_without_a_space(&status), Vec::<&str>::new(), "{status}");
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("backup");
    let told = succeeds(&["backup", &pool.name, "--to", to.to_str().unwrap()]);
    let (_, table) = told.split_once('\n').unwrap();
    assert_eq!(ungrouped(table), Vec::<&str>::new(), "{told}");
    let micro = ["micro", "--duration-ms", "100", "--compute-nodes", "2", "--memory-nodes", "2"];
    let told = succeeds(&micro);
    assert_eq!(ungrouped(&told), Vec::<&str>::new(), "{told}");
    let row = |name: &str| told.lines().find(|line| line.contains(name)).unwrap();
    assert!(row("hit ratio").contains(" % "), "{told}");
    assert!(row("measured").contains(" s; the whole run took "), "{told}");
}

/// Times as `2s` or `1.5ms`, which are `2 s` and `1.5 ms` everywhere.
fn times_without_a_space(report: &str) -> Vec<&str> {
    let words = report.split([' ', '\n', ',', ';', ':', '(', ')']);
    let units = ["ms", "µs", "ns", "s"];
    let is_time = |word: &&str| {
        let number = units.iter().find_map(|unit| word.strip_suffix(unit));
        number.is_some_and(|number| number.parse::<f64>().is_ok())
    };
    words.filter(is_time).collect()
}

/// Numbers of more than four digits without their thousands apart; also behind a point.
pub(crate) fn ungrouped(report: &str) -> Vec<&str> {
    let numbers = report.split(|c: char| !c.is_ascii_digit());
    numbers.filter(|digits| digits.len() > 4).collect()
}
