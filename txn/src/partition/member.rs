//! A partition: its mailbox, and who gets the mail.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::{ChannelError, Mailbox, MailboxConfig};
use selkie_fabric::Doorbell;
use selkie_fabric::env::yield_now;

use super::across::Across;
use super::error::PartitionError;
use super::inbox::{Inbox, Letter};
use super::message::{Step, TransactionId, decode, encode};
use super::session;
use crate::database::{Database, Table};
use crate::retry::Retryable;
use crate::transaction::Txn;

/// Bytes of the ring of each sender.
const RING_BYTES: usize = 64 << 10;
/// Messages that wait for a ring with no room: above what all workers of a node may have under way.
const OUTBOX_LIMIT: usize = 1 << 14;
/// Messages taken in before other tasks get a turn.
const MAIL_BUDGET: usize = 64;
/// How long anybody waits for the next message about a transaction, as for a page.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);
/// How often a partition that closes looks whether others are done with it.
const CLOSING_LOOK: Duration = Duration::from_millis(1);

/// What a partition does for others.
pub trait Procedures: Send + Sync + 'static {
    /// Why a request was not executed.
    type Error: Retryable + std::error::Error + Send + 'static;

    /// Executes a request in a transaction, which may have executed others before. An error rolls
    /// it back.
    ///
    /// # Errors
    /// What the request comes to; on one that is to be retried the coordinator is told so.
    fn execute(
        &self,
        txn: &mut Txn<'_>,
        request: &[u8],
    ) -> impl Future<Output = Result<Vec<u8>, Self::Error>> + Send;
}

/// What a partition is made of.
pub struct Member<P> {
    /// The database on its node; two-phase locked.
    pub db: Database,
    /// Its own [`ledger`](super::ledger).
    pub ledger: Table,
    /// What it does for others.
    pub procedures: P,
}

/// A partition on its node. A cheap handle.
pub struct Partition<P>(Arc<Shared<P>>);

impl<P> Clone for Partition<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

pub(super) struct Shared<P> {
    pub(super) me: usize,
    pub(super) member: Member<P>,
    mailbox: Arc<Mailbox>,
    /// Of the transactions that wait for messages: those that began here, and those executed here
    /// for others.
    inboxes: Mutex<HashMap<TransactionId, Arc<Inbox>>>,
    sequence: AtomicU64,
    stop: Arc<Doorbell>,
}

impl<P: Procedures> Partition<P> {
    /// Opens partitions, numbered in the order of the members, and connects each to all others. No
    /// round trip.
    ///
    /// # Errors
    /// [`PartitionError::Message`] if a mailbox cannot be opened or connected.
    pub fn connect(
        members: impl IntoIterator<Item = Member<P>>,
    ) -> Result<Vec<Self>, PartitionError> {
        let members: Vec<_> = members.into_iter().collect();
        let shape = MailboxConfig {
            peers: members.len(),
            ring_bytes: RING_BYTES,
            outbox_limit: OUTBOX_LIMIT,
        };
        let failed = |partition| move |source| PartitionError::Message { partition, source };
        let mut partitions = Vec::with_capacity(members.len());
        for (me, member) in members.into_iter().enumerate() {
            let mailbox = Mailbox::open(member.db.engine().endpoint(), me, shape);
            let mailbox = Arc::new(mailbox.map_err(failed(me))?);
            let (inboxes, sequence, stop) = (Mutex::default(), AtomicU64::new(1), Arc::default());
            let shared = Shared { me, member, mailbox, inboxes, sequence, stop };
            partitions.push(Self(Arc::new(shared)));
        }
        for (from, one) in partitions.iter().enumerate() {
            let endpoint = one.0.member.db.engine().endpoint();
            for (to, other) in partitions.iter().enumerate().filter(|(to, _)| *to != from) {
                let mailbox = other.0.mailbox.descriptor();
                one.0.mailbox.connect(to, &mailbox, endpoint).map_err(failed(to))?;
            }
        }
        for Self(shared) in &partitions {
            drop(
                shared
                    .member
                    .db
                    .engine()
                    .env()
                    .spawn("partition", run_mail(Arc::downgrade(shared))),
            );
        }
        Ok(partitions)
    }

