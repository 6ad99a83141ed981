//! Filling a table that a transaction has created, as part of it.
//!
//! The trees of such a table are known to no other transaction before this one commits, and go back
//! to the pool if it takes their creation back. So they are filled as [bulk
//! loads](crate::transaction::bulk_load) fill empty tables, bottom-up and with no change of single
//! rows in the write set, and nothing is locked:
//!
//! ```text
//! rows -> entries of each tree, in any order       (EntryBuffer)
//!   -> sorted by the caller, who has a place for more of them than memory takes
//!   -> one tree after the other, in the order of its keys   (TreeFill)
//!   -> all trees become those of the table in one change    (finish)
//! ```
//!
//! *Stamps.* New leaves have the stamp of the first leaf, which was drawn when the tree was
//! created: the transaction sees the rows at once, and others see the table at later snapshots
//! only.
//!
//! *Log.* The pages are in the log before the commit that makes the table known, and in the same
//! log. After a failure of the node before that, they are leaked as those of other trees that were
//! created: `selkie pool repair` finds them.
//!
//! *Long values* are stored apart as by an insert, in the write set.
//!
//! *Savepoints.* A rollback to a savepoint takes a creation back that came after it. A table that
//! was created before cannot be filled: the rows would stay.

use std::sync::Arc;

use selkie_btree::{BuiltTree, BulkLoad, DEFAULT_FILL, TreeError};

use crate::access::entries::row_of_entry;
use crate::access::row_size::Pointers;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key::KeyBuf;
use crate::encoding::row_ref::RowRef;
use crate::error::{BulkLoadError, TxnError};
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::attach::attach_unseen;
use crate::transaction::txn::Txn;

/// The entries of one row: one for each tree of its table.
#[derive(Clone, Debug, Default)]
pub struct EntryBuffer {
    bytes: Vec<u8>,
    /// Where the key and the value of each end.
    ends: Vec<(usize, usize)>,
}

impl EntryBuffer {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((end, self.bytes.len()));
    }

    /// Key and value of each entry: that of the table itself, then those of its indexes.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        starts.zip(&self.ends).map(|(start, (middle, end))| {
            let part = |range: std::ops::Range<usize>| self.bytes.get(range).unwrap_or_default();
            (part(start..*middle), part(*middle..*end))
        })
    }
}

/// A table that is being filled ([`Txn::fill_table`]). Dropped before it is
/// [finished](Self::finish), it leaves the table empty.
#[must_use = "a table has no rows before this is finished"]
pub struct TableFill<'db> {
    table: Table,
    info: &'db Arc<TableInfo>,
    built: Vec<BuiltTree>,
}

/// One tree of such a table, which takes its entries in the order of their keys.
#[must_use = "a tree has no entries before it is ended"]
pub struct TreeFill<'db> {
    info: &'db Arc<TableInfo>,
    /// 0 is that of the rows.
    number: usize,
    load: BulkLoad<'db>,
}

impl<'db> Txn<'db> {
    /// Begins to fill an empty table that this transaction has created.
    ///
    /// # Errors
    /// [`BulkLoadError::NotNew`] if it was not created by this transaction, or before a savepoint
    /// that there is; as [`create_table`](Self::create_table).
    pub async fn fill_table(&mut self, table: Table) -> Result<TableFill<'db>, TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        self.check_new(info)?;
        Ok(TableFill { table, info, built: Vec::new() })
    }

    /// Fails if a tree of a table was not created by this transaction, or if it would be there,
    /// with its rows, after a rollback to a savepoint.
    fn check_new(&self, info: &TableInfo) -> Result<(), TxnError> {
        let last = self.savepoints.last_changes();
        let is_new = |index: &IndexInfo| {
            let root = index.tree.root();
            let mut created = self.work.created.iter().filter(|own| own.tree.root() == root);
            created.any(|own| last.is_none_or(|last| last <= own.mark))
        };
        match info.all_indexes().all(is_new) {
            true => Ok(()),
            false => Err(BulkLoadError::NotNew { table: info.schema.name.clone() }.into()),
        }
    }
}

impl<'db> TableFill<'db> {
    /// How many trees there are to be filled: that of the rows, which has number 0, and one for
    /// each index, in the order of the table.
    #[must_use]
    pub fn trees(&self) -> usize {
        1 + self.info.indexes.len()
    }

    /// Makes the entries of a row, made by [`Txn::row`] for this table. Values that are too long
    /// for it are stored apart.
    ///
    /// # Errors
    /// As [`Txn::insert`], but for duplicates.
    pub async fn enter(
        &self,
        txn: &mut Txn<'db>,
        row: RowRef<'_>,
        entries: &mut EntryBuffer,
    ) -> Result<(), TxnError> {
        txn.open_read_for(LatchMode::Exclusive)?;
        self.info.check_whole_row(row)?;
        let mark = txn.begin_change();
        let entered = txn.entries_of(self.info, row, entries).await;
        txn.close_change(mark, entered).await
    }

