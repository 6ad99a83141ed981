//! Whether an acquisition probably meets another holder, estimated from earlier acquisitions.
//!
//! An atomic that meets another holder was in vain, and the home of a page has few of them to give;
//! a look at the word costs one more round trip where no other holder conflicts.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::coherence::machine::Phase;
use crate::coherence::word::{ComputeId, LatchWord};

/// All acquisitions met another holder.
const ALWAYS: u32 = 1 << 16;
/// One in so many makes up the estimate.
const WEIGHT: u32 = 64;

/// Estimates of how many acquisitions of a kind meet another holder.
#[derive(Default)]
pub(crate) struct ContentionPredictor {
    read: AtomicU32,
    write: AtomicU32,
    upgrade: AtomicU32,
}

impl ContentionPredictor {
    /// Whether acquiring a line in this phase probably meets another holder.
    pub(crate) fn in_the_way(&self, exclusive: bool, phase: Phase) -> bool {
        // A reader in vain takes its bit out again, so a look pays for it sooner.
        let (estimate, bound) = match (phase, exclusive) {
            (Phase::Invalid, false) => (&self.read, ALWAYS / 3),
            (Phase::Invalid, true) => (&self.write, ALWAYS / 2),
            _ => (&self.upgrade, ALWAYS / 2),
        };
        estimate.load(Ordering::Relaxed) > bound
    }

    /// An operation in `phase` of node `me` found `old`.
    pub(crate) fn learn(&self, me: ComputeId, phase: Phase, old: LatchWord) {
        let (estimate, met) = match phase {
            Phase::Look { exclusive: false }
            | Phase::CededLook { exclusive: false, .. }
            | Phase::AcquireShared => (&self.read, old.holder() != Ok(None)),
            Phase::Look { exclusive: true }
            | Phase::CededLook { exclusive: true, .. }
            | Phase::AcquireExclusive => (&self.write, old != LatchWord::FREE),
            Phase::UpgradeLook | Phase::Upgrade => (&self.upgrade, old != LatchWord::read_by(me)),
            _ => return,
        };
        // Relaxed, and an update may be lost to another one: it is an estimate.
        let now = estimate.load(Ordering::Relaxed);
        let next = now - now / WEIGHT + if met { ALWAYS / WEIGHT } else { 0 };
        estimate.store(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_follow_what_is_met_each_for_its_kind() {
        let guesses = ContentionPredictor::default();
        let (me, other) = (ComputeId::new(0).unwrap(), ComputeId::new(1).unwrap());
        let expects = |exclusive, phase| guesses.in_the_way(exclusive, phase);
        for _ in 0..200 {
            guesses.learn(me, Phase::AcquireExclusive, LatchWord::read_by(other));
            guesses.learn(me, Phase::AcquireShared, LatchWord::read_by(other));
        }
        assert!(expects(true, Phase::Invalid));
        assert!(!expects(false, Phase::Invalid), "readers are not in its way");
        assert!(!expects(true, Phase::Shared));
        for _ in 0..200 {
            guesses.learn(me, Phase::Look { exclusive: true }, LatchWord::FREE);
            guesses.learn(me, Phase::Upgrade, LatchWord::held_by(other));
        }
        assert!(!expects(true, Phase::Invalid));
        assert!(expects(true, Phase::Lapsed));
    }
}
