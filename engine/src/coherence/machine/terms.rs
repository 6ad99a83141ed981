//! The words of the protocol: what lines are told, what they ask for, and where they can stand.

use smallvec::SmallVec;

use super::super::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

/// What a requester wants of the node it asks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum RequestKind {
    /// To read: the holder keeps a shared copy.
    Read,
    /// To write: the holder lets go.
    Write,
    /// To write, as the holder already: the reader lets go.
    Release,
}

/// A request from one compute node to another about one line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Request {
    /// What is wanted.
    pub kind: RequestKind,
    /// Answer Busy rather than wait for a local latch.
    pub nowait: bool,
    /// How often the requester has tried in vain; higher goes first among deferred requests.
    pub priority: u8,
}

/// A message between two compute nodes about one line. Grants carry the page beside it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Message {
    /// A question; gets exactly one of the answers below.
    Request(Request),
    /// Answer to Read: a shared copy.
    GrantShared,
    /// Answer to Write: the line itself.
    GrantModified,
    /// Answer to Release: the reader's bit is gone from the word.
    Released,
    /// Not the holder, or not a reader (any more).
    NotHeld {
        /// The node the line was last handed to, if that is known.
        holder: Option<ComputeId>,
    },
    /// Locally latched, and the request said `nowait`.
    Busy,
    /// Follows a grant: the grantor's change of the word has completed.
    Confirm,
}

/// Use of the local copy at the moment of an event. The driver keeps new users out during a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalUse {
    /// Nobody holds the local latch.
    Idle,
    /// Shared holders only.
    Readers,
    /// An exclusive holder.
    Writer,
    /// Nobody yet, but a local reader is next and goes before other nodes.
    ReaderNext,
    /// Nobody yet, but a local writer is next and goes before other nodes.
    WriterNext,
}

/// What happens to a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A local access cannot be served by the present state.
    Want {
        /// To write, not only to read.
        exclusive: bool,
        /// The caller rather has Busy than wait for latches elsewhere.
        nowait: bool,
        /// Look at the word before the atomic that claims the line: somebody is probably in the
        /// way. A guess: the wrong one costs a round trip, the right one saves an atomic or two.
        look: bool,
    },
    /// The buffer manager wants the frame.
    Evict,
    /// What was changed is to be home, and the copy to stay.
    WriteBack,
    /// The node leaves, or wants its bit out of the word.
    Leave,
    /// The outstanding latch operation completed; its atomic found `old`.
    Completed {
        /// Value of the word before the operation.
        old: LatchWord,
    },
    /// A message came.
    Received {
        /// Who sent it.
        from: ComputeId,
        /// What it says.
        message: Message,
    },
    /// The local latch was let go while requests were deferred.
    LocalFree,
    /// A node is dead, fenced, and what it had sent has been received; [`Rules::dead`] has it from
    /// now on.
    Lost {
        /// The node.
        node: ComputeId,
    },
}

/// The atomic of a latch operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Atomic {
    /// Fetch-and-add.
    Add(LatchDelta),
    /// Compare-and-swap.
    Swap {
        /// The value that must be found.
        expected: LatchWord,
        /// The value then written.
        desired: LatchWord,
    },
}

/// What an operation does to the latch word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WordAccess {
    /// Changes it.
    Change(Atomic),
    /// Reads it.
    Look,
    /// Leaves it alone.
    Skip,
}

/// One chain to the line's home: `[write the dirty page]? [atomic or look]? [read the page]?`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LatchOperation {
    /// Write the local page back first, if it is dirty.
    pub write_back: bool,
    /// What is done to the latch word.
    pub word: WordAccess,
    /// Read the page into the local copy after.
    pub read: bool,
}

