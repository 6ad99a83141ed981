//! Deferred changes: operations of transactions whose changes commit makes.
//!
//! An operation reads what it depends on (whether a key is there, the old row), and enters the
//! change in the write set. Commit makes the change only if what the operation has read is still
//! true, or if no later transaction was there.

use selkie_btree::LeafView;

use crate::access::leaf::KeyPosition;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::error::TxnError;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Copies a row into `row`, as this transaction sees it.
    pub(crate) async fn copy_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        row.clear();
        match self.work.writes.get(info.primary.number, key) {
            WrittenEntry::Present(value) => row.extend_from_slice(value),
            WrittenEntry::Removed => return Err(self.error_of_valid_reads(info.not_found()).await),
            WrittenEntry::Unchanged => {
                let found = self.find(&info.primary, key, LatchMode::Exclusive).await?;
                self.record_point(&info.primary, key, &found, LatchMode::Exclusive)?;
                let KeyPosition { leaf, slot } = found;
                let Ok(slot) = slot else {
                    return Err(self.error_of_valid_reads(info.not_found()).await);
                };
                row.extend_from_slice(LeafView::new(self.leaf_bytes(leaf))?.value(slot)?);
            }
        }
        Ok(())
    }

    /// Whether an entry is there, as this transaction sees it.
    async fn is_there(&mut self, index: &IndexInfo, key: &[u8]) -> Result<bool, TxnError> {
        Ok(match self.work.writes.get(index.number, key) {
            WrittenEntry::Present(_) => true,
            WrittenEntry::Removed => false,
            WrittenEntry::Unchanged => {
                let found = self.find(index, key, LatchMode::Exclusive).await?;
                self.record_point(index, key, &found, LatchMode::Exclusive)?;
                found.slot.is_ok()
            }
        })
    }

    /// Adds an entry to the write set, unless the key is there.
    pub(crate) async fn defer_add(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        if self.is_there(index, key).await? {
            return Err(self.error_of_valid_reads(info.duplicate(index)).await);
        }
        self.work.writes.set(index.number, key, Some(value));
        Ok(())
    }

    /// Removes an entry in the write set, which must be there.
    pub(crate) async fn defer_remove(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<(), TxnError> {
        if !self.is_there(index, key).await? {
            return Err(self.error_of_valid_reads(info.inconsistent(index)).await);
        }
        self.work.writes.set(index.number, key, None);
        Ok(())
    }
}
