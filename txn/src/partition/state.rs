//! What a partition keeps on its node: its mailbox, and the inboxes of its transactions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::Mailbox;
use selkie_fabric::Doorbell;

use super::error::PartitionError;
use super::inbox::{Inbox, InboxMessage};
use super::member::Member;
use super::message::{MessageKind, TransactionId, encode};

/// How long a task waits for the next message about a transaction; as long as for a page.
pub(super) const MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The state behind the handles of a partition.
pub(super) struct PartitionState<P> {
    pub(super) me: usize,
    pub(super) member: Member<P>,
    mailbox: Arc<Mailbox>,
    /// The inboxes of transactions that wait for messages: those that began here, and those
    /// executed here for others.
    inboxes: Mutex<HashMap<TransactionId, Arc<Inbox>>>,
    /// The next transaction that begins here.
    next_sequence: AtomicU64,
    /// Rung when the partition is closed.
    stop: Arc<Doorbell>,
}

impl<P> PartitionState<P> {
    pub(super) fn new(me: usize, member: Member<P>, mailbox: Arc<Mailbox>) -> Self {
        let (inboxes, next_sequence, stop) = (Mutex::default(), AtomicU64::new(1), Arc::default());
        Self { me, member, mailbox, inboxes, next_sequence, stop }
    }

    pub(super) fn mailbox(&self) -> &Arc<Mailbox> {
        &self.mailbox
    }

    pub(super) fn stop(&self) -> &Arc<Doorbell> {
        &self.stop
    }

    /// The number of a transaction that begins here.
    pub(super) fn next_transaction(&self, worker: u32) -> TransactionId {
        // Relaxed: only that no number is given twice.
        let sequence = self.next_sequence.fetch_add(1, Ordering::Relaxed);
        TransactionId { coordinator: self.me, worker, sequence }
    }

    /// Whether no transaction waits for messages here.
    pub(super) fn is_idle(&self) -> bool {
        self.inboxes.lock().is_empty()
    }

    /// The inbox of a transaction that waits for messages here.
    pub(super) fn inbox(&self, id: TransactionId) -> Option<Arc<Inbox>> {
        self.inboxes.lock().get(&id).cloned()
    }

    /// Sends a message about a transaction. Does not wait.
    pub(super) fn send(
        &self,
        to: usize,
        kind: MessageKind,
        id: TransactionId,
        payload: &[u8],
    ) -> Result<(), PartitionError> {
        let sent = self.mailbox.send(to, &encode(kind, id), payload);
        sent.map_err(|source| PartitionError::Message { partition: to, source })
    }

    /// From now on, messages about the transaction go to this inbox.
    pub(super) fn enter(&self, id: TransactionId, inbox: &Arc<Inbox>) {
        self.inboxes.lock().insert(id, Arc::clone(inbox));
    }

    /// From now on, messages about the transaction are ignored.
    pub(super) fn leave(&self, id: TransactionId) {
        self.inboxes.lock().remove(&id);
    }

    /// Fails all transactions that wait for messages: none will arrive.
    pub(super) fn fail_all(&self, why: &impl ToString) {
        for inbox in self.inboxes.lock().values() {
            let payload = why.to_string().into_bytes().into();
            inbox.push(InboxMessage { from: self.me, kind: MessageKind::Failed, payload });
        }
    }
}

impl<P> Drop for PartitionState<P> {
    fn drop(&mut self) {
        self.stop.ring();
    }
}