/// What the driver must do, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Post the chain; report it by [`Event::Completed`].
    Post(LatchOperation),
    /// Send a message. Grants take the page, as it is now, with them.
    Send {
        /// To whom.
        to: ComputeId,
        /// What.
        message: Message,
    },
    /// The state changed: local waiters look again.
    Wake,
    /// The attempt of the `nowait` callers ended in Busy.
    Refuse,
    /// The word names a dead node: local waiters look again when its recovery is over.
    BackOff {
        /// The node.
        dead: ComputeId,
    },
}

/// Actions of one step.
pub type Actions = SmallVec<[Action; 4]>;

/// State of a line at a node, but for what it owes and is owed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    /// No copy.
    Invalid,
    /// `[FAA +bit; READ]` outstanding.
    AcquireShared,
    /// `FAA -bit` outstanding, after which `holder` is asked.
    ResetShared {
        /// Who held the line.
        holder: ComputeId,
    },
    /// Asked `holder` for a shared copy.
    WaitRead {
        /// Who was asked.
        holder: ComputeId,
    },
    /// A shared copy.
    Shared,
    /// `[CAS expected -> expected + bit; READ]` outstanding: a reader's way in while the recovery
    /// from a death is under way.
    Join {
        /// The word without a holder that was found.
        expected: LatchWord,
    },
    /// `[CAS 0 -> me; READ]` outstanding.
    AcquireExclusive,
    /// `[CAS expected -> intent; READ]` outstanding.
    Intent {
        /// The word with only readers that was found.
        expected: LatchWord,
    },
    /// Intent won; these readers were asked to release.
    WaitSharers {
        /// Who has not answered yet.
        pending: NodeSet,
        /// One has answered Busy: the intent is given up once all have answered.
        refused: bool,
    },
    /// Asked `holder` to hand over.
    WaitWrite {
        /// Who was asked.
        holder: ComputeId,
    },
    /// No copy, but this node's bit is still in the word: nobody can become holder before it has
    /// been asked, so a reader needs the page only.
    Lapsed,
    /// From Lapsed: `READ` outstanding.
    Refetch,
    /// No copy. This node's bit may still be in the word, for `to` to clear, who has asked for the
    /// copy: before `to` has answered, this node has nothing to do with the word.
    Ceded {
        /// The writer that has the bit in its care.
        to: ComputeId,
    },
    /// A look at the word outstanding, before the line is acquired.
    Look {
        /// To write, not only to read.
        exclusive: bool,
    },
    /// A look at the word outstanding, before the shared copy is upgraded.
    UpgradeLook,
    /// The only copy.
    Modified,
    /// `CAS (0, my bit) -> me` outstanding.
    Upgrade,
    /// `CAS expected -> intent` outstanding.
    UpgradeIntent {
        /// The word with only readers that was found.
        expected: LatchWord,
    },
    /// Granted shared copies; `[write back; FAA]` outstanding.
    Downgrade {
        /// To whom.
        to: NodeSet,
    },
    /// Granted the line; `[write back]? [FAA]` outstanding ([`Rules::home_first`]).
    HandOver {
        /// To whom.
        to: ComputeId,
    },
    /// `FAA -bit` outstanding.
    ReleaseShared,
    /// `[write back; FAA -me]` outstanding.
    ReleaseModified,
    /// `[write back]` outstanding, of a copy that stays the only one.
    WriteBack,
    /// `FAA (my bit - me)` outstanding.
    CancelIntent,
    /// A look at the word outstanding, for what `dead` has left of this line.
    Inquire {
        /// What this node has of it.
        of: Inquiry,
        /// The dead node.
        dead: ComputeId,
    },
    /// `CAS expected -> me in place of dead` outstanding, for a line that the dead node had
    /// granted.
    Claim {
        /// The dead node.
        dead: ComputeId,
        /// The word that was found.
        expected: LatchWord,
    },
    /// `CAS expected -> dead in place of me` outstanding, for a line whose grant was lost with the
    /// dead node.
    Disclaim {
        /// The dead node.
        dead: ComputeId,
        /// The word that was found.
        expected: LatchWord,
    },
    /// `[write back; FAA +bit]` outstanding, for a copy whose grantor died before it had done both.
    Rejoin,
}

