//! A snapshot of a pool, made from the state of the pool, the beats of its nodes, and the two
//! newest reports of each node. No I/O.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use selkie::fabric::PeerId;
use selkie::pool::Health;
use selkie::pool::control::{Beat, PoolState};
use selkie::report::{ComputeReport, EVERY, MemoryReport, NodeReport, Report};
use serde::Serialize;

use crate::commands::pool_verdict::{self, word};

/// Hottest lines of the pool that are shown.
const HOTTEST: usize = 10;
/// A node whose newest report is older than this has no rates.
const STALE: Duration = EVERY.saturating_mul(4);

/// A pool at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Snapshot {
    pub(crate) pool: String,
    /// `healthy`, `degraded`, ... as `pool status` has it.
    pub(crate) verdict: String,
    /// The verdict with its reasons.
    pub(crate) says: String,
    /// Slabs that are gone and can be made anew.
    pub(crate) slabs_to_rebuild: usize,
    /// Of those, the ones for which there is no place.
    pub(crate) slabs_without_place: usize,
    /// How long a node may be silent.
    pub(crate) lease_s: f64,
    pub(crate) memory_nodes: Vec<MemoryRow>,
    pub(crate) compute_nodes: Vec<ComputeRow>,
    /// Sums over the compute nodes that have rates.
    pub(crate) total: Rates,
    /// Of all compute nodes, the hottest first.
    pub(crate) hottest: Vec<HotRow>,
    pub(crate) lost_pages: usize,
}

/// State of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeState {
    #[default]
    Lives,
    /// For longer than a lease.
    Silent,
    NotJoined,
    /// Dead, and the others recover from its death.
    Recovering,
    Dead,
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lives => "lives",
            Self::Silent => "silent",
            Self::NotJoined => "not joined",
            Self::Recovering => "recovering",
            Self::Dead => "dead",
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct MemoryRow {
    pub(crate) node: String,
    pub(crate) state: NodeState,
    /// Since its last beat.
    pub(crate) silent_s: Option<f64>,
    /// For how long its process was silent at the longest, as it says itself.
    pub(crate) longest_silence_s: Option<f64>,
    /// As it says itself.
    pub(crate) lent_bytes: Option<u64>,
    pub(crate) leased_bytes: Option<u64>,
    /// Share of a core that its process uses.
    pub(crate) cpu: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct ComputeRow {
    pub(crate) node: String,
    pub(crate) state: NodeState,
    /// Since its last beat.
    pub(crate) silent_s: Option<f64>,
    /// For how long its process was silent at the longest, as it says itself.
    pub(crate) longest_silence_s: Option<f64>,
    pub(crate) frames: Option<u64>,
    pub(crate) frames_used: Option<u64>,
    /// Active snapshots.
    pub(crate) snapshots: Option<u64>,
    /// Commit stamps since the oldest of them.
    pub(crate) oldest_snapshot_age: Option<u64>,
    /// Images of pages that it keeps for snapshots.
    pub(crate) images: Option<u64>,
    pub(crate) image_bytes: Option<u64>,
    /// Those that it gave up for want of room.
    pub(crate) images_dropped: Option<u64>,
    /// Transactions that ended as their snapshot was too old.
    pub(crate) snapshots_too_old: Option<u64>,
    /// Row locks that were waited for, and for how long.
    pub(crate) lock_waits: Option<u64>,
    pub(crate) lock_wait_s: Option<f64>,
    /// Transactions that gave up in a deadlock, or as a lock was not had in time.
    pub(crate) deadlocks: Option<u64>,
    pub(crate) lock_timeouts: Option<u64>,
    /// Row locks refused to those who were not to wait.
    pub(crate) lock_refusals: Option<u64>,
    /// Turns at hot rows that were waited for, and for how long.
    pub(crate) turn_waits: Option<u64>,
    pub(crate) turn_wait_s: Option<f64>,
    /// Turns that lasted too long, and those not waited for as that would have closed a circle.
    pub(crate) turns_lost: Option<u64>,
    pub(crate) turn_circles: Option<u64>,
    /// Between its two newest reports.
    pub(crate) rates: Option<Rates>,
}

/// Per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) operations: Option<f64>,
    pub(crate) accesses: f64,
    /// Share of the accesses, 0 to 1; none without accesses.
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) round_trips: Option<f64>,
    pub(crate) atomics: Option<f64>,
    pub(crate) invalidations_sent: f64,
    pub(crate) invalidations_received: f64,
    pub(crate) evictions: f64,
    pub(crate) write_backs: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct HotRow {
    pub(crate) gcl: u64,
    /// Its memory node.
    pub(crate) home: String,
    /// Misses and invalidations of all nodes, old ones faded, that are certainly its own.
    pub(crate) at_least: u64,
    /// With those that may be.
    pub(crate) at_most: u64,
    /// For which nodes it is among their hottest.
    pub(crate) nodes: Vec<String>,
}

