//! A link: the connecting side of one session, which is one queue pair over one connection at a
//! time.
//!
//! # Sending
//! Posts append requests to a queue. A post that finds no other request under way sends at once.
//! Later posts leave the sending to the first of: a poll of their completion, its drop, a full
//! queue, the next response. So many chains leave with one system call when many are posted, and a
//! chain that is alone leaves at once. One thread at a time sends, without the lock. The driver
//! sends what the socket does not take.
//!
//! # Receiving
//! A thread that wants an outcome receives for all: a polling thread, or the *driver*, a thread of
//! the node. The driver is told of readiness only while the link is `armed`, that is while a
//! completion waits that no thread polls. Otherwise each response would wake the driver besides the
//! thread that polls for it.
//!
//! ```text
//! armed by     a registered waker, a post behind another, a completion dropped before its outcome
//! disarmed by  a poll that spins or blocks for the only chain of the link, and a caller that
//!              asks for an outcome without ever having polled
//! ```
//! # Connections
//! A connection that is closed or broken is replaced by another ([`super::reconnect`]); the chains
//! wait meanwhile. Threads that send or receive over a connection take its number along, so that
//! they change nothing of a later one.
//!
//! Lock order: `inbox`, then `state`, then an outcome cell. Wakers are called, and what callers own
//! is dropped, without any of them.

use std::mem;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::link_failure::{LinkFailure, check_role};
use super::link_state::{LinkState, PendingChain, Sender, Stage};
use super::outcome::{Completed, OutcomeCell, wake};
use super::reactor::{Reactor, wait_readable};
use crate::error::FabricError;
use crate::id::PeerId;
use crate::tcp::transport::pipe::{Pipe, Received};
use crate::tcp::wire::error::WireError;
use crate::tcp::wire::frame_buffer::FrameBuffer;
use crate::tcp::wire::frames::{self, Decoded};
use crate::tcp::wire::hello::{self, Hello};
use crate::tls_error::TlsError;
use crate::verb::{Chain, ChainError};

/// A queue of this length is sent at once.
const FULL_QUEUE_BYTES: usize = 16 << 10;
/// Capacity that a send buffer keeps.
const KEPT_QUEUE_BYTES: usize = 256 << 10;
/// Most sends that one thread makes before it leaves the rest to the driver.
const MAX_SENDS: usize = 16;
/// Most receives that one thread makes before it hands out outcomes.
const MAX_RECEIVES: usize = 16;

pub(crate) struct Link {
    token: u64,
    peer: PeerId,
    /// Where the peer listens.
    addr: SocketAddr,
    pub(super) reactor: Arc<Reactor>,
    /// Where the link is listed until it ends.
    pub(super) table: Weak<dyn LinkTable>,
    pub(super) state: Mutex<LinkState>,
    pub(super) inbox: Mutex<Inbox>,
    /// Counts signs of life of the peer.
    signs: AtomicU64,
    /// Is told when the link has ended.
    watcher: Mutex<Option<EndWatcher>>,
}

/// Is told why a link has ended.
pub(crate) type EndWatcher = Box<dyn FnOnce(FabricError) + Send>;

/// What is received, and the connection it comes from.
pub(super) struct Inbox {
    pub(super) frames: FrameBuffer,
    pub(super) pipe: Arc<Pipe>,
    pub(super) connection: u32,
}

/// The list of a node's links.
pub(crate) trait LinkTable: Send + Sync {
    /// Removes a link that has ended, perhaps only because its queue pair was dropped.
    fn remove(&self, token: u64, was_dropped: bool);

    /// Notes that the link ends because its peer is silent.
    #[cfg(feature = "verbs")]
    fn note_silent(&self, token: u64, peer: PeerId);

    /// Has a link connect again after a pause.
    fn reconnect(&self, token: u64, pause: Duration);
}

impl Link {
    /// A link over a socket that is connecting. It sends `hello` once it is connected.
    pub(crate) fn new(
        token: u64,
        (peer, addr): (PeerId, SocketAddr),
        pipe: Arc<Pipe>,
        hello: Hello,
        reactor: Arc<Reactor>,
        table: Weak<dyn LinkTable>,
    ) -> Self {
        let state = Mutex::new(LinkState::new(Arc::clone(&pipe), hello));
        let connection = hello.session.attempt;
        let inbox = Mutex::new(Inbox { frames: FrameBuffer::new(), pipe, connection });
        let (signs, watcher) = (AtomicU64::new(0), Mutex::new(None));
        Self { token, peer, addr, reactor, table, state, inbox, signs, watcher }
    }

