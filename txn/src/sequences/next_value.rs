//! Taking values.

use crate::access::read::RowPosition;
use crate::catalogue::definition::{SEQUENCE_VALUES, SEQUENCES};
use crate::catalogue::error::CatalogueError;
use crate::encoding::key::KeyBuf;
use crate::error::TxnError;
use crate::protocol::choice::{Isolation, Protocol};
use crate::protocol::leaf_latch::LatchMode;
use crate::sequences::blocks::{Block, NextStep};
use crate::sequences::definition::{StoredSequence, ValuesTaken};
use crate::sequences::error::SequenceError;
use crate::stats::shard_here;
use crate::transaction::database_state::DatabaseState;
use crate::transaction::retry::{RetryPolicy, retry};
use crate::transaction::txn::Txn;

impl<'db> Txn<'db> {
    /// The next value of a sequence, which no other transaction gets, on any node, unless the
    /// sequence cycles. A rollback does not give it back. Of a sequence that this transaction has
    /// created or changed, values are changes of the transaction, and are given back.
    ///
    /// No round trip while the node has values of a block and the catalogue's page is cached; else
    /// it waits for a transaction of its own whose commit is durable. Callers of one node wait for
    /// one of them.
    ///
    /// # Errors
    /// [`SequenceError::NoSuchSequence`], [`SequenceError::Exhausted`];
    /// [`SequenceError::Changed`], which rolls back: run the transaction again;
    /// [`CatalogueError::FixedTables`] in a database without sequences; [`TxnError::ReadOnly`];
    /// [`TxnError::Conflict`] and the other errors that roll back.
    pub async fn next_value(&mut self, name: &str) -> Result<i64, TxnError> {
        self.open_sequences()?;
        let found = Box::pin(self.find_sequence(name)).await;
        let found = self.close_read(found).await?;
        self.work.last_read = None;
        let Some((stored, is_own)) = found else {
            let name = name.to_owned();
            return Err(self
                .error_of_valid_reads(SequenceError::NoSuchSequence { name }.into())
                .await);
        };
        if is_own {
            let mark = self.begin_change();
            let taken = Box::pin(self.take_values(&stored, 1)).await;
            return Ok(self.close_change(mark, taken).await?.first);
        }
        let db = self.db;
        loop {
            match db.sequences.next(stored.identity) {
                NextStep::Take(value) => return Ok(value),
                NextStep::Wait(seen) => db.sequences.wait_past(seen).await,
                NextStep::Lease(turn) => {
                    let block = Box::pin(lease(db, &stored)).await;
                    let block = match block {
                        Err(TxnError::NotFound { .. }) => {
                            let name = name.to_owned();
                            Err(SequenceError::Changed { name }.into())
                        }
                        other => other,
                    };
                    return Ok(turn.give(self.close_read(block).await?));
                }
            }
        }
    }

    /// Begins an operation that changes a sequence.
    pub(crate) fn open_sequences(&mut self) -> Result<(), TxnError> {
        self.open_read_for(LatchMode::Exclusive)?;
        if self.db.directory.changing().is_none() {
            return Err(CatalogueError::FixedTables.into());
        }
        Ok(())
    }

    /// The definition of a sequence in the state that the current operation sees, and whether this
    /// transaction has made it.
    pub(crate) async fn find_sequence(
        &mut self,
        name: &str,
    ) -> Result<Option<(StoredSequence, bool)>, TxnError> {
        let (info, key) = (self.system_table(SEQUENCES), KeyBuf::new().text(name));
        let Some(at) = self.find_row_position(info, &key, LatchMode::Shared, None).await? else {
            return Ok(None);
        };
        let stored = StoredSequence::read(info.row(self.row_bytes(info, &at)?)?)?;
        Ok(Some((stored, matches!(at, RowPosition::WriteSet(_)))))
    }

    /// Takes the next values of a sequence, up to `most`, as a change of this transaction.
    async fn take_values(&mut self, of: &StoredSequence, most: u32) -> Result<Block, TxnError> {
        let (info, mut buffer) = (self.system_table(SEQUENCE_VALUES), Vec::new());
        let key = KeyBuf::new().i64(of.identity);
        let schema = &of.schema;
        self.update_row(info, &key, &mut buffer, |row| {
            let (block, taken) = schema.take(ValuesTaken::read(row.as_row())?, most)?;
            let (value, is_taken) = taken.parts();
            row.set_i64(ValuesTaken::VALUE, value)?;
            row.set_bool(ValuesTaken::IS_TAKEN, is_taken)?;
            Ok(block)
        })
        .await
    }
}

/// Takes a block in a transaction of its own.
async fn lease(db: &DatabaseState, of: &StoredSequence) -> Result<Block, TxnError> {
    let policy = RetryPolicy::default();
    let leased = retry(db.engine.env(), &policy, || async {
        let mut txn = Txn::new(db, Protocol::Snapshot, Isolation::Serializable, shard_here());
        txn.open_sequences()?;
        let mark = txn.begin_change();
        let taken = txn.take_values(of, of.schema.block).await;
        let block = txn.close_change(mark, taken).await?;
        txn.commit().await?;
        Ok(block)
    });
    leased.await.map_err(|error| match error.into_inner() {
        // Whether or not it lasts, the transaction that needs a value has committed nothing.
        TxnError::Undetermined { source } => source.into(),
        error => error,
    })
}
