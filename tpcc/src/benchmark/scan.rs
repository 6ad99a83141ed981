//! Scans of a check, while no transaction writes.

use std::ops::{ControlFlow, Range};

use selkie_txn::{Direction, Index, Isolation, KeyBuf, KeyRange, RowRef, Table, TxnError};

use crate::cluster::{Node, TableSet};
use crate::error::TpccError;

/// The range of a table that begins where the first of the keys does and ends where the first after
/// them does; there is nothing before the range of key 1, and nothing after that of the last.
pub(crate) fn range_of(keys: &Range<i32>, last: i32, encode: impl Fn(i32) -> KeyBuf) -> KeyRange {
    let low = if keys.start > 1 { encode(keys.start) } else { KeyBuf::new() };
    if keys.end > last {
        KeyRange::from(&low)
    } else {
        KeyRange::half_open(&low, &encode(keys.end))
    }
}

/// Shows `visit` every row of a range. No transaction may write meanwhile: latches are held leaf by
/// leaf, as holding all would need a cache as large as the table.
pub(crate) async fn scan<T: TableSet>(
    node: &Node<T>,
    table: Table,
    range: &KeyRange,
    mut visit: impl FnMut(RowRef<'_>) -> Result<(), TxnError> + Send,
) -> Result<(), TpccError> {
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let visit = |row: RowRef<'_>| {
        visit(row)?;
        Ok(ControlFlow::Continue(()))
    };
    txn.scan(table, range, Direction::Forward, visit).await?;
    Ok(txn.commit().await?)
}

/// Shows `visit` the primary keys that an index leads to, in the order of the index. As [`scan`].
pub(crate) async fn scan_keys<T: TableSet>(
    node: &Node<T>,
    index: Index,
    range: &KeyRange,
    mut visit: impl FnMut(&[u8]) + Send,
) -> Result<(), TpccError> {
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let visit = |key: &[u8]| {
        visit(key);
        Ok(ControlFlow::Continue(()))
    };
    txn.scan_keys(index, range, Direction::Forward, visit).await?;
    Ok(txn.commit().await?)
}
