//! What one transaction may hold: leaves, changes for the log.
//!
//! Leaves that a transaction changes stay latched until it ends, so they cannot be evicted, and its
//! changes are one record of the log. Leaves for which the cache has no room move to memory beside
//! it. A transaction beyond a limit is refused by the operation that goes beyond, while it can
//! still roll back. Where changes are deferred, and only recorded so far, that undoes the operation
//! alone.

use selkie_engine::EngineError;

use crate::error::TxnError;
use crate::transaction::txn::Txn;

/// Bytes that the changes of any transaction may take of the process's memory.
const LEAST_CHANGE_MEMORY: u64 = 64 << 20;

impl Txn<'_> {
    /// Whether the transaction has room in the cache for one more leaf that it only reads.
    pub(crate) fn has_room_to_read(&mut self) -> bool {
        self.work.locks.in_cache() < self.work.leaf_room || self.grow_leaf_room()
    }

    /// Makes room for a leaf that was added to those that are held: the transaction gets more of
    /// the cache, or a leaf that it holds exclusively moves out of it.
    #[inline]
    pub(crate) fn fit_leaves(&mut self) -> Result<(), TxnError> {
        if self.work.locks.in_cache() <= self.work.leaf_room || self.grow_leaf_room() {
            return Ok(());
        }
        match self.work.locks.move_out_of_cache() {
            Ok(true) => Ok(()),
            Ok(false) | Err(EngineError::OverflowFull { .. }) => {
                let (need, limit) = (self.work.locks.len(), self.db.leaf_budget.most());
                let table = self.name_of_table(self.work.locks.latest_tree());
                Err(match need > limit {
                    true => TxnError::TooManyLeaves { table, need, limit },
                    false => TxnError::CacheFull { table, limit },
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    #[cold]
    fn grow_leaf_room(&mut self) -> bool {
        let room = self.db.leaf_budget.grow(self.work.leaf_room);
        self.work.leaf_room = room.unwrap_or(self.work.leaf_room);
        room.is_some()
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

    /// Fails if the entries of the write set alone are more than the log can take together, or what
    /// takes the changes back more than the node has memory for. The pages that commit changes may
    /// take more of the log.
    pub(crate) fn check_write_set(&self) -> Result<(), TxnError> {
        let (need, limit) = (self.work.writes.bytes(), self.db.engine.largest_change());
        if need > limit {
            let table = self.name_of_table(self.latest_changed_tree());
            return Err(TxnError::WriteSetTooLarge { table, need, limit });
        }
        let need = self.work.writes.memory() + self.work.undo.memory();
        if need > LEAST_CHANGE_MEMORY {
            let engine = &self.db.engine;
            let beyond = engine.most_beyond_cache() as u64 * engine.gcl_bytes() as u64;
            let limit = beyond.max(LEAST_CHANGE_MEMORY);
            if need > limit {
                let table = self.name_of_table(self.latest_changed_tree());
                return Err(TxnError::TooMuchMemory { table, need, limit });
            }
        }
        Ok(())
    }

    /// The tree of the latest change.
    fn latest_changed_tree(&self) -> Option<usize> {
        let in_place = || self.work.locks.tree_of(self.work.undo.latest_leaf()?);
        self.work.writes.latest_tree().or_else(in_place)
    }

    /// The name of the table of a tree; empty if the transaction has not used it.
    #[cold]
    fn name_of_table(&self, tree: Option<usize>) -> String {
        let index = tree.and_then(|tree| self.db.index_in_use(&self.work.tables, tree));
        index.map_or_else(String::new, |index| index.table().to_owned())
    }
}
