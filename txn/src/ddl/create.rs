//! Creating tables, and what all changes of definitions have in common.

use selkie_btree::{Stamp, Stamps, Tree, leaf_stamp};

use crate::catalogue::definition::{
    COUNTER, DEFINITIONS, NAMES, TABLES, TableDefinition, VERSION_COLUMN, max_name_bytes,
};
use crate::catalogue::error::CatalogueError;
use crate::catalogue::handles::Table;
use crate::catalogue::schema::TableSchema;
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::sizes::{check_sizes, has_long_values};
use crate::catalogue::stored_table::{StoredTable, ValuesTree};
use crate::catalogue::table_info::TableInfo;
use crate::encoding::key::KeyBuf;
use crate::encoding::row_layout::MAX_NUMBER_BYTES;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::view::View;
use crate::transaction::txn::Txn;
use crate::transaction::workspace::CreatedTree;

impl<'db> Txn<'db> {
    /// Creates a table with its indexes. Others see it once the transaction has committed.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if the table cannot work, or there is one of that name; nothing is
    /// created then. [`CatalogueError::FixedTables`] where tables do not change.
    /// [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the other errors that roll back.
    pub async fn create_table(&mut self, schema: TableSchema) -> Result<Table, TxnError> {
        self.open_definitions()?;
        schema.validate()?;
        self.check_table(&schema)?;
        let mark = self.begin_change();
        let created = Box::pin(self.create(schema)).await;
        self.close_change(mark, created).await
    }

    async fn create(&mut self, schema: TableSchema) -> Result<Table, TxnError> {
        let name = schema.name.clone();
        let number = self.next_number().await?;
        let limit = schema.max_rows_per_page.unwrap_or(u16::MAX);
        let stamp = self.stamp_of_new_trees().await?;
        let primary = self.create_tree(limit, stamp).await?;
        let mut indexes = Vec::with_capacity(schema.indexes.len());
        for _ in &schema.indexes {
            indexes.push(self.create_tree(u16::MAX, stamp).await?);
        }
        let stored = StoredTable { schema, primary, indexes };
        let values = match has_long_values(&stored.schema, self.db.engine.page_bytes()) {
            true => Some(self.create_tree(u16::MAX, stamp).await?),
            false => None,
        };
        let definition = TableDefinition::new(stored, values, || self.new_version());
        let version = self.new_version();
        let page_bytes = self.db.engine.page_bytes();
        for (table, row) in definition.rows(number, version, &self.system_tables(), page_bytes)? {
            let row = RowRef::new(&table.layout, &row);
            let inserted = self.insert_row(table, row).await;
            inserted.map_err(|error| name_in_use(error, &name))?;
        }
        self.note_changed_tables();
        Ok(Table::of_number(usize::try_from(number).unwrap_or_default()))
    }

    /// The number of the next table, which no other gets.
    async fn next_number(&mut self) -> Result<i64, TxnError> {
        let tables = self.system_table(TABLES);
        let mut row = Vec::new();
        let key = KeyBuf::new().i64(COUNTER);
        let number = self.update_row(tables, &key, &mut row, |row| {
            let number = row.i64(VERSION_COLUMN)?;
            row.set_i64(VERSION_COLUMN, number + 1)?;
            Ok(number)
        });
        let number = number.await;
        self.work.last_read = None;
        number
    }

    /// Creates an empty tree that is given back if the transaction takes the change back.
    pub(super) async fn create_tree(&mut self, limit: u16, stamp: Stamp) -> Result<u64, TxnError> {
        let engine = &self.db.engine;
        // A page that is allocated, and one that is latched, may be waited for.
        self.work.last_read = None;
        let tree = Tree::create(engine, limit).await?;
        let mark = self.mark();
        self.work.created.push(CreatedTree { tree, mark });
        let leaf = tree.locate(engine, &[]).await?;
        let mut guard = engine.exclusive(leaf).await?;
        leaf_stamp(&mut guard, Stamps { read: Stamp::default(), write: stamp });
        Ok(tree.root().to_u64())
    }

    /// Gives a table that can have long values from now on a tree for them.
    pub(super) async fn create_values_tree(
        &mut self,
        definition: &mut TableDefinition,
    ) -> Result<(), TxnError> {
        let page_bytes = self.db.engine.page_bytes();
        if definition.values.is_none() && has_long_values(&definition.stored.schema, page_bytes) {
            let stamp = self.stamp_of_new_trees().await?;
            let root = self.create_tree(u16::MAX, stamp).await?;
            definition.values = Some(ValuesTree { root, identity: self.new_version() });
        }
        Ok(())
    }

