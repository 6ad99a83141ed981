//! TPC-C with the pages cached and without (SELCC §7.3.1): five transactions, each alone and in
//! their mix, kept apart by each of the three protocols. There is no log.

use std::time::Duration;

use selkie::engine::Coherence;
use selkie::fabric::sim::CostModel;
use selkie::pool::Coding;
use selkie::txn::Protocol;
use selkie_tpcc::{Config, Network, Report, Scale, TransactionType};

use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, Row, Table};
use crate::figures::work::experiment::{Experiment, ExperimentResult};
use crate::figures::work::tpcc::LONGER;

pub(in crate::figures) const COMPUTE_NODES: usize = 8;
const MEMORY_NODES: usize = 8;
const WORKERS: usize = 16;
/// As those of the micro-benchmark.
const MAIL_TASKS: usize = 4;
const WAREHOUSES: u32 = 64;
/// What items, customers and first orders are divided by: runs are short, and loads are not.
const DIVISOR: u32 = Scale::MAX_DIVISOR;
/// The same where nothing but Delivery runs, which would soon be done with all orders.
const DIVISOR_OF_DELIVERY: u32 = 40;
/// What each memory node lends, MiB: more than the data and what the fastest run adds.
pub(in crate::figures) const MEMORY_MIB: u64 = 256;
/// The mix, among the names of transactions.
const MIX: &str = "mix";
const COHERENCES: [(&str, Coherence); 2] = [("selcc", Coherence::Selcc), ("sel", Coherence::Sel)];

/// What the runs of all figures of TPC-C have in common.
pub(in crate::figures) fn config() -> Config {
    Config {
        warehouses: WAREHOUSES,
        compute_nodes: COMPUTE_NODES,
        memory_nodes: MEMORY_NODES,
        workers: WORKERS,
        mail_tasks: MAIL_TASKS,
        network: Network::Simulated(CostModel::PAPER),
        memory_bytes: Some(MEMORY_MIB << 20),
        coding: Coding::PLAIN,
        scale: Scale::divided_by(DIVISOR),
        ..Config::default()
    }
}

/// Where nothing but Delivery runs there are more orders, and only the first of a district is
/// delivered before.
fn config_of(coherence: Coherence, protocol: Protocol, only: Option<TransactionType>) -> Config {
    let mut config = Config { coherence, protocol, only, ..config() };
    if only == Some(TransactionType::Delivery) {
        config.scale = Scale::divided_by(DIVISOR_OF_DELIVERY);
        config.scale.new_orders_per_district = config.scale.customers_per_district - 1;
    }
    config
}

fn name_of(kind: Option<TransactionType>) -> &'static str {
    kind.map_or(MIX, TransactionType::title)
}

/// The protocols of the paper.
const PROTOCOLS: [Protocol; 3] = [Protocol::TwoPhase, Protocol::Timestamp, Protocol::Optimistic];

/// All points of the figure.
pub(in crate::figures) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for (coherence_name, coherence) in COHERENCES {
        for protocol in PROTOCOLS {
            for only in TransactionType::ALL.map(Some).into_iter().chain([None]) {
                let config = config_of(coherence, protocol, only);
                points.push(Point {
                    series: format!("{coherence_name}, {}", protocol.name()),
                    x: name_of(only).to_owned(),
                    experiment: Experiment::Tpcc(Box::new(config)),
                });
            }
        }
    }
    points
}

/// Sizes, as the page says them.
pub(in crate::figures) fn sizes() -> String {
    let config = config();
    format!(
        "{WAREHOUSES} warehouses with one in {DIVISOR} of the standard's items, customers and orders, about {} MiB; caches of \
         half of that; {COMPUTE_NODES} compute nodes of {WORKERS} workers, {MEMORY_NODES} memory nodes",
        config.database_bytes() >> 20
    )
}

pub(in crate::figures) fn setup(duration: Duration, seed: u64) -> String {
    format!(
        "Simulated network `paper`, {} ms a point after as many to warm up, {LONGER} times as long without a cache, where \
         transactions take longer, seed {seed}; {}; every node works on all warehouses, no log. For Delivery alone there \
         are more customers and orders, one in {DIVISOR_OF_DELIVERY}, all but the first of a district undelivered at the \
         start. Rows take half a microsecond of the worker's processor each, while latches are held. All runs satisfy the consistency conditions.",
        duration.as_millis(),
        sizes()
    )
}

/// The runs of a figure.
pub(in crate::figures) fn reports(measured: &Measured) -> impl Iterator<Item = (&Point, &Report)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        ExperimentResult::Tpcc(report) => Some((point, &**report)),
        _ => None,
    })
}

