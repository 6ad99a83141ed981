//! What is measured for each figure, and what was published about it.

use std::fmt;
use std::time::Duration;

use selkie::engine::Coherence;
use selkie::tpcc::micro::{Config, Part};

use super::measure::{Measured, Work};
use super::{failures, latency, sets, tpcc, two_phase};

/// A figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    Scalability,
    Locality,
    Skew,
    Fairness,
    RemoteCpu,
    GclSize,
    Ablation,
    Tpcc,
    TwoPhaseCommit,
    CodingSets,
    CodingLatency,
    CodingFailures,
}

/// One point: a run.
pub(super) struct Point {
    pub(super) series: String,
    /// What stands at the axis.
    pub(super) x: String,
    pub(super) work: Work,
}

/// Something published or aimed at, and what it is measured to be here.
pub(super) struct Claim {
    pub(super) what: &'static str,
    pub(super) expected: Expected,
    pub(super) ours: fn(&Measured) -> Option<f64>,
    /// Why it differs, where it does.
    pub(super) why: &'static str,
}

impl Claim {
    /// One of which there is nothing to explain.
    pub(super) const fn new(
        what: &'static str,
        expected: Expected,
        ours: fn(&Measured) -> Option<f64>,
    ) -> Self {
        Self { what, expected, ours, why: "" }
    }
}

/// What a ratio should be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Expected {
    /// About what somebody else has published.
    Published(f64),
    /// An aim of this project.
    AtMost(f64),
    /// As well.
    AtLeast(f64),
    /// Whatever it is.
    Unsaid,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(ratio) => write!(f, "{ratio}"),
            Self::AtMost(ratio) => write!(f, "≤ {ratio}"),
            Self::AtLeast(ratio) => write!(f, "≥ {ratio}"),
            Self::Unsaid => Ok(()),
        }
    }
}

/// The three mixes of SELCC §7.1.
const MIXES: [(&str, f64); 3] =
    [("read-intensive", 0.95), ("write-intensive", 0.5), ("write-only", 0.0)];

