//! Commit of a transaction that has recorded rows ([`Protocol::Snapshot`](crate::Protocol)).
//!
//! ```text
//! latch every leaf that is to change, exclusively
//!  -> look whether others have locked rows that are to change (see [`locks`](crate::locks))
//!  -> draw a stamp, and learn which snapshots are active: the transaction takes place here
//!  -> validate the rows and ranges that were read
//!  -> keep an image of each leaf that a snapshot may want, and stamp the leaf
//!  -> change the leaves -> release them
//! ```
//! The first attempt waits for no leaf, and looks for none that a read has found and that is
//! unchanged since. If one is held by another transaction, the transaction lets
//! all go, finds the addresses of its leaves, and latches them in the order of their addresses,
//! waiting for each: so do all, hence no two wait for each other. It waits for no recovery from a
//! node's death, which may need a leaf that it holds. Leaves that were only read and
//! could not be looked at while others held them are latched, too, shared. A leaf that was split
//! meanwhile makes it begin again.
//!
//! # Why the stamp is drawn before validation
//!
//! Take a transaction that has read a row, and another that changes it and commits later. The first
//! found the row unchanged, and its leaf free, after it had drawn its stamp. The other latches that
//! leaf before it draws its own, which is later. A transaction that reads what another has written,
//! or overwrites it, latches the leaf after that one released it, and draws a later stamp. So
//! stamps are in the order in which transactions depend on each other, and the state at a stamp is
//! that of a serial order.
//!
//! # Images
//!
//! After a failure of the last step the rows are put back, but stamps and links stay: the image has
//! the same rows as the leaf, so both are right.

use selkie_btree::{LeafView, Stamp, Stamps, leaf_stamp};
use selkie_engine::{ActiveSnapshots, GAddr, ImageLink};

use crate::catalogue::table_info::IndexInfo;
use crate::error::TxnError;
use crate::protocol::leaf_latch::LeafLatch;
use crate::protocol::row_reads::LeafVersion;
use crate::protocol::write_set::{DeferredChange, WriteSet};
use crate::transaction::commit::yield_among_changes;
use crate::transaction::commit_bound::CommitBound;
use crate::transaction::commit_locks::{Obstacles, met_locks};
use crate::transaction::txn::Txn;

/// Attempts to latch and validate: leaves split between two of them, or others were read.
const ATTEMPTS: u32 = 32;

/// A leaf with its tree, and where it ends.
type FoundLeaf = (usize, GAddr, Option<Box<[u8]>>);

/// The index of each change, and its leaf's position in the lock set.
type ChangedLeaves<'db> = Vec<(&'db IndexInfo, usize)>;

impl<'db> Txn<'db> {
    /// Makes the changes of the write set, if what was read is as it was.
    pub(super) async fn apply_rows(
        &mut self,
        writes: &WriteSet,
        bound: &mut CommitBound<'_>,
    ) -> Result<(), TxnError> {
        if writes.len() == 0 {
            return self.validate_view().await;
        }
        let mut conflict = TxnError::Conflict { leaf: GAddr::NULL, upgrade: false };
        let (mut attempt, mut waited, lock_timeout) = (0, false, self.row_locks.timeout);
        while attempt < ATTEMPTS {
            let mut obstacles = Vec::new();
            if waited {
                Box::pin(self.check_tables()).await?;
            }
            match self.latch_and_validate(writes, attempt > 0, &mut obstacles).await {
                Ok((leaves, stamp, active)) => {
                    self.stamp_leaves(stamp, &active)?;
                    for (number, (change, (index, leaf))) in (1..).zip(writes.all().zip(leaves)) {
                        self.apply_one(index, leaf, change.key, change.value).await?;
                        yield_among_changes(number).await;
                    }
                    return Ok(());
                }
                // Each lock is waited for once: then the transaction has it.
                Err(TxnError::Conflict { .. }) if !obstacles.is_empty() => {
                    self.turns.end_holds();
                    Box::pin(self.overcome(obstacles, writes, bound, lock_timeout)).await?;
                    waited = true;
                    continue;
                }
                Err(error @ TxnError::Conflict { .. }) => conflict = error,
                Err(error) => return Err(error),
            }
            // Nothing was changed. The next attempt waits for latches that other nodes may have,
            // who may wait for these pages.
            self.turns.end_holds();
            self.work.locks.release();
            waited = true;
            attempt += 1;
        }
        Err(conflict)
    }

    /// Fails unless what was read is as it was, if it has to be.
    async fn validate_view(&mut self) -> Result<(), TxnError> {
        if self.is_read_only() {
            return Ok(());
        }
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::UncheckedReads {
            return Ok(());
        }
        self.validate_rows().await
    }

    /// # Errors
    /// `Conflict` if another attempt may succeed, once the locks are had that are obstacles.
    async fn latch_and_validate(
        &mut self,
        writes: &WriteSet,
        waits: bool,
        obstacles: &mut Obstacles,
    ) -> Result<(ChangedLeaves<'db>, Stamp, ActiveSnapshots), TxnError> {
        let leaves = match waits {
            false => self.latch_all(writes).await?,
            true => Box::pin(self.latch_changed(writes)).await?,
        };
        if self.may_meet_locks()? {
            *obstacles = Box::pin(self.obstacles(writes, &leaves)).await?;
            if !obstacles.is_empty() {
                return Err(met_locks());
            }
        }
        let (stamp, active) = self.draw_stamp().await?;
        self.validate_view().await?;
        Ok((leaves, stamp, active))
    }

