//! A process as a member of a pool: the state of the pool that it works by, and the signs of life
//! it gives.
//!
//! ```text
//! plane --load--> view --> fabric: meet new nodes, fence dead ones --> beat: "seen, and acted upon"
//! ```
//! A beat says that the process has acted upon all changes up to a version of the state. So whoever
//! waits for the others to see that a node died knows afterwards that none of them executes its
//! verbs any more.
//!
//! A process with memory nodes counts its looks at the plane in their control pages, and says that
//! it has acted upon what it found after it was away only when a while has passed since it counted
//! again ([`Timing::acts_after`]). So a node that reads a count which stands still knows that
//! nobody is told yet that this process has fenced it.
//!
//! Contents: `silence` (who is declared dead because nothing is heard of it).

mod silence;

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
pub const ATTEMPTS: usize = 1_000;
/// Leases for which the other processes are waited for to take note of a change.
const NOTICE_LEASES: u32 = 5;
/// Leases after which a dead node is missed: after one it is silent for too long, then it is
/// watched, by who may find the state changed when it is to be declared dead; and a plane may tell
/// ages in whole seconds, rounded down.
const MISSED_LEASES: u32 = 3;
// Who waits until a node is missed does not take note of what others are waited for to take note
// of.
const _: () = assert!(MISSED_LEASES < NOTICE_LEASES);

/// Hears of changes of a pool before the others rely on them.
pub trait Observer: Send + Sync {
    /// A compute node is in the pool, the so-manieth of its index. Called again and again, also for
    /// those that are known, until it returns true: until then the node waits.
    fn joined(&self, node: ComputeIndex, incarnation: u32) -> bool;

    /// A compute node that was in the pool is in it no more, and recovered from if it died.
    fn gone(&self, node: ComputeIndex);

    /// The state of the pool is another. Called again and again before the others hear that this
    /// process has acted upon it, until it returns true: until then something is under way that was
    /// begun by an older state, and would not have been by this one.
    fn changed(&self, state: &PoolState) -> bool;
}

/// What a process knows of a pool, and the others of it.
pub struct Membership {
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
    /// Dead nodes whose verbs do not execute any more, as far as this process sees to it; with the
    /// version of the view in which they were first seen dead.
    fenced: BTreeMap<PeerId, (Reach, Version)>,
}

/// What a process has shown of its nodes, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignsOfLife {
    /// For how long it has not been able to show that they live; no time where nobody follows the
    /// pool.
    pub silent_for: Duration,
    /// How often it has not been able to for longer than three quarters of a lease, and then was
    /// again. As long as that stays the same, and it is not silent for longer now, nobody can have
    /// found it silent for a lease.
    pub silences: u64,
}

/// The signs of life this process gave last.
#[derive(Default)]
struct Shown {
    beats: BTreeMap<PeerId, (Beat, Duration)>,
    /// When, by the environment's clock, all its nodes were last shown to live.
    alive_at: Option<Duration>,
    /// When the node that came last was first shown to live.
    first_at: Option<Duration>,
    /// How often it took too long until they were shown to live again.
    silences: u64,
    /// When this process last counted a look at the plane.
    marked_at: Duration,
    /// Since when this process looks at the plane regularly, and when it did last.
    looking: Option<(Duration, Duration)>,
    /// Nodes of others, with their processes, that have been silent for too long, and for how long
    /// this process has been watching them.
    silent: BTreeMap<(PeerId, u64), Duration>,
}

