//! SmallBank and TATP: whole runs on two compute nodes, and checks that find what was done behind
//! the workers' backs.

use std::time::Duration;

use selkie_fabric::sim::CostModel;
use selkie_fabric::{MemFabric, RealRuntime};
use selkie_tpcc::benchmark::{self, Benchmark, BenchmarkRun, Report, Valid};
use selkie_tpcc::cluster::Node;
use selkie_tpcc::tatp::columns as c;
use selkie_tpcc::{Mix, Network, Setup, smallbank, tatp};
use selkie_txn::{Database, KeyRange, key};

use crate::setup::silent;

fn setup() -> Setup {
    let network = Network::Real { threads: 2 };
    Setup { network, duration: Duration::from_secs(1), ..Setup::default() }
}

fn bank() -> smallbank::Config {
    smallbank::Config { accounts: 2_000, hot_accounts: 20, setup: setup(), ..Default::default() }
}

fn register() -> tatp::Config {
    tatp::Config { subscribers: 1_000, setup: setup() }
}

/// Runs and expects every rule to hold, every type to have completed and both nodes to have worked
/// on the same pages.
fn run_consistently<B: Benchmark>(config: &B) -> Report<B> {
    let report = benchmark::run(&Valid::new(config.clone()).unwrap(), &silent()).unwrap();
    assert!(report.holds(), "{report}");
    let (interval, json) = (&report.interval, report.to_json());
    for (kind, stats) in interval.measurements.iter() {
        assert!(stats.completed > 0, "{kind:?}: {report}");
    }
    assert!(interval.txn.len() == 2 && interval.txn.iter().all(|node| node.commits > 0));
    assert!(interval.engines(|stats| stats.invalidations) > 0, "nothing was shared: {report}");
    assert_eq!(json["consistency"], "ok");
    let all: u64 = B::TransactionType::ALL
        .iter()
        .map(|kind| json["by_type"][kind.name()]["completed"].as_u64().unwrap())
        .sum();
    assert_eq!(json["transactions"], all);
    report
}

/// Runs, lets `plant` do something behind the workers' backs, and returns the rules that do not
/// hold then.
fn broken<B: Benchmark>(config: &B, plant: impl AsyncFnOnce(&Node<B::Tables>)) -> Vec<String> {
    let runtime = RealRuntime::with_seed(2, 1).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let fabric = MemFabric::new();
        let config = Valid::new(config.clone()).unwrap();
        let stage = BenchmarkRun::start(fabric, &env, |_| env.clone(), &config).await.unwrap();
        let load = stage.load(&silent()).await.unwrap();
        let interval = stage.measure(&silent()).await.unwrap();
        assert!(interval.completed() > 0);
        assert!(stage.check(&silent()).await.unwrap().hold());
        plant(&stage.cluster().nodes[0]).await;
        let report = stage.report(load, interval, &silent()).await.unwrap();
        let violations = report.findings.violations();
        let broken: Vec<_> = violations.map(|violation| violation.rule.to_owned()).collect();
        assert_eq!(report.holds(), broken.is_empty());
        let (json, text) = (report.to_json(), report.to_string());
        let listed = json["consistency"].as_array().map_or(0, Vec::len);
        assert_eq!((listed, text.contains("consistency: BROKEN")), (broken.len(), listed > 0));
        stage.close().await.unwrap();
        broken
    })
}

/// The beginnings of the rules that must be broken, in any order.
#[track_caller]
fn is_found(broken: &[String], mut expected: Vec<&str>) {
    let mut found = broken.to_vec();
    found.sort();
    expected.sort_unstable();
    let fit = found.iter().zip(&expected).all(|(rule, begin)| rule.starts_with(begin));
    assert!(fit && found.len() == expected.len(), "{found:?}, not {expected:?}");
}

