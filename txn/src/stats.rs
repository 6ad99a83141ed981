//! Counters of what became of transactions, kept so that threads do not fight for a cache line.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_engine::UserCounters;

use crate::error::AbortCause;

/// How many shards there are of the counters, and of the pool of workspaces.
pub(crate) const SHARDS: usize = 16;

const CAUSES: usize = AbortCause::ALL.len();

/// Aborts by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AbortCounts([u64; CAUSES]);

impl AbortCounts {
    /// How many there were for `cause`.
    #[must_use]
    pub fn of(&self, cause: AbortCause) -> u64 {
        self.iter().find(|&(other, _)| other == cause).map_or(0, |(_, count)| count)
    }

    /// Every cause with its count.
    pub fn iter(&self) -> impl Iterator<Item = (AbortCause, u64)> + '_ {
        AbortCause::ALL.into_iter().zip(self.0)
    }

    /// The sum over all causes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn count(&mut self, cause: AbortCause) {
        for (slot, other) in self.0.iter_mut().zip(AbortCause::ALL) {
            *slot += u64::from(other == cause);
        }
    }
}

/// What became of the transactions of one [`Database`](crate::Database) handle and its clones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxnStats {
    /// Transactions that committed.
    pub commits: u64,
    /// Transactions that were rolled back.
    pub aborts: AbortCounts,
    /// Leaves split by transactions, also by those rolled back later.
    pub splits: u64,
    /// Row locks that were waited for. Deadlocks and waits that took too long are in `aborts`.
    pub lock_waits: u64,
    /// How long, all waits together that have ended, however they did.
    pub lock_wait_time: Duration,
    /// Row locks that were refused, as another transaction had them and this one was
    /// [not to wait](crate::LockWait::NoWait).
    pub lock_refusals: u64,
    /// Turns at rows that many transactions change, of this node, that were waited for.
    pub turn_waits: u64,
    /// How long, all waits together that have ended, however they did.
    pub turn_wait_time: Duration,
    /// Turns that went over to the next transaction as they lasted too long.
    pub turns_lost: u64,
    /// Turns that were not waited for, as those of the transactions would have waited for each
    /// other in a circle.
    pub turn_circles: u64,
}

/// For the [`Roster`](selkie_engine::Roster) of a node.
impl From<TxnStats> for UserCounters {
    fn from(stats: TxnStats) -> Self {
        Self {
            operations: stats.commits,
            lock_waits: stats.lock_waits,
            lock_wait_time: stats.lock_wait_time,
            deadlocks: stats.aborts.of(AbortCause::Deadlock),
            lock_timeouts: stats.aborts.of(AbortCause::LockTimeout),
            lock_refusals: stats.lock_refusals,
            turn_waits: stats.turn_waits,
            turn_wait_time: stats.turn_wait_time,
            turns_lost: stats.turns_lost,
            turn_circles: stats.turn_circles,
            snapshots_too_old: stats.aborts.of(AbortCause::SnapshotTooOld),
        }
    }
}

impl Sub for TxnStats {
    type Output = Self;
    fn sub(self, earlier: Self) -> Self {
        let mut aborts = self.aborts;
        for (now, before) in aborts.0.iter_mut().zip(earlier.aborts.0) {
            *now -= before;
        }
        let (commits, splits) = (self.commits - earlier.commits, self.splits - earlier.splits);
        Self {
            commits,
            aborts,
            splits,
            lock_waits: self.lock_waits - earlier.lock_waits,
            lock_wait_time: self.lock_wait_time.saturating_sub(earlier.lock_wait_time),
            lock_refusals: self.lock_refusals - earlier.lock_refusals,
            turn_waits: self.turn_waits - earlier.turn_waits,
            turn_wait_time: self.turn_wait_time.saturating_sub(earlier.turn_wait_time),
            turns_lost: self.turns_lost - earlier.turns_lost,
            turn_circles: self.turn_circles - earlier.turn_circles,
        }
    }
}

