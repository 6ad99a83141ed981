//! How much memory the pages of a pool take: a table of the figure of coded latencies.

use crate::figures::point::{Measured, Point};
use crate::figures::table::{Plot, Row, Table};
use crate::figures::work::experiment::{Experiment, ExperimentResult};
use crate::figures::work::memory_use::{COMPUTE_NODES, FilledPool, LENT, MemoryUse};

const SIZES: [(&str, usize); 2] = [("2 KiB", 2048), ("4 KiB", 4096)];
const CODINGS: [(&str, &str); 6] = [
    ("plain", "plain"),
    ("2 copies", "replicate=2"),
    ("2+1", "2+1"),
    ("4+2", "4+2"),
    ("8+2", "8+2"),
    ("8+3", "8+3"),
];

pub(in crate::figures) fn points() -> impl Iterator<Item = Point> {
    let all = SIZES.into_iter().flat_map(|size| CODINGS.map(|coding| (size, coding)));
    all.map(|((series, gcl_bytes), (x, coding))| {
        let experiment = Experiment::MemoryUse(MemoryUse { coding, gcl_bytes });
        Point { series: series.to_owned(), x: x.to_owned(), experiment }
    })
}

pub(in crate::figures) fn setup() -> String {
    format!(
        "Memory: all that as many memory nodes lend as the coding has splits, {} MiB each, over the pages that they \
         have room for, in a pool for {COMPUTE_NODES} compute nodes.",
        LENT >> 20
    )
}

fn filled(measured: &Measured) -> impl Iterator<Item = (&Point, &FilledPool)> {
    measured.points.iter().filter_map(|(point, outcome)| match outcome {
        ExperimentResult::MemoryUse(filled) => Some((point, filled)),
        _ => None,
    })
}

/// Bytes of memory for each byte of pages of this size.
pub(in crate::figures) fn a_byte(measured: &Measured, size: &str, coding: &str) -> Option<f64> {
    let mut found = filled(measured);
    let found = found.find(|(point, _)| point.series == size && point.x == coding);
    found.map(|(_, filled)| filled.ratio())
}

pub(in crate::figures) fn table(measured: &Measured) -> Table {
    let rows = filled(measured).map(|(point, filled)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: format!("{},{},{:.4}", filled.lent, filled.data, filled.ratio()),
        cell: Some(format!("{:.3}", filled.ratio())),
    });
    let points = filled(measured).map(|(p, filled)| (&*p.series, &*p.x, filled.ratio()));
    Table {
        stem: "coding-latency-memory",
        title: "Memory",
        caption: "Bytes of memory for a byte of pages:",
        x_label: "coding: data + parity splits (Δ: further splits that are read)",
        columns: "lent_bytes,page_bytes,ratio",
        rows: rows.collect(),
        plot: Some(Plot::new("bytes for a byte", points)),
    }
}
