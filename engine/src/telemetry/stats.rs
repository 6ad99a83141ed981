//! Counters of one engine, striped so that threads do not fight for a cache line.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cache::frames::Frames;

/// Living threads that have a stripe of their own; those beyond share one.
const STRIPES: usize = 64;

/// This thread has no number yet.
const UNNUMBERED: usize = usize::MAX;
/// This thread ends, and has no number any more.
const ENDED: usize = usize::MAX - 1;

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(UNNUMBERED) };
}

/// Number of this thread among those that live, from 0: one that has ended leaves its number to
/// another. A thread that is just ending has none, but a number beyond all.
#[inline]
pub(crate) fn stripe() -> usize {
    match MINE.get() {
        UNNUMBERED => take_number(),
        mine => mine,
    }
}

/// Numbers that threads which ended have left, the lowest to be taken first. The lock orders what
/// both count.
static LEFT: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Leaves the number of its thread to another.
struct Number(usize);

impl Drop for Number {
    fn drop(&mut self) {
        // Other destructors of this thread may still count.
        MINE.set(ENDED);
        LEFT.lock().insert(self.0);
    }
}

#[cold]
fn take_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static KEPT: Number = {
            let left = LEFT.lock().pop_first();
            Number(left.unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed)))
        };
    }
    let number = KEPT.try_with(|kept| kept.0).unwrap_or(ENDED);
    MINE.set(number);
    number
}

/// One counter a stripe.
#[repr(align(64))]
#[derive(Default)]
struct Stripe {
    hits: AtomicU64,
}

/// What the engine counts. Hits are striped, everything rarer is plain.
pub(crate) struct Counters {
    stripes: Box<[Stripe]>,
    /// Hits of the threads that have no stripe of their own.
    shared: AtomicU64,
    pub(crate) misses: AtomicU64,
    pub(crate) prefetches: AtomicU64,
    pub(crate) invalidations: AtomicU64,
    pub(crate) invalidations_sent: AtomicU64,
    pub(crate) downgrades: AtomicU64,
    pub(crate) evictions: AtomicU64,
    pub(crate) write_backs: AtomicU64,
    pub(crate) corruptions: AtomicU64,
    pub(crate) repairs: AtomicU64,
    pub(crate) late_reads: AtomicU64,
    pub(crate) upgrades: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) messages: AtomicU64,
    pub(crate) gamma_hand_overs: AtomicU64,
}

