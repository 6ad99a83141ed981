//! Walking the leaves of a tree in either direction, latching each one.
//!
//! A leaf's range is its fences', so crossing from one leaf to the next leaves no gap: forwards the right
//! link of a latched leaf leads to exactly the leaf that begins where it ends, and backwards the leaf
//! found must end where the latched one begins. While a leaf is latched its fences and links stay.

use std::ops::{Bound, Range};

use selkie_btree::{Direction, LeafView, Whereabouts};
use selkie_engine::{GAddr, SharedGuard};
use selkie_fabric::env::yield_now;

use crate::error::TxnError;
use crate::key::KeyRange;
use crate::latch::{Found, LOCATE_ATTEMPTS, Leaf, Mode, RIGHT_HOPS, Taken, restless};
use crate::structure::IndexInfo;
use crate::transaction::Txn;

/// Leaves after which a walk lets other tasks run: walking over cached leaves never suspends.
const LEAVES_AT_ONCE: u32 = 64;

/// The leaf a cursor stands on.
enum Stand<'db> {
    /// Held to the end of the transaction.
    Held(usize),
    /// Held until the cursor moves on.
    Own(SharedGuard<'db>),
}

/// A walk over the entries of a key range.
pub(crate) struct Cursor<'r, 'db> {
    index: &'r IndexInfo,
    range: &'r KeyRange,
    direction: Direction,
    mode: Mode,
    stand: Option<Stand<'db>>,
    /// Entries of this leaf that are still to come.
    slots: Range<usize>,
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
        Self { index, range, direction, mode, stand: None, slots: 0..0, last_leaf, leaves: 0 }
    }

    /// The next entry's slot in the leaf that [`bytes`](Self::bytes) shows.
    pub(crate) async fn next(&mut self, txn: &mut Txn<'db>) -> Result<Option<usize>, TxnError> {
        loop {
            let slot = match self.direction {
                Direction::Forward => self.slots.next(),
                Direction::Reverse => self.slots.next_back(),
            };
            if slot.is_some() || self.last_leaf {
                return Ok(slot);
            }
            self.leaves += 1;
            if self.leaves.is_multiple_of(LEAVES_AT_ONCE) {
                yield_now().await;
            }
            match self.direction {
                Direction::Forward => self.move_right(txn).await?,
                Direction::Reverse => self.move_left(txn).await?,
            }
        }
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
        let first = if self.stand.is_none() {
            let Found { leaf, slot } = txn.find(self.index, self.range.low(), self.mode).await?;
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

    async fn move_left(&mut self, txn: &mut Txn<'db>) -> Result<(), TxnError> {
        let mut bound = std::mem::take(&mut txn.work.bound);
        bound.clear();
        let bounded = if self.stand.is_some() {
            let leaf = LeafView::new(self.bytes(txn))?;
            bound.extend_from_slice(leaf.low_fence());
            true
        } else if let Some(high) = self.range.high() {
            bound.extend_from_slice(high);
            true
        } else {
            false
        };
        let result = self.land_below(txn, bounded.then_some(&bound)).await;
        txn.work.bound = bound;
        result
    }

    /// Steps onto the leaf that holds the greatest keys below `bound`.
    async fn land_below(
        &mut self,
        txn: &mut Txn<'db>,
        bound: Option<&Vec<u8>>,
    ) -> Result<(), TxnError> {
        let below = bound.map_or(Bound::Unbounded, |bound| Bound::Excluded(bound.as_slice()));
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
