//! Adding and dropping columns, and changing their defaults and whether they may be NULL.
//!
//! No row is rewritten. A column that is added or dropped begins a new layout of rows
//! ([`column_history`](crate::catalogue::column_history)): rows that are there keep theirs until
//! they are updated. A column that is added is, in rows from before, what its default was when it
//! was added.
//!
//! # No NULL in a column that is not to have any
//!
//! Rows are looked at by the transaction, all of them, and recorded as read, whatever its
//! isolation. A transaction that gives a row a NULL has read the definition, which this one
//! changes. So if it commits before this one, that finds other rows than it has read; if
//! afterwards, it finds another definition.

use std::ops::ControlFlow;

use selkie_btree::Direction;

use crate::access::walk::Walk;
use crate::access::walk_state::WalkState;
use crate::catalogue::column_type::MAX_COLUMNS;
use crate::catalogue::definition::TableDefinition;
use crate::catalogue::handles::Table;
use crate::catalogue::schema::{Column, TableSchema};
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::table_info::{PRIMARY, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::encoding::value::Value;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

/// What no row may be.
#[derive(Clone, Copy)]
enum Unwanted {
    Row,
    NullIn(usize),
}

impl<'db> Txn<'db> {
    /// Adds a column behind the others. Rows that are there have its default, or NULL; they are
    /// not rewritten, and keep that if the default is changed later.
    ///
    /// # Errors
    /// [`SchemaError::DuplicateName`]; [`SchemaError::TooManyColumns`],
    /// [`SchemaError::RowTooLarge`], [`SchemaError::TooManyLayouts`]; [`SchemaError::Default`] if
    /// it is not of the column's type; [`SchemaError::NullsInRows`] if there are rows, and it has
    /// no default and may not be NULL; and as [`create_table`](Self::create_table).
    pub async fn add_column(&mut self, table: Table, column: Column) -> Result<(), TxnError> {
        self.open_definitions()?;
        let info = self.table_info(table).await?;
        let mark = self.begin_change();
        let added = Box::pin(self.add_to(info, table, column)).await;
        self.close_change(mark, added).await
    }

    async fn add_to(
        &mut self,
        info: &'db TableInfo,
        table: Table,
        column: Column,
    ) -> Result<(), TxnError> {
        let name = column.name.clone();
        let has_value = column.nullable || column.default.is_some();
        let added = self.alter_definition(table, |definition| {
            let schema = &mut definition.stored.schema;
            let columns = schema.columns.len() + 1;
            if columns > MAX_COLUMNS {
                let (table, column) = (schema.name.clone(), column.name);
                return Err(SchemaError::TooManyColumns { table, column, columns });
            }
            let missing = column.default.clone();
            let changed = definition.columns.add(column.nullable, missing);
            let too_often = || too_many_layouts(definition, &column.name);
            changed.ok_or_else(too_often)?;
            definition.stored.schema.columns.push(column);
            Ok(())
        });
        added.await.map_err(|error| match error {
            TxnError::Schema(SchemaError::EntryTooLarge { table, index, size, allowed })
                if index == PRIMARY =>
            {
                SchemaError::RowTooLarge { table, column: name.clone(), size, allowed }.into()
            }
            other => other,
        })?;
        match has_value {
            true => Ok(()),
            false => self.refuse_rows(info, Unwanted::Row, &name).await,
        }
    }

    /// Drops a column. Rows that are there are not rewritten; a column of the same name that is
    /// added later is another one. Those behind it move up by one position.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::ColumnInUse`] if it is part of the primary key
    /// or of an index, also one that is being built; [`SchemaError::TooManyLayouts`]; and as
    /// [`create_table`](Self::create_table).
    pub async fn drop_column(&mut self, table: Table, column: &str) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            let schema = &mut definition.stored.schema;
            let position = position_of(schema, column)?;
            let primary = schema.primary_key.contains(&position).then_some(PRIMARY);
            let mut indexes = schema.indexes.iter();
            let used = indexes.find(|index| index.columns.contains(&position));
            if let Some(index) = primary.or(used.map(|index| &*index.name)) {
                return Err(in_use(schema, column, index));
            }
            let Column { ty, .. } = schema.columns.remove(position);
            let keys = schema.indexes.iter_mut().map(|index| &mut index.columns);
            for key in keys.chain([&mut schema.primary_key]) {
                let behind = key.iter_mut().filter(|other| **other > position);
                behind.for_each(|other| *other -= 1);
            }
            let changed = definition.columns.drop(position, ty);
            changed.ok_or_else(|| too_many_layouts(definition, column))
        })
        .await
    }

    /// Sets the default of a column, for rows that are inserted from now on. NULL is none.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::Default`] if it is not of the column's type;
    /// and as [`create_table`](Self::create_table).
    pub async fn set_default(
        &mut self,
        table: Table,
        column: &str,
        value: Value<'_>,
    ) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            change_column(definition, column, |column| column.default(value)).map(drop)
        })
        .await
    }

    /// Takes the default of a column away.
    ///
    /// # Errors
    /// As [`set_default`](Self::set_default).
    pub async fn drop_default(&mut self, table: Table, column: &str) -> Result<(), TxnError> {
        self.set_default(table, column, Value::Null).await
    }

    /// Says that a column is never NULL from now on. Looks at all rows.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::NullsInRows`] if it is in a row; and as
    /// [`create_table`](Self::create_table).
    pub async fn set_not_null(&mut self, table: Table, column: &str) -> Result<(), TxnError> {
        self.open_definitions()?;
        let info = self.table_info(table).await?;
        let mark = self.begin_change();
        let set = Box::pin(self.refuse_nulls(info, table, column)).await;
        self.close_change(mark, set).await
    }

    async fn refuse_nulls(
        &mut self,
        info: &'db TableInfo,
        table: Table,
        column: &str,
    ) -> Result<(), TxnError> {
        let position = position_of(&info.schema, column)?;
        let altered = self.alter_definition(table, |definition| {
            let not_null = |column| Column { nullable: false, ..column };
            change_column(definition, column, not_null).map(drop)
        });
        altered.await?;
        self.refuse_rows(info, Unwanted::NullIn(position), column).await
    }

    /// Says that a column may be NULL from now on.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::NullableKey`] if it is part of the primary
    /// key; [`SchemaError::ColumnInUse`] if it is part of an index that was made when it could not
    /// be NULL; [`SchemaError::TooManyLayouts`]; and as [`create_table`](Self::create_table).
    pub async fn drop_not_null(&mut self, table: Table, column: &str) -> Result<(), TxnError> {
        self.alter(table, |definition| {
            let position = change_column(definition, column, Column::nullable)?;
            let schema = &definition.stored.schema;
            for (index, of_index) in schema.indexes.iter().zip(&definition.indexes) {
                let at = index.columns.iter().position(|own| *own == position);
                if at.is_some_and(|at| of_index.nullable & 1 << at == 0) {
                    return Err(in_use(schema, column, &index.name));
                }
            }
            let changed = definition.columns.allow_nulls();
            changed.ok_or_else(|| too_many_layouts(definition, column))
        })
        .await
    }

    /// Fails if the table has such a row, by its definition before the change. Records all rows as
    /// read.
    async fn refuse_rows(
        &mut self,
        info: &'db TableInfo,
        unwanted: Unwanted,
        column: &str,
    ) -> Result<(), TxnError> {
        if self.row_locks.insists {
            Box::pin(self.insist_on_table(info)).await?;
        }
        let (range, mode, mut is_there) = (KeyRange::all(), LatchMode::Exclusive, false);
        let (forward, beginning) = (Direction::Forward, WalkState::at_beginning(&range));
        let mut walk = Walk::new(&info.primary, &range, forward, mode, beginning);
        let mut look = |row: RowRef<'_>| {
            is_there = match unwanted {
                Unwanted::Row => true,
                Unwanted::NullIn(column) => row.is_null(column)?,
            };
            Ok(if is_there { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let mut entry = Vec::new();
        self.walk_rows(info, &info.primary, &mut walk, mode, &mut look, &mut entry).await?;
        // What was read is compared below, which waits for leaves that others hold.
        drop(walk);
        if !is_there {
            return Ok(());
        }
        let (table, column) = (info.schema.name.clone(), column.to_owned());
        let error = SchemaError::NullsInRows { table, column };
        Err(self.error_of_valid_reads(error.into()).await)
    }
}

/// The position of the column of that name.
pub(super) fn position_of(schema: &TableSchema, column: &str) -> Result<usize, SchemaError> {
    let missing =
        || SchemaError::NoSuchColumn { table: schema.name.clone(), name: column.to_owned() };
    schema.column_position(column).ok_or_else(missing)
}

/// Changes what is said of a column; returns its position.
fn change_column(
    definition: &mut TableDefinition,
    column: &str,
    change: impl FnOnce(Column) -> Column,
) -> Result<usize, SchemaError> {
    let schema = &mut definition.stored.schema;
    let position = position_of(schema, column)?;
    if let Some(found) = schema.columns.get_mut(position) {
        *found = change(found.clone());
    }
    Ok(position)
}

fn in_use(schema: &TableSchema, column: &str, index: &str) -> SchemaError {
    let (table, column) = (schema.name.clone(), column.to_owned());
    SchemaError::ColumnInUse { table, column, index: index.to_owned() }
}

fn too_many_layouts(definition: &TableDefinition, column: &str) -> SchemaError {
    let (table, column) = (definition.stored.schema.name.clone(), column.to_owned());
    SchemaError::TooManyLayouts { table, column, changes: definition.columns.last() }
}
