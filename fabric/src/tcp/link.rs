//! A link: the connecting side of one connection, which is one queue pair.
//!
//! # Sending
//! Posts append requests to a queue. A post that finds nothing under way sends at once; others
//! leave it to whoever comes first of: a poll of their completion, its drop, a full queue, the next
//! response. So many chains go out with one system call when many are posted, and one chain goes
//! out at once when it is alone. One thread at a time sends, outside of the lock; what the socket
//! does not take is left to the driver.
//!
//! # Receiving
//! Whoever wants an outcome receives for all: a polling thread, or the *driver*, a thread of the
//! node. The driver is told of readiness only while the link is `armed`, that is while a completion
//! waits that nobody polls; else each response would wake it besides the thread that polls for it.
//!
//! ```text
//! armed by     a waker that is enlisted, a post behind another, a completion dropped before its outcome
//! disarmed by  a poll that looks again and again or blocks for the only chain of the link, and whoever asks
//!              for its outcome without ever having polled
//! ```
//! Locks: `inbox`, then `line`, then a slot. Wakers are called, and what others own is dropped,
//! under none.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

use super::buffer::FrameBuffer;
use super::driver::Driver;
use super::error::WireError;
use super::hello;
use super::line::{Line, Pending, Sending};
use super::pipe::{Lost, Pipe, Received};
use super::slot::Slot;
use super::wire::{self, Next};
use crate::distrust::Distrust;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::{Chain, ChainError};

/// A queue as long as this is sent.
const FULL_QUEUE_BYTES: usize = 16 << 10;
/// Capacity that a send buffer keeps.
const KEPT_QUEUE_BYTES: usize = 256 << 10;
/// Sends one thread makes for others, before it leaves the rest to the driver.
const MOST_SENDS: usize = 16;
/// Receives one thread makes before it lets others have their outcomes.
const MOST_RECEIVES: usize = 16;

pub(super) struct Link {
    token: u64,
    peer: PeerId,
    pipe: Pipe,
    driver: Arc<Driver>,
    line: Mutex<Line>,
    inbox: Mutex<FrameBuffer>,
    /// Counts signs of life of the peer.
    signs: AtomicU64,
}

/// Outcomes that are in their slots. Dropped and woken without locks.
type Filled = Vec<(Arc<Slot>, Option<Waker>)>;

impl Link {
    /// A link over a socket that is connecting; says hello once it is connected.
    pub(super) fn new(
        token: u64,
        peer: PeerId,
        pipe: Pipe,
        hello: Vec<u8>,
        driver: Arc<Driver>,
    ) -> Self {
        let (line, inbox) = (Mutex::new(Line::new(hello)), Mutex::new(FrameBuffer::new()));
        Self { token, peer, pipe, driver, line, inbox, signs: AtomicU64::new(0) }
    }

    pub(super) fn peer(&self) -> PeerId {
        self.peer
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.pipe.socket().as_fd()
    }

    pub(super) fn interest(&self) -> EventFlags {
        self.line.lock().interest
    }

    /// Queues a chain, and sends it if nothing else will.
    pub(super) fn post(&self, chain: Chain) -> Result<Arc<Slot>, Box<ChainError>> {
        let refuse = |chain, error| Err(Box::new(ChainError { chain, executed: 0, error }));
        if let Err(error) = wire::check_chain(&chain) {
            return refuse(chain, error);
        }
        let mut line = self.line.lock();
        if let Some(error) = &line.end {
            let error = error.clone();
            drop(line);
            return refuse(chain, error);
        }
        let slot = Arc::new(Slot::default());
        let sequence = line.next_sequence;
        line.next_sequence += 1;
        wire::encode_request(&mut line.queue, sequence, &chain);
        let is_first = line.waiting.len() == line.queued;
        line.queued += 1;
        line.waiting.push_back(Pending { chain, sequence, slot: Arc::clone(&slot) });
        self.driver.chain_begins();
        if line.waiting.len() > 1 {
            // Nobody need poll for the first of them.
            self.set_armed(&mut line, true);
        }
        if is_first || line.queue.len() >= FULL_QUEUE_BYTES {
            self.send_queue(line);
        }
        Ok(slot)
    }

