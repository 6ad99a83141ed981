//! TPC-C where warehouses belong to nodes: the same transactions, in two phases.

use std::time::Duration;

use selkie_engine::Coherence;
use selkie_fabric::sim::CostModel;
use selkie_tpcc::{Affinity, Config, Durability, Network, Report, TransactionType, run};

use crate::setup::{silent, small};

fn partitioned(remote_percent: Option<u32>) -> Config {
    Config {
        warehouses: 6,
        compute_nodes: 3,
        affinity: Affinity::Partitioned,
        remote_percent,
        duration: Duration::from_secs(1),
        ..small()
    }
}

/// The same in virtual time, with logs.
fn in_virtual_time(remote_percent: Option<u32>) -> Config {
    Config {
        network: Network::Simulated(CostModel::PAPER),
        durability: Durability::Memory { log_mib: 8 },
        duration: Duration::from_millis(4),
        ..partitioned(remote_percent)
    }
}

/// Runs and expects all conditions to hold, and every order and payment to be where it belongs.
fn run_consistently(config: &Config) -> Report {
    let report = run(config, &silent()).unwrap();
    assert!(report.holds() && report.lost() == 0, "{report}");
    let found = report.commits();
    assert!(found.found > 0 && found.found == found.looked_for, "{report}");
    for kind in TransactionType::ALL {
        let stats = report.interval().measurements.of(kind).unwrap();
        assert!(stats.completed > 0, "{kind:?}: {report}");
    }
    report
}

#[test]
fn consistent_whatever_goes_beyond_a_partition() {
    for percent in [None, Some(0), Some(100)] {
        run_consistently(&partitioned(percent));
    }
}

#[test]
fn no_page_passes_from_node_to_node_and_messages_are_only_of_what_is_remote() {
    let run = |percent| {
        let report = run_consistently(&in_virtual_time(Some(percent)));
        let interval = report.interval();
        // A few pages change hands, which the load has left with other nodes.
        let invalidated = interval.per_txn(interval.engines(|stats| stats.invalidations));
        assert!(invalidated < 0.05, "{invalidated}: {report}");
        (interval.per_txn(interval.traffic.chains), report.tps(), report)
    };
    let (alone, faster, _) = run(0);
    let (all, slower, report) = run(100);
    // Six messages for each that is remote, and two forced logs more.
    assert!(all > alone + 4.0 && slower < faster, "{alone} {all}, {faster} {slower}");
    let new_orders = report.interval().measurements.of(TransactionType::NewOrder).unwrap();
    assert!(new_orders.latency().p50 > 20.0, "{report}");
}

#[test]
fn a_seed_decides_runs_across_partitions() {
    let reports = [(); 2].map(|()| run_consistently(&in_virtual_time(None)).to_json());
    assert_eq!(reports[0], reports[1]);
    assert_eq!(reports[0]["config"]["affinity"], "partitioned");
    // Without a cache it takes longer.
    let duration = Duration::from_millis(20);
    let other = Config { coherence: Coherence::Sel, duration, ..in_virtual_time(Some(50)) };
    let json = run_consistently(&other).to_json();
    assert_eq!(json["config"]["remote_percent"], 50);
}
