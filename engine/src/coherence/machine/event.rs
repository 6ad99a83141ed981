//! What happens to a line, and what its driver must do then.

use smallvec::SmallVec;

use super::message::Message;
use super::phase::Phase;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord};

/// Use of the local copy when an event is taken. The driver admits no new users during a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LocalUse {
    /// The local latch is free.
    Idle,
    /// Shared holders only.
    Readers,
    /// An exclusive holder.
    Writer,
    /// The latch is free, and a local reader is next, before other nodes.
    ReaderNext,
    /// The latch is free, and a local writer is next, before other nodes.
    WriterNext,
}

/// What happens to a line.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Event {
    /// A local access needs more than the line has.
    Want {
        /// The access writes.
        exclusive: bool,
        /// The caller takes Busy rather than a wait for latches at other nodes.
        nowait: bool,
        /// Read the word before the atomic that acquires the line, because another node probably
        /// holds it. A wrong guess costs a round trip, a right one saves an atomic or two.
        look: bool,
    },
    /// The buffer manager wants the frame.
    Evict,
    /// The changes are to go home, and the copy is to stay.
    WriteBack,
    /// The node leaves, or takes its bit out of the word.
    Leave,
    /// The outstanding latch operation completed; its atomic found `old`.
    Completed {
        /// Value of the word before the operation.
        old: LatchWord,
    },
    /// A message came.
    Received {
        /// The sender.
        from: ComputeId,
        /// The message.
        message: Message,
    },
    /// The local latch was let go while requests were deferred.
    LocalFree,
    /// A node is dead and fenced, and its mail has been handled; [`super::Rules::dead`] contains it
    /// from now on.
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

/// The access of an operation to the latch word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WordAccess {
    /// An atomic.
    Change(Atomic),
    /// A read.
    Look,
    /// None.
    Skip,
}

/// One chain to the line's home: `[write the dirty page]? [atomic or look]? [read the page]?`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LatchOperation {
    /// Write the local page back first, if it is dirty.
    pub write_back: bool,
    /// The access to the latch word.
    pub word: WordAccess,
    /// Read the page into the local copy afterwards.
    pub read: bool,
}

/// What the driver must do, in order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Post the chain; report it by [`Event::Completed`].
    Post(LatchOperation),
    /// Send a message. Grants take the page, as it is now, with them.
    Send {
        /// The recipient.
        to: ComputeId,
        /// The message.
        message: Message,
    },
    /// The state changed: local waiters try again.
    Wake,
    /// The attempt of the `nowait` callers ended in Busy.
    Refuse,
    /// The word names a dead node: local waiters try again when its recovery is over.
    BackOff {
        /// The node.
        dead: ComputeId,
    },
}

/// Actions of one step.
pub type Actions = SmallVec<[Action; 4]>;

/// An event that the rules exclude: the peer or the word is damaged.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("coherence protocol violated: {event:?} in {phase:?}")]
pub struct Violation {
    /// The phase of the line.
    pub phase: Phase,
    /// The event.
    pub event: Event,
}