    /// Begins a transaction, which may involve other partitions. No message. `worker` has no other
    /// under way.
    #[must_use]
    pub fn begin(&self, worker: u32) -> Across<'_, P> {
        // Relaxed: only that no number is given twice.
        let sequence = self.0.sequence.fetch_add(1, Ordering::Relaxed);
        Across::new(&self.0, TransactionId { coordinator: self.0.me, worker, sequence })
    }

    /// Stops taking messages in, once nothing is executed here for others any more.
    ///
    /// # Errors
    /// [`PartitionError::Silent`] with this partition if others have not ended a transaction here
    /// in time.
    pub async fn close(&self) -> Result<(), PartitionError> {
        let Shared { me, member, inboxes, stop, .. } = &*self.0;
        let env = member.db.engine().env();
        let started = env.now();
        while !inboxes.lock().is_empty() {
            let waited = env.now() - started;
            if waited > PATIENCE {
                return Err(PartitionError::Silent { partition: *me, waited });
            }
            env.sleep(CLOSING_LOOK).await;
        }
        stop.ring();
        Ok(())
    }
}

impl<P: Procedures> Shared<P> {
    /// Sends a message about a transaction. Does not wait.
    pub(super) fn send(
        &self,
        to: usize,
        step: Step,
        id: TransactionId,
        payload: &[u8],
    ) -> Result<(), PartitionError> {
        let sent = self.mailbox.send(to, &encode(step, id), payload);
        sent.map_err(|source| PartitionError::Message { partition: to, source })
    }

    /// Mail about the transaction goes to this inbox from now on.
    pub(super) fn enter(&self, id: TransactionId, inbox: &Arc<Inbox>) {
        self.inboxes.lock().insert(id, Arc::clone(inbox));
    }

    /// There will be no more mail about the transaction that anybody waits for.
    pub(super) fn leave(&self, id: TransactionId) {
        self.inboxes.lock().remove(&id);
    }

    /// Gives a message to whom it is for. Requests of a transaction that is not known here begin
    /// it.
    fn receive(self: &Arc<Self>, from: usize, bytes: &[u8]) -> Result<(), PartitionError> {
        let Some((step, id, payload)) = decode(bytes, from, self.me) else {
            let what = "a damaged message".to_owned();
            return Err(PartitionError::Failed { partition: from, what });
        };
        let letter = Letter { from, step, payload: payload.into() };
        let inbox = self.inboxes.lock().get(&id).cloned();
        match (inbox, step) {
            (Some(inbox), _) => inbox.push(letter),
            (None, Step::Work) => {
                let inbox = Arc::new(Inbox::default());
                inbox.push(letter);
                self.enter(id, &inbox);
                let env = self.member.db.engine().env();
                drop(env.spawn("participant", session::run(Arc::clone(self), id, inbox)));
            }
            // It has been rolled back here in the meantime.
            (None, Step::Prepare) => self.send(from, Step::Refused, id, &[])?,
            // Nobody waits for it any more.
            (None, _) => {}
        }
        Ok(())
    }

    /// Tells all who wait for messages that there will be none.
    fn fail_all(&self, why: &impl ToString) {
        for inbox in self.inboxes.lock().values() {
            let payload = why.to_string().into_bytes().into();
            inbox.push(Letter { from: self.me, step: Step::Failed, payload });
        }
    }
}

impl<P> Drop for Shared<P> {
    fn drop(&mut self) {
        self.stop.ring();
    }
}

/// Takes messages in until the partition is closed or gone.
async fn run_mail<P: Procedures>(partition: Weak<Shared<P>>) {
    let Some((mailbox, stop)) =
        partition.upgrade().map(|shared| (Arc::clone(&shared.mailbox), Arc::clone(&shared.stop)))
    else {
        return;
    };
    loop {
        let Some(shared) = partition.upgrade() else { return };
        let polled = poll(&shared, &mailbox);
        let taken = match polled {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(partition = shared.me, %error, "no more messages are taken in");
                return shared.fail_all(&error);
            }
        };
        drop(shared);
        if taken == MAIL_BUDGET {
            yield_now().await;
            continue;
        }
        either(mailbox.wait_mail(), async {
            stop.wait_past(0).await;
        })
        .await;
        if stop.count() > 0 {
            return;
        }
    }
}

/// Takes in what is there, up to the budget; how many messages it was.
fn poll<P: Procedures>(
    shared: &Arc<Shared<P>>,
    mailbox: &Mailbox,
) -> Result<usize, PartitionError> {
    let mut broken = None;
    let polled = mailbox.poll(MAIL_BUDGET, &mut |from, bytes| {
        if let Err(error) = shared.receive(from, bytes) {
            broken.get_or_insert(error);
        }
    });
    let failed = |source: ChannelError| PartitionError::Message { partition: shared.me, source };
    broken.map_or_else(|| polled.map_err(failed), Err)
}

/// Waits for the first of two futures.
async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|context| {
        let is_over = a.as_mut().poll(context).is_ready() || b.as_mut().poll(context).is_ready();
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
