//! Walking the leaves of a tree in either direction, latching each one.
//!
//! A leaf's range is its fences', so crossing from one leaf to the next leaves no gap: forwards the
//! right link of a latched leaf leads to exactly the leaf that begins where it ends, and backwards
//! the leaf found must end where the latched one begins. While a leaf is latched its fences and
//! links stay.
//!
//! Where changes are kept aside, a walk waits for leaves, so it latches none meanwhile, not even
//! shared: a request of another node that came while the leaf was being changed waits until nobody
//! here uses it, so two walks in opposite directions could wait for each other. A walk looks for
//! the leaf that has the key at which the last one ended, and goes on from that key, as the leaf
//! may begin before it by then. Only a next leaf that is at hand is latched before the last one is
//! let go.

use std::collections::VecDeque;
use std::ops::{Bound, Range};

use selkie_btree::{Direction, LeafView, Whereabouts};
use selkie_engine::{GAddr, SharedGuard};
use selkie_fabric::env::yield_now;

use crate::error::TxnError;
use crate::held::{Latch, Shown};
use crate::key::KeyRange;
use crate::latch::{Found, LOCATE_ATTEMPTS, Leaf, Mode, RIGHT_HOPS, Taken, restless};
use crate::overlay::Own;
use crate::structure::IndexInfo;
use crate::transaction::Txn;

/// Leaves after which a walk lets other tasks run: walking over cached leaves never suspends.
const LEAVES_AT_ONCE: u32 = 64;

/// The leaf a cursor stands on.
enum Stand<'db> {
    /// Held to the end of the transaction.
    Held(usize),
    /// Shown until the cursor moves on.
    Own(Shown<'db>),
}

/// Where an entry is that a walk has come to.
#[derive(Debug)]
pub(crate) enum At {
    /// In the leaf that [`Cursor::bytes`] shows.
    Slot(usize),
    /// Kept aside by the transaction itself, under this key.
    Own(Box<[u8]>),
}

/// A walk over the entries of a key range.
pub(crate) struct Cursor<'r, 'db> {
    index: &'r IndexInfo,
    range: &'r KeyRange,
    direction: Direction,
    mode: Mode,
    stand: Option<Stand<'db>>,
    /// What is still to come is beyond this key, if the walk has left a leaf.
    passed: Option<Vec<u8>>,
    /// Entries of this leaf that are still to come.
    slots: Range<usize>,
    /// In their place, where the transaction has changed some: those of the leaf and those kept
    /// aside, in their order.
    merged: Option<VecDeque<At>>,
    /// No further leaf has entries in the range.
    last_leaf: bool,
    /// Leaves walked over.
    leaves: u32,
}

impl<'r, 'db> Cursor<'r, 'db> {
    pub(crate) fn new(
        index: &'r IndexInfo,
        range: &'r KeyRange,
        direction: Direction,
        mode: Mode,
    ) -> Self {
        let last_leaf = range.is_empty();
        let (stand, passed, slots, merged) = (None, None, 0..0, None);
        Self { index, range, direction, mode, stand, passed, slots, merged, last_leaf, leaves: 0 }
    }

    /// Where the next entry is.
    pub(crate) async fn next(&mut self, txn: &mut Txn<'db>) -> Result<Option<At>, TxnError> {
        loop {
            let at = match (&mut self.merged, self.direction) {
                (None, Direction::Forward) => self.slots.next().map(At::Slot),
                (None, Direction::Reverse) => self.slots.next_back().map(At::Slot),
                (Some(merged), Direction::Forward) => merged.pop_front(),
                (Some(merged), Direction::Reverse) => merged.pop_back(),
            };
            if at.is_some() || self.last_leaf {
                return Ok(at);
            }
            self.leaves += 1;
            if self.leaves.is_multiple_of(LEAVES_AT_ONCE) {
                yield_now().await;
            }
            match self.direction {
                Direction::Forward => self.move_right(txn).await?,
                Direction::Reverse => self.move_left(txn).await?,
            }
            self.merged = self.merge(txn)?;
        }
    }

