//! TPC-C on pages that all nodes share, and on partitions with two-phase commit, by how many
//! transactions go beyond a node's own warehouses (SELCC §7.3.2).
//!
//! Both are two-phase locked and given the same inputs at the same nodes: each node has the
//! terminals of its own warehouses. Where pages are shared, a transaction that needs another node's
//! warehouse fetches its pages; where they are not, that node is asked.

use std::time::Duration;

use selkie_tpcc::{Affinity, Config, Durability, Report, TransactionType};

use super::tpcc::{self, COLUMNS, reports, values};
use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, Row, Table};
use crate::figures::work::experiment::Experiment;

/// Of a hundred NewOrder and Payment transactions, those that go beyond.
const PERCENTS: [u32; 7] = [0, 1, 5, 10, 20, 50, 100];
/// Length of the log of a node in memory: neither load nor run fills it, as pages would be written
/// home for that.
const LOG_MIB: u64 = 8 * Durability::MEMORY_LOG_MIB;
/// What each memory node lends, MiB: logs of all nodes, and as much as where there is none.
const MEMORY_MIB: u64 = tpcc::COMPUTE_NODES as u64 * LOG_MIB + tpcc::MEMORY_MIB;

const AXIS: &str = "% beyond the node's own warehouses";
const SHARED: &str = "shared";
const PARTITIONED: &str = "partitioned";

/// All points of the figure.
pub(in crate::figures) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    let affinities = [(SHARED, Affinity::Warehouse), (PARTITIONED, Affinity::Partitioned)];
    let logs = [("", Durability::Memory { log_mib: LOG_MIB }), (", no log", Durability::None)];
    for (log, durability) in logs {
        for (name, affinity) in affinities {
            for percent in PERCENTS {
                let (durability, remote_percent) = (durability.clone(), Some(percent));
                let memory_bytes = Some(MEMORY_MIB << 20);
                let config =
                    Config { affinity, durability, remote_percent, memory_bytes, ..tpcc::config() };
                points.push(Point {
                    series: format!("{name}{log}"),
                    x: percent.to_string(),
                    experiment: Experiment::Tpcc(Box::new(config)),
                });
            }
        }
    }
    points
}

pub(in crate::figures) fn setup(duration: Duration, seed: u64) -> String {
    format!(
        "Simulated network `paper`, {} ms a point after as many to warm up, seed {seed}; {}; the mix of five transactions, \
         two-phase locked, each node at its own warehouses. Logs are in memory of a memory node, and each commit, vote and \
         decision waits for them, or there are none. One line of a NewOrder that goes beyond is another node's, and the \
         customer of such a Payment. All runs satisfy the consistency conditions.",
        duration.as_millis(),
        tpcc::sizes()
    )
}

fn of<'m>(measured: &'m Measured, series: &str, percent: u32) -> Option<&'m Report> {
    let x = percent.to_string();
    let found = reports(measured).find(|(point, _)| point.series == series && point.x == x);
    found.map(|(_, report)| report)
}

/// Throughput on shared pages over that on partitions.
fn shared_over(measured: &Measured, percent: u32, log: &str) -> Option<f64> {
    let tps = |name| of(measured, &format!("{name}{log}"), percent).map(Report::tps);
    Some(tps(SHARED)? / tps(PARTITIONED)?)
}

fn p99(report: &Report) -> f64 {
    let stats = report.interval().measurements.of(TransactionType::NewOrder);
    stats.map_or(0.0, |stats| stats.latency().p99)
}

pub(in crate::figures) fn claims() -> Vec<Claim> {
    let at_least = |what, ours| Claim::new(what, Expected::AtLeast(1.0), ours);
    let unsaid = |what, ours| Claim::new(what, Expected::Unsaid, ours);
    vec![
        unsaid("0 %, shared over partitioned", |m| shared_over(m, 0, "")),
        unsaid("10 %, shared over partitioned", |m| shared_over(m, 10, "")),
        at_least("20 %, shared over partitioned", |m| shared_over(m, 20, "")),
        at_least("50 %, shared over partitioned", |m| shared_over(m, 50, "")),
        at_least("100 %, shared over partitioned", |m| shared_over(m, 100, "")),
        unsaid("20 %, shared over partitioned, no log", |m| shared_over(m, 20, ", no log")),
        unsaid("100 %, shared over partitioned, no log", |m| shared_over(m, 100, ", no log")),
    ]
}

/// What is written of the figure.
pub(in crate::figures) fn tables(measured: &Measured) -> Vec<Table> {
    let throughput = Table {
        stem: "two-phase-commit",
        title: measured.figure.title(),
        caption: "Thousand transactions a second:",
        x_label: AXIS,
        columns: COLUMNS,
        rows: rows(measured, |report| format!("{:.1}", report.tps() / 1e3)),
        plot: Some(plot(measured, "thousand transactions a second", |r| r.tps() / 1e3)),
    };
    let latency = Table {
        stem: "two-phase-commit-latency",
        title: "Latency of NewOrder",
        caption: "99 % of NewOrder take no longer, µs:",
        x_label: AXIS,
        columns: COLUMNS,
        rows: rows(measured, |report| format!("{:.0}", p99(report))),
        plot: Some(plot(measured, "p99 of NewOrder, µs", p99)),
    };
    vec![throughput, latency]
}

fn rows(measured: &Measured, cell: impl Fn(&Report) -> String) -> Vec<Row> {
    let row = |(point, report): (&Point, &Report)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: values(report, TransactionType::NewOrder),
        cell: Some(cell(report)),
    };
    reports(measured).map(row).collect()
}

fn plot(measured: &Measured, y_label: &'static str, y: impl Fn(&Report) -> f64) -> Plot {
    Plot::new(y_label, reports(measured).map(|(p, report)| (&*p.series, &*p.x, y(report))))
}

#[cfg(test)]
mod tests {
    use super::super::tpcc::tests::valid_configs;
    use super::*;

    #[test]
    fn shared_pages_and_partitions_are_given_the_same() {
        let points = points();
        let configs = valid_configs(&points);
        assert_eq!(configs.len(), 2 * 2 * PERCENTS.len());
        for pair in configs.chunks(2 * PERCENTS.len()) {
            let (shared, partitioned) = pair.split_at(PERCENTS.len());
            for (shared, partitioned) in shared.iter().zip(partitioned) {
                let affinity = Affinity::Partitioned;
                assert_eq!(**partitioned, Config { affinity, ..(*shared).clone() });
                assert_eq!(shared.affinity, Affinity::Warehouse);
                assert_eq!(shared.homes_of(3), partitioned.homes_of(3));
            }
        }
    }
}
