//! Finding and latching the leaf for a key.

use std::ops::Bound;

use selkie_btree::{KeyLocation, LeafView, Stamp};
use selkie_engine::{EngineError, GAddr};
use selkie_fabric::env::yield_now;

use crate::catalogue::table_info::IndexInfo;
use crate::error::TxnError;
use crate::protocol::choice::ReadRule;
use crate::protocol::leaf_latch::{LatchMode, LeafImage, LeafLatch};
use crate::protocol::row_reads::LeafVersion;
use crate::transaction::maintenance::MaintenanceTask;
use crate::transaction::txn::Txn;

/// How often a leaf is located anew after it was split, emptied or given back before it was
/// latched.
pub(crate) const LOCATE_ATTEMPTS: u32 = 16;

/// How many right links are followed after one descent: more leaves than lie behind each other
/// without separators, unless damage made the way a circle.
pub(crate) const RIGHT_HOPS: u32 = 1 << 22;

/// Stamps that are drawn after which a leaf that was emptied is one that no node has in mind.
const FORGOTTEN_AFTER: u64 = 1024;

/// Right links on one way after which the separators that are missing above are posted. They belong
/// to a transaction that is about to post them, unless its node died or a page was in use.
const MISSING_SEPARATORS: u32 = 8;

/// Leaves after which an operation lets other tasks run: on cached pages nothing else suspends it,
/// and the node's lease is renewed on the same threads.
const LEAVES_AT_ONCE: u32 = 64;

/// What a way along right links has come to.
#[derive(Default)]
pub(crate) struct RightWay {
    hops: u32,
}

/// A leaf that an operation reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafRef {
    /// At this position of the lock set.
    Held(usize),
    /// The leaf last read (`Workspace::last_read`), until the next operation.
    LastRead,
}

/// A key's leaf, and the key's slot there or the slot where it would be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyPosition {
    pub(crate) leaf: LeafRef,
    pub(crate) slot: Result<usize, usize>,
}

/// A position of the lock set, and a key's slot in that leaf or the slot where it would be.
type HeldPosition = (usize, Result<usize, usize>);