impl Snapshot {
    /// The node whose process was silent for longest, and for how long.
    pub(crate) fn latest(&self) -> Option<(&str, f64)> {
        let memory = self.memory_nodes.iter().map(|row| (&*row.node, row.longest_silence_s));
        let compute = self.compute_nodes.iter().map(|row| (&*row.node, row.longest_silence_s));
        let all = memory.chain(compute).filter_map(|(node, silence)| Some((node, silence?)));
        all.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

impl Rates {
    fn between(before: &ComputeReport, now: &ComputeReport, seconds: f64) -> Self {
        // A counter that went down belongs to another node: its rate is zero.
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let both = |before: Option<u64>, now: Option<u64>| Some(rate(before?, now?));
        let traffic = before.traffic.as_ref().zip(now.traffic.as_ref());
        let hits = rate(before.hits, now.hits);
        let accesses = hits + rate(before.misses, now.misses);
        Self {
            operations: both(before.operations, now.operations),
            accesses,
            hit_ratio: (accesses > 0.0).then(|| hits / accesses),
            round_trips: traffic.map(|(before, now)| rate(before.round_trips, now.round_trips)),
            atomics: traffic.map(|(before, now)| rate(before.atomics, now.atomics)),
            invalidations_sent: rate(before.invalidations_sent, now.invalidations_sent),
            invalidations_received: rate(before.invalidations_received, now.invalidations_received),
            evictions: rate(before.evictions, now.evictions),
            write_backs: rate(before.write_backs, now.write_backs),
        }
    }

    fn add(self, other: Self) -> Self {
        let either = |one: Option<f64>, other: Option<f64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or_default() + other.unwrap_or_default()),
        };
        let hits = |rates: &Self| rates.hit_ratio.unwrap_or_default() * rates.accesses;
        let accesses = self.accesses + other.accesses;
        Self {
            operations: either(self.operations, other.operations),
            accesses,
            hit_ratio: (accesses > 0.0).then(|| (hits(&self) + hits(&other)) / accesses),
            round_trips: either(self.round_trips, other.round_trips),
            atomics: either(self.atomics, other.atomics),
            invalidations_sent: self.invalidations_sent + other.invalidations_sent,
            invalidations_received: self.invalidations_received + other.invalidations_received,
            evictions: self.evictions + other.evictions,
            write_backs: self.write_backs + other.write_backs,
        }
    }
}

/// The reports of a pool so far.
#[derive(Default)]
pub(crate) struct PoolWatch {
    /// Pools of one name are told apart by it.
    pool: u64,
    nodes: BTreeMap<PeerId, Reports>,
}

/// The two newest reports of a node.
struct Reports {
    host: u64,
    last: Report,
    before: Option<Report>,
    /// When the newest report came, by the clock of this process.
    came: Duration,
}

