//! Where a person decides what becomes of a pool: `pool forgive` and `pool repair`.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::Value;

use crate::drivers::{ends_with_losses, none, running, running_with, setup};
use crate::harness::{Over, Pool, Process, Setup, fails, prints, refused, succeeds, until};
use crate::lifecycle::ends_by_destruction;

#[test]
fn memory_that_nothing_leads_to_is_found_and_freed() {
    let pool = Pool::start(&setup(Over::Shm, "repair", 1));
    let repair = |rest: &[&str]| {
        let command = [&["pool", "repair", &pool.name, "--json"], rest].concat();
        prints(&command)
    };
    refused(&["pool", "repair", &pool.name], 1, "no database");
    succeeds(&pool.tpcc(&["--load-only"]));
    let found = repair(&["--dry-run"]);
    assert_eq!((&found["leaked"], &found["dry_run"]), (&0.into(), &true.into()), "{found}");

    // The pages of the first database are left where they are.
    succeeds(&pool.tpcc(&["--load-only", "--reload"]));
    let found = repair(&["--dry-run"]);
    let leaked = found["leaked"].as_u64().unwrap();
    assert!(leaked > 500, "{found}");
    let sum = ["in_use", "free", "leaked"].map(|kind| found[kind].as_u64().unwrap());
    assert_eq!(found["lines"], sum.iter().sum::<u64>(), "each line is one of these: {found}");
    assert_eq!(repair(&["--dry-run"])["leaked"], leaked, "nothing was done");

    let (driver, node) = running(&pool);
    let others = format!("compute nodes cn{node} are in the pool");
    refused(&["pool", "repair", &pool.name, "--dry-run"], 1, &others);
    driver.signal(Signal::TERM);
    assert_eq!(driver.reports()["consistency"], "ok");

    let said = succeeds(&["pool", "repair", &pool.name, "--dry-run"]);
    assert!(said.contains("a repair would free"), "{said}");
    let freed = repair(&[]);
    assert!(freed["leaked"].as_u64().unwrap() >= leaked, "{freed}");
    let after = repair(&["--dry-run"]);
    assert_eq!(after["leaked"], 0, "{after}");
    let free = |found: &Value| found["free"].as_u64().unwrap();
    assert!(free(&after) >= free(&found) + leaked / 2, "{found}, {after}");
    assert_eq!(prints(&pool.tpcc(&["--duration", "1", "--json"]))["consistency"], "ok");
    let said = succeeds(&["pool", "repair", &pool.name]);
    assert!(said.contains("nothing to repair"), "{said}");
}

#[test]
fn a_silent_memory_node_of_a_plain_pool_is_waited_for_until_it_is_given_up() {
    let create = ["--coding", "plain", "--lease", "500ms", "--heartbeat", "50ms"];
    let mut pool = Pool::start(&Setup { create: &create, ..setup(Over::Tcp, "given-up", 2) });
    let name = pool.name.clone();
    let forgive = |rest: &[&str]| -> Vec<String> {
        [&["pool", "forgive", &name], rest].concat().iter().map(|s| (*s).to_owned()).collect()
    };
    let asked = |rest: &[&str], code: i32, expected: &str| {
        let command = forgive(rest);
        refused(&command.iter().map(String::as_str).collect::<Vec<_>>(), code, expected);
    };
    asked(&["mem1"], 1, "mem1 cannot be given up: it lives");
    asked(&["mem7"], 1, "mem7 cannot be given up: the pool has no such memory node");
    asked(&["cn0"], 1, "cn0 cannot be given up: no page is lost with it: its index is free");
    let wrong = ["pool", "forgive", &name, "disk3"];
    fails_as_usage(&wrong, "a node is `cn` or `mem` and its number");
    pool.memory[1].kill();
    until("it is silent", || {
        let status = pool.status();
        (status["memory_nodes"][1]["lives"] == false).then_some(())
    });
    // Far longer than the failure detector takes.
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(pool.status()["memory_nodes"][1]["dead"], false);
    let table = succeeds(&["pool", "status", &name]);
    assert!(table.contains("silent"), "{table}");

    let weighed = prints(&["pool", "forgive", &name, "mem1", "--dry-run", "--json"]);
    assert_eq!(weighed["given_up"][0]["node"], "mem1", "{weighed}");
    assert!(weighed["given_up"][0]["pages"].as_u64().unwrap() > 1_000, "{weighed}");
    assert_eq!(pool.status()["memory_nodes"][1]["dead"], false, "only said");
    let said = succeeds(&["pool", "forgive", &name, "mem1"]);
    assert!(said.contains("mem1 is given up with room for"), "{said}");
    assert_eq!(pool.status()["memory_nodes"][1]["dead"], true);
    asked(&["mem1"], 1, "it is dead already");
}

