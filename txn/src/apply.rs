//! The commit of a transaction that has kept its changes aside.
//!
//! ```text
//! latch every leaf that is to change, exclusively, waiting for none
//!  -> look whether every leaf that was read is as it was, or nobody later was at those that change: the transaction takes
//!     place here
//!  -> change the leaves, as two-phase locking does, with a log to take it back (a split may find the pool full)
//! ```
//! What follows is of optimistic transactions; of those that are ordered by timestamps see
//! `stamps.rs`. Between the first and the last nothing that the transaction has read or changes can
//! be changed by others: what was read and is not held was as it was at a moment at which all that
//! changes was held.

use selkie_btree::LeafView;

use crate::error::TxnError;
use crate::latch::{Leaf, Mode, restless};
use crate::overlay::Overlay;
#[cfg(feature = "planted")]
use crate::protocol::Reads;
use crate::rollback::home;
use crate::structure::IndexInfo;
use crate::transaction::Txn;
use crate::undo::Change;

impl<'db> Txn<'db> {
    /// Makes the changes that were kept aside. After an error some may be made, which the undo log
    /// takes back.
    pub(crate) async fn apply(&mut self) -> Result<(), TxnError> {
        let overlay = std::mem::take(&mut self.work.overlay);
        let before = self.open_critical();
        let applied = self.apply_all(&overlay).await;
        self.close_critical(before);
        self.work.overlay = overlay;
        applied
    }

    async fn apply_all(&mut self, overlay: &Overlay) -> Result<(), TxnError> {
        self.work.transient = None;
        self.latch_changes();
        let leaves = self.latch_all(overlay).await?;
        self.validate_reads().await?;
        self.check_order()?;
        #[cfg(feature = "planted")]
        let leaves = match self.db.engine.planted() {
            selkie_engine::Planted::EarlyRelease if self.control().reads() == Reads::Stamped => {
                self.work.held.release();
                self.db.engine.env().pause(std::time::Duration::from_micros(2)).await;
                self.latch_all(overlay).await?
            }
            _ => leaves,
        };
        for ((_, key, value), (index, leaf)) in overlay.all().zip(leaves) {
            self.apply_one(index, leaf, key, value).await?;
        }
        self.stamp_changes()
    }

    /// Fails unless all that was read is as it was.
    async fn validate_reads(&mut self) -> Result<(), TxnError> {
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::UncheckedReads {
            return Ok(());
        }
        self.validate().await
    }

    /// Latches the leaves of all changes; each change with its leaf's position among those held.
    async fn latch_all(
        &mut self,
        overlay: &Overlay,
    ) -> Result<Vec<(&'db IndexInfo, usize)>, TxnError> {
        let mut leaves = Vec::new();
        for (tree, key, _) in overlay.all() {
            let index = self.db.index_of(tree)?;
            match self.find(index, key, Mode::Exclusive).await?.leaf {
                Leaf::Held(leaf) => leaves.push((index, leaf)),
                Leaf::Transient => return Err(restless(index)),
            }
        }
        Ok(leaves)
    }

    /// Makes one change, in the leaf that was latched for it or, if that was split since, to the
    /// right of it.
    async fn apply_one(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), TxnError> {
        let (leaf, slot) = home(&self.work.held, leaf, key).ok_or_else(|| restless(index))?;
        match (slot, value) {
            (Err(_), Some(value)) => self.add_at(index, leaf, key, value).await,
            (Ok(slot), Some(value)) => {
                let before = LeafView::new(self.held_bytes(leaf))?.value(slot)?;
                if before.len() == value.len() {
                    return self.overwrite(index, leaf, slot, key, value);
                }
                self.replace(index, leaf, slot, key, value).await
            }
            (Ok(slot), None) => self.remove(index, leaf, slot, key).await,
            // It was added and removed again.
            (Err(_), None) => Ok(()),
        }
    }

    /// Overwrites a value by one of the same length, from the first byte that differs to the last.
    fn overwrite(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        slot: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        let work = &mut self.work;
        let guard = work.held.exclusive_mut(leaf).ok_or_else(|| restless(index))?;
        let range = LeafView::new(guard)?.value_range(slot)?;
        let before = guard.get(range.clone()).unwrap_or_default();
        let mut differs = before.iter().zip(value).enumerate().filter(|(_, (a, b))| a != b);
        let Some((first, _)) = differs.next() else { return Ok(()) };
        let last = differs.next_back().map_or(first, |(last, _)| last);
        let after = value.get(first..=last).unwrap_or_default();
        let target = guard.bytes_mut(range.start + first..range.start + last + 1);
        work.undo.push(Change::Patched { offset: first }, leaf, key, target);
        target.copy_from_slice(after);
        Ok(())
    }
}
