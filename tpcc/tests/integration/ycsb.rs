//! YCSB: whole runs of all workloads, and checks that find what was done behind the workers' backs.

use std::time::Duration;

use selkie_engine::Coherence;
use selkie_fabric::sim::CostModel;
use selkie_fabric::{MemFabric, RealRuntime};
use selkie_pool::Coding;
use selkie_tpcc::benchmark::{BenchmarkRun, Report, Valid};
use selkie_tpcc::cluster::Node;
use selkie_tpcc::ycsb::{self, Config, Distribution, LoadMethod, Operation, Tables, Via, Workload};
use selkie_tpcc::{Mix, Network, Setup, TpccError};
use selkie_txn::{Protocol, key};

use crate::setup::silent;

const RECORDS: u32 = 3_000;

fn setup() -> Setup {
    let network = Network::Real { threads: 2 };
    Setup { network, duration: Duration::from_millis(400), ..Setup::default() }
}

fn config(workload: Workload) -> Config {
    Config { workload, records: RECORDS, value_bytes: 100, setup: setup(), ..Config::default() }
}

fn report(config: &Config) -> Report<Config> {
    let report = ycsb::run(&Valid::new(config.clone()).unwrap(), &silent()).unwrap();
    assert!(report.holds(), "{report}");
    report
}

/// Runs, and expects the operations of the workload, and no others, on both nodes.
fn runs(config: &Config) -> Report<Config> {
    let report = report(config);
    let json = report.to_json();
    for (kind, stats) in report.interval.measurements.iter() {
        let is_drawn = config.workload.percent(kind) > 0;
        assert_eq!(stats.completed > 0, is_drawn, "{kind:?}: {report}");
        assert_eq!(json["latency_us"][kind.name()]["p99"].as_f64() > Some(0.0), is_drawn);
        assert_eq!(report.to_string().contains(&format!(" {} ", kind.title())), is_drawn);
    }
    let inserted = report.findings.total("inserted");
    let inserts = report.interval.measurements.of(Operation::Insert).unwrap().completed;
    // Those that completed behind the end are in no figure.
    assert!(inserted.unsigned_abs() >= inserts, "{report}");
    assert_eq!(report.findings.total("records"), i64::from(config.records) + inserted);
    for figure in ["ops_per_second", "bytes_per_record", "round_trips_per_op"] {
        assert!(json[figure].as_f64() > Some(0.0), "{figure}: {json}");
    }
    assert!(json["hit_ratio"].is_number(), "{json}");
    report
}

#[test]
fn all_workloads_hold_on_a_table_of_two_nodes() {
    for workload in Workload::ALL {
        let report = runs(&config(workload));
        let invalidations = report.interval.engines(|stats| stats.invalidations);
        let writes = workload != Workload::C;
        assert!(invalidations > 0 || !writes, "{workload}: {report}");
        let updates = report.findings.total("updates");
        let updating = matches!(workload, Workload::A | Workload::B | Workload::F);
        assert_eq!(updates > 0, updating, "{workload}: {report}");
    }
}

#[test]
fn all_workloads_hold_on_the_tree_alone() {
    for workload in Workload::ALL {
        runs(&Config { via: Via::Tree, load: LoadMethod::Rows, ..config(workload) });
    }
}

#[test]
fn workloads_hold_by_every_protocol_and_distribution() {
    for (protocol, distribution, workload) in [
        (Protocol::Snapshot, Distribution::Uniform, Workload::A),
        (Protocol::Snapshot, Distribution::Latest, Workload::E),
        (Protocol::Optimistic, Distribution::Latest, Workload::F),
        (Protocol::Timestamp, Distribution::Uniform, Workload::D),
    ] {
        let setup = Setup { protocol, ..setup() };
        let distribution = Some(distribution);
        let load = LoadMethod::Rows;
        runs(&Config { distribution, load, setup, ..config(workload) });
    }
}

/// A kilobyte in ten fields is a page of its own on the pages that pools have.
#[test]
fn records_of_a_kilobyte_are_loaded_and_updated_on_the_usual_pages() {
    let bulk = Config { value_bytes: 1_024, records: 1_000, ..config(Workload::A) };
    let rows = Config { load: LoadMethod::Rows, ..bulk.clone() };
    for config in [bulk, rows] {
        let json = runs(&config).to_json();
        let bytes = json["bytes_per_record"].as_f64().unwrap();
        assert!((2_048.0..2_400.0).contains(&bytes), "{bytes}");
    }
}

#[test]
fn small_records_share_pages_and_a_bulk_load_fills_them() {
    let bytes = |load| {
        let config = Config { load, records: 20_000, ..config(Workload::C) };
        report(&config).to_json()["bytes_per_record"].as_f64().unwrap()
    };
    let (bulk, rows) = (bytes(LoadMethod::Bulk), bytes(LoadMethod::Rows));
    assert!(bulk > 140.0 && bulk < 200.0, "{bulk}");
    assert!(rows > bulk && rows < 2.0 * bulk, "{rows} {bulk}");
}

#[test]
fn as_many_operations_are_run_as_are_asked_for() {
    for network in [Network::Real { threads: 2 }, Network::Simulated(CostModel::PAPER)] {
        let setup = Setup {
            network,
            duration: Duration::from_secs(600),
            transactions: Some(2_345),
            ..setup()
        };
        let report = report(&Config { setup, ..config(Workload::A) });
        assert_eq!(report.interval.completed(), 2_345, "{report}");
        assert!(!report.interval.interrupted && report.interval.elapsed < Duration::from_secs(60));
        assert_eq!(report.to_json()["config"]["operations"], 2_345);
    }
}