#[test]
fn smallbank_holds_on_two_nodes() {
    let report = run_consistently(&bank());
    let totals = report.findings.totals();
    for table in ["accounts", "savings", "checking"] {
        assert_eq!(totals[table], 2_000, "{table}");
    }
    assert_eq!(totals["cents_found"], totals["cents_loaded"] + totals["cents_came_in"]);
    let of = |kind| report.interval.measurements.of(kind).unwrap();
    assert_eq!(of(smallbank::TransactionType::DepositChecking).failed, 0);
    // Most of them go to few accounts: two workers at least have met.
    let mut aborts = report.interval.aborts();
    assert!(aborts.any(|(cause, aborts)| cause.is_retryable() && aborts > 0), "{report}");
}

#[test]
fn smallbank_holds_with_caches_far_below_the_data() {
    let setup = Setup { cache_mib: Some(2), ..setup() };
    let config = smallbank::Config { accounts: 60_000, hot_share: 0.2, setup, ..bank() };
    let report = run_consistently(&config);
    assert!(report.interval.engines(|stats| stats.evictions) > 0, "{report}");
    assert!(report.interval.hit_ratio() < 1.0);
}

#[test]
fn tatp_holds_on_two_nodes() {
    // Without a warm-up the counters of workers and databases begin at the same transaction.
    let setup = Setup { warmup: Duration::ZERO, ..setup() };
    let report = run_consistently(&tatp::Config { setup, ..register() });
    let totals = report.findings.totals();
    assert_eq!((totals["subscriber"], totals["by_number"]), (1_000, 1_000));
    for (table, share) in [("access_info", 2.5), ("special_facility", 2.5)] {
        let rows = totals[table] as f64 / 1_000.0;
        assert!((rows - share).abs() < 0.2, "{table}: {rows} a subscriber");
    }
    let loaded = totals["call_forwarding_loaded"];
    assert!((3_400..4_100).contains(&loaded), "{loaded}");
    let inserted = totals["call_forwarding_inserted"];
    assert!(inserted > 0 && totals["call_forwarding_deleted"] > 0, "{report}");
    for (kind, stats) in report.interval.measurements.iter() {
        let completed = stats.completed as f64;
        let failed = stats.failed as f64 / completed;
        // By the cardinalities. What GetNewDestination finds goes from what is loaded to what
        // inserts and deletes make of it in the end; they themselves meet a row as often as none.
        let (low, high) = match kind {
            tatp::TransactionType::GetSubscriberData | tatp::TransactionType::UpdateLocation => {
                (0.0, 0.0)
            }
            tatp::TransactionType::GetNewDestination => (1.0 - 0.204_25, 1.0 - 8_177.0 / 55_296.0),
            tatp::TransactionType::GetAccessData | tatp::TransactionType::UpdateSubscriberData => {
                (0.375, 0.375)
            }
            _ => (0.6875, 0.6875),
        };
        if high == 0.0 {
            assert_eq!(stats.failed, 0, "{kind:?}\n{report}");
            continue;
        }
        // Five standard deviations of so many draws, and what this population differs from all that
        // there could be.
        let slack = |share: f64| 5.0 * (share * (1.0 - share) / completed).sqrt() + 0.02;
        let expected = low - slack(low)..high + slack(high);
        assert!(expected.contains(&failed), "{kind:?}: {failed}, not {expected:?}\n{report}");
    }
    let requested = report.to_json()["aborts"]["requested"].as_u64().unwrap();
    let failed = report.interval.measurements.failed();
    // Each of the eight workers may have rolled one back that was completed after the end.
    assert!(failed.abs_diff(requested) <= 8, "{failed} and {requested}");
}

