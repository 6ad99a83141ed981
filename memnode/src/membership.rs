//! A process as a member of a pool: the state of the pool that it works by, and the signs of life it gives.
//!
//! ```text
//! plane --load--> view --> fabric: meet new nodes, fence dead ones --> beat: "seen, and acted upon"
//! ```
//! A beat says that the process has acted upon all changes up to a version of the state. So whoever waits for
//! the others to see that a node died knows afterwards that none of them executes its verbs any more.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use selkie_fabric::env::Env;
use selkie_fabric::{Domain, Fabric, LocalRegion, PeerId, Reach};

use crate::control::{Beat, ControlError, ControlPlane, PoolState, Timing, Version, Versioned};
use crate::error::PoolError;
use crate::layout;
use crate::registry::ComputeIndex;

/// How often a change is tried while others change the state too.
pub(crate) const ATTEMPTS: usize = 1_000;
/// Leases for which the other processes are waited for to take note of a change.
const NOTICE_LEASES: u32 = 5;
/// Leases after which a dead node is missed: after one it is silent for too long, and somebody has to see that.
const MISSED_LEASES: u32 = 2;
/// Heartbeats for which a node that has been silent for too long is watched before it is declared dead. Between two
/// looks at most one counts: a machine that stands still silences all of its nodes, and who wakes first takes none of
/// the others for dead.
const WATCHED_BEATS: u32 = 2;
// Who waits until a node is missed does not take note of what others are waited for to take note of.
const _: () = assert!(MISSED_LEASES < NOTICE_LEASES);

/// Hears of changes of a pool before the others rely on them.
pub trait Observer: Send + Sync {
    /// A compute node is in the pool, the so-manieth of its index. Called again and again, also for those that
    /// are known, until it returns true: until then the node waits.
    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool;

    /// A compute node that was in the pool is in it no more, and recovered from if it died.
    fn gone(&self, node: ComputeIndex);

    /// The state of the pool is another. Called again and again before the others hear that this process has acted
    /// upon it, until it returns true: until then something is under way that was begun by an older state, and would
    /// not have been by this one.
    fn changed(&self, state: &PoolState) -> bool;
}

/// What a process knows of a pool, and the others of it.
pub(crate) struct Membership {
    host: u64,
    fabric: Arc<dyn Fabric>,
    plane: Arc<dyn ControlPlane>,
    view: RwLock<Versioned>,
    acted: Mutex<Acted>,
    shown: Mutex<Shown>,
    reports: Mutex<BTreeMap<PeerId, String>>,
    observers: Mutex<Vec<Weak<dyn Observer>>>,
    /// The pool was removed.
    gone: AtomicBool,
    /// Nodes of this process that serve nothing more: nobody shows that they live.
    ended: Mutex<BTreeSet<PeerId>>,
    /// Memory nodes of this process, which show that the plane is looked at.
    marks: Mutex<Vec<Arc<dyn LocalRegion>>>,
}

/// What the fabric has been told of the view.
#[derive(Default)]
struct Acted {
    /// All changes up to this one.
    upto: Version,
    met: BTreeMap<u16, String>,
    /// The compute nodes that were in the pool, or to be recovered from.
    members: BTreeSet<u16>,
    /// Those of them that have left something behind, where nodes do not need cards.
    to_forget: BTreeSet<u16>,
    /// When that is tried again.
    forget_at: Duration,
    /// Dead nodes whose verbs do not execute any more, as far as this process sees to it; with the version of
    /// the view in which they were first seen dead.
    fenced: BTreeMap<PeerId, (Reach, Version)>,
}

/// The signs of life this process gave last.
#[derive(Default)]
struct Shown {
    beats: BTreeMap<PeerId, (Beat, Duration)>,
    /// When, by the environment's clock, all its nodes were last shown to live.
    alive_at: Option<Duration>,
    /// Since when this process looks at the plane regularly, and when it did last.
    looking: Option<(Duration, Duration)>,
    /// Nodes of others, with their processes, that have been silent for too long, and for how long this process has
    /// been watching them.
    silent: BTreeMap<(PeerId, u64), Duration>,
}

