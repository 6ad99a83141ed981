//! Lists: a row for each element, by list and number. Appending inserts after the last, reading
//! scans all.

use std::ops::ControlFlow;

use selkie_txn::{ColumnType, Database, Direction, KeyRange, Table, TableSchema, TxnError, key};

use super::access::Access;
use crate::check::serial::Op;

/// Columns.
const LIST: usize = 0;
const NUMBER: usize = 1;
const VALUE: usize = 2;

pub(super) fn schemas() -> Vec<TableSchema> {
    let element = TableSchema::new("element")
        .column("list", ColumnType::I64)
        .column("number", ColumnType::I64)
        .column("value", ColumnType::I64)
        .primary_key([LIST, NUMBER]);
    vec![element]
}

pub(super) struct Lists {
    table: Table,
}

impl Lists {
    pub(super) fn of(db: &Database) -> Result<Self, TxnError> {
        Ok(Self { table: db.table("element")? })
    }

    /// Appends; looks at the end as what is to be changed, or only reads it first.
    ///
    /// # Errors
    /// What the transaction reports.
    pub(super) async fn append(
        &self,
        access: &mut Access<'_, '_>,
        list: u64,
        value: u64,
    ) -> Result<(), TxnError> {
        let range = KeyRange::prefix(&key![list.cast_signed()]);
        let last = match access.coin() {
            true => access.txn.last_for_update(self.table, &range).await?,
            false => access.txn.last(self.table, &range).await?,
        };
        let number = last.map(|row| row.i64(NUMBER)).transpose()?.unwrap_or(0) + 1;
        let mut row = access.db.row(self.table)?;
        row.i64(list.cast_signed()).i64(number).i64(value.cast_signed());
        access.txn.insert(self.table, row.finish()?).await?;
        access.notes.add(Op::Append { key: list, value });
        Ok(())
    }

    /// Reads a list, from either end.
    ///
    /// # Errors
    /// What the transaction reports.
    pub(super) async fn read(
        &self,
        access: &mut Access<'_, '_>,
        list: u64,
    ) -> Result<(), TxnError> {
        let (mut value, direction) = (Vec::new(), access.direction());
        let range = KeyRange::prefix(&key![list.cast_signed()]);
        access
            .txn
            .scan(self.table, &range, direction, |row| {
                value.push(row.i64(VALUE)?.cast_unsigned());
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        if direction == Direction::Reverse {
            value.reverse();
        }
        access.notes.add(Op::ReadList { key: list, value });
        Ok(())
    }
}