    /// The stamp of the first leaves of trees that are created now: later than that of each commit
    /// that has dropped a tree whose pages they may be made of, and no later than what this
    /// transaction reads.
    pub(super) async fn stamp_of_new_trees(&mut self) -> Result<Stamp, TxnError> {
        if matches!(self.view, View::At { .. }) {
            // Pages are used again once all snapshots are later than the drop, as this one.
            return self.snapshot().await;
        }
        let (stamp, _) = self.db.engine.draw_stamp().await?;
        self.db.note_stamp(stamp);
        Ok(stamp)
    }

    /// Begins an operation that changes definitions.
    pub(super) fn open_definitions(&mut self) -> Result<(), TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        if self.db.directory.changing().is_none() {
            return Err(CatalogueError::FixedTables.into());
        }
        Ok(())
    }

    /// Checks what depends on the size of pages.
    pub(super) fn check_table(&self, schema: &TableSchema) -> Result<(), TxnError> {
        let page_bytes = self.db.engine.page_bytes();
        let (allowed, bytes) = (max_name_bytes(page_bytes), schema.name.len());
        if bytes == 0 || bytes > allowed {
            return Err(SchemaError::NameBytes { name: schema.name.clone(), allowed }.into());
        }
        Ok(check_sizes(schema, MAX_NUMBER_BYTES, page_bytes)?)
    }

    /// The tables of the catalogue, by their numbers.
    pub(super) fn system_tables(&self) -> [&'db TableInfo; 3] {
        [TABLES, NAMES, DEFINITIONS].map(|table| self.system_table(table))
    }

    /// A random number for a version or an identity, which is not 0.
    pub(super) fn new_version(&self) -> i64 {
        self.db.engine.env().random_u64().cast_signed() | 1
    }

    /// The definitions of tables are others from now on, for this transaction.
    pub(super) fn note_changed_tables(&mut self) {
        self.work.changes_tables = true;
        self.forget_definitions();
    }

    /// Writes the definition of a table in place of the one that is there.
    pub(super) async fn redefine(
        &mut self,
        table: Table,
        before: &TableDefinition,
        after: &TableDefinition,
    ) -> Result<(), TxnError> {
        let number = table.catalogue_number();
        let version = self.new_version();
        let system = self.system_tables();
        let [tables, names, definitions] = system;
        let page_bytes = self.db.engine.page_bytes();
        let pieces = before.pieces(page_bytes)?;
        self.delete_pieces(number, pieces).await?;
        let rows = after.rows(number, version, &system, page_bytes)?;
        let (old, new) = (&before.stored.schema.name, &after.stored.schema.name);
        let mut buffer = Vec::new();
        for (info, row) in rows {
            let row = RowRef::new(&info.layout, &row);
            if std::ptr::eq(info, tables) {
                let key = KeyBuf::new().i64(number);
                self.delete_row(tables, &key, &mut buffer).await?;
                self.insert_row(tables, row).await?;
            } else if std::ptr::eq(info, definitions) {
                self.insert_row(definitions, row).await?;
            } else if old != new {
                self.delete_row(names, &KeyBuf::new().text(old), &mut buffer).await?;
                let inserted = self.insert_row(names, row).await;
                inserted.map_err(|error| name_in_use(error, new))?;
            }
        }
        self.note_changed_tables();
        Ok(())
    }

    /// Deletes the definition of a table, which is in so many pieces.
    pub(super) async fn delete_pieces(&mut self, number: i64, pieces: i16) -> Result<(), TxnError> {
        let (definitions, mut buffer) = (self.system_table(DEFINITIONS), Vec::new());
        for piece in 0..pieces {
            let key = KeyBuf::new().i64(number).i32(piece.into());
            self.delete_row(definitions, &key, &mut buffer).await?;
        }
        Ok(())
    }
}

/// The error for a table whose name another has.
fn name_in_use(error: TxnError, name: &str) -> TxnError {
    match error {
        TxnError::Duplicate { .. } => SchemaError::TableExists { name: name.to_owned() }.into(),
        other => other,
    }
}
