//! `Mailbox`: many senders, one receiver, one-sided writes only.
//!
//! ```text
//! node 1                                      node 2
//! send(2, m) --[WRITE message; WRITE header, ring]--> ring of 1 --poll--> f(1, m)
//! credit of 2 <------[WRITE credit, ring]------------------------------- now and then
//! ```
//! The receiver returns credit when it owes a quarter of the ring, or when it finds the ring empty
//! and owes more than a sixteenth; the credit that it then keeps back never stalls a sender
//! (`config` asserts it). A message that finds the ring full waits in the sender's outbox; credit
//! rings the sender's doorbell, and its next poll flushes the outbox.
//!
//! # No mail is missed
//! Every message and every credit rings the doorbell of the region it is written to. `poll` reads
//! the doorbell's count *before* it looks at anything and keeps it in `seen`; `wait_mail` waits for
//! the count to pass `seen`. So:
//!
//! - Mail that was rung for before `poll` read the count is found by that poll, or is left because
//!   the budget was used up; then `poll` itself rings, and no receiver sleeps.
//! - Mail that is rung for later, during the poll too, moves the count past `seen`: a wait returns
//!   at once. At worst it returns for mail that the poll has already taken.
//! - Of several threads in `poll` one drains and the others get 0. They may then wait: what the
//!   drainer misses was rung for after it read the count, which is `seen`. So they come back at
//!   once, at worst while it still drains; `wait_mail` yields once in that case.
//!
//! # Locks
//! `poll` holds the receiver's lock while it calls `f`, and no thread waits for that lock. A
//! connection's lock is held for one post and never while `f` runs. So `f` may send.
//!
//! # Indexes that are used again
//! An index may get a new owner. Once nothing of the old owner can arrive any more, and before the
//! new one sends, [`Mailbox::renew`] resets its ring and its credit. Sending to oneself is refused.

