//! Loading an empty table from rows in the order of their primary keys.
//!
//! Each tree of the table is built bottom-up beside the empty one ([`selkie_btree::BulkLoad`]): the
//! table's own as the rows come, those of indexes at the end, from entries that were gathered and
//! sorted in memory. At last all become the table in one change of the log
//! ([`attach`](crate::transaction::attach)).

use selkie_btree::{TreeError, max_value};
use selkie_fabric::env::yield_now;

use crate::catalogue::changing::KnownTable;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key::KeyBuf;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_ref::RowRef;
use crate::error::{BulkLoadError, TxnError};
use crate::protocol::choice::ReadRule;
use crate::transaction::attach::{attach, has_stamps, log_need};
use crate::transaction::database_state::DatabaseState;

/// Entries after which other tasks get their turn.
const YIELD_ENTRIES: usize = 4096;

/// How a table is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkLoadOptions {
    /// How full pages are made, in percent, 20 to 100. 90 unless set, so that some later inserts
    /// between the rows find room; 100 for a table that grows at the end only.
    pub fill: u8,
    /// Bytes of memory for the entries of all indexes of the table, which are sorted before they
    /// are written. 256 MiB unless set.
    pub index_bytes: usize,
}

impl Default for BulkLoadOptions {
    fn default() -> Self {
        Self { fill: selkie_btree::DEFAULT_FILL, index_bytes: 256 << 20 }
    }
}

/// Entries of one index, to be sorted.
#[derive(Default)]
struct IndexEntries {
    bytes: Vec<u8>,
    entries: Vec<EntryPlace>,
}

/// Where an entry lies.
#[derive(Clone, Copy)]
struct EntryPlace {
    /// The first bytes of its key, which order most entries: comparing those touches no other
    /// memory.
    head: u64,
    start: usize,
    key: u32,
    value: u32,
}

impl IndexEntries {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let mut head = [0; size_of::<u64>()];
        head.iter_mut().zip(key).for_each(|(head, byte)| *head = *byte);
        // Keys and values fit pages.
        let (key, value) = (key.len() as u32, value.len() as u32);
        self.entries.push(EntryPlace { head: u64::from_be_bytes(head), start, key, value });
    }

    /// Bytes of memory.
    fn memory(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<EntryPlace>()
    }

    fn entry(&self, place: EntryPlace) -> (&[u8], &[u8]) {
        let key = place.key as usize;
        let end = place.start + key + place.value as usize;
        let entry = self.bytes.get(place.start..end).unwrap_or_default();
        entry.split_at_checked(key).unwrap_or_default()
    }

    fn sort(&mut self) {
        let mut entries = std::mem::take(&mut self.entries);
        entries.sort_unstable_by(|a, b| {
            // Zeros behind a short key make it equal to longer ones at most.
            a.head.cmp(&b.head).then_with(|| self.entry(*a).0.cmp(self.entry(*b).0))
        });
        self.entries = entries;
    }
}

/// A load of an empty table. Rows are [pushed](Self::push) in the order of their primary keys, and
/// become those of the table all at once when it [finishes](Self::finish). Dropped before that, it
/// leaves nothing behind.
///
/// The table may be used meanwhile: everybody finds it empty. If another transaction inserts a row,
/// the load fails at its end, and the table has that row.
#[must_use = "a load that is not finished leaves nothing behind"]
pub struct BulkLoad<'db> {
    db: &'db DatabaseState,
    reads: ReadRule,
    info: &'db TableInfo,
    /// Its definition, if that may change.
    known: Option<&'db KnownTable>,
    options: BulkLoadOptions,
    rows: selkie_btree::BulkLoad<'db>,
    indexes: Vec<IndexEntries>,
    has_failed: bool,
}

impl<'db> BulkLoad<'db> {
    pub(super) async fn begin(
        db: &'db DatabaseState,
        reads: ReadRule,
        table: Table,
        options: BulkLoadOptions,
    ) -> Result<Self, TxnError> {
        let info = db.directory.table(table)?;
        let known = db.directory.known(table);
        let begun = info.primary.tree.bulk_load(&db.engine, options.fill, db.stamp_rule()).await;
        let rows = begun.map_err(|error| of_tree(info, error))?;
        let indexes = info.indexes.iter().map(|_| IndexEntries::default()).collect();
        Ok(Self { db, reads, info, known, options, rows, indexes, has_failed: false })
    }

