//! Figures whose points are runs of the micro-benchmark (SELCC §7.1, §7.2).

use selkie::engine::Coherence;
use selkie_tpcc::micro::{Config, ProtocolFeature, Report};

use crate::figures::figure::Figure;
use crate::figures::point::{Claim, Expected, Measured, Point};
use crate::figures::table::{Plot, PlotLine, Row, Table};
use crate::figures::work::experiment::Experiment;

const COLUMNS: &str = "ops_per_second,hit_ratio,round_trips_per_op,atomics_per_op,invalidations_per_op,\
                       messages_per_op,busiest_atomics,busiest_mail,busiest_sending,busiest_receiving";

/// The three mixes of SELCC §7.1.
const MIXES: [(&str, f64); 3] =
    [("read-intensive", 0.95), ("write-intensive", 0.5), ("write-only", 0.0)];

pub(in crate::figures) fn scalability_claims() -> Vec<Claim> {
    vec![
        Claim {
            what: "1 to 16 nodes, all shared, write-intensive, speed-up",
            expected: Expected::Published(10.4),
            ours: |m| {
                ratio(
                    m,
                    ("write-intensive, shared 100 %", "16"),
                    ("write-intensive, shared 100 %", "1"),
                )
            },
            why: "One node alone meets no other, but pays the atomics at its one home. Among sixteen most \
                  pages pass from node to node, one atomic each.",
        },
        Claim {
            what: "1 to 16 nodes, all shared, read-intensive, speed-up",
            expected: Expected::Published(16.0),
            ours: |m| {
                ratio(
                    m,
                    ("read-intensive, shared 100 %", "16"),
                    ("read-intensive, shared 100 %", "1"),
                )
            },
            why: "Published as linear. One node alone fills its adapter with pages it reads. Sixteen do, \
                  too, but a part of the verbs are messages: each write asks six readers to let go, and they \
                  answer. The receiving side of the busiest adapter is at its limit.",
        },
        Claim {
            what: "1 to 16 nodes, all shared, write-only, speed-up",
            expected: Expected::Published(9.8),
            ours: |m| {
                ratio(m, ("write-only, shared 100 %", "16"), ("write-only, shared 100 %", "1"))
            },
            why: "One node alone pays an acquiring and a releasing atomic a miss; a hand-over between \
                          nodes is one atomic.",
        },
    ]
}

pub(in crate::figures) fn locality_claims() -> Vec<Claim> {
    vec![
        sel_claim("read-intensive, locality 0.5, selcc over sel", 1.85, |m| {
            ratio(m, ("selcc, read-intensive", "0.5"), ("sel, read-intensive", "0.5"))
        }),
        sel_claim("write-intensive, locality 0.5, selcc over sel", 1.26, |m| {
            ratio(m, ("selcc, write-intensive", "0.5"), ("sel, write-intensive", "0.5"))
        }),
        sel_claim("write-only, locality 0.5, selcc over sel", 1.71, |m| {
            ratio(m, ("selcc, write-only", "0.5"), ("sel, write-only", "0.5"))
        }),
    ]
}

pub(in crate::figures) fn skew_claims() -> Vec<Claim> {
    vec![
        sel_claim("read-intensive, exponent 0.99, selcc over sel", 3.09, |m| {
            ratio(m, ("selcc, read-intensive", "0.99"), ("sel, read-intensive", "0.99"))
        }),
        Claim {
            what: "write-intensive, exponent 0.99, 64 workers a node, selcc over sel",
            expected: Expected::Published(7.0),
            ours: |m| {
                ratio(
                    m,
                    ("selcc, write-intensive, 64 workers", "0.99"),
                    ("sel, write-intensive, 64 workers", "0.99"),
                )
            },
            why: "The baseline here lets one worker of a node try for a latch at a time and the others \
                  wait locally, which spares it most of the retries that the published one makes; \
                  readers that leave their bits to the writer spare SELCC as much.",
        },
    ]
}

pub(in crate::figures) fn fairness_claims() -> Vec<Claim> {
    vec![Claim {
        what: "the writer's accesses over the median reader's",
        expected: Expected::Published(0.5),
        ours: |m| fairness_of(m, "selcc"),
        why: "A page that was just fetched is kept for some microseconds, and readers that wait for it get \
                  their copies together, by one atomic.",
    }]
}

pub(in crate::figures) fn remote_cpu_claims() -> Vec<Claim> {
    vec![
        Claim {
            what: "selcc over rpc with one core",
            expected: Expected::Published(4.3),
            ours: |m| ratio(m, ("selcc", "1"), ("rpc", "1")),
            why: "Evicted readers keep their bits in the latch word, and writers clear those of the readers \
                  they asked: fewer atomics than as published.",
        },
        Claim {
            what: "selcc over rpc with eight cores",
            expected: Expected::Published(0.9),
            ours: |m| ratio(m, ("selcc", "8"), ("rpc", "8")),
            why: "With eight cores the directory answers in one round trip, as the latch word does; it is \
                  the adapters that differ: each of its messages is two verbs.",
        },
    ]
}

const fn sel_claim(
    what: &'static str,
    published: f64,
    ours: fn(&Measured) -> Option<f64>,
) -> Claim {
    let why = "Without a cache every access pays two atomics, and the homes are at their limit. SELCC \
               pays fewer here than as published: evicted readers keep their bits, and writers clear those \
               of the readers they asked.";
    Claim { what, expected: Expected::Published(published), ours, why }
}