    /// Sends what is queued, unless somebody is at it.
    pub(super) fn flush(&self) {
        self.send_queue(self.line.lock());
    }

    /// Sends what is queued and receives what has come, for somebody who will ask again, or else
    /// arm the link. If `slot` is what the only chain of the link fills, the driver need not look
    /// meanwhile.
    pub(super) fn ask(&self, slot: &Arc<Slot>) {
        let mut line = self.line.lock();
        if line.is_only(slot) {
            self.set_armed(&mut line, false);
        }
        self.send_queue(line);
        self.drive();
    }

    /// Goes on with what the socket did not take.
    pub(super) fn go_on_sending(&self) {
        let mut line = self.line.lock();
        if line.sending != Sending::Stuck || line.end.is_some() {
            return;
        }
        line.sending = Sending::Somebody;
        let part = mem::take(&mut line.part);
        let sent = mem::take(&mut line.sent);
        self.set_interest_out(&mut line, false);
        // That the socket takes more of what it once refused means that the peer reads.
        self.signs.fetch_add(1, Ordering::Relaxed);
        if let Some(line) = self.send_part(line, part, sent) {
            self.send_queue(line);
        }
    }

    fn send_queue<'l>(&'l self, mut line: MutexGuard<'l, Line>) {
        for _ in 0..MOST_SENDS {
            let idle = line.sending == Sending::Nobody && line.accepted;
            if line.queue.is_empty() || !idle || line.end.is_some() {
                return;
            }
            line.sending = Sending::Somebody;
            line.queued = 0;
            let spare = mem::take(&mut line.part);
            let part = mem::replace(&mut line.queue, spare);
            match self.send_part(line, part, 0) {
                Some(still) => line = still,
                None => return,
            }
        }
        line.sending = Sending::Stuck;
        self.set_interest_out(&mut line, true);
    }

    /// Sends the rest of `part`. Returns the line if all was sent.
    fn send_part<'l>(
        &'l self,
        line: MutexGuard<'l, Line>,
        mut part: Vec<u8>,
        mut sent: usize,
    ) -> Option<MutexGuard<'l, Line>> {
        drop(line);
        let mut failure = loop {
            let rest = part.get(sent..).unwrap_or_default();
            let done = rest.is_empty();
            match if done { self.pipe.flush().map(|()| 0) } else { self.pipe.send(rest) } {
                Ok(_) if done => break None,
                Ok(count) => sent += count,
                Err(Errno::INTR) => {}
                Err(error) => break Some(error),
            }
        };
        let mut line = self.line.lock();
        if mem::take(&mut line.unflushed) {
            failure = failure.or(Some(Errno::AGAIN));
        }
        match failure {
            None => {
                part.clear();
                part.shrink_to(KEPT_QUEUE_BYTES);
                line.part = part;
                line.sending = Sending::Nobody;
                Some(line)
            }
            Some(Errno::AGAIN) => {
                (line.part, line.sent) = (part, sent);
                line.sending = Sending::Stuck;
                self.set_interest_out(&mut line, true);
                None
            }
            Some(_) => {
                drop(line);
                self.end(FabricError::PeerDead { peer: self.peer });
                None
            }
        }
    }

    /// Receives what has come, if nobody is at it.
    pub(super) fn drive(&self) {
        if let Some(inbox) = self.inbox.try_lock() {
            self.receive(inbox);
        }
    }

    /// As [`Link::drive`], after whoever is at it.
    pub(super) fn drive_after_others(&self) {
        self.receive(self.inbox.lock());
    }

    fn receive(&self, mut inbox: MutexGuard<'_, FrameBuffer>) {
        let mut filled = Filled::new();
        let received = self.receive_into(&mut inbox, &mut filled);
        drop(inbox);
        let dead = |peer| FabricError::PeerDead { peer };
        match received {
            Ok(true) => self.flush_or_leave(),
            Ok(false) => {}
            Err(Broken::Gone) => self.end(dead(self.peer)),
            Err(Broken::Refused(error)) => self.end(error),
            Err(Broken::Distrusted(why)) => {
                self.driver.note_bad_link(WireError::Distrusted { why });
                self.end(FabricError::Distrusted { peer: self.peer, why });
            }
            Err(Broken::Wire(error)) => {
                self.driver.note_bad_link(error);
                self.end(dead(self.peer));
            }
        }
        wake(filled);
    }

    /// Receives and fills slots; whether anything came.
    fn receive_into(&self, inbox: &mut FrameBuffer, filled: &mut Filled) -> Result<bool, Broken> {
        let mut came = false;
        let mut wanted = wire::HEADER_BYTES;
        for received in 0.. {
            // What is held back nobody would be told of.
            if received >= MOST_RECEIVES && !self.pipe.holds_back() {
                break;
            }
            let room = inbox.room(wanted);
            let (room_bytes, result) = (room.len(), self.pipe.receive(room));
            if self.pipe.wants_flush() {
                self.flush_later();
            }
            let count = match result? {
                Received::Bytes(count) => count,
                Received::Part { is_trusted } => {
                    // A handshake that takes too long is no sign of life.
                    self.signs.fetch_add(u64::from(is_trusted), Ordering::Relaxed);
                    break;
                }
                Received::Nothing => break,
            };
            came = true;
            inbox.received(count);
            self.signs.fetch_add(1, Ordering::Relaxed);
            wanted = self.deliver(inbox, filled)?;
            if count < room_bytes {
                break;
            }
        }
        Ok(came)
    }

    /// Has the driver send what the socket did not take.
    fn flush_later(&self) {
        let mut line = self.line.lock();
        match line.sending {
            Sending::Nobody => {
                line.sending = Sending::Stuck;
                self.set_interest_out(&mut line, true);
            }
            Sending::Somebody => line.unflushed = true,
            Sending::Stuck => {}
        }
    }

    /// Fills the slots of the whole responses in the inbox. Returns the length of the one that is
    /// not whole.
    fn deliver(&self, inbox: &mut FrameBuffer, filled: &mut Filled) -> Result<usize, Broken> {
        let mut line = self.line.lock();
        if line.end.is_some() {
            return Err(Broken::Gone);
        }
        if !line.accepted {
            if let Some(why) = Distrust::in_answer(inbox.data()) {
                return Err(Broken::Distrusted(why));
            }
            match hello::decode_reply(inbox.data())? {
                None => return Ok(hello::REPLY_BYTES),
                Some(Err(why)) => {
                    let peer = self.peer;
                    return Err(Broken::Refused(FabricError::Refused { peer, why }));
                }
                Some(Ok(())) => line.accepted = true,
            }
            inbox.take(hello::REPLY_BYTES);
        }
        loop {
            let Some(first) = line.waiting.front().filter(|_| line.waiting.len() > line.queued)
            else {
                let nothing = inbox.data().is_empty();
                return if nothing {
                    Ok(wire::HEADER_BYTES)
                } else {
                    Err(WireError::Unasked.into())
                };
            };
            let limit = wire::most_response_bytes(&first.chain);
            let (bytes, response) = match wire::decode_response(inbox.data(), limit)? {
                Next::Partial(bytes) => return Ok(bytes),
                Next::Whole(bytes, response) => (bytes, response),
            };
            if response.sequence != first.sequence {
                let (found, expected) = (response.sequence, first.sequence);
                return Err(WireError::Sequence { found, expected }.into());
            }
            let Some(mut pending) = line.waiting.pop_front() else { continue };
            // Copies, so not under the lock of those who post; the inbox keeps other receivers out.
            drop(line);
            let outcome = response.fill(&mut pending.chain, self.peer);
            let result = match &outcome {
                Ok((_, None)) => Ok(pending.chain),
                Ok((executed, Some(error))) => Err((*executed, error.clone(), pending.chain)),
                Err(_) => Err((0, FabricError::PeerDead { peer: self.peer }, pending.chain)),
            };
            let result = result.map_err(|(executed, error, chain)| {
                Box::new(ChainError { chain, executed, error })
            });
            let waker = pending.slot.fill(result);
            filled.push((pending.slot, waker));
            self.driver.chain_ends();
            outcome?;
            inbox.take(bytes);
            line = self.line.lock();
        }
    }

    /// After a receipt: sends what waited for it, and goes if the queue pair is gone.
    fn flush_or_leave(&self) {
        let line = self.line.lock();
        if line.retired && line.waiting.is_empty() {
            drop(line);
            self.end(FabricError::PeerDead { peer: self.peer });
        } else {
            self.send_queue(line);
        }
    }

    /// The queue pair is gone: once the chains are done the link ends.
    pub(super) fn retire(&self) {
        let mut line = self.line.lock();
        line.retired = true;
        self.set_armed(&mut line, true);
        drop(line);
        self.flush_or_leave();
    }

    /// Nothing goes any more, and every chain ends with `error`. Nothing happens the second time.
    pub(super) fn end(&self, error: FabricError) {
        let inbox = self.inbox.lock();
        let mut line = self.line.lock();
        if line.end.is_some() {
            return;
        }
        line.end = Some(error.clone());
        let waiting = mem::take(&mut line.waiting);
        (line.queue, line.part) = (Vec::new(), Vec::new());
        drop(line);
        self.pipe.shutdown();
        let fail = |pending: Pending| {
            let error = ChainError { chain: pending.chain, executed: 0, error: error.clone() };
            let waker = pending.slot.fill(Err(Box::new(error)));
            self.driver.chain_ends();
            (pending.slot, waker)
        };
        let filled: Filled = waiting.into_iter().map(fail).collect();
        drop(inbox);
        self.driver.forget(self.token, self.pipe.socket());
        wake(filled);
    }

    /// Sees to it that the driver receives.
    pub(super) fn arm(&self) {
        self.set_armed(&mut self.line.lock(), true);
    }

    /// Blocks until something came, if `slot` is what the only chain of this node fills.
    pub(super) fn block_alone(&self, slot: &Arc<Slot>, at_most: Duration) -> bool {
        let mut line = self.line.lock();
        let is_only = line.is_only(slot);
        if !is_only || !line.accepted || line.sending != Sending::Nobody {
            return false;
        }
        self.set_armed(&mut line, false);
        drop(line);
        super::driver::wait_readable(self.pipe.socket(), at_most);
        self.drive_after_others();
        true
    }

    /// Signs of life so far, and whether the peer owes one.
    pub(super) fn signs_of_life(&self) -> (u64, bool) {
        let line = self.line.lock();
        let owes = !line.accepted || !line.waiting.is_empty();
        (self.signs.load(Ordering::Relaxed), owes)
    }

    pub(super) fn driver(&self) -> &Driver {
        &self.driver
    }

    fn set_armed(&self, line: &mut Line, armed: bool) {
        self.set_interest(line, EventFlags::IN, armed);
    }

    fn set_interest_out(&self, line: &mut Line, wanted: bool) {
        self.set_interest(line, EventFlags::OUT, wanted);
    }

    fn set_interest(&self, line: &mut Line, flag: EventFlags, wanted: bool) {
        if line.interest.contains(flag) != wanted && line.end.is_none() {
            line.interest.set(flag, wanted);
            self.driver.set_interest(self.token, self.pipe.socket(), line.interest);
        }
    }
}

/// Why a connection cannot go on.
enum Broken {
    Gone,
    Refused(FabricError),
    Distrusted(Distrust),
    Wire(WireError),
}

impl From<WireError> for Broken {
    fn from(error: WireError) -> Self {
        Self::Wire(error)
    }
}

impl From<Lost> for Broken {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::Closed => Self::Gone,
            Lost::Distrusted(why) => Self::Distrusted(why),
        }
    }
}

fn wake(filled: Filled) {
    for (slot, waker) in filled {
        drop(slot);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
