//! Creating, changing and dropping sequences.

use std::ops::ControlFlow;

use selkie_btree::Direction;

use crate::catalogue::definition::{SEQUENCE_VALUES, SEQUENCES};
use crate::catalogue::error::CatalogueError;
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::sequences::definition::{SequenceSchema, StoredSequence, ValuesTaken};
use crate::sequences::error::SequenceError;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Creates a sequence. Others see it once the transaction has committed.
    ///
    /// # Errors
    /// [`TxnError::Sequence`] if it cannot work, or there is one of that name; nothing is created
    /// then. [`CatalogueError::FixedTables`](crate::CatalogueError::FixedTables) where tables do
    /// not change; [`TxnError::ReadOnly`]; [`TxnError::Conflict`] and the other errors that roll
    /// back.
    pub async fn create_sequence(&mut self, schema: SequenceSchema) -> Result<(), TxnError> {
        self.open_sequences()?;
        schema.validate()?;
        schema.check_name(self.db.engine.page_bytes())?;
        let mark = self.begin_change();
        let taken = ValuesTaken::Before(schema.start);
        let created = Box::pin(self.write_sequence(schema, taken)).await;
        self.close_change(mark, created).await
    }

    /// Drops a sequence.
    ///
    /// # Errors
    /// [`SequenceError::NoSuchSequence`]; and as [`create_sequence`](Self::create_sequence).
    pub async fn drop_sequence(&mut self, name: &str) -> Result<(), TxnError> {
        self.open_sequences()?;
        let mark = self.begin_change();
        let dropped = Box::pin(self.take_sequence_out(name)).await.map(drop);
        self.close_change(mark, dropped).await
    }

    /// Changes a sequence, its name too, and with `restart` the value that comes next. Without, it
    /// goes on behind the last value that any node has taken: values of blocks that nodes had are
    /// left out. Transactions that use the sequence meanwhile have to be run again.
    ///
    /// # Errors
    /// [`SequenceError::NoSuchSequence`]; [`SequenceError::OutOfBounds`] if the value that comes
    /// next is beyond the bounds; and as [`create_sequence`](Self::create_sequence).
    pub async fn alter_sequence<F>(
        &mut self,
        name: &str,
        change: F,
        restart: Option<i64>,
    ) -> Result<(), TxnError>
    where
        F: FnOnce(&mut SequenceSchema) + Send,
    {
        self.open_sequences()?;
        let mark = self.begin_change();
        let altered = Box::pin(self.replace_sequence(name, change, restart)).await;
        self.close_change(mark, altered).await
    }

    /// A sequence as it was created or changed last.
    ///
    /// # Errors
    /// [`SequenceError::NoSuchSequence`]; [`TxnError::Conflict`] and the other errors that roll
    /// back; [`CatalogueError::FixedTables`](crate::CatalogueError::FixedTables).
    pub async fn sequence(&mut self, name: &str) -> Result<SequenceSchema, TxnError> {
        self.open_to_read_sequences()?;
        let found = Box::pin(self.find_sequence(name)).await;
        let found = self.close_read(found).await?;
        match found {
            Some((stored, _)) => Ok(stored.schema),
            None => Err(self.error_of_valid_reads(no_such_sequence(name)).await),
        }
    }

    /// All sequences, in the order of their names.
    ///
    /// # Errors
    /// As [`sequence`](Self::sequence).
    pub async fn sequences(&mut self) -> Result<Vec<SequenceSchema>, TxnError> {
        self.open_to_read_sequences()?;
        let (info, mut all) = (self.system_table(SEQUENCES), Vec::new());
        let mut take = |row: RowRef<'_>| {
            all.push(StoredSequence::read(row)?.schema);
            Ok(ControlFlow::Continue(()))
        };
        let (range, forward, mut entry) = (KeyRange::all(), Direction::Forward, Vec::new());
        let scan =
            self.scan_rows(info, &info.primary, &range, forward, &mut take, &mut entry).await;
        self.close_read(scan).await?;
        Ok(all)
    }

    fn open_to_read_sequences(&mut self) -> Result<(), TxnError> {
        self.open_read_for(LatchMode::Shared)?;
        match self.db.directory.changing() {
            Some(_) => Ok(()),
            None => Err(CatalogueError::FixedTables.into()),
        }
    }

    /// Writes a sequence under a new identity.
    async fn write_sequence(
        &mut self,
        schema: SequenceSchema,
        taken: ValuesTaken,
    ) -> Result<(), TxnError> {
        let (sequences, values) =
            (self.system_table(SEQUENCES), self.system_table(SEQUENCE_VALUES));
        let stored = StoredSequence { schema, identity: self.new_version() };
        let row = stored.row(&sequences.layout)?;
        let inserted = self.insert_row(sequences, RowRef::new(&sequences.layout, &row)).await;
        inserted.map_err(|error| match error {
            TxnError::Duplicate { .. } => {
                SequenceError::Exists { name: stored.schema.name.clone() }.into()
            }
            other => other,
        })?;
        let row = taken.row(&values.layout, stored.identity)?;
        self.insert_row(values, RowRef::new(&values.layout, &row)).await
    }

    /// Deletes a sequence; returns it, and how far it was.
    async fn take_sequence_out(
        &mut self,
        name: &str,
    ) -> Result<(SequenceSchema, ValuesTaken), TxnError> {
        let Some((stored, _)) = self.find_sequence(name).await? else {
            return Err(self.error_of_valid_reads(no_such_sequence(name)).await);
        };
        let (sequences, values) =
            (self.system_table(SEQUENCES), self.system_table(SEQUENCE_VALUES));
        let mut row = Vec::new();
        self.delete_row(sequences, &KeyBuf::new().text(name), &mut row).await?;
        self.delete_row(values, &KeyBuf::new().i64(stored.identity), &mut row).await?;
        let taken = ValuesTaken::read(RowRef::new(&values.layout, &row))?;
        Ok((stored.schema, taken))
    }

    async fn replace_sequence<F>(
        &mut self,
        name: &str,
        change: F,
        restart: Option<i64>,
    ) -> Result<(), TxnError>
    where
        F: FnOnce(&mut SequenceSchema) + Send,
    {
        let (mut schema, taken) = self.take_sequence_out(name).await?;
        change(&mut schema);
        schema.validate()?;
        schema.check_name(self.db.engine.page_bytes())?;
        let taken = restart.map_or(taken, ValuesTaken::Before);
        schema.check_value(taken.parts().0)?;
        self.write_sequence(schema, taken).await
    }
}

fn no_such_sequence(name: &str) -> TxnError {
    SequenceError::NoSuchSequence { name: name.to_owned() }.into()
}