#[test]
fn a_seed_decides_runs_in_virtual_time() {
    let network = Network::Simulated(CostModel::PAPER);
    let setup = Setup { network, duration: Duration::from_millis(2), ..setup() };
    let bank = smallbank::Config { setup: setup.clone(), ..bank() };
    let runs = [(); 2].map(|()| run_consistently(&bank).to_json());
    assert_eq!(runs[0], runs[1]);
    let register = tatp::Config { setup, ..register() };
    let reports = [(); 2].map(|()| run_consistently(&register));
    let runs = reports.each_ref().map(Report::to_json);
    assert_eq!(runs[0], runs[1]);
    let config = &runs[0]["config"];
    assert_eq!((&config["network"], &config["threads"]), (&"paper".into(), &().into()));
    let text = reports[0].to_string();
    for said in ["simulated, preset paper, virtual time", " s of virtual time"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    assert!(!text.contains("thread") && text.contains("coding"), "{text}");
    assert!((runs[0]["seconds"].as_f64().unwrap() - 0.002).abs() < 0.001, "{}", runs[0]);
}

async fn add_to(db: &Database, table: selkie_txn::Table, key: &[u8], amount: i64) {
    let mut txn = db.begin();
    let change = |row: &mut selkie_txn::RowMut<'_>| {
        Ok(row.set_i64(smallbank::BALANCE, row.i64(smallbank::BALANCE)? + amount)?)
    };
    txn.update(table, key, change).await.unwrap();
    txn.commit().await.unwrap();
}

#[test]
fn smallbank_finds_what_nobody_has_noted() {
    let config = smallbank::Config {
        setup: Setup { duration: Duration::from_millis(100), ..setup() },
        ..bank()
    };
    is_found(&broken(&config, async |_| {}), vec![]);
    let one_cent = broken(&config, async |node| {
        add_to(&node.db, node.tables.savings, &key![17], 1).await;
    });
    is_found(&one_cent, vec!["a balance is", "the sum of all"]);
    // The sum is as it was.
    let moved = broken(&config, async |node| {
        add_to(&node.db, node.tables.checking, &key![17], 5).await;
        add_to(&node.db, node.tables.checking, &key![1_999], -5).await;
    });
    is_found(&moved, vec!["a balance is"]);
    let overdrawn = broken(&config, async |node| {
        add_to(&node.db, node.tables.savings, &key![17], -10_000_000).await;
    });
    is_found(&overdrawn, vec!["a balance is", "no savings account is", "the sum of all"]);
    let gone = broken(&config, async |node| {
        let mut txn = node.db.begin();
        txn.delete(node.tables.checking, &key![2_000]).await.unwrap();
        txn.commit().await.unwrap();
    });
    is_found(&gone, vec!["every customer has", "the sum of all"]);
    let nameless = broken(&config, async |node| {
        let mut txn = node.db.begin();
        let first = txn.first(node.tables.account, &KeyRange::all()).await.unwrap().unwrap();
        let name = first.text(0).unwrap().to_owned();
        txn.delete(node.tables.account, &key![name.as_str()]).await.unwrap();
        txn.commit().await.unwrap();
    });
    is_found(&nameless, vec!["every customer is"]);
    let missing = broken(&config, async |node| {
        let mut txn = node.db.begin();
        let mut row = node.db.row(node.tables.savings).unwrap();
        txn.insert(node.tables.savings, row.i32(2_001).i64(0).finish().unwrap()).await.unwrap();
        txn.commit().await.unwrap();
    });
    is_found(&missing, vec!["every customer has"]);
}

/// Changes a number of a row.
async fn change(db: &Database, table: selkie_txn::Table, key: &[u8], column: usize, wide: bool) {
    let mut txn = db.begin();
    let change = |row: &mut selkie_txn::RowMut<'_>| {
        if wide {
            row.set_i64(column, row.i64(column)? ^ 1)?;
        } else {
            row.set_i32(column, row.i32(column)? ^ 1)?;
        }
        Ok(())
    };
    txn.update(table, key, change).await.unwrap();
    txn.commit().await.unwrap();
}

