//! Mailboxes of a node: how messages reach other compute nodes and directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use selkie_channels::{ChannelError, Mailbox, MailboxDescriptor};
use selkie_fabric::Endpoint;
use selkie_pool::{ComputeIndex, Pool};

use super::word::{ComputeId, MAX_COMPUTE_NODES};
use crate::EngineError;

/// Sends the messages of one node.
pub(crate) struct Messenger {
    me: ComputeId,
    endpoint: Arc<dyn Endpoint>,
    pool: Arc<Pool>,
    /// Each for a share of the peers, see [`Messenger::mailbox_for`].
    mailboxes: Box<[Arc<Mailbox>]>,
    /// By compute node, the incarnation of it to which the mailboxes here belong; 0 if none.
    known: Box<[AtomicU32]>,
}

impl Messenger {
    pub(crate) fn new(
        me: ComputeId,
        endpoint: &Arc<dyn Endpoint>,
        pool: &Arc<Pool>,
        mailboxes: Box<[Arc<Mailbox>]>,
    ) -> Self {
        assert!(!mailboxes.is_empty(), "a node has at least one mailbox");
        Self {
            me,
            endpoint: Arc::clone(endpoint),
            pool: Arc::clone(pool),
            mailboxes,
            known: (0..MAX_COMPUTE_NODES).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    pub(crate) fn mailboxes(&self) -> &[Arc<Mailbox>] {
        &self.mailboxes
    }

    /// The mailbox in which messages of this peer arrive, and by which those to it leave.
    #[expect(clippy::indexing_slicing, reason = "a remainder of the count; there is at least one")]
    pub(crate) fn mailbox_for(&self, peer: usize) -> &Mailbox {
        &self.mailboxes[peer % self.mailboxes.len()]
    }

    /// The incarnation of a compute node to which the mailboxes here belong, 0 if none; `None` if
    /// no node has such an index.
    pub(crate) fn known_incarnation(&self, node: usize) -> Option<u32> {
        Some(self.known.get(node)?.load(Ordering::Acquire))
    }

    /// The mailboxes belong to this incarnation of a node from now on.
    pub(crate) fn note_incarnation(&self, node: usize, incarnation: u32) {
        if let Some(known) = self.known.get(node) {
            known.store(incarnation, Ordering::Release);
        }
    }

    /// Puts a message into `to`'s mailbox. Does not wait.
    pub(crate) fn deliver(
        &self,
        to: ComputeId,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let descriptor = || {
            let index = ComputeIndex::new(to.index() as u16);
            // A new node with the index of another is not known before the connections to that one
            // are gone.
            let known = self.known_incarnation(to.index())?;
            self.pool.mailbox_of_incarnation(index, known, self.me.index())
        };
        self.deliver_to(to.index(), descriptor, header, page)
    }

    /// Puts a message into the mailbox of a memory node's directory. Does not wait.
    pub(crate) fn deliver_to_directory(
        &self,
        memory_node: usize,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let slot = self.pool.descriptor().max_compute_nodes + memory_node;
        self.deliver_to(slot, || self.pool.directory_of(memory_node), header, page)
    }

    fn deliver_to(
        &self,
        to: usize,
        descriptor: impl FnOnce() -> Option<MailboxDescriptor>,
        header: &[u8],
        page: &[u8],
    ) -> Result<(), EngineError> {
        let failed = |source| EngineError::Message { to, source };
        let mailbox = self.mailbox_for(to);
        match mailbox.send(to, header, page) {
            Err(ChannelError::NotConnected { .. }) => {}
            sent => return sent.map_err(failed),
        }
        match mailbox.connect_by(to, &self.endpoint, descriptor) {
            // Another thread may have been faster.
            Ok(true) | Err(ChannelError::AlreadyConnected { .. }) => {}
            Ok(false) => return Err(EngineError::PeerGone { node: to }),
            Err(error) => return Err(failed(error)),
        }
        mailbox.send(to, header, page).map_err(failed)
    }
}
