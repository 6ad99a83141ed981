//! Changes of single rows, with the constraints of their table.

use selkie_txn::{RowBuilder, Txn, TxnError};

use super::context::ExecContext;
use super::row_queue::RowQueue;
use super::stored_row::{fill_builder, with_value};
use super::txn_error::{from_txn, index_of_duplicate, not_null_message};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::CallContext;
use crate::plan::Expr;
use crate::types::{Datum, text_format};

/// Checks a new row: that no column is NULL that may not be, then the CHECK constraints, which
/// NULL passes. Of a changed row only `changed` columns are checked.
pub(crate) fn check_row(
    table: &TableDef,
    checks: &[(String, Expr)],
    row: &[Datum],
    changed: Option<&[usize]>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<()> {
    for (at, (value, column)) in row.iter().zip(&table.columns).enumerate() {
        let is_changed = changed.is_none_or(|changed| changed.contains(&at));
        if value.is_null() && !column.nullable && is_changed {
            let message = not_null_message(&column.name, &table.name);
            let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message)
                .of_table(&table.key)
                .of_column(&column.name);
            return Err(with_failing_row(error, table, row, changed.is_none(), &context.call));
        }
    }
    for (name, check) in checks {
        if matches!(context.eval(check, row)?, Datum::Bool(false)) {
            let message = format!(
                "new row for relation \"{}\" violates check constraint \"{name}\"",
                table.name
            );
            let error = SqlError::new(SqlState::CHECK_VIOLATION, message)
                .of_table(&table.key)
                .of_constraint(name);
            return Err(with_failing_row(error, table, row, changed.is_none(), &context.call));
        }
    }
    Ok(())
}

/// Shows the row, if all of its columns are known.
fn with_failing_row(
    error: SqlError,
    table: &TableDef,
    row: &[Datum],
    is_whole: bool,
    call: &CallContext<'_>,
) -> SqlError {
    if !is_whole {
        return error;
    }
    let shown = table.columns.iter().enumerate().filter(|(_, column)| !column.is_hidden);
    let columns: Vec<usize> = shown.map(|(at, _)| at).collect();
    error.detail(format!("Failing row contains ({}).", texts_of(table, &columns, row, call)))
}

/// Values as text, with commas between them.
fn texts_of(table: &TableDef, columns: &[usize], row: &[Datum], call: &CallContext<'_>) -> String {
    let mut text = String::new();
    for (number, at) in columns.iter().enumerate() {
        if number > 0 {
            text.push_str(", ");
        }
        match (row.get(*at), table.columns.get(*at)) {
            (Some(value), Some(column)) if !value.is_null() => {
                text_format::to_text(value, column.ty, call.settings, &mut text);
            }
            _ => text.push_str("null"),
        }
    }
    text
}

/// The error for a change of a row, which has these values. A duplicate key is shown.
pub(crate) fn change_error(
    error: TxnError,
    table: &TableDef,
    row: &[Datum],
    call: &CallContext<'_>,
) -> SqlError {
    let index = match &error {
        TxnError::Duplicate { index, .. } => index_of_duplicate(table, index),
        _ => None,
    };
    let error = from_txn(error, Some(table));
    let Some((columns, _)) = index.and_then(|index| table.key(index)) else { return error };
    let names = columns.iter().filter_map(|at| table.columns.get(*at).map(|own| &*own.name));
    let names = names.collect::<Vec<_>>().join(", ");
    let values = texts_of(table, columns, row, call);
    error.detail(format!("Key ({names})=({values}) already exists."))
}

/// Inserts a row.
pub(crate) async fn insert_row(
    builder: &mut RowBuilder<'_>,
    table: &TableDef,
    row: &[Datum],
    txn: &mut Txn<'_>,
) -> SqlResult<Result<(), TxnError>> {
    fill_builder(builder, table, row)?;
    Ok(match builder.finish() {
        Ok(stored) => txn.insert(table.table, stored).await,
        Err(error) => Err(error.into()),
    })
}

/// Gives columns of a row other values. None of them is of the primary key.
pub(crate) async fn update_row(
    table: &TableDef,
    key: &[u8],
    columns: &[usize],
    new: &[Datum],
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    let mut failure = None;
    let change = |row: &mut selkie_txn::RowMut<'_>| {
        for at in columns {
            let (Some(value), Some(column)) = (new.get(*at), table.columns.get(*at)) else {
                continue;
            };
            match with_value(value, column.ty, |value| row.set(*at, value)) {
                Ok(set) => set?,
                Err(error) => {
                    failure = Some(error);
                    // It undoes the operation, and is not seen.
                    return Err(TxnError::ReadOnly);
                }
            }
        }
        Ok(())
    };
    let updated = context.txn.update(table.table, key, change).await;
    match (updated, failure) {
        (_, Some(failure)) => Err(failure),
        (Ok(()), None) => Ok(()),
        (Err(error), None) => Err(change_error(error, table, new, &context.call)),
    }
}

/// The rows that a change returns.
#[derive(Default)]
pub(crate) struct Returned {
    pub(crate) rows: RowQueue,
}

impl Returned {
    /// Adds what RETURNING gives for a row.
    pub(crate) fn add(
        &mut self,
        exprs: Option<&[Expr]>,
        row: &[Datum],
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let Some(exprs) = exprs else { return Ok(()) };
        self.rows.push(context.eval_all(exprs, row)?, context.limits)
    }
}