impl PoolWatch {
    /// Takes note of what a pool's control plane says at `now`, by any clock that does not go back.
    pub(crate) fn look(
        &mut self,
        name: &str,
        now: Duration,
        state: &PoolState,
        beats: &[(Beat, Duration)],
        health: &Health,
    ) -> Snapshot {
        if self.pool != state.id {
            *self = Self { pool: state.id, nodes: BTreeMap::new() };
        }
        for (beat, _) in beats {
            self.note(beat, now);
        }
        self.nodes.retain(|peer, _| beats.iter().any(|(beat, _)| beat.node == *peer));
        let lease = state.timing.lease;
        let age = |peer: PeerId, host: u64| {
            let own = |(beat, _): &&(Beat, Duration)| beat.node == peer && beat.host == host;
            beats.iter().find(own).map(|(_, age)| *age)
        };
        let memory_nodes = state.memory_nodes.iter().enumerate().map(|(index, member)| {
            let row = MemoryRow { node: format!("mem{index}"), ..MemoryRow::default() };
            let Some(member) = member else {
                return MemoryRow { state: NodeState::NotJoined, ..row };
            };
            let age = age(member.descriptor.peer, member.host);
            let state = if member.dead { NodeState::Dead } else { lives(age, lease) };
            let silent_s = age.map(|age| age.as_secs_f64());
            self.memory_row(member.descriptor.peer, now, MemoryRow { state, silent_s, ..row })
        });
        let compute_nodes = state.compute_nodes.iter().map(|(index, member)| {
            let peer = PeerId::compute(*index);
            let age = age(peer, member.host);
            let silent_s = age.map(|age| age.as_secs_f64());
            self.compute_row(peer, now, lives(age, lease), silent_s)
        });
        let gone = |state| {
            move |index: &u16| {
                let node = PeerId::compute(*index).to_string();
                ComputeRow { node, state, ..ComputeRow::default() }
            }
        };
        let recovering = state.lost.keys().map(gone(NodeState::Recovering));
        let dead = state.dead.iter().map(gone(NodeState::Dead));
        let memory_nodes = memory_nodes.collect();
        let members: Vec<_> =
            state.compute_nodes.keys().map(|index| PeerId::compute(*index)).collect();
        let compute_nodes: Vec<_> = compute_nodes.chain(recovering).chain(dead).collect();
        let rates = compute_nodes.iter().filter_map(|row| row.rates);
        Snapshot {
            pool: name.to_owned(),
            verdict: word(health.verdict()).to_owned(),
            says: pool_verdict::headline(health, state, None),
            slabs_to_rebuild: health.slabs_to_rebuild,
            slabs_without_place: if health.has_place { 0 } else { health.slabs_to_rebuild },
            lease_s: lease.as_secs_f64(),
            total: rates.fold(Rates::default(), Rates::add),
            hottest: self.hottest(&members),
            memory_nodes,
            compute_nodes,
            lost_pages: state.lost_pages.len() + state.abandoned_pages.len(),
        }
    }

    /// Whether all nodes that live have reported twice, so that the snapshot lacks no rates.
    pub(crate) fn is_complete(&self, snapshot: &Snapshot) -> bool {
        let lives = |state: NodeState| state == NodeState::Lives;
        let memory = snapshot.memory_nodes.iter().filter(|row| lives(row.state));
        let compute = snapshot.compute_nodes.iter().filter(|row| lives(row.state));
        memory
            .map(|row| row.cpu.is_some())
            .chain(compute.map(|row| row.rates.is_some()))
            .all(|has| has)
    }

    fn note(&mut self, beat: &Beat, now: Duration) {
        // One that cannot be read is of another version of this software: the node is there, and no
        // more is known.
        let Ok(report) = Report::parse(&beat.report) else { return };
        let fresh = Reports { host: beat.host, last: report.clone(), before: None, came: now };
        let known = self.nodes.entry(beat.node).or_insert(fresh);
        if known.host != beat.host || report.at_us < known.last.at_us {
            *known = Reports { host: beat.host, last: report, before: None, came: now };
        } else if report.at_us > known.last.at_us {
            known.before = Some(std::mem::replace(&mut known.last, report));
            known.came = now;
        }
    }

    /// The newest report of a node, with the one before and the seconds between, unless it is an
    /// old one.
    fn interval(&self, peer: PeerId, now: Duration) -> Option<(&Report, &Report, f64)> {
        let Reports { last, before, came, .. } = self.nodes.get(&peer)?;
        let before = before.as_ref()?;
        let seconds = Duration::from_micros(last.at_us.saturating_sub(before.at_us)).as_secs_f64();
        (now.saturating_sub(*came) <= STALE && seconds > 0.0).then_some((before, last, seconds))
    }

    fn memory_row(&self, peer: PeerId, now: Duration, row: MemoryRow) -> MemoryRow {
        let Some(report) = self.nodes.get(&peer).and_then(|reports| memory(&reports.last)) else {
            return row;
        };
        let cpu = self.interval(peer, now).and_then(|(before, last, seconds)| {
            let used = memory(last)?.cpu_us.saturating_sub(memory(before)?.cpu_us);
            Some(Duration::from_micros(used).as_secs_f64() / seconds)
        });
        let (lent_bytes, leased_bytes) = (Some(report.lent_bytes), Some(report.leased_bytes));
        let longest_silence_s = self.longest_silence(peer);
        MemoryRow { lent_bytes, leased_bytes, cpu, longest_silence_s, ..row }
    }

