//! A partition on its node: connecting partitions, beginning transactions, closing.

use std::sync::Arc;
use std::time::Duration;

use selkie_channels::{Mailbox, MailboxConfig};

use super::coordinator::DistributedTxn;
use super::error::PartitionError;
use super::mail::run_mail;
use super::member::{Member, Procedures};
use super::state::{MESSAGE_TIMEOUT, PartitionState};

/// Bytes of the ring of each sender.
const RING_BYTES: usize = 64 << 10;
/// Messages that wait for room in a ring: more than all workers of a node may have under way.
const OUTBOX_LIMIT: usize = 1 << 14;
/// How often a partition that closes checks whether others are done with it.
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A partition on its node. A cheap handle.
pub struct Partition<P>(Arc<PartitionState<P>>);

impl<P> Clone for Partition<P> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
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
            partitions.push(Self(Arc::new(PartitionState::new(me, member, mailbox))));
        }
        for (from, one) in partitions.iter().enumerate() {
            let endpoint = one.0.member.db.engine().endpoint();
            for (to, other) in partitions.iter().enumerate().filter(|(to, _)| *to != from) {
                let mailbox = other.0.mailbox().descriptor();
                one.0.mailbox().connect(to, &mailbox, endpoint).map_err(failed(to))?;
            }
        }
        for Self(state) in &partitions {
            let env = state.member.db.engine().env();
            // Detached: the task ends when the partition is closed or dropped.
            drop(env.spawn("partition", run_mail(Arc::downgrade(state))));
        }
        Ok(partitions)
    }

    /// Begins a transaction, which may involve other partitions. No message. A worker has at most
    /// one such transaction at a time.
    #[must_use]
    pub fn begin(&self, worker: u32) -> DistributedTxn<'_, P> {
        DistributedTxn::new(&self.0, self.0.next_transaction(worker))
    }

    /// Stops taking messages in, once no transaction of others is executed here.
    ///
    /// # Errors
    /// [`PartitionError::Silent`] with this partition if others have not ended a transaction here
    /// in time.
    pub async fn close(&self) -> Result<(), PartitionError> {
        let state = &self.0;
        let env = state.member.db.engine().env();
        let started = env.now();
        while !state.is_idle() {
            let waited = env.now() - started;
            if waited > MESSAGE_TIMEOUT {
                return Err(PartitionError::Silent { partition: state.me, waited });
            }
            env.sleep(CLOSE_POLL_INTERVAL).await;
        }
        state.stop().ring();
        Ok(())
    }
}
