//! What a mailbox keeps for one peer it is connected to: the peer's ring for this node, an outbox for
//! when that is full, and the posted writes that are not known to be done.
//!
//! Everything is under one mutex, held while a record's place is taken and its chain is posted; that
//! is what keeps messages of several threads in one order. Nothing blocks under it: on a backend that
//! executes inline a completion is ready at once, on others it joins `pending` and is looked at by
//! later sends and polls, and polled with a waker by whoever waits for mail.
//!
//! States: *open*; *lost*, after a failed write or an impossible credit, for good. A write that
//! failed leaves a hole in the ring that the receiver cannot pass, so there is no way back.

use crate::buffers::BufferPool;
use crate::config::{MailboxDescriptor, credit_offset, ring_offset};
use crate::error::ChannelError;
use crate::ring_writer::{BadCredit, Placement, RingWriter};
use parking_lot::Mutex;
use selkie_fabric::{
    Chain, ChainResult, Completion, LocalRegion, QueuePair, RegionKey, RemoteAddr, Verb, WORD_BYTES,
};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// Posted chains that may be unfinished at a time; beyond it messages wait in the outbox.
const MAX_PENDING: usize = 1024;

/// The parts of the mailbox that connections use.
pub(crate) struct Local {
    /// This node's mailbox region: credit comes in here, and its doorbell wakes the mail task.
    pub(crate) region: std::sync::Arc<dyn LocalRegion>,
    /// Bit i is set while connection i has messages in its outbox or unfinished chains.
    pub(crate) attention: AtomicU64,
}

/// A connection to one peer.
pub(crate) struct Connection {
    state: Mutex<State>,
}

struct State {
    to: usize,
    queue_pair: std::sync::Arc<dyn QueuePair>,
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
    pending: VecDeque<Completion>,
    buffers: BufferPool,
    lost: Option<ChannelError>,
    /// The state of this connection's bit in `Local::attention`.
    attended: bool,
    /// Somebody may be waiting for mail who does not know what is new here; see [`Connection::with`].
    news: bool,
}

impl Connection {
    /// A connection from mailbox `me` to mailbox `to`, whose descriptor was validated.
    pub(crate) fn new(
        me: usize,
        to: usize,
        peer: &MailboxDescriptor,
        queue_pair: std::sync::Arc<dyn QueuePair>,
        outbox_limit: usize,
    ) -> Self {
        let state = State {
            to,
            queue_pair,
            region: peer.region,
            ring_at: ring_offset(me, peer.ring_bytes),
            credit_at: credit_offset(me),
            writer: RingWriter::new(peer.ring_bytes),
            outbox: VecDeque::new(),
            outbox_limit,
            pending: VecDeque::new(),
            buffers: BufferPool::new(),
            lost: None,
            attended: false,
            news: false,
        };
        Self { state: Mutex::new(state) }
    }

    /// Sends a message or puts it into the outbox, behind what is there already.
    pub(crate) fn send(&self, local: &Local, parts: [&[u8]; 2]) -> Result<(), ChannelError> {
        self.with(local, |state| state.send(local, parts))
    }

    /// Looks at finished chains and sends from the outbox what fits.
    pub(crate) fn attend(&self, local: &Local) {
        self.with(local, |state| {
            state.reap();
            state.flush(local);
        });
    }

    /// Tells the peer that `credit` bytes of its ring here have been consumed. `false` if that has to
    /// be tried again on a later poll.
    pub(crate) fn return_credit(&self, local: &Local, credit: u64) -> bool {
        self.with(local, |state| {
            if state.lost.is_some() {
                return true;
            }
            if state.pending.len() >= MAX_PENDING {
                return false;
            }
            let from = state.buffers.take_word(credit);
            let at = RemoteAddr::new(state.region, state.credit_at);
            state.post(Chain::from(Verb::write_with_doorbell(at, from)));
            true
        })
    }

    /// Polls the oldest unfinished chains; `true` if one finished, which makes a poll worth while.
    pub(crate) fn drive(&self, local: &Local, context: &mut Context<'_>) -> bool {
        self.with(local, |state| {
            let mut finished = false;
            while let Some(oldest) = state.pending.front_mut() {
                let Poll::Ready(result) = Pin::new(oldest).poll(context) else { break };
                state.pending.pop_front();
                state.finish(result);
                finished = true;
            }
            finished
        })
    }

