//! Leaves that large transactions may keep latched, and so in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};

use selkie_engine::Engine;

use crate::error::TxnError;

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
    limit: usize,
    latched_reads: AtomicUsize,
}

impl LeafBudget {
    pub(crate) fn new(engine: &Engine) -> Self {
        let limit = engine.cache_frames() / SHARE;
        // So that what it reads leaves room for what it changes.
        Self { held: AtomicUsize::new(0), limit, latched_reads: AtomicUsize::new(limit / 2) }
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

    /// Room for `need` leaves of one transaction, which has room for `room`.
    pub(super) fn grow(&self, room: usize, need: usize) -> Result<usize, TxnError> {
        if need > self.limit {
            return Err(TxnError::TooManyLeaves { need, limit: self.limit });
        }
        // Relaxed: a bound on a number, no data depends on it.
        if self.held.fetch_add(STEP, Ordering::Relaxed) + STEP > self.limit {
            self.held.fetch_sub(STEP, Ordering::Relaxed);
            return Err(TxnError::CacheFull { limit: self.limit });
        }
        Ok(room + STEP)
    }

    /// Gives back the room of a transaction.
    pub(crate) fn give_back(&self, room: usize) {
        let counted = room - UNCOUNTED_LEAVES;
        if counted > 0 {
            self.held.fetch_sub(counted, Ordering::Relaxed);
        }
    }
}
