//! A mailbox's connection to one peer: the writer of the peer's ring for this node, an outbox for
//! messages that find the ring full, and the posted chains that are not known to be done.
//!
//! One mutex guards all of it. A thread holds it while it reserves the place of a record and posts
//! the chain, so messages of several threads have one order. Nothing blocks under the mutex: on a
//! backend that executes inline a completion is ready at once, on others it joins `pending`. The
//! oldest completion is polled with a waker of the connection itself, which takes results in
//! without waking the task that waits for mail. The doorbell wakes that task only if it has
//! something to do.
//!
//! States: *open*; *lost*, after a failed write or an impossible credit, for good. A write that
//! failed leaves a hole in the ring that the receiver cannot pass, so a lost connection stays
//! lost.

use crate::buffers::BufferPool;
use crate::config::{MailboxDescriptor, credit_offset, ring_offset};
use crate::error::ChannelError;
use crate::ring_writer::{BadCredit, RecordPlacement, RingWriter};
use parking_lot::{Mutex, MutexGuard};
use selkie_fabric::{
    Chain, ChainResult, Completion, LocalRegion, QueuePair, RegionKey, RemoteAddr, Verb, WORD_BYTES,
};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// Most posted chains that are unfinished at a time. Beyond it messages wait in the outbox.
const MAX_PENDING: usize = 1024;
/// Most of them that carry messages: the rest is for credit, which peers wait for.
const MAX_PENDING_MESSAGES: usize = MAX_PENDING - 1;

/// The parts of the mailbox that connections use.
pub(crate) struct Local {
    /// This node's mailbox region: credit comes in here, and its doorbell wakes the mail task.
    pub(crate) region: Arc<dyn LocalRegion>,
    /// Bit i is set while connection i has messages in its outbox, or a postponed look.
    pub(crate) attention: AtomicU64,
}

/// A connection to one peer.
pub(crate) struct Connection {
    local: Arc<Local>,
    state: Mutex<ConnectionState>,
    /// The oldest unfinished chain has made progress that no thread has looked at yet.
    nudged: AtomicBool,
}

/// What a backend wakes when the oldest unfinished chain of a connection makes progress.
struct Nudge(Weak<Connection>);

/// A posted chain that may be unfinished.
struct Pending {
    completion: Completion,
    is_message: bool,
}

struct ConnectionState {
    to: usize,
    queue_pair: Arc<dyn QueuePair>,
    /// The peer's mailbox region.
    region: RegionKey,
    /// Offset in it of the ring that this node writes.
    ring_at: u64,
    /// Offset in it of the word in which this node returns credit.
    credit_at: u64,
    writer: RingWriter,
    outbox: VecDeque<Box<[u8]>>,
    outbox_limit: usize,
    /// Oldest first; a queue pair completes in posting order.
    pending: VecDeque<Pending>,
    /// Messages accepted, and those of them that are in the peer's ring.
    taken: u64,
    arrived: u64,
    waker: Waker,
    /// The oldest unfinished chain has the waker.
    armed: bool,
    /// Credit could not be returned because too much was unfinished.
    owes_credit: bool,
    /// The oldest unfinished chain made progress during a look: the next poll looks again.
    postponed: bool,
    buffers: BufferPool,
    lost: Option<ChannelError>,
    /// The state of this connection's bit in `Local::attention`.
    attended: bool,
    /// The task that waits for mail has something to do; see [`Connection::let_go`].
    news: bool,
}