impl Shown {
    /// Watches those who are silent now, all that were so at the last look for so long more; who has been watched for
    /// long enough.
    fn watch(
        &mut self,
        silent: impl Iterator<Item = (PeerId, u64)>,
        more: Duration,
        enough: Duration,
    ) -> Vec<(PeerId, u64)> {
        let watched =
            |who: &_| self.silent.get(who).map_or(Duration::ZERO, |before| *before + more);
        self.silent = silent.map(|who| (who, watched(&who))).collect();
        let due = self.silent.iter().filter(|(_, watched)| **watched >= enough);
        due.map(|(who, _)| *who).collect()
    }
}

impl Membership {
    pub(crate) fn new(
        host: u64,
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        view: Versioned,
    ) -> Result<Self, PoolError> {
        let membership = Self {
            host,
            fabric,
            plane,
            view: RwLock::new(view),
            acted: Mutex::default(),
            shown: Mutex::default(),
            reports: Mutex::default(),
            observers: Mutex::default(),
            gone: AtomicBool::new(false),
            ended: Mutex::default(),
            marks: Mutex::default(),
        };
        membership.act()?;
        Ok(membership)
    }

    pub(crate) fn host(&self) -> u64 {
        self.host
    }

    pub(crate) fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// The state that this process works by.
    pub(crate) fn state(&self) -> Arc<PoolState> {
        Arc::clone(&self.view.read().state)
    }

    pub(crate) fn timing(&self) -> Timing {
        self.view.read().state.timing
    }

    pub(crate) fn observe(&self, observer: Weak<dyn Observer>) {
        let mut observers = self.observers.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(observer);
        drop(observers);
        // Who is in is not new to the fabric, but to the observer.
        self.acted.lock().upto = 0;
    }

    /// What a node of this process says of itself with its beats from now on.
    pub(crate) fn set_report(&self, node: PeerId, report: String) {
        self.reports.lock().insert(node, report);
    }

    /// Waits for the next time to look, looks at what has changed, acts upon it and shows that this process
    /// lives.
    pub(crate) async fn follow_once(&self, env: &Env) {
        env.sleep(self.pace()).await;
        // While the plane is away everybody goes on with what is known.
        if let Err(error) = self.look(env).await {
            tracing::debug!(%error, "cannot follow the pool");
        }
    }

    async fn look(&self, env: &Env) -> Result<(), PoolError> {
        let now = env.now();
        self.begin_to_live(now);
        let Timing { lease, heartbeat } = self.timing();
        let seen = self.load().await?;
        let was_away_for = env.now().saturating_sub(self.looked_at(env.now()));
        self.mark_look();
        if was_away_for > 2 * heartbeat && self.is_marked() {
            // It has stood still, perhaps, and its last beat is old.
            self.beat(None).await?;
            // Who has relied on this node's not looking gets time to hear that it does again.
            env.sleep(lease / 4).await;
        }
        self.see(seen);
        let acted = self.act();
        // Also if it failed: the beat says how far this process has acted, and that it lives.
        self.beat(Some(now)).await?;
        acted?;
        self.forget_the_gone(now, heartbeat);
        let since_last_look = env.now().saturating_sub(self.looked_at(env.now()));
        if self.looking_for(env.now(), lease) > lease {
            self.declare_silent_dead(since_last_look.min(heartbeat)).await?;
        } else {
            // What was seen while it looked is too old by now.
            self.shown.lock().silent.clear();
        }
        Ok(())
    }

