//! Drivers that are killed or stand still: the survivors go on, and nothing that was committed with
//! a log is missing.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::drivers::{ends_well, ends_with_losses, none, running, running_with, setup};
use crate::harness::{Over, Pool, Process, Setup, fails, prints, run, succeeds, text, until};

/// Options of drivers that lose what they alone hold.
const WITHOUT_LOG: [&str; 2] = ["--durability", "none"];

/// Waits until a node is dead and has been recovered from, and the survivor has worked on what is
/// left.
#[track_caller]
fn recovers(pool: &Pool, dead: u64, survivor: u64) {
    until("the dead node is recovered from", || {
        let status = pool.status();
        // What is lost is lost for good, as there is no log: its index is free again.
        let is_free =
            status["dead_compute_nodes"] == none() && !pool.compute_nodes().contains(&dead);
        (is_free && status["recovering_from"] == none()).then_some(())
    });
    pool.works(survivor, "accesses");
}

/// Waits until a node is dead and has been recovered from, with all its pages.
#[track_caller]
fn is_over(pool: &Pool, dead: u64) {
    until("all pages of the dead node are there", || {
        let status = pool.status();
        let is_over = [&status["recovering_from"], &status["dead_compute_nodes"]] == [&none(); 2];
        (is_over && !pool.compute_nodes().contains(&dead)).then_some(())
    });
}

/// Whether the memory of a compute node is among what the pool has.
fn has_segment_of(pool: &Pool, node: u64) -> bool {
    let pools = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
    let mut own = pools.filter(|e| e.file_name().to_string_lossy().contains(&pool.name));
    own.any(|pool| pool.path().join(format!("cn{node}")).exists())
}

/// How many files of a compute node's segment the process holds open.
fn files_of(process: &Process, node: u64) -> usize {
    let of = format!("/cn{node}");
    let open = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    let targets = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
    targets.filter(|target| target.to_string_lossy().contains(&of)).count()
}

#[test]
fn a_driver_that_is_killed_is_recovered_from_and_what_it_held_is_reported() {
    driver_is_killed(Over::Shm);
}

#[test]
fn a_driver_that_is_killed_over_tcp_is_recovered_from_and_what_it_held_is_reported() {
    driver_is_killed(Over::Tcp);
}

fn driver_is_killed(over: Over) {
    let pool = Pool::start(&setup(over, "killed", 2));
    succeeds(&pool.tpcc(&[&["--load-only"], &WITHOUT_LOG[..]].concat()));
    let (survivor, own) = running_with(&pool, &WITHOUT_LOG);
    // On a database as small as this the dead node held what all need, unless the survivor, which
    // needs it as well, has just got it.
    let holds_something = (0..10).any(|_| {
        let (mut victim, node) = running_with(&pool, &WITHOUT_LOG);
        victim.kill();
        recovers(&pool, node, own);
        if over == Over::Shm {
            until("the files of the dead node are gone", || {
                (!has_segment_of(&pool, node) && files_of(&survivor, node) == 0).then_some(())
            });
        }
        !pool.status()["lost_pages"].as_array().unwrap().is_empty()
    });
    assert!(holds_something, "ten nodes that were killed held nothing");
    survivor.signal(Signal::TERM);
    ends_with_losses(survivor);
    let late = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(late["consistency"], "partial", "{late}");
}

#[test]
fn drivers_that_are_killed_leave_all_that_they_have_committed() {
    drivers_are_killed(2);
}

#[test]
#[ignore = "takes minutes"]
fn fifty_drivers_that_are_killed_leave_all_that_they_have_committed() {
    drivers_are_killed(50);
}

