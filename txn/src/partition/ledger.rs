//! The ledger: rows in which a partition records what it must know of a transaction after a crash.

use super::message::TransactionId;
use crate::catalogue::column_type::ColumnType;
use crate::catalogue::handles::Table;
use crate::catalogue::schema::TableSchema;
use crate::encoding::key::KeyBuf;
use crate::encoding::row_mut::RowMut;
use crate::error::TxnError;
use crate::transaction::database::Database;
use crate::transaction::txn::Txn;

/// Most bytes of all requests of a transaction to one participant, two more for each included.
pub const MAX_REQUEST_BYTES: usize = 384;

const SEQUENCE: usize = 2;
const STATE: usize = 3;
const REQUESTS: usize = 4;

/// How far a transaction has come, as the ledger records it.
#[derive(Clone, Copy, Debug)]
pub(super) enum LedgerState {
    /// It waits for the coordinator's decision; the record has its requests.
    Prepared = 1,
    /// It has committed. In the coordinator's own ledger this is the decision for all partitions.
    Committed = 2,
}

/// The schema of a ledger: the table of that name in which a partition keeps its records.
#[must_use]
pub fn ledger(name: &str) -> TableSchema {
    TableSchema::new(name)
        .column("coordinator", ColumnType::I32)
        .column("worker", ColumnType::I32)
        .column("sequence", ColumnType::I64)
        .column("state", ColumnType::I32)
        .column("requests", ColumnType::Bytes(MAX_REQUEST_BYTES as u32))
        .primary_key([0, 1])
        .max_rows_per_page(1)
}

/// Writes the record of a transaction, in place of the record of the worker's one before.
pub(super) async fn record(
    (db, ledger): (&Database, Table),
    txn: &mut Txn<'_>,
    id: TransactionId,
    state: LedgerState,
    requests: &[u8],
) -> Result<(), TxnError> {
    let coordinator = id.coordinator_column();
    let (worker, sequence) = (id.worker.cast_signed(), id.sequence.cast_signed());
    let change = |row: &mut RowMut<'_>| {
        row.set_i64(SEQUENCE, sequence)?;
        row.set_i32(STATE, state as i32)?;
        Ok(row.set_bytes(REQUESTS, requests)?)
    };
    let key = KeyBuf::new().i32(coordinator).i32(worker);
    match txn.update(ledger, &key, change).await {
        Err(TxnError::NotFound { .. }) => {
            let mut row = db.row(ledger)?;
            row.i32(coordinator).i32(worker).i64(sequence).i32(state as i32).bytes(requests);
            txn.insert(ledger, row.finish()?).await
        }
        updated => updated,
    }
}
