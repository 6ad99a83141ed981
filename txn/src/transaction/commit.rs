//! Commit, and how it applies a write set.
//!
//! A two-phase locked transaction has made its changes already: commit validates what it has read
//! and not kept latched, seals the changes into one log record, and releases the latches. A
//! transaction with deferred changes makes them now:
//!
//! ```text
//! latch every leaf that is to change, exclusively, waiting for none
//!  -> validate the read set, or check that no later transaction was at the leaves that change:
//!     the transaction takes place here
//!  -> change the leaves, as two-phase locking does, with an undo log
//!     (a split may find the pool full)
//! ```
//! For optimistic transactions: between the first step and the last, no other transaction can
//! change the leaves that this one has read or changes. Leaves that were read and are not held were
//! unchanged at a point in time at which all leaves that change were held. For timestamp ordering
//! see [`timestamp_order`](crate::protocol::timestamp_order), for snapshots
//! [`commit_rows`](crate::transaction::commit_rows).

use std::ops::Range;

use selkie_btree::LeafView;
use selkie_fabric::env::yield_now;

use crate::access::leaf::{LeafRef, no_stable_leaf};
use crate::catalogue::table_info::IndexInfo;
use crate::ddl::reclaim::reclaim_dropped;
use crate::error::{AbortCause, TxnError};
#[cfg(feature = "planted")]
use crate::protocol::choice::ReadRule;
use crate::protocol::leaf_latch::LatchMode;
use crate::protocol::undo_log::EntryChange;
use crate::protocol::write_set::{DeferredChange, WriteSet};
use crate::transaction::commit_bound::CommitBound;
use crate::transaction::txn::{Txn, TxnPhase};

/// Changes that commit makes, or finds the leaves of, before other tasks run.
const CHANGES_AT_ONCE: usize = 1024;

/// Bytes compared at once.
const WORD: usize = 8;

impl<'db> Txn<'db> {
    /// Commits: releases every latch, which makes all changes visible to all transactions at once.
    /// Before that, where changes are deferred, latches what is to be changed, and validates that
    /// what was read is unchanged ([`Protocol::Optimistic`](crate::Protocol::Optimistic)), or that
    /// no later transaction was there ([`Protocol::Timestamp`](crate::Protocol::Timestamp)). Then
    /// maintains the trees, waiting for inner pages only; if the future is dropped there the
    /// transaction is committed nevertheless, and rolled back if it is dropped before.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if an earlier error rolled it back, or an operation was dropped
    /// half-way. Where changes are deferred, or leaves were read without keeping them latched, also
    /// [`TxnError::Stale`] or [`TxnError::TooLate`], [`TxnError::Conflict`] and the other errors
    /// that roll back. [`TxnError::Undetermined`] if the node's log cannot be written, or the node
    /// may have been declared dead: it has committed, but may be gone if the node ends now.
    /// [`TxnError::Engine`] instead if it has changed nothing: what it has read may be old. Nothing
    /// else: maintenance that fails is left for later.
    pub async fn commit(self) -> Result<(), TxnError> {
        self.commit_within(&mut CommitBound::default()).await
    }

    /// As [`commit`](Self::commit), which waits no longer for locks than that.
    pub(super) async fn commit_within(
        mut self,
        bound: &mut CommitBound<'_>,
    ) -> Result<(), TxnError> {
        self.check_active()?;
        let is_valid = match self.defers_writes() {
            true => self.apply(bound).await,
            false => self.validate_to_commit().await,
        };
        if let Err(error) = is_valid {
            return Err(Box::pin(self.end_failed_commit(error)).await);
        }
        self.phase = TxnPhase::Committed;
        self.queue_maintenance();
        self.work.created.clear();
        if self.work.drops_trees {
            self.db.dropped.look();
        }
        let has_changed = self.work.locks.change_bytes() > 0;
        let lsn = self.release_all();
        if !self.row_locks.is_empty() {
            Box::pin(self.row_locks.take().released()).await;
        }
        let durable = self.db.engine.until_durable(lsn).await;
        if durable.is_ok() || has_changed {
            self.db.stats.committed(self.shard);
        }
        self.maintain().await;
        if self.db.dropped.is_due(self.db.engine.env().now()) {
            reclaim_dropped(self.db).await;
        }
        durable.map_err(|source| match has_changed {
            true => TxnError::Undetermined { source },
            false => TxnError::Engine(source),
        })
    }

    async fn end_failed_commit(mut self, error: TxnError) -> TxnError {
        let error = self.error_if_in_force(error).await;
        // An error of the caller's, which would leave the transaction usable, cannot come here.
        self.undo_in_turns(0).await;
        let row_locks = self.row_locks.take();
        self.abort(error.abort_cause().unwrap_or(AbortCause::Failure));
        row_locks.released().await;
        self.maintain().await;
        self.wait_if_full(error).await
    }

    /// Makes the changes of the write set. After an error some may be made, which the undo log
    /// undoes.
    async fn apply(&mut self, bound: &mut CommitBound<'_>) -> Result<(), TxnError> {
        let writes = std::mem::take(&mut self.work.writes);
        let before = self.open_critical();
        let applied = self.apply_all(&writes, bound).await;
        self.close_critical(before);
        self.work.writes = writes;
        applied
    }