    /// From when this process has nodes that follow the pool, they have to show that they live.
    fn begin_to_live(&self, now: Duration) {
        let has_nodes = !self.own_nodes(&self.state()).is_empty();
        let mut shown = self.shown.lock();
        match (has_nodes, shown.alive_at) {
            (true, None) => shown.alive_at = Some(now),
            (false, Some(_)) => shown.alive_at = None,
            _ => {}
        }
    }

    /// When the plane was last looked at.
    fn looked_at(&self, now: Duration) -> Duration {
        self.shown.lock().looking.map_or(now, |(_, last)| last)
    }

    /// For how long this process has been looking at the plane regularly: who stood still, or was away from it,
    /// cannot tell who else was.
    fn looking_for(&self, now: Duration, lease: Duration) -> Duration {
        let mut shown = self.shown.lock();
        let (since, last) = shown.looking.unwrap_or((now, now));
        let since = if now.saturating_sub(last) > lease / 2 { now } else { since };
        shown.looking = Some((since, now));
        now.saturating_sub(since)
    }

    /// Counts looks at the plane in the control page of a memory node of this process.
    pub(crate) fn mark_looks_in(&self, region: Arc<dyn LocalRegion>) {
        self.marks.lock().push(region);
    }

    fn is_marked(&self) -> bool {
        !self.marks.lock().is_empty()
    }

    fn mark_look(&self) {
        for region in &*self.marks.lock() {
            let at = layout::PLANE_LOOKS_AT as usize;
            // Nobody else writes it.
            region.store(at, region.load(at).wrapping_add(1));
        }
    }

    /// Nobody waits for processes that neither run compute nodes nor have to let others in.
    fn pace(&self) -> Duration {
        let state = self.state();
        let is_idle = state.cards.is_empty()
            && state.compute_nodes.values().all(|member| member.host != self.host);
        if is_idle { state.timing.heartbeat } else { self.plane.pace().min(state.timing.heartbeat) }
    }

    async fn load(&self) -> Result<Versioned, PoolError> {
        let loaded = self.plane.load().await;
        let is_gone = match &loaded {
            // Another of its name is not the one that this process is in.
            Ok(now) => now.state.id != self.state().id,
            Err(error) => matches!(error, ControlError::NoPool { .. }),
        };
        if is_gone {
            self.gone.store(true, Ordering::Relaxed);
            let place = "the pool's place".to_owned();
            return Err(loaded.err().unwrap_or(ControlError::NoPool { place }).into());
        }
        Ok(loaded?)
    }

    /// Whether the pool was removed, as far as is known.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// For how long this process has not been able to show that its nodes live, by its own clock.
    pub(crate) fn silent_for(&self, now: Duration) -> Duration {
        let alive_at = self.shown.lock().alive_at;
        alive_at.map_or(Duration::ZERO, |at| now.saturating_sub(at))
    }

    fn see(&self, now: Versioned) {
        let mut view = self.view.write();
        if now.version > view.version {
            *view = now;
        }
    }

    /// Tells the fabric what is new in the view: who is there, who is gone, who is dead.
    fn act(&self) -> Result<(), PoolError> {
        let mut acted = self.acted.lock();
        let Versioned { version, state } = self.view.read().clone();
        if acted.upto == version {
            return Ok(());
        }
        let failed = |node, source| PoolError::Fabric { node, source };
        // A name that is in use again is that of another node.
        acted.fenced.retain(|node, _| !is_in(&state, *node));
        for (raw, card) in &state.cards {
            if card.host != self.host && acted.met.get(raw) != Some(&card.card) {
                let node = PeerId::from_raw(*raw);
                let reading = card.reads_only.then(|| self.reading(&state)).flatten();
                self.fabric
                    .meet(node, &card.card, reading.as_ref())
                    .map_err(|error| failed(node, error))?;
                acted.met.insert(*raw, card.card.clone());
            }
        }
        // Without cards a fence reaches everywhere, and is made by those who wait for it: see `is_fenced`.
        for node in dead_nodes(&state).filter(|_| !state.cards.is_empty()) {
            if let Entry::Vacant(entry) = acted.fenced.entry(node) {
                let reach = self.fabric.fence(node).map_err(|error| failed(node, error))?;
                tracing::info!(%node, "fenced a dead node");
                entry.insert((reach, version));
            }
        }
        let gone: Vec<u16> =
            acted.met.keys().copied().filter(|raw| !state.cards.contains_key(raw)).collect();
        for raw in gone {
            let node = PeerId::from_raw(raw);
            if !acted.fenced.contains_key(&node) {
                let _ = self.fabric.forget(node);
            }
            acted.met.remove(&raw);
        }
        self.notice_the_gone(&mut acted, &state);
        // Last: what came from those who had the index before has arrived, or never will.
        if self.observers_know(&state) {
            acted.upto = version;
        }
        Ok(())
    }