impl Figure {
    pub(super) const ALL: [Figure; 12] = [
        Figure::Scalability,
        Figure::Locality,
        Figure::Skew,
        Figure::Fairness,
        Figure::RemoteCpu,
        Figure::GclSize,
        Figure::Ablation,
        Figure::Tpcc,
        Figure::TwoPhaseCommit,
        Figure::CodingSets,
        Figure::CodingLatency,
        Figure::CodingFailures,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Figure::Scalability => "scalability",
            Figure::Locality => "locality",
            Figure::Skew => "skew",
            Figure::Fairness => "fairness",
            Figure::RemoteCpu => "remote-cpu",
            Figure::GclSize => "gcl-size",
            Figure::Ablation => "ablation",
            Figure::Tpcc => "tpcc",
            Figure::TwoPhaseCommit => "two-phase-commit",
            Figure::CodingSets => "coding-sets",
            Figure::CodingLatency => "coding-latency",
            Figure::CodingFailures => "coding-failures",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Figure::Scalability => {
                "Scalability: 1 to 32 nodes, a memory node for each compute node"
            }
            Figure::Locality => "Locality: chance that the next access goes to the same page",
            Figure::Skew => "Skew: exponent of the Zipf distribution",
            Figure::Fairness => "Fairness over time: one writer and seven readers of one page",
            Figure::RemoteCpu => "Remote computing power: cores of each memory node",
            Figure::GclSize => "Page size",
            Figure::Ablation => "Ablation: one part of the protocol switched off",
            Figure::Tpcc => "TPC-C: pages cached (selcc), and not (sel)",
            Figure::TwoPhaseCommit => "TPC-C: shared pages, and partitions with two-phase commit",
            Figure::CodingSets => "CodingSets: data lost and memory balanced, by placement",
            Figure::CodingLatency => "Coded pages: latency of reads and write-backs, and TPC-C",
            Figure::CodingFailures => "Coded pages: the death of a memory node",
        }
    }

    /// On what it is measured, as the page says it.
    pub(super) fn setup(self, settings: &Settings) -> String {
        let Settings { duration, seed, trials } = settings;
        match self {
            Figure::Tpcc => tpcc::setup(*duration, *seed),
            Figure::TwoPhaseCommit => two_phase::setup(*duration, *seed),
            Figure::CodingSets => sets::setup(*trials, *seed),
            Figure::CodingLatency => latency::setup(*duration, *seed),
            Figure::CodingFailures => failures::setup(*duration, *seed),
            _ => format!(
                "Simulated network `paper`, {} ms a point after as many to warm up, seed {seed}.",
                duration.as_millis()
            ),
        }
    }

    /// What is at the axis, of the figures that have one plot.
    pub(super) const fn x_label(self) -> &'static str {
        match self {
            Figure::Scalability => "compute nodes",
            Figure::Locality => "locality",
            Figure::Skew => "Zipf exponent",
            Figure::Fairness => "time, ms",
            Figure::RemoteCpu => "cores of a memory node",
            Figure::GclSize => "bytes of a page",
            Figure::Ablation => "switched off",
            Figure::Tpcc
            | Figure::TwoPhaseCommit
            | Figure::CodingSets
            | Figure::CodingLatency
            | Figure::CodingFailures => "",
        }
    }

    /// The runs of the figure.
    pub(super) fn points(self) -> Vec<Point> {
        match self {
            Figure::Scalability => scalability(),
            Figure::Locality => locality(),
            Figure::Skew => skew(),
            Figure::Fairness => fairness(),
            Figure::RemoteCpu => remote_cpu(),
            Figure::GclSize => gcl_size(),
            Figure::Ablation => ablation(),
            Figure::Tpcc => tpcc::points(),
            Figure::TwoPhaseCommit => two_phase::points(),
            Figure::CodingSets => sets::points(),
            Figure::CodingLatency => latency::points(),
            Figure::CodingFailures => failures::points(),
        }
    }

    /// What was published.
    pub(super) fn claims(self) -> Vec<Claim> {
        match self {
            Figure::Scalability => scalability_claims(),
            Figure::Locality => locality_claims(),
            Figure::Skew => skew_claims(),
            Figure::Fairness => fairness_claims(),
            Figure::RemoteCpu => remote_cpu_claims(),
            Figure::GclSize | Figure::Ablation => Vec::new(),
            Figure::Tpcc => tpcc::claims(),
            Figure::TwoPhaseCommit => two_phase::claims(),
            Figure::CodingSets => sets::claims(),
            Figure::CodingLatency => latency::claims(),
            Figure::CodingFailures => failures::claims(),
        }
    }
}

/// What is the same for all points.
pub(super) struct Settings {
    /// Virtual time measured for each point, after as much to warm up.
    pub(super) duration: Duration,
    pub(super) seed: u64,
    /// Failures drawn for each point of a probability.
    pub(super) trials: u64,
}