impl Counters {
    pub(crate) fn new() -> Counters {
        Counters {
            stripes: (0..STRIPES).map(|_| Stripe::default()).collect(),
            shared: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            prefetches: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
            invalidations_sent: AtomicU64::new(0),
            downgrades: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            write_backs: AtomicU64::new(0),
            corruptions: AtomicU64::new(0),
            repairs: AtomicU64::new(0),
            late_reads: AtomicU64::new(0),
            upgrades: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            gamma_hand_overs: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(crate) fn hit(&self) {
        match self.stripes.get(stripe()) {
            // Only this thread writes its stripe: no read-modify-write is needed to be exact.
            Some(s) => s.hits.store(s.hits.load(Ordering::Relaxed) + 1, Ordering::Relaxed),
            None => Self::add(&self.shared),
        }
    }

    /// Hits of this thread so far; of one without a stripe, those of all such threads.
    pub(crate) fn hits_of_thread(&self) -> u64 {
        let own = self.stripes.get(stripe()).map_or(&self.shared, |stripe| &stripe.hits);
        own.load(Ordering::Relaxed)
    }

    pub(crate) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// With `hottest_skipped` and what is of snapshots as zero: they are counted elsewhere.
    pub(crate) fn snapshot(&self, frames: &Frames) -> EngineStats {
        let read = |c: &AtomicU64| c.load(Ordering::Relaxed);
        EngineStats {
            hits: self.stripes.iter().map(|s| read(&s.hits)).sum::<u64>() + read(&self.shared),
            misses: read(&self.misses),
            prefetches: read(&self.prefetches),
            invalidations: read(&self.invalidations),
            invalidations_sent: read(&self.invalidations_sent),
            downgrades: read(&self.downgrades),
            evictions: read(&self.evictions),
            write_backs: read(&self.write_backs),
            corruptions: read(&self.corruptions),
            repairs: read(&self.repairs),
            late_reads: read(&self.late_reads),
            upgrades: read(&self.upgrades),
            busy: read(&self.busy),
            messages: read(&self.messages),
            gamma_hand_overs: read(&self.gamma_hand_overs),
            frames: frames.count() as u64,
            frames_free: frames.free_count() as u64,
            pages_beyond_cache: frames.beyond_cache() as u64,
            ..EngineStats::default()
        }
    }
}

/// What an engine did since its start; subtract two to get an interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EngineStats {
    /// Accesses served by the cached copy without the slow path.
    pub hits: u64,
    /// Accesses that fetched the page or a right to it.
    pub misses: u64,
    /// Pages that were fetched before an access asked for them ([`crate::Engine::prefetch`]).
    pub prefetches: u64,
    /// Copies given up because another node asked for them.
    pub invalidations: u64,
    /// Requests to other nodes to give their copies up, each to one node. None where directories
    /// ask (`rpc`).
    pub invalidations_sent: u64,
    /// Exclusive copies turned shared because another node wanted to read.
    pub downgrades: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Evictions and downgrades that wrote dirty bytes back.
    pub write_backs: u64,
    /// Splits of pages that were found to be other than they were written.
    pub corruptions: u64,
    /// Splits that were written again for that.
    pub repairs: u64,
    /// Pages that went into another frame, as a split was late.
    pub late_reads: u64,
    /// Shared copies that became exclusive.
    pub upgrades: u64,
    /// `try_` operations that ended in Busy.
    pub busy: u64,
    /// Messages sent to other compute nodes.
    pub messages: u64,
    /// Pages handed over because local accesses had used up γ.
    pub gamma_hand_overs: u64,
    /// Misses and invalidations that [`crate::Engine::hottest`] knows nothing of, as threads met
    /// there.
    pub hottest_skipped: u64,
    /// Frames of the cache.
    pub frames: u64,
    /// Frames free now.
    pub frames_free: u64,
    /// Pages beyond the cache now ([`crate::EngineConfig::overflow_bytes`]).
    pub pages_beyond_cache: u64,
    /// Images of pages that were kept for snapshots.
    pub images_kept: u64,
    /// Images that were given up, or not kept, for want of room
    /// ([`crate::EngineConfig::image_bytes`]), although a snapshot may have needed them.
    pub images_dropped: u64,
    /// Images kept now.
    pub images_live: u64,
    /// Bytes that they take.
    pub image_bytes: u64,
    /// Snapshots of this node that are active now.
    pub snapshots_active: u64,
    /// Commit stamps since the oldest of them began, of all nodes, as far as this node knows.
    pub oldest_snapshot_age: u64,
}

impl EngineStats {
    /// Share of the accesses that were hits, 0..=1; 1 when there were none.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 1.0 } else { self.hits as f64 / all as f64 }
    }
}

impl Sub for EngineStats {
    type Output = EngineStats;

    fn sub(self, earlier: EngineStats) -> EngineStats {
        EngineStats {
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            prefetches: self.prefetches - earlier.prefetches,
            invalidations: self.invalidations - earlier.invalidations,
            invalidations_sent: self.invalidations_sent - earlier.invalidations_sent,
            downgrades: self.downgrades - earlier.downgrades,
            evictions: self.evictions - earlier.evictions,
            write_backs: self.write_backs - earlier.write_backs,
            corruptions: self.corruptions - earlier.corruptions,
            repairs: self.repairs - earlier.repairs,
            late_reads: self.late_reads - earlier.late_reads,
            upgrades: self.upgrades - earlier.upgrades,
            busy: self.busy - earlier.busy,
            messages: self.messages - earlier.messages,
            gamma_hand_overs: self.gamma_hand_overs - earlier.gamma_hand_overs,
            hottest_skipped: self.hottest_skipped - earlier.hottest_skipped,
            frames: self.frames,
            frames_free: self.frames_free,
            pages_beyond_cache: self.pages_beyond_cache,
            images_kept: self.images_kept - earlier.images_kept,
            images_dropped: self.images_dropped - earlier.images_dropped,
            images_live: self.images_live,
            image_bytes: self.image_bytes,
            snapshots_active: self.snapshots_active,
            oldest_snapshot_age: self.oldest_snapshot_age,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets something else has failed")]
mod tests {
    use super::*;

    /// A program that starts a thread for each request still counts without contention.
    #[test]
    fn a_thread_that_ended_leaves_its_number_to_another() {
        const THREADS: usize = 1_000;
        let counters = std::sync::Arc::new(Counters::new());
        let mut most = 0;
        for _ in 0..THREADS {
            let counters = std::sync::Arc::clone(&counters);
            let thread = std::thread::spawn(move || {
                counters.hit();
                stripe()
            });
            most = most.max(thread.join().unwrap());
        }
        // Threads of other tests have numbers too.
        assert!(most < THREADS / 2, "{most}");
        assert_eq!(counters.snapshot(&Frames::new(1, 512, 0)).hits, THREADS as u64);
    }
}
