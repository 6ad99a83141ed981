//! The state of a link that its lock guards: requests to be sent, and chains without an outcome.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use super::outcome::OutcomeCell;
use crate::error::FabricError;
use crate::verb::Chain;

/// See the module.
pub(crate) struct LinkState {
    /// Whole requests that no thread has begun to send.
    pub(crate) queue: Vec<u8>,
    /// How many of the `pending` chains are in `queue`.
    pub(crate) queued: usize,
    /// The buffer that a sender takes. While `Blocked`: the bytes whose sending was cut off.
    pub(crate) sending: Vec<u8>,
    /// How many bytes of `sending` the socket has taken.
    pub(crate) sent: usize,
    pub(crate) sender: Sender,
    /// A receive left bytes to be sent while a thread was sending.
    pub(crate) unflushed: bool,
    /// The peer has accepted the connection.
    pub(crate) accepted: bool,
    /// Chains without an outcome, in posting order.
    pub(crate) pending: VecDeque<PendingChain>,
    pub(crate) next_sequence: u64,
    pub(crate) interest: EventFlags,
    /// The queue pair was dropped.
    pub(crate) retired: bool,
    /// Why the link ended.
    pub(crate) end: Option<FabricError>,
}

impl LinkState {
    /// The state of a link that is connecting, and sends `hello` once it is connected.
    pub(crate) fn new(hello: Vec<u8>) -> Self {
        Self {
            queue: Vec::new(),
            queued: 0,
            sending: hello,
            sent: 0,
            sender: Sender::Blocked,
            unflushed: false,
            accepted: false,
            pending: VecDeque::new(),
            next_sequence: 0,
            interest: EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP,
            retired: false,
            end: None,
        }
    }

    /// Whether the only pending chain of the link fills `cell`.
    pub(crate) fn is_only(&self, cell: &Arc<OutcomeCell>) -> bool {
        match self.pending.front() {
            Some(first) => self.pending.len() == 1 && Arc::ptr_eq(&first.cell, cell),
            None => false,
        }
    }
}

/// Which thread sends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// No thread.
    Idle,
    /// A thread is sending.
    Active,
    /// The socket took no more. The driver continues when it does.
    Blocked,
}

/// A chain without an outcome.
pub(crate) struct PendingChain {
    pub(crate) chain: Chain,
    pub(crate) sequence: u64,
    pub(crate) cell: Arc<OutcomeCell>,
}