    /// Runs `action` under the lock, then makes known what it left to do: first by the attention
    /// bit, *then* by the doorbell. In this order, because whoever saw the ring before it polled
    /// must find the bit, or it would go back to sleep with nobody left to wake it.
    fn with<R>(&self, local: &Local, action: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = action(&mut state);
        state.set_attention(local);
        let news = std::mem::take(&mut state.news);
        drop(state);
        if news {
            // Not under the lock: it may run wakers.
            local.region.doorbell().ring();
        }
        result
    }
}

impl State {
    fn send(&mut self, local: &Local, parts: [&[u8]; 2]) -> Result<(), ChannelError> {
        self.reap();
        self.flush(local);
        self.check_open()?;
        if self.outbox.is_empty() && self.place(local, parts) {
            return self.check_open();
        }
        self.check_open()?;
        if self.outbox.len() < self.outbox_limit {
            // Credit may have come since the ring was found full, and a poll may have found nothing
            // to flush with it.
            self.news |= self.outbox.is_empty();
            self.outbox.push_back(parts.concat().into_boxed_slice());
            return Ok(());
        }
        self.probe();
        self.check_open()?;
        Err(ChannelError::OutboxFull { to: self.to, queued: self.outbox.len() })
    }

    fn check_open(&self) -> Result<(), ChannelError> {
        self.lost.clone().map_or(Ok(()), Err)
    }

    /// Sends from the outbox, in order, what fits into the ring.
    fn flush(&mut self, local: &Local) {
        while let Some(message) = self.outbox.pop_front() {
            if !self.place(local, [&message, &[]]) {
                // Nothing goes out any more once the connection is lost.
                if self.lost.is_none() {
                    self.outbox.push_front(message);
                }
                break;
            }
        }
    }

    /// Writes a record, if there is room for it.
    fn place(&mut self, local: &Local, parts: [&[u8]; 2]) -> bool {
        if self.lost.is_some() || self.pending.len() >= MAX_PENDING {
            return false;
        }
        let message_bytes = parts.iter().map(|part| part.len()).sum();
        let placement = self.writer.reserve(message_bytes).or_else(|| {
            // Only now: the word is written by the peer, so looking at it costs a cache miss.
            self.refresh_credit(local)?;
            self.writer.reserve(message_bytes)
        });
        let Some(placement) = placement else { return false };
        let chain = self.record_chain(&placement, parts);
        self.post(chain);
        true
    }

    /// Reads the credit the peer has returned; `None`, and the connection lost, if it is impossible.
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
    fn record_chain(&mut self, placement: &Placement, parts: [&[u8]; 2]) -> Chain {
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

    /// Reads a word of the peer's ring only to learn whether the peer still lives: while its ring is
    /// full there is nothing else to post that would tell.
    fn probe(&mut self) {
        if self.pending.is_empty() {
            let into = self.buffers.take(WORD_BYTES);
            let at = RemoteAddr::new(self.region, self.ring_at);
            self.post(Chain::from(Verb::read(at, into)));
        }
    }

    fn post(&mut self, chain: Chain) {
        let mut completion = self.queue_pair.post(chain);
        if let Some(result) = completion.try_take() {
            self.finish(result);
            return;
        }
        if self.pending.is_empty() {
            // Whoever waits for mail is to poll this completion as well.
            self.news = true;
        }
        self.pending.push_back(completion);
    }

    /// Takes note of the chains that are done.
    fn reap(&mut self) {
        let mut finished = false;
        while let Some(result) = self.pending.front_mut().and_then(Completion::try_take) {
            self.pending.pop_front();
            self.finish(result);
            finished = true;
        }
        if finished && !self.pending.is_empty() {
            // The waker of a waiter went with the completion; it is to poll the next one.
            self.news = true;
        }
    }

    fn finish(&mut self, result: ChainResult) {
        match result {
            Ok(chain) => self.buffers.recycle(chain),
            Err(failed) => {
                self.lose(ChannelError::PeerLost { to: self.to, source: failed.error });
            }
        }
    }

    /// The first reason stays. Dropping completions does not cancel what was posted.
    fn lose(&mut self, reason: ChannelError) {
        self.lost.get_or_insert(reason);
        self.outbox.clear();
        self.pending.clear();
    }

    /// Sets the attention bit to whether there is something to look at on the next poll.
    fn set_attention(&mut self, local: &Local) {
        let wanted = !self.outbox.is_empty() || !self.pending.is_empty();
        if wanted == self.attended {
            return;
        }
        self.attended = wanted;
        let bit = 1_u64 << self.to;
        // Relaxed: published by the own doorbell, or by that of the credit waited for. What the bit
        // stands for is under the lock.
        if wanted {
            local.attention.fetch_or(bit, Ordering::Relaxed);
        } else {
            local.attention.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}
