//! One line at one node: the state that the machine steps.

use super::message::Deferred;
use super::phase::{Inquiry, Phase};
use crate::coherence::word::{ComputeId, NodeSet};

/// One line at one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Line {
    /// The copy that the node has, and the operation or answer that the line waits for.
    pub phase: Phase,
    /// The node that has granted the copy and has not confirmed yet (R5).
    pub grantor: Option<ComputeId>,
    /// Readers that have given their copies up to this node and left their bits in the word. This
    /// node clears them with its next change of the word.
    pub carried: NodeSet,
    /// Requests that wait for an answer of this node.
    pub deferred: Vec<Deferred>,
    /// The current acquisition takes Busy rather than a wait.
    pub(crate) nowait: bool,
    /// Failed tries of the current acquisition.
    pub(super) retries: u8,
    /// The current acquisition has followed a hint already.
    pub(super) hinted: bool,
    /// Whether an upgrade of the shared copy can succeed.
    pub(super) upgrade: UpgradeHope,
    /// The current upgrade began without a copy.
    pub(super) lapsed: bool,
    /// The current acquisition began in Ceded: the node that was asked clears this node's bit.
    pub(super) ceded: bool,
    /// The current acquisition only takes a ceded bit back, for a node that leaves.
    pub(super) leaving: bool,
}

/// Whether an upgrade can succeed (R4), by the requests of other writers since the copy came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum UpgradeHope {
    /// It can.
    Open,
    /// It cannot: a holder is in the word, and its release request is on its way or deferred here.
    Lost,
    /// Perhaps: the last release request was answered Busy. A holder that an upgrade finds may be
    /// that writer, whose cancelled intent is still in the word. Then no release request follows,
    /// so upgrades are tried again.
    Refused,
}

impl Line {
    /// A line of which this node has no copy.
    pub const fn new() -> Self {
        Line::resting(Phase::Invalid)
    }

    /// A line at rest that owes no answer and waits for none.
    pub const fn resting(phase: Phase) -> Self {
        assert!(phase.at_rest(), "a line cannot rest there");
        Line {
            phase,
            grantor: None,
            carried: NodeSet::EMPTY,
            deferred: Vec::new(),
            nowait: false,
            retries: 0,
            hinted: false,
            upgrade: UpgradeHope::Open,
            lapsed: false,
            ceded: false,
            leaving: false,
        }
    }

    /// The line after its memory or a peer was lost: no copy, no operation. What is known of the
    /// node's bit in the word is kept where the word was not changed.
    pub(crate) fn forgotten(&self) -> Line {
        match self.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } if self.ceded => {
                Line::resting(Phase::Ceded { to: holder })
            }
            Phase::CededLook { to, .. } => Line::resting(Phase::Ceded { to }),
            Phase::Ceded { .. } | Phase::Lapsed => Line::resting(self.phase),
            Phase::Refetch => Line::resting(Phase::Lapsed),
            _ => Line::new(),
        }
    }

    /// Whether an upgrade of the copy may be in vain, and no message follows that says so: the
    /// writer in the word may have cancelled its intent, or have died before it could.
    pub(crate) const fn upgrade_may_be_in_vain(&self) -> bool {
        let has_copy = matches!(self.phase, Phase::Shared | Phase::Lapsed);
        has_copy && matches!(self.upgrade, UpgradeHope::Refused)
    }

    /// Whether the local copy may be read.
    pub const fn readable(&self) -> bool {
        if matches!(self.phase, Phase::UpgradeLook | Phase::Upgrade | Phase::UpgradeIntent { .. }) {
            return !self.lapsed;
        }
        matches!(
            self.phase,
            Phase::Shared
                | Phase::Modified
                | Phase::WaitSharers { .. }
                | Phase::CancelIntent
                | Phase::Downgrade { .. }
                | Phase::WriteBack
                | Phase::Inquire { of: Inquiry::Shared | Inquiry::Modified, .. }
                | Phase::Claim { .. }
                | Phase::Rejoin { .. }
        )
    }

    /// Whether the local copy may be written.
    pub const fn writable(&self) -> bool {
        matches!(
            self.phase,
            Phase::Modified | Phase::Inquire { of: Inquiry::Modified, .. } | Phase::Claim { .. }
        )
    }

    /// Whether the phase and the carried bits say all: the line is at rest and confirmed, and no
    /// request waits.
    pub fn is_plain(&self) -> bool {
        self.phase.at_rest()
            && self.grantor.is_none()
            && self.deferred.is_empty()
            && matches!(self.upgrade, UpgradeHope::Open)
    }

    /// Whether the current acquisition waits for latches at other nodes, or may come to that. A
    /// `nowait` caller may hold a latch that closes a circle of waits: it joins only as long as the
    /// line's home alone is waited for (`Phase::acquires`).
    pub const fn refuses_nowait(&self) -> bool {
        !self.nowait
            && (self.phase.acquires()
                || matches!(
                    self.phase,
                    Phase::ResetShared { .. }
                        | Phase::WaitRead { .. }
                        | Phase::WaitWrite { .. }
                        | Phase::WaitSharers { .. }
                ))
    }

    /// Whether the line waits for an answer of a node.
    pub(crate) fn waits_for(&self, node: ComputeId) -> bool {
        match self.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } => holder == node,
            Phase::WaitSharers { pending, .. } => pending.contains(node),
            _ => false,
        }
    }

    /// The fields that are not public, for the model's hash.
    #[cfg(test)]
    pub(in crate::coherence) const fn private_state(&self) -> u64 {
        self.nowait as u64
            | (self.upgrade as u64) << 1
            | (self.lapsed as u64) << 3
            | (self.ceded as u64) << 4
            | (self.leaving as u64) << 5
            | (self.hinted as u64) << 6
            | (self.retries as u64) << 7
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}
