//! The phases of a line: what a node has of it, and which operation or answer it waits for.

use crate::coherence::word::{ComputeId, LatchWord, NodeSet};

/// What one node has of one line, and which operation or answer the line waits for. Requests that
/// the node owes, and confirms that it is owed, are kept beside it in [`super::Line`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// The node has no copy and no bit in the word.
    Invalid,
    /// The chain `[FAA +bit; READ]` is outstanding.
    AcquireShared,
    /// `FAA -bit` is outstanding; when it has completed, the node asks `holder`.
    ResetShared {
        /// The node that held the line.
        holder: ComputeId,
    },
    /// The node has asked `holder` for a shared copy.
    WaitRead {
        /// The node that was asked.
        holder: ComputeId,
    },
    /// The node has a shared copy.
    Shared,
    /// `[CAS expected -> expected + bit; READ]` is outstanding. During a recovery a reader enters
    /// its bit by this swap, and not by an add.
    Join {
        /// The word without a holder that was found.
        expected: LatchWord,
    },
    /// `[CAS 0 -> me; READ]` is outstanding.
    AcquireExclusive,
    /// `[CAS expected -> intent; READ]` is outstanding.
    Intent {
        /// The word with readers only that was found.
        expected: LatchWord,
    },
    /// The node has won its intent, and has asked these readers to release.
    WaitSharers {
        /// The readers that have not answered yet.
        pending: NodeSet,
        /// A reader has answered Busy: the node gives its intent up once all have answered.
        refused: bool,
    },
    /// The node has asked `holder` to hand the line over.
    WaitWrite {
        /// The node that was asked.
        holder: ComputeId,
    },
    /// The node has evicted its shared copy and left its bit in the word. No node becomes holder
    /// before it has asked this one, so a new copy takes a `READ` only.
    Lapsed,
    /// From Lapsed: the `READ` is outstanding.
    Refetch,
    /// The node has given its shared copy up to the writer `to`, and its bit may still be in the
    /// word. The writer clears that bit, so this node leaves the word alone until the writer has
    /// answered it.
    Ceded {
        /// The writer that clears the bit.
        to: ComputeId,
    },
    /// A read of the word is outstanding, before the line is acquired.
    Look {
        /// The line is wanted for writing.
        exclusive: bool,
    },
    /// The writer `to`, which was to clear this node's bit, has answered that it does not hold the
    /// line. A read of the word is outstanding, which tells whether the bit is cleared: a node that
    /// has failed answers so too.
    CededLook {
        /// The writer that clears the bit.
        to: ComputeId,
        /// The line is wanted for writing.
        exclusive: bool,
    },
    /// A read of the word is outstanding, before the shared copy is upgraded.
    UpgradeLook,
    /// The node has the only copy.
    Modified,
    /// `CAS (0, my bit) -> me` is outstanding.
    Upgrade,
    /// `CAS expected -> intent` is outstanding.
    UpgradeIntent {
        /// The word with readers only that was found.
        expected: LatchWord,
    },
    /// The node has granted shared copies; `[write back; FAA]` is outstanding.
    Downgrade {
        /// The grantees.
        to: NodeSet,
    },
    /// The node has granted the line; `[write back]? [FAA]` is outstanding
    /// ([`super::Rules::home_first`]).
    HandOver {
        /// The grantee.
        to: ComputeId,
    },
    /// `FAA -bit` is outstanding.
    ReleaseShared,
    /// `[write back; FAA -me]` is outstanding.
    ReleaseModified,
    /// `[write back]` is outstanding; the copy stays the only one.
    WriteBack,
    /// `FAA (my bit - me)` is outstanding.
    CancelIntent,
    /// A node died that the line depended on, as [`Inquiry`] says. A read of the word is
    /// outstanding, which tells what the dead node had entered there.
    Inquire {
        /// What this node has of the line.
        of: Inquiry,
        /// The dead node.
        dead: ComputeId,
    },
    /// The dead node had granted this node the line, and the word still names the dead node.
    /// `CAS expected -> me in place of dead` is outstanding.
    Claim {
        /// The dead node.
        dead: ComputeId,
        /// The word that was found.
        expected: LatchWord,
    },
    /// The dead node had entered this node as holder, and its grant was lost with it.
    /// `CAS expected -> dead in place of me` is outstanding, so that the sweep finds the line.
    Disclaim {
        /// The dead node.
        dead: ComputeId,
        /// The word that was found.
        expected: LatchWord,
    },
    /// The dead node had granted this node a shared copy, and died before it had written the page
    /// home and entered this node's bit. `[write back; FAA +bit]` is outstanding: this node does
    /// both in its place.
    Rejoin {
        /// The dead node.
        dead: ComputeId,
    },
}

/// What a node has of a line whose word a dead node was changing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Inquiry {
    /// The node has no copy. The word may have its bit, which the dead node was to clear, or its
    /// name, if a grant was lost with the dead node.
    Ceded,
    /// The node has a shared copy that was granted and not confirmed.
    Shared,
    /// The node has the line itself, granted and not confirmed.
    Modified,
}

impl Phase {
    /// Whether a chain to the home is outstanding (rule R1).
    pub const fn operation_outstanding(self) -> bool {
        !matches!(
            self,
            Phase::Invalid
                | Phase::WaitRead { .. }
                | Phase::Shared
                | Phase::Lapsed
                | Phase::Ceded { .. }
                | Phase::WaitSharers { .. }
                | Phase::WaitWrite { .. }
                | Phase::Modified
        )
    }

    /// Whether the outstanding operation gives the line away, and its page home if it is dirty.
    pub(crate) const fn gives_page_away(self) -> bool {
        matches!(self, Phase::ReleaseModified | Phase::HandOver { .. })
    }

    /// Whether the outstanding operation is the holder's own, by which all changes get home.
    pub(crate) const fn brings_page_home(self) -> bool {
        self.gives_page_away() || matches!(self, Phase::WriteBack)
    }

    /// Whether the outstanding operation only reads the word.
    pub const fn looks(self) -> bool {
        matches!(
            self,
            Phase::Look { .. }
                | Phase::CededLook { .. }
                | Phase::UpgradeLook
                | Phase::Inquire { .. }
        )
    }

    /// Whether the outstanding operation may give the right to write without reading the page.
    pub(crate) const fn upgrades(self) -> bool {
        matches!(self, Phase::Upgrade | Phase::UpgradeIntent { .. })
    }

    /// Whether the outstanding operation acquires the line: the word cannot name this node then.
    pub(crate) const fn acquires(self) -> bool {
        matches!(
            self,
            Phase::Look { .. }
                | Phase::CededLook { .. }
                | Phase::UpgradeLook
                | Phase::AcquireShared
                | Phase::Join { .. }
                | Phase::AcquireExclusive
                | Phase::Intent { .. }
                | Phase::Upgrade
                | Phase::UpgradeIntent { .. }
        )
    }

    /// Whether only local events or requests can change it.
    pub const fn at_rest(self) -> bool {
        matches!(self, Phase::Shared | Phase::Modified) || self.without_copy()
    }

    /// Whether the line is at rest and the node has no copy.
    pub const fn without_copy(self) -> bool {
        matches!(self, Phase::Invalid | Phase::Lapsed | Phase::Ceded { .. })
    }
}
