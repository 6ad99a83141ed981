//! TPC-C under the protocol for snapshots, over TPC-C under two-phase locking:
//!
//! - one compute node, one thread, a cache of half: at least 0.8 is wanted;
//! - two compute nodes that share all warehouses: more than 1 is wanted; on two threads of this
//!   process, and in virtual time on each simulated network.
//!
//! Runs in real time alternate, and which protocol comes first changes from pair to pair. The
//! ratios are of the sums. A run in virtual time is the same each time.
//!
//! Run with `cargo bench -p selkie-tpcc --bench protocols`, and `-- network` for some of them, by a
//! part of the name. Under `cargo test` it runs tiny.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark: it stops at the first error"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::sim::CostModel;
use selkie_tpcc::{Config, Network, Progress, Scale, Silent, run};
use selkie_txn::Protocol;

const PROTOCOLS: [Protocol; 2] = [Protocol::TwoPhase, Protocol::Snapshot];

/// Runs one after the other under both protocols, and prints the ratio, if the name has what was
/// asked for.
fn compare(name: &str, wanted: &str, pairs: usize, config: &Config) {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    if asked.is_some_and(|asked| !name.contains(&asked)) {
        return;
    }
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let (mut rates, mut round_trips, mut aborts) = ([0.0; 2], [0.0; 2], [0.0; 2]);
    for pair in 0..pairs {
        for at in if pair % 2 == 0 { [0, 1] } else { [1, 0] } {
            let config = Config { protocol: PROTOCOLS[at], ..config.clone() };
            let report = run(&config, &progress).unwrap();
            assert!(report.is_consistent(), "{name}: {}", PROTOCOLS[at]);
            rates[at] += report.tps() / pairs as f64;
            let interval = report.interval();
            round_trips[at] += interval.per_txn(interval.traffic.chains) / pairs as f64;
            let aborted = interval.aborts().map(|(_, aborts)| aborts).sum();
            aborts[at] += interval.per_txn(aborted) / pairs as f64;
        }
    }
    println!(
        "{name}: 2pl {:.0} transactions/s, each {:.1} round trips and {:.2} aborts; snapshot {:.0}, \
         {:.1} and {:.2}; ratio {:.3} (wanted: {wanted})",
        rates[0],
        round_trips[0],
        aborts[0],
        rates[1],
        round_trips[1],
        aborts[1],
        rates[1] / rates[0]
    );
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (pairs, millis) = if is_bench { (6, 3_000) } else { (1, 50) };
    let one = Config {
        warehouses: 4,
        compute_nodes: 1,
        workers: 1,
        network: Network::Real { threads: 1 },
        duration: Duration::from_millis(millis),
        warmup: Duration::from_millis(millis / 3),
        scale: Scale::divided_by(if is_bench { 1 } else { 100 }),
        ..Config::default()
    };
    compare("one node", "at least 0.8", pairs, &one);
    let two = Config {
        compute_nodes: 2,
        workers: 4,
        network: Network::Real { threads: 2 },
        ..one.clone()
    };
    compare("two nodes, shared warehouses, this process", "above 1", pairs, &two);
    for cost in CostModel::PRESETS {
        let name = format!("two nodes, shared warehouses, network {}", cost.name);
        let simulated = Config {
            workers: 16,
            network: Network::Simulated(cost),
            memory_bytes: Some(1 << 30),
            duration: Duration::from_millis(if is_bench { 200 } else { 5 }),
            warmup: Duration::from_millis(if is_bench { 100 } else { 5 }),
            scale: Scale::divided_by(if is_bench { 10 } else { 100 }),
            ..two.clone()
        };
        compare(&name, "above 1", 1, &simulated);
    }
}