/// One after the other, while another works; those who commit say so in files, which are looked
/// through at the end.
fn drivers_are_killed(kills: u32) {
    let place = tempfile::tempdir().unwrap();
    let pool = Pool::start(&setup(Over::Shm, "kills", 3));
    succeeds(&pool.tpcc(&["--load-only"]));
    let (survivor, _) = running(&pool);
    let mut files = Vec::new();
    for kill in 0..kills {
        let file = place.path().join(kill.to_string());
        let file = file.to_str().unwrap().to_owned();
        let (mut victim, node) = running_with(&pool, &["--record-commits", &file]);
        // At any time in what it does.
        std::thread::sleep(Duration::from_micros(u64::from(kill) * 7_919 % 300_000));
        victim.kill();
        is_over(&pool, node);
        files.push(file);
    }
    survivor.signal(Signal::TERM);
    ends_well(survivor);
    let mut last = vec!["--duration", "1", "--json"];
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() > 0, "it has committed nothing");
        last.extend(["--verify-commits", file]);
    }
    let report = prints(&pool.tpcc(&last));
    assert_eq!((&report["consistency"], &report["journal"]["missing"]), (&"ok".into(), &0.into()));
    assert_eq!(report["journal"]["looked_for"], report["journal"]["found"], "{report}");
    let of_files = report["journal"]["of_files"].as_array().unwrap();
    assert_eq!(of_files.len(), files.len(), "{report}");
    for (of_file, file) in of_files.iter().zip(&files) {
        let lines = std::fs::read_to_string(file).unwrap().matches('\n').count();
        assert_eq!((&of_file["file"], &of_file["found"]), (&(**file).into(), &lines.into()));
    }
    assert_eq!(pool.status()["lost_pages"], Value::Array(Vec::new()));
    println!("{kills} drivers killed: {}", report["journal"]);
}

/// No node could come in any more: the only place was that of the node that died.
#[test]
fn the_only_driver_that_a_pool_takes_is_killed_and_the_next_finds_what_it_committed() {
    for (test, over, memory_nodes) in
        [("only", Over::Shm, 1), ("only-coded", Over::Shm, 3), ("only", Over::Tcp, 3)]
    {
        println!("{test}, {memory_nodes} memory nodes");
        let place = tempfile::tempdir().unwrap();
        let create = ["--max-compute-nodes", "1"];
        let pool = Pool::start(&Setup { create: &create, ..setup(over, test, memory_nodes) });
        succeeds(&pool.tpcc(&["--load-only"]));
        let file = |kill: usize| place.path().join(kill.to_string()).to_str().unwrap().to_owned();
        let files: Vec<String> = (0..2).map(file).collect();
        for file in &files {
            let more = ["--duration", "3600", "--json", "--record-commits", file];
            let mut victim = Process::start(&pool.tpcc(&more));
            let has_committed = || std::fs::metadata(file).is_ok_and(|file| file.len() > 0);
            until("it commits", || {
                assert!(victim.end().is_none(), "it ended: {}", victim.ends().1);
                has_committed().then_some(())
            });
            // The next one is started before the death is noticed.
            victim.kill();
        }
        let mut last = vec!["--duration", "1", "--json"];
        files.iter().for_each(|file| last.extend(["--verify-commits", file]));
        let report = prints(&pool.tpcc(&last));
        assert_eq!(report["consistency"], "ok", "{report}");
        assert_eq!(report["journal"]["missing"], 0, "{report}");
        assert!(report["journal"]["found"].as_u64() > Some(0), "{report}");
        let status = pool.status();
        assert_eq!(status["lost_pages"], Value::Array(Vec::new()), "{status}");
        assert_eq!([&status["recovering_from"], &status["dead_compute_nodes"]], [&none(); 2]);
    }
}

/// A pool that is full of nodes that live says so soon, and no more.
#[test]
fn a_driver_is_refused_while_another_has_the_only_place() {
    let create = ["--max-compute-nodes", "1"];
    let pool = Pool::start(&Setup { create: &create, ..setup(Over::Shm, "full", 1) });
    let (first, _) = running(&pool);
    let taken = "the pool's only place for a compute node is taken: end a process that has one";
    let error = fails(&pool.tpcc(&["--duration", "1"]), 1, taken);
    assert_eq!(error.lines().count(), 1, "no wait is told of just before: {error}");
    assert!(!error.contains("died") && !error.contains("forgive"), "{error}");
    first.signal(Signal::TERM);
    ends_well(first);
}

#[test]
fn what_was_committed_is_there_again_when_all_memory_is_gone() {
    let place = tempfile::tempdir().unwrap();
    all_memory_is_gone("lost", place.path(), place.path().to_str().unwrap(), "64");
}

/// Logs so short that they go round, and their archives are made short, too.
#[test]
fn what_was_committed_is_there_again_from_an_object_store() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("file://{}", place.path().display());
    all_memory_is_gone("objects", place.path(), &url, "4");
}

