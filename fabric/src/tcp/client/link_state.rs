//! The state of a link that its lock guards: the present connection, requests to be sent, and
//! chains without an outcome.
//!
//! ```text
//! pending, in posting order:
//!   executed or sent          encoded in `queue`      not encoded
//!   ^ front                   ^ encoded - queued      ^ encoded
//! ```
//! Chains are encoded while the connection is accepted and the window has room. They keep their
//! buffers until their outcome is there, so they can be encoded again for another connection.

use std::collections::VecDeque;
use std::sync::Arc;

use rustix::event::epoll::EventFlags;

use super::outcome::OutcomeCell;
use crate::error::FabricError;
use crate::tcp::transport::pipe::Pipe;
use crate::tcp::wire::error::WireError;
use crate::tcp::wire::frames;
use crate::tcp::wire::hello::{Hello, SessionHello};
use crate::tcp::wire::limits::{WINDOW_BYTES, WINDOW_CHAINS};
use crate::verb::Chain;

/// The events of a new connection that the driver waits for.
pub(crate) const FIRST_INTEREST: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP);

/// See the module.
pub(crate) struct LinkState {
    /// The present connection, or the last one.
    pub(crate) pipe: Arc<Pipe>,
    /// Number of the present connection, or the last one, from 1 on.
    pub(crate) connection: u32,
    pub(crate) stage: Stage,
    /// Connections in a row that the peer did not accept.
    pub(crate) failures: u32,
    /// The peer has accepted a connection, and so knows the session.
    pub(crate) is_known: bool,
    /// What the link says of itself when it connects.
    hello: Hello,
    /// Whole requests that no thread has begun to send.
    pub(crate) queue: Vec<u8>,
    /// How many of the encoded chains are in `queue`.
    pub(crate) queued: usize,
    /// The buffer that a sender takes. While `Blocked`: the bytes whose sending was cut off.
    pub(crate) sending: Vec<u8>,
    /// How many bytes of `sending` the socket has taken.
    pub(crate) sent: usize,
    pub(crate) sender: Sender,
    /// A receive left bytes to be sent while a thread was sending.
    pub(crate) unflushed: bool,
    /// Chains without an outcome, in posting order.
    pending: VecDeque<PendingChain>,
    /// How many of `pending` this connection has executed, sent or queued.
    encoded: usize,
    /// Bytes that these count in the window.
    window_bytes: usize,
    next_sequence: u64,
    /// One more than the greatest sequence that was ever encoded.
    encoded_ever: u64,
    pub(crate) interest: EventFlags,
    /// The queue pair was dropped.
    pub(crate) retired: bool,
    /// Why the link ended.
    pub(crate) end: Option<FabricError>,
}

/// How far the present connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer has not answered the hello.
    Connecting,
    Accepted,
    /// The connection is closed. The driver makes another.
    Broken,
}

impl LinkState {
    /// The state of a link that is connecting, and sends `hello` once it is connected.
    pub(crate) fn new(pipe: Arc<Pipe>, hello: Hello) -> Self {
        Self {
            pipe,
            connection: hello.session.attempt,
            stage: Stage::Connecting,
            failures: 0,
            is_known: false,
            hello,
            queue: Vec::new(),
            queued: 0,
            sending: hello.encode(),
            sent: 0,
            sender: Sender::Blocked,
            unflushed: false,
            pending: VecDeque::new(),
            encoded: 0,
            window_bytes: 0,
            next_sequence: 0,
            encoded_ever: 0,
            interest: FIRST_INTEREST,
            retired: false,
            end: None,
        }
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.stage == Stage::Accepted
    }

    /// Whether there is a connection, also one that the peer has not accepted yet.
    pub(crate) fn is_connected(&self) -> bool {
        self.stage != Stage::Broken && self.end.is_none()
    }

    /// Whether no request of this connection is sent and unanswered.
    pub(crate) fn is_quiet(&self) -> bool {
        self.encoded == self.queued
    }

