//! Which definition of a table a transaction uses, where tables may change.
//!
//! The first operation of a transaction on a table looks up its definition in the state that the
//! transaction sees. While the leaf with the table's row in the catalogue is as it was when this
//! node has read the definition, that takes no more than a look at the cached leaf. A transaction
//! that may write records that row as read, so it commits only if the definition is still in force:
//! one that has used an old definition ends in [`TxnError::Stale`].
//!
//! # Why no operation reads a tree that is gone
//!
//! The pages of a dropped tree are given back once no snapshot is active that is older than the
//! drop ([`reclaim`](crate::ddl::reclaim)). So a transaction at a snapshot finds the trees of its
//! definitions. A transaction on the current state may find a page that is used again. If it is a
//! leaf of another tree, it has a later stamp than all that the transaction has read, as the first
//! leaf of a tree is stamped when it is created: the transaction validates what it has read
//! ([`view`](crate::protocol::view)), and that the table was dropped. An error is checked in the
//! same way before it is returned. An operation with a view of its own has no snapshot before it
//! looks at a definition, so it keeps all pages from being used again until it ends.

use std::sync::Arc;

use selkie_btree::{Direction, LeafView, Stamp};

use crate::access::read::RowPosition;
use crate::catalogue::changing::{KnownTable, VersionSeen};
use crate::catalogue::definition::{
    DEFINITIONS, PIECES_COLUMN, TABLES, TableDefinition, VERSION_COLUMN,
};
use crate::catalogue::error::CatalogueError;
use crate::catalogue::handles::Table;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::row_reads::{ColumnsRead, Digest, LeafVersion, Read};
use crate::protocol::view::{SnapshotSpan, View};
use crate::transaction::txn::Txn;
use crate::transaction::workspace::TableInUse;

/// What the row of a table in the catalogue says.
struct TableRow {
    version: i64,
    pieces: i16,
    digest: Digest,
    /// Where it was read, unless this transaction has written it.
    seen: Option<VersionSeen>,
}