    async fn apply_all(
        &mut self,
        writes: &WriteSet,
        bound: &mut CommitBound<'_>,
    ) -> Result<(), TxnError> {
        self.work.last_read = None;
        self.begin_apply();
        if self.records_rows() {
            return self.apply_rows(writes, bound).await;
        }
        let leaves = self.latch_all(writes).await?;
        self.validate_to_commit().await?;
        self.order.check_writes(&self.work.locks)?;
        #[cfg(feature = "planted")]
        let leaves = match self.db.engine.planted() {
            selkie_engine::Planted::EarlyRelease if self.rules().reads() == ReadRule::Stamp => {
                self.work.locks.release();
                self.db.engine.env().pause(std::time::Duration::from_micros(2)).await;
                self.latch_all(writes).await?
            }
            _ => leaves,
        };
        for (number, (change, (index, leaf))) in (1..).zip(writes.all().zip(leaves)) {
            self.apply_one(index, leaf, change.key, change.value).await?;
            yield_among_changes(number).await;
        }
        self.order.stamp_writes(&mut self.work.locks)
    }

    /// Fails unless every leaf in the read set is unchanged.
    async fn validate_to_commit(&mut self) -> Result<(), TxnError> {
        if self.is_validated {
            return Ok(());
        }
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::UncheckedReads {
            return Ok(());
        }
        self.validate_reads().await
    }

    /// Fails unless every leaf in the read set is unchanged; commit does not look again.
    pub(crate) async fn validate_for_good(&mut self) -> Result<(), TxnError> {
        let validated = self.validate_to_commit().await;
        self.is_validated = validated.is_ok();
        validated
    }

    /// Latches the leaves of all changes. Returns for each change its index, and its leaf's
    /// position in the lock set.
    pub(super) async fn latch_all(
        &mut self,
        writes: &WriteSet,
    ) -> Result<Vec<(&'db IndexInfo, usize)>, TxnError> {
        let mut leaves = Vec::with_capacity(writes.len());
        for DeferredChange { tree, key, read, .. } in writes.all() {
            let index = self.index_of_tree(tree)?;
            if let Some(leaf) = self.latch_unchanged(index, read)? {
                leaves.push((index, leaf));
                yield_among_changes(leaves.len()).await;
                continue;
            }
            match self.find(index, key, LatchMode::Exclusive).await?.leaf {
                LeafRef::Held(leaf) => leaves.push((index, leaf)),
                LeafRef::LastRead => unreachable!("commit holds the leaves that it latches"),
            }
        }
        Ok(leaves)
    }

    /// Makes one change, in the leaf that was latched for it or, if that was split since, to the
    /// right of it.
    pub(super) async fn apply_one(
        &mut self,
        index: &IndexInfo,
        leaf: usize,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), TxnError> {
        let located = self.work.locks.locate(leaf, key);
        let (leaf, slot) = located.ok_or_else(|| no_stable_leaf(index))?;
        match (slot, value) {
            (Err(_), Some(value)) => self.add_at(index, leaf, key, value).await,
            (Ok(slot), Some(value)) => {
                let before = LeafView::new(self.work.locks.bytes(leaf))?.value(slot)?;
                if before.len() == value.len() {
                    return self.overwrite(leaf, slot, key, value);
                }
                self.replace(index, leaf, slot, key, value).await
            }
            (Ok(slot), None) => self.remove(leaf, slot, key),
            // It was added and removed again.
            (Err(_), None) => Ok(()),
        }
    }

    /// Overwrites a value by one of the same length, from the first byte that differs to the last.
    #[expect(clippy::indexing_slicing, reason = "the leaf view has checked the range")]
    fn overwrite(
        &mut self,
        leaf: usize,
        slot: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), TxnError> {
        self.admit_change()?;
        let (locks, work) = self.work.parts();
        let guard = locks.exclusive_mut(leaf);
        let range = LeafView::new(guard)?.value_range(slot)?;
        let Some(differs) = differing(&guard[range.clone()], value) else { return Ok(()) };
        let target = guard.bytes_mut(range.start + differs.start..range.start + differs.end);
        work.undo.push(EntryChange::Patched { offset: differs.start }, leaf, key, target);
        target.copy_from_slice(&value[differs]);
        locks.note_change(leaf);
        Ok(())
    }
}

/// Lets other tasks run after some of the changes of a commit, of which this is the `number`th. It
/// holds leaves, so it does that less often than an operation.
pub(super) async fn yield_among_changes(number: usize) {
    if number.is_multiple_of(CHANGES_AT_ONCE) {
        yield_now().await;
    }
}

/// From the first byte in which two values of one length differ to the last. Compared a word at a
/// time: most of a row is as it was.
fn differing(before: &[u8], after: &[u8]) -> Option<Range<usize>> {
    let is_same = |(a, b): &(&u8, &u8)| a == b;
    let words = || before.as_chunks::<WORD>().0.iter().zip(after.as_chunks::<WORD>().0);
    let start = WORD * words().take_while(|(a, b)| a == b).count();
    let start = start + before.iter().zip(after).skip(start).take_while(is_same).count();
    if start == before.len() {
        return None;
    }
    let words = before.as_rchunks::<WORD>().1.iter().zip(after.as_rchunks::<WORD>().1);
    let end = WORD * words.rev().take_while(|(a, b)| a == b).count();
    let end = end + before.iter().zip(after).rev().skip(end).take_while(is_same).count();
    Some(start..before.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_found_to_the_byte() {
        for len in 0..40 {
            let before = vec![7; len];
            assert_eq!(differing(&before, &before), None);
            for first in 0..len {
                for last in first..len {
                    let mut after = before.clone();
                    (after[first], after[last]) = (1, 2);
                    assert_eq!(differing(&before, &after), Some(first..last + 1));
                }
            }
        }
    }
}