    pub(crate) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(crate) fn token(&self) -> u64 {
        self.token
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Queues a chain, and sends it if no other thread or event will.
    pub(crate) fn post(&self, chain: Chain) -> Result<Arc<OutcomeCell>, Box<ChainError>> {
        let refuse = |chain, error| Err(Box::new(ChainError { chain, executed: 0, error }));
        if let Err(error) = frames::check_chain(&chain) {
            return refuse(chain, error);
        }
        let mut state = self.state.lock();
        if let Some(error) = &state.end {
            let error = error.clone();
            drop(state);
            return refuse(chain, error);
        }
        let is_first = state.is_quiet();
        let cell = state.push(chain);
        self.reactor.chain_begins();
        if state.pending_count() > 1 {
            // The first of them may have no poller.
            self.set_armed(&mut state, true);
        }
        if is_first || state.queue.len() >= FULL_QUEUE_BYTES {
            self.send_queue(state);
        }
        Ok(cell)
    }

    /// Sends the queue, unless another thread is sending.
    pub(crate) fn flush(&self) {
        self.send_queue(self.state.lock());
    }

    /// Sends the queue and receives, for a caller that will ask again or arm the link. If the only
    /// pending chain of the link fills `cell`, the driver is not told of readiness meanwhile.
    pub(crate) fn ask(&self, cell: &Arc<OutcomeCell>) {
        let mut state = self.state.lock();
        if state.is_only(cell) {
            self.set_armed(&mut state, false);
        }
        self.send_queue(state);
        self.drive();
    }

    /// Sends the bytes that the socket did not take.
    pub(crate) fn continue_sending(&self) {
        let mut state = self.state.lock();
        if state.sender != Sender::Blocked || state.end.is_some() {
            return;
        }
        state.sender = Sender::Active;
        let bytes = mem::take(&mut state.sending);
        let sent = mem::take(&mut state.sent);
        self.set_interest_out(&mut state, false);
        // The socket takes more again, so the peer reads.
        self.signs.fetch_add(1, Ordering::Relaxed);
        if let Some(state) = self.send_rest(state, bytes, sent) {
            self.send_queue(state);
        }
    }

    fn send_queue<'l>(&'l self, mut state: MutexGuard<'l, LinkState>) {
        for _ in 0..MAX_SENDS {
            if state.sender != Sender::Idle || !state.is_accepted() || state.end.is_some() {
                return;
            }
            // Responses that have come may have made room in the window.
            state.encode();
            if state.queue.is_empty() {
                return;
            }
            state.sender = Sender::Active;
            state.queued = 0;
            let spare = mem::take(&mut state.sending);
            let bytes = mem::replace(&mut state.queue, spare);
            match self.send_rest(state, bytes, 0) {
                Some(locked) => state = locked,
                None => return,
            }
        }
        state.sender = Sender::Blocked;
        self.set_interest_out(&mut state, true);
    }

