//! Where memory nodes' processors serve calls, in the baseline that needs it.

use selkie_channels::MailboxDescriptor;

use super::view::Pool;
use crate::document::PoolState;
use crate::error::PoolError;

impl Pool {
    /// Enters the mailbox at which a memory node's processor serves calls, for the baseline that
    /// needs it.
    ///
    /// # Errors
    /// [`PoolError::Directory`] if there is no such memory node, or it has one already.
    pub async fn register_directory(
        &self,
        memory_node: usize,
        mailbox: MailboxDescriptor,
    ) -> Result<(), PoolError> {
        let enter = |state: &mut PoolState| {
            let known = memory_node < state.memory_nodes.len();
            if !known || state.directories.contains_key(&memory_node) {
                return Err(PoolError::Directory { memory_node });
            }
            state.directories.insert(memory_node, (&mailbox).into());
            Ok(())
        };
        self.membership.change(enter).await.map(drop)
    }

    /// The mailbox at which a memory node's processor serves calls, if it does.
    #[must_use]
    pub fn directory_of(&self, memory_node: usize) -> Option<MailboxDescriptor> {
        self.membership.state().directories.get(&memory_node).map(Into::into)
    }
}
