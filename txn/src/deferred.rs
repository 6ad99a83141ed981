//! Changing without being seen: operations of transactions whose changes are kept aside until they
//! commit.
//!
//! An operation reads what it depends on (whether a key is there, what the row was), and notes in
//! the overlay what is to be. Before anything is changed it is known that what it found is still
//! true, or that nobody later has been there.

use selkie_btree::LeafView;

use crate::error::TxnError;
use crate::latch::{Found, Mode};
use crate::overlay::Own;
use crate::structure::{IndexInfo, TableInfo};
use crate::transaction::Txn;

impl Txn<'_> {
    /// Copies a row as this transaction sees it.
    pub(crate) async fn copy_row(
        &mut self,
        info: &TableInfo,
        key: &[u8],
        row: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        row.clear();
        match self.work.overlay.get(info.primary.number, key) {
            Own::Is(value) => row.extend_from_slice(value),
            Own::Removed => return Err(self.if_as_read(info.not_found()).await),
            Own::Unchanged => {
                let Found { leaf, slot } = self.find(&info.primary, key, Mode::Exclusive).await?;
                let Ok(slot) = slot else {
                    return Err(self.if_as_read(info.not_found()).await);
                };
                row.extend_from_slice(LeafView::new(self.leaf_bytes(leaf))?.value(slot)?);
            }
        }
        Ok(())
    }

    /// Whether an entry is there, as this transaction sees it.
    async fn is_there(&mut self, index: &IndexInfo, key: &[u8]) -> Result<bool, TxnError> {
        Ok(match self.work.overlay.get(index.number, key) {
            Own::Is(_) => true,
            Own::Removed => false,
            Own::Unchanged => self.find(index, key, Mode::Exclusive).await?.slot.is_ok(),
        })
    }

    pub(crate) async fn defer_add(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        if self.is_there(index, key).await? {
            return Err(self.if_as_read(info.duplicate(index)).await);
        }
        self.work.overlay.set(index.number, key, Some(value));
        Ok(())
    }

    pub(crate) async fn defer_remove(
        &mut self,
        info: &TableInfo,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<(), TxnError> {
        if !self.is_there(index, key).await? {
            return Err(self.if_as_read(info.inconsistent(index)).await);
        }
        self.work.overlay.set(index.number, key, None);
        Ok(())
    }
}
