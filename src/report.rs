//! Reports of the nodes of a pool about their work: with their beats, once a second.
//!
//! A report is JSON of a [`Report`]. Counters are cumulative, so that a reader who misses reports
//! misses nothing. A rate is the difference of two counters over the time between the two reports,
//! which is that of the node's own clock.
//!
//! A version of the format only grows: readers skip unknown fields, and fields that a writer does
//! not know are zero or absent. A report of another version is refused.
//!
//! [`publish`] reports for the compute nodes in a [`Roster`]; a memory node of
//! [`crate::shared::SharedPool::lend`] reports by itself.

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::engine::{NodeCounters, Roster};
use crate::fabric::{Env, PeerId};
use crate::memnode::MemoryServer;
use crate::pool::Pool;

/// Version of the format.
pub const VERSION: u32 = 1;
/// How often nodes report.
pub const EVERY: Duration = Duration::from_secs(1);
/// Hottest lines in a report, at most.
pub const HOTTEST: usize = 10;

/// The report of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the format.
    pub version: u32,
    /// Time in microseconds by a clock of the node that never goes back.
    pub at_us: u64,
    /// For how long at the longest its process could not show that its nodes live, in microseconds:
    /// a heartbeat and a little, unless it was late. To be compared with the lease.
    #[serde(default)]
    pub longest_silence_us: u64,
    /// The counters.
    #[serde(flatten)]
    pub node: NodeReport,
}

/// Counters by the kind of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "a few are read at a time, and most are large")]
pub enum NodeReport {
    /// A compute node.
    Compute(ComputeReport),
    /// A memory node.
    Memory(MemoryReport),
}

/// A compute node since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ComputeReport {
    /// Operations of its user, as committed transactions, if the user counts them.
    pub operations: Option<u64>,
    /// Accesses served by the cache.
    pub hits: u64,
    /// Accesses that fetched the page or a right to it.
    pub misses: u64,
    /// Pages that were fetched before an access asked for them.
    #[serde(default)]
    pub prefetches: u64,
    /// Traffic on the fabric, if it is metered.
    pub traffic: Option<Traffic>,
    /// Requests to others to give their copies up.
    pub invalidations_sent: u64,
    /// Copies given up because another node asked for them.
    pub invalidations_received: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Evictions and downgrades that wrote dirty bytes back.
    pub write_backs: u64,
    /// Damaged splits of coded pages.
    pub corruptions: u64,
    /// Damaged splits that were repaired.
    pub repairs: u64,
    /// Frames of the cache.
    pub frames: u64,
    /// Frames in use.
    pub frames_used: u64,
    /// Images of pages that were kept for snapshots.
    pub images_kept: u64,
    /// Images that were given up for want of room.
    pub images_dropped: u64,
    /// Images kept now.
    pub images_live: u64,
    /// Bytes that they take.
    pub image_bytes: u64,
    /// Active snapshots of the node.
    pub snapshots_active: u64,
    /// Commit stamps since the oldest of them.
    pub oldest_snapshot_age: u64,
    /// Transactions that ended as their snapshot was too old.
    pub snapshots_too_old: u64,
    /// Row locks that were waited for.
    pub lock_waits: u64,
    /// How long, all waits together that have ended, in microseconds.
    pub lock_wait_us: u64,
    /// Transactions that gave up in a deadlock.
    pub deadlocks: u64,
    /// Transactions that gave up as a row lock was not had in time.
    pub lock_timeouts: u64,
    /// Row locks that were refused to those who were not to wait.
    pub lock_refusals: u64,
    /// Turns at rows that many transactions change that were waited for.
    pub turn_waits: u64,
    /// How long, all waits together that have ended, in microseconds.
    pub turn_wait_us: u64,
    /// Turns that were lost as they lasted too long.
    pub turns_lost: u64,
    /// Turns that were not waited for, as that would have closed a circle.
    pub turn_circles: u64,
    /// The lines with most misses and invalidations; at most [`HOTTEST`], ordered by `count -
    /// error`.
    pub hottest: Vec<HotGcl>,
}

/// Traffic of a node on the fabric.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Chains of verbs.
    pub round_trips: u64,
    /// Compare-and-swaps and fetch-and-adds.
    pub atomics: u64,
    /// Payload of reads.
    pub read_bytes: u64,
    /// Payload of writes.
    pub written_bytes: u64,
}

/// A line with many misses or invalidations: see [`crate::engine::HotLine`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HotGcl {
    /// Its global address.
    pub gcl: u64,
    /// Index of the memory node that is its home.
    pub home: u16,
    /// Misses and invalidations, old ones faded; not cumulative.
    pub count: u64,
    /// Bound of the error of `count`.
    pub error: u64,
}