#[test]
fn baselines_hold_and_have_what_they_are_measured_for() {
    let of = |coherence| {
        let network = Network::Simulated(CostModel::PAPER);
        let coding = Coding::PLAIN;
        let duration = Duration::from_millis(2);
        let setup = Setup { coherence, network, coding, duration, ..setup() };
        runs(&Config { setup, via: Via::Tree, ..config(Workload::B) }).to_json()
    };
    let [selcc, sel, rpc] = [Coherence::Selcc, Coherence::Sel, Coherence::Rpc].map(of);
    let rate = |json: &serde_json::Value| json["ops_per_second"].as_f64().unwrap();
    assert!(rate(&selcc) > rate(&sel), "{selcc} {sel}");
    assert!(rate(&selcc) > rate(&rpc), "{selcc} {rpc}");
    assert!(sel["round_trips_per_op"].as_f64() > selcc["round_trips_per_op"].as_f64());
    assert_eq!(rpc["config"]["coherence"], "rpc");
}

#[test]
fn what_directories_cannot_do_is_refused() {
    let setup = Setup { coherence: Coherence::Rpc, ..setup() };
    let coded = Setup { coding: "2+1".parse().unwrap(), ..setup.clone() };
    let refused = Valid::new(Config { setup: coded, ..config(Workload::A) }).unwrap_err();
    let said = "coherence = rpc: must be selcc or sel with --coding 2+1";
    assert_eq!(refused.to_string(), said);
    let durability = selkie_tpcc::Durability::Memory { log_mib: 1 };
    let logged = Setup { durability, ..setup };
    let refused = Valid::new(Config { setup: logged, ..config(Workload::A) }).unwrap_err();
    let said = "coherence = rpc: must be selcc or sel with --durability memory";
    assert_eq!(refused.to_string(), said);
}

#[test]
fn a_full_pool_ends_a_load_and_says_how_far_it_got() {
    for (load, via) in [
        (LoadMethod::Bulk, Via::Table),
        (LoadMethod::Rows, Via::Table),
        (LoadMethod::Bulk, Via::Tree),
        (LoadMethod::Rows, Via::Tree),
    ] {
        let setup =
            Setup { memory_nodes: 1, memory_bytes: Some(10 << 20), cache_mib: Some(2), ..setup() };
        let config =
            Config { records: 200_000, load, via: via.clone(), setup, ..config(Workload::A) };
        let error = ycsb::run(&Valid::new(config).unwrap(), &silent()).unwrap_err();
        let TpccError::LoadStopped { loaded, keys, ref why } = error else {
            panic!("{load:?} {via:?}: {error}")
        };
        assert!(matches!(**why, TpccError::PoolFull { .. }), "{error}");
        assert!(loaded > 10_000 && loaded < keys && keys == 200_000, "{error}");
        let said = error.to_string();
        assert!(said.starts_with("pool full: used ") && said.contains("of 200,000 keys"), "{said}");
    }
}

/// Runs, lets `plant` do something behind the workers' backs, and returns the rules that do not
/// hold then.
fn broken(config: &Config, plant: impl AsyncFnOnce(&Node<Tables>)) -> Vec<String> {
    let runtime = RealRuntime::with_seed(2, 1).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let fabric = MemFabric::new();
        let config = Valid::new(config.clone()).unwrap();
        let stage = BenchmarkRun::start(fabric, &env, |_| env.clone(), &config).await.unwrap();
        stage.load(&silent()).await.unwrap();
        let interval = stage.measure(&silent()).await.unwrap();
        assert!(interval.completed() > 0);
        assert!(stage.check(&silent()).await.unwrap().hold());
        plant(&stage.cluster().nodes[0]).await;
        let findings = stage.check(&silent()).await.unwrap();
        stage.close().await.unwrap();
        findings.violations().map(|violation| violation.rule.to_owned()).collect()
    })
}

/// A key of the table.
async fn any_key(node: &Node<Tables>) -> i64 {
    let mut txn = node.db.begin();
    let row = txn.first(node.tables.records, &selkie_txn::KeyRange::all()).await.unwrap();
    row.unwrap().i64(0).unwrap()
}

#[test]
fn what_updates_would_lose_damage_or_double_is_found() {
    let table = config(Workload::A);
    let found = broken(&table, async |node| {
        let key = key![any_key(node).await];
        let mut txn = node.db.begin();
        let back =
            txn.update(node.tables.records, &key, |row| Ok(row.set_i64(1, row.i64(1)? + 1)?));
        back.await.unwrap();
        txn.commit().await.unwrap();
    });
    assert!(found.iter().any(|rule| rule.starts_with("the version of a record is")), "{found:?}");

    let found = broken(&table, async |node| {
        let key = key![any_key(node).await];
        let mut txn = node.db.begin();
        let damage = txn.update(node.tables.records, &key, |row| {
            let damaged = row.text(7)?.replace(|letter: char| letter > '0', "0");
            Ok(row.set_text(7, &damaged)?)
        });
        damage.await.unwrap();
        txn.commit().await.unwrap();
    });
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("the fields of a record that is read are"), "{found:?}");
}

#[test]
fn records_that_are_missing_or_nobodys_are_found() {
    let found = broken(&config(Workload::D), async |node| {
        let key = any_key(node).await;
        let mut txn = node.db.begin();
        txn.delete(node.tables.records, &key![key]).await.unwrap();
        txn.commit().await.unwrap();
    });
    assert_eq!(found, ["there are as many records as were loaded and inserted"]);
    let tree = Config { via: Via::Tree, ..config(Workload::D) };
    let found = broken(&tree, async |node| {
        let tree = node.db.tree(node.tables.records).unwrap();
        tree.insert(&node.engine, &key![12_345_i64], b"short").await.unwrap();
    });
    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.iter().any(|rule| rule == "every record was loaded or inserted"), "{found:?}");
}
