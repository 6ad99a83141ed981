//! Columns of the registers that come and go.
//!
//! Each has a number that no other column has, in its name and in all of its values: in its
//! defaults, and in what sessions write, who keep the number that they find. So a value that was of
//! another column shows.

use std::ops::ControlFlow;

use selkie_fabric::env::SplitMix;
use selkie_txn::{
    Column, ColumnType, Database, Direction, KeyRange, RowError, RowMut, Table, Txn, TxnError,
    Value,
};

use crate::error::{SimError, ensure};

/// The first of these columns, behind those that are always there.
pub(super) const FIRST_COLUMN: usize = 4;
/// Most of them at a time.
const MOST_COLUMNS: usize = 3;
/// Values of a column.
const VALUES: i64 = 1_000;
/// Columns are numbered below.
const NUMBERS: u64 = 1 << 40;
const PREFIX: &str = "more_";

/// Writes to these columns of a row, if there are any.
pub(super) fn write(row: &mut RowMut<'_>, version: u64) -> Result<(), TxnError> {
    for column in FIRST_COLUMN.. {
        let value = match row.value(column) {
            Ok(Value::I64(value)) => value - value % VALUES,
            Ok(_) => continue,
            Err(error) if matches!(error.error, RowError::NoSuchColumn { .. }) => break,
            Err(error) => return Err(error.into()),
        };
        if version.is_multiple_of(2) {
            row.set_i64(column, value + (version % VALUES.cast_unsigned()).cast_signed())?;
        }
    }
    Ok(())
}

/// Makes one change of these columns.
pub(super) async fn change(
    txn: &mut Txn<'_>,
    table: Table,
    random: &SplitMix,
) -> Result<(), TxnError> {
    let columns = txn.schema(table).await?.columns.split_off(FIRST_COLUMN);
    let chosen = random.below(columns.len().max(1) as u64) as usize;
    let Some(chosen) = columns.get(chosen).filter(|_| random.below(3) > 0) else {
        if columns.len() < MOST_COLUMNS {
            let number = 1 + random.below(NUMBERS).cast_signed();
            let column = Column::new(format!("{PREFIX}{number}"), ColumnType::I64);
            let default = Value::I64(number * VALUES);
            let column = match random.below(3) {
                0 => column.nullable(),
                1 => column.nullable().default(default),
                _ => column.default(default),
            };
            txn.add_column(table, column).await?;
        }
        return Ok(());
    };
    let name = &chosen.name;
    match random.below(6) {
        0 | 1 => txn.drop_column(table, name).await,
        // Without a default no session could insert a row any more.
        2 if chosen.default.is_some() => txn.set_not_null(table, name).await,
        3 => txn.drop_not_null(table, name).await,
        _ => {
            let value = number_of(name) * VALUES + random.below(7).cast_signed();
            txn.set_default(table, name, Value::I64(value)).await
        }
    }
}

/// Fails if a row has a value of another column, or a NULL where none may be.
pub(super) async fn check(db: &Database, table: Table) -> Result<(), SimError> {
    let mut txn = db.begin_to_read();
    let columns = txn.schema(table).await?.columns;
    let mut wrong = None;
    txn.scan(table, &KeyRange::all(), Direction::Forward, |row| {
        for (at, column) in columns.iter().enumerate().skip(FIRST_COLUMN) {
            let is_right = match row.value(at)? {
                Value::Null => column.nullable,
                Value::I64(value) => value / VALUES == number_of(&column.name),
                _ => false,
            };
            if !is_right {
                wrong =
                    Some(format!("{} is {:?} in row {}", column.name, row.value(at)?, row.i64(0)?));
            }
        }
        Ok(ControlFlow::Continue(()))
    })
    .await?;
    txn.commit().await?;
    ensure(wrong.is_none(), || wrong.unwrap_or_default())
}

fn number_of(column: &str) -> i64 {
    column.strip_prefix(PREFIX).and_then(|number| number.parse().ok()).unwrap_or(-1)
}
