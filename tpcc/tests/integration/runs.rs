//! Whole runs: the mix, then the check.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_engine::{Coherence, EngineError};
use selkie_fabric::RealRuntime;
use selkie_fabric::sim::CostModel;
use selkie_tpcc::transactions::new_order;
use selkie_tpcc::{
    Affinity, Config, Durability, LineInput, Network, NewOrderInput, Progress, Scale, TpccCluster,
    TpccError, TransactionType, load, measure, run,
};

use crate::setup::{THREADS, session, silent, small};

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
    let config = Config {
        scale: Scale::divided_by(10),
        memory_bytes: Some(5 << 20),
        memory_nodes: 1,
        ..small()
    };
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

/// Is told to end when it is asked for the second time: workers have begun then.
#[derive(Default)]
struct Over(AtomicBool);

impl Progress for Over {
    fn begin(&self, _: &'static str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn end(&self) {}
    fn note(&self, _: &str) {}
    fn is_over(&self) -> bool {
        self.0.swap(true, Ordering::Relaxed)
    }
}

/// Workers that wait for the log are dropped at the end, and have not failed. The check would wait
/// for the log too, for minutes, page by page.
#[test]
fn a_run_whose_log_cannot_be_written_ends_with_that_though_no_worker_has_failed() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    let config = Config {
        durability: Durability::Disk { place: logs.clone(), log_mib: 16 },
        only: Some(TransactionType::NewOrder),
        duration: Duration::from_secs(100),
        request_timeout: Duration::from_secs(5),
        ..small()
    };
    let runtime = RealRuntime::with_seed(THREADS, config.seed).unwrap();
    let env = runtime.env();
    let measured = runtime.block_on(async {
        let cluster = TpccCluster::start(&env, &config).await.unwrap();
        load(&cluster, &config, &silent()).await.unwrap();
        // No file can be made in a directory that is somewhere else.
        std::fs::rename(&logs, place.path().join("elsewhere")).unwrap();
        let session = session(&cluster.nodes[0], 1);
        let line = |item| LineInput { item, supply_warehouse: 1, quantity: 4 };
        let lines = [3, 900, 17, 512, 44].map(line).into_iter().collect();
        let input = NewOrderInput { warehouse: 1, district: 2, customer: 5, lines };
        let mut now = 0;
        // Until the file that is there is full.
        while new_order(&session, &input, now).await.is_ok() {
            now += 1;
        }
        let over: Arc<dyn Progress> = Arc::new(Over::default());
        let measured = measure(&cluster, &config, &over).await;
        cluster.close().await.unwrap_err();
        measured
    });
    let Err(error) = measured else { panic!("the log could not be written") };
    assert!(matches!(error, TpccError::Engine(EngineError::Log(_))), "{error}");
}
