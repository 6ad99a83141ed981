//! How long reads and write-backs of pages that are not cached take, by coding and with stragglers
//! (Hydra §7.2, figure 19), what TPC-C makes of it, and how much memory the pages take.

use std::time::Duration;

use super::memory;
use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, Row, Table};
use crate::figures::work::Quantiles;
use crate::figures::work::cluster::{GCL_BYTES, MEMORY_NODES};
use crate::figures::work::experiment::{Experiment, ExperimentResult};
use crate::figures::work::latency::{
    COMPUTE_NODES, LATE_BY, LATE_ONE_IN, Latencies, Latency, SLOWER, Stragglers, WORKERS,
};
use crate::figures::work::tpcc::{TpccMix, TpccRate};

/// The codings that are measured, and what they are called.
const CODINGS: [(&str, &str); 10] = [
    ("plain", "plain"),
    ("2 copies", "replicate=2"),
    ("2+1", "2+1,delta=1"),
    ("2+2", "2+2,delta=1"),
    ("4+2", "4+2,delta=1"),
    ("8+1", "8+1,delta=1"),
    ("8+2 Δ0", "8+2,delta=0"),
    ("8+2", "8+2,delta=1"),
    ("8+2 Δ2", "8+2,delta=2"),
    ("8+3", "8+3,delta=1"),
];
const PLAIN: &str = "plain";
const COPIES: &str = "2 copies";
const CODED: &str = "8+2";
/// Of these, those that TPC-C is run on.
const MIX: [&str; 4] = [PLAIN, COPIES, "2+1", CODED];

/// All points of the figure.
pub(in crate::figures) fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for stragglers in Stragglers::ALL {
        for (x, coding) in CODINGS {
            let experiment = Experiment::Latency(Latency { stragglers, coding });
            points.push(Point {
                series: stragglers.name().to_owned(),
                x: x.to_owned(),
                experiment,
            });
        }
    }
    for (x, coding) in CODINGS.into_iter().filter(|(x, _)| MIX.contains(x)) {
        let experiment = Experiment::TpccMix(TpccMix { coding });
        points.push(Point { series: "TPC-C".to_owned(), x: x.to_owned(), experiment });
    }
    points.extend(memory::points());
    points
}

pub(in crate::figures) fn setup(duration: Duration, seed: u64) -> String {
    let milliseconds = duration.as_millis();
    format!(
        "Simulated network `modern`, {milliseconds} ms a point after as many to warm up, seed {seed}; {COMPUTE_NODES} \
         compute nodes, {MEMORY_NODES} memory nodes, pages of {GCL_BYTES} bytes. Latencies: {WORKERS} workers a compute \
         node, each with pages of its own, none of them cached; Δ = 1 unless it says otherwise. *slow node*: the adapter \
         of one memory node is {SLOWER} times slower; *late chains*: one operation in {LATE_ONE_IN} is up to {} µs \
         later, and what follows it to the same node with it. TPC-C: 8 workers a compute node, 8 warehouses of a \
         hundredth of the standard size, caches of 4 MiB. The processor's work for coding and checksums takes no virtual \
         time. {}",
        LATE_BY.as_micros(),
        memory::setup()
    )
}

fn latencies(measured: &Measured) -> impl Iterator<Item = (&Point, &Latencies)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        ExperimentResult::Latency(latencies) => Some((point, latencies)),
        _ => None,
    })
}

/// Something of a coding's latencies over the same of another's.
fn over(
    measured: &Measured,
    stragglers: Stragglers,
    (above, below): (&str, &str),
    what: fn(&Latencies) -> f64,
) -> Option<f64> {
    let of = |coding: &str| {
        let mut found = latencies(measured);
        let found = found.find(|(p, _)| p.series == stragglers.name() && p.x == coding);
        found.map(|(_, latencies)| what(latencies))
    };
    Some(of(above)? / of(below)?)
}

fn mixed(measured: &Measured) -> impl Iterator<Item = (&Point, &TpccRate)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        ExperimentResult::TpccMix(mixed) => Some((point, mixed)),
        _ => None,
    })
}

fn throughput_over(measured: &Measured, above: &str, below: &str) -> Option<f64> {
    let of = |coding: &str| {
        let found = mixed(measured).find(|(point, _)| point.x == coding);
        found.map(|(_, mixed)| mixed.transactions_per_second)
    };
    Some(of(above)? / of(below)?)
}

