//! The line of a link: what is to be sent, and who waits for what.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use super::slot::Slot;
use crate::error::FabricError;
use crate::verb::Chain;

/// What is to be sent and who waits for what.
pub(super) struct Line {
    /// Whole requests nobody has begun to send.
    pub(super) queue: Vec<u8>,
    pub(super) queued: usize,
    /// What a sender takes; with `Stuck`, what is left of it.
    pub(super) part: Vec<u8>,
    pub(super) sent: usize,
    pub(super) sending: Sending,
    /// A receipt has left something to be sent while a thread was at it.
    pub(super) unflushed: bool,
    /// The peer has accepted the connection.
    pub(super) accepted: bool,
    pub(super) waiting: VecDeque<Pending>,
    pub(super) next_sequence: u64,
    pub(super) interest: EventFlags,
    /// The queue pair is gone.
    pub(super) retired: bool,
    /// Why nothing goes any more.
    pub(super) end: Option<FabricError>,
}

impl Line {
    /// Of a link that is connecting, and says `hello` once it is connected.
    pub(super) fn new(hello: Vec<u8>) -> Self {
        Self {
            queue: Vec::new(),
            queued: 0,
            part: hello,
            sent: 0,
            sending: Sending::Stuck,
            unflushed: false,
            accepted: false,
            waiting: VecDeque::new(),
            next_sequence: 0,
            interest: EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP,
            retired: false,
            end: None,
        }
    }

    /// Whether `slot` is what the only chain fills.
    pub(super) fn is_only(&self, slot: &Arc<Slot>) -> bool {
        match self.waiting.front() {
            Some(first) => self.waiting.len() == 1 && Arc::ptr_eq(&first.slot, slot),
            None => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sending {
    Nobody,
    /// A thread is at it.
    Somebody,
    /// The driver is to go on when the socket takes more.
    Stuck,
}

/// A chain without its outcome.
pub(super) struct Pending {
    pub(super) chain: Chain,
    pub(super) sequence: u64,
    pub(super) slot: Arc<Slot>,
}