/// A pool of which a node has died with pages that only its log could bring back, which is gone.
struct WithoutLog {
    /// With the logs.
    place: tempfile::TempDir,
    survivor: Process,
    /// Indices of the survivor and of the dead node.
    own: u64,
    dead: u64,
}

impl WithoutLog {
    #[track_caller]
    fn of(pool: &Pool) -> Self {
        let place = tempfile::tempdir().unwrap();
        let logs = place.path().to_str().unwrap().to_owned();
        let durable = ["--durability", "disk", "--log-dir", &logs];
        succeeds(&pool.tpcc(&[&["--load-only"], &durable[..]].concat()));
        let (survivor, own) = running_with(pool, &durable);
        let (mut victim, dead) = running_with(pool, &durable);
        // Under the number of the pool: index and incarnation.
        let of_pool = std::fs::read_dir(place.path()).unwrap().next().unwrap().unwrap().path();
        let is_its = |name: &str| name.starts_with(&format!("{dead}-"));
        for entry in std::fs::read_dir(&of_pool).unwrap().map(|entry| entry.unwrap()) {
            if is_its(&entry.file_name().to_string_lossy()) {
                std::fs::rename(entry.path(), place.path().join(format!("away-{dead}"))).unwrap();
            }
        }
        victim.kill();
        until("pages are lost with it", || {
            let status = pool.status();
            (status["dead_compute_nodes"] == Value::Array(vec![dead.into()])).then_some(())
        });
        Self { place, survivor, own, dead }
    }
}

/// The survivors could have redone its pages from the log, which is gone.
#[test]
fn pages_that_wait_for_a_log_that_is_gone_are_given_up_and_the_index_is_free() {
    let pool = Pool::start(&setup(Over::Shm, "no-log", 2));
    let WithoutLog { place: _place, survivor, own, dead } = WithoutLog::of(&pool);
    let lost = pool.status()["lost_pages"].clone();
    assert_ne!(lost, none());
    pool.works(own, "accesses");

    let dead = format!("cn{dead}");
    let weighed = prints(&["pool", "forgive", &pool.name, "--pages", "--dry-run", "--json"]);
    assert_eq!(weighed["given_up"][0]["node"], dead, "{weighed}");
    assert_eq!(weighed["given_up"][0]["pages"], lost.as_array().unwrap().len(), "{weighed}");
    refused(&["pool", "forgive", &pool.name, &format!("cn{own}")], 1, "it is in the pool");
    succeeds(&["pool", "forgive", &pool.name, &dead]);
    let status = pool.status();
    assert_eq!((&status["dead_compute_nodes"], &status["recovering_from"]), (&none(), &none()));
    assert_eq!(status["lost_pages"], lost, "they stay lost");
    let nothing = succeeds(&["pool", "forgive", &pool.name, "--pages"]);
    assert!(nothing.contains("no page is lost that a log could bring back"), "{nothing}");
    survivor.signal(Signal::TERM);
    ends_with_losses(survivor);
    // What is behind the lost pages is unknown.
    let said = fails(&["pool", "repair", &pool.name], 1, "is lost");
    assert!(!said.contains("panicked"), "{said}");
}

/// It waits for a compute node, as none is left.
#[test]
fn a_forgiving_whose_pool_is_destroyed_says_so() {
    let pool = Pool::start(&setup(Over::Shm, "forgive-destroyed", 2));
    let WithoutLog { place: _place, mut survivor, dead, .. } = WithoutLog::of(&pool);
    survivor.signal(Signal::TERM);
    let (_, said) = survivor.ends();
    assert_eq!(pool.compute_nodes(), [0; 0], "{said}");
    let forgive = Process::start(&["pool", "forgive", &pool.name, "--pages"]);
    forgive.tells(&format!("cn{dead} is given up"));
    forgive.finds("this takes a compute node, and none is in the pool");
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    ends_by_destruction(forgive, Instant::now());
}

/// As the parser of arguments refuses.
#[track_caller]
fn fails_as_usage(arguments: &[&str], expected: &str) {
    let output = crate::harness::run(arguments);
    let error = crate::harness::text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains(expected), "{error}");
}