impl Membership {
    pub fn new(
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

    pub fn host(&self) -> u64 {
        self.host
    }

    pub fn plane(&self) -> &dyn ControlPlane {
        &*self.plane
    }

    /// The state that this process works by.
    pub fn state(&self) -> Arc<PoolState> {
        Arc::clone(&self.view.read().state)
    }

    pub fn timing(&self) -> Timing {
        self.view.read().state.timing
    }

    pub fn observe(&self, observer: Weak<dyn Observer>) {
        let mut observers = self.observers.lock();
        observers.retain(|observer| observer.strong_count() > 0);
        observers.push(observer);
        drop(observers);
        // Who is in is not new to the fabric, but to the observer.
        self.acted.lock().upto = 0;
    }

    /// What a node of this process says of itself with its beats from now on.
    pub fn set_report(&self, node: PeerId, report: String) {
        self.reports.lock().insert(node, report);
    }

    /// Waits for the next time to look, looks at what has changed, acts upon it and shows that this
    /// process lives.
    pub async fn follow_once(&self, env: &Env) {
        env.sleep(self.pace()).await;
        // While the plane is away everybody goes on with what is known.
        if let Err(error) = self.look(env).await {
            tracing::debug!(%error, "cannot follow the pool");
        }
    }

    async fn look(&self, env: &Env) -> Result<(), PoolError> {
        let now = env.now();
        self.begin_to_live(now);
        let timing @ Timing { lease, heartbeat } = self.timing();
        let seen = self.load().await?;
        let was_away = self.mark_look(env) > timing.away_after();
        if was_away && self.is_marked() {
            // It has stood still, perhaps, and its last beat is old.
            self.beat(env, None).await?;
            self.let_others_hear(env, timing).await;
        }
        self.see(seen.clone());
        // Where looks are counted, by no state that is later than the look.
        let acted = if self.is_marked() { self.act_upon(seen) } else { self.act() };
        // Also if it failed: the beat says how far this process has acted, and that it lives.
        self.beat(env, Some(now)).await?;
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
            (true, None) => shown.alive_at = shown.first_at.take().or(Some(now)),
            (false, Some(_)) => shown.alive_at = None,
            _ => {}
        }
    }

    /// When the plane was last looked at.
    fn looked_at(&self, now: Duration) -> Duration {
        self.shown.lock().looking.map_or(now, |(_, last)| last)
    }

    /// For how long this process has been looking at the plane regularly: who stood still, or was
    /// away from it, cannot tell who else was.
    fn looking_for(&self, now: Duration, lease: Duration) -> Duration {
        let mut shown = self.shown.lock();
        let (since, last) = shown.looking.unwrap_or((now, now));
        let since = if now.saturating_sub(last) > lease / 2 { now } else { since };
        shown.looking = Some((since, now));
        now.saturating_sub(since)
    }

    /// Counts looks at the plane in the control page of a memory node of this process, which was
    /// not in the pool at that moment yet.
    pub fn mark_looks_in(&self, region: Arc<dyn LocalRegion>, since: Duration) {
        self.marks.lock().push(region);
        self.shown.lock().marked_at = since;
    }

    fn is_marked(&self) -> bool {
        !self.marks.lock().is_empty()
    }

    /// Counts a look; no less than the time since it was counted before.
    fn mark_look(&self, env: &Env) -> Duration {
        let before = std::mem::replace(&mut self.shown.lock().marked_at, env.now());
        for region in &*self.marks.lock() {
            let at = layout::PLANE_LOOKS_AT as usize;
            // Nobody else writes it.
            region.store(at, region.load(at).wrapping_add(1));
        }
        env.now().saturating_sub(before)
    }