    fn longest_silence(&self, peer: PeerId) -> Option<f64> {
        let micros = self.nodes.get(&peer)?.last.longest_silence_us;
        Some(seconds(micros))
    }

    fn compute_row(
        &self,
        peer: PeerId,
        now: Duration,
        state: NodeState,
        silent_s: Option<f64>,
    ) -> ComputeRow {
        let report = self.nodes.get(&peer).and_then(|reports| compute(&reports.last));
        let rates = self.interval(peer, now).and_then(|(before, last, seconds)| {
            Some(Rates::between(compute(before)?, compute(last)?, seconds))
        });
        ComputeRow {
            node: peer.to_string(),
            state,
            silent_s,
            longest_silence_s: self.longest_silence(peer),
            frames: report.map(|report| report.frames),
            frames_used: report.map(|report| report.frames_used),
            snapshots: report.map(|report| report.snapshots_active),
            oldest_snapshot_age: report.map(|report| report.oldest_snapshot_age),
            images: report.map(|report| report.images_live),
            image_bytes: report.map(|report| report.image_bytes),
            images_dropped: report.map(|report| report.images_dropped),
            snapshots_too_old: report.map(|report| report.snapshots_too_old),
            lock_waits: report.map(|report| report.lock_waits),
            lock_wait_s: report.map(|report| seconds(report.lock_wait_us)),
            deadlocks: report.map(|report| report.deadlocks),
            lock_timeouts: report.map(|report| report.lock_timeouts),
            lock_refusals: report.map(|report| report.lock_refusals),
            turn_waits: report.map(|report| report.turn_waits),
            turn_wait_s: report.map(|report| seconds(report.turn_wait_us)),
            turns_lost: report.map(|report| report.turns_lost),
            turn_circles: report.map(|report| report.turn_circles),
            rates,
        }
    }

    /// The hottest lines of these nodes, their counts added up.
    fn hottest(&self, nodes: &[PeerId]) -> Vec<HotRow> {
        let mut rows: BTreeMap<u64, HotRow> = BTreeMap::new();
        for peer in nodes {
            let report = self.nodes.get(peer).and_then(|reports| compute(&reports.last));
            for hot in report.into_iter().flat_map(|report| &report.hottest) {
                let home = PeerId::memory(hot.home.min(PeerId::MAX_INDEX)).to_string();
                let fresh = HotRow { gcl: hot.gcl, home, ..HotRow::default() };
                let row = rows.entry(hot.gcl).or_insert(fresh);
                row.at_least += hot.count.saturating_sub(hot.error);
                row.at_most += hot.count;
                row.nodes.push(peer.to_string());
            }
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse((row.at_least, row.at_most)));
        rows.truncate(HOTTEST);
        rows
    }
}

fn lives(age: Option<Duration>, lease: Duration) -> NodeState {
    if age.is_some_and(|age| age <= lease) { NodeState::Lives } else { NodeState::Silent }
}

fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

fn memory(report: &Report) -> Option<&MemoryReport> {
    match &report.node {
        NodeReport::Memory(memory) => Some(memory),
        NodeReport::Compute(_) => None,
    }
}

