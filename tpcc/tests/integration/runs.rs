//! Whole runs: the mix, then the check.

use std::time::Duration;

use selkie_engine::Coherence;
use selkie_fabric::sim::CostModel;
use selkie_tpcc::{Affinity, Config, Network, Scale, TpccError, TransactionType, run};

use crate::setup::{silent, small};

/// Runs and expects a consistent database.
fn run_consistently(config: &Config) -> selkie_tpcc::Report {
    let report = run(config, &silent()).unwrap();
    assert!(report.is_consistent() && report.holds(), "{report}");
    assert_eq!((report.lost_pages(), report.lost()), (0, 0), "{report}");
    assert!(report.completed() > 0, "{report}");
    report
}

/// Two nodes, each with a cache of a seventh of the data or less.
fn thrashing() -> Config {
    Config {
        warehouses: 2,
        compute_nodes: 2,
        cache_mib: Some(2),
        scale: Scale::divided_by(20),
        duration: Duration::from_secs(2),
        ..small()
    }
}

#[test]
fn consistent_with_caches_far_below_the_data_and_everything_shared() {
    let report = run_consistently(&thrashing());
    let json = report.to_json();
    assert!(json["cache_to_database"].as_f64().unwrap() < 0.2, "{json}");
    assert!(json["engine"]["evictions"].as_u64().unwrap() > 0, "nothing was evicted: {json}");
    assert!(json["invalidations_per_txn"].as_f64().unwrap() > 0.0, "nothing was shared: {json}");
    assert!(report.hit_ratio() < 1.0);
}

#[test]
fn consistent_with_caches_far_below_the_data_and_warehouses_apart() {
    let config = Config { affinity: Affinity::Warehouse, seed: 2, ..thrashing() };
    run_consistently(&config);
}

#[test]
fn consistent_with_three_nodes_on_one_warehouse() {
    let config = Config {
        compute_nodes: 3,
        workers: 2,
        gcl_bytes: 4096,
        duration: Duration::from_secs(1),
        seed: 3,
        ..small()
    };
    run_consistently(&config);
}

#[test]
fn the_report_knows_the_mix_and_the_rollbacks() {
    let config = Config { duration: Duration::from_secs(2), ..small() };
    let report = run_consistently(&config);
    let json = report.to_json();
    let completed =
        |kind: TransactionType| json["by_type"][kind.name()]["completed"].as_u64().unwrap();
    let all: u64 = TransactionType::ALL.into_iter().map(completed).sum();
    assert_eq!(json["transactions"], all);
    for kind in TransactionType::ALL {
        // Each worker may be in the middle of a deck.
        let share = completed(kind) as f64 / all as f64;
        assert!((share - kind.percent() as f64 / 100.0).abs() < 0.05, "{kind:?}: {share}");
    }
    let rolled_back = json["by_type"]["new_order"]["rolled_back"].as_u64().unwrap();
    let requested = json["aborts"]["requested"].as_u64().unwrap();
    // Each of the four workers may have rolled one back after the end.
    assert!((rolled_back..=rolled_back + 4).contains(&requested), "{json}");
    let minutes = json["seconds"].as_f64().unwrap() / 60.0;
    let new_orders = json["tpmc"].as_f64().unwrap() * minutes;
    assert!((new_orders - completed(TransactionType::NewOrder) as f64).abs() < 1.0, "{json}");
}

#[test]
fn thinking_workers_do_little_and_stop_in_time() {
    let config = Config { think: true, duration: Duration::from_secs(1), ..small() };
    let report = run(&config, &silent()).unwrap();
    // Keying takes two seconds at least.
    assert_eq!(report.completed(), 0);
    assert!(report.holds());
}

#[test]
fn a_full_pool_is_an_error_that_says_so() {
    let config =
        Config { scale: Scale::divided_by(10), memory_mib: Some(5), memory_nodes: 1, ..small() };
    let error = run(&config, &silent()).unwrap_err();
    assert!(matches!(error, TpccError::PoolFull { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("pool full: used 4.0 MiB of 4.0 MiB, needs about "), "{text}");
}

/// The smallest load in virtual time.
fn in_virtual_time() -> Config {
    Config {
        warehouses: 2,
        compute_nodes: 2,
        network: Network::Simulated(CostModel::PAPER),
        duration: Duration::from_millis(4),
        ..small()
    }
}

#[test]
fn virtual_time_is_decided_by_the_seed_and_goes_by_the_work_on_rows() {
    let config = in_virtual_time();
    let reports = [(); 2].map(|()| run_consistently(&config).to_json());
    assert_eq!(reports[0], reports[1]);
    // A NewOrder of ten lines works on some 35 rows, half a microsecond each, even if all pages are
    // cached.
    let alone = Config { compute_nodes: 1, only: Some(TransactionType::NewOrder), ..config };
    let json = run_consistently(&alone).to_json();
    let fastest = json["latency_us"]["new_order"]["p50"].as_f64().unwrap();
    assert!((17.0..60.0).contains(&fastest), "{json}");
}

#[test]
fn one_type_alone_and_pages_that_are_not_cached_are_consistent_too() {
    for only in TransactionType::ALL {
        let config = Config { coherence: Coherence::Sel, only: Some(only), ..in_virtual_time() };
        let report = run_consistently(&config);
        let others = TransactionType::ALL.into_iter().filter(|kind| *kind != only);
        let completed = |kind| report.interval().measurements.of(kind).unwrap().completed;
        assert_eq!(others.map(completed).sum::<u64>(), 0);
        // A page that was just latched is cached for as long.
        assert!(report.hit_ratio() < 0.3, "{only:?}: {report}");
    }
}

#[test]
fn what_completes_in_the_warm_up_does_not_count() {
    let run = |warmup| {
        let warmup = Duration::from_millis(warmup);
        let report = run_consistently(&Config { warmup, ..in_virtual_time() });
        let interval = report.interval();
        assert_eq!(interval.elapsed, Duration::from_millis(4));
        let commits: u64 = interval.txn.iter().map(|stats| stats.commits).sum();
        (report.completed(), commits, report.commits().committed)
    };
    let ((cold, _, noted), (warm, commits, noted_with)) = (run(0), run(20));
    // As much counts, and five times as much is done.
    assert!((cold / 2..cold * 2).contains(&warm), "{cold} {warm}");
    assert!(noted_with > 3 * noted, "{noted} {noted_with}");
    // A Delivery commits ten times, and some have failed.
    assert!((warm * 9 / 10..warm * 2).contains(&commits), "{warm} {commits}");
}
