//! A table in the place of another, with its rows.
//!
//! The table that is there gets another name, a new one gets its name and its rows, each tree of it
//! written from its first entry to its last ([`fill_table`](crate::exec::fill_table)), and the old
//! one is dropped, all in the transaction. Others that change rows
//! meanwhile have used the definition that is dropped; those that commit before have changed what
//! this transaction has read ([`record_rows`]).

use std::sync::Arc;

use selkie_txn::{Column, KeyOrder, SchemaError, TableSchema, Txn, TxnError};

use super::super::run::Run;
use super::lookup::found;
use crate::bind::{HIDDEN_KEY, scan_of};
use crate::catalogue::{ColumnNote, TableDef, TableNote, aside};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::plan::{ApplyKind, Expr, Plan};
use crate::types::stored::column_type;
use crate::types::{Scalar, SqlType};

/// What is put in the place of a table.
pub(super) struct NewForm {
    pub(super) schema: TableSchema,
    pub(super) note: TableNote,
    /// A value for each column, over the columns of the table that is there.
    pub(super) values: Vec<Expr>,
    /// A value that is applied to each row, as a column behind those that are there.
    pub(super) applied: Option<Plan>,
}

impl NewForm {
    /// The form that a table has.
    pub(super) fn of(schema: TableSchema, note: TableNote) -> Self {
        let values = (0..schema.columns.len()).map(Expr::Column).collect();
        Self { schema, note, values, applied: None }
    }

    /// Takes a column out that is in no key and no index.
    pub(super) fn remove_column(&mut self, at: usize) {
        let column = self.schema.columns.remove(at);
        self.values.remove(at);
        self.note.columns.remove(&column.name);
        let keys = self.schema.indexes.iter_mut().map(|index| &mut index.columns);
        for key in keys.chain([&mut self.schema.primary_key]) {
            key.iter_mut().filter(|own| **own > at).for_each(|own| *own -= 1);
        }
    }

    /// Adds a column, with its value.
    pub(super) fn add_column(
        &mut self,
        (name, ty): (&str, SqlType),
        nullable: bool,
        note: ColumnNote,
        value: Expr,
    ) -> SqlResult<()> {
        let (name, ty) = (name.to_owned(), column_type(ty)?);
        self.note.columns.insert(name.clone(), note);
        self.schema.columns.push(Column { name, ty, nullable, default: None });
        self.values.push(value);
        Ok(())
    }

    /// Makes these columns the primary key.
    pub(super) fn set_primary_key(&mut self, columns: &[usize], order: &[KeyOrder]) {
        for at in columns {
            if let Some(column) = self.schema.columns.get_mut(*at) {
                column.nullable = false;
            }
        }
        self.schema.primary_key = columns.to_vec();
        self.schema.primary_key_order = order.to_vec();
    }

    /// Gives the table a key that its user does not see, with its value.
    pub(super) fn set_hidden_key(&mut self, value: Expr) -> SqlResult<()> {
        let ty = SqlType::new(Scalar::Uuid);
        let (oid, modifier, default) = (ty.oid(), ty.modifier, Some(HIDDEN_DEFAULT.to_owned()));
        let note = ColumnNote { oid, modifier, default, hidden: true, ..ColumnNote::default() };
        let at = self.schema.columns.len();
        self.add_column((HIDDEN_KEY, ty), false, note, value)?;
        self.set_primary_key(&[at], &[]);
        self.note.primary_key_name = None;
        Ok(())
    }
}

/// What gives each row a key of its own.
pub(super) const HIDDEN_DEFAULT: &str = "gen_random_uuid()";

/// Puts another table in the place of this one.
pub(super) async fn rebuild(
    run: &Run,
    txn: &mut Txn<'_>,
    old: &TableDef,
    key: &str,
    form: NewForm,
) -> SqlResult<()> {
    let failed = |error| from_txn(error, Some(old));
    record_rows(txn, old).await?;
    txn.rename_table(old.table, &aside(old.table.number())).await.map_err(failed)?;
    let NewForm { mut schema, note, values, applied } = form;
    key.clone_into(&mut schema.name);
    schema.note = note.to_stored()?;
    super::lookup::create_table(txn, schema).await?;
    let mut table = found(txn, key).await?;
    // The rows have passed the constraints, and stay what they are.
    table.foreign_keys.clear();
    let is_in_order = is_in_order(&table, old, &values);
    let mut input = Box::new(scan_of(Arc::new(old.clone()), false));
    if let Some(query) = applied {
        let (query, kind, is_correlated) = (Box::new(query), ApplyKind::Scalar, true);
        input = Box::new(Plan::Apply { input, query, kind, is_correlated });
    }
    let source = Plan::Project { input, exprs: values.into() };
    run.fill(txn, &table, &source, is_in_order).await.map_err(of_key)?;
    txn.drop_table(old.table).await.map_err(failed)
}

/// Whether the rows have the order of the new primary key as they are read.
fn is_in_order(table: &TableDef, old: &TableDef, values: &[Expr]) -> bool {
    let source = |at: &usize| match values.get(*at) {
        Some(Expr::Column(column)) => Some(*column),
        _ => None,
    };
    let sources = table.primary_key.iter().map(source);
    sources.eq(old.primary_key.iter().map(|at| Some(*at)))
        && table.primary_order == old.primary_order
}

/// The error for a key that cannot be made, as there are rows that agree in it.
fn of_key(error: SqlError) -> SqlError {
    if error.state() != SqlState::UNIQUE_VIOLATION {
        return error;
    }
    let name = error.message().split('"').nth(1).unwrap_or_default();
    let subject = error.subject().clone();
    let message = format!("could not create unique index \"{name}\"");
    let detail = error.detail_text().unwrap_or_default();
    let detail = detail.replace("already exists.", "is duplicated.");
    let made = SqlError::new(SqlState::UNIQUE_VIOLATION, message).detail(detail);
    let made = made.of_constraint(name);
    subject.table.iter().fold(made, |made, table| made.of_table(table))
}

/// Records all rows of a table as read, whatever the isolation of the transaction: it does not
/// commit if others change them, or add to them, before it does.
pub(super) async fn record_rows(txn: &mut Txn<'_>, table: &TableDef) -> SqlResult<()> {
    let first = table.primary_key.first().and_then(|at| table.columns.get(*at));
    match first {
        // It is not NULL as it is: what counts is that all rows are looked at.
        Some(column) => require_not_null(txn, table, &column.name).await,
        None => Err(SqlError::internal("a table without a primary key")),
    }
}

/// Looks at all rows of a table, and says that a column of it is never NULL.
pub(super) async fn require_not_null(
    txn: &mut Txn<'_>,
    table: &TableDef,
    column: &str,
) -> SqlResult<()> {
    txn.set_not_null(table.table, column).await.map_err(|error| match error {
        TxnError::Schema(SchemaError::NullsInRows { .. }) => has_nulls(table, column),
        error => from_txn(error, Some(table)),
    })
}

pub(super) fn has_nulls(table: &TableDef, column: &str) -> SqlError {
    let message =
        format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    SqlError::new(SqlState::NOT_NULL_VIOLATION, message).of_table(&table.key).of_column(column)
}
