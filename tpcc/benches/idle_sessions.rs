//! TPC-C beside a hundred sessions that idle in transactions, each of which has updated a row:
//! serializable ones, which have no snapshot, and repeatable-read ones, which have one each, so
//! that commits keep images of what they change.
//!
//! Runs without and with them alternate, on one compute node and one thread, under the protocol for
//! snapshots. Which comes first in a round changes from round to round: a later run of a process is
//! not as fast as an earlier one. The ratios are of the sums; at least 0.95 is wanted beside
//! sessions without snapshots.
//!
//! Run with `cargo bench -p selkie-tpcc --bench idle_sessions`. Under `cargo test` it runs tiny.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a benchmark: it stops at the first error"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::RealRuntime;
use selkie_tpcc::{Config, Network, Progress, Scale, Silent, TpccCluster, load, measure};
use selkie_txn::{Database, Isolation, Protocol, Session, key};

const SESSIONS: i32 = 100;
const WAREHOUSES: u32 = 2;
/// Of which isolation the sessions are, if there are any.
const BESIDE: [Option<Isolation>; 3] =
    [None, Some(Isolation::Serializable), Some(Isolation::RepeatableRead)];
/// Column of `customer_data`.
const C_DATA: usize = 3;

/// A session in a transaction that has updated a row of its own.
async fn idle(db: &Database, number: i32, isolation: Isolation) -> Session {
    let mut session = db.session().unwrap();
    session.begin(isolation).unwrap();
    let table = db.table("customer_data").unwrap();
    let key = key![1 + number % 2, 1 + number / 2 % 10, 1 + number / 20];
    let update = session.run(move |txn| {
        Box::pin(
            async move { txn.update(table, &key, |row| Ok(row.set_text(C_DATA, "thinks")?)).await },
        )
    });
    update.await.unwrap();
    session
}

fn main() {
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let (rounds, duration) = if is_bench { (6, 2_000) } else { (1, 50) };
    let config = Config {
        warehouses: WAREHOUSES,
        compute_nodes: 1,
        workers: 1,
        network: Network::Real { threads: 1 },
        duration: Duration::from_millis(duration),
        warmup: Duration::from_millis(duration / 4),
        protocol: Protocol::Snapshot,
        scale: Scale::divided_by(if is_bench { 1 } else { 100 }),
        ..Config::default()
    };
    let mut rates = [0.0; 3];
    for round in 0..rounds {
        let order = if round % 2 == 0 { [0, 1, 2] } else { [2, 1, 0] };
        for at in order {
            rates[at] += run(&config, BESIDE[at]) / f64::from(rounds);
        }
    }
    let [without, with, snapshots] = rates;
    println!(
        "TPC-C, {WAREHOUSES} warehouses, one node, {rounds} rounds of runs: {without:.0} \
         transactions/s without, {with:.0} beside {SESSIONS} idle sessions, ratio {:.3}; \
         {snapshots:.0} beside {SESSIONS} with a snapshot each, ratio {:.3}",
        with / without,
        snapshots / without
    );
}

/// Transactions a second beside idle sessions of this isolation, if any, on a database of its own.
fn run(config: &Config, beside: Option<Isolation>) -> f64 {
    let runtime = RealRuntime::with_seed(1, 1).unwrap();
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = TpccCluster::start(&env, config).await.unwrap();
        load(&cluster, config, &progress).await.unwrap();
        let mut idle_sessions = Vec::new();
        if let Some(isolation) = beside {
            for number in 0..SESSIONS {
                idle_sessions.push(idle(&cluster.nodes[0].db, number, isolation).await);
            }
        }
        let interval = measure(&cluster, config, &progress).await.unwrap();
        for mut session in idle_sessions {
            session.rollback().await.unwrap();
        }
        for node in &cluster.nodes {
            node.engine.close().await.unwrap();
        }
        interval.per_second(interval.completed())
    })
}
