//! Walking the leaves of a tree in either direction, latching each one: what scans and
//! [cursors](crate::access::cursor) are made of.
//!
//! A leaf's range is given by its fences, so crossing from one leaf to the next leaves no gap:
//! forwards the right link of a latched leaf leads to exactly the leaf that begins where it ends,
//! and backwards the leaf found must end where the latched one begins. While a leaf is latched its
//! fences and links stay.
//!
//! Where changes are deferred, a walk waits for leaves, so it latches none meanwhile, not even
//! shared: a request of another node that came while the leaf was being changed waits until it is
//! free here, so two walks in opposite directions could wait for each other. Such a walk looks for
//! the leaf that has the key at which the last one ended, and goes on from that key. Only a next
//! leaf that is cached is latched before the last one is released.
//!
//! A walk is an index, a range, and a [`WalkState`], which can be set aside between two operations
//! of its transaction.

use std::collections::VecDeque;
use std::ops::Bound;

use selkie_btree::{Direction, KeyLocation, LeafView, RestOfScan};
use selkie_engine::{GAddr, SharedGuard};
use smallvec::SmallVec;

use crate::access::leaf::{
    KeyPosition, LOCATE_ATTEMPTS, LatchedLeaf, LeafRef, RightWay, no_stable_leaf,
};
use crate::access::own_additions::OwnAdditions;
use crate::access::read_ahead::WalkAhead;
use crate::access::walk_state::{EntryPosition, Unrecorded, WalkLeaf, WalkState};
use crate::catalogue::table_info::IndexInfo;
use crate::encoding::key_range::KeyRange;
use crate::error::TxnError;
use crate::protocol::leaf_latch::{LatchMode, LeafImage, LeafLatch};
use crate::protocol::row_reads::{Read, RowRead};
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::database_state::READ_AHEAD;
use crate::transaction::txn::Txn;

/// A walk over the entries of a key range.
pub(crate) struct Walk<'r, 'db> {
    index: &'r IndexInfo,
    range: &'r KeyRange,
    direction: Direction,
    mode: LatchMode,
    state: WalkState<'db>,
    /// Entries that it does not see.
    hidden: Option<&'r OwnAdditions>,
    /// Whether what it goes over is recorded whatever the mode.
    pub(super) keeps: bool,
    /// What it has asked for of what lies ahead.
    pub(super) ahead: WalkAhead,
}

impl<'r, 'db> Walk<'r, 'db> {
    /// A walk that has come as far as `state` says.
    pub(crate) fn new(
        index: &'r IndexInfo,
        range: &'r KeyRange,
        direction: Direction,
        mode: LatchMode,
        state: WalkState<'db>,
    ) -> Self {
        let (hidden, keeps, ahead) = (None, false, WalkAhead::NONE);
        Self { index, range, direction, mode, state, hidden, keeps, ahead }
    }

    /// Has the walk not see these entries.
    pub(crate) fn hide(&mut self, hidden: &'r OwnAdditions) {
        self.hidden = Some(hidden);
    }

