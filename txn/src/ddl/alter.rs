//! Changing what tables are called.

use crate::catalogue::definition::NAMES;
use crate::catalogue::handles::{Index, Table};
use crate::catalogue::schema::{SchemaError, TableSchema};
use crate::encoding::key::KeyBuf;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

impl Txn<'_> {
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

    async fn number_of(&mut self, name: &str) -> Result<Table, TxnError> {
        let names = self.system_table(NAMES);
        let key = KeyBuf::new().text(name);
        let at = self.find_row_position(names, &key, LatchMode::Shared, None).await?;
        let Some(at) = at else {
            let missing = SchemaError::NoSuchTable { name: name.to_owned() };
            return Err(self.error_of_valid_reads(missing.into()).await);
        };
        let number = RowRef::new(&names.layout, self.row_bytes(names, &at)?).i64(1)?;
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

    /// Gives a table another name.
    ///
    /// # Errors
    /// [`SchemaError::TableExists`] if another has that name; and as
    /// [`create_table`](Self::create_table).
    pub async fn rename_table(&mut self, table: Table, name: &str) -> Result<(), TxnError> {
        self.alter(table, |schema| {
            name.clone_into(&mut schema.name);
            Ok(())
        })
        .await
    }

    /// Gives a column of a table another name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::DuplicateName`] if another column has that
    /// name; and as [`create_table`](Self::create_table).
    pub async fn rename_column(
        &mut self,
        table: Table,
        column: &str,
        name: &str,
    ) -> Result<(), TxnError> {
        self.alter(table, |schema| {
            let table = schema.name.clone();
            let found = schema.columns.iter_mut().find(|known| known.name == column);
            let missing = SchemaError::NoSuchColumn { table, name: column.to_owned() };
            name.clone_into(&mut found.ok_or(missing)?.name);
            Ok(())
        })
        .await
    }

    /// Changes the schema of a table in a way that leaves its rows as they are.
    async fn alter<F>(&mut self, table: Table, change: F) -> Result<(), TxnError>
    where
        F: FnOnce(&mut TableSchema) -> Result<(), SchemaError> + Send,
    {
        self.open_definitions()?;
        let mark = self.begin_change();
        let altered = Box::pin(self.alter_schema(table, change)).await;
        self.close_change(mark, altered).await
    }

    async fn alter_schema<F>(&mut self, table: Table, change: F) -> Result<(), TxnError>
    where
        F: FnOnce(&mut TableSchema) -> Result<(), SchemaError> + Send,
    {
        let before = self.definition(table).await?;
        let mut after = before.clone();
        change(&mut after.stored.schema)?;
        after.stored.schema.validate()?;
        self.check_table(&after.stored.schema)?;
        self.redefine(table, &before, &after).await
    }

    /// Drops an index of a table, also one that is being built.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchIndex`]; and as [`drop_table`](Self::drop_table).
    pub async fn drop_index(&mut self, table: Table, name: &str) -> Result<(), TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let dropped = Box::pin(self.drop_index_named(table, name)).await;
        self.close_change(mark, dropped).await
    }

    async fn drop_index_named(&mut self, table: Table, name: &str) -> Result<(), TxnError> {
        let before = self.definition(table).await?;
        let schema = &before.stored.schema;
        let missing =
            || SchemaError::NoSuchIndex { table: schema.name.clone(), name: name.to_owned() };
        let at = schema.indexes.iter().position(|index| index.name == name);
        let at = at.ok_or_else(missing)?;
        let mut after = before.clone();
        after.stored.schema.indexes.remove(at);
        after.indexes.remove(at);
        let root = after.stored.indexes.remove(at);
        self.drop_tree(root).await?;
        self.redefine(table, &before, &after).await
    }
}