    /// Adds a row, made by [`Database::row`](crate::Database::row) for this table. Its primary key
    /// is above that of the row before. Waits only when a page is full.
    ///
    /// # Errors
    /// [`BulkLoadError::OutOfOrder`], [`BulkLoadError::IndexTooLarge`],
    /// [`BulkLoadError::TooLarge`] where leaves have stamps (timestamp ordering, snapshots), once
    /// those of the table do not fit the log; [`TxnError::ForeignRow`],
    /// [`TxnError::Row`]; [`TxnError::RowTooLarge`], as no values are stored apart from their rows
    /// here, [`TxnError::KeyTooLong`]; what the engine reports, a full pool for one. The load has
    /// failed then: the table stays empty.
    pub async fn push(&mut self, row: RowRef<'_>) -> Result<(), TxnError> {
        self.check()?;
        // Until it has succeeded; also if it is dropped.
        self.has_failed = true;
        self.add(row).await?;
        self.has_failed = false;
        Ok(())
    }

    async fn add(&mut self, row: RowRef<'_>) -> Result<(), TxnError> {
        let info = self.info;
        info.check_whole_row(row)?;
        let mut primary = KeyBuf::new();
        info.primary.encode(row, &mut primary)?;
        for (index, entries) in info.indexes.iter().zip(&mut self.indexes) {
            let entry = index.entry(row, &primary)?;
            entries.push(&entry.key, entry.value);
        }
        let need: usize = self.indexes.iter().map(|entries| entries.memory()).sum();
        if !self.indexes.is_empty() && need > self.options.index_bytes {
            return Err(self.index_too_large(need));
        }
        let whole = whole_bytes(row)?;
        if whole > row.as_bytes().len() {
            // A load stores no values apart from their rows.
            let limit = max_value(self.db.engine.page_bytes(), primary.len());
            return Err(row_too_large(info, row, whole, limit, primary.len()));
        }
        let before = self.rows.leaves();
        let pushed = self.rows.push(&primary, row.as_bytes()).await;
        pushed.map_err(|error| of_row(info, row, &primary, error))?;
        let leaves = self.rows.leaves();
        if leaves == before {
            return Ok(());
        }
        check_leaves(self.db, self.reads, info, self.rows.rows(), leaves)
    }

    fn index_too_large(&self, need: usize) -> TxnError {
        let indexes = self.info.indexes.iter().zip(&self.indexes);
        let largest = indexes.max_by_key(|(_, entries)| entries.memory());
        BulkLoadError::IndexTooLarge {
            table: self.info.schema.name.clone(),
            index: largest.map(|(index, _)| index.name.clone()).unwrap_or_default(),
            need,
            limit: self.options.index_bytes,
        }
        .into()
    }

    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows.rows()
    }

    /// Writes what is left, builds the indexes, and makes the rows those of the table, for all
    /// transactions at once, as a commit does. Returns how many there are.
    ///
    /// # Errors
    /// [`TxnError::Duplicate`] if two rows have the same key in a unique index;
    /// [`BulkLoadError::NotEmpty`] if others have inserted rows; [`TxnError::Stale`] if the table
    /// was changed or dropped; [`BulkLoadError::Failed`] after an error of [`push`](Self::push);
    /// [`TxnError::Conflict`] if other transactions keep the table latched;
    /// [`TxnError::LockTimeout`] if one keeps a row of it locked for a minute;
    /// [`BulkLoadError::TooLarge`] if the leaves of the indexes beside those of the table do not
    /// fit the log; what the engine reports. The table is as it was then.
    /// [`TxnError::Undetermined`] as for [`Txn::commit`](crate::Txn::commit).
    pub async fn finish(mut self) -> Result<u64, TxnError> {
        self.check()?;
        let (db, info, rows) = (self.db, self.info, self.rows.rows());
        let mut built = Vec::with_capacity(1 + self.indexes.len());
        if rows > 0 {
            built.push(self.rows.build().await.map_err(|error| of_tree(info, error))?);
            for (index, entries) in info.indexes.iter().zip(&mut self.indexes) {
                let entries = std::mem::take(entries);
                built.push(build_index(db, info, index, self.options, entries).await?);
                let leaves = built.iter().map(|tree| tree.leaves().len()).sum();
                check_leaves(db, self.reads, info, rows, leaves)?;
            }
        }
        attach(db, self.reads, self.known, built).await.map_err(|error| match error {
            TxnError::Tree(error) => of_tree(info, error),
            // It waits for all rows of the table.
            waited @ TxnError::LockTimeout { .. } => info.primary.of_lock(waited, None),
            other => other,
        })?;
        Ok(rows)
    }

    fn check(&self) -> Result<(), TxnError> {
        match self.has_failed {
            true => Err(BulkLoadError::Failed { table: self.info.schema.name.clone() }.into()),
            false => Ok(()),
        }
    }
}