/// The key of the first row of a table.
async fn first_key(node: &Node<tatp::Tables>, table: selkie_txn::Table, columns: usize) -> Vec<u8> {
    let mut txn = node.db.begin();
    let row = txn.first(table, &KeyRange::all()).await.unwrap().unwrap();
    let key = (0..columns).fold(selkie_txn::KeyBuf::new(), |key, at| key.i32(row.i32(at).unwrap()));
    key.as_bytes().to_vec()
}

/// That of a moment.
fn short_register() -> tatp::Config {
    let setup = Setup { duration: Duration::from_millis(100), ..setup() };
    tatp::Config { setup, ..register() }
}

#[test]
fn tatp_finds_what_nobody_has_noted() {
    let config = short_register();
    is_found(&broken(&config, async |_| {}), vec![]);
    for (column, wide, rule) in [
        (c::VLR_LOCATION, true, "vlr_location is"),
        (c::BIT_1, false, "bit_1 is"),
        (c::BIT_1 + 1, false, "what no transaction changes"),
        (c::MSC_LOCATION, true, "what no transaction changes"),
    ] {
        let found = broken(&config, async |node| {
            change(&node.db, node.tables.subscriber, &key![1_000], column, wide).await;
        });
        is_found(&found, vec![rule]);
    }
    let found = broken(&config, async |node| {
        let table = node.tables.special_facility;
        change(&node.db, table, &first_key(node, table, 2).await, c::DATA_A, false).await;
    });
    is_found(&found, vec!["data_a is"]);
    let found = broken(&config, async |node| {
        let table = node.tables.access_info;
        change(&node.db, table, &first_key(node, table, 2).await, c::DATA_1, false).await;
    });
    is_found(&found, vec!["what no transaction changes"]);
    for (columns, rules) in [
        (1, vec!["by_number leads", "subscriber, access_info and"]),
        (2, vec!["subscriber, access_info and"]),
        (3, vec!["call_forwarding has as many", "call_forwarding has the rows"]),
    ] {
        let found = broken(&config, async |node| {
            let tables = &node.tables;
            let table = match columns {
                1 => tables.subscriber,
                2 => tables.access_info,
                _ => tables.call_forwarding,
            };
            let key = first_key(node, table, columns).await;
            let mut txn = node.db.begin();
            txn.delete(table, &key).await.unwrap();
            txn.commit().await.unwrap();
        });
        is_found(&found, rules);
    }
    let found = broken(&config, async |node| {
        let index = node.db.tree(node.tables.by_number).unwrap();
        let entry = key!["000000000000513"];
        assert!(index.delete(&node.engine, &entry).await.unwrap());
    });
    is_found(&found, vec!["by_number leads"]);
}

#[test]
fn tatp_finds_destinations_that_nobody_has_noted() {
    let config = short_register();
    for column in [c::END_TIME, c::NUMBERX] {
        let found = broken(&config, async |node| {
            let table = node.tables.call_forwarding;
            let (key, mut txn) = (first_key(node, table, 3).await, node.db.begin());
            let change = |row: &mut selkie_txn::RowMut<'_>| {
                if column == c::END_TIME {
                    row.set_i32(column, row.i32(column)? % 24 + 1)?;
                } else {
                    let digits = row.text(column)?.replace(|digit| digit != '9', "9");
                    row.set_text(column, &digits)?;
                }
                Ok(())
            };
            txn.update(table, &key, change).await.unwrap();
            txn.commit().await.unwrap();
        });
        is_found(&found, vec!["end_time and numberx"]);
    }
    let found = broken(&config, async |node| {
        let mut txn = node.db.begin();
        let mut row = node.db.row(node.tables.call_forwarding).unwrap();
        let row = row.i32(1).i32(5).i32(9).i32(25).text("1").finish().unwrap();
        txn.insert(node.tables.call_forwarding, row).await.unwrap();
        txn.commit().await.unwrap();
    });
    is_found(&found, vec!["call_forwarding has as many", "each call_forwarding", "start_time is"]);
}
