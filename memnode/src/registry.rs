//! Who is in the pool: the mailboxes of every compute node, by index. Control plane, not in any data path.

use crate::error::PoolError;
use parking_lot::RwLock;
use selkie_channels::MailboxDescriptor;
use std::fmt;

/// Index of a compute node in its pool, below [`crate::PoolConfig::max_compute_nodes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeIndex(u16);

impl ComputeIndex {
    /// The compute node of this index. The pool checks it against its own limit.
    #[must_use]
    pub const fn new(index: u16) -> Self {
        Self(index)
    }

    /// The index as a number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The index as a position in a table.
    #[must_use]
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ComputeIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One slot a compute node, filled while the node is in the pool, and one a memory node, filled if its
/// processor serves calls.
pub(crate) struct Registry {
    slots: RwLock<Vec<Option<Vec<MailboxDescriptor>>>>,
    directories: RwLock<Vec<Option<MailboxDescriptor>>>,
}

impl Registry {
    pub(crate) fn new(limit: usize, memory_nodes: usize) -> Self {
        let directories = RwLock::new(vec![None; memory_nodes]);
        Self { slots: RwLock::new(vec![None; limit]), directories }
    }

    pub(crate) fn register_directory(&self, node: usize, mailbox: MailboxDescriptor) -> bool {
        let mut directories = self.directories.write();
        let slot = directories.get_mut(node).filter(|slot| slot.is_none());
        slot.map(|slot| *slot = Some(mailbox)).is_some()
    }

    pub(crate) fn directory_of(&self, node: usize) -> Option<MailboxDescriptor> {
        self.directories.read().get(node)?.clone()
    }

    pub(crate) fn register(
        &self,
        node: ComputeIndex,
        mailboxes: Vec<MailboxDescriptor>,
    ) -> Result<(), PoolError> {
        let mut slots = self.slots.write();
        let limit = slots.len();
        match slots.get_mut(node.as_usize()) {
            None => Err(PoolError::UnknownCompute { node, limit }),
            Some(Some(_)) => Err(PoolError::DuplicateCompute { node }),
            Some(slot) => {
                *slot = Some(mailboxes);
                Ok(())
            }
        }
    }

    pub(crate) fn leave(&self, node: ComputeIndex) -> Result<(), PoolError> {
        let mut slots = self.slots.write();
        let limit = slots.len();
        let slot =
            slots.get_mut(node.as_usize()).ok_or(PoolError::UnknownCompute { node, limit })?;
        slot.take().map(drop).ok_or(PoolError::NotRegistered { node })
    }

    pub(crate) fn mailbox_of(
        &self,
        node: ComputeIndex,
        sender: usize,
    ) -> Option<MailboxDescriptor> {
        let slots = self.slots.read();
        let mailboxes = slots.get(node.as_usize())?.as_ref()?;
        mailboxes.get(sender.checked_rem(mailboxes.len())?).cloned()
    }

    pub(crate) fn is_member(&self, node: ComputeIndex) -> bool {
        self.slots.read().get(node.as_usize()).is_some_and(Option::is_some)
    }

    pub(crate) fn members(&self) -> Vec<ComputeIndex> {
        let slots = self.slots.read();
        (0_u16..)
            .zip(slots.iter())
            .filter(|(_, s)| s.is_some())
            .map(|(i, _)| ComputeIndex(i))
            .collect()
    }
}
