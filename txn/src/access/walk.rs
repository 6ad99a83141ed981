//! Walking the leaves of a tree in either direction, latching each one.
//!
//! A leaf's range is given by its fences, so crossing from one leaf to the next leaves no gap:
//! forwards the right link of a latched leaf leads to exactly the leaf that begins where it ends,
//! and backwards the leaf found must end where the latched one begins. While a leaf is latched its
//! fences and links stay.
//!
//! Where changes are deferred, a walk waits for leaves, so it latches none meanwhile, not even
//! shared: a request of another node that came while the leaf was being changed waits until it is
//! free here, so two walks in opposite directions could wait for each other. Such a walk looks for
//! the leaf that has the key at which the last one ended, and continues from that key, as the leaf
//! may begin before it by then. Only a next leaf that is cached is latched before the last one is
//! released.

use std::collections::VecDeque;
use std::ops::{Bound, Range};

use selkie_btree::{Direction, KeyLocation, LeafView};
use selkie_engine::{GAddr, SharedGuard};

use crate::access::leaf::{
    KeyPosition, LOCATE_ATTEMPTS, LatchedLeaf, LeafRef, RightWay, no_stable_leaf,
};
use crate::catalogue::table_info::IndexInfo;
use crate::encoding::key_range::KeyRange;
use crate::error::TxnError;
use crate::protocol::leaf_latch::{LatchMode, LeafImage, LeafLatch};
use crate::protocol::row_reads::{LeafVersion, Read};
use crate::protocol::write_set::WrittenEntry;
use crate::transaction::txn::Txn;

/// The leaf a cursor stands on.
enum CursorLeaf<'db> {
    /// In the lock set, at this position.
    Held(usize),
    /// Until the cursor moves on.
    Image(LeafImage<'db>),
}

/// Where the entry is that a walk has reached.
#[derive(Debug)]
pub(crate) enum EntryPosition {
    /// In this slot of the leaf the cursor stands on.
    Slot(usize),
    /// In the write set, under this key.
    WriteSet(Box<[u8]>),
}

/// The part of a leaf that a walk goes over and has not recorded as read.
struct Unrecorded {
    leaf: LeafVersion,
    /// Its entries.
    slots: Range<usize>,
    /// Its keys, of which no other leaf has any.
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// A walk over the entries of a key range.
pub(crate) struct Cursor<'r, 'db> {
    index: &'r IndexInfo,
    range: &'r KeyRange,
    direction: Direction,
    mode: LatchMode,
    /// The leaf the cursor stands on; `None` before the first, and between two.
    leaf_now: Option<CursorLeaf<'db>>,
    /// If the walk has left a leaf: the remaining entries are beyond this key.
    passed: Option<Vec<u8>>,
    /// The remaining entries of this leaf.
    slots: Range<usize>,
    /// Used instead of `slots` where the transaction has changed entries: the remaining entries of
    /// the leaf and of the write set, in their order.
    merged: Option<VecDeque<EntryPosition>>,
    /// Whether no further leaf has entries in the range.
    last_leaf: bool,
    /// Where rows are recorded, what is to be.
    unrecorded: Option<Unrecorded>,
}

impl<'r, 'db> Cursor<'r, 'db> {
    pub(crate) fn new(
        index: &'r IndexInfo,
        range: &'r KeyRange,
        direction: Direction,
        mode: LatchMode,
    ) -> Self {
        let last_leaf = range.is_empty();
        let (leaf_now, passed, slots, merged) = (None, None, 0..0, None);
        let unrecorded = None;
        Self {
            index,
            range,
            direction,
            mode,
            leaf_now,
            passed,
            slots,
            merged,
            last_leaf,
            unrecorded,
        }
    }

    /// Moves to the next entry.
    pub(crate) async fn next(
        &mut self,
        txn: &mut Txn<'db>,
    ) -> Result<Option<EntryPosition>, TxnError> {
        loop {
            let at = match (&mut self.merged, self.direction) {
                (None, Direction::Forward) => self.slots.next().map(EntryPosition::Slot),
                (None, Direction::Reverse) => self.slots.next_back().map(EntryPosition::Slot),
                (Some(merged), Direction::Forward) => merged.pop_front(),
                (Some(merged), Direction::Reverse) => merged.pop_back(),
            };
            if at.is_some() {
                return Ok(at);
            }
            self.record_rest(txn)?;
            if self.last_leaf {
                return Ok(None);
            }
            txn.yield_now_and_then().await;
            match self.direction {
                Direction::Forward => self.move_right(txn).await?,
                Direction::Reverse => self.move_left(txn).await?,
            }
            self.begin_to_record(txn)?;
            self.merged = self.merge(txn)?;
        }
    }