use crate::config::{MailboxConfig, MailboxDescriptor, credit_offset, ring_offset};
use crate::connection::{Connection, Local};
use crate::error::ChannelError;
use crate::record::MAX_MESSAGE_BYTES;
use crate::ring_reader::RingReader;
use parking_lot::{Mutex, RwLock};
use selkie_fabric::{Endpoint, PeerId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

/// Called with the sender and the message.
type Handler<'a> = &'a mut dyn FnMut(usize, &[u8]);

/// Receives messages from many nodes, and sends to them. See the module for how.
pub struct Mailbox {
    me: usize,
    peer: PeerId,
    config: MailboxConfig,
    local: Arc<Local>,
    /// The doorbell's count before the last poll looked at anything.
    seen: AtomicU64,
    connections: Vec<RwLock<Option<Arc<Connection>>>>,
    receiver: Mutex<Receiver>,
}

/// How many messages had been sent to each peer; see [`Mailbox::mark`].
#[derive(Clone, Debug)]
pub struct SentMark(Vec<u64>);

/// The state that only the drainer uses.
struct Receiver {
    /// By sender; `None` for this node itself, and for a sender whose ring is damaged.
    rings: Vec<Option<RingReader>>,
    /// The ring to look at first, so that a busy sender does not shut out the others.
    first: usize,
    message: Vec<u8>,
}

impl Mailbox {
    /// Registers the mailbox of node `me` (its index among the peers) at `endpoint`. No round
    /// trips.
    ///
    /// # Errors
    /// [`ChannelError::Config`] for a bad field, [`ChannelError::Fabric`] if the region is refused.
    pub fn open(
        endpoint: &Arc<dyn Endpoint>,
        me: usize,
        config: MailboxConfig,
    ) -> Result<Self, ChannelError> {
        config.validate(me)?;
        let region = endpoint.register(config.region_bytes())?;
        let ring_bytes = config.ring_bytes as u64;
        let rings = (0..config.peers)
            .map(|slot| {
                (slot != me).then(|| RingReader::new(ring_offset(slot, ring_bytes), ring_bytes))
            })
            .collect();
        Ok(Self {
            me,
            peer: endpoint.id(),
            config,
            local: Arc::new(Local { region, attention: AtomicU64::new(0) }),
            seen: AtomicU64::new(0),
            connections: (0..config.peers).map(|_| RwLock::default()).collect(),
            receiver: Mutex::new(Receiver { rings, first: 0, message: Vec::new() }),
        })
    }

    /// How others reach this mailbox.
    #[must_use]
    pub fn descriptor(&self) -> MailboxDescriptor {
        MailboxDescriptor {
            peer: self.peer,
            region: self.local.region.key(),
            ring_bytes: self.config.ring_bytes as u64,
            // At most MAX_PEERS.
            peers: self.config.peers as u32,
        }
    }

    /// Connects to mailbox `to`; once, before the first send to it. Also needed to receive more
    /// than a ring from it, because credit goes the same way. No round trips.
    ///
    /// # Errors
    /// [`ChannelError::ToSelf`], [`ChannelError::UnknownPeer`], [`ChannelError::AlreadyConnected`],
    /// [`ChannelError::Config`] if the descriptor has no slot for this node,
    /// [`ChannelError::Fabric`].
    pub fn connect(
        &self,
        to: usize,
        mailbox: &MailboxDescriptor,
        endpoint: &Arc<dyn Endpoint>,
    ) -> Result<(), ChannelError> {
        self.connect_by(to, endpoint, || Some(mailbox.clone())).map(drop)
    }

    /// As [`Mailbox::connect`], to the mailbox that `find` names; `false` if there is none. No
    /// [`Mailbox::renew`] happens between the two.
    ///
    /// # Errors
    /// As [`Mailbox::connect`].
    pub fn connect_by(
        &self,
        to: usize,
        endpoint: &Arc<dyn Endpoint>,
        find: impl FnOnce() -> Option<MailboxDescriptor>,
    ) -> Result<bool, ChannelError> {
        let mut slot = self.slot(to)?.write();
        if slot.is_some() {
            return Err(ChannelError::AlreadyConnected { to });
        }
        let Some(mailbox) = find() else { return Ok(false) };
        mailbox.validate(self.me)?;
        let queue_pair = endpoint.connect(mailbox.peer)?;
        let limit = self.config.outbox_limit;
        *slot = Some(Connection::new(self.me, to, &mailbox, queue_pair, limit, &self.local));
        drop(slot);
        // Credit may have been due before there was a way to return it.
        self.local.region.doorbell().ring();
        Ok(true)
    }

    /// Sends a message: `header` and `payload`, one behind the other, at most
    /// [`MAX_MESSAGE_BYTES`]. Never blocks; one chain, whose outcome is not waited for. Messages to
    /// one peer arrive in the order of the calls. If the peer's ring is full the message waits in
    /// the outbox for a later `send` or `poll`.
    ///
    /// # Errors
    /// [`ChannelError::PeerLost`] if this or an earlier write to the peer failed (for good),
    /// [`ChannelError::OutboxFull`] if the message was not taken and may be offered again,
    /// [`ChannelError::MessageTooLong`], [`ChannelError::NotConnected`], [`ChannelError::ToSelf`],
    /// [`ChannelError::UnknownPeer`], [`ChannelError::DamagedCredit`] (for good).
    pub fn send(&self, to: usize, header: &[u8], payload: &[u8]) -> Result<(), ChannelError> {
        let connection = self.slot(to)?.read().clone();
        let connection = connection.ok_or(ChannelError::NotConnected { to })?;
        let bytes = header.len() + payload.len();
        if bytes > MAX_MESSAGE_BYTES {
            return Err(ChannelError::MessageTooLong { bytes, limit: MAX_MESSAGE_BYTES });
        }
        connection.send([header, payload])
    }

    /// Whether there is a connection to mailbox `to`.
    #[must_use]
    pub fn is_connected(&self, to: usize) -> bool {
        self.connection(to).is_some()
    }

    /// Whether the connection to mailbox `to` is lost, as a write to the peer failed.
    #[must_use]
    pub fn has_lost(&self, to: usize) -> bool {
        self.connection(to).is_some_and(|connection| connection.has_lost_peer())
    }

    fn connection(&self, to: usize) -> Option<Arc<Connection>> {
        self.connections.get(to)?.read().clone()
    }

    /// Forgets the peer `of`, for the next one of that index: its mail that was not polled, what
    /// waits to be sent to it, what the two owe each other. Nothing that the peer sent may arrive
    /// from then on, and the next one must not send before this returns. Waits for a poll under
    /// way.
    ///
    /// # Errors
    /// [`ChannelError::ToSelf`], [`ChannelError::UnknownPeer`].
    pub fn renew(&self, of: usize) -> Result<(), ChannelError> {
        let slot = self.slot(of)?;
        let mut receiver = self.receiver.lock();
        let before = slot.write().take();
        let ring_bytes = self.config.ring_bytes as u64;
        let ring_at = ring_offset(of, ring_bytes);
        self.local.attention.fetch_and(!(1 << of), Ordering::Relaxed);
        self.local.region.store(ring_at as usize, 0);
        self.local.region.store(credit_offset(of) as usize, 0);
        if let Some(ring) = receiver.rings.get_mut(of) {
            *ring = Some(RingReader::new(ring_at, ring_bytes));
        }
        drop(receiver);
        // Its chains may still be under way, and wake tasks.
        drop(before);
        Ok(())
    }

    /// Closes the connection to the peer `of`, which is gone, and drops the messages that wait for
    /// it. Its index needs [`Mailbox::renew`] before another peer may have it.
    ///
    /// # Errors
    /// [`ChannelError::ToSelf`], [`ChannelError::UnknownPeer`].
    pub fn disconnect(&self, of: usize) -> Result<(), ChannelError> {
        let before = self.slot(of)?.write().take();
        // Its chains may still be under way, and wake tasks.
        drop(before);
        Ok(())
    }

    /// Receives up to `budget` messages, hands each to `f` with its sender, returns credit and
    /// flushes outboxes. Never blocks. Returns how many it handed over; 0 also if another thread
    /// is in `poll`. `f` may send, but must not wait for another poll.
    ///
    /// # Errors
    /// [`ChannelError::DamagedRecord`] once for each sender whose ring is damaged. The messages
    /// before it, and those of the other senders, have been handed over.
    pub fn poll(&self, budget: usize, f: Handler<'_>) -> Result<usize, ChannelError> {
        let Some(mut receiver) = self.receiver.try_lock() else { return Ok(0) };
        let doorbell = self.local.region.doorbell();
        // Before anything is looked at. Release: pairs with `wait_mail`.
        self.seen.store(doorbell.count(), Ordering::Release);
        self.attend();
        let drained = receiver.drain(self, budget, f);
        if drained.as_ref().map_or(true, |taken| *taken == budget) {
            // There may be more, and its rings have been counted already.
            doorbell.ring();
        }
        drained
    }

    /// Whether a message of the peer `from` waits to be handled, or another thread is handling one.
    /// If not, all earlier messages of that peer are handled.
    #[must_use]
    pub fn has_mail_from(&self, from: usize) -> bool {
        let Some(receiver) = self.receiver.try_lock() else { return true };
        let ring = receiver.rings.get(from).and_then(Option::as_ref);
        let has_mail = ring.is_some_and(|ring| !ring.is_empty(&*self.local.region));
        drop(receiver);
        if has_mail {
            // A sender that died may have written without ringing.
            self.local.region.doorbell().ring();
        }
        has_mail
    }

    /// What has been sent so far, for [`Mailbox::is_through`].
    #[must_use]
    pub fn mark(&self) -> SentMark {
        let taken = (0..self.connections.len()).map(|to| self.connection(to).map(|c| c.taken()));
        SentMark(taken.map(Option::unwrap_or_default).collect())
    }

    /// Whether all messages that were sent before the mark to peers that `matters` selects have
    /// arrived, so that a poll there finds them, or never will, as the peer is lost.
    #[must_use]
    pub fn is_through(&self, mark: &SentMark, matters: impl Fn(usize) -> bool) -> bool {
        mark.0.iter().enumerate().filter(|(to, taken)| **taken > 0 && matters(*to)).all(
            |(to, taken)| self.connection(to).is_none_or(|connection| connection.has_sent(*taken)),
        )
    }

    /// Returns when there may be mail, credit, or news of what was sent; then `poll`. Returns at
    /// once if something came since the last poll, during it included. Cancel safe.
    ///
    /// No task needs to wait for what was sent: its completions are taken in as they come, and only
    /// a failure, or room for a message or credit that waited for it, ends the wait.
    pub fn wait_mail(&self) -> impl Future<Output = ()> + Send {
        // Acquire: pairs with `poll`.
        let seen = self.seen.load(Ordering::Acquire);
        async move {
            let mut rung = pin!(self.local.region.doorbell().wait_past(seen));
            let mut yielded = false;
            poll_fn(|context| {
                if rung.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                if !yielded && self.receiver.is_locked() {
                    yielded = true;
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
        }
    }

    fn slot(&self, to: usize) -> Result<&RwLock<Option<Arc<Connection>>>, ChannelError> {
        if to == self.me {
            return Err(ChannelError::ToSelf { me: to });
        }
        let peers = self.config.peers;
        self.connections.get(to).ok_or(ChannelError::UnknownPeer { peer: to, peers })
    }

    /// Sends what waits in outboxes.
    fn attend(&self) {
        let bits = self.local.attention.load(Ordering::Relaxed);
        let wanted = move |slot: &usize| bits >> slot & 1 == 1;
        for slot in (bits.trailing_zeros() as usize..self.connections.len()).filter(wanted) {
            if let Some(connection) = self.connection(slot) {
                connection.attend();
            }
        }
    }

    /// `false` if the credit could not be returned yet.
    fn return_credit(&self, to: usize, credit: u64) -> bool {
        self.connection(to).is_some_and(|connection| connection.return_credit(credit))
    }
}

impl Receiver {
    /// Hands over up to `budget` messages, sender by sender.
    fn drain(
        &mut self,
        mailbox: &Mailbox,
        budget: usize,
        f: Handler<'_>,
    ) -> Result<usize, ChannelError> {
        let senders = self.rings.len();
        let mut taken = 0;
        let mut damaged = None;
        let first = self.first;
        for from in (first..senders).chain(0..first) {
            if taken == budget {
                break;
            }
            let Some(slot) = self.rings.get_mut(from) else { continue };
            let Some(ring) = slot else { continue };
            match drain_ring(ring, mailbox, from, budget - taken, &mut self.message, f) {
                Ok(count) => taken += count,
                Err(error) if damaged.is_none() => {
                    // Nothing behind the damage can be trusted.
                    *slot = None;
                    damaged = Some(error);
                }
                // The next poll comes upon it again and reports it.
                Err(_) => {}
            }
            if taken == budget {
                self.first = (from + 1) % senders;
            }
        }
        damaged.map_or(Ok(taken), Err)
    }
}

/// Hands over up to `budget` messages of one sender, and returns the credit that is due.
fn drain_ring(
    ring: &mut RingReader,
    mailbox: &Mailbox,
    from: usize,
    budget: usize,
    message: &mut Vec<u8>,
    f: Handler<'_>,
) -> Result<usize, ChannelError> {
    let mut taken = 0;
    loop {
        let found = taken < budget
            && ring.next(&*mailbox.local.region, message).map_err(|damage| {
                let (offset, word) = (damage.offset, damage.word);
                ChannelError::DamagedRecord { from, offset, word }
            })?;
        let idle = !found && taken < budget;
        if let Some(credit) = ring.credit_due(idle)
            && mailbox.return_credit(from, credit)
        {
            ring.credit_returned(credit);
        }
        if !found {
            return Ok(taken);
        }
        taken += 1;
        f(from, message);
    }
}
