//! How runs of the micro-benchmark are shown.

use selkie::tpcc::micro::Report;

use super::experiment::Figure;
use super::measure::Measured;
use super::table::{Line, Plot, Row, Table};

const COLUMNS: &str = "ops_per_second,hit_ratio,round_trips_per_op,atomics_per_op,invalidations_per_op,\
                       messages_per_op,busiest_atomics,busiest_mail,busiest_sending,busiest_receiving";

/// The one table of a figure whose points are runs of the micro-benchmark.
pub(super) fn table(measured: &Measured) -> Table {
    let rows = measured.micro().map(|(point, report)| Row {
        series: point.series.clone(),
        x: point.x.clone(),
        values: values(report),
        cell: Some(format!("{:.2}{}", report.ops_per_second() / 1e6, busiest(report))),
    });
    let y_label = "million accesses a second";
    let plot = if measured.figure == Figure::Fairness {
        Plot { y_label, lines: over_time(measured), labels: Vec::new() }
    } else {
        let rate = |report: &Report| report.ops_per_second() / 1e6;
        let points = measured.micro().map(|(p, report)| (&*p.series, &*p.x, rate(report)));
        Plot::new(y_label, points)
    };
    Table {
        stem: measured.figure.name(),
        title: measured.figure.title(),
        caption: "Million accesses a second, and what the busiest adapter was busy with:",
        x_label: measured.figure.x_label(),
        columns: COLUMNS,
        rows: rows.collect(),
        plot: Some(plot),
    }
}

fn values(report: &Report) -> String {
    let load = report.load.map(|load| [load.atomics, load.mail, load.sends, load.receives]);
    let load: Vec<String> = load.unwrap_or_default().iter().map(|l| format!("{l:.3}")).collect();
    format!(
        "{:.0},{:.4},{:.3},{:.3},{:.3},{:.3},{}",
        report.ops_per_second(),
        report.hit_ratio(),
        report.per_op(report.traffic.chains),
        report.per_op(report.traffic.atomics),
        report.per_op(report.sum(|stats| stats.invalidations)),
        report.per_op(report.sum(|stats| stats.messages)),
        load.join(",")
    )
}

fn busiest(report: &Report) -> String {
    let Some(load) = report.load else { return String::new() };
    let kinds = [
        ("atomics", load.atomics),
        ("mail", load.mail),
        ("sending", load.sends),
        ("receiving", load.receives),
    ];
    let most = kinds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    most.map_or(String::new(), |(kind, share)| format!(" ({kind} {:.0} %)", 100.0 * share))
}

/// The writer, and the mean of the readers, over time.
fn over_time(measured: &Measured) -> Vec<Line> {
    let mut lines = Vec::new();
    for (point, report) in measured.micro() {
        let mut writer = Line { name: format!("{}, writer", point.series), points: Vec::new() };
        let mut readers = Line { name: format!("{}, a reader", point.series), points: Vec::new() };
        let mut last = 0.0;
        for sample in &report.samples {
            let end = sample.at.as_secs_f64();
            let rate = |accesses: f64| accesses / (end - last) / 1e6;
            if let Some((first, others)) = sample.accesses.split_first() {
                let mean = others.iter().sum::<u64>() as f64 / others.len().max(1) as f64;
                writer.points.push((end * 1e3, rate(*first as f64)));
                readers.points.push((end * 1e3, rate(mean)));
            }
            last = end;
        }
        lines.extend([writer, readers]);
    }
    lines
}