impl Connection {
    /// A connection from mailbox `me` to mailbox `to`, whose descriptor was validated.
    pub(crate) fn new(
        me: usize,
        to: usize,
        peer: &MailboxDescriptor,
        queue_pair: Arc<dyn QueuePair>,
        outbox_limit: usize,
        local: &Arc<Local>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| {
            let state = ConnectionState {
                to,
                queue_pair,
                region: peer.region,
                ring_at: ring_offset(me, peer.ring_bytes),
                credit_at: credit_offset(me),
                writer: RingWriter::new(peer.ring_bytes),
                outbox: VecDeque::new(),
                outbox_limit,
                pending: VecDeque::new(),
                taken: 0,
                arrived: 0,
                waker: Waker::from(Arc::new(Nudge(Weak::clone(this)))),
                armed: false,
                owes_credit: false,
                postponed: false,
                buffers: BufferPool::new(),
                lost: None,
                attended: false,
                news: false,
            };
            let nudged = AtomicBool::new(false);
            Self { local: Arc::clone(local), state: Mutex::new(state), nudged }
        })
    }

    /// Sends a message or appends it to the outbox.
    pub(crate) fn send(&self, parts: [&[u8]; 2]) -> Result<(), ChannelError> {
        self.with(|state| state.send(&self.local, parts))
    }

    /// How many messages it has accepted.
    pub(crate) fn taken(&self) -> u64 {
        self.state.lock().taken
    }

    /// Whether `taken` messages are in the peer's ring, or the connection is lost.
    pub(crate) fn has_sent(&self, taken: u64) -> bool {
        let state = self.state.lock();
        state.lost.is_some() || state.arrived >= taken
    }

    /// Whether a write to the peer failed.
    pub(crate) fn has_lost_peer(&self) -> bool {
        matches!(self.state.lock().lost, Some(ChannelError::PeerLost { .. }))
    }

    /// Sends the messages of the outbox that fit.
    pub(crate) fn attend(&self) {
        self.with(|state| {
            state.postponed = false;
            state.reap();
            state.flush(&self.local);
        });
    }

    /// Tells the peer that `credit` bytes of its ring here have been consumed. `false` if a later
    /// poll has to try again.
    pub(crate) fn return_credit(&self, credit: u64) -> bool {
        self.with(|state| {
            if state.lost.is_some() {
                return true;
            }
            if state.pending.len() >= MAX_PENDING {
                state.owes_credit = true;
                return false;
            }
            let from = state.buffers.take_word(credit);
            let at = RemoteAddr::new(state.region, state.credit_at);
            state.post(Chain::from(Verb::write_with_doorbell(at, from)), false);
            true
        })
    }

    fn with<R>(&self, action: impl FnOnce(&mut ConnectionState) -> R) -> R {
        let mut state = self.state.lock();
        let result = action(&mut state);
        self.let_go(state);
        result
    }

    /// Releases the lock and announces the work that is left: first by the attention bit, *then* by
    /// the doorbell. In this order, because a task that saw the ring before it polled must find the
    /// bit; otherwise it would sleep again, and no other task would wake it.
    fn let_go<'s>(&'s self, mut state: MutexGuard<'s, ConnectionState>) {
        let mut again = false;
        loop {
            state.set_attention(&self.local);
            let news = std::mem::take(&mut state.news);
            drop(state);
            if news {
                // Not under the lock: it may run wakers.
                self.local.region.doorbell().ring();
            }
            // Pairs with the fence in `wake_by_ref`: either the nudge got the lock, or it is seen
            // here.
            fence(Ordering::SeqCst);
            match self.nudged_state(again) {
                Some(nudged) => state = nudged,
                None => return,
            }
            again = true;
        }
    }

    /// The locked state after a nudge, with finished chains taken in. `None` if there was no nudge,
    /// or if another thread has the lock, as it checks for a nudge when it releases it. A nudge
    /// that comes `again` is left to the next poll: a chain that wakes at every look would keep the
    /// caller here for ever.
    fn nudged_state(&self, again: bool) -> Option<MutexGuard<'_, ConnectionState>> {
        if !self.nudged.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state.try_lock()?;
        self.nudged.store(false, Ordering::Relaxed);
        state.armed = false;
        if again {
            state.postponed = true;
            state.news = true;
        } else {
            state.reap();
        }
        Some(state)
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// Does not wait for the lock: a backend may wake while the lock is held, on the thread that
    /// holds it.
    fn wake_by_ref(self: &Arc<Self>) {
        let Some(connection) = self.0.upgrade() else { return };
        connection.nudged.store(true, Ordering::Relaxed);
        // Pairs with the fence in `let_go`.
        fence(Ordering::SeqCst);
        if let Some(state) = connection.nudged_state(false) {
            connection.let_go(state);
        }
    }
}

