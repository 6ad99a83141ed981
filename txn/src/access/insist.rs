//! Transactions that have lost to others again and again, and lock all that they read.
//!
//! Under [`Serializable`](crate::Isolation::Serializable) and
//! [`ReadCommitted`](crate::Isolation::ReadCommitted) a row is locked before it is read, in its
//! newest state: nobody changes it before the transaction commits. Under
//! [`RepeatableRead`](crate::Isolation::RepeatableRead) all is read at one snapshot, and a row that
//! is locked after that may have changed since. So a transaction of that kind that is run again
//! begins with the locks that it came to have in the attempt before, and its snapshot comes after
//! them: a [`Session`](crate::Session) keeps their list.

use crate::catalogue::handles::Table;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::error::TxnError;
use crate::locks::row_locks::LockWait;
use crate::locks::wanted::WantedLocks;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// From so many locks on a transaction that insists locks whole tables, and no more rows.
const MOST_ROWS: usize = 1024;

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
        if self.row_locks.whole_tables.contains(&info.primary.number) {
            return Ok(());
        }
        if self.row_locks.len() >= MOST_ROWS {
            return self.insist_on_table(info).await;
        }
        if self.view.is_of_transaction() {
            self.row_locks.wanted.add_row(info.primary.number, key);
        }
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
        self.insist_on_tree(index, range).await?;
        if index.number != info.primary.number {
            // The entries lead to rows anywhere.
            self.insist_on_table(info).await?;
        }
        Ok(())
    }

    /// Locks all rows of a table, for a transaction that insists, and is to read or change any of
    /// them.
    pub(crate) async fn insist_on_table(&mut self, info: &TableInfo) -> Result<(), TxnError> {
        self.insist_on_tree(&info.primary, &KeyRange::all()).await
    }

    /// Locks a range of a tree, unless all of the tree is locked.
    async fn insist_on_tree(
        &mut self,
        index: &IndexInfo,
        range: &KeyRange,
    ) -> Result<(), TxnError> {
        let tree = index.number;
        if self.row_locks.whole_tables.contains(&tree) {
            return Ok(());
        }
        // Under the other isolations what is locked is read as it is then.
        if self.view.is_of_transaction() {
            self.row_locks.wanted.add_range(tree, range);
        }
        self.lock_range(index, range, usize::MAX).await?;
        self.note_whole(tree, range);
        Ok(())
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

    fn note_whole(&mut self, tree: usize, range: &KeyRange) {
        if range.low().is_empty() && range.high().is_none() {
            self.row_locks.whole_tables.insert(tree);
        }
    }

    /// From now on the transaction locks nothing that it only reads, though it
    /// [insists](Self::insist): it locks rows itself, and waits for none that others have.
    pub fn leave_reads_unlocked(&mut self) {
        self.row_locks.leaves_reads = true;
    }

    /// Whether it is to lock something before its first operation.
    pub(crate) fn has_locks_ahead(&self) -> bool {
        self.row_locks.wanted.are_ahead && self.is_active()
    }

    /// Before the first operation: locks what the attempt before has locked. The snapshot of the
    /// transaction is begun behind that.
    pub(crate) async fn lock_ahead(&mut self) -> Result<(), TxnError> {
        let wanted = std::mem::take(&mut self.row_locks.wanted);
        let locked = self.lock_all(&wanted).await;
        // The next attempt wants them too, if this one has lost already.
        self.row_locks.wanted = if locked.is_ok() { wanted.locked() } else { wanted };
        locked?;
        // Nothing was read at the snapshot but definitions, which are looked up anew.
        self.view.end();
        self.forget_definitions();
        Ok(())
    }

    async fn lock_all(&mut self, wanted: &WantedLocks) -> Result<(), TxnError> {
        for (tree, range) in &wanted.ranges {
            self.lock_again(*tree, LockAgain::Range(range)).await?;
        }
        for (tree, key) in &wanted.rows {
            self.lock_again(*tree, LockAgain::Row(key)).await?;
        }
        Ok(())
    }

    async fn lock_again(&mut self, tree: usize, what: LockAgain<'_>) -> Result<(), TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        let info = match self.table_info(Table::of_tree(tree)).await {
            Ok(info) => info,
            // The first operation on it says so.
            Err(TxnError::Schema(SchemaError::NoSuchTable { .. })) => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(index) = info.index_of_tree(tree) else { return Ok(()) };
        let locked = match what {
            LockAgain::Row(key) => self.lock_key(index, key, LockWait::Wait).await.map(drop),
            LockAgain::Range(range) => self.lock_range(index, range, usize::MAX).await.map(drop),
        };
        self.close_read(locked).await?;
        if let LockAgain::Range(range) = what {
            self.note_whole(tree, range);
        }
        Ok(())
    }
}

/// What is locked before the first operation.
enum LockAgain<'a> {
    Row(&'a [u8]),
    Range(&'a KeyRange),
}
