//! What a memory node's death does to readers and writers, against copies and against no redundancy
//! (Hydra §7.3).

use std::time::Duration;

use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, PlotLine, Row, Table};
use crate::figures::work::cluster::{GCL_BYTES, MEMORY_NODES};
use crate::figures::work::experiment::{Experiment, ExperimentResult};
use crate::figures::work::node_failure::{
    COMPUTE_NODES, FailureCourse, NodeFailure, PhaseStats, SHAPE, WORKERS,
};

const CODINGS: [(&str, &str); 4] =
    [("plain", "plain"), ("2 copies", "replicate=2"), ("2+1", "2+1"), (CODED, "8+2")];
const CODED: &str = "8+2";

/// All points of the figure.
pub(in crate::figures) fn points() -> Vec<Point> {
    let point = |(series, coding): (&str, _)| {
        let experiment = Experiment::NodeFailure(NodeFailure { coding });
        Point { series: series.to_owned(), x: String::new(), experiment }
    };
    CODINGS.into_iter().map(point).collect()
}

pub(in crate::figures) fn setup(duration: Duration, seed: u64) -> String {
    format!(
        "Simulated network `modern`, {} ms before a memory node is killed, and as many from when all it had is there \
         again, seed {seed}; {COMPUTE_NODES} compute nodes of {WORKERS} workers, {MEMORY_NODES} memory nodes, {} pages \
         of {GCL_BYTES} bytes that all nodes read and write, half and half; each cache holds an eighth of them. \
         *frozen*: from the death until the headers that were lost are in place again; *regenerating*: a slab is being \
         made again; *waiting*: the next one is not begun yet. Latencies are of accesses that were not cached. The \
         processor's work for coding and checksums takes no virtual time.",
        duration.as_millis(),
        SHAPE.pages
    )
}

fn courses(measured: &Measured) -> impl Iterator<Item = (&Point, &FailureCourse)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        ExperimentResult::NodeFailure(course) => Some((point, course)),
        _ => None,
    })
}

pub(in crate::figures) fn claims() -> Vec<Claim> {
    fn coded(measured: &Measured) -> Option<&FailureCourse> {
        courses(measured).find(|(point, _)| point.series == CODED).map(|(_, course)| course)
    }
    vec![
        Claim::new("8+2, median read while regenerating over before", Expected::AtMost(1.1), |m| {
            coded(m)?.ratio(|seen| seen.reads.median)
        }),
        Claim::new(
            "8+2, median write while regenerating over before",
            Expected::AtMost(1.1),
            |m| coded(m)?.ratio(|seen| seen.writes.median),
        ),
        Claim::new("8+2, p99 of reads while regenerating over before", Expected::Unsaid, |m| {
            coded(m)?.ratio(|seen| seen.reads.p99)
        }),
        Claim::new("8+2, p99 of writes while regenerating over before", Expected::Unsaid, |m| {
            coded(m)?.ratio(|seen| seen.writes.p99)
        }),
        Claim::new("8+2, throughput while regenerating over before", Expected::AtLeast(0.9), |m| {
            coded(m)?.ratio(PhaseStats::per_second)
        }),
    ]
}

/// What is written of the figure.
pub(in crate::figures) fn tables(measured: &Measured) -> Vec<Table> {
    vec![phases(measured), over_time(measured)]
}

fn phases(measured: &Measured) -> Table {
    let rows = courses(measured).flat_map(|(point, course)| {
        course.phases.iter().map(|seen| {
            let PhaseStats { phase, lasted, accesses, errors, reads, writes, longest } = seen;
            let milliseconds = |duration: &Duration| duration.as_secs_f64() * 1e3;
            let lasted = milliseconds(lasted);
            let rate = seen.per_second();
            let failed = if *errors > 0 {
                let share = 100.0 * *errors as f64 / (accesses + errors) as f64;
                format!(", {share:.1} % failed")
            } else {
                String::new()
            };
            Row {
                series: point.series.clone(),
                x: phase.name().to_owned(),
                values: format!(
                    "{lasted:.3},{accesses},{errors},{rate:.0},{:.3},{:.3},{:.3},{:.3},{:.3}",
                    reads.median,
                    reads.p99,
                    writes.median,
                    writes.p99,
                    milliseconds(longest)
                ),
                cell: Some(format!(
                    "{lasted:.1} ms: {:.2}; {:.2}, {:.2}; {:.2}, {:.2}{failed}",
                    rate / 1e6,
                    reads.median,
                    reads.p99,
                    writes.median,
                    writes.p99
                )),
            }
        })
    });
    Table {
        stem: "coding-failures",
        title: "Phases",
        caption: "How long it lasted: million accesses a second; median and p99 of reads, µs; of writes, µs:",
        x_label: "phase",
        columns: "lasted_ms,accesses,errors,accesses_per_second,read_median_us,read_p99_us,write_median_us,\
                  write_p99_us,longest_ms",
        rows: rows.collect(),
        plot: None,
    }
}

fn over_time(measured: &Measured) -> Table {
    let rows = courses(measured).flat_map(|(point, course)| {
        course.rates.iter().map(|(at, rate)| Row {
            series: point.series.clone(),
            x: format!("{at:.1}"),
            values: format!("{:.0}", rate * 1e6),
            cell: None,
        })
    });
    // The axis begins with the measurement.
    let first = courses(measured).filter_map(|(_, course)| course.rates.first()).map(|(at, _)| *at);
    let begin = first.fold(0.0, f64::min);
    let lines = courses(measured).map(|(point, course)| PlotLine {
        name: point.series.clone(),
        points: course.rates.iter().map(|(at, rate)| (at - begin, *rate)).collect(),
    });
    Table {
        stem: "coding-failures-time",
        title: "Throughput over time",
        caption: "",
        x_label: "time, ms",
        columns: "accesses_per_second",
        rows: rows.collect(),
        plot: Some(Plot {
            y_label: "million accesses a second",
            lines: lines.collect(),
            labels: Vec::new(),
        }),
    }
}
