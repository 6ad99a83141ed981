//! `selkie demo`, as a newcomer runs it.

use rustix::process::{Pid, Signal, test_kill_process};

use crate::harness::{Process, fails, run, succeeds, text};

fn name(test: &str) -> String {
    format!("test-demo-{test}-{}", std::process::id())
}

/// The numbers of the processes that the demo says it has started.
fn processes(told: &str) -> Vec<i32> {
    let lists = told.lines().filter_map(|line| line.split_once("process"));
    let ids = lists.flat_map(|(_, list)| {
        let list = list.trim_start_matches("es").split([' ', ',', ':']);
        list.filter(|word| !word.is_empty()).map_while(|word| word.parse().ok()).collect::<Vec<_>>()
    });
    ids.collect()
}

/// Nothing that the demo has made or started is left.
#[track_caller]
fn is_cleared(pool: &str, told: &str) {
    let left = run(&["pool", "status", pool]);
    assert!(text(&left.stderr).contains(&format!("no pool `{pool}`")), "{left:?}");
    for id in processes(told) {
        assert!(test_kill_process(Pid::from_raw(id).unwrap()).is_err(), "{id} runs: {told}");
    }
}

#[test]
fn the_demo_kills_a_memory_node_heals_the_pool_and_finds_every_commit() {
    let pool = name("whole");
    let told = succeeds(&["demo", "--pool", &pool, "--duration", "3"]);
    let mut lines = told.lines();
    for part in [
        "coding 2+1",
        "three memory nodes",
        "a TPC-C database is loaded",
        "two drivers",
        "kill -9 ",
        "pool degraded: mem1 is gone",
        "`selkie top --once ",
        "lease 2 s",
        "memory node",
        "mem1",
        "compute node",
        "cn",
        "pool status says: `selkie memnode --pool",
        "another memory node joins",
        "pool healthy: 1 memory node can be lost",
        "healed in ",
        "ok: every one of ",
        "the pool is removed",
    ] {
        assert!(lines.any(|line| line.contains(part)), "{part:?} in its order: {told}");
    }
    assert_eq!(processes(&told).len(), 6, "{told}");
    is_cleared(&pool, &told);
}

#[test]
fn a_demo_that_is_ended_leaves_nothing_and_one_of_a_name_in_use_does_nothing() {
    let pool = name("ended");
    let mut demo = Process::start(&["demo", "--pool", &pool]);
    let told = demo.tells("three memory nodes");
    let said = fails(&["demo", "--pool", &pool], 1, "--pool NAME gives the demo another");
    assert!(said.contains(&format!("there is a pool `{pool}` on this host already")), "{said}");
    assert_eq!(demo.end(), None, "its pool is as it was");
    demo.signal(Signal::INT);
    let (code, said) = demo.ends();
    assert_eq!((code, &*said), (Some(130), "error: interrupted by SIGINT\n"));
    assert_eq!(processes(&told).len(), 3, "{told}");
    is_cleared(&pool, &told);
}

#[test]
fn a_demo_without_one_of_its_drivers_says_so_and_leaves_nothing() {
    let pool = name("broken");
    let mut demo = Process::start(&["demo", "--pool", &pool]);
    let told = demo.tells("two drivers");
    let driver = Pid::from_raw(processes(&told)[0]).unwrap();
    rustix::process::kill_process(driver, Signal::KILL).unwrap();
    let (code, said) = demo.ends();
    assert!(code == Some(1) && said.contains("error: driver-1: "), "{said}");
    let kept = said.lines().find_map(|line| line.split_once("output of all processes is in "));
    std::fs::remove_dir_all(kept.unwrap().1).unwrap();
    is_cleared(&pool, &told);
}