/// Fails if so many leaves cannot become those of the table in one change.
fn check_leaves(
    db: &DatabaseState,
    reads: ReadRule,
    info: &TableInfo,
    rows: u64,
    leaves: usize,
) -> Result<(), TxnError> {
    let need = log_need(db, leaves, 1 + info.indexes.len(), has_stamps(reads));
    let limit = db.engine.largest_change();
    if need <= limit {
        return Ok(());
    }
    Err(BulkLoadError::TooLarge { table: info.schema.name.clone(), rows, need, limit }.into())
}

/// Bytes of a row with the values that are not among its own.
fn whole_bytes(row: RowRef<'_>) -> Result<usize, NamedRowError> {
    let columns = 0..row.layout().columns.len();
    columns.into_iter().try_fold(row.as_bytes().len(), |bytes, column| {
        let apart = row.pointer(column)?.map_or(0, |pointer| pointer.bytes as usize);
        Ok(bytes + apart)
    })
}

/// Builds the tree of an index.
async fn build_index(
    db: &DatabaseState,
    info: &TableInfo,
    index: &IndexInfo,
    options: BulkLoadOptions,
    mut entries: IndexEntries,
) -> Result<selkie_btree::BuiltTree, TxnError> {
    entries.sort();
    let failed = |error, key| match error {
        TreeError::OutOfOrder { .. } => info.duplicate(index, key),
        TreeError::KeyTooLong { max, .. } => info.key_too_long(index, key, max),
        error => of_tree(info, error),
    };
    let begun = index.tree.bulk_load(&db.engine, options.fill, db.stamp_rule()).await;
    let mut load = begun.map_err(|error| of_tree(info, error))?;
    for (at, entry) in entries.entries.iter().enumerate() {
        let (key, value) = entries.entry(*entry);
        load.push(key, value).await.map_err(|error| failed(error, key))?;
        if at % YIELD_ENTRIES == YIELD_ENTRIES - 1 {
            yield_now().await;
        }
    }
    load.build().await.map_err(|error| of_tree(info, error))
}

/// The error of a load of this table, in a tree of it.
fn of_tree(info: &TableInfo, error: TreeError) -> TxnError {
    match error {
        TreeError::NotEmpty => BulkLoadError::NotEmpty { table: info.schema.name.clone() }.into(),
        error => error.into(),
    }
}

/// As [`of_tree`], in the table's own tree, which was to take a row with this key.
fn of_row(info: &TableInfo, row: RowRef<'_>, key: &[u8], error: TreeError) -> TxnError {
    match error {
        TreeError::OutOfOrder { position } => {
            let (table, key) = (info.schema.name.clone(), info.primary.shown_key(key));
            BulkLoadError::OutOfOrder { table, position, key }.into()
        }
        TreeError::KeyTooLong { max, .. } => info.key_too_long(&info.primary, key, max),
        TreeError::ValueTooLong { bytes, max, key_bytes } => {
            row_too_large(info, row, bytes, max, key_bytes)
        }
        error => of_tree(info, error),
    }
}

/// The error for a row that takes so many bytes.
fn row_too_large(
    info: &TableInfo,
    row: RowRef<'_>,
    bytes: usize,
    limit: usize,
    key_bytes: usize,
) -> TxnError {
    let length = |column| row.value_bytes(column).ok().flatten().unwrap_or_default();
    info.row_too_large(row, length, (bytes, limit, key_bytes))
}
