//! Changing what tables are called, and dropping indexes.

use crate::catalogue::definition::TableDefinition;
use crate::catalogue::handles::{Index, Table};
use crate::catalogue::schema_error::SchemaError;
use crate::ddl::columns::position_of;
use crate::error::TxnError;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Gives a table another name.
    ///
    /// # Errors
    /// [`SchemaError::TableExists`] if another has that name; and as
    /// [`create_table`](Self::create_table).
    pub async fn rename_table(&mut self, table: Table, name: &str) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            name.clone_into(&mut definition.stored.schema.name);
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
        self.alter(table, |definition| {
            let schema = &mut definition.stored.schema;
            let position = position_of(schema, column)?;
            let found = schema.columns.get_mut(position);
            found.into_iter().for_each(|found| name.clone_into(&mut found.name));
            Ok(())
        })
        .await
    }

    /// Gives an index of a table another name, also one that is being built.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchIndex`]; [`SchemaError::DuplicateName`] if another index of the table
    /// has that name; and as [`create_table`](Self::create_table).
    pub async fn rename_index(
        &mut self,
        table: Table,
        index: &str,
        name: &str,
    ) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            let schema = &mut definition.stored.schema;
            let missing =
                SchemaError::NoSuchIndex { table: schema.name.clone(), name: index.to_owned() };
            let found = schema.indexes.iter_mut().find(|own| own.name == index);
            name.clone_into(&mut found.ok_or(missing)?.name);
            Ok(())
        })
        .await
    }

    /// Replaces the [note](crate::TableSchema::note) of a table.
    ///
    /// # Errors
    /// As [`create_table`](Self::create_table).
    pub async fn set_note(&mut self, table: Table, note: &str) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            note.clone_into(&mut definition.stored.schema.note);
            Ok(())
        })
        .await
    }

    /// Changes the definition of a table in a way that rows need not be looked at.
    pub(super) async fn alter<F>(&mut self, table: Table, change: F) -> Result<(), TxnError>
    where
        F: FnOnce(&mut TableDefinition) -> Result<(), SchemaError> + Send,
    {
        self.open_definitions()?;
        let mark = self.begin_change();
        let altered = Box::pin(self.alter_definition(table, change)).await;
        self.close_change(mark, altered).await
    }

    pub(super) async fn alter_definition<F>(
        &mut self,
        table: Table,
        change: F,
    ) -> Result<(), TxnError>
    where
        F: FnOnce(&mut TableDefinition) -> Result<(), SchemaError> + Send,
    {
        let before = self.definition(table).await?;
        let mut after = before.clone();
        change(&mut after)?;
        after.stored.schema.validate()?;
        self.check_table(&after.stored.schema)?;
        self.create_values_tree(&mut after).await?;
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
        self.drop_index_at(table, &before, at.ok_or_else(missing)?).await
    }

    /// Drops an index that is not complete, if it is there still: another of its name is another.
    pub(super) async fn drop_incomplete(
        &mut self,
        table: Table,
        index: Index,
    ) -> Result<(), TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let dropped = Box::pin(async {
            let before = self.definition(table).await?;
            let at = before.position(index);
            let is_complete = |at: &usize| before.indexes.get(*at).is_some_and(|at| at.is_complete);
            match at.filter(|at| !is_complete(at)) {
                Some(at) => self.drop_index_at(table, &before, at).await,
                None => Ok(()),
            }
        });
        let dropped = dropped.await;
        self.close_change(mark, dropped).await
    }

    async fn drop_index_at(
        &mut self,
        table: Table,
        before: &TableDefinition,
        at: usize,
    ) -> Result<(), TxnError> {
        let mut after = before.clone();
        after.stored.schema.indexes.remove(at);
        after.indexes.remove(at);
        let root = after.stored.indexes.remove(at);
        self.drop_tree(root).await?;
        self.redefine(table, before, &after).await
    }
}
