//! Reading leaves in the state that a transaction sees, and recording what was read, under
//! [`Protocol::Snapshot`](crate::Protocol::Snapshot). [`view`](crate::protocol::view) has the
//! argument.
//!
//! A leaf is latched shared, which waits while another transaction commits a change of it; the
//! reader holds no other leaf meanwhile. A reader at a snapshot that meets a later stamp goes to
//! the image of the leaf, which covers all keys that the leaf has now: leaves split, and none is
//! merged while a snapshot may want its image.

use selkie_btree::{KeyLocation, LeafView, Stamp, Stamps};
use selkie_engine::{EngineError, GAddr, ImageLink, SharedGuard};

use crate::access::leaf::{KeyPosition, LatchedLeaf, LeafRef};
use crate::catalogue::table_info::IndexInfo;
use crate::error::TxnError;
use crate::protocol::choice::ReadRule;
use crate::protocol::leaf_latch::{LatchMode, LeafImage, LeafLatch};
use crate::protocol::row_reads::{ColumnsRead, LeafVersion, Read};
use crate::protocol::view::View;
use crate::transaction::txn::Txn;

/// How often a leaf is latched again that has changed while it was read.
const READ_ATTEMPTS: u32 = 64;

impl<'db> Txn<'db> {
    /// Whether rows and ranges are recorded, and leaves are read in a view.
    pub(crate) fn records_rows(&self) -> bool {
        self.rules().reads() == ReadRule::RecordRows
    }

    /// Whether each operation reads a snapshot of its own.
    pub(crate) fn has_snapshot_each_operation(&self) -> bool {
        self.records_rows() && self.view.is_of_operation()
    }

    /// Whether what is read in this mode has to be the same at commit.
    pub(crate) fn must_record(&self, mode: LatchMode) -> bool {
        // At a snapshot, what the transaction changes: others must not have changed it since.
        self.records_rows() && (mode == LatchMode::Exclusive || !self.view.is_snapshot())
    }