    /// Latches the leaf in which a read has found a key, exclusively, if it is at hand and
    /// unchanged since: then the key, or its gap, is there still, and no descent is needed. Else
    /// `None`.
    pub(super) fn latch_unchanged(
        &mut self,
        index: &IndexInfo,
        read: Option<usize>,
    ) -> Result<Option<usize>, TxnError> {
        let found = read.and_then(|read| self.work.rows.leaf_of(read));
        let Some(LeafVersion { addr, psn: psn @ Some(_) }) = found else { return Ok(None) };
        if let Some(held) = self.work.locks.position(addr) {
            let latch = self.work.locks.latch(held);
            let is_same = matches!(latch, LeafLatch::Exclusive(_)) && Some(latch.psn()) == psn;
            return Ok(is_same.then_some(held));
        }
        // A page with the same sequence number has the same content, and is used for the same.
        let guard = self.db.engine.exclusive_hit(addr).filter(|guard| Some(guard.psn()) == psn);
        let Some(guard) = guard else { return Ok(None) };
        let held = self.work.locks.add(index.number, addr, LeafLatch::Exclusive(guard));
        self.fit_leaves()?;
        Ok(Some(held))
    }

    /// A stamp that is later than those of all leaves that are held.
    async fn draw_stamp(&mut self) -> Result<(Stamp, ActiveSnapshots), TxnError> {
        let engine = &self.db.engine;
        let mut latest = Stamp::default();
        for (_, guard) in self.work.locks.exclusive() {
            let leaf = LeafView::new(guard).map_err(|error| error.at(guard.addr()))?;
            latest = latest.max(leaf.stamps().write);
        }
        let (mut stamp, mut active) = engine.draw_stamp().await?;
        if stamp <= latest {
            tracing::warn!(?stamp, ?latest, "the clock is behind the pages, and moved on");
            engine.raise_clock(latest.get()).await?;
            (stamp, active) = engine.draw_stamp().await?;
        }
        self.db.note_stamp(stamp);
        Ok((stamp, active))
    }

    /// Latches the leaves of all changes exclusively, and those that are contended shared, in the
    /// order of their addresses.
    async fn latch_changed(&mut self, writes: &WriteSet) -> Result<ChangedLeaves<'db>, TxnError> {
        let engine = &self.db.engine;
        // Pages whose addresses are found here are not reused for other data meanwhile.
        let _pin = engine.pin();
        let mut of_changes: Vec<(&'db IndexInfo, GAddr)> = Vec::with_capacity(writes.len());
        // The last leaf that was found, and where it ends.
        let mut last: Option<FoundLeaf> = None;
        for DeferredChange { tree, key, .. } in writes.all() {
            let index = self.index_of_tree(tree)?;
            if let Some((of_tree, addr, end)) = &last
                && *of_tree == tree
                && end.as_deref().is_none_or(|end| key < end)
            {
                of_changes.push((index, *addr));
                continue;
            }
            let (peeked, _) = self.peek(index, key).await?;
            let end = LeafView::new(self.peeked_bytes(&peeked))?.high_fence().map(Box::from);
            let addr = peeked.version().addr;
            of_changes.push((index, addr));
            last = Some((tree, addr, end));
        }
        let changed = of_changes.iter().map(|(index, addr)| (*addr, index.number));
        self.latch_in_order(changed.collect()).await?;
        self.positions_of(writes, &of_changes).await
    }

    /// Where in the lock set the leaves of all changes are.
    async fn positions_of(
        &self,
        writes: &WriteSet,
        of_changes: &[(&'db IndexInfo, GAddr)],
    ) -> Result<ChangedLeaves<'db>, TxnError> {
        let mut positions = Vec::with_capacity(of_changes.len());
        for (change, (index, addr)) in writes.all().zip(of_changes) {
            let held = self.work.locks.position(*addr).filter(|held| {
                // It may have been split, or given back, before it was latched.
                self.work.locks.locate(*held, change.key).is_some_and(|(at, _)| at == *held)
            });
            let moved = TxnError::Conflict { leaf: *addr, upgrade: false };
            positions.push((*index, held.ok_or(moved)?));
            yield_among_changes(positions.len()).await;
        }
        Ok(positions)
    }

    /// Keeps an image of each leaf that is to change, if a snapshot may want it, and stamps the
    /// leaf. Splits give both halves the stamps.
    fn stamp_leaves(&mut self, stamp: Stamp, active: &ActiveSnapshots) -> Result<(), TxnError> {
        let engine = &self.db.engine;
        for guard in self.work.locks.exclusive_mut_all() {
            let leaf = LeafView::new(guard).map_err(|error| error.at(guard.addr()))?;
            let Stamps { mut read, write } = leaf.stamps();
            let is_wanted = active.any_since(write);
            #[cfg(feature = "planted")]
            let is_wanted = is_wanted && engine.planted() != selkie_engine::Planted::NoImages;
            if is_wanted {
                let before = ImageLink::from_u64(read.get());
                let link = engine.keep_image(guard, write, stamp, before, active);
                if link != ImageLink::NONE {
                    read = Stamp::new(link.to_u64());
                }
            }
            leaf_stamp(guard, Stamps { read, write: stamp });
        }
        self.work.locks.note_stamps();
        Ok(())
    }
}
