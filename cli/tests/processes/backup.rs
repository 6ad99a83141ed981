//! Backups of pools that processes share.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::harness::{Pool, Process, Setup, TINY, fails, prints, run, succeeds, text, until};

/// A pool with so many memory nodes.
#[track_caller]
fn start(test: &str, memory_nodes: usize, create: &[&str]) -> Pool {
    let test = format!("backup-{test}");
    Pool::start(&Setup { test: &test, memory_nodes, create, ..Setup::default() })
}

/// A driver that works until it is told to end.
#[track_caller]
fn driver(pool: &Pool, how: &[&str]) -> Process {
    let driver = Process::start(&pool.tpcc(&[&["--duration", "3600", "--json"], how].concat()));
    until("the driver works", || {
        let seen = pool.top();
        let nodes = seen["compute_nodes"].as_array().unwrap();
        let works = nodes.iter().any(|node| node["rates"]["operations"].as_f64() > Some(0.0));
        works.then_some(())
    });
    driver
}

/// Tells a driver to end; what it reports.
#[track_caller]
fn ends_well(driver: Process) -> Value {
    driver.signal(Signal::TERM);
    driver.reports()
}

/// Backs a pool up below this place: its report, and where the backup is. A driver that writes its
/// log faster than the backup reads it is told of, and the backup is made again.
#[track_caller]
fn backed_up(pool: &Pool, place: &Path, more: &[&str]) -> (Value, String) {
    for attempt in 0..8 {
        let to = format!("{}-{attempt}", place.display());
        let output = run(&[&["backup", &pool.name, "--to", &to, "--json"], more].concat());
        if output.status.success() {
            return (serde_json::from_slice(&output.stdout).unwrap(), to);
        }
        let said = text(&output.stderr);
        assert!(said.contains("has given up a part of its log before it was read"), "{said}");
    }
    panic!("the log was shorter than a backup eight times");
}

/// The pool goes with all it held, and another one, of other memory nodes and another coding, has
/// what the backup has.
#[test]
fn a_database_in_use_outlives_its_pool() {
    let place = TempDir::new().unwrap();
    let logs = place.path().join("logs");
    let logs = format!("file://{}", logs.display());
    for (level, how, more) in [
        ("memory", &["--durability", "memory"][..], &[][..]),
        ("disk", &["--durability", "disk", "--log-dir", &logs], &["--log-dir", &logs]),
    ] {
        let pool = start(level, 3, &["--log-size", "8M", "--max-compute-nodes", "4"]);
        let working = driver(&pool, how);
        let (report, to) = backed_up(&pool, &place.path().join(level), more);
        let to = to.as_str();
        assert!(report["pages"].as_u64() > Some(100), "{report}");
        assert!(report["logs"] == 1 && report["log_mib"].as_f64() > Some(0.0), "{report}");
        assert!(report["mib_per_second"].as_f64() > Some(0.0), "{report}");
        let ran = ends_well(working);
        assert!(ran["tpmc"].as_f64() > Some(0.0), "{ran}");
        fails(&["backup", &pool.name, "--to", to], 1, "something is there already");
        drop(pool);

        let small = start("small", 2, &["--gcl", "4096"]);
        fails(&["restore", "--from", to, "--into", &small.name], 1, "--gcl 2048");
        drop(small);
        let other = start("other", 2, &["--coding", "plain"]);
        let restored = prints(&["restore", "--from", to, "--into", &other.name, "--json"]);
        // The backup may have pages that were freed, which are left out.
        assert!(restored["pages"].as_u64() > Some(100), "{restored}");
        let lines = prints(&["pool", "repair", &other.name, "--dry-run", "--json"]);
        assert_eq!(lines["leaked"], 0, "{lines}");
        let status = prints(&["pool", "status", &other.name, "--json"]);
        let label = status["labels"]["tpcc.database"].as_str().unwrap().to_owned();
        assert!(label.contains("complete"), "{label}");
        let restore = ["restore", "--from", to, "--into", &other.name];
        let error = fails(&restore, 1, "one that no compute node has used, as made by");
        // The command that it names makes such a pool.
        let create = error.split('`').nth(1).unwrap();
        let next = format!("test-restored-again-{level}-{}", std::process::id());
        let words: Vec<_> =
            create.split(' ').map(|w| if w == "OTHER" { &next } else { w }).collect();
        assert_eq!(words[..3], ["selkie", "pool", "create"], "{error}");
        succeeds(&words[1..]);
        let [made, like] = [&next, &other.name].map(|name| {
            let status = prints(&["pool", "status", name, "--json"]);
            ["fabric", "coding", "gcl_bytes"].map(|key| status[key].clone())
        });
        succeeds(&["pool", "destroy", &next]);
        assert_eq!(made, like);
        // Its conditions are checked after the run.
        let run = ["tpcc", "--pool", &other.name, "--duration", "1", "--json"];
        succeeds(&[&run, &TINY[..]].concat());
        let labels = prints(&["pool", "status", &other.name, "--json"])["labels"].clone();
        assert_eq!(labels["tpcc.database"].as_str(), Some(&*label), "it was loaded anew");
    }
}

#[test]
fn what_makes_no_backup_is_refused_with_the_reason() {
    let place = TempDir::new().unwrap();
    let to = place.path().join("to");
    let to = to.to_str().unwrap();
    let pool = start("refused", 2, &["--coding", "plain"]);
    let working = driver(&pool, &["--durability", "none"]);
    fails(&["backup", &pool.name, "--to", to], 1, "compute node 0 has no log here");
    ends_well(working);
    fails(&["backup", &pool.name, "--to", "nfs://a/b"], 2, "nfs is no scheme of object stores");
    #[cfg(not(feature = "cloud"))]
    fails(&["backup", &pool.name, "--to", "s3://a/b"], 2, "s3:// needs a build with the feature");
    fails(&["restore", "--from", to, "--into", &pool.name], 1, "there is no backup");
    let file = place.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let below = file.join("below");
    fails(&["backup", &pool.name, "--to", below.to_str().unwrap()], 1, "file/below");
    // There are no other nodes: nothing changes meanwhile.
    let alone = succeeds(&["backup", &pool.name, "--to", place.path().join("b").to_str().unwrap()]);
    assert!(alone.starts_with("backup of pool") && alone.contains("MiB/s"), "{alone}");
}
