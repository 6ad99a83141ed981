//! The figures by name, and what is the same for all points of a run.

use std::time::Duration;

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

/// What is the same for all points.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// Virtual time measured for each point, after as much to warm up.
    pub(super) duration: Duration,
    pub(super) seed: u64,
    /// Failures drawn for each point of a probability.
    pub(super) trials: u64,
}

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
}