    fn notice_the_gone(&self, acted: &mut Acted, state: &PoolState) {
        let members: BTreeSet<u16> =
            state.compute_nodes.keys().chain(state.lost.keys()).copied().collect();
        let gone: Vec<u16> = acted.members.difference(&members).copied().collect();
        for node in gone {
            for observer in self.observers() {
                observer.gone(ComputeIndex::new(node));
            }
            if state.cards.is_empty() {
                acted.to_forget.insert(node);
            }
        }
        acted.to_forget.retain(|node| !members.contains(node));
        acted.members = members;
    }

    /// Removes what the gone have left behind, once their processes have ended.
    fn forget_the_gone(&self, now: Duration, heartbeat: Duration) {
        let due = {
            let mut acted = self.acted.lock();
            if acted.to_forget.is_empty() || now < acted.forget_at {
                return;
            }
            acted.forget_at = now + heartbeat;
            acted.to_forget.clone()
        };
        for node in due {
            if self.fabric.forget(PeerId::compute(node)) {
                self.acted.lock().to_forget.remove(&node);
            }
        }
    }

    fn observers(&self) -> Vec<Arc<dyn Observer>> {
        self.observers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// What a node that reads only may do to this process's nodes; everything if they are compute nodes, into
    /// whose memory it writes messages.
    fn reading(&self, state: &PoolState) -> Option<Arc<Domain>> {
        let own = state.memory_nodes.iter().flatten().filter(|node| node.host == self.host);
        let ranges = own.map(|node| node.descriptor.ranges).max()?;
        Some(Arc::new(state.geometry().reading(ranges)))
    }

    /// Tells the observers; whether all are ready for those who are in.
    fn observers_know(&self, state: &PoolState) -> bool {
        let observers = self.observers();
        // Each of them, before they are asked for more.
        let unready = observers.iter().filter(|observer| !observer.changed(state)).count();
        unready == 0
            && observers.iter().all(|observer| {
                state.compute_nodes.iter().all(|(node, member)| {
                    observer.joined(ComputeIndex::new(*node), member.incarnation)
                })
            })
    }

    /// Whether no verb of a dead node executes any more, at any node.
    pub(crate) async fn is_fenced(&self, node: PeerId) -> Result<bool, PoolError> {
        // The name may be another node's by now.
        self.see(self.load().await?);
        self.act()?;
        let known = self.acted.lock().fenced.get(&node).copied();
        let fenced = match known {
            None if dead_nodes(&self.state()).any(|dead| dead == node) => {
                let failed = |source| PoolError::Fabric { node, source };
                let reach = self.fabric.fence(node).map_err(failed)?;
                let since = self.view.read().version;
                self.acted.lock().fenced.insert(node, (reach, since));
                Some((reach, since))
            }
            known => known,
        };
        match fenced {
            None => Ok(false),
            Some((Reach::Everywhere, _)) => Ok(true),
            Some((Reach::ThisProcess, since)) => Ok(self.late(since).await?.is_none()),
        }
    }

    /// The nodes of this process that the others look after.
    fn own_nodes(&self, state: &PoolState) -> BTreeSet<PeerId> {
        let memory = state.memory_nodes.iter().flatten();
        let memory = memory.filter(|node| node.host == self.host && !node.dead);
        let cards = state.cards.iter().filter(|(_, card)| card.host == self.host);
        let compute = state.compute_nodes.iter().filter(|(_, member)| member.host == self.host);
        let ended = self.ended.lock().clone();
        memory
            .map(|node| node.descriptor.peer)
            .chain(cards.map(|(raw, _)| PeerId::from_raw(*raw)))
            .chain(compute.map(|(index, _)| PeerId::compute(*index)))
            .filter(|node| !ended.contains(node))
            .collect()
    }

    /// Shows no more that a node of this process lives, or does so again, for the next one of its name.
    pub(crate) fn set_ended(&self, node: PeerId, has_ended: bool) {
        let mut ended = self.ended.lock();
        if has_ended {
            ended.insert(node);
        } else {
            ended.remove(&node);
        }
    }

    /// Shows the others that this process's nodes live and what they have seen. Each node does so when it has
    /// something new to say, or the next beat is due; with `None` at once.
    pub(crate) async fn beat(&self, now: Option<Duration>) -> Result<(), PoolError> {
        let seen = self.acted.lock().upto;
        let state = self.state();
        let mut oldest = now;
        for node in self.own_nodes(&state) {
            let report = self.reports.lock().get(&node).cloned().unwrap_or_default();
            let beat = Beat { node, host: self.host, seen, report };
            let before = self.shown.lock().beats.get(&node).cloned();
            if let (Some((before, at)), Some(now)) = (before, now)
                && before == beat
                && now.saturating_sub(at) < state.timing.heartbeat
            {
                oldest = oldest.min(Some(at));
                continue;
            }
            self.plane.beat(beat.clone()).await?;
            if let Some(now) = now {
                self.shown.lock().beats.insert(node, (beat, now));
            }
        }
        if oldest.is_some() {
            self.shown.lock().alive_at = oldest;
        }
        Ok(())
    }

    /// Shows that a node lives that is about to enter the pool, so that it is missed if it ends right after.
    pub(crate) async fn first_beat(&self, node: PeerId) -> Result<(), PoolError> {
        let seen = self.acted.lock().upto;
        let beat = Beat { node, host: self.host, seen, report: String::new() };
        Ok(self.plane.beat(beat).await?)
    }

    /// The processes that have shown lately that their nodes live, and this one.
    pub(crate) async fn living_hosts(&self) -> Result<BTreeSet<u64>, PoolError> {
        let lease = self.timing().lease;
        let beats = self.plane.beats().await?;
        let lately = beats.iter().filter(|(_, age)| *age < lease * 3 / 2);
        Ok(lately.map(|(beat, _)| beat.host).chain([self.host]).collect())
    }

    /// A process whose nodes have not shown for the length of a lease that they live has lost them. Memory that
    /// processes share outlives a silence of the process that lends it.
    async fn declare_silent_dead(&self, watched_for: Duration) -> Result<(), PoolError> {
        let state = self.state();
        let hosts = watched(&state);
        if hosts.values().all(|host| *host == self.host) {
            return Ok(());
        }
        let beats = self.plane.beats().await?;
        let mut silent = BTreeMap::new();
        for (node, host) in hosts.into_iter().filter(|(_, host)| *host != self.host) {
            let own = beats.iter().find(|(beat, _)| (beat.node, beat.host) == (node, host));
            // A plane may forget beats that are older than anybody waits.
            if own.is_none_or(|(_, age)| *age > state.timing.lease) {
                silent.insert((node, host), own.map(|(_, age)| *age));
            }
        }
        let due =
            self.shown.lock().watch(silent.keys().copied(), watched_for, watch_of(state.timing));
        for (node, host) in due {
            let silent_for = silent.get(&(node, host)).copied().flatten();
            tracing::warn!(%node, ?silent_for, "declare a silent node dead");
            self.declare_dead(node, host).await?;
        }
        Ok(())
    }

    /// Unless another process has the node's name meanwhile.
    async fn declare_dead(&self, node: PeerId, host: u64) -> Result<(), PoolError> {
        let declare = |state: &mut PoolState| {
            if watched(state).get(&node) == Some(&host) {
                declare_dead(state, node);
            }
            Ok(())
        };
        self.change(declare).await.map(drop)
    }

    /// Changes the state by compare-and-swap, again if others were faster. The version that shows it.
    pub(crate) async fn change<T>(
        &self,
        change: impl Fn(&mut PoolState) -> Result<T, PoolError>,
    ) -> Result<(Version, T), PoolError> {
        let (now, value) = change_state(self.plane(), change).await?;
        let version = now.version;
        self.see(now);
        // If that fails it is tried again with the next look, before the others hear that it has been done.
        let _ = self.act();
        Ok((version, value))
    }

    /// A node of another process that has not acted upon this version of the state yet, or a later one.
    async fn late(&self, version: Version) -> Result<Option<PeerId>, PoolError> {
        let state = self.state();
        let mut waited = watched(&state);
        waited.retain(|_, host| *host != self.host);
        if waited.is_empty() {
            return Ok(None);
        }
        let beats = self.plane.beats().await?;
        let knows = |node: PeerId, host: u64| {
            let own = |beat: &Beat| beat.node == node && beat.host == host;
            beats.iter().any(|(beat, _)| own(beat) && beat.seen >= version)
        };
        Ok(waited.iter().find(|(node, host)| !knows(**node, **host)).map(|(node, _)| *node))
    }

    /// Waits until all other processes have acted upon this version of the state or a later one.
    pub(crate) async fn until_noticed(&self, env: &Env, version: Version) -> Result<(), PoolError> {
        let started = env.now();
        loop {
            self.act()?;
            let here = self.acted.lock().upto >= version;
            if here {
                self.beat(None).await?;
            }
            let late = if here { self.late(version).await? } else { Some(self.some_node()) };
            let Some(node) = late else { return Ok(()) };
            let waited = env.now().saturating_sub(started);
            if waited > self.notice_bound() {
                return Err(PoolError::Unresponsive { node, waited });
            }
            env.sleep(self.plane.pace()).await;
            // Whoever leaves meanwhile need not know.
            self.see(self.plane.load().await?);
        }
    }

    /// How long after its death a node of another process is missed, of those that `is_meant` says; `None` if the
    /// death of none of them is told by its silence.
    pub(crate) fn missed_within(&self, is_meant: impl Fn(PeerId) -> bool) -> Option<Duration> {
        let state = self.state();
        let mut watched = watched(&state).into_iter();
        let is_watched = watched.any(|(node, host)| host != self.host && is_meant(node));
        is_watched.then_some(state.timing.lease * MISSED_LEASES)
    }

    /// How long others may take to take note of something.
    pub(crate) fn notice_bound(&self) -> Duration {
        self.timing().lease * NOTICE_LEASES
    }

    /// How often what others are to do is looked at.
    pub(crate) fn plane_pace(&self) -> Duration {
        self.plane.pace()
    }

    /// One of this process's nodes, or of all, for a message.
    fn some_node(&self) -> PeerId {
        let state = self.state();
        let own = self.own_nodes(&state).pop_first();
        own.or_else(|| watched(&state).into_keys().next()).unwrap_or(PeerId::memory(0))
    }
}

/// For how long a node that has been silent for too long is watched: where a lease is few heartbeats, less than so many,
/// as it is missed after some leases all the same.
fn watch_of(timing: Timing) -> Duration {
    (WATCHED_BEATS * timing.heartbeat).min(timing.lease / 4)
}

/// The nodes whose silence means their death, and their processes.
fn watched(state: &PoolState) -> BTreeMap<PeerId, u64> {
    let compute = state.compute_nodes.iter();
    let compute = compute.map(|(index, member)| (PeerId::compute(*index), member.host));
    let cards = state.cards.iter().map(|(raw, card)| (PeerId::from_raw(*raw), card.host));
    compute.chain(cards).collect()
}

fn is_in(state: &PoolState, node: PeerId) -> bool {
    let is_member = !node.is_memory() && state.compute_nodes.contains_key(&node.index());
    is_member || state.cards.contains_key(&node.to_raw())
}

/// All that died and still matter.
fn dead_nodes(state: &PoolState) -> impl Iterator<Item = PeerId> {
    let memory = state.memory_nodes.iter().flatten().filter(|node| node.dead);
    let compute = state.lost.keys().chain(&state.dead);
    memory.map(|node| node.descriptor.peer).chain(compute.copied().map(PeerId::compute))
}

/// Takes a node that died out of the pool. Compute nodes are recovered from; what a memory node held is lost.
pub(crate) fn declare_dead(state: &mut PoolState, node: PeerId) {
    let card = state.cards.remove(&node.to_raw());
    if node.is_memory() {
        let slot = state.memory_nodes.get_mut(usize::from(node.index()));
        if let Some(member) = slot.and_then(Option::as_mut)
            && !std::mem::replace(&mut member.dead, true)
        {
            state.begin_rebuild(node.index());
            state.give_up_migration(node.index());
        }
        return;
    }
    let was_in = state.compute_nodes.remove(&node.index()).is_some();
    if was_in || card.is_some() {
        let only_read = card.is_some_and(|card| card.reads_only);
        let lost = state.lost.entry(node.index()).or_default();
        lost.held_nothing = !was_in || only_read;
        if !lost.held_nothing {
            state.doubt(node.index());
        }
    }
}

/// Changes the state that `plane` keeps by compare-and-swap, again if others were faster.
pub(crate) async fn change_state<T>(
    plane: &dyn ControlPlane,
    change: impl Fn(&mut PoolState) -> Result<T, PoolError>,
) -> Result<(Versioned, T), PoolError> {
    for _ in 0..ATTEMPTS {
        let now = plane.load().await?;
        let mut state = PoolState::clone(&now.state);
        let value = change(&mut state)?;
        if state == *now.state {
            return Ok((now, value));
        }
        if let Some(version) = plane.replace(now.version, state.clone()).await? {
            return Ok((Versioned { version, state: Arc::new(state) }, value));
        }
    }
    Err(PoolError::Contended { attempts: ATTEMPTS })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_silent_is_watched_and_between_two_looks_nobody_sees_more_than_a_beat() {
        const BEAT: Duration = Duration::from_millis(200);
        let (silent, other) = ((PeerId::memory(1), 7), (PeerId::compute(2), 8));
        let mut shown = Shown::default();
        let enough = watch_of(Timing { lease: 10 * BEAT, heartbeat: BEAT });
        assert_eq!(enough, 2 * BEAT);
        assert_eq!(watch_of(Timing { lease: 4 * BEAT, heartbeat: BEAT }), BEAT);
        let look = |shown: &mut Shown, who: &[(PeerId, u64)], more| {
            shown.watch(who.iter().copied(), more, enough)
        };
        assert!(look(&mut shown, &[silent], BEAT).is_empty(), "it has just been seen so");
        assert!(look(&mut shown, &[silent, other], BEAT).is_empty());
        assert!(look(&mut shown, &[other], BEAT / 2).is_empty(), "it lives after all");
        assert!(look(&mut shown, &[silent, other], BEAT / 2).is_empty());
        assert_eq!(look(&mut shown, &[silent, other], BEAT), [other]);
        assert_eq!(look(&mut shown, &[silent, other], BEAT), [silent, other]);
    }
}