    /// The entries of this leaf's part of the range as the transaction sees them; `None` if it has
    /// changed none.
    fn merge(&self, txn: &Txn<'db>) -> Result<Option<VecDeque<At>>, TxnError> {
        let (overlay, tree) = (&txn.work.overlay, self.index.number);
        if overlay.leaves_alone(tree) {
            return Ok(None);
        }
        let leaf = LeafView::new(self.bytes(txn))?;
        let (first, end) = match self.direction {
            Direction::Forward => (self.passed.as_deref(), None),
            Direction::Reverse => (None, self.passed.as_deref()),
        };
        let low = leaf.low_fence().max(self.range.low()).max(first.unwrap_or_default());
        let high = [leaf.high_fence(), self.range.high(), end].into_iter().flatten().min();
        let mut own = overlay.range(tree, low, high).peekable();
        let (mut merged, mut key) = (VecDeque::new(), Vec::new());
        let is_there =
            |(key, value): (&[u8], Own<'_>)| (value != Own::Removed).then(|| At::Own(key.into()));
        for slot in self.slots.clone() {
            leaf.key_into(slot, &mut key)?;
            while let Some(before) = own.next_if(|(own, _)| *own < &*key) {
                merged.extend(is_there(before));
            }
            match own.next_if(|(own, _)| *own == &*key) {
                Some(same) => merged.extend(is_there(same)),
                None => merged.push_back(At::Slot(slot)),
            }
        }
        merged.extend(own.filter_map(is_there));
        Ok(Some(merged))
    }

    /// The value of an entry.
    pub(crate) fn value<'a>(&'a self, txn: &'a Txn<'db>, at: &At) -> Result<&'a [u8], TxnError> {
        match at {
            At::Slot(slot) => Ok(LeafView::new(self.bytes(txn))?.value(*slot)?),
            At::Own(key) => match txn.work.overlay.get(self.index.number, key) {
                Own::Is(value) => Ok(value),
                // Nothing is changed during a walk.
                Own::Removed | Own::Unchanged => Err(restless(self.index)),
            },
        }
    }

    /// Replaces the contents of `key` by the key of an entry.
    pub(crate) fn key_into(
        &self,
        txn: &Txn<'db>,
        at: &At,
        key: &mut Vec<u8>,
    ) -> Result<(), TxnError> {
        match at {
            At::Slot(slot) => LeafView::new(self.bytes(txn))?.key_into(*slot, key)?,
            At::Own(own) => {
                key.clear();
                key.extend_from_slice(own);
            }
        }
        Ok(())
    }

    /// The bytes of the leaf the cursor stands on.
    pub(crate) fn bytes<'a>(&'a self, txn: &'a Txn<'db>) -> &'a [u8] {
        match &self.stand {
            Some(Stand::Held(held)) => txn.held_bytes(*held),
            Some(Stand::Own(guard)) => guard,
            None => &[],
        }
    }

    /// Ends the walk and keeps the leaf it stands on until the next operation at least.
    pub(crate) fn into_leaf(self, txn: &mut Txn<'db>) -> Option<Leaf> {
        Some(match self.stand? {
            Stand::Held(held) => Leaf::Held(held),
            Stand::Own(guard) => {
                txn.work.transient = Some(guard);
                Leaf::Transient
            }
        })
    }

    fn step_on(&mut self, txn: &mut Txn<'db>, leaf: Leaf) {
        self.stand = match leaf {
            Leaf::Held(held) => Some(Stand::Held(held)),
            Leaf::Transient => txn.work.transient.take().map(Stand::Own),
        };
    }

    async fn move_right(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        let mut at_hand = None;
        if self.stand.is_some() && txn.defers() {
            self.passed = LeafView::new(self.bytes(txn))?.high_fence().map(<[u8]>::to_vec);
            at_hand = self.next_at_hand(txn)?;
            self.stand = None;
        }
        let first = if let Some(guard) = at_hand {
            let (next, taken) = (guard.addr(), Taken::Fresh(Latch::Shared(guard)));
            let leaf = txn.keep(self.index, next, taken, self.mode).await?;
            self.step_on(txn, leaf);
            0
        } else if self.stand.is_none() {
            let from = self.passed.as_deref().unwrap_or(self.range.low());
            let Found { leaf, slot } = txn.find(self.index, from, self.mode).await?;
            self.step_on(txn, leaf);
            match slot {
                Ok(slot) | Err(slot) => slot,
            }
        } else {
            let next = LeafView::new(self.bytes(txn))?.right();
            let taken = txn.take(next, self.mode).await?;
            let leaf = txn.keep(self.index, next, taken, self.mode).await?;
            self.step_on(txn, leaf);
            0
        };
        let leaf = LeafView::new(self.bytes(txn))?;
        let (end, last) = match (self.range.high(), leaf.high_fence()) {
            (None, fence) => (leaf.len(), fence.is_none()),
            (Some(high), Some(fence)) if high > fence => (leaf.len(), false),
            (Some(high), _) => (place_of(&leaf, high)?.unwrap_or(leaf.len()), true),
        };
        self.slots = first..end.max(first);
        self.last_leaf = last;
        Ok(())
    }

    /// The next leaf, if it can be had without waiting while the latch of this one says that it is
    /// the next.
    fn next_at_hand(&self, txn: &Txn<'db>) -> Result<Option<SharedGuard<'db>>, TxnError> {
        let Some(Stand::Own(Shown::Latched(leaf))) = &self.stand else { return Ok(None) };
        Ok(txn.db.engine.shared_hit(LeafView::new(leaf)?.right()))
    }

    /// Goes on with a copy of the leaf it stands on if that is latched for no longer than it is
    /// looked at: others are about to be waited for.
    pub(crate) fn let_go(&mut self, txn: &Txn<'db>) {
        if let Some(Stand::Own(shown)) = &mut self.stand
            && txn.defers()
            && let Shown::Latched(leaf) = shown
        {
            *shown = Shown::copy_of(leaf);
        }
    }

    async fn move_left(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        if self.stand.is_some() {
            self.passed = Some(LeafView::new(self.bytes(txn))?.low_fence().to_vec());
        }
        if txn.defers() {
            self.stand = None;
        }
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
            let mut addr = self.index.tree.locate_before(engine, below).await?;
            for _ in 0..RIGHT_HOPS {
                let taken = txn.take(addr, self.mode).await?;
                match LeafView::new(txn.taken_bytes(&taken))?.where_is_before(below)? {
                    Whereabouts::Here(slot) => {
                        let end = slot.map_or(0, |last| last + 1);
                        return self.land(txn, addr, taken, end).await;
                    }
                    Whereabouts::Right(next) => addr = next,
                    Whereabouts::Elsewhere => break,
                }
            }
        }
        Err(restless(self.index))
    }

    async fn land(
        &mut self,
        txn: &mut Txn<'db>,
        addr: GAddr,
        taken: Taken<'db>,
        end: usize,
    ) -> Result<(), TxnError> {
        let leaf = txn.keep(self.index, addr, taken, self.mode).await?;
        self.step_on(txn, leaf);
        let leaf = LeafView::new(self.bytes(txn))?;
        let low = self.range.low();
        let begins_here = leaf.low_fence() <= low;
        let first = if begins_here { place_of(&leaf, low)?.unwrap_or(leaf.len()) } else { 0 };
        self.slots = first.min(end)..end;
        self.last_leaf = begins_here;
        Ok(())
    }
}

/// Where `key` is or would be in a leaf; `None` if it is not below the leaf's high fence.
fn place_of(leaf: &LeafView<'_>, key: &[u8]) -> Result<Option<usize>, TxnError> {
    Ok(match leaf.where_is(key)? {
        Whereabouts::Here(Ok(slot) | Err(slot)) => Some(slot),
        Whereabouts::Right(_) | Whereabouts::Elsewhere => None,
    })
}