    pub(super) fn index(&self) -> &'r IndexInfo {
        self.index
    }

    pub(super) fn mode(&self) -> LatchMode {
        self.mode
    }

    /// Ends the operation, and not the walk.
    pub(crate) fn into_state(self) -> WalkState<'db> {
        self.state
    }

    /// Moves to the next entry.
    pub(crate) async fn next(
        &mut self,
        txn: &mut Txn<'db>,
    ) -> Result<Option<EntryPosition>, TxnError> {
        loop {
            let at = match (&mut self.state.merged, self.direction) {
                (None, Direction::Forward) => self.state.slots.next().map(EntryPosition::Slot),
                (None, Direction::Reverse) => self.state.slots.next_back().map(EntryPosition::Slot),
                (Some(merged), Direction::Forward) => merged.pop_front(),
                (Some(merged), Direction::Reverse) => merged.pop_back(),
            };
            if at.is_some() {
                return Ok(at);
            }
            self.record_rest(txn)?;
            if self.state.last_leaf {
                return Ok(None);
            }
            txn.yield_now_and_then().await;
            let goes_on = self.state.leaf_now.is_some();
            match self.direction {
                Direction::Forward => self.move_right(txn).await?,
                Direction::Reverse => self.move_left(txn).await?,
            }
            self.state.seen = txn.view.seen();
            self.begin_to_record(txn)?;
            self.state.merged = self.merge(txn)?;
            if goes_on && !self.state.last_leaf {
                self.read_leaves_ahead(txn)?;
            }
        }
    }

    /// Notes what of the leaf it has come to the walk goes over.
    fn begin_to_record(&mut self, txn: &Txn<'db>) -> Result<(), TxnError> {
        if !self.keeps && !txn.must_record(self.mode) {
            return Ok(());
        }
        let leaf = LeafView::new(self.bytes(txn))?;
        let passed = self.state.passed.as_deref();
        let (low, high) = match self.direction {
            Direction::Forward => {
                let high = [leaf.high_fence(), self.range.high()].into_iter().flatten().min();
                (passed.unwrap_or(self.range.low()), high)
            }
            Direction::Reverse => {
                (leaf.low_fence().max(self.range.low()), passed.or(self.range.high()))
            }
        };
        self.state.unrecorded = Some(Unrecorded {
            leaf: txn.work.last_version,
            slots: self.state.slots.clone(),
            low: low.to_vec(),
            high: high.map(<[u8]>::to_vec),
        });
        Ok(())
    }

    /// Records what the walk has read up to an entry, and including it, if it is to be recorded.
    pub(crate) fn record(
        &mut self,
        txn: &mut Txn<'db>,
        at: &EntryPosition,
    ) -> Result<(), TxnError> {
        if self.state.unrecorded.is_none() {
            return Ok(());
        }
        let mut key = Vec::new();
        self.key_into(txn, at, &mut key)?;
        let Some(mut part) = self.state.unrecorded.take() else { return Ok(()) };
        let rest = match self.direction {
            Direction::Forward => {
                // The next key.
                key.push(0);
                let end = self.slot_at(txn, &key)?.clamp(part.slots.start, part.slots.end);
                let rest = Unrecorded {
                    leaf: part.leaf,
                    slots: end..part.slots.end,
                    low: key.clone(),
                    high: part.high.take(),
                };
                (part.slots.end, part.high) = (end, Some(key));
                rest
            }
            Direction::Reverse => {
                let start = self.slot_at(txn, &key)?.clamp(part.slots.start, part.slots.end);
                let rest = Unrecorded {
                    leaf: part.leaf,
                    slots: part.slots.start..start,
                    low: std::mem::replace(&mut part.low, key.clone()),
                    high: Some(key),
                };
                part.slots.start = start;
                rest
            }
        };
        self.state.unrecorded = Some(rest);
        self.record_part(txn, &part)
    }

    /// Records what the walk has read of the leaf it stands on and not recorded: all of it.
    fn record_rest(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        match self.state.unrecorded.take() {
            Some(part) => self.record_part(txn, &part),
            None => Ok(()),
        }
    }

    fn record_part(&mut self, txn: &mut Txn<'db>, part: &Unrecorded) -> Result<(), TxnError> {
        let leaf = LeafView::new(self.bytes(txn))?;
        let mut key = Vec::new();
        let digest = txn.db.digester.of_slots(&leaf, part.slots.clone(), &mut key)?;
        let (low, high) = (&*part.low, part.high.as_deref());
        let read = RowRead {
            tree: self.index.number,
            read: Read::Keys(low, high),
            leaf: part.leaf,
            digest,
        };
        let last = self.state.recorded;
        self.state.recorded = Some(txn.work.rows.add_beside(last, read));
        Ok(())
    }

    /// What of the range lies beyond the leaf the walk stands on, if anything does.
    pub(super) fn rest_of_range<'a>(
        &'a self,
        txn: &'a Txn<'db>,
    ) -> Result<Option<RestOfScan<'a>>, TxnError> {
        let (leaf, direction) = (LeafView::new(self.bytes(txn))?, self.direction);
        let (fence, until) = match direction {
            Direction::Forward => (leaf.high_fence(), self.range.high()),
            Direction::Reverse => (Some(leaf.low_fence()), Some(self.range.low())),
        };
        let fence = fence.filter(|fence| !fence.is_empty());
        Ok(fence.map(|from| RestOfScan { from, until, direction }))
    }

    /// Whether the right neighbour of the leaf it stands on is cached. Not known in reverse, which
    /// has no use for it.
    pub(super) fn is_right_cached(&self, txn: &Txn<'db>) -> bool {
        let right = LeafView::new(self.bytes(txn)).map(|leaf| leaf.right());
        self.direction == Direction::Forward
            && right.is_ok_and(|right| txn.db.engine.psn_if_cached(right).is_some())
    }

    /// At most `most` of the slots of the leaf that the walk comes to next, in order.
    pub(super) fn next_slots(&self, most: usize) -> SmallVec<[usize; READ_AHEAD]> {
        let is_forward = self.direction == Direction::Forward;
        let slot_of = |at: &EntryPosition| match at {
            EntryPosition::Slot(slot) => Some(*slot),
            EntryPosition::WriteSet(_) => None,
        };
        match &self.state.merged {
            None if is_forward => self.state.slots.clone().take(most).collect(),
            None => self.state.slots.clone().rev().take(most).collect(),
            Some(merged) if is_forward => merged.iter().filter_map(slot_of).take(most).collect(),
            Some(merged) => merged.iter().rev().filter_map(slot_of).take(most).collect(),
        }
    }

    /// The slot where a key is or would be in the leaf the walk stands on.
    fn slot_at(&self, txn: &Txn<'db>, key: &[u8]) -> Result<usize, TxnError> {
        let leaf = LeafView::new(self.bytes(txn))?;
        Ok(slot_of(&leaf, key)?.unwrap_or(leaf.len()))
    }

    /// The entries of this leaf's part of the range as the walk sees them; `None` if these are all
    /// entries of the leaf.
    fn merge(&self, txn: &Txn<'db>) -> Result<Option<VecDeque<EntryPosition>>, TxnError> {
        let (writes, tree) = (&txn.work.writes, self.index.number);
        let hidden = self.hidden.filter(|hidden| !hidden.is_empty());
        if hidden.is_none() && writes.is_tree_unchanged(tree) {
            return Ok(None);
        }
        let is_seen = |key: &[u8], in_leaf| hidden.is_none_or(|hidden| !hidden.has(key, in_leaf));
        let leaf = LeafView::new(self.bytes(txn))?;
        let passed = self.state.passed.as_deref();
        let (first, end) = match self.direction {
            Direction::Forward => (passed, None),
            Direction::Reverse => (None, passed),
        };
        let low = leaf.low_fence().max(self.range.low()).max(first.unwrap_or_default());
        let high = [leaf.high_fence(), self.range.high(), end].into_iter().flatten().min();
        let mut own = writes.range(tree, low, high).peekable();
        let (mut merged, mut key) = (VecDeque::new(), Vec::new());
        let is_there = |(key, value): (&[u8], WrittenEntry<'_>), in_leaf| {
            let is_there = value != WrittenEntry::Removed && is_seen(key, in_leaf);
            is_there.then(|| EntryPosition::WriteSet(key.into()))
        };
        for slot in self.state.slots.clone() {
            leaf.key_into(slot, &mut key)?;
            while let Some(before) = own.next_if(|(own, _)| *own < &*key) {
                merged.extend(is_there(before, false));
            }
            match own.next_if(|(own, _)| *own == &*key) {
                Some(same) => merged.extend(is_there(same, true)),
                None if is_seen(&key, true) => merged.push_back(EntryPosition::Slot(slot)),
                None => {}
            }
        }
        merged.extend(own.filter_map(|entry| is_there(entry, false)));
        Ok(Some(merged))
    }

    /// The value of an entry.
    pub(crate) fn value<'a>(
        &'a self,
        txn: &'a Txn<'db>,
        at: &EntryPosition,
    ) -> Result<&'a [u8], TxnError> {
        match at {
            EntryPosition::Slot(slot) => Ok(LeafView::new(self.bytes(txn))?.value(*slot)?),
            EntryPosition::WriteSet(key) => match txn.work.writes.get(self.index.number, key) {
                WrittenEntry::Present(value) => Ok(value),
                WrittenEntry::Removed | WrittenEntry::Unchanged => {
                    unreachable!("no operation changes the write set during a walk")
                }
            },
        }
    }

    /// Replaces the contents of `key` by the key of an entry.
    pub(crate) fn key_into(
        &self,
        txn: &Txn<'db>,
        at: &EntryPosition,
        key: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        match at {
            EntryPosition::Slot(slot) => LeafView::new(self.bytes(txn))?.key_into(*slot, key)?,
            EntryPosition::WriteSet(own) => {
                key.clear();
                key.extend_from_slice(own);
            }
        }
        Ok(())
    }

    /// The bytes of the leaf the walk stands on.
    pub(crate) fn bytes<'a>(&'a self, txn: &'a Txn<'db>) -> &'a [u8] {
        match &self.state.leaf_now {
            Some(WalkLeaf::Held(held)) => txn.work.locks.bytes(*held),
            Some(WalkLeaf::Image(image)) => image,
            None => unreachable!("the walk stands on a leaf when it is asked for its bytes"),
        }
    }

    /// Ends the walk on an entry, and keeps its leaf until the next operation at least.
    pub(crate) fn into_leaf(self, txn: &mut Txn<'db>) -> LeafRef {
        match self.state.leaf_now {
            Some(WalkLeaf::Held(held)) => LeafRef::Held(held),
            Some(WalkLeaf::Image(image)) => {
                txn.work.last_read = Some(image);
                LeafRef::LastRead
            }
            None => unreachable!("the walk stands on the leaf of its entry"),
        }
    }

    /// Moves to a leaf that the transaction has found.
    #[expect(clippy::expect_used, reason = "the leaf was found by this operation")]
    fn step_on(&mut self, txn: &mut Txn<'db>, leaf: LeafRef) {
        self.state.leaf_now = Some(match leaf {
            LeafRef::Held(held) => WalkLeaf::Held(held),
            LeafRef::LastRead => {
                let image = txn.work.last_read.take();
                WalkLeaf::Image(image.expect("the leaf last read is still there"))
            }
        });
    }

    async fn move_right(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        let mut cached_next = None;
        // A copy has an old right link: the next leaf may have been given back since.
        let is_copy = matches!(self.state.leaf_now, Some(WalkLeaf::Image(LeafImage::Copied(_))));
        if is_copy || self.state.leaf_now.is_some() && txn.defers_writes() {
            self.state.passed = LeafView::new(self.bytes(txn))?.high_fence().map(<[u8]>::to_vec);
            cached_next = self.cached_right(txn)?;
            self.state.leaf_now = None;
        }
        let first = if let Some(guard) = cached_next {
            let (next, latched) = (guard.addr(), LatchedLeaf::Fresh(LeafLatch::Shared(guard)));
            let leaf = txn.keep(self.index, next, latched, self.mode).await?;
            self.step_on(txn, leaf);
            0
        } else if self.state.leaf_now.is_none() {
            let from = self.state.passed.as_deref().unwrap_or(self.range.low());
            let KeyPosition { leaf, slot } = txn.find(self.index, from, self.mode).await?;
            self.step_on(txn, leaf);
            match slot {
                Ok(slot) | Err(slot) => slot,
            }
        } else {
            let next = LeafView::new(self.bytes(txn))?.right();
            let latched = txn.latch(next, self.mode).await?;
            let leaf = txn.keep(self.index, next, latched, self.mode).await?;
            self.step_on(txn, leaf);
            0
        };
        let leaf = txn.noting_forgotten(self.index, LeafView::new(self.bytes(txn))?);
        let (end, last) = match (self.range.high(), leaf.high_fence()) {
            (None, fence) => (leaf.len(), fence.is_none()),
            (Some(high), Some(fence)) if high > fence => (leaf.len(), false),
            (Some(high), _) => (slot_of(&leaf, high)?.unwrap_or(leaf.len()), true),
        };
        self.state.slots = first..end.max(first);
        self.state.last_leaf = last;
        Ok(())
    }

    /// The next leaf, latched, if it is cached and this one is still latched, so that its right
    /// link is valid.
    fn cached_right(&self, txn: &mut Txn<'db>) -> Result<Option<SharedGuard<'db>>, TxnError> {
        let Some(WalkLeaf::Image(LeafImage::Latched(leaf))) = &self.state.leaf_now else {
            return Ok(None);
        };
        let next = txn.db.engine.shared_hit(LeafView::new(leaf)?.right());
        Ok(next.and_then(|next| txn.in_view(next)))
    }

    /// Continues with a copy of the leaf it stands on, if that is not latched to the end: the
    /// caller is about to wait for another leaf.
    pub(crate) fn release_latch(&mut self) {
        if let Some(WalkLeaf::Image(image)) = &mut self.state.leaf_now
            && let LeafImage::Latched(leaf) = image
        {
            *image = LeafImage::copy_of(leaf);
        }
    }

    async fn move_left(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        if self.state.leaf_now.is_some() {
            self.state.passed = Some(LeafView::new(self.bytes(txn))?.low_fence().to_vec());
        }
        // The descent may wait for a recovery that needs the leaf.
        self.state.leaf_now.take_if(|leaf| matches!(leaf, WalkLeaf::Image(_)));
        let passed = self.state.passed.take();
        let below = passed.as_deref().or(self.range.high());
        let landed = self.land_below(txn, below.map_or(Bound::Unbounded, Bound::Excluded)).await;
        self.state.passed = passed;
        landed
    }

    /// Steps onto the leaf that holds the greatest keys below a bound.
    async fn land_below(
        &mut self,
        txn: &mut Txn<'db>,
        below: Bound<&[u8]>,
    ) -> Result<(), TxnError> {
        let engine = &txn.db.engine;
        for _ in 0..LOCATE_ATTEMPTS {
            let _pin = engine.pin();
            let mut addr = match txn.work.locks.len() {
                0 => self.index.tree.locate_before(engine, below).await?,
                _ => self.index.tree.locate_before_in_order(engine, below).await?,
            };
            let mut way = RightWay::default();
            loop {
                let latched = txn.latch(addr, self.mode).await?;
                match LeafView::new(txn.latched_bytes(&latched))?.where_is_before(below)? {
                    KeyLocation::Here(slot) => {
                        let end = slot.map_or(0, |last| last + 1);
                        return self.land(txn, addr, latched, end).await;
                    }
                    KeyLocation::Right(next) => {
                        addr = txn.follow_right(self.index, below, &latched, next)?;
                    }
                    KeyLocation::Elsewhere => break,
                }
                let passed = match below {
                    Bound::Included(_) | Bound::Excluded(_) => Vec::new(),
                    Bound::Unbounded => {
                        LeafView::new(txn.latched_bytes(&latched))?.low_fence().to_vec()
                    }
                };
                drop(latched);
                let key = match below {
                    Bound::Included(key) | Bound::Excluded(key) => key,
                    Bound::Unbounded => &passed,
                };
                txn.count_hop(self.index, key, &mut way).await?;
            }
        }
        Err(no_stable_leaf(self.index))
    }

    async fn land(
        &mut self,
        txn: &mut Txn<'db>,
        addr: GAddr,
        latched: LatchedLeaf<'db>,
        end: usize,
    ) -> Result<(), TxnError> {
        let leaf = txn.keep(self.index, addr, latched, self.mode).await?;
        self.step_on(txn, leaf);
        let leaf = txn.noting_forgotten(self.index, LeafView::new(self.bytes(txn))?);
        let low = self.range.low();
        let begins_here = leaf.low_fence() <= low;
        let first = if begins_here { slot_of(&leaf, low)?.unwrap_or(leaf.len()) } else { 0 };
        self.state.slots = first.min(end)..end;
        self.state.last_leaf = begins_here;
        Ok(())
    }
}

/// The slot where `key` is or would be in a leaf; `None` if it is not below the leaf's high fence.
fn slot_of(leaf: &LeafView<'_>, key: &[u8]) -> Result<Option<usize>, TxnError> {
    Ok(match leaf.where_is(key)? {
        KeyLocation::Here(Ok(slot) | Err(slot)) => Some(slot),
        KeyLocation::Right(_) | KeyLocation::Elsewhere => None,
    })
}