/// One copy of the counters, alone on its cache lines (two: the adjacent one is prefetched).
#[derive(Debug, Default)]
#[repr(align(128))]
struct StatsShard {
    commits: AtomicU64,
    aborts: [AtomicU64; CAUSES],
    splits: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct StatsShards([StatsShard; SHARDS]);

impl StatsShards {
    pub(crate) fn committed(&self, shard: usize) {
        self.shard(shard).commits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn aborted(&self, shard: usize, cause: AbortCause) {
        for (count, other) in self.shard(shard).aborts.iter().zip(AbortCause::ALL) {
            if other == cause {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(crate) fn split(&self, shard: usize) {
        self.shard(shard).splits.fetch_add(1, Ordering::Relaxed);
    }

    #[expect(clippy::indexing_slicing, reason = "shards are numbered below SHARDS")]
    fn shard(&self, shard: usize) -> &StatsShard {
        &self.0[shard]
    }

    pub(crate) fn snapshot(&self) -> TxnStats {
        let mut sum = TxnStats::default();
        for shard in &self.0 {
            sum.commits += shard.commits.load(Ordering::Relaxed);
            sum.splits += shard.splits.load(Ordering::Relaxed);
            for (sum, count) in sum.aborts.0.iter_mut().zip(&shard.aborts) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sum
    }
}

/// The shard for the calling thread. Which one it is matters for speed only.
pub(crate) fn shard_here() -> usize {
    let mut hasher = DefaultHasher::new();
    std::thread::current().id().hash(&mut hasher);
    (hasher.finish() % SHARDS as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_add_up_over_shards() {
        let shards = StatsShards::default();
        shards.committed(0);
        shards.committed(15);
        shards.aborted(3, AbortCause::Conflict);
        let early = shards.snapshot();
        shards.aborted(4, AbortCause::Conflict);
        shards.aborted(4, AbortCause::Failure);
        shards.split(1);
        let late = shards.snapshot();
        assert_eq!((late.commits, late.splits, late.aborts.total()), (2, 1, 3));
        let delta = late - early;
        assert_eq!(delta.commits, 0);
        assert_eq!(delta.aborts.of(AbortCause::Conflict), 1);
        assert_eq!(delta.aborts.of(AbortCause::Failure), 1);
        assert_eq!(delta.aborts.of(AbortCause::Timeout), 0);
    }

    #[test]
    fn observers_are_told_of_locks_turns_and_snapshots() {
        let shards = StatsShards::default();
        shards.committed(2);
        let causes = [AbortCause::Deadlock, AbortCause::LockTimeout, AbortCause::SnapshotTooOld];
        for (times, cause) in (1..).zip(causes) {
            (0..times).for_each(|shard| shards.aborted(shard, cause));
        }
        let [lock_wait_time, turn_wait_time] = [7, 9].map(Duration::from_millis);
        let stats = TxnStats {
            lock_waits: 5,
            lock_refusals: 6,
            lock_wait_time,
            turn_waits: 8,
            turn_wait_time,
            turns_lost: 10,
            turn_circles: 11,
            ..shards.snapshot()
        };
        let expected = UserCounters {
            operations: 1,
            lock_waits: 5,
            lock_wait_time,
            deadlocks: 1,
            lock_timeouts: 2,
            lock_refusals: 6,
            turn_waits: 8,
            turn_wait_time,
            turns_lost: 10,
            turn_circles: 11,
            snapshots_too_old: 3,
        };
        assert_eq!(UserCounters::from(stats), expected);
    }

    #[test]
    fn of_what_was_counted_before_nothing_is_in_a_difference() {
        let counted = |factor: u32| TxnStats {
            lock_waits: (5 * factor).into(),
            lock_wait_time: Duration::from_millis(7) * factor,
            lock_refusals: (11 * factor).into(),
            turn_waits: (13 * factor).into(),
            turn_wait_time: Duration::from_millis(17) * factor,
            turns_lost: (19 * factor).into(),
            turn_circles: (23 * factor).into(),
            ..TxnStats::default()
        };
        assert_eq!(counted(5) - counted(2), counted(3));
    }
}