impl ConnectionState {
    fn send(&mut self, local: &Local, parts: [&[u8]; 2]) -> Result<(), ChannelError> {
        self.reap();
        self.flush(local);
        self.check_open()?;
        if self.outbox.is_empty() && self.place(local, parts) {
            self.taken += 1;
            return self.check_open();
        }
        self.check_open()?;
        if self.outbox.len() < self.outbox_limit {
            // Credit may have come since the ring was found full, and a poll may have found nothing
            // to flush with it.
            self.news |= self.outbox.is_empty();
            self.outbox.push_back(parts.concat().into_boxed_slice());
            self.taken += 1;
            return Ok(());
        }
        self.probe();
        self.check_open()?;
        Err(ChannelError::OutboxFull { to: self.to, queued: self.outbox.len() })
    }

    fn check_open(&self) -> Result<(), ChannelError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Sends the messages of the outbox, in order, that fit into the ring.
    fn flush(&mut self, local: &Local) {
        while let Some(message) = self.outbox.pop_front() {
            if !self.place(local, [&message, &[]]) {
                // A lost connection sends nothing any more.
                if self.lost.is_none() {
                    self.outbox.push_front(message);
                }
                break;
            }
        }
    }

    /// Writes a record, if there is room for it.
    fn place(&mut self, local: &Local, parts: [&[u8]; 2]) -> bool {
        if self.lost.is_some() || self.pending.len() >= MAX_PENDING_MESSAGES {
            return false;
        }
        let message_bytes = parts.iter().map(|part| part.len()).sum();
        let placement = self.writer.reserve(message_bytes).or_else(|| {
            // Not before it is needed: the peer writes the word, so reading it costs a cache miss.
            self.refresh_credit(local)?;
            self.writer.reserve(message_bytes)
        });
        let Some(placement) = placement else { return false };
        let chain = self.record_chain(&placement, parts);
        self.post(chain, true);
        true
    }

    /// Reads the credit the peer has returned; `None`, and the connection lost, if it is
    /// impossible.
    fn refresh_credit(&mut self, local: &Local) -> Option<()> {
        let credit = local.region.load(credit_offset(self.to) as usize);
        match self.writer.set_credit(credit) {
            Ok(()) => Some(()),
            Err(BadCredit { least, most }) => {
                self.lose(ChannelError::DamagedCredit { to: self.to, credit, least, most });
                None
            }
        }
    }

    /// Message and terminator, then the header word; then, for the first record of a lap, the skip
    /// record that leads to it. The last verb makes the record visible and rings.
    fn record_chain(&mut self, placement: &RecordPlacement, parts: [&[u8]; 2]) -> Chain {
        let header_at = self.ring_at + placement.offset;
        let at = |offset| RemoteAddr::new(self.region, offset);
        let body_at = at(header_at + WORD_BYTES as u64);
        let header_at = at(header_at);
        let skip = placement.skip.map(|(offset, word)| (at(self.ring_at + offset), word));
        let body = self.buffers.take_filled(placement.body_bytes, parts);
        let header = self.buffers.take_word(placement.word);
        let body = Verb::write(body_at, body);
        match skip {
            None => Chain::from([body, Verb::write_with_doorbell(header_at, header)]),
            Some((at, word)) => {
                let skip = Verb::write_with_doorbell(at, self.buffers.take_word(word));
                Chain::from([body, Verb::write(header_at, header), skip])
            }
        }
    }

    /// Reads a word of the peer's ring only to learn whether the peer still lives: while its ring
    /// is full there is nothing else to post that would tell.
    fn probe(&mut self) {
        if self.pending.is_empty() {
            let into = self.buffers.take(WORD_BYTES);
            let at = RemoteAddr::new(self.region, self.ring_at);
            self.post(Chain::from(Verb::read(at, into)), false);
        }
    }

    fn post(&mut self, chain: Chain, is_message: bool) {
        let mut completion = self.queue_pair.post(chain);
        if let Some(result) = completion.try_take() {
            self.finish(result, is_message);
            return;
        }
        self.pending.push_back(Pending { completion, is_message });
        if self.pending.len() == 1 {
            self.reap();
        }
    }

