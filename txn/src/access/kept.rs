//! Reads that have to stay true until the commit, whatever the isolation, and lock nothing.
//!
//! What a constraint between two tables rests on: a row with this key is there, a range has no
//! rows. A transaction that changes one side of it has recorded the other, so of two that change
//! both sides at once the later one fails, also where each only reads what is committed.

use selkie_btree::Direction;

use crate::access::leaf::KeyPosition;
use crate::access::walk::Walk;
use crate::access::walk_state::WalkState;
use crate::catalogue::handles::{Source, Table};
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::encoding::key_range::KeyRange;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::txn::Txn;

impl<'db> Txn<'db> {
    /// Whether there is a row with this primary key. If there is, it has to be there at commit,
    /// whatever the isolation; under [`Protocol::Snapshot`](crate::Protocol::Snapshot) others may
    /// change columns that are not of the key, and any number of transactions may keep one row. At
    /// most one descent and one leaf.
    ///
    /// # Errors
    /// As [`get_for_update`](Self::get_for_update).
    pub async fn keep_row(&mut self, table: Table, key: &[u8]) -> Result<bool, TxnError> {
        if !self.records_rows() {
            return Ok(self.get_for_update(table, key).await?.is_some());
        }
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(table).await?;
        info.check_key(&info.primary, key)?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_to_read(info, key)).await?;
        }
        self.view.narrow_to_one_leaf();
        let found = self.find_kept(info, key).await;
        // Nothing of it is shown: others need not wait for the leaf.
        self.work.last_read = None;
        self.close_read(found).await
    }

    async fn find_kept(&mut self, info: &TableInfo, key: &[u8]) -> Result<bool, TxnError> {
        if let Some(written) = self.written_position(info, key) {
            return Ok(written.is_some());
        }
        let found = self.find(&info.primary, key, LatchMode::Shared).await?;
        let KeyPosition { slot, .. } = &found;
        if slot.is_err() {
            self.record_point(&info.primary, key, &found, LatchMode::Shared)?;
            return Ok(false);
        }
        let columns = info.schema.primary_key.iter().fold(0, |mask, column| mask | 1 << column);
        self.record_columns(info, key, &found, columns, LatchMode::Exclusive)?;
        Ok(true)
    }

    /// Whether a range of a table or index has a row. What was looked at has to be the same at
    /// commit, whatever the isolation: all of the range if `whole` says so or there is no row, else
    /// what comes up to the first.
    ///
    /// # Errors
    /// As [`first_for_update`](Self::first_for_update).
    pub async fn keep_range(
        &mut self,
        source: impl Into<Source>,
        range: &KeyRange,
        whole: bool,
    ) -> Result<bool, TxnError> {
        let source = source.into();
        self.open_read_for(LatchMode::Exclusive)?;
        let info = self.table_info(source.table()).await?;
        let index = info.source(source)?;
        if self.row_locks.insists_to_read() {
            Box::pin(self.insist_on_range(info, index, range)).await?;
        }
        let found = self.walk_kept(info, index, range, whole).await;
        self.work.last_read = None;
        self.close_read(found).await
    }

    async fn walk_kept(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        range: &KeyRange,
        whole: bool,
    ) -> Result<bool, TxnError> {
        info.check_range(index, range)?;
        let state = WalkState::at_beginning(range);
        // Of a protocol that records no rows the mode says what stays.
        let mode = if self.records_rows() { LatchMode::Shared } else { LatchMode::Exclusive };
        let mut walk = Walk::new(index, range, Direction::Forward, mode, state);
        walk.keeps = self.records_rows();
        let mut is_there = false;
        while let Some(at) = walk.next(self).await? {
            is_there = true;
            if !whole {
                walk.record(self, &at)?;
                break;
            }
        }
        Ok(is_there)
    }
}