    pub(crate) fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Whether the only pending chain of the link fills `cell`.
    pub(crate) fn is_only(&self, cell: &Arc<OutcomeCell>) -> bool {
        match self.pending.front() {
            Some(first) => self.pending.len() == 1 && Arc::ptr_eq(&first.cell, cell),
            None => false,
        }
    }

    /// Adds a chain that was posted.
    pub(crate) fn push(&mut self, chain: Chain) -> Arc<OutcomeCell> {
        let cell = Arc::new(OutcomeCell::default());
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.pending.push_back(PendingChain { chain, sequence, cell: Arc::clone(&cell) });
        self.encode();
        cell
    }

    /// Queues the requests of the chains for which the window has room.
    pub(crate) fn encode(&mut self) {
        if !self.is_accepted() {
            return;
        }
        while self.encoded < WINDOW_CHAINS && self.window_bytes < WINDOW_BYTES {
            let Some(next) = self.pending.get(self.encoded) else { return };
            // All chains before it in `pending` are unanswered. The bound is below 2^16.
            let unanswered = self.encoded as u16;
            frames::encode_request(&mut self.queue, next.sequence, unanswered, &next.chain);
            self.window_bytes += frames::window_bytes(&next.chain);
            self.encoded_ever = self.encoded_ever.max(next.sequence + 1);
            self.encoded += 1;
            self.queued += 1;
        }
    }

    /// The chain whose response is due next.
    pub(crate) fn due(&self) -> Option<&PendingChain> {
        self.pending.front().filter(|_| !self.is_quiet())
    }

    /// Takes the chain whose response has come.
    pub(crate) fn take_due(&mut self) -> Option<PendingChain> {
        let done = self.pending.pop_front()?;
        self.encoded -= 1;
        self.window_bytes -= frames::window_bytes(&done.chain);
        Some(done)
    }

    /// Takes all chains, as the link ends.
    pub(crate) fn take_all(&mut self) -> VecDeque<PendingChain> {
        (self.queue, self.sending) = (Vec::new(), Vec::new());
        (self.queued, self.encoded, self.window_bytes) = (0, 0, 0);
        std::mem::take(&mut self.pending)
    }

    /// The responses that have come.
    fn received(&self) -> u64 {
        self.pending.front().map_or(self.next_sequence, |first| first.sequence)
    }

    /// The connection is closed: nothing of it counts but the responses that have come.
    pub(crate) fn break_off(&mut self) {
        self.stage = Stage::Broken;
        self.failures = self.failures.saturating_add(1);
        self.queue.clear();
        self.sending.clear();
        (self.queued, self.encoded, self.window_bytes, self.sent) = (0, 0, 0, 0);
        (self.sender, self.unflushed) = (Sender::Idle, false);
    }

    /// Another connection begins.
    pub(crate) fn connect(&mut self, pipe: Arc<Pipe>) {
        assert!(self.stage == Stage::Broken, "the connection before it is over");
        self.pipe = pipe;
        self.connection = self.connection.saturating_add(1);
        self.stage = Stage::Connecting;
        self.interest = FIRST_INTEREST;
        self.sender = Sender::Blocked;
        let (received, resumes) = (self.received(), self.is_known);
        let received = if resumes { received } else { 0 };
        let SessionHello { id, .. } = self.hello.session;
        let session = SessionHello { id, received, attempt: self.connection, resumes };
        self.sending = Hello { session, ..self.hello }.encode();
    }

    /// The peer accepts the connection, and has executed this many chains of the session.
    pub(crate) fn accept(&mut self, executed: u64) -> Result<(), WireError> {
        let received = self.received();
        let sent = self.encoded_ever;
        // Responses come for the chains that were executed and not answered yet.
        let due = executed.checked_sub(received).filter(|_| executed <= sent.max(received));
        let Some(due) = due else { return Err(WireError::Executed { executed, sent }) };
        self.stage = Stage::Accepted;
        (self.is_known, self.failures) = (true, 0);
        self.encoded = usize::try_from(due).unwrap_or(usize::MAX).min(self.pending.len());
        let unanswered = self.pending.iter().take(self.encoded);
        self.window_bytes = unanswered.map(|pending| frames::window_bytes(&pending.chain)).sum();
        Ok(())
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
