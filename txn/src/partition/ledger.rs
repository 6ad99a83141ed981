//! The ledger: what a partition has to know of a transaction after its death, in rows.

use crate::database::{Database, Table};
use crate::error::TxnError;
use crate::key;
use crate::row_write::RowMut;
use crate::schema::{ColumnType, TableSchema};
use crate::transaction::Txn;

use super::message::TransactionId;

/// Bytes that the requests of a transaction to one participant may have in all, with two for each.
pub const MAX_REQUEST_BYTES: usize = 384;

const SEQUENCE: usize = 2;
const STATE: usize = 3;
const REQUESTS: usize = 4;

/// How far a transaction has come.
#[derive(Clone, Copy, Debug)]
pub(super) enum State {
    /// It waits for the coordinator's decision; the requests say what it was about.
    Prepared = 1,
    /// It has committed. In the coordinator's own ledger this is the decision for all.
    Committed = 2,
}

/// The table of that name that a partition keeps its records in.
#[must_use]
pub fn ledger(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column("coordinator", ColumnType::I32)
        .column("worker", ColumnType::I32)
        .column("sequence", ColumnType::I64)
        .column("state", ColumnType::I32)
        .column("requests", ColumnType::Bytes(MAX_REQUEST_BYTES as u16))
        .primary_key([0, 1])
        .max_rows_per_page(1)
}

/// Writes the record of a transaction over that of the one before.
pub(super) async fn record(
    (db, ledger): (&Database, Table),
    txn: &mut Txn<'_>,
    id: TransactionId,
    state: State,
    requests: &[u8],
) -> Result<(), TxnError> {
    let coordinator = i32::try_from(id.coordinator).unwrap_or(i32::MAX);
    let (worker, sequence) = (id.worker.cast_signed(), id.sequence.cast_signed());
    let change = |row: &mut RowMut<'_>| {
        row.set_i64(SEQUENCE, sequence)?;
        row.set_i32(STATE, state as i32)?;
        Ok(row.set_bytes(REQUESTS, requests)?)
    };
    match txn.update(ledger, &key![coordinator, worker], change).await {
        Err(TxnError::NotFound { .. }) => {
            let mut row = db.row(ledger)?;
            row.i32(coordinator).i32(worker).i64(sequence).i32(state as i32).bytes(requests);
            txn.insert(ledger, row.finish()?).await
        }
        updated => updated,
    }
}