/// What a node has of a line whose fate a dead one decided.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Inquiry {
    /// No copy, but perhaps a bit in the word that was in the dead node's care, or a grant that was
    /// lost with it.
    Ceded,
    /// A shared copy, granted and not confirmed.
    Shared,
    /// The line itself, granted and not confirmed.
    Modified,
}

impl Phase {
    /// Whether a chain to home is under way (rule R1).
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

    /// Whether a look at the word is under way.
    pub const fn looks(self) -> bool {
        matches!(self, Phase::Look { .. } | Phase::UpgradeLook | Phase::Inquire { .. })
    }

    /// What follows may be the right to write, by an operation that does not read the page.
    pub(crate) const fn upgrades(self) -> bool {
        matches!(self, Phase::Upgrade | Phase::UpgradeIntent { .. })
    }

    /// The word cannot name this node while one of these is outstanding.
    pub(super) const fn acquires(self) -> bool {
        matches!(
            self,
            Phase::Look { .. }
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

    /// At rest, and the page is not here.
    pub const fn without_copy(self) -> bool {
        matches!(self, Phase::Invalid | Phase::Lapsed | Phase::Ceded { .. })
    }
}

/// A request waiting for its answer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Deferred {
    /// Who asked.
    pub from: ComputeId,
    /// What.
    pub request: Request,
}

/// An event that the rules exclude: the peer or the word is damaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("coherence protocol violated: {event:?} in {phase:?}")]
pub struct Violation {
    /// The state it met.
    pub phase: Phase,
    /// The event.
    pub event: Event,
}

/// Bounds, and the switches by which test builds bring the published protocol back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rules {
    /// Cap of a request's priority.
    pub max_priority: u8,
    /// Ask the node a `NotHeld` names before going back to the word.
    pub follow_hints: bool,
    /// Ask whoever is in the way; else try the word again and again, as the baseline without a
    /// cache does, whose driver gives every latch up when the last local user has.
    pub ask_holders: bool,
    /// Leave this node's bit in the word when a shared copy is evicted.
    pub sticky_bits: bool,
    /// A line that is handed over goes home with that, so that home lacks nothing of its confirmed
    /// holder's page but what that one has changed: its log says the rest.
    pub home_first: bool,
    /// Nodes that were lost and are perhaps in latch words still: they are not asked.
    pub dead: NodeSet,
    /// A sweep is to judge by readers' bits whether there is a copy of a line that a dead node
    /// holds: no bit is put into a word but where it says so (`death`).
    pub recovering: bool,
    /// R5's Confirm; the published protocol has none.
    #[cfg(any(test, feature = "planted"))]
    pub confirm: bool,
    /// R2's wait for the reset; the published protocol asks at once.
    #[cfg(any(test, feature = "planted"))]
    pub wait_for_reset: bool,
    /// A holder leaves the bit of a dead node, that it was to clear, to the sweep.
    #[cfg(any(test, feature = "planted"))]
    pub leave_dead_bits: bool,
}

impl Rules {
    /// The rules as designed.
    pub const DESIGNED: Rules = Rules {
        max_priority: 15,
        follow_hints: true,
        ask_holders: true,
        sticky_bits: true,
        home_first: false,
        dead: NodeSet::EMPTY,
        recovering: false,
        #[cfg(any(test, feature = "planted"))]
        confirm: true,
        #[cfg(any(test, feature = "planted"))]
        wait_for_reset: true,
        #[cfg(any(test, feature = "planted"))]
        leave_dead_bits: true,
    };

    pub(super) const fn confirms(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.confirm;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }

    pub(super) const fn waits_for_reset(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.wait_for_reset;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }

    pub(super) const fn leaves_dead_bits(&self) -> bool {
        #[cfg(any(test, feature = "planted"))]
        return self.leave_dead_bits;
        #[cfg(not(any(test, feature = "planted")))]
        return true;
    }
}
