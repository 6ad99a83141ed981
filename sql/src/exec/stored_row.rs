//! Rows and keys between SQL and the tables.

use selkie_txn::{
    KeyBuf, NamedRowError, RowBuilder, RowError, RowRef, Source, Txn, TxnError, Value, WholeRow,
};

use super::context::Row;
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::SqlResult;
use crate::types::{Datum, SqlType, stored};

/// The values of a stored row. Columns that are not needed are NULL, and so are for the time being
/// those whose values are stored apart from the row, which are added to `moved`.
pub(crate) fn read_row(
    row: RowRef<'_>,
    table: &TableDef,
    needed: Option<&[bool]>,
    moved: &mut Vec<usize>,
) -> SqlResult<Row> {
    let mut values = Vec::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        let is_needed = needed.is_none_or(|needed| needed.get(at).copied().unwrap_or(true));
        values.push(if !is_needed {
            Datum::Null
        } else if checked(row.is_moved(at), table)? {
            moved.push(at);
            Datum::Null
        } else {
            stored::to_datum(checked(row.value(at), table)?, column.ty)?
        });
    }
    Ok(values)
}

/// Fills in values that are stored apart from their row.
pub(crate) fn fill_moved(
    values: &mut Row,
    whole: &WholeRow,
    table: &TableDef,
    moved: &[usize],
) -> SqlResult<()> {
    for &at in moved {
        if let (Some(value), Some(column)) = (values.get_mut(at), table.columns.get(at)) {
            *value = stored::to_datum(checked(whole.row().value(at), table)?, column.ty)?;
        }
    }
    Ok(())
}

fn checked<T>(outcome: Result<T, NamedRowError>, table: &TableDef) -> SqlResult<T> {
    outcome.map_err(|error| from_txn(error.into(), Some(table)))
}

/// All values of the row with this primary key.
pub(crate) async fn read_whole(
    txn: &mut Txn<'_>,
    table: &TableDef,
    key: &[u8],
) -> SqlResult<Option<Row>> {
    let whole = txn.get_whole(table.table, key).await;
    let whole = whole.map_err(|error| from_txn(error, Some(table)))?;
    let Some(whole) = whole else { return Ok(None) };
    read_row(whole.row(), table, None, &mut Vec::new()).map(Some)
}

/// Fills a row that is to be inserted.
pub(crate) fn fill_builder(
    builder: &mut RowBuilder<'_>,
    table: &TableDef,
    values: &[Datum],
) -> SqlResult<()> {
    builder.clear();
    for (value, column) in values.iter().zip(&table.columns) {
        with_value(value, column.ty, |value| {
            builder.value(value);
        })?;
    }
    Ok(())
}

/// Calls `f` with a value in the form in which it is stored.
pub(crate) fn with_value<R>(
    value: &Datum,
    ty: SqlType,
    f: impl FnOnce(Value<'_>) -> R,
) -> SqlResult<R> {
    if value.is_null() {
        return Ok(f(Value::Null));
    }
    stored::with_value(value, ty, f)
}

/// The types of columns of a table.
pub(crate) fn types_of(table: &TableDef, columns: &[usize]) -> Vec<SqlType> {
    let types = columns.iter().filter_map(|at| table.columns.get(*at).map(|own| own.ty));
    types.collect()
}

/// The key of the first columns of a table or index that have these values; `None` if no row can
/// have one of them.
pub(crate) fn encode_key(
    txn: &Txn<'_>,
    source: Source,
    types: &[SqlType],
    values: &[Datum],
    table: &TableDef,
) -> SqlResult<Option<KeyBuf>> {
    let pairs: Vec<(&Datum, SqlType)> = values.iter().zip(types.iter().copied()).collect();
    let encoded = with_values(&pairs, &[], &mut |values| txn.key(source, values));
    match encoded {
        // A value that cannot be stored.
        Err(_) => Ok(None),
        Ok(Ok(key)) => Ok(Some(key)),
        Ok(Err(TxnError::Row(NamedRowError {
            error:
                RowError::TooLong { .. }
                | RowError::TooManyDigits { .. }
                | RowError::OutOfRange { .. }
                | RowError::NotNullable { .. },
            ..
        }))) => Ok(None),
        Ok(Err(error)) => Err(from_txn(error, Some(table))),
    }
}

/// The primary key of a row; `None` if it cannot be one of a stored row.
pub(crate) fn primary_key(
    txn: &Txn<'_>,
    table: &TableDef,
    row: &[Datum],
) -> SqlResult<Option<KeyBuf>> {
    key_in(txn, table.table.into(), table, &table.primary_key, row)
}

/// The key of a row in a table or index with these columns.
pub(crate) fn key_in(
    txn: &Txn<'_>,
    source: Source,
    table: &TableDef,
    columns: &[usize],
    row: &[Datum],
) -> SqlResult<Option<KeyBuf>> {
    let values: Vec<Datum> =
        columns.iter().map(|at| row.get(*at).cloned().unwrap_or(Datum::Null)).collect();
    encode_key(txn, source, &types_of(table, columns), &values, table)
}

/// Calls `f` with all of these values.
fn with_values<R>(
    rest: &[(&Datum, SqlType)],
    before: &[Value<'_>],
    f: &mut dyn FnMut(&[Value<'_>]) -> R,
) -> SqlResult<R> {
    let Some(((datum, ty), rest)) = rest.split_first() else { return Ok(f(before)) };
    with_value(datum, *ty, |value| {
        let mut all: Vec<Value<'_>> = before.to_vec();
        all.push(value);
        with_values(rest, &all, f)
    })?
}