fn scalability_claims() -> Vec<Claim> {
    vec![
        Claim {
            what: "1 to 16 nodes, all shared, write-intensive, speed-up",
            expected: Expected::Published(10.4),
            ours: |m| {
                m.ratio(
                    ("write-intensive, shared 100 %", "16"),
                    ("write-intensive, shared 100 %", "1"),
                )
            },
            why: "One node alone meets nobody, but pays the atomics at its one home. Among sixteen most \
                  pages pass from node to node, one atomic each.",
        },
        Claim {
            what: "1 to 16 nodes, all shared, read-intensive, speed-up",
            expected: Expected::Published(16.0),
            ours: |m| {
                m.ratio(
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
                m.ratio(("write-only, shared 100 %", "16"), ("write-only, shared 100 %", "1"))
            },
            why: "One node alone pays an acquiring and a releasing atomic a miss; a hand-over between \
                          nodes is one atomic.",
        },
    ]
}

fn locality_claims() -> Vec<Claim> {
    vec![
        sel_claim("read-intensive, locality 0.5, selcc over sel", 1.85, |m| {
            m.ratio(("selcc, read-intensive", "0.5"), ("sel, read-intensive", "0.5"))
        }),
        sel_claim("write-intensive, locality 0.5, selcc over sel", 1.26, |m| {
            m.ratio(("selcc, write-intensive", "0.5"), ("sel, write-intensive", "0.5"))
        }),
        sel_claim("write-only, locality 0.5, selcc over sel", 1.71, |m| {
            m.ratio(("selcc, write-only", "0.5"), ("sel, write-only", "0.5"))
        }),
    ]
}

fn skew_claims() -> Vec<Claim> {
    vec![
        sel_claim("read-intensive, exponent 0.99, selcc over sel", 3.09, |m| {
            m.ratio(("selcc, read-intensive", "0.99"), ("sel, read-intensive", "0.99"))
        }),
        Claim {
            what: "write-intensive, exponent 0.99, 64 workers a node, selcc over sel",
            expected: Expected::Published(7.0),
            ours: |m| {
                m.ratio(
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

fn fairness_claims() -> Vec<Claim> {
    vec![Claim {
        what: "the writer's accesses over the median reader's",
        expected: Expected::Published(0.5),
        ours: |m| m.fairness("selcc"),
        why: "A page that was just fetched is kept for some microseconds, and readers that wait for it get \
                  their copies together, by one atomic.",
    }]
}

fn remote_cpu_claims() -> Vec<Claim> {
    vec![
        Claim {
            what: "selcc over rpc with one core",
            expected: Expected::Published(4.3),
            ours: |m| m.ratio(("selcc", "1"), ("rpc", "1")),
            why: "Evicted readers keep their bits in the latch word, and writers clear those of the readers \
                  they asked: fewer atomics than as published.",
        },
        Claim {
            what: "selcc over rpc with eight cores",
            expected: Expected::Published(0.9),
            ours: |m| m.ratio(("selcc", "8"), ("rpc", "8")),
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
    Point { series: series.into(), x: x.to_string(), work: Work::Micro(Box::new(config)) }
}

fn scalability() -> Vec<Point> {
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

fn locality() -> Vec<Point> {
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

fn skew() -> Vec<Point> {
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

fn fairness() -> Vec<Point> {
    // One page that everybody uses: the choice is so skewed that the others are never met.
    let one_page = Config {
        memory_nodes: 1,
        workers: 1,
        gcls: 8,
        zipf: 9.9,
        writer_nodes: Some(1),
        ..Config::default()
    };
    let without = vec![Part::Gamma, Part::Hold];
    vec![
        point("selcc", "", one_page.clone()),
        point("without gamma and hold", "", Config { without, ..one_page }),
    ]
}

fn remote_cpu() -> Vec<Point> {
    let mut points = Vec::new();
    for cores in [0.1, 0.5, 1.0, 2.0, 4.0, 8.0] {
        let config = Config { locality: 0.5, memnode_cores: cores, ..Config::default() };
        points.push(point("selcc", cores, config.clone()));
        points.push(point("rpc", cores, Config { coherence: Coherence::Rpc, ..config }));
    }
    points
}

fn gcl_size() -> Vec<Point> {
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

fn ablation() -> Vec<Point> {
    let mut points = Vec::new();
    for (mix, read_ratio, zipf) in
        [("uniform, read-intensive", 0.95, 0.0), ("skewed, write-intensive", 0.5, 0.99)]
    {
        let config = Config { read_ratio, zipf, locality: 0.5, ..Config::default() };
        points.push(point(mix, "nothing", config.clone()));
        for part in Part::ALL {
            let without = vec![part];
            points.push(point(mix, part.name(), Config { without, ..config.clone() }));
        }
    }
    points
}