    /// Takes in the chains that are done, and registers the waker for the next one.
    fn reap(&mut self) {
        while let Some(oldest) = self.pending.front_mut() {
            let result = if self.armed {
                oldest.completion.try_take()
            } else {
                self.armed = true;
                match Pin::new(&mut oldest.completion).poll(&mut Context::from_waker(&self.waker)) {
                    Poll::Ready(result) => Some(result),
                    Poll::Pending => None,
                }
            };
            let Some(result) = result else { return };
            // The next poll continues with what waited for room among the unfinished chains.
            let room = self.pending.len() == MAX_PENDING_MESSAGES && !self.outbox.is_empty();
            self.news |= std::mem::take(&mut self.owes_credit) || room;
            let is_message = self.pending.pop_front().is_some_and(|done| done.is_message);
            self.armed = false;
            self.finish(result, is_message);
        }
        self.armed = false;
    }

    fn finish(&mut self, result: ChainResult, is_message: bool) {
        match result {
            Ok(chain) => {
                self.arrived += u64::from(is_message);
                self.buffers.recycle(chain);
            }
            Err(failed) => {
                self.lose(ChannelError::PeerLost { to: self.to, source: failed.error });
            }
        }
    }

    /// The first reason stays. Dropping completions does not cancel what was posted.
    fn lose(&mut self, reason: ChannelError) {
        self.news |= self.lost.is_none();
        self.lost.get_or_insert(reason);
        self.outbox.clear();
        self.pending.clear();
    }