    /// Begins to fill the tree of this number.
    ///
    /// # Errors
    /// [`BulkLoadError::NotEmpty`]; what the engine reports.
    pub async fn begin_tree(
        &self,
        txn: &mut Txn<'db>,
        number: usize,
    ) -> Result<TreeFill<'db>, TxnError> {
        let (db, info) = (txn.db, self.info);
        txn.open_read_for(LatchMode::Exclusive)?;
        let index = tree_of(info, number);
        let begun = index.tree.bulk_load(&db.engine, DEFAULT_FILL, db.stamp_rule()).await;
        let begun = begun.map_err(|error| of_tree(info, error));
        let load = txn.close_read(begun).await?.with_old_stamps();
        Ok(TreeFill { info, number, load })
    }

    /// Ends a tree, which has all of its entries. It becomes that of the table with the others.
    ///
    /// # Errors
    /// What the engine reports.
    pub async fn end_tree(
        &mut self,
        txn: &mut Txn<'db>,
        tree: TreeFill<'db>,
    ) -> Result<(), TxnError> {
        txn.open_read_for(LatchMode::Exclusive)?;
        if tree.load.rows() > 0 {
            let built = tree.load.build().await.map_err(|error| of_tree(self.info, error));
            self.built.push(txn.close_read(built).await?);
        }
        Ok(())
    }

    /// The columns that an entry of a tree tells of its row, as the bytes of a row.
    ///
    /// # Errors
    /// [`TxnError::Inconsistent`] if it is no entry of that tree.
    pub fn row_of(&self, number: usize, (key, value): (&[u8], &[u8])) -> Result<Vec<u8>, TxnError> {
        match number {
            0 => Ok(value.to_vec()),
            _ => row_of_entry(self.info, tree_of(self.info, number), key, value),
        }
    }

    /// A row of these bytes.
    ///
    /// # Errors
    /// [`TxnError::Row`] if it is none of this table.
    pub fn row<'a>(&'a self, bytes: &'a [u8]) -> Result<RowRef<'a>, TxnError> {
        Ok(self.info.row(bytes)?)
    }

    /// Makes the entries of all trees that were ended those of the table.
    ///
    /// # Errors
    /// [`BulkLoadError::NotEmpty`] if rows were inserted meanwhile; [`BulkLoadError::NotNew`] as
    /// for [`Txn::fill_table`]; what the engine reports.
    pub async fn finish(self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        let Self { table, info, built } = self;
        txn.open_read_for(LatchMode::Exclusive)?;
        let now = txn.table_info(table).await?;
        let trees = |info: &TableInfo| -> Vec<_> {
            info.all_indexes().map(|index| index.tree.root()).collect()
        };
        if now.layout != info.layout || trees(now) != trees(info) {
            return Err(TxnError::ForeignRow { table: info.schema.name.clone() });
        }
        txn.check_new(info)?;
        let attached = attach_unseen(txn.db, built).await.map_err(|error| match error {
            TxnError::Tree(error) => of_tree(info, error),
            other => other,
        });
        txn.close_read(attached).await
    }
}

impl<'db> TreeFill<'db> {
    /// Adds an entry whose key is above that of the one before.
    ///
    /// # Errors
    /// [`TxnError::Duplicate`] if its key is that of the one before;
    /// [`BulkLoadError::OutOfOrder`] if it is below; what the engine reports.
    pub async fn push(
        &mut self,
        txn: &mut Txn<'db>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        txn.open_read_for(LatchMode::Exclusive)?;
        let Err(error) = self.load.push(key, value).await else { return Ok(()) };
        let (info, index) = (self.info, tree_of(self.info, self.number));
        let error = match error {
            TreeError::OutOfOrder { .. } if key == self.load.last_key() => {
                info.duplicate(index, key)
            }
            TreeError::OutOfOrder { position } => {
                let table = info.schema.name.clone();
                BulkLoadError::OutOfOrder { table, position, key: index.shown_key(key) }.into()
            }
            error => of_tree(info, error),
        };
        txn.close_read(Err(error)).await
    }
}

impl Txn<'_> {
    async fn entries_of(
        &mut self,
        info: &TableInfo,
        row: RowRef<'_>,
        entries: &mut EntryBuffer,
    ) -> Result<(), TxnError> {
        entries.clear();
        let mut primary = KeyBuf::new();
        info.primary.encode(row, &mut primary)?;
        self.check_key_bytes(info, &info.primary, &primary)?;
        if self.is_in_line(info, &primary, row) {
            entries.push(&primary, row.as_bytes());
        } else {
            let stored = Box::pin(self.move_out(info, &primary, row, Pointers::Copied)).await?;
            entries.push(&primary, &stored);
        }
        for index in &info.indexes {
            let entry = index.entry(row, &primary)?;
            self.check_key_bytes(info, index, &entry.key)?;
            entries.push(&entry.key, entry.value);
        }
        Ok(())
    }
}

fn tree_of(info: &TableInfo, number: usize) -> &IndexInfo {
    let index = number.checked_sub(1).and_then(|at| info.indexes.get(at));
    index.unwrap_or(&info.primary)
}

fn of_tree(info: &TableInfo, error: TreeError) -> TxnError {
    match error {
        TreeError::NotEmpty => BulkLoadError::NotEmpty { table: info.schema.name.clone() }.into(),
        error => error.into(),
    }
}