    /// Who has relied on this process's not looking gets time to hear that it does again. It goes
    /// on counting.
    async fn let_others_hear(&self, env: &Env, timing: Timing) {
        let until = env.now() + timing.acts_after();
        while env.now() < until {
            let left = until.saturating_sub(env.now());
            env.sleep(timing.heartbeat.min(left)).await;
            self.mark_look(env);
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
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub fn signs_of_life(&self, now: Duration) -> SignsOfLife {
        let shown = self.shown.lock();
        let silent_for = shown.alive_at.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        SignsOfLife { silent_for, silences: shown.silences }
    }

    fn see(&self, now: Versioned) {
        let mut view = self.view.write();
        if now.version > view.version {
            *view = now;
        }
    }

    fn act(&self) -> Result<(), PoolError> {
        let now = self.view.read().clone();
        self.act_upon(now)
    }

    /// Tells the fabric what is new: who is there, who is gone, who is dead.
    fn act_upon(&self, Versioned { version, state }: Versioned) -> Result<(), PoolError> {
        let mut acted = self.acted.lock();
        if acted.upto >= version {
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
        // Without cards a fence reaches everywhere, and is made by those who wait for it: see
        // `is_fenced`.
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

    /// What a node that reads only may do to this process's nodes; everything if they are compute
    /// nodes, into whose memory it writes messages.
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

    /// The state as it is now, which is not acted upon.
    pub async fn latest(&self) -> Result<Arc<PoolState>, PoolError> {
        Ok(self.load().await?.state)
    }

    /// Whether no verb of a dead node executes any more, at any node.
    pub async fn is_fenced(&self, node: PeerId) -> Result<bool, PoolError> {
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

    /// Shows no more that a node of this process lives, or does so again, for the next one of its
    /// name.
    pub fn set_ended(&self, node: PeerId, has_ended: bool) {
        let mut ended = self.ended.lock();
        if has_ended {
            ended.insert(node);
        } else {
            ended.remove(&node);
        }
    }

    /// Shows the others that this process's nodes live and what they have seen. Each node does so
    /// when it has something new to say, or the next beat is due; with `None` at once.
    pub async fn beat(&self, env: &Env, now: Option<Duration>) -> Result<(), PoolError> {
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
            let mut shown = self.shown.lock();
            // By now, and not by when the beats were begun: how late they came nobody knows.
            let silent_for = shown.alive_at.map(|at| env.now().saturating_sub(at));
            shown.silences += u64::from(silent_for > Some(state.timing.lease * 3 / 4));
            shown.alive_at = oldest;
        }
        Ok(())
    }

    /// Shows that a node lives that is about to enter the pool, so that it is missed if it ends
    /// right after.
    pub async fn first_beat(&self, env: &Env, node: PeerId) -> Result<(), PoolError> {
        let (now, seen) = (env.now(), self.acted.lock().upto);
        let beat = Beat { node, host: self.host, seen, report: String::new() };
        self.plane.beat(beat).await?;
        self.shown.lock().first_at = Some(now);
        Ok(())
    }

    /// The processes that have shown lately that their nodes live, and this one.
    pub async fn living_hosts(&self) -> Result<BTreeSet<u64>, PoolError> {
        let lease = self.timing().lease;
        let beats = self.plane.beats().await?;
        let lately = beats.iter().filter(|(_, age)| *age < lease * 3 / 2);
        Ok(lately.map(|(beat, _)| beat.host).chain([self.host]).collect())
    }

    /// Changes the state by compare-and-swap, again if others were faster. The version that shows
    /// it.
    pub async fn change<T>(
        &self,
        change: impl Fn(&mut PoolState) -> Result<T, PoolError>,
    ) -> Result<(Version, T), PoolError> {
        let (now, value) = change_state(self.plane(), change).await?;
        let version = now.version;
        self.changed_to(now);
        Ok((version, value))
    }

    fn changed_to(&self, now: Versioned) {
        self.see(now);
        // Not where looks are counted: others may rely on it that this process does not know yet
        // what others have changed.
        if !self.is_marked() {
            // If that fails it is tried again with the next look, before the others hear that it
            // has been done.
            let _ = self.act();
        }
    }

    /// A node of another process that has not acted upon this version of the state yet, or a later
    /// one.
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
    pub async fn until_noticed(&self, env: &Env, version: Version) -> Result<(), PoolError> {
        let started = env.now();
        loop {
            self.act()?;
            let here = self.acted.lock().upto >= version;
            if here {
                self.beat(env, None).await?;
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

    /// How long after its death a node of another process is missed, of those that `is_meant` says;
    /// `None` if the death of none of them is told by its silence.
    pub fn missed_within(&self, is_meant: impl Fn(PeerId) -> bool) -> Option<Duration> {
        let state = self.state();
        let mut watched = watched(&state).into_iter();
        let is_watched = watched.any(|(node, host)| host != self.host && is_meant(node));
        is_watched.then_some(state.timing.lease * MISSED_LEASES)
    }

    /// How long others may take to take note of something.
    pub fn notice_bound(&self) -> Duration {
        self.timing().lease * NOTICE_LEASES
    }

    /// How often what others are to do is looked at.
    pub fn plane_pace(&self) -> Duration {
        self.plane.pace()
    }

    /// One of this process's nodes, or of all, for a message.
    fn some_node(&self) -> PeerId {
        let state = self.state();
        let own = self.own_nodes(&state).pop_first();
        own.or_else(|| watched(&state).into_keys().next()).unwrap_or(PeerId::memory(0))
    }
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

/// Takes a node that died out of the pool. Compute nodes are recovered from; what a memory node
/// held is lost.
pub fn declare_dead(state: &mut PoolState, node: PeerId) {
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
    state.forget_moment(node.index());
    let was_in = state.compute_nodes.remove(&node.index()).is_some();
    if was_in || card.is_some() {
        let only_read = card.is_some_and(|card| card.reads_only);
        let lost = state.lost.entry(node.index()).or_default();
        lost.held_nothing = !was_in || only_read;
        if !lost.held_nothing {
            state.fall(node.index());
            state.doubt(node.index());
        }
    }
}

/// Changes the state that `plane` keeps by compare-and-swap, again if others were faster.
pub async fn change_state<T>(
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