    /// Sends `bytes` from `sent` on. Returns the locked state if all of it was sent.
    fn send_rest<'l>(
        &'l self,
        state: MutexGuard<'l, LinkState>,
        mut bytes: Vec<u8>,
        mut sent: usize,
    ) -> Option<MutexGuard<'l, LinkState>> {
        let (pipe, connection) = (Arc::clone(&state.pipe), state.connection);
        drop(state);
        let mut failure = loop {
            #[expect(clippy::expect_used, reason = "`sent` counts bytes of `bytes`")]
            let rest = bytes.get(sent..).expect("no more bytes are sent than there are");
            let done = rest.is_empty();
            match if done { pipe.flush().map(|()| 0) } else { pipe.send(rest) } {
                Ok(_) if done => break None,
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(error) => break Some(error),
            }
        };
        let mut state = self.state.lock();
        if state.connection != connection || state.sender != Sender::Active {
            // The connection is over. What it had to send is encoded again for the next one.
            return None;
        }
        if mem::take(&mut state.unflushed) {
            failure = failure.or(Some(Errno::AGAIN));
        }
        match failure {
            None => {
                bytes.clear();
                bytes.shrink_to(KEPT_QUEUE_BYTES);
                state.sending = bytes;
                state.sender = Sender::Idle;
                Some(state)
            }
            Some(Errno::AGAIN) => {
                (state.sending, state.sent) = (bytes, sent);
                state.sender = Sender::Blocked;
                self.set_interest_out(&mut state, true);
                None
            }
            Some(error) => {
                drop(state);
                self.fail(connection, LinkFailure::of_send(error));
                None
            }
        }
    }

    /// Receives, unless another thread is receiving.
    pub(crate) fn drive(&self) {
        if let Some(inbox) = self.inbox.try_lock() {
            self.receive(inbox);
        }
    }

    /// Receives, after a thread that is receiving.
    pub(crate) fn drive_after_others(&self) {
        self.receive(self.inbox.lock());
    }

    fn receive(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let mut completed = Completed::new();
        let connection = inbox.connection;
        let received = self.receive_into(&mut inbox, &mut completed);
        drop(inbox);
        match received {
            Ok(true) => self.flush_or_end(),
            Ok(false) => {}
            Err(failure) => self.fail(connection, failure),
        }
        wake(completed);
    }

    /// Receives and fills cells. Returns whether any bytes came.
    fn receive_into(
        &self,
        inbox: &mut Inbox,
        completed: &mut Completed,
    ) -> Result<bool, LinkFailure> {
        let Inbox { frames: inbox, pipe, connection } = inbox;
        let mut came = false;
        let mut wanted = frames::HEADER_BYTES;
        for received in 0.. {
            // No event would tell of bytes that TLS holds back.
            if received >= MAX_RECEIVES && !pipe.holds_back() {
                break;
            }
            let room = inbox.room(wanted);
            let (room_bytes, result) = (room.len(), pipe.receive(room));
            if pipe.wants_flush() {
                self.flush_later(*connection);
            }
            let count = match result? {
                Received::Bytes(count) => count,
                Received::Part { is_trusted } => {
                    // Only an established connection counts: a handshake may trickle in for ever.
                    self.signs.fetch_add(u64::from(is_trusted), Ordering::Relaxed);
                    break;
                }
                Received::Nothing => break,
            };
            came = true;
            inbox.received(count);
            self.signs.fetch_add(1, Ordering::Relaxed);
            wanted = self.deliver(inbox, *connection, completed)?;
            if count < room_bytes {
                break;
            }
        }
        Ok(came)
    }

    /// Lets the driver send the bytes that the socket did not take.
    fn flush_later(&self, connection: u32) {
        let mut state = self.state.lock();
        if state.connection != connection {
            return;
        }
        match state.sender {
            Sender::Idle => {
                state.sender = Sender::Blocked;
                self.set_interest_out(&mut state, true);
            }
            Sender::Active => state.unflushed = true,
            Sender::Blocked => {}
        }
    }

    /// Fills the cells of the whole responses in the inbox. Returns the length of the response that
    /// is still partial.
    fn deliver(
        &self,
        inbox: &mut FrameBuffer,
        connection: u32,
        completed: &mut Completed,
    ) -> Result<usize, LinkFailure> {
        let mut state = self.state.lock();
        if state.end.is_some() || state.connection != connection || state.stage == Stage::Broken {
            return Err(LinkFailure::Closed);
        }
        if !state.is_accepted() {
            if let Some(why) = TlsError::in_reply(inbox.data()) {
                return Err(LinkFailure::Tls(why));
            }
            match hello::decode_reply(inbox.data())? {
                None => return Ok(hello::REPLY_BYTES),
                Some(Err(why)) => return Err(LinkFailure::Refused(why)),
                Some(Ok(executed)) => {
                    check_role(self.reactor.config().security.as_deref(), &state.pipe, self.peer)?;
                    state.accept(executed)?;
                }
            }
            inbox.take(hello::REPLY_BYTES);
        }
        loop {
            let Some(first) = state.due() else {
                let nothing = inbox.data().is_empty();
                return if nothing {
                    Ok(frames::HEADER_BYTES)
                } else {
                    Err(WireError::Unasked.into())
                };
            };
            let limit = frames::max_response_bytes(&first.chain);
            let (bytes, response) = match frames::decode_response(inbox.data(), limit)? {
                Decoded::Partial(bytes) => return Ok(bytes),
                Decoded::Whole(bytes, response) => (bytes, response),
            };
            if response.sequence != first.sequence {
                let (found, expected) = (response.sequence, first.sequence);
                return Err(WireError::Sequence { found, expected }.into());
            }
            let Some(mut pending) = state.take_due() else { continue };
            // The copy needs no lock of the posters; the lock of the inbox keeps other receivers
            // out, and the end of the connection.
            drop(state);
            let outcome = response.fill(&mut pending.chain, self.peer);
            let result = match &outcome {
                Ok((_, None)) => Ok(pending.chain),
                Ok((executed, Some(error))) => Err((*executed, error.clone(), pending.chain)),
                Err(_) => Err((0, FabricError::PeerDead { peer: self.peer }, pending.chain)),
            };
            let result = result.map_err(|(executed, error, chain)| {
                Box::new(ChainError { chain, executed, error })
            });
            let waker = pending.cell.fill(result);
            completed.push((pending.cell, waker));
            self.reactor.chain_ends();
            outcome?;
            inbox.take(bytes);
            state = self.state.lock();
        }
    }

    /// After a receive: sends the queue, or ends the link if its queue pair was dropped.
    fn flush_or_end(&self) {
        let state = self.state.lock();
        if state.retired && state.pending_count() == 0 {
            drop(state);
            self.end(FabricError::PeerDead { peer: self.peer });
        } else {
            self.send_queue(state);
        }
    }

    /// The queue pair was dropped: the link ends once its chains are done.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        state.retired = true;
        self.set_armed(&mut state, true);
        drop(state);
        self.flush_or_end();
    }

    /// Ends the link, and every chain with `error`. The second call does nothing.
    pub(crate) fn end(&self, error: FabricError) {
        let inbox = self.inbox.lock();
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(error.clone());
        let (pending, pipe) = (state.take_all(), Arc::clone(&state.pipe));
        let was_dropped = state.retired;
        drop(state);
        pipe.shutdown();
        let fail = |pending: PendingChain| {
            let error = ChainError { chain: pending.chain, executed: 0, error: error.clone() };
            let waker = pending.cell.fill(Err(Box::new(error)));
            self.reactor.chain_ends();
            (pending.cell, waker)
        };
        let completed: Completed = pending.into_iter().map(fail).collect();
        drop(inbox);
        self.reactor.remove(pipe.socket());
        if let Some(table) = self.table.upgrade() {
            table.remove(self.token, was_dropped);
        }
        wake(completed);
        self.tell_watcher(error);
    }

    /// Has `watcher` told when the link has ended, without locks; at once if it has.
    #[cfg(feature = "verbs")]
    pub(crate) fn on_end(&self, watcher: EndWatcher) {
        *self.watcher.lock() = Some(watcher);
        let end = self.state.lock().end.clone();
        if let Some(error) = end {
            self.tell_watcher(error);
        }
    }

    fn tell_watcher(&self, error: FabricError) {
        let watcher = self.watcher.lock().take();
        if let Some(watcher) = watcher {
            watcher(error);
        }
    }

    /// The peer is silent on another way that belongs to the link: ends it as silence here does.
    #[cfg(feature = "verbs")]
    pub(crate) fn end_by_silence(&self) {
        let peer = self.peer;
        if let Some(table) = self.table.upgrade() {
            table.note_silent(self.token, peer);
        }
        self.end(FabricError::PeerDead { peer });
    }

    /// Lets the driver receive.
    pub(crate) fn arm(&self) {
        self.set_armed(&mut self.state.lock(), true);
    }

    /// Blocks until bytes came, if the only pending chain of the link fills `cell`. Returns whether
    /// it did.
    pub(crate) fn block_alone(&self, cell: &Arc<OutcomeCell>, limit: Duration) -> bool {
        let mut state = self.state.lock();
        let is_only = state.is_only(cell);
        if !is_only || !state.is_accepted() || state.sender != Sender::Idle {
            return false;
        }
        self.set_armed(&mut state, false);
        let pipe = Arc::clone(&state.pipe);
        drop(state);
        wait_readable(pipe.socket(), limit);
        self.drive_after_others();
        true
    }

    /// The count of signs of life, and whether the peer owes one.
    pub(crate) fn signs_of_life(&self) -> (u64, bool) {
        let state = self.state.lock();
        let owes = !state.is_accepted() || state.pending_count() > 0;
        (self.signs.load(Ordering::Relaxed), owes)
    }

    pub(crate) fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    fn set_armed(&self, state: &mut LinkState, armed: bool) {
        self.set_interest(state, EventFlags::IN, armed);
    }

    fn set_interest_out(&self, state: &mut LinkState, wanted: bool) {
        self.set_interest(state, EventFlags::OUT, wanted);
    }

    fn set_interest(&self, state: &mut LinkState, flag: EventFlags, wanted: bool) {
        if state.interest.contains(flag) != wanted && state.is_connected() {
            state.interest.set(flag, wanted);
            self.reactor.set_interest(self.token, state.pipe.socket(), state.interest);
        }
    }
}