    /// Latches a leaf to be read, or fetches its image.
    pub(super) async fn latch_in_view(
        &mut self,
        addr: GAddr,
        mode: LatchMode,
    ) -> Result<LatchedLeaf<'db>, TxnError> {
        if matches!(self.view, View::At { .. }) {
            return self.latch_at_snapshot(addr, mode).await;
        }
        for _ in 0..READ_ATTEMPTS {
            let guard = self.latch_shared(addr, mode).await?;
            let Stamps { write, .. } = stamps_of(&guard)?;
            self.db.note_stamp(write);
            if self.moves_view_to(write) {
                return Ok(LatchedLeaf::Fresh(LeafLatch::Shared(guard)));
            }
            // It waits for leaves that others hold, and may hold none itself.
            drop(guard);
            Box::pin(self.validate_rows()).await?;
            self.raise_view(write);
        }
        Err(TxnError::Conflict { leaf: addr, upgrade: false })
    }

    /// Searches for `key` in the leaf of the tree that was read last, if it is likely to be there,
    /// and the leaf is at hand and unchanged since: a page with the same sequence number is used
    /// for the same.
    pub(super) fn find_in_recent(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<Option<KeyPosition>, TxnError> {
        let Some(version) = self.work.recent.likely(index.tree.root()) else { return Ok(None) };
        let LeafVersion { addr, psn } = version;
        let guard = self.db.engine.shared_hit(addr).filter(|guard| Some(guard.psn()) == psn);
        let Some(guard) = guard else { return Ok(None) };
        let KeyLocation::Here(slot) = LeafView::new(&guard)?.where_is(key)? else {
            return Ok(None);
        };
        let Some(guard) = self.in_view(guard) else { return Ok(None) };
        self.work.reads.rely_on(guard.lsn());
        self.work.last_version = version;
        self.work.last_read = Some(LeafImage::Latched(guard));
        Ok(Some(KeyPosition { leaf: LeafRef::LastRead, slot }))
    }

    /// Whether a leaf of this stamp can be read at once: it is not later than what was read, or
    /// there is nothing that was.
    pub(crate) fn moves_view_to(&mut self, write: Stamp) -> bool {
        match &mut self.view {
            View::Current { seen } if self.work.rows.len() == 0 => *seen = write.max(*seen),
            View::Current { seen } => return write <= *seen,
            View::At { snapshot, .. } => {
                return snapshot.as_ref().is_some_and(|snapshot| write <= snapshot.stamp());
            }
            View::OneLeaf => {}
        }
        true
    }

    /// What was read is the state at this stamp, too, if it is later.
    pub(crate) fn raise_view(&mut self, to: Stamp) {
        if let View::Current { seen } = &mut self.view {
            *seen = to.max(*seen);
        }
    }

    /// Latches a leaf shared, whatever the mode: the commit latches those exclusively that it
    /// changes.
    async fn latch_shared(
        &self,
        addr: GAddr,
        mode: LatchMode,
    ) -> Result<SharedGuard<'db>, EngineError> {
        let engine = &self.db.engine;
        match mode {
            LatchMode::Shared => engine.shared(addr).await,
            // Two nodes with copies of it would both change the row, and one in vain.
            LatchMode::Exclusive if self.turns.wants_page() => {
                Ok(engine.exclusive(addr).await?.downgrade())
            }
            LatchMode::Exclusive => engine.shared_before_change(addr).await,
        }
    }

    async fn latch_at_snapshot(
        &mut self,
        addr: GAddr,
        mode: LatchMode,
    ) -> Result<LatchedLeaf<'db>, TxnError> {
        let engine = &self.db.engine;
        let at = self.snapshot().await?;
        let mut gone = None;
        for _ in 0..READ_ATTEMPTS {
            let guard = self.latch_shared(addr, mode).await?;
            let Stamps { read, write } = stamps_of(&guard)?;
            if write <= at || LeafView::new(&guard)?.is_dead() {
                return Ok(LatchedLeaf::Fresh(LeafLatch::Shared(guard)));
            }
            let link = ImageLink::from_u64(read.get());
            // The image is of commits that are no later in the log than the link to it.
            self.work.reads.rely_on(guard.lsn());
            drop(guard);
            if gone == Some(link) {
                // The clock may be behind the pages: the next snapshot is later.
                self.db.note_stamp(write);
                return Err(TxnError::SnapshotTooOld { leaf: addr });
            }
            let mut image = Vec::with_capacity(engine.page_bytes());
            if engine.image_at(link, at, &mut image).await?.is_some() {
                return Ok(LatchedLeaf::Image(addr, image.into_boxed_slice()));
            }
            gone = Some(link);
        }
        Err(TxnError::SnapshotTooOld { leaf: addr })
    }

    /// The stamp of the snapshot. The first access begins it: one round trip.
    pub(crate) async fn snapshot(&mut self) -> Result<Stamp, TxnError> {
        if let Some(stamp) = self.view.stamp() {
            return Ok(stamp);
        }
        let db = self.db;
        let begun = db.begin_snapshot().await?;
        let stamp = begun.stamp();
        let View::At { snapshot, .. } = &mut self.view else {
            panic!("a transaction on the current state reads no snapshot");
        };
        *snapshot = Some(begun);
        Ok(stamp)
    }

    /// Records that a key was looked for, and what was found. Returns the number of that read, if
    /// it is recorded.
    pub(crate) fn record_point(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        found: &KeyPosition,
        mode: LatchMode,
    ) -> Result<Option<usize>, TxnError> {
        if !self.must_record(mode) {
            return Ok(None);
        }
        let leaf = LeafView::new(self.leaf_bytes(found.leaf))?;
        let value = found.slot.ok().map(|slot| leaf.value(slot)).transpose()?;
        let digest = self.db.digester.of_value(value);
        if mode == LatchMode::Exclusive {
            self.turns.has_read(match &self.work.last_read {
                Some(LeafImage::Latched(page)) => Some(page),
                _ => None,
            });
        }
        let version = self.work.last_version;
        let read = Read::Point(key, ColumnsRead::All);
        Ok(Some(self.work.rows.add(index.number, read, version, digest)))
    }

    /// A next leaf that is latched already, if it can be read as it is.
    pub(crate) fn in_view(&mut self, guard: SharedGuard<'db>) -> Option<SharedGuard<'db>> {
        if !self.records_rows() {
            return Some(guard);
        }
        let Stamps { write, .. } = stamps_of(&guard).ok()?;
        self.moves_view_to(write).then_some(guard)
    }
}

/// The stamps of a leaf.
pub(crate) fn stamps_of(leaf: &SharedGuard<'_>) -> Result<Stamps, TxnError> {
    Ok(LeafView::new(leaf).map_err(|error| error.at(leaf.addr()))?.stamps())
}