    /// Notes what of the leaf it has come to the walk goes over.
    fn begin_to_record(&mut self, txn: &Txn<'db>) -> Result<(), TxnError> {
        if !txn.must_record(self.mode) {
            return Ok(());
        }
        let leaf = LeafView::new(self.bytes(txn))?;
        let passed = self.passed.as_deref();
        let (low, high) = match self.direction {
            Direction::Forward => {
                let high = [leaf.high_fence(), self.range.high()].into_iter().flatten().min();
                (passed.unwrap_or(self.range.low()), high)
            }
            Direction::Reverse => {
                (leaf.low_fence().max(self.range.low()), passed.or(self.range.high()))
            }
        };
        self.unrecorded = Some(Unrecorded {
            leaf: txn.work.last_version,
            slots: self.slots.clone(),
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
        if self.unrecorded.is_none() {
            return Ok(());
        }
        let mut key = Vec::new();
        self.key_into(txn, at, &mut key)?;
        let Some(mut part) = self.unrecorded.take() else { return Ok(()) };
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
        self.unrecorded = Some(rest);
        self.record_part(txn, &part)
    }

    /// Records what the walk has read of the leaf it stands on and not recorded: all of it.
    fn record_rest(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        match self.unrecorded.take() {
            Some(part) => self.record_part(txn, &part),
            None => Ok(()),
        }
    }

    fn record_part(&self, txn: &mut Txn<'db>, part: &Unrecorded) -> Result<(), TxnError> {
        let leaf = LeafView::new(self.bytes(txn))?;
        let mut key = Vec::new();
        let digest = txn.db.digester.of_slots(&leaf, part.slots.clone(), &mut key)?;
        let read = Read::Keys(&part.low, part.high.as_deref());
        txn.work.rows.add(self.index.number, read, part.leaf, digest);
        Ok(())
    }

    /// The slot where a key is or would be in the leaf the cursor stands on.
    fn slot_at(&self, txn: &Txn<'db>, key: &[u8]) -> Result<usize, TxnError> {
        let leaf = LeafView::new(self.bytes(txn))?;
        Ok(slot_of(&leaf, key)?.unwrap_or(leaf.len()))
    }

    /// The entries of this leaf's part of the range as the transaction sees them; `None` if it has
    /// changed none.
    fn merge(&self, txn: &Txn<'db>) -> Result<Option<VecDeque<EntryPosition>>, TxnError> {
        let (writes, tree) = (&txn.work.writes, self.index.number);
        if writes.is_tree_unchanged(tree) {
            return Ok(None);
        }
        let leaf = LeafView::new(self.bytes(txn))?;
        let (first, end) = match self.direction {
            Direction::Forward => (self.passed.as_deref(), None),
            Direction::Reverse => (None, self.passed.as_deref()),
        };
        let low = leaf.low_fence().max(self.range.low()).max(first.unwrap_or_default());
        let high = [leaf.high_fence(), self.range.high(), end].into_iter().flatten().min();
        let mut own = writes.range(tree, low, high).peekable();
        let (mut merged, mut key) = (VecDeque::new(), Vec::new());
        let is_there = |(key, value): (&[u8], WrittenEntry<'_>)| {
            (value != WrittenEntry::Removed).then(|| EntryPosition::WriteSet(key.into()))
        };
        for slot in self.slots.clone() {
            leaf.key_into(slot, &mut key)?;
            while let Some(before) = own.next_if(|(own, _)| *own < &*key) {
                merged.extend(is_there(before));
            }
            match own.next_if(|(own, _)| *own == &*key) {
                Some(same) => merged.extend(is_there(same)),
                None => merged.push_back(EntryPosition::Slot(slot)),
            }
        }
        merged.extend(own.filter_map(is_there));
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

    /// The bytes of the leaf the cursor stands on.
    pub(crate) fn bytes<'a>(&'a self, txn: &'a Txn<'db>) -> &'a [u8] {
        match &self.leaf_now {
            Some(CursorLeaf::Held(held)) => txn.work.locks.bytes(*held),
            Some(CursorLeaf::Image(image)) => image,
            None => unreachable!("the cursor stands on a leaf when it is asked for its bytes"),
        }
    }

    /// Ends the walk on an entry, and keeps its leaf until the next operation at least.
    pub(crate) fn into_leaf(self, txn: &mut Txn<'db>) -> LeafRef {
        match self.leaf_now {
            Some(CursorLeaf::Held(held)) => LeafRef::Held(held),
            Some(CursorLeaf::Image(image)) => {
                txn.work.last_read = Some(image);
                LeafRef::LastRead
            }
            None => unreachable!("the cursor stands on the leaf of its entry"),
        }
    }

    /// Moves to a leaf that the transaction has found.
    #[expect(clippy::expect_used, reason = "the leaf was found by this operation")]
    fn step_on(&mut self, txn: &mut Txn<'db>, leaf: LeafRef) {
        self.leaf_now = Some(match leaf {
            LeafRef::Held(held) => CursorLeaf::Held(held),
            LeafRef::LastRead => {
                let image = txn.work.last_read.take();
                CursorLeaf::Image(image.expect("the leaf last read is still there"))
            }
        });
    }

    async fn move_right(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        let mut cached_next = None;
        // A copy has an old right link: the next leaf may have been given back since.
        let is_copy = matches!(self.leaf_now, Some(CursorLeaf::Image(LeafImage::Copied(_))));
        if is_copy || self.leaf_now.is_some() && txn.defers_writes() {
            self.passed = LeafView::new(self.bytes(txn))?.high_fence().map(<[u8]>::to_vec);
            cached_next = self.cached_right(txn)?;
            self.leaf_now = None;
        }
        let first = if let Some(guard) = cached_next {
            let (next, latched) = (guard.addr(), LatchedLeaf::Fresh(LeafLatch::Shared(guard)));
            let leaf = txn.keep(self.index, next, latched, self.mode).await?;
            self.step_on(txn, leaf);
            0
        } else if self.leaf_now.is_none() {
            let from = self.passed.as_deref().unwrap_or(self.range.low());
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
        let leaf = LeafView::new(self.bytes(txn))?;
        let (end, last) = match (self.range.high(), leaf.high_fence()) {
            (None, fence) => (leaf.len(), fence.is_none()),
            (Some(high), Some(fence)) if high > fence => (leaf.len(), false),
            (Some(high), _) => (slot_of(&leaf, high)?.unwrap_or(leaf.len()), true),
        };
        self.slots = first..end.max(first);
        self.last_leaf = last;
        Ok(())
    }

    /// The next leaf, latched, if it is cached and this one is still latched, so that its right
    /// link is valid.
    fn cached_right(&self, txn: &mut Txn<'db>) -> Result<Option<SharedGuard<'db>>, TxnError> {
        let Some(CursorLeaf::Image(LeafImage::Latched(leaf))) = &self.leaf_now else {
            return Ok(None);
        };
        let next = txn.db.engine.shared_hit(LeafView::new(leaf)?.right());
        Ok(next.and_then(|next| txn.in_view(next)))
    }

    /// Continues with a copy of the leaf it stands on, if that is not latched to the end: the
    /// caller is about to wait for another leaf.
    pub(crate) fn release_latch(&mut self) {
        if let Some(CursorLeaf::Image(image)) = &mut self.leaf_now
            && let LeafImage::Latched(leaf) = image
        {
            *image = LeafImage::copy_of(leaf);
        }
    }

    async fn move_left(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        if self.leaf_now.is_some() {
            self.passed = Some(LeafView::new(self.bytes(txn))?.low_fence().to_vec());
        }
        // The descent may wait for a recovery that needs the leaf.
        self.leaf_now.take_if(|leaf| matches!(leaf, CursorLeaf::Image(_)));
        let passed = self.passed.take();
        let below = passed.as_deref().or(self.range.high());
        let landed = self.land_below(txn, below.map_or(Bound::Unbounded, Bound::Excluded)).await;
        self.passed = passed;
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
        let leaf = LeafView::new(self.bytes(txn))?;
        let low = self.range.low();
        let begins_here = leaf.low_fence() <= low;
        let first = if begins_here { slot_of(&leaf, low)?.unwrap_or(leaf.len()) } else { 0 };
        self.slots = first.min(end)..end;
        self.last_leaf = begins_here;
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
