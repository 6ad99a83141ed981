//! Leaves that large transactions may keep latched in the cache. Those beyond that leave the cache.

use std::sync::atomic::{AtomicUsize, Ordering};

use selkie_engine::Engine;

/// Leaves that every transaction may hold without being counted: counting costs an atomic.
pub(crate) const UNCOUNTED_LEAVES: usize = 64;
/// Leaves counted at once.
const STEP: usize = 64;
/// Part of the cache that counted leaves may take: the others are for inner pages, for reads, and
/// for what is being evicted.
const SHARE: usize = 2;

/// Leaves held by large transactions of one database handle, beside the first
/// [`UNCOUNTED_LEAVES`] of each.
#[derive(Debug)]
pub(crate) struct LeafBudget {
    held: AtomicUsize,
    limit: AtomicUsize,
    most_beyond: usize,
    latched_reads: AtomicUsize,
}

impl LeafBudget {
    pub(crate) fn new(engine: &Engine) -> Self {
        let limit = engine.cache_frames() / SHARE / STEP * STEP;
        // So that what it reads leaves room for what it changes.
        let latched_reads = AtomicUsize::new(limit / 2);
        let most_beyond = engine.most_beyond_cache();
        let (held, limit) = (AtomicUsize::new(0), AtomicUsize::new(limit));
        Self { held, limit, most_beyond, latched_reads }
    }

    /// Leaves a transaction holds beyond which it keeps no more latches of leaves that it only
    /// reads: it records their sequence numbers, and validates them at commit.
    pub(crate) fn latched_reads(&self) -> usize {
        // Relaxed: a bound on a number, no data depends on it.
        self.latched_reads.load(Ordering::Relaxed)
    }

    pub(super) fn set_latched_reads(&self, leaves: usize) {
        self.latched_reads.store(leaves, Ordering::Relaxed);
    }

    pub(super) fn set_cached_leaves(&self, leaves: usize) {
        self.limit.store(leaves / STEP * STEP, Ordering::Relaxed);
    }

    /// More room in the cache for the leaves of a transaction, which has room for `room`. `None`:
    /// large transactions have all of it.
    pub(super) fn grow(&self, room: usize) -> Option<usize> {
        // Relaxed: a bound on a number, no data depends on it.
        let limit = self.limit.load(Ordering::Relaxed);
        if self.held.fetch_add(STEP, Ordering::Relaxed) + STEP > limit {
            self.held.fetch_sub(STEP, Ordering::Relaxed);
            return None;
        }
        Some(room + STEP)
    }

    /// Most leaves that one transaction may hold, in the cache and beyond it.
    pub(super) fn most(&self) -> usize {
        let cached = UNCOUNTED_LEAVES + self.limit.load(Ordering::Relaxed);
        cached.saturating_add(self.most_beyond)
    }

    /// Gives back the room of a transaction.
    pub(crate) fn give_back(&self, room: usize) {
        let counted = room - UNCOUNTED_LEAVES;
        if counted > 0 {
            self.held.fetch_sub(counted, Ordering::Relaxed);
        }
    }
}