impl<'db> Txn<'db> {
    /// The definition of a table that the current operation sees. It must have begun, and not
    /// changed anything yet: an error ends it.
    #[inline]
    pub(crate) async fn table_info(
        &mut self,
        table: Table,
    ) -> Result<&'db Arc<TableInfo>, TxnError> {
        if let Some(info) = self.db.directory.fixed(table) {
            return Ok(info);
        }
        let mut used = self.work.tables.iter().rev();
        if let Some(used) = used.find(|used| used.table == table && used.is_checked)
            && let Some(changing) = self.db.directory.changing()
        {
            return Ok(&changing.at(used.position).info);
        }
        if let Some(info) = self.current_table(table) {
            return Ok(info);
        }
        Box::pin(self.find_table(table)).await
    }

    async fn find_table(&mut self, table: Table) -> Result<&'db Arc<TableInfo>, TxnError> {
        let found = self.look_table_up(table).await;
        // The operation may wait for other pages.
        self.work.last_read = None;
        self.close_read(found).await
    }

    /// The definition of a table that the transaction has used last; else the one that this node
    /// knows.
    pub(crate) fn known_table(&self, table: Table) -> Result<&'db Arc<TableInfo>, TxnError> {
        let used = self.work.tables.iter().rev().find(|used| used.table == table);
        let directory = &self.db.directory;
        match (used, directory.changing()) {
            (Some(used), Some(changing)) => Ok(&changing.at(used.position).info),
            _ => directory.shared_table(table),
        }
    }

    /// Where the definition of a table is that the current operation uses; `None` if the table does
    /// not change.
    pub(crate) fn definition_in_use(&self, table: Table) -> Option<usize> {
        let mut used = self.work.tables.iter().rev();
        used.find(|used| used.table == table && used.is_checked).map(|used| used.position)
    }

    /// The definition at such a place.
    pub(crate) fn definition_at(
        &self,
        table: Table,
        position: Option<usize>,
    ) -> Result<&'db TableInfo, TxnError> {
        let directory = &self.db.directory;
        let info = match (position, directory.changing()) {
            (Some(position), Some(changing)) => Some(&changing.at(position).info),
            _ => directory.fixed(table),
        };
        info.map(Arc::as_ref).ok_or_else(|| no_such_table(table))
    }

    /// The index whose tree has this number, of a table that the transaction has used.
    pub(crate) fn index_of_tree(&self, tree: usize) -> Result<&'db IndexInfo, TxnError> {
        let found = self.db.index_in_use(&self.work.tables, tree);
        found.ok_or_else(|| no_such_table(Table::of_tree(tree)))
    }

    /// From now on each operation looks up the definitions of its tables: it sees another state
    /// than the one before, or they were changed.
    pub(crate) fn forget_definitions(&mut self) {
        self.work.tables.iter_mut().for_each(|used| used.is_checked = false);
    }

    /// The definition that this node knows, if the transaction reads the current state, and the
    /// definition is in force there.
    fn current_table(&mut self, table: Table) -> Option<&'db Arc<TableInfo>> {
        let is_of_one_state = match &self.view {
            View::Current { .. } => true,
            // As it has begun. Those of operations and statements are followed by later ones.
            View::At { snapshot, span } => snapshot.is_some() && *span == SnapshotSpan::Transaction,
            View::OneLeaf => false,
        };
        if self.work.changes_tables || !is_of_one_state {
            return None;
        }
        let changing = self.db.directory.changing()?;
        let position = changing.current(table)?;
        let known = changing.at(position);
        self.is_current(known).then(|| self.use_table(known, position))
    }

    /// As [`is_in_force`](Self::is_in_force), of the current state, or of a snapshot: a leaf whose
    /// stamp is up to that is as it was there. A leaf that was found as it was is not looked at
    /// again for other tables: what is read of them counts as of that time.
    fn is_current(&mut self, known: &KnownTable) -> bool {
        let seen = *known.seen.lock();
        if seen.leaf.psn.is_none() {
            return false;
        }
        if self.work.catalogue_leaf != seen.leaf {
            let Some(guard) = self.db.engine.shared_hit(seen.leaf.addr) else { return false };
            if Some(guard.psn()) != seen.leaf.psn || !self.moves_view_to(seen.stamp) {
                return false;
            }
            self.work.reads.rely_on(guard.lsn());
            self.work.catalogue_leaf = seen.leaf;
        }
        self.record_table(known.table, seen.leaf, known.digest);
        true
    }

    /// After a wait with no leaf held: fails if a table was changed meanwhile that the transaction
    /// has used. A commit would look for its leaves in pages that may be something else by now, and
    /// keep others waiting who want the leaves that it has found.
    ///
    /// The rows of those tables in the catalogue are enough for that. Each change of a definition,
    /// and each drop, changes the row of its table or removes it, and gives it a version that it
    /// has never had: a row with the same digest was the same all the time. All that was read
    /// besides is not said to be current: the view is not moved, so that it is validated before
    /// the transaction relies on a later state, and at its commit.
    pub(crate) async fn check_tables(&mut self) -> Result<(), TxnError> {
        if self.work.tables.is_empty() {
            return Ok(());
        }
        // It waits for leaves that others hold.
        self.work.last_read = None;
        self.compare_points_of(TABLES.primary_tree()).await
    }

    async fn look_table_up(&mut self, table: Table) -> Result<&'db Arc<TableInfo>, TxnError> {
        let db = self.db;
        let Some(changing) = db.directory.changing() else { return Err(no_such_table(table)) };
        if self.view.is_of_operation() {
            self.work.pin = Some(db.engine.pin());
        }
        if !self.work.changes_tables
            && let Some(position) = changing.current(table)
            && self.is_in_force(changing.at(position)).await?
        {
            return Ok(self.use_table(changing.at(position), position));
        }
        let Some(row) = self.read_table_row(table).await? else {
            if !self.view.is_snapshot() && !self.work.changes_tables {
                changing.forget(table);
            }
            return Err(self.error_of_valid_reads(no_such_table(table)).await);
        };
        let known = changing.position(table, row.version);
        let position = match (known, row.seen) {
            (Some(position), _) => position,
            (None, seen) => {
                let info = Arc::new(self.read_definition(table, &row).await?);
                let digest = row.digest;
                let at = VersionSeen { leaf: LeafVersion::NONE, stamp: Stamp::default() };
                let known = KnownTable { info, table, digest, seen: parking_lot::Mutex::new(at) };
                match seen {
                    Some(_) => changing.add(row.version, known),
                    None => changing.add_own(known),
                }
            }
        };
        if let Some(seen) = row.seen.filter(|seen| seen.leaf.psn.is_some()) {
            changing.set_current(position, seen);
        }
        Ok(self.use_table(changing.at(position), position))
    }

    fn use_table(&mut self, known: &'db KnownTable, position: usize) -> &'db Arc<TableInfo> {
        let table = known.table;
        self.work.tables.retain(|used| used.table != table || used.position != position);
        self.work.tables.push(TableInUse { table, position, is_checked: true });
        &known.info
    }

    /// Whether this definition is that of the state that the transaction sees, as far as can be
    /// told from the cached leaf. If so, the row that says so is recorded as read.
    async fn is_in_force(&mut self, known: &KnownTable) -> Result<bool, TxnError> {
        if matches!(self.view, View::Current { .. }) {
            return Ok(self.is_current(known));
        }
        let seen = *known.seen.lock();
        let snapshot = match self.view.is_snapshot() && !self.view.is_of_operation() {
            true => Some(self.snapshot().await?),
            false => None,
        };
        let Some(guard) = self.db.engine.shared_hit(seen.leaf.addr) else { return Ok(false) };
        if Some(guard.psn()) != seen.leaf.psn || snapshot.is_some_and(|at| seen.stamp > at) {
            return Ok(false);
        }
        self.work.reads.rely_on(guard.lsn());
        drop(guard);
        self.record_table(known.table, seen.leaf, known.digest);
        Ok(true)
    }

    /// Records the row of a table as read: it has to be the same at commit.
    fn record_table(&mut self, table: Table, leaf: LeafVersion, digest: Digest) {
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::StaleCatalogue {
            return;
        }
        if !self.is_read_only() {
            let key = table.catalogue_key();
            self.work.rows.add(
                TABLES.primary_tree(),
                Read::Point(&key, ColumnsRead::All),
                leaf,
                digest,
            );
        }
    }

    async fn read_table_row(&mut self, table: Table) -> Result<Option<TableRow>, TxnError> {
        let (tables, key) = (self.system_table(TABLES), table.catalogue_key());
        let Some(at) = self.find_row_position(tables, &key, LatchMode::Shared, None).await? else {
            return Ok(None);
        };
        let bytes = self.row_bytes(tables, &at)?;
        let row = RowRef::new(&tables.layout, bytes);
        let (version, pieces) = (row.i64(VERSION_COLUMN)?, row.i16(PIECES_COLUMN)?);
        let digest = self.db.digester.of_value(Some(bytes));
        let seen = match &at {
            RowPosition::Leaf(leaf, _) => {
                let stamp = LeafView::new(self.leaf_bytes(*leaf))?.stamps().write;
                Some(VersionSeen { leaf: self.work.last_version, stamp })
            }
            RowPosition::WriteSet(_) => None,
        };
        if let Some(seen) = seen
            && !self.must_record(LatchMode::Shared)
        {
            self.record_table(table, seen.leaf, digest);
        }
        Ok(Some(TableRow { version, pieces, digest, seen }))
    }

    async fn read_definition(
        &mut self,
        table: Table,
        row: &TableRow,
    ) -> Result<TableInfo, TxnError> {
        let definition = self.definition_of(table, row.pieces).await?;
        definition.resolve(table)
    }

    /// Reads the definition of a table, which is in so many pieces.
    async fn definition_of(
        &mut self,
        table: Table,
        pieces: i16,
    ) -> Result<TableDefinition, TxnError> {
        let (info, key) = (self.system_table(DEFINITIONS), table.catalogue_key());
        let (mut document, mut found) = (Vec::new(), 0);
        let mut take = |row: RowRef<'_>| {
            document.extend_from_slice(row.bytes(2)?);
            found += 1;
            Ok(std::ops::ControlFlow::Continue(()))
        };
        let range = KeyRange::prefix(&key);
        let mut entry = Vec::new();
        let forward = Direction::Forward;
        self.scan_rows(info, &info.primary, &range, forward, &mut take, &mut entry).await?;
        if found != pieces {
            let damaged = CatalogueError::Pieces { table: table.number(), found, expected: pieces };
            return Err(self.error_of_valid_reads(damaged.into()).await);
        }
        let definition = serde_json::from_slice(&document);
        definition.map_err(|error| CatalogueError::from(error).into())
    }

    /// The definition of a table that the current operation sees, to be changed, and its version.
    pub(crate) async fn definition(&mut self, table: Table) -> Result<TableDefinition, TxnError> {
        let Some(row) = self.read_table_row(table).await? else {
            return Err(self.error_of_valid_reads(no_such_table(table)).await);
        };
        let definition = self.definition_of(table, row.pieces).await;
        self.work.last_read = None;
        definition
    }

    /// All tables that may change, in the state that this transaction sees.
    pub(crate) async fn all_tables(&mut self) -> Result<Vec<Table>, TxnError> {
        self.open_read()?;
        let (info, mut tables) = (self.system_table(TABLES), Vec::new());
        let mut take = |row: RowRef<'_>| {
            let number = usize::try_from(row.i64(0)?).ok().filter(|number| *number > 0);
            tables.extend(number.map(Table::of_number));
            Ok(std::ops::ControlFlow::Continue(()))
        };
        let (range, forward, mut entry) = (KeyRange::all(), Direction::Forward, Vec::new());
        let scan =
            self.scan_rows(info, &info.primary, &range, forward, &mut take, &mut entry).await;
        self.close_read(scan).await?;
        Ok(tables)
    }

    /// A table of the catalogue.
    #[expect(clippy::expect_used, reason = "where tables may change, the catalogue has them all")]
    pub(crate) fn system_table(&self, table: Table) -> &'db TableInfo {
        self.db.directory.fixed(table).expect("a catalogue without one of its tables")
    }
}

pub(crate) fn no_such_table(table: Table) -> TxnError {
    SchemaError::NoSuchTable { name: format!("number {}", table.number()) }.into()
}
