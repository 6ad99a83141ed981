//! Choices that a seed makes for its pool: the coding and the number of memory nodes.
//!
//! A [`Case`](super::Case) uses them unless its coding was given.

use selkie_fabric::env::SplitMix;
use selkie_pool::Coding;

use super::name::Scenario;
use super::random::drawn;

/// Memory nodes of a scenario, at least.
pub(super) const LEAST_MEMORY_NODES: u16 = 3;

/// Stream of the seed that draws the coding, or the shape.
const SHAPE_STREAM: u64 = 10;
/// Stream of the seed that draws the coding in the wide envelope.
const WIDE_STREAM: u64 = 46;
/// Stream of the seed that draws whether write-backs are always journalled.
const JOURNAL_STREAM: u64 = 11;
/// Stream of the seed that draws the variant of a run that loses memory nodes.
const LOSS_VARIANT_STREAM: u64 = 7;

/// Codings of the wide envelope, where the scenario asks for none.
const WIDE_CODINGS: [&str; 8] =
    ["plain", "plain", "plain", "plain", "2+1", "2+1,journal=always", "2+2", "4+2"];
/// Codings under which bits change.
pub(super) const CORRUPTION_CODINGS: [&str; 8] = [
    "2+3,mode=correct",
    "4+3,mode=correct",
    "2+1,mode=detect",
    "2+1",
    "1+3,mode=correct",
    "4+2,mode=detect",
    "4+2,delta=2",
    "4+2,mode=ec-only",
];
/// Codings with slow memory nodes.
pub(super) const STRAGGLER_CODINGS: [&str; 6] =
    ["2+1", "4+2", "2+2", "2+3,mode=correct", "1+1", "4+2,mode=ec-only"];
/// Codings under which slabs are evicted.
pub(super) const SLAB_EVICTION_CODINGS: [&str; 5] = ["2+1", "2+2", "4+2", "1+1", "1+2"];
/// Codings under which compute nodes with logs die.
pub(super) const CRASH_CODINGS: [&str; 4] = ["plain", "plain", "2+1", "2+1,journal=always"];
/// Compute nodes of a run in which those with logs die.
pub(super) const CRASH_COMPUTE_NODES: u16 = 3;
/// Codings and numbers of memory nodes of runs that lose some.
pub(super) const MEMNODE_LOSS_SHAPES: [(&str, u16); 4] =
    [("2+1", 5), ("2+2", 6), ("4+2", 7), ("1+2", 5)];

/// The coding of a run in the wide envelope of which none was asked for, in scenarios that are
/// plain in the gentle one.
pub(super) fn wide_coding(seed: u64) -> Coding {
    coding_of(drawn::<&str>(seed, WIDE_STREAM, &WIDE_CODINGS))
}

/// The coding of a run of which none was asked for.
pub(super) fn usual_coding(scenario: Scenario, seed: u64) -> Coding {
    let one_of = |codings: &[&str]| coding_of(drawn::<&str>(seed, SHAPE_STREAM, codings));
    match scenario {
        Scenario::MemnodeLoss => with_journal(seed, loss_shape(seed).0),
        Scenario::TpccLoss => loss_in_turn(seed, None).0,
        Scenario::Corruption => one_of(&CORRUPTION_CODINGS),
        Scenario::Straggler => one_of(&STRAGGLER_CODINGS),
        Scenario::SlabEviction => one_of(&SLAB_EVICTION_CODINGS),
        Scenario::Crash => one_of(&CRASH_CODINGS),
        Scenario::Counter
        | Scenario::Bank
        | Scenario::History
        | Scenario::Tree
        | Scenario::Tpcc
        | Scenario::Ring => Coding::PLAIN,
    }
}

/// The memory nodes of a run with that coding, of which `asked` is what was asked for.
pub(super) fn memory_nodes(
    scenario: Scenario,
    seed: u64,
    asked: Option<Coding>,
    coding: Coding,
) -> u16 {
    let nodes = match scenario {
        // TPC-C's tables grow to the end and need room for ranges.
        _ if loses_memory_under_tpcc(scenario, seed) => tpcc_nodes(coding).len(),
        Scenario::MemnodeLoss | Scenario::TpccLoss => match asked {
            None => usize::from(loss_shape(seed).1),
            // All slabs can be regenerated.
            Some(asked) => asked.splits() + asked.parity(),
        },
        // One node can be rid of all its slabs when as many have died as may.
        Scenario::SlabEviction => coding.splits() + coding.parity() + 1,
        // All slabs can be regenerated.
        Scenario::Crash => coding.splits() + coding.parity(),
        _ => coding.splits(),
    };
    (nodes as u16).max(LEAST_MEMORY_NODES)
}

