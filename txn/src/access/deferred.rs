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
    /// Copies a row into `row`, as this transaction sees it. Returns the number of the read that
    /// has found it, if it was read from its leaf and reads are recorded.
    pub(crate) async fn copy_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<Option<usize>, TxnError> {
        row.clear();
        match self.work.writes.get(info.primary.number, key) {
            WrittenEntry::Present(value) => {
                row.extend_from_slice(value);
                Ok(None)
            }
            WrittenEntry::Removed => Err(self.error_of_valid_reads(info.not_found(key)).await),
            WrittenEntry::Unchanged => {
                let found = self.find(&info.primary, key, LatchMode::Exclusive).await?;
                let read = self.record_point(&info.primary, key, &found, LatchMode::Exclusive)?;
                let KeyPosition { leaf, slot } = found;
                let Ok(slot) = slot else {
                    return Err(self.error_of_valid_reads(info.not_found(key)).await);
                };
                row.extend_from_slice(LeafView::new(self.leaf_bytes(leaf))?.value(slot)?);
                Ok(read)
            }
        }
    }

    /// What `look` makes of the value of an entry as this transaction sees it, `None` if it is not
    /// there; and the number of the read as for [`copy_row`](Self::copy_row).
    async fn look_at<R>(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        look: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<(R, Option<usize>), TxnError> {
        Ok(match self.work.writes.get(index.number, key) {
            WrittenEntry::Present(value) => (look(Some(value)), None),
            WrittenEntry::Removed => (look(None), None),
            WrittenEntry::Unchanged => {
                let found = self.find(index, key, LatchMode::Exclusive).await?;
                let read = self.record_point(index, key, &found, LatchMode::Exclusive)?;
                let leaf = LeafView::new(self.leaf_bytes(found.leaf))?;
                let value = found.slot.ok().map(|slot| leaf.value(slot)).transpose()?;
                (look(value), read)
            }
        })
    }

    /// Adds an entry of a row to an index that is being built, unless it has it already.
    pub(crate) async fn add_unless_entered(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        let is_same = |entered: Option<&[u8]>| entered.map(|entered| entered == value);
        match self.look_at(index, key, is_same).await? {
            (Some(true), _) => {}
            (Some(false), _) => {
                return Err(self.error_of_valid_reads(info.duplicate(index, key)).await);
            }
            (None, read) => self.work.writes.set(index.number, key, Some(value), read),
        }
        Ok(())
    }

    /// Adds an entry to the write set, unless the key is there.
    pub(crate) async fn defer_add(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        let (is_there, read) = self.look_at(index, key, |value| value.is_some()).await?;
        if is_there {
            return Err(self.error_of_valid_reads(info.duplicate(index, key)).await);
        }
        self.work.writes.set(index.number, key, Some(value), read);
        Ok(())
    }

    /// Removes the entry of a row in the write set, which must be there, unless the index is being
    /// built.
    pub(crate) async fn defer_remove(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        // The row may not be entered yet, and another one with the same key may be.
        let is_own = |entered: Option<&[u8]>| {
            entered.is_some_and(|entered| index.is_complete || entered == value)
        };
        let (is_there, read) = self.look_at(index, key, is_own).await?;
        if is_there {
            self.work.writes.set(index.number, key, None, read);
        } else if index.is_complete {
            return Err(self.error_of_valid_reads(info.inconsistent(index)).await);
        }
        Ok(())
    }
}