/// All memory and the driver are gone at once; the logs are left.
fn all_memory_is_gone(test: &str, place: &std::path::Path, logs: &str, log_mib: &str) {
    let durable = ["--durability", "disk", "--log-dir", logs, "--log-mb", log_mib];
    let mut lost = Pool::start(&setup(Over::Shm, test, 3));
    succeeds(&lost.tpcc(&[&["--load-only"], &durable[..]].concat()));
    let noted = tempfile::NamedTempFile::new().unwrap();
    let file = noted.path().to_str().unwrap();
    let before =
        [&["--duration", "3600", "--json", "--record-commits", file], &durable[..]].concat();
    let mut victim = Process::start(&lost.tpcc(&before));
    until("the driver joins", || (lost.compute_nodes() == [1]).then_some(()));
    until("it commits", || (noted.as_file().metadata().unwrap().len() > 0).then_some(()));
    lost.memory.iter_mut().for_each(Process::kill);
    victim.kill();
    drop(lost);
    let looked = prints(&["recover", "--log-dir", logs, "--dry-run", "--json"]);
    assert_eq!((looked["logs"].as_array().unwrap().len(), &looked["refused"]), (2, &Value::Null));
    let pool = Pool::start(&setup(Over::Shm, &format!("{test}-found"), 4));
    let put = prints(&["recover", "--log-dir", logs, "--into", &pool.url, "--json"]);
    assert_eq!(put["pages"], looked["pages"], "{put}");
    // The database is there, with its label: nothing is loaded.
    let late = ["--duration", "1", "--json", "--verify-commits", file];
    let late = prints(&pool.tpcc(&late));
    assert_eq!((&late["consistency"], &late["load"]["rows"]), (&"ok".into(), &0.into()), "{late}");
    assert_eq!(late["journal"]["missing"], 0, "{late}");
    assert!(late["journal"]["found"].as_u64() > Some(0), "{late}");
    // The second pool's logs have all that the first had, as both have some in the directory.
    let error = fails(&["recover", "--log-dir", logs, "--dry-run"], 1, "give --pool-id");
    // People know dates, and names as long as there are pools of that name.
    assert_eq!(error.matches(", written 20").count() + error.matches(" (written 20").count(), 2);
    assert!(error.contains(&format!(" ({}, written 20", pool.name)), "{error}");
    let id = put["pool"].as_str().unwrap();
    let pools = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let mut pools = pools.map(|name| name.to_str().unwrap().to_owned());
    let second = pools.find(|name| name != id && name.len() == 16).unwrap();
    let again = ["recover", "--log-dir", logs, "--pool-id", &second, "--dry-run", "--json"];
    let again = prints(&again);
    assert_eq!((&again["pages"], &again["refused"]), (&put["pages"], &Value::Null), "{again}");
    damage_last(place, id);
    let output = run(&["recover", "--log-dir", logs, "--pool-id", id, "--dry-run"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for said in [".slog, from byte", "the record at", "--accept-loss"] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// Changes a byte in the middle of a log of the pool.
fn damage_last(logs: &std::path::Path, pool: &str) {
    let log = logs.join(pool).join("0-1");
    let files = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "slog")).collect();
    files.sort();
    // Behind the first records, which the load has left.
    let long = files.iter().find(|path| path.metadata().unwrap().len() > 20_001).unwrap();
    let mut bytes = std::fs::read(long).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(long, bytes).unwrap();
}

#[test]
fn a_driver_that_stood_still_finds_itself_declared_dead() {
    driver_stands_still(Over::Shm);
}

#[test]
fn a_driver_that_stood_still_over_tcp_finds_itself_declared_dead() {
    driver_stands_still(Over::Tcp);
}

fn driver_stands_still(over: Over) {
    let pool = Pool::start(&setup(over, "paused", 2));
    succeeds(&pool.tpcc(&[&["--load-only"], &WITHOUT_LOG[..]].concat()));
    let (survivor, own) = running_with(&pool, &WITHOUT_LOG);
    let (mut victim, node) = running_with(&pool, &WITHOUT_LOG);
    victim.signal(Signal::STOP);
    recovers(&pool, node, own);
    survivor.signal(Signal::TERM);
    ends_with_losses(survivor);
    // It may have been ended, if it was stopped in the middle of a verb.
    victim.signal(Signal::CONT);
    let (code, error) = victim.ends();
    if code.is_some() {
        assert_eq!(code, Some(1), "{error}");
        let last = error.lines().last().unwrap();
        let cause = "it could not show that it lives, and the lease of the pool is ";
        assert!(last.contains("declared dead") && last.contains(cause), "{error}");
        assert!(last.contains("pool create --lease"), "{error}");
    }
}
