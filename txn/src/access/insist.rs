//! Transactions that have lost to others again and again, and lock all that they read.
//!
//! Under [`Serializable`](crate::Isolation::Serializable) and
//! [`ReadCommitted`](crate::Isolation::ReadCommitted) a row is locked before it is read, in its
//! newest state: nobody changes it before the transaction commits. Under
//! [`RepeatableRead`](crate::Isolation::RepeatableRead) all is read at one snapshot, and a row that
//! is locked after that may have changed since. So a transaction of that kind that is run again
//! begins with the locks that it came to have in the attempt before, and its snapshot comes after
//! them: a [`Session`](crate::Session) keeps their list.

use std::collections::BTreeSet;

use crate::catalogue::handles::Table;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::error::TxnError;
use crate::locks::row_locks::LockWait;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// Most locks of which a list is kept for the next attempt.
const MOST_WANTED: usize = 4096;

/// What one that insists wants to lock, and in which order. The number of a tree, and the key of a
/// row in it; `None` for all of the tree.
#[derive(Clone, Default)]
pub(crate) struct WantedLocks {
    locks: BTreeSet<(usize, Option<Box<[u8]>>)>,
    /// They are of an attempt before, and not locked yet.
    are_ahead: bool,
}

impl WantedLocks {
    /// The same, for the next attempt.
    pub(crate) fn ahead(mut self) -> Self {
        self.are_ahead = !self.locks.is_empty();
        self
    }

    fn add(&mut self, tree: usize, key: Option<&[u8]>) {
        if self.locks.len() < MOST_WANTED {
            self.locks.insert((tree, key.map(Box::from)));
        }
    }
}

impl Txn<'_> {
    /// From now on the transaction locks each row that it reads by its key or changes, and, where
    /// it reads ranges, the whole table: commits of others wait for its end, so that it gets
    /// through where it has lost again and again. For a transaction that others make run again, not
    /// for each: where it reads a range, it stops the writers of that table. A
    /// [`Session`](crate::Session) does so by itself after a few losses in a row.
    ///
    /// Under [`RepeatableRead`](crate::Isolation::RepeatableRead) it is not enough where more than
    /// one row is fought for: the snapshot is older than the later locks. A session locks there
    /// before it reads what the attempt before has locked.
    ///
    /// # Errors
    /// [`TxnError::NoRowLocks`], [`TxnError::ReadOnly`].
    pub fn insist(&mut self) -> Result<(), TxnError> {
        if self.is_read_only() {
            return Err(TxnError::ReadOnly);
        }
        self.check_locks_rows()?;
        self.row_locks.insists = true;
        Ok(())
    }

    /// Locks a row, for a transaction that insists, and is to change it.
    pub(crate) async fn insist_on_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
    ) -> Result<(), TxnError> {
        self.note_wanted(info.primary.number, Some(key));
        self.lock_key(&info.primary, key, LockWait::Wait).await.map(drop)
    }

    /// As [`insist_on_row`](Self::insist_on_row), for an operation that reads it: an error ends it.
    pub(crate) async fn insist_to_read(
        &mut self,
        info: &TableInfo,
        key: &[u8],
    ) -> Result<(), TxnError> {
        let locked = self.insist_on_row(info, key).await;
        self.close_read(locked).await
    }

    /// Locks the table, for a transaction that insists, and is to read a range of it. An error ends
    /// the operation.
    pub(crate) async fn insist_on_range(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
    ) -> Result<(), TxnError> {
        let locked = self.lock_to_scan(info, index, range).await;
        self.close_read(locked).await
    }

    async fn lock_to_scan(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
    ) -> Result<(), TxnError> {
        info.check_range(index, range)?;
        self.note_wanted(index.number, None);
        self.lock_range(index, range, usize::MAX).await?;
        if index.number != info.primary.number {
            // The entries lead to rows anywhere.
            self.insist_on_table(info).await?;
        }
        Ok(())
    }

    /// Locks all rows of a table, for a transaction that insists, and is to read or change any of
    /// them.
    pub(crate) async fn insist_on_table(&mut self, info: &TableInfo) -> Result<(), TxnError> {
        self.note_wanted(info.primary.number, None);
        self.lock_range(&info.primary, &KeyRange::all(), usize::MAX).await.map(drop)
    }

    /// Locks the rows of some leaves from a key on, for a transaction that insists. Returns the end
    /// of the last of them, if there are more rows behind it.
    pub(crate) async fn insist_on_leaves(
        &mut self,
        info: &TableInfo,
        from: &[u8],
        most_leaves: usize,
    ) -> Result<Option<Vec<u8>>, TxnError> {
        self.lock_range(&info.primary, &KeyRange::from(from), most_leaves).await
    }

    fn note_wanted(&mut self, tree: usize, key: Option<&[u8]>) {
        // Under the other isolations what is locked is read as it is then.
        if self.view.is_of_transaction() {
            self.row_locks.wanted.add(tree, key);
        }
    }

    /// Whether it is to lock something before its first operation.
    pub(crate) fn has_locks_ahead(&self) -> bool {
        self.row_locks.wanted.are_ahead && self.is_active()
    }

    /// Before the first operation: locks what the attempt before has locked. The snapshot of the
    /// transaction is begun behind that.
    pub(crate) async fn lock_ahead(&mut self) -> Result<(), TxnError> {
        let wanted = self.row_locks.wanted.locks.clone();
        for (tree, key) in &wanted {
            self.open_read_for(LatchMode::Exclusive)?;
            let info = match self.table_info(Table::of_tree(*tree)).await {
                Ok(info) => info,
                // The first operation on it says so.
                Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => continue,
                Err(error) => return Err(error),
            };
            let Some(index) = info.index_of_tree(*tree) else { continue };
            let locked = match key {
                Some(key) => self.lock_key(index, key, LockWait::Wait).await.map(drop),
                None => self.lock_range(index, &KeyRange::all(), usize::MAX).await.map(drop),
            };
            self.close_read(locked).await?;
        }
        self.row_locks.wanted.are_ahead = false;
        // Nothing was read at the snapshot but definitions, which are looked up anew.
        self.view.end();
        self.forget_definitions();
        Ok(())
    }
}