fn point(series: impl Into<String>, x: impl ToString, config: Config) -> Point {
    Point {
        series: series.into(),
        x: x.to_string(),
        experiment: Experiment::Micro(Box::new(config)),
    }
}

pub(in crate::figures) fn scalability() -> Vec<Point> {
    let mut points = Vec::new();
    for (mix, read_ratio) in MIXES {
        for sharing in [0.0, 0.5, 1.0] {
            for nodes in [1, 2, 4, 8, 16, 32] {
                let config = Config {
                    compute_nodes: nodes,
                    memory_nodes: nodes,
                    read_ratio,
                    sharing_ratio: sharing,
                    ..Config::default()
                };
                points.push(point(
                    format!("{mix}, shared {:.0} %", 100.0 * sharing),
                    nodes,
                    config,
                ));
            }
        }
    }
    points
}

pub(in crate::figures) fn locality() -> Vec<Point> {
    let mut points = Vec::new();
    for (name, coherence) in [("selcc", Coherence::Selcc), ("sel", Coherence::Sel)] {
        for (mix, read_ratio) in MIXES {
            for locality in [0.0, 0.25, 0.5, 0.75, 0.9] {
                let config = Config { coherence, read_ratio, locality, ..Config::default() };
                points.push(point(format!("{name}, {mix}"), locality, config));
            }
        }
    }
    points
}

pub(in crate::figures) fn skew() -> Vec<Point> {
    let mut points = Vec::new();
    for (name, coherence) in [("selcc", Coherence::Selcc), ("sel", Coherence::Sel)] {
        for (mix, read_ratio, workers) in [
            ("read-intensive", 0.95, 16),
            ("write-intensive", 0.5, 16),
            ("write-intensive, 64 workers", 0.5, 64),
        ] {
            for zipf in [0.0, 0.5, 0.8, 0.9, 0.99] {
                let config = Config { coherence, read_ratio, workers, zipf, ..Config::default() };
                points.push(point(format!("{name}, {mix}"), zipf, config));
            }
        }
    }
    points
}

pub(in crate::figures) fn fairness() -> Vec<Point> {
    // One page that all workers use: the choice is so skewed that the others are never met.
    let one_page = Config {
        memory_nodes: 1,
        workers: 1,
        gcls: 8,
        zipf: 9.9,
        writer_nodes: Some(1),
        ..Config::default()
    };
    let without = vec![ProtocolFeature::Gamma, ProtocolFeature::Hold];
    vec![
        point("selcc", "", one_page.clone()),
        point("without gamma and hold", "", Config { without, ..one_page }),
    ]
}

pub(in crate::figures) fn remote_cpu() -> Vec<Point> {
    let mut points = Vec::new();
    for cores in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
        let config = Config { locality: 0.5, memnode_cores: cores, ..Config::default() };
        points.push(point("selcc", cores, config.clone()));
        points.push(point("rpc", cores, Config { coherence: Coherence::Rpc, ..config }));
    }
    points
}

pub(in crate::figures) fn gcl_size() -> Vec<Point> {
    let mut points = Vec::new();
    for (name, coherence) in [("selcc", Coherence::Selcc), ("sel", Coherence::Sel)] {
        for gcl_bytes in [512, 1024, 2048, 4096, 8192] {
            // The same pages cached, whatever their size.
            let cache_mib = (16 * gcl_bytes as u64).div_ceil(2048);
            let config =
                Config { coherence, gcl_bytes, cache_mib, locality: 0.5, ..Config::default() };
            points.push(point(name, gcl_bytes, config));
        }
    }
    points
}

pub(in crate::figures) fn ablation() -> Vec<Point> {
    let mut points = Vec::new();
    for (mix, read_ratio, zipf) in
        [("uniform, read-intensive", 0.95, 0.0), ("skewed, write-intensive", 0.5, 0.99)]
    {
        let config = Config { read_ratio, zipf, locality: 0.5, ..Config::default() };
        points.push(point(mix, "nothing", config.clone()));
        for part in ProtocolFeature::ALL {
            let without = vec![part];
            points.push(point(mix, part.name(), Config { without, ..config.clone() }));
        }
    }
    points
}

/// Throughput of one point over that of another, each named by series and place on the axis.
fn ratio(measured: &Measured, above: (&str, &str), below: (&str, &str)) -> Option<f64> {
    let of = |(series, x): (&str, &str)| {
        let found = measured.micro().find(|(p, _)| p.series == series && p.x == x);
        found.map(|(_, report)| report.ops_per_second())
    };
    Some(of(above)? / of(below)?)
}

/// Accesses of the first node over the median of the others.
fn fairness_of(measured: &Measured, series: &str) -> Option<f64> {
    let (_, report) = measured.micro().find(|(point, _)| point.series == series)?;
    let (writer, readers) = report.accesses.split_first()?;
    let mut readers = readers.to_vec();
    readers.sort_unstable();
    Some(*writer as f64 / *readers.get(readers.len() / 2)? as f64)
}

/// The one table of a figure whose points are runs of the micro-benchmark.
pub(in crate::figures) fn table(measured: &Measured) -> Table {
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
fn over_time(measured: &Measured) -> Vec<PlotLine> {
    let mut lines = Vec::new();
    for (point, report) in measured.micro() {
        let mut writer = PlotLine { name: format!("{}, writer", point.series), points: Vec::new() };
        let mut readers =
            PlotLine { name: format!("{}, a reader", point.series), points: Vec::new() };
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
