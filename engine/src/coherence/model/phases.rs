//! Numbers for the phases of a line, and what a phase names.

use crate::coherence::machine::Phase;
use crate::coherence::word::{LatchWord, NodeSet};

/// A number for each kind of phase.
pub(super) const fn phase_tag(phase: Phase) -> u64 {
    match phase {
        Phase::Invalid => 0,
        Phase::AcquireShared => 1,
        Phase::ResetShared { .. } => 2,
        Phase::WaitRead { .. } => 3,
        Phase::Shared => 4,
        Phase::AcquireExclusive => 5,
        Phase::Intent { .. } => 6,
        Phase::WaitSharers { refused: false, .. } => 7,
        Phase::WaitWrite { .. } => 8,
        Phase::Modified => 9,
        Phase::Upgrade => 10,
        Phase::UpgradeIntent { .. } => 11,
        Phase::Downgrade { .. } => 12,
        Phase::HandOver { .. } => 13,
        Phase::ReleaseShared => 14,
        Phase::ReleaseModified => 15,
        Phase::CancelIntent => 16,
        Phase::Lapsed => 17,
        Phase::Refetch => 18,
        Phase::Ceded { .. } => 19,
        Phase::Look { exclusive: false } => 20,
        Phase::Look { exclusive: true } => 21,
        Phase::UpgradeLook => 22,
        Phase::WaitSharers { refused: true, .. } => 23,
        Phase::CededLook { exclusive: false, .. } => 24,
        Phase::CededLook { exclusive: true, .. } => 25,
        Phase::Inquire { of, .. } => 26 + of as u64,
        Phase::Claim { .. } => 29,
        Phase::Rejoin { .. } => 30,
        Phase::Join { .. } => 31,
        Phase::Disclaim { .. } => 32,
        Phase::WriteBack => 33,
    }
}

/// The number of phase tags that a line can have while no node dies.
pub(super) const PHASES: u32 = 26;
/// The number of phase tags without logs.
pub(super) const ALL_PHASES: u32 = 33;

pub(super) fn phase_arguments(phase: Phase) -> (Option<LatchWord>, NodeSet) {
    let one = |node| NodeSet::EMPTY.with(node);
    match phase {
        Phase::Join { expected }
        | Phase::Intent { expected }
        | Phase::UpgradeIntent { expected } => (Some(expected), NodeSet::EMPTY),
        Phase::ResetShared { holder }
        | Phase::WaitRead { holder }
        | Phase::WaitWrite { holder } => (None, one(holder)),
        Phase::Claim { expected, dead } | Phase::Disclaim { expected, dead } => {
            (Some(expected), one(dead))
        }
        Phase::Inquire { dead, .. } | Phase::Rejoin { dead } => (None, one(dead)),
        Phase::WaitSharers { pending, .. } => (None, pending),
        Phase::Downgrade { to } => (None, to),
        Phase::HandOver { to } | Phase::Ceded { to } | Phase::CededLook { to, .. } => {
            (None, one(to))
        }
        _ => (None, NodeSet::EMPTY),
    }
}