fn compute(report: &Report) -> Option<&ComputeReport> {
    match &report.node {
        NodeReport::Compute(compute) => Some(compute),
        NodeReport::Memory(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use selkie::pool::control::{Lost, Member};
    use selkie::report::{HotGcl, Traffic, VERSION};
    use serde_json::json;

    use super::super::plain;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A pool of two memory nodes, one of which has joined, and of compute nodes 0 to 3, of which 2
    /// is lost and 3 dead.
    fn pool() -> PoolState {
        let member = |host| Member {
            host,
            incarnation: 1,
            mailboxes: Vec::new(),
            renewals: 0,
            has_log: false,
            begins: false,
        };
        let mut state: PoolState = serde_json::from_value(json!({
            "format": 4, "name": "demo", "id": 9, "fabric": "shm", "gcl_bytes": 2048, "range_bytes": 4 << 20,
            "timing": { "lease": {"secs": 2, "nanos": 0}, "heartbeat": {"secs": 0, "nanos": 250_000_000} },
            "log_bytes": 0, "max_compute_nodes": 58, "memory_nodes": [null, null], "compute_nodes": {}, "cards": {},
            "next_index": 0, "incarnations": {}, "directories": {}, "lost": {}, "dead": [3], "lost_pages": [4096],
            "labels": {}, "coding": "plain", "ranges": [], "rebuilds": [], "rebuilds_begun": 0, "regeneration": null,
            "migration": null,
        }))
        .unwrap();
        state.compute_nodes = [(0, member(1)), (1, member(2))].into();
        state.lost = [(2, Lost::default())].into();
        state
    }

    fn beat(index: u16, host: u64, report: &str) -> Beat {
        Beat { node: PeerId::compute(index), host, seen: 1, report: report.to_owned() }
    }

    fn compute_report(at_s: u64, factor: u64) -> String {
        let hottest = vec![
            HotGcl { gcl: 4096, home: 1, count: 10 * factor, error: 1 },
            HotGcl { gcl: 2048 * (7 + factor), home: 0, count: 5, error: 0 },
        ];
        let traffic =
            Traffic { round_trips: 40 * factor, atomics: 8 * factor, ..Traffic::default() };
        let report = ComputeReport {
            operations: Some(100 * factor),
            hits: 90 * factor,
            misses: 10 * factor,
            traffic: Some(traffic),
            invalidations_received: 6 * factor,
            frames: 64,
            frames_used: 32,
            hottest,
            ..ComputeReport::default()
        };
        let node = NodeReport::Compute(report);
        let longest_silence_us = 300_000 * factor;
        let at_us = at_s * 1_000_000;
        Report { version: VERSION, at_us, longest_silence_us, node }.to_json().unwrap()
    }

    #[test]
    fn rates_are_differences_of_reports_over_the_time_between_them() {
        let (state, mut watch) = (pool(), PoolWatch::default());
        let look = |watch: &mut PoolWatch, now: u64, at: u64, factor: u64| {
            let beats = [
                (beat(0, 1, &compute_report(at, factor)), SECOND / 2),
                (beat(1, 2, &compute_report(at + 100, factor)), SECOND),
            ];
            watch.look("p", SECOND * now as u32, &state, &beats, &Health::default())
        };
        let first = look(&mut watch, 0, 10, 1);
        assert!(first.compute_nodes[0].rates.is_none() && !watch.is_complete(&first));
        // The same report again is no second one.
        assert!(look(&mut watch, 1, 10, 1).compute_nodes[0].rates.is_none());
        let second = look(&mut watch, 2, 12, 3);
        let rates = second.compute_nodes[0].rates.unwrap();
        assert_eq!(rates.operations, Some(100.0));
        assert_eq!((rates.accesses, rates.hit_ratio), (100.0, Some(0.9)));
        assert_eq!((rates.round_trips, rates.atomics), (Some(40.0), Some(8.0)));
        assert_eq!(rates.invalidations_received, 6.0);
        assert_eq!(second.total.operations, Some(200.0));
        assert_eq!(second.total.hit_ratio, Some(0.9));
        assert_eq!(second.latest(), Some(("cn1", 0.9)), "the last of those that are equal");
        assert!(watch.is_complete(&second));
        // While no newer report comes they hold, but not for ever.
        assert!(look(&mut watch, 6, 12, 3).compute_nodes[0].rates.is_some());
        assert!(look(&mut watch, 7, 12, 3).compute_nodes[0].rates.is_none());
        // A pool of the same name that is another one.
        let other = PoolState { id: 10, ..state.clone() };
        let beats = [(beat(0, 1, &compute_report(14, 4)), SECOND)];
        assert!(
            watch.look("p", SECOND * 8, &other, &beats, &Health::default()).compute_nodes[0]
                .rates
                .is_none()
        );
    }

    #[test]
    fn nodes_are_as_state_and_beats_say() {
        let state = pool();
        // A beat of another process says nothing of this node; a report of the future nothing at
        // all.
        let future = r#"{"version":2}"#;
        let beats = [(beat(0, 7, &compute_report(1, 1)), SECOND), (beat(1, 2, future), SECOND)];
        let seen = PoolWatch::default().look("p", SECOND, &state, &beats, &Health::default());
        let states: Vec<_> =
            seen.compute_nodes.iter().map(|row| (row.node.as_str(), row.state)).collect();
        let expected = [
            ("cn0", NodeState::Silent),
            ("cn1", NodeState::Lives),
            ("cn2", NodeState::Recovering),
            ("cn3", NodeState::Dead),
        ];
        assert_eq!(states, expected);
        assert_eq!(seen.compute_nodes[1].frames, None);
        assert!(seen.memory_nodes.iter().all(|row| row.state == NodeState::NotJoined));
        assert_eq!((seen.lost_pages, seen.lease_s), (1, 2.0));
        let late = [(beat(1, 2, ""), SECOND * 3)];
        let seen = PoolWatch::default().look("p", SECOND, &state, &late, &Health::default());
        assert_eq!(seen.compute_nodes[1].state, NodeState::Silent);
        assert_eq!(seen.compute_nodes[1].silent_s, Some(3.0));
    }

    /// The verdict was that of `status` alone: a pool that had lost a memory node looked as before.
    #[test]
    fn the_verdict_is_that_of_the_pool() {
        let state = PoolState { coding: "2+1".parse().unwrap(), ..pool() };
        let look = |health: &Health| PoolWatch::default().look("p", SECOND, &state, &[], health);
        let gone = Health {
            gone: vec![1],
            living: 2,
            slabs_to_rebuild: 12,
            spare_when_whole: 1,
            ..Health::default()
        };
        let seen = look(&gone);
        assert_eq!((&*seen.verdict, seen.slabs_to_rebuild), ("degraded", 12));
        assert_eq!(seen.slabs_without_place, 12);
        let first = plain::headline(&seen);
        assert!(first.starts_with("pool p: degraded: mem1 is gone; 12 slabs ("), "{first}");
        assert!(first.contains("for which there is no place"), "{first}");
        let json = serde_json::to_value(&seen).unwrap();
        assert_eq!(json["verdict"], "degraded");
        assert!(json["says"].as_str().unwrap().contains("mem1 is gone"));
        let seen = look(&Health { has_place: true, ..gone });
        assert_eq!((seen.slabs_to_rebuild, seen.slabs_without_place), (12, 0));
        let whole = Health { living: 3, spare: 1, spare_when_whole: 1, ..Health::default() };
        let seen = look(&whole);
        assert_eq!(
            (&*seen.verdict, &*seen.says),
            ("healthy", "healthy: 1 memory node can be lost")
        );
    }

    /// Each has its own number: none stands for another.
    #[test]
    fn what_a_node_counts_of_locks_and_turns_is_in_its_row() {
        let report = ComputeReport {
            snapshots_too_old: 1,
            lock_waits: 2,
            lock_wait_us: 3_000_000,
            deadlocks: 4,
            lock_timeouts: 5,
            lock_refusals: 6,
            turn_waits: 7,
            turn_wait_us: 8_000_000,
            turns_lost: 9,
            turn_circles: 10,
            ..ComputeReport::default()
        };
        let node = NodeReport::Compute(report);
        let report = Report { version: VERSION, at_us: 1, longest_silence_us: 0, node };
        let beats = [(beat(0, 1, &report.to_json().unwrap()), SECOND)];
        let seen = PoolWatch::default().look("p", SECOND, &pool(), &beats, &Health::default());
        let row = serde_json::to_value(&seen.compute_nodes[0]).unwrap();
        for (figure, expected) in [
            ("snapshots_too_old", json!(1)),
            ("lock_waits", json!(2)),
            ("lock_wait_s", json!(3.0)),
            ("deadlocks", json!(4)),
            ("lock_timeouts", json!(5)),
            ("lock_refusals", json!(6)),
            ("turn_waits", json!(7)),
            ("turn_wait_s", json!(8.0)),
            ("turns_lost", json!(9)),
            ("turn_circles", json!(10)),
        ] {
            assert_eq!(row[figure], expected, "{figure}");
        }
    }

    #[test]
    fn the_hottest_of_all_nodes_are_added_up() {
        let state = pool();
        let beats = [
            (beat(0, 1, &compute_report(1, 2)), SECOND),
            (beat(1, 2, &compute_report(1, 3)), SECOND),
        ];
        let seen = PoolWatch::default().look("p", SECOND, &state, &beats, &Health::default());
        let first = &seen.hottest[0];
        assert_eq!((first.gcl, first.home.as_str()), (4096, "mem1"));
        assert_eq!((first.at_least, first.at_most), (48, 50));
        assert_eq!(first.nodes, ["cn0", "cn1"]);
        assert_eq!(seen.hottest.len(), 3);
        assert_eq!(seen.hottest[1].nodes, ["cn0"]);
    }
}