/// A leaf that is latched, and of which it is not yet decided how long it stays so.
pub(crate) enum LatchedLeaf<'db> {
    /// In the lock set before.
    Held(usize),
    Fresh(LeafLatch<'db>),
    /// To be read and stamped at this place in the order of all transactions.
    Ordered(LeafLatch<'db>, Stamp),
    /// Not latched: as the leaf was at the snapshot of the transaction.
    Image(GAddr, Box<[u8]>),
}

impl<'db> Txn<'db> {
    /// Latches the leaf that holds `key` or the gap where it would be.
    ///
    /// First searches the leaves of the tree that were latched last: transactions access the same
    /// leaf again much more often than not, and that saves the descent.
    pub(crate) fn find(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        mode: LatchMode,
    ) -> impl Future<Output = Result<KeyPosition, TxnError>> + Send {
        self.find_from(index, key, mode, None)
    }

    /// As [`find`](Self::find), where the leaf was found before the call, under a pin that the
    /// caller holds.
    pub(crate) async fn find_from(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        mode: LatchMode,
        mut leaf: Option<GAddr>,
    ) -> Result<KeyPosition, TxnError> {
        // While it waits for a leaf, a transaction latches none that is not in its lock set.
        self.work.last_read = None;
        self.yield_now_and_then().await;
        if let Some((held, slot)) = self.find_recent(index, key)? {
            self.ensure(held, mode).await?;
            return Ok(KeyPosition { leaf: LeafRef::Held(held), slot });
        }
        if self.records_rows()
            && self.only_reads_leaves()
            && !self.turns.wants_page()
            && let Some(found) = self.find_in_recent(index, key)?
        {
            return Ok(found);
        }
        let engine = &self.db.engine;
        for _ in 0..LOCATE_ATTEMPTS {
            // Pages named by a page read under the pin are not reused for other data meanwhile.
            let _pin = engine.pin();
            let mut addr = match leaf.take() {
                Some(leaf) => leaf,
                None => self.locate(index, key).await?,
            };
            let mut way = RightWay::default();
            loop {
                let latched = self.latch(addr, mode).await?;
                match LeafView::new(self.latched_bytes(&latched))?.where_is(key)? {
                    #[cfg(feature = "planted")]
                    KeyLocation::Here(slot @ Err(_)) if self.leaves_gaps(mode) => {
                        return Ok(KeyPosition { leaf: self.copy_unguarded(latched), slot });
                    }
                    KeyLocation::Here(slot) => {
                        let leaf = self.keep(index, addr, latched, mode).await?;
                        return Ok(KeyPosition { leaf, slot });
                    }
                    KeyLocation::Right(next) => {
                        addr = self.follow_right(index, Bound::Included(key), &latched, next)?;
                    }
                    KeyLocation::Elsewhere => break,
                }
                drop(latched);
                self.count_hop(index, key, &mut way).await?;
            }
        }
        Err(no_stable_leaf(index))
    }

    /// The leaf that held `key` just now. With leaves latched it waits for no recovery from a
    /// node's death, which may need one of them home: `Conflict`.
    pub(crate) async fn locate(&self, index: &IndexInfo, key: &[u8]) -> Result<GAddr, TxnError> {
        let engine = &self.db.engine;
        Ok(match self.work.locks.len() {
            0 => index.tree.locate(engine, key).await?,
            _ => index.tree.locate_in_order(engine, key).await?,
        })
    }

    /// The next leaf on the way to the last key within a bound, to the right of a latched leaf, of
    /// which `next` is the neighbour: skips the leaves that the transaction has split off itself.
    pub(crate) fn follow_right(
        &self,
        index: &IndexInfo,
        up_to: Bound<&[u8]>,
        latched: &LatchedLeaf<'db>,
        next: GAddr,
    ) -> Result<GAddr, TxnError> {
        let locks = &self.work.locks;
        let (LatchedLeaf::Held(held), Some(made)) = (latched, locks.last_made(index.number, up_to))
        else {
            return Ok(next);
        };
        let low_fence = |at| Ok::<_, TxnError>(LeafView::new(locks.bytes(at))?.low_fence());
        let is_further = low_fence(made)? > low_fence(*held)?;
        Ok(if is_further { locks.latch(made).addr() } else { next })
    }

    /// Counts a right link that was followed to find `key`. The caller holds no latch but those of
    /// the lock set.
    pub(crate) async fn count_hop(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        way: &mut RightWay,
    ) -> Result<(), TxnError> {
        way.hops += 1;
        if way.hops == MISSING_SEPARATORS {
            self.db.backlog.push(MaintenanceTask::sweep_before(index.known, key));
        }
        if way.hops == RIGHT_HOPS {
            return Err(no_stable_leaf(index));
        }
        self.yield_now_and_then().await;
        Ok(())
    }

    /// A leaf, the one looked at last. It is given back some time if it has been empty for so long
    /// that the node which has emptied it is gone.
    pub(super) fn noting_forgotten<'l>(
        &self,
        index: &IndexInfo,
        leaf: LeafView<'l>,
    ) -> LeafView<'l> {
        let is_image = self.work.last_version.psn.is_none();
        let is_only = leaf.low_fence().is_empty() && leaf.high_fence().is_none();
        if leaf.is_empty() && !is_image && !is_only && !leaf.is_dead() {
            let stamp = leaf.stamps().write.get();
            if self.db.latest_stamp().get().saturating_sub(stamp) > FORGOTTEN_AFTER {
                self.db.backlog.push_met(MaintenanceTask::reclaim(index.known, &leaf));
            }
        }
        leaf
    }

    /// Lets other tasks run if enough leaves were looked at.
    pub(crate) async fn yield_now_and_then(&mut self) {
        self.leaves_seen += 1;
        if self.leaves_seen.is_multiple_of(LEAVES_AT_ONCE) {
            yield_now().await;
        }
    }

    /// Searches for `key` in the leaves of the tree that were latched last, and in those that the
    /// transaction has split off.
    fn find_recent(&self, index: &IndexInfo, key: &[u8]) -> Result<Option<HeldPosition>, TxnError> {
        let locks = &self.work.locks;
        let made = locks.last_made(index.number, Bound::Included(key));
        for held in locks.recent(index.number).chain(made) {
            if let KeyLocation::Here(slot) = LeafView::new(locks.bytes(held))?.where_is(key)? {
                return Ok(Some((held, slot)));
            }
        }
        Ok(None)
    }

    /// The leaf at `addr`: as it is held, or freshly latched. Waits for no latch, or holds none.
    pub(crate) async fn latch(
        &mut self,
        addr: GAddr,
        mode: LatchMode,
    ) -> Result<LatchedLeaf<'db>, TxnError> {
        if let Some(held) = self.work.locks.position(addr) {
            return Ok(LatchedLeaf::Held(held));
        }
        if self.records_rows() && self.only_reads_leaves() {
            return self.latch_in_view(addr, mode).await;
        }
        if self.must_stamp(mode) {
            let stamp = self.order.draw().await?;
            return Ok(LatchedLeaf::Ordered(self.order.latch(addr, stamp).await?, stamp));
        }
        let engine = &self.db.engine;
        let latch = match mode {
            // It may wait: it holds no leaf that another could wait for.
            _ if self.only_reads_leaves() => engine.shared(addr).await.map(LeafLatch::Shared),
            LatchMode::Shared => engine.try_shared(addr).await.map(LeafLatch::Shared),
            LatchMode::Exclusive => engine.try_exclusive(addr).await.map(LeafLatch::Exclusive),
        };
        Ok(LatchedLeaf::Fresh(latch?))
    }

    /// Keeps a latched leaf as long as protocol and isolation require.
    pub(crate) async fn keep(
        &mut self,
        index: &IndexInfo,
        addr: GAddr,
        latched: LatchedLeaf<'db>,
        mode: LatchMode,
    ) -> Result<LeafRef, TxnError> {
        match latched {
            LatchedLeaf::Held(held) => {
                self.ensure(held, mode).await?;
                Ok(LeafRef::Held(held))
            }
            LatchedLeaf::Fresh(LeafLatch::Shared(guard))
                if self.only_reads_leaves() && self.records_rows() =>
            {
                self.work.reads.rely_on(guard.lsn());
                let version = LeafVersion { addr, psn: Some(guard.psn()) };
                self.work.last_version = version;
                self.work.recent.note(index.tree.root(), version);
                self.work.last_read = Some(LeafImage::Latched(guard));
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Image(addr, image) => {
                self.work.last_version = LeafVersion { addr, psn: None };
                self.work.last_read = Some(LeafImage::Copied(image));
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Fresh(LeafLatch::Shared(guard)) if self.only_reads_leaves() => {
                if self.read_matters(mode) {
                    self.record_read(addr, guard.psn(), guard.lsn()).await?;
                }
                self.work.reads.rely_on(guard.lsn());
                self.work.last_read = Some(match self.rules().reads() {
                    ReadRule::Stamp => LeafImage::copy_of(&guard),
                    ReadRule::HoldLatch | ReadRule::RecordPsn | ReadRule::RecordRows => {
                        LeafImage::Latched(guard)
                    }
                });
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Fresh(LeafLatch::Shared(guard))
                if self.holds_reads()
                    && (self.work.locks.len() >= self.db.leaf_budget.latched_reads()
                        || !self.has_room_to_read()) =>
            {
                self.record_read(addr, guard.psn(), guard.lsn()).await?;
                self.work.last_read = Some(LeafImage::Latched(guard));
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Fresh(LeafLatch::Shared(guard)) if !self.holds_reads() => {
                self.work.reads.rely_on(guard.lsn());
                self.work.last_read = Some(LeafImage::Latched(guard));
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Ordered(latch, stamp) => {
                let (image, lsn) = self.order.read(latch, stamp)?;
                self.work.reads.rely_on(lsn);
                self.work.last_read = Some(image);
                Ok(LeafRef::LastRead)
            }
            LatchedLeaf::Fresh(latch) => {
                let held = self.work.locks.add(index.number, addr, latch);
                self.fit_leaves()?;
                Ok(LeafRef::Held(held))
            }
        }
    }

    /// Whether a read has to be valid at commit. A read that a change depends on has to be,
    /// whatever the isolation: otherwise the change could overwrite another's.
    fn read_matters(&self, mode: LatchMode) -> bool {
        self.is_serializable() || mode == LatchMode::Exclusive
    }

    /// Whether a leaf that is read in this mode is stamped.
    pub(super) fn must_stamp(&self, mode: LatchMode) -> bool {
        self.rules().reads() == ReadRule::Stamp
            && self.only_reads_leaves()
            && self.read_matters(mode)
    }

    /// Whether a leaf that was only read stays latched to the end.
    fn holds_reads(&self) -> bool {
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::EarlyUnlock {
            return false;
        }
        self.is_serializable()
    }

    /// Whether a planted bug leaves the gap unguarded that is read.
    #[cfg(feature = "planted")]
    fn leaves_gaps(&self, mode: LatchMode) -> bool {
        mode == LatchMode::Shared
            && self.db.engine.planted() == selkie_engine::Planted::UnguardedGaps
    }

    /// Keeps only a copy of a leaf, until the next operation.
    #[cfg(feature = "planted")]
    fn copy_unguarded(&mut self, latched: LatchedLeaf<'db>) -> LeafRef {
        match latched {
            LatchedLeaf::Held(held) => LeafRef::Held(held),
            LatchedLeaf::Fresh(latch) | LatchedLeaf::Ordered(latch, _) => {
                self.work.last_read = Some(LeafImage::copy_of(latch.bytes()));
                LeafRef::LastRead
            }
            LatchedLeaf::Image(_, image) => {
                self.work.last_read = Some(LeafImage::Copied(image));
                LeafRef::LastRead
            }
        }
    }

    /// Makes sure that a held leaf is held exclusively, if that is the mode.
    async fn ensure(&mut self, held: usize, mode: LatchMode) -> Result<(), TxnError> {
        let is_exclusive = matches!(self.work.locks.latch(held), LeafLatch::Exclusive(_));
        if mode == LatchMode::Shared || is_exclusive {
            return Ok(());
        }
        self.upgrade(held).await
    }

    /// Upgrades a leaf that is held shared. Its latch is in the future meanwhile: if that is
    /// dropped the latch is gone, and with it the right to rely on what was read; hence the
    /// critical mark.
    async fn upgrade(&mut self, held: usize) -> Result<(), TxnError> {
        let guard = self.work.locks.take_shared(held);
        let before = self.open_critical();
        let upgraded = guard.try_upgrade().await;
        self.close_critical(before);
        match upgraded {
            Ok(guard) => {
                self.work.locks.put_back(held, LeafLatch::Exclusive(guard));
                Ok(())
            }
            Err((guard, error)) => {
                self.work.locks.put_back(held, LeafLatch::Shared(guard));
                Err(match error {
                    EngineError::Busy { addr } => TxnError::Conflict { leaf: addr, upgrade: true },
                    other => other.into(),
                })
            }
        }
    }

    pub(crate) fn latched_bytes<'a>(&'a self, latched: &'a LatchedLeaf<'db>) -> &'a [u8] {
        match latched {
            LatchedLeaf::Held(held) => self.work.locks.bytes(*held),
            LatchedLeaf::Fresh(latch) | LatchedLeaf::Ordered(latch, _) => latch.bytes(),
            LatchedLeaf::Image(_, image) => image,
        }
    }

    /// The bytes of a leaf that the current operation has found.
    #[expect(clippy::expect_used, reason = "only the next operation forgets the leaf last read")]
    pub(crate) fn leaf_bytes(&self, leaf: LeafRef) -> &[u8] {
        match leaf {
            LeafRef::Held(held) => self.work.locks.bytes(held),
            LeafRef::LastRead => {
                self.work.last_read.as_deref().expect("the leaf last read is still there")
            }
        }
    }
}

/// The error for a leaf that kept changing before it could be latched.
pub(crate) fn no_stable_leaf(index: &IndexInfo) -> TxnError {
    TxnError::NoStableLeaf { root: index.tree.root(), attempts: LOCATE_ATTEMPTS }
}