/// The variant of a run that loses memory nodes: its load, and which compute node dies as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LossVariant {
    /// Clients increment pages.
    CounterPages,
    /// Tellers transfer between accounts.
    Bank,
    /// TPC-C.
    Tpcc,
    /// A compute node dies, before the memory nodes or among them.
    WriterDies {
        /// Among them.
        among: bool,
    },
    /// A compute node dies in the middle of a write-back, where the coding survives that together
    /// with the memory nodes.
    InWriteBack,
    /// The compute node that rebuilds the headers of a lost home dies.
    RebuilderDies,
    /// The compute node that regenerates a slab dies.
    RegeneratorDies,
}

impl LossVariant {
    /// The variant that a seed draws.
    pub(super) fn of(scenario: Scenario, seed: u64) -> Self {
        if scenario == Scenario::TpccLoss {
            return Self::Tpcc;
        }
        let random = SplitMix::of_stream(seed, LOSS_VARIANT_STREAM);
        match random.below(16) {
            0 => Self::Tpcc,
            1..=3 => Self::Bank,
            4..=6 => Self::WriterDies { among: random.below(2) == 0 },
            7 => Self::RebuilderDies,
            8..=9 => Self::RegeneratorDies,
            10..=12 => Self::InWriteBack,
            _ => Self::CounterPages,
        }
    }

    /// Whether a compute node dies.
    pub(super) fn loses_compute_nodes(self) -> bool {
        !matches!(self, Self::CounterPages | Self::Bank | Self::Tpcc)
    }
}

fn loses_memory_under_tpcc(scenario: Scenario, seed: u64) -> bool {
    matches!(scenario, Scenario::MemnodeLoss | Scenario::TpccLoss)
        && LossVariant::of(scenario, seed) == LossVariant::Tpcc
}

/// The coding without its journal, and the number of memory nodes, of a run that loses some.
pub(super) fn loss_shape(seed: u64) -> (&'static str, u16) {
    *drawn(seed, SHAPE_STREAM, &MEMNODE_LOSS_SHAPES)
}

fn with_journal(seed: u64, shape: &str) -> Coding {
    let journal = *drawn(seed, JOURNAL_STREAM, &["", "", "", ",journal=always"]);
    coding_of(&format!("{shape}{journal}"))
}

/// A coding of the lists above.
#[expect(clippy::expect_used, reason = "the lists are constant, and tests go through them")]
fn coding_of(text: &str) -> Coding {
    text.parse().expect("the lists have valid codings")
}

/// The coding of a run of TPC-C by its seed, if none is asked for, and the memory nodes that die
/// first and after them: each choice of those that die first in turn, with each shape; then again,
/// with others that die after them.
#[expect(clippy::indexing_slicing, reason = "a remainder is below the divisor")]
pub(super) fn loss_in_turn(seed: u64, asked: Option<Coding>) -> (Coding, Vec<u16>, Vec<u16>) {
    let all_shapes = || MEMNODE_LOSS_SHAPES.map(|(shape, _)| with_journal(seed, shape)).to_vec();
    let codings = asked.map_or_else(all_shapes, |coding| vec![coding]);
    let firsts = codings.iter().flat_map(|coding| {
        let all = subsets(&tpcc_nodes(*coding), coding.parity());
        all.into_iter().map(|first| (*coding, first))
    });
    let firsts: Vec<_> = firsts.collect();
    let (round, turn) = (seed as usize / firsts.len(), seed as usize % firsts.len());
    let (coding, first) = firsts[turn].clone();
    let seconds = subsets(&others(&tpcc_nodes(coding), &first), coding.parity());
    let second = seconds[round % seconds.len()].clone();
    (coding, first, second)
}

/// Those of `all` that are not in `nodes`.
pub(super) fn others(all: &[u16], nodes: &[u16]) -> Vec<u16> {
    all.iter().copied().filter(|node| !nodes.contains(node)).collect()
}

/// The memory nodes of a run of TPC-C that loses some.
fn tpcc_nodes(coding: Coding) -> Vec<u16> {
    (0..(coding.splits() + 2 * coding.parity()) as u16).collect()
}

/// All sets of `size` of these nodes.
pub(super) fn subsets(nodes: &[u16], size: usize) -> Vec<Vec<u16>> {
    let Some((first, rest)) = nodes.split_first().filter(|_| size > 0) else {
        return if size == 0 { vec![Vec::new()] } else { Vec::new() };
    };
    let with = subsets(rest, size - 1).into_iter().map(|mut subset| {
        subset.push(*first);
        subset
    });
    with.chain(subsets(rest, size)).collect()
}
