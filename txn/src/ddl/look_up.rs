//! What a transaction sees of tables: their names, columns and indexes, and rows for them.

use std::ops::ControlFlow;

use selkie_btree::Direction;

use crate::catalogue::definition::NAMES;
use crate::catalogue::handles::{Index, Source, Table};
use crate::catalogue::schema::TableSchema;
use crate::catalogue::schema_error::SchemaError;
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_builder::RowBuilder;
use crate::encoding::row_ref::RowRef;
use crate::encoding::value::Value;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// Which of its definitions a table has. A plain number, as this handle of the database counts
/// them: it is equal exactly as long as nothing of the definition is changed, and the table is not
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DefinitionId(
    /// `None` if it never changes.
    Option<usize>,
);

impl<'db> Txn<'db> {
    /// Which definition of a table this transaction sees. What was made for a definition, such as a
    /// plan, is right for all transactions that see the same. Mostly no round trip: a look at a
    /// cached leaf of the catalogue.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub async fn definition_id(&mut self, table: Table) -> Result<DefinitionId, TxnError> {
        self.open_read()?;
        self.table_info(table).await?;
        Ok(DefinitionId(self.definition_in_use(table)))
    }

    /// The table of that name in the state that this transaction sees.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchTable`]; [`TxnError::Conflict`] and the other errors that roll back.
    pub async fn table(&mut self, name: &str) -> Result<Table, TxnError> {
        self.open_read()?;
        if self.db.directory.changing().is_none() {
            return self.db.directory.table_named(name);
        }
        let found = Box::pin(self.number_of(name)).await;
        self.close_read(found).await
    }

    /// All tables in the state that this transaction sees, with their names, in the order of these.
    ///
    /// # Errors
    /// Those that roll back, as of [`table`](Self::table).
    pub async fn tables(&mut self) -> Result<Vec<(String, Table)>, TxnError> {
        self.open_read()?;
        let mut all = Vec::new();
        if self.db.directory.changing().is_none() {
            for table in self.db.directory.handles() {
                all.push((self.db.directory.table(table)?.schema.name.clone(), table));
            }
            all.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
            return Ok(all);
        }
        let mut take = |row: RowRef<'_>| {
            let number = usize::try_from(row.i64(1)?).unwrap_or(usize::MAX);
            all.push((row.text(0)?.to_owned(), Table::of_number(number)));
            Ok(ControlFlow::Continue(()))
        };
        let (names, range) = (self.system_table(NAMES), KeyRange::all());
        let (forward, mut entry) = (Direction::Forward, Vec::new());
        let scan = self.scan_rows(names, &names.primary, &range, forward, &mut take, &mut entry);
        let scanned = scan.await;
        self.close_read(scanned).await?;
        Ok(all)
    }

    async fn number_of(&mut self, name: &str) -> Result<Table, TxnError> {
        let names = self.system_table(NAMES);
        let key = KeyBuf::new().text(name);
        let at = self.find_row_position(names, &key, LatchMode::Shared, None).await?;
        let Some(at) = at else {
            let missing = SchemaError::NoSuchTable { name: name.to_owned() };
            return Err(self.error_of_valid_reads(missing.into()).await);
        };
        let number = names.row(self.row_bytes(names, &at)?)?.i64(1)?;
        self.work.last_read = None;
        let missing = || SchemaError::NoSuchTable { name: name.to_owned() };
        Ok(Table::of_number(usize::try_from(number).map_err(|_| missing())?))
    }

    /// The schema of a table in the state that this transaction sees, with the indexes that are
    /// complete.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub async fn schema(&mut self, table: Table) -> Result<TableSchema, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let mut schema = info.schema.clone();
        let mut complete = info.indexes.iter().map(|index| index.is_complete);
        schema.indexes.retain(|_| complete.next().unwrap_or(false));
        Ok(schema)
    }

    /// The index of that name in the state that this transaction sees, if it is complete.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchIndex`]; and as [`table`](Self::table).
    pub async fn index(&mut self, table: Table, name: &str) -> Result<Index, TxnError> {
        self.open_read()?;
        let info = self.table_info(table).await?;
        let found = info.indexes.iter().find(|index| index.is_complete && index.name == name);
        let missing =
            || SchemaError::NoSuchIndex { table: info.schema.name.clone(), name: name.to_owned() };
        Ok(table.index_of_tree(found.ok_or_else(missing)?.number))
    }

    /// An empty row of a table as this transaction sees it, to be filled and inserted.
    ///
    /// ```
    /// # use selkie_txn::{Table, Txn, TxnError, Value};
    /// # async fn example(txn: &mut Txn<'_>, table: Table) -> Result<(), TxnError> {
    /// // As `INSERT INTO t (id) VALUES (7)` in SQL.
    /// let columns = txn.schema(table).await?.columns;
    /// let mut row = txn.row(table).await?;
    /// for column in &columns {
    ///     match column.name.as_str() {
    ///         "id" => row.i32(7),
    ///         _ => row.default_value(),
    ///     };
    /// }
    /// txn.insert(table, row.finish()?).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub async fn row(&mut self, table: Table) -> Result<RowBuilder<'db>, TxnError> {
        self.open_read()?;
        Ok(RowBuilder::new(&self.table_info(table).await?.layout))
    }

    /// The key of a table or an index that begins with these values, as
    /// [`Database::key`](crate::Database::key), by the definition of the table that this
    /// transaction has used last.
    ///
    /// # Errors
    /// As [`Database::key`](crate::Database::key).
    pub fn key(&self, source: impl Into<Source>, values: &[Value<'_>]) -> Result<KeyBuf, TxnError> {
        let source = source.into();
        let info = self.known_table(source.table())?;
        info.key(info.source(source)?, values)
    }

    /// The key that a row has in its table or an index of it, as
    /// [`Database::key_of`](crate::Database::key_of), by the definition of the table that this
    /// transaction has used last.
    ///
    /// # Errors
    /// As [`Database::key_of`](crate::Database::key_of).
    pub fn key_of(&self, source: impl Into<Source>, row: RowRef<'_>) -> Result<KeyBuf, TxnError> {
        let source = source.into();
        let info = self.known_table(source.table())?;
        info.key_of(info.source(source)?, row)
    }
}
