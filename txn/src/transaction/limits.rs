//! What one transaction may hold: leaves, changes for the log.
//!
//! Leaves that a transaction changes stay latched until it ends, so they cannot be evicted, and its
//! changes are one record of the log. Leaves for which the cache has no room move to memory beside
//! it. A transaction beyond a limit is refused by the operation that goes beyond, while it can
//! still roll back.

use selkie_engine::EngineError;

use crate::error::TxnError;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Makes sure that the transaction may hold one more leaf.
    #[inline]
    pub(crate) fn admit_leaf(&mut self) -> Result<(), TxnError> {
        if self.work.locks.in_cache() >= self.work.leaf_room {
            self.make_room_for_leaf()?;
        }
        Ok(())
    }

    /// Lets the transaction have more of the cache, or moves a leaf that it holds out of it.
    fn make_room_for_leaf(&mut self) -> Result<(), TxnError> {
        if let Some(room) = self.db.leaf_budget.grow(self.work.leaf_room) {
            self.work.leaf_room = room;
            return Ok(());
        }
        match self.work.locks.move_out_of_cache() {
            Ok(true) => Ok(()),
            Ok(false) | Err(EngineError::OverflowFull { .. }) => {
                let (need, limit) = (self.work.locks.len() + 1, self.db.leaf_budget.most());
                Err(match need > limit {
                    true => TxnError::TooManyLeaves { need, limit },
                    false => TxnError::CacheFull { limit },
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sure that the log has room for what was changed, and for what one step of an operation
    /// changes at most: both halves of a split, whole. Another page is for the headers in the
    /// record.
    #[inline]
    pub(crate) fn admit_change(&mut self) -> Result<(), TxnError> {
        let need = self.log_need();
        if need > self.work.log_room.bytes() {
            self.db.engine.reserve_log(&mut self.work.log_room, need)?;
        }
        Ok(())
    }

    /// Room in the log for what was changed and for one more step.
    #[inline]
    pub(super) fn log_need(&self) -> u64 {
        self.work.locks.change_bytes() + 3 * self.db.engine.gcl_bytes() as u64
    }

    /// Fails if the entries of the write set alone are more than the log can take together. The
    /// pages that commit changes may take more.
    pub(crate) fn check_write_set(&self) -> Result<(), TxnError> {
        let (need, limit) = (self.work.writes.bytes(), self.db.engine.largest_change());
        if need > limit {
            return Err(EngineError::ChangeTooLarge { need, limit }.into());
        }
        Ok(())
    }
}