pub(in crate::figures) fn claims() -> Vec<Claim> {
    vec![
        Claim::new("median read, 8+2 over plain", Expected::AtMost(1.15), |m| {
            over(m, Stragglers::None, (CODED, PLAIN), |l| l.read.median)
        }),
        Claim::new("p99 of reads with a slow node, 8+2 over plain", Expected::AtMost(1.0), |m| {
            over(m, Stragglers::SlowNode, (CODED, PLAIN), |l| l.read.p99)
        }),
        Claim {
            what: "p99 of reads with late chains, 8+2 over plain",
            expected: Expected::AtMost(1.0),
            ours: |m| over(m, Stragglers::LateChains, (CODED, PLAIN), |l| l.read.p99),
            why: "Any chain may be late here, whichever node it goes to, and holds up the next: a coded read has ten of \
                  them where a plain one has one. Those that read splits make up for each other; the one that takes the \
                  latch is late as often as that of a plain read.",
        },
        Claim::new("TPC-C, 8+2 over 2 copies", Expected::AtLeast(0.95), |m| {
            throughput_over(m, CODED, COPIES)
        }),
        Claim::new("TPC-C, 8+2 over plain", Expected::Unsaid, |m| throughput_over(m, CODED, PLAIN)),
        Claim::new("memory over pages of 4 KiB, 8+2", Expected::AtMost(1.35), |m| {
            memory::a_byte(m, "4 KiB", CODED)
        }),
        Claim::new("memory over pages of 2 KiB, 8+2", Expected::Unsaid, |m| {
            memory::a_byte(m, "2 KiB", CODED)
        }),
    ]
}

/// What is written of the figure.
pub(in crate::figures) fn tables(measured: &Measured) -> Vec<Table> {
    let caption = "Median and p99, µs:";
    vec![
        latency(
            measured,
            ("coding-latency-read", "Reads of pages that are not cached"),
            caption,
            |l| l.read,
        ),
        latency(
            measured,
            ("coding-latency-word", "Write-backs of pages of which a word was changed"),
            caption,
            |l| l.word,
        ),
        latency(
            measured,
            ("coding-latency-page", "Write-backs of pages that were changed from end to end"),
            caption,
            |l| l.page,
        ),
        mix(measured),
        memory::table(measured),
    ]
}

fn latency(
    measured: &Measured,
    (stem, title): (&'static str, &'static str),
    caption: &'static str,
    of: fn(&Latencies) -> Quantiles,
) -> Table {
    let rows = latencies(measured).map(|(point, latencies)| {
        let Quantiles { median, p99 } = of(latencies);
        Row {
            series: point.series.clone(),
            x: point.x.clone(),
            values: format!("{},{median:.3},{p99:.3}", latencies.operations),
            cell: Some(format!("{median:.2}, {p99:.2}")),
        }
    });
    let points: Vec<(String, &str, f64)> = latencies(measured)
        .flat_map(|(p, l)| {
            let Quantiles { median, p99 } = of(l);
            let line = |what: &str, y: f64| (format!("{what}, {}", p.series), &*p.x, y);
            [line("median", median), line("p99", p99)]
        })
        .collect();
    let points = points.iter().map(|(series, x, y)| (&**series, *x, *y));
    Table {
        stem,
        title,
        caption,
        x_label: "coding: data + parity splits (Δ: further splits that are read)",
        columns: "operations,median_us,p99_us",
        rows: rows.collect(),
        plot: Some(Plot::new("µs", points)),
    }
}

fn mix(measured: &Measured) -> Table {
    let rows = mixed(measured).map(|(point, mixed)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{:.0}", mixed.transactions_per_second),
        cell: Some(format!("{:.1}", mixed.transactions_per_second / 1e3)),
    });
    let points =
        mixed(measured).map(|(p, mixed)| (&*p.series, &*p.x, mixed.transactions_per_second / 1e3));
    let y_label = "thousand transactions a second";
    Table {
        stem: "coding-latency-tpcc",
        title: "TPC-C",
        caption: "Thousand transactions a second:",
        x_label: "coding: data + parity splits (Δ: further splits that are read)",
        columns: "transactions_per_second",
        rows: rows.collect(),
        plot: Some(Plot::new(y_label, points)),
    }
}

#[cfg(test)]
mod tests {
    use selkie::pool::Coding;

    use super::*;

    #[test]
    fn every_coding_fits_the_pool() {
        for (_, coding) in CODINGS {
            let coding: Coding = coding.parse().unwrap();
            coding.validate_for(GCL_BYTES, MEMORY_NODES).unwrap();
        }
        assert!(MIX.iter().all(|mix| CODINGS.iter().any(|(name, _)| name == mix)));
    }
}