    /// Sets the attention bit to whether there is something to look at on the next poll.
    fn set_attention(&mut self, local: &Local) {
        let wanted = self.postponed || !self.outbox.is_empty();
        if wanted == self.attended {
            return;
        }
        self.attended = wanted;
        let bit = 1_u64 << self.to;
        // Relaxed: published by the node's own doorbell, or by the ring of the credit waited for.
        // The lock guards the state that the bit stands for.
        if wanted {
            local.attention.fetch_or(bit, Ordering::Relaxed);
        } else {
            local.attention.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selkie_fabric::{
        ChainError, Endpoint, Fabric, FabricError, MemFabric, Outstanding, PeerId,
    };

    /// A queue pair whose chains are done when the test says so.
    #[derive(Default)]
    struct ByHand {
        unfinished: Mutex<VecDeque<Arc<Mutex<Slot>>>>,
        /// Every look at a chain wakes the task that looks.
        restless: bool,
    }

    #[derive(Default)]
    struct Slot {
        result: Option<ChainResult>,
        waker: Option<Waker>,
    }

    struct Unfinished {
        slot: Arc<Mutex<Slot>>,
        restless: bool,
    }

    impl Outstanding for Unfinished {
        fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
            let mut slot = self.slot.lock();
            slot.waker = Some(context.waker().clone());
            let result = slot.result.take();
            drop(slot);
            if self.restless {
                context.waker().wake_by_ref();
            }
            result.map_or(Poll::Pending, Poll::Ready)
        }

        fn try_result(&mut self) -> Option<ChainResult> {
            self.slot.lock().result.take()
        }
    }

    impl QueuePair for ByHand {
        fn peer(&self) -> PeerId {
            PeerId::compute(1)
        }

        fn post(&self, _chain: Chain) -> Completion {
            let slot = Arc::new(Mutex::new(Slot::default()));
            self.unfinished.lock().push_back(Arc::clone(&slot));
            let restless = self.restless;
            Completion::outstanding(Box::new(Unfinished { slot, restless }))
        }
    }

    impl ByHand {
        /// Wakes the task that waits for the oldest chain, which is done if there is a result.
        fn wake_oldest(&self, result: Option<ChainResult>) {
            let oldest = self.unfinished.lock().front().map(Arc::clone).unwrap();
            let mut slot = oldest.lock();
            if result.is_some() {
                slot.result = result;
                self.unfinished.lock().pop_front();
            }
            let waker = slot.waker.take();
            drop(slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        }

        fn finish_oldest(&self) {
            self.wake_oldest(Some(Ok(Chain::new())));
        }

        fn unfinished(&self) -> usize {
            self.unfinished.lock().len()
        }
    }

    /// Says when the doorbell rings.
    struct Bell(Arc<Local>);

    impl Bell {
        fn rings_when(&self, action: impl FnOnce()) -> bool {
            let before = self.0.region.doorbell().count();
            action();
            self.0.region.doorbell().count() > before
        }
    }

    fn connected(restless: bool) -> (Bell, Arc<ByHand>, Arc<Connection>) {
        let endpoint: Arc<dyn Endpoint> = MemFabric::new().join(PeerId::compute(0)).unwrap();
        let region = endpoint.register(1 << 20).unwrap();
        let peer = MailboxDescriptor {
            peer: PeerId::compute(1),
            region: region.key(),
            ring_bytes: 256 << 10,
            peers: 2,
        };
        let local = Arc::new(Local { region, attention: AtomicU64::new(0) });
        let by_hand = Arc::new(ByHand { restless, ..ByHand::default() });
        let queue_pair = Arc::clone(&by_hand) as Arc<dyn QueuePair>;
        let connection = Connection::new(0, 1, &peer, queue_pair, 10, &local);
        (Bell(local), by_hand, connection)
    }

    #[test]
    fn what_waits_for_room_among_the_unfinished_calls_for_a_poll_when_there_is_some() {
        let (bell, by_hand, connection) = connected(false);
        for _ in 0..MAX_PENDING_MESSAGES {
            connection.send([b"m", b""]).unwrap();
        }
        connection.send([b"one too many", b""]).unwrap();
        assert_eq!(by_hand.unfinished(), MAX_PENDING_MESSAGES, "it is in the outbox");
        assert!(connection.return_credit(8), "there is room for credit");
        assert!(!connection.return_credit(8), "but only once");
        assert!(bell.rings_when(|| by_hand.finish_oldest()), "the credit can be returned");
        assert!(connection.return_credit(8));
        assert!(!bell.rings_when(|| by_hand.finish_oldest()), "nothing can be done with this");
        assert!(bell.rings_when(|| by_hand.finish_oldest()), "the message can be sent");
        connection.attend();
        assert_eq!(by_hand.unfinished(), MAX_PENDING_MESSAGES);
        assert!(connection.state.lock().outbox.is_empty());
    }

    #[test]
    fn chains_are_taken_in_as_they_are_done_without_a_poll() {
        let (bell, by_hand, connection) = connected(false);
        for _ in 0..3 {
            connection.send([b"m", b""]).unwrap();
        }
        by_hand.wake_oldest(None);
        for left in [2, 1, 0] {
            assert!(!bell.rings_when(|| by_hand.finish_oldest()), "no task has anything to do");
            assert_eq!(connection.state.lock().pending.len(), left);
        }
    }

    #[test]
    fn a_failure_calls_for_a_poll() {
        let (bell, by_hand, connection) = connected(false);
        connection.send([b"m", b""]).unwrap();
        let (chain, error) = (Chain::new(), FabricError::PeerDead { peer: PeerId::compute(1) });
        let failed = ChainError { chain, executed: 0, error };
        assert!(bell.rings_when(|| by_hand.wake_oldest(Some(Err(Box::new(failed))))));
        let lost = connection.send([b"m", b""]);
        assert!(matches!(lost, Err(ChannelError::PeerLost { to: 1, .. })), "{lost:?}");
    }

    #[test]
    fn a_chain_that_wakes_at_every_look_holds_no_caller_up_and_is_taken_in_by_polls() {
        let (bell, by_hand, connection) = connected(true);
        assert!(bell.rings_when(|| connection.send([b"m", b""]).unwrap()), "look again");
        assert_ne!(bell.0.attention.load(Ordering::Relaxed), 0);
        assert!(bell.rings_when(|| connection.attend()), "and again");
        by_hand.finish_oldest();
        connection.attend();
        assert!(connection.state.lock().pending.is_empty());
        assert_eq!(bell.0.attention.load(Ordering::Relaxed), 0);
    }
}
