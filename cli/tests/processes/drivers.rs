//! Drivers that work in a pool until a test has them end.

use serde_json::Value;

use crate::harness::{Over, Pool, Process, Setup, until};

/// A pool of a test with so many memory nodes.
pub(crate) fn setup(over: Over, test: &str, memory_nodes: usize) -> Setup<'_> {
    Setup { test, over, memory_nodes, memory: "240M", ..Setup::default() }
}

/// A driver that commits transactions until it is told to end, and the index of its node.
#[track_caller]
pub(crate) fn running(pool: &Pool) -> (Process, u64) {
    running_with(pool, &[])
}

/// The same with more options.
#[track_caller]
pub(crate) fn running_with(pool: &Pool, rest: &[&str]) -> (Process, u64) {
    let known = pool.compute_nodes();
    let more = [&["--duration", "3600", "--json"], rest].concat();
    let mut driver = Process::start(&pool.tpcc(&more));
    let node = until("the driver joins", || {
        assert!(driver.end().is_none(), "it ended: {}", driver.ends().1);
        pool.compute_nodes().into_iter().find(|node| !known.contains(node))
    });
    pool.works(node, "operations");
    (driver, node)
}

/// Waits for a driver to end whose run was consistent.
#[track_caller]
pub(crate) fn ends_well(driver: Process) {
    let report = driver.reports();
    assert_eq!(report["consistency"], "ok", "{report}");
}

/// Waits for a driver to end that has met lost pages: it has gone on, says what it gave up, and
/// misses nothing that it committed.
#[track_caller]
pub(crate) fn ends_with_losses(driver: Process) {
    let report = driver.reports();
    assert_eq!(report["consistency"], "partial", "{report}");
    assert!(report["transactions"].as_u64().unwrap() > 0, "{report}");
    assert!(report["lost"]["transactions"].as_u64().unwrap() > 0, "{report}");
    assert!(report["lost"]["pages"].as_u64().unwrap() > 0, "{report}");
    let journal = &report["journal"];
    assert_eq!(journal["missing"], 0, "{journal}");
    let found = journal["found"].as_u64().unwrap() + journal["on_lost_pages"].as_u64().unwrap();
    assert_eq!(journal["looked_for"], found, "{journal}");
}

/// Waits for a driver to end with an error that says one of these.
#[track_caller]
pub(crate) fn ends_with(mut driver: Process, expected: &[&str]) {
    let (code, error) = driver.ends();
    assert_eq!(code, Some(1), "{error}");
    assert!(expected.iter().any(|expected| error.contains(expected)), "{error}");
}

/// That there is nothing.
pub(crate) fn none() -> Value {
    Value::Array(Vec::new())
}
