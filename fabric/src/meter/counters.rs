//! Counters of one endpoint: sharded by queue pair, so that threads on different queue pairs do not
//! fight for a cache line, and summed when read.

use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::verb::{Chain, Verb};

/// Shards of one endpoint's counters; queue pairs take turns.
const SHARDS: usize = 8;

/// What one endpoint has posted so far, or between two snapshots (subtract them).
///
/// Chains count when they are posted, whether or not they succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeterSnapshot {
    /// Chains posted: network round trips.
    pub chains: u64,
    /// Read verbs.
    pub reads: u64,
    /// Write verbs, with and without doorbell.
    pub writes: u64,
    /// Compare-and-swap and fetch-and-add verbs.
    pub atomics: u64,
    /// Write verbs with doorbell.
    pub doorbells: u64,
    /// Payload of the reads, in bytes.
    pub bytes_read: u64,
    /// Payload of the writes, in bytes.
    pub bytes_written: u64,
}

impl MeterSnapshot {
    /// What posting `chain` adds.
    fn of(chain: &Chain) -> Self {
        let mut counts = Self { chains: 1, ..Self::default() };
        for verb in &chain.verbs {
            match verb {
                Verb::Read { into, .. } => {
                    counts.reads += 1;
                    counts.bytes_read += into.len() as u64;
                }
                Verb::Write { from, .. } => {
                    counts.writes += 1;
                    counts.bytes_written += from.len() as u64;
                }
                Verb::WriteWithDoorbell { from, .. } => {
                    counts.writes += 1;
                    counts.doorbells += 1;
                    counts.bytes_written += from.len() as u64;
                }
                Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. } => counts.atomics += 1,
            }
        }
        counts
    }

    fn zip(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            chains: combine(self.chains, other.chains),
            reads: combine(self.reads, other.reads),
            writes: combine(self.writes, other.writes),
            atomics: combine(self.atomics, other.atomics),
            doorbells: combine(self.doorbells, other.doorbells),
            bytes_read: combine(self.bytes_read, other.bytes_read),
            bytes_written: combine(self.bytes_written, other.bytes_written),
        }
    }
}

impl Add for MeterSnapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, u64::wrapping_add)
    }
}

impl Sub for MeterSnapshot {
    type Output = Self;

    /// What was counted since the earlier snapshot `other`.
    fn sub(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }
}

/// A cache line pair of its own, so that neighbouring shards do not disturb each other through the
/// adjacent-line prefetcher.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Shard {
    chains: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    atomics: AtomicU64,
    doorbells: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

impl Shard {
    #[inline]
    pub(crate) fn count(&self, chain: &Chain) {
        let counts = MeterSnapshot::of(chain);
        let pairs = [
            (&self.chains, counts.chains),
            (&self.reads, counts.reads),
            (&self.writes, counts.writes),
            (&self.atomics, counts.atomics),
            (&self.doorbells, counts.doorbells),
            (&self.bytes_read, counts.bytes_read),
            (&self.bytes_written, counts.bytes_written),
        ];
        for (counter, count) in pairs {
            if count != 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    fn snapshot(&self) -> MeterSnapshot {
        MeterSnapshot {
            chains: self.chains.load(Ordering::Relaxed),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            atomics: self.atomics.load(Ordering::Relaxed),
            doorbells: self.doorbells.load(Ordering::Relaxed),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            bytes_written: self.bytes_written.load(Ordering::Relaxed),
        }
    }
}

/// The counters of one endpoint.
#[derive(Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    queue_pairs: AtomicUsize,
}

impl Counters {
    /// The index of the shard for one more queue pair.
    pub(crate) fn assign(&self) -> usize {
        self.queue_pairs.fetch_add(1, Ordering::Relaxed) % SHARDS
    }

    /// The shard at an index given out by `assign`.
    #[inline]
    pub(crate) fn shard(&self, index: usize) -> &Shard {
        #[expect(clippy::indexing_slicing, reason = "the remainder is below the array's length")]
        &self.shards[index % SHARDS]
    }

    pub(crate) fn snapshot(&self) -> MeterSnapshot {
        self.shards.iter().map(Shard::snapshot).fold(MeterSnapshot::default(), Add::add)
    }
}