/// A memory node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemoryReport {
    /// Bytes it lends, headers and control page included.
    pub lent_bytes: u64,
    /// Extents it has; in a coded pool its share of those whose pages it has splits of.
    pub extents: u64,
    /// Extents leased to compute nodes; in a coded pool those of the slabs in use.
    pub extents_leased: u64,
    /// Bytes of pages in those.
    pub leased_bytes: u64,
    /// Slabs it has.
    pub slabs: u64,
    /// Slabs in use.
    pub slabs_used: u64,
    /// Of those, slabs that are to be moved elsewhere, as the node is to give their memory back.
    pub slabs_evicting: u64,
    /// Slabs that it does not lend, as its host is short of memory.
    pub slabs_withdrawn: u64,
    /// Processor time of its process since that started.
    pub cpu_us: u64,
}

/// Why a report cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// It is of another version of this software.
    #[error("report of version {found}, this software reads {VERSION}")]
    Version {
        /// Its version.
        found: u32,
    },
    /// It is no report.
    #[error("no report: {0}")]
    Malformed(#[from] serde_json::Error),
}

impl Report {
    /// Reads a report.
    ///
    /// # Errors
    /// As [`ReportError`] says.
    pub fn parse(json: &str) -> Result<Self, ReportError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let Versioned { version } = serde_json::from_str(json)?;
        if version != VERSION {
            return Err(ReportError::Version { found: version });
        }
        Ok(serde_json::from_str(json)?)
    }

    /// As it is sent.
    ///
    /// # Errors
    /// None that is known of.
    pub fn to_json(&self) -> Result<String, ReportError> {
        Ok(serde_json::to_string(self)?)
    }

    /// A compute node.
    #[must_use]
    pub fn of_compute(counters: &NodeCounters) -> Self {
        let NodeCounters { at, engine, traffic, user, hottest, .. } = counters;
        let (operations, user) = (user.map(|user| user.operations), user.unwrap_or_default());
        let traffic = traffic.map(|traffic| Traffic {
            round_trips: traffic.chains,
            atomics: traffic.atomics,
            read_bytes: traffic.bytes_read,
            written_bytes: traffic.bytes_written,
        });
        let hot = hottest.iter().take(HOTTEST).map(|line| HotGcl {
            gcl: line.addr.to_u64(),
            home: u16::try_from(line.home).unwrap_or(u16::MAX),
            count: line.count,
            error: line.error,
        });
        let node = NodeReport::Compute(ComputeReport {
            operations,
            hits: engine.hits,
            misses: engine.misses,
            prefetches: engine.prefetches,
            traffic,
            invalidations_sent: engine.invalidations_sent,
            invalidations_received: engine.invalidations,
            evictions: engine.evictions,
            write_backs: engine.write_backs,
            corruptions: engine.corruptions,
            repairs: engine.repairs,
            frames: engine.frames,
            frames_used: engine.frames.saturating_sub(engine.frames_free),
            images_kept: engine.images_kept,
            images_dropped: engine.images_dropped,
            images_live: engine.images_live,
            image_bytes: engine.image_bytes,
            snapshots_active: engine.snapshots_active,
            oldest_snapshot_age: engine.oldest_snapshot_age,
            snapshots_too_old: user.snapshots_too_old,
            lock_waits: user.lock_waits,
            lock_wait_us: micros(user.lock_wait_time),
            deadlocks: user.deadlocks,
            lock_timeouts: user.lock_timeouts,
            lock_refusals: user.lock_refusals,
            turn_waits: user.turn_waits,
            turn_wait_us: micros(user.turn_wait_time),
            turns_lost: user.turns_lost,
            turn_circles: user.turn_circles,
            hottest: hot.collect(),
        });
        Self { version: VERSION, at_us: micros(*at), longest_silence_us: 0, node }
    }

    /// Of a memory node.
    #[must_use]
    pub fn of_memory(env: &Env, lent: &MemoryServer) -> Self {
        let usage = lent.usage();
        let (slabs_evicting, slabs_withdrawn) = lent.reclaimed();
        let node = NodeReport::Memory(MemoryReport {
            lent_bytes: lent.node().region().len() as u64,
            extents: usage.extents,
            extents_leased: usage.extents_leased,
            leased_bytes: usage.bytes_leased,
            slabs: usage.slabs,
            slabs_used: usage.slabs_used,
            slabs_evicting,
            slabs_withdrawn,
            cpu_us: micros(cpu_time()),
        });
        let longest_silence_us = micros(lent.longest_silence(env.now()));
        Self { version: VERSION, at_us: micros(env.now()), longest_silence_us, node }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Processor time that this process has used.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    // Never negative, and nanoseconds below a second.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Lets the compute nodes in `roster` report, now and every second, for as long as the pool is
/// used. They are to be nodes of that pool.
pub fn publish(pool: &Arc<Pool>, env: &Env, roster: &Roster) {
    let (pool, env, roster) = (Arc::downgrade(pool), env.clone(), roster.clone());
    drop(env.clone().spawn("reports", async move {
        loop {
            let Some(pool) = pool.upgrade() else { return };
            for counters in roster.counters(HOTTEST) {
                let longest_silence_us = micros(pool.signs_of_life(env.now()).longest);
                let report = Report { longest_silence_us, ..Report::of_compute(&counters) };
                if let Ok(json) = report.to_json() {
                    pool.set_report(PeerId::compute(counters.node.index() as u16), json);
                }
            }
            drop(pool);
            env.sleep(EVERY).await;
        }
    }));
}

/// Lets a memory node report, now and every second, for as long as it is lent.
pub(crate) fn publish_memory(lent: &Arc<MemoryServer>, env: &Env) {
    let (lent, env) = (Arc::downgrade(lent), env.clone());
    drop(env.clone().spawn("reports", async move {
        loop {
            let Some(lent) = lent.upgrade() else { return };
            if let Ok(json) = Report::of_memory(&env, &lent).to_json() {
                lent.set_report(json);
            }
            drop(lent);
            env.sleep(EVERY).await;
        }
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{ComputeId, EngineStats, UserCounters};

    fn sample() -> Report {
        let hottest = vec![HotGcl { gcl: 4096, home: 1, count: 9, error: 2 }];
        let traffic = Some(Traffic { round_trips: 5, ..Traffic::default() });
        let compute = ComputeReport { hits: 7, traffic, hottest, ..ComputeReport::default() };
        let node = NodeReport::Compute(compute);
        Report { version: VERSION, at_us: 12, longest_silence_us: 7, node }
    }

    #[test]
    fn what_is_written_is_read() {
        let memory = MemoryReport { lent_bytes: 3, cpu_us: 4, ..MemoryReport::default() };
        let memory = Report { node: NodeReport::Memory(memory), ..sample() };
        for report in [sample(), memory] {
            assert_eq!(Report::parse(&report.to_json().unwrap()).unwrap(), report);
        }
    }

    #[test]
    fn unknown_fields_are_passed_over_and_missing_ones_are_zero() {
        let json = r#"{"later":{"a":[1]},"version":1,"at_us":5,"compute":{"hits":7,"new":[{"b":1}],
            "hottest":[{"gcl":4096,"heat":1}],"traffic":{"round_trips":5,"hops":2}},"also":null}"#;
        let report = Report::parse(json).unwrap();
        let NodeReport::Compute(compute) = report.node else { unreachable!("a compute node") };
        assert_eq!((report.at_us, compute.hits, compute.misses), (5, 7, 0));
        assert_eq!(compute.traffic.unwrap().round_trips, 5);
        assert_eq!(compute.hottest[0].gcl, 4096);
        assert_eq!(compute.operations, None);
    }

    /// Each has its own number: none stands for another.
    #[test]
    fn what_is_counted_of_row_locks_turns_and_snapshots_is_reported() {
        let engine = EngineStats {
            images_kept: 1,
            images_dropped: 2,
            images_live: 3,
            image_bytes: 4,
            snapshots_active: 5,
            oldest_snapshot_age: 6,
            ..EngineStats::default()
        };
        let user = UserCounters {
            operations: 7,
            lock_waits: 8,
            lock_wait_time: Duration::from_micros(9),
            deadlocks: 10,
            lock_timeouts: 11,
            lock_refusals: 12,
            snapshots_too_old: 13,
            turn_waits: 14,
            turn_wait_time: Duration::from_micros(15),
            turns_lost: 16,
            turn_circles: 17,
        };
        let (node, user) = (ComputeId::new(1).unwrap(), Some(user));
        let counters =
            NodeCounters { node, at: Duration::ZERO, engine, traffic: None, user, hottest: vec![] };
        let report = Report::of_compute(&counters);
        let NodeReport::Compute(compute) = report.node else { unreachable!("a compute node") };
        let expected = ComputeReport {
            images_kept: 1,
            images_dropped: 2,
            images_live: 3,
            image_bytes: 4,
            snapshots_active: 5,
            oldest_snapshot_age: 6,
            operations: Some(7),
            lock_waits: 8,
            lock_wait_us: 9,
            deadlocks: 10,
            lock_timeouts: 11,
            lock_refusals: 12,
            snapshots_too_old: 13,
            turn_waits: 14,
            turn_wait_us: 15,
            turns_lost: 16,
            turn_circles: 17,
            ..ComputeReport::default()
        };
        assert_eq!(compute, expected);
    }

    #[test]
    fn other_versions_and_other_texts_are_refused() {
        let other = r#"{"version":2,"at_us":"in words"}"#;
        let error = Report::parse(other).unwrap_err();
        assert_eq!(error.to_string(), "report of version 2, this software reads 1");
        for bad in ["", "{}", "[]", r#"{"version":1}"#, r#"{"version":1,"at_us":1,"router":{}}"#] {
            let error = Report::parse(bad).unwrap_err();
            assert!(matches!(error, ReportError::Malformed(_)), "{bad}: {error}");
        }
    }

    #[test]
    fn processor_time_goes_on() {
        let before = cpu_time();
        let mut sum = 0_u64;
        for number in 0..10_000_000_u64 {
            sum = std::hint::black_box(sum ^ number);
        }
        assert!(cpu_time() > before && before > Duration::ZERO, "{sum}");
    }
}