/// Throughput of the protocol that is best with a cache over that of the one that is best without.
fn best_over(measured: &Measured, x: &str) -> Option<f64> {
    let best = |coherence: &str| {
        let of = reports(measured).filter(|(p, _)| p.x == x && p.series.starts_with(coherence));
        of.map(|(_, report)| report.tps()).max_by(f64::total_cmp)
    };
    Some(best("selcc,")? / best("sel,")?)
}

pub(in crate::figures) fn claims() -> Vec<Claim> {
    let of = |what, least, ours, why| Claim { what, expected: Expected::AtLeast(least), ours, why };
    vec![
        of("mix, selcc over sel", 4.29, |m| best_over(m, MIX), ""),
        of("NewOrder, selcc over sel", 7.96, |m| best_over(m, "NewOrder"), ""),
        of("Payment, selcc over sel", 7.96, |m| best_over(m, "Payment"), ""),
        of("Delivery, selcc over sel", 7.96, |m| best_over(m, "Delivery"), ""),
        of("OrderStatus, selcc over sel", 24.0, |m| best_over(m, "OrderStatus"), ""),
        of("StockLevel, selcc over sel", 24.0, |m| best_over(m, "StockLevel"), ""),
    ]
}

/// Names of the values of a run.
pub(in crate::figures) const COLUMNS: &str = "transactions_per_second,p99_us,hit_ratio,round_trips_per_txn,atomics_per_txn,\
                                  messages_per_txn,aborts_per_txn,empty_districts_per_delivery";

/// The values of a run; the latency is that of the type that `kind` names.
pub(in crate::figures) fn values(report: &Report, kind: TransactionType) -> String {
    let interval = report.interval();
    let aborts: u64 = interval.aborts().map(|(_, aborts)| aborts).sum();
    let p99 = interval.measurements.of(kind).map_or(0.0, |stats| stats.latency().p99);
    let deliveries = interval.measurements.of(TransactionType::Delivery);
    let empty = deliveries
        .filter(|stats| stats.completed > 0)
        .map_or(0.0, |stats| stats.skipped as f64 / stats.completed as f64);
    format!(
        "{:.0},{p99:.1},{:.4},{:.2},{:.2},{:.2},{:.3},{empty:.3}",
        report.tps(),
        report.hit_ratio(),
        interval.per_txn(interval.traffic.chains),
        interval.per_txn(interval.traffic.atomics),
        interval.per_txn(interval.engines(|stats| stats.messages)),
        interval.per_txn(aborts),
    )
}

/// What is written of the figure.
pub(in crate::figures) fn tables(measured: &Measured) -> Vec<Table> {
    let kind_of = |x: &str| TransactionType::ALL.into_iter().find(|kind| kind.title() == x);
    let rows = reports(measured).map(|(point, report)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: values(report, kind_of(&point.x).unwrap_or_default()),
        cell: Some(format!("{:.1}", report.tps() / 1e3)),
    });
    let points = reports(measured).map(|(p, report)| (&*p.series, &*p.x, report.tps() / 1e3));
    vec![Table {
        stem: "tpcc",
        title: measured.figure.title(),
        caption: "Thousand transactions a second:",
        x_label: "transactions",
        columns: COLUMNS,
        rows: rows.collect(),
        plot: Some(Plot::new("thousand transactions a second", points)),
    }]
}

#[cfg(test)]
pub(in crate::figures) mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The configurations of a figure, which are all valid, and no two points at one place.
    pub(in crate::figures) fn valid_configs(points: &[Point]) -> Vec<&Config> {
        let places: BTreeSet<_> = points.iter().map(|point| (&point.series, &point.x)).collect();
        assert_eq!(places.len(), points.len());
        let configs = points.iter().map(|point| match &point.experiment {
            Experiment::Tpcc(config) => &**config,
            _ => panic!("{} at {} is not TPC-C", point.series, point.x),
        });
        let configs: Vec<&Config> = configs.collect();
        configs.iter().for_each(|config| config.validate().unwrap());
        configs
    }

    #[test]
    fn with_a_cache_and_without_everything_else_is_the_same() {
        let points = points();
        let configs = valid_configs(&points);
        assert_eq!(configs.len(), 2 * 3 * 6);
        let (selcc, sel) = configs.split_at(18);
        for (selcc, sel) in selcc.iter().zip(sel) {
            assert_eq!((selcc.coherence, sel.coherence), (Coherence::Selcc, Coherence::Sel));
            assert_eq!(**selcc, Config { coherence: Coherence::Selcc, ..(*sel).clone() });
        }
    }
}
