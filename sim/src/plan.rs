//! What goes wrong in a run: drawn from its seed, printed with a failure.
//!
//! Every seed switches each kind of fault on or off by itself, so that faults are met alone and in
//! all combinations (swarm testing). Faults that the engine must ride out are in every plan; one
//! plan in eight also loses a node for good, after which clients may only end in typed errors.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::{Controls, CostModel, Faults, Schedule};
use selkie_pool::Coding;

use crate::cluster::{SimCluster, SimPlane};
use crate::disk::AppendStage;

/// A stretch of time in which plans place their events, from the start of the load.
pub(crate) const SPAN: Duration = Duration::from_millis(4);
/// Longest a node stands still or a link is cut: below what the network takes for a death.
const LONGEST_CUT: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(3);

/// Something done to a node or a link at some time after the start of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The node's tasks stand still for so long.
    Pause(PeerId, Duration),
    /// The node's adapter is so many times slower from then on.
    Slow(PeerId, u32),
    /// The nodes cannot reach each other for so long.
    Cut(PeerId, PeerId, Duration),
    /// The same, where answers do not come through either, and all goes on afterwards.
    Sever(PeerId, PeerId, Duration),
    /// Nothing of the first node reaches the second for so long.
    Block(PeerId, PeerId, Duration),
    /// The process of the node stands still for so long, and no verb executes in its memory.
    Freeze(PeerId, Duration),
    /// The machine of the node is suspended for so long: its timers stand still as well.
    Suspend(PeerId, Duration),
    /// The control plane stands still for so long.
    PlaneStands(Duration),
    /// A request to the control plane takes so long, and so does an answer, for that long.
    PlaneLate(Duration, Duration),
    /// The node is cut off from the control plane for so long.
    PlaneCut(PeerId, WayToPlane, Duration),
    /// The clock of the node is set forward.
    ClockForward(PeerId, Duration),
    /// The clock of the node stands still for so long; then it jumps to where it would be, or stays
    /// behind.
    ClockStands(PeerId, Duration, ClockGoesOn),
    /// A task of the node's engine panics.
    Panic(PeerId, &'static str),
    /// The compute node closes, and its process ends.
    Leave(PeerId),
    /// The node is lost for good.
    Crash(PeerId),
    /// The node is lost for good, and nothing that it has sent is executed any more.
    Kill(PeerId),
    /// The same as soon as so many of its verbs were executed.
    KillAtVerb(PeerId, u64),
    /// The same in the append of this number to its log.
    KillInAppend(PeerId, u64, AppendStage),
}

/// How a clock goes on that stood still.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockGoesOn {
    /// Where it would be.
    Right,
    /// Where it stood.
    Behind,
}

/// What gets lost between a node and the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WayToPlane {
    /// What the node asks.
    Requests,
    /// What it is answered: what it has asked for is done.
    Answers,
    /// Both.
    Both,
}

impl Trouble {
    /// The node that is lost by it.
    pub(crate) fn loses(&self) -> Option<PeerId> {
        match *self {
            Self::Crash(peer)
            | Self::Kill(peer)
            | Self::KillAtVerb(peer, _)
            | Self::KillInAppend(peer, ..) => Some(peer),
            _ => None,
        }
    }
}

/// All that goes wrong in one run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What operations cost.
    pub cost: CostModel,
    /// What goes wrong by chance on every link.
    pub faults: Faults,
    /// Order of tasks that are ready at the same time.
    pub schedule: Schedule,
    /// What happens to nodes and links, and when.
    pub troubles: Vec<(Duration, Trouble)>,
    /// As `troubles`, after the losses of those are repaired; times count from then.
    pub later: Vec<(Duration, Trouble)>,
}

impl Plan {
    /// The plan in which nothing goes wrong.
    pub fn calm() -> Self {
        let (cost, faults) = (CostModel::PAPER, Faults::default());
        Plan { cost, faults, schedule: Schedule::Fifo, troubles: Vec::new(), later: Vec::new() }
    }

    /// The plan of `seed` for a cluster of so many nodes.
    pub fn draw(seed: u64, memory_nodes: u16, compute_nodes: u16) -> Self {
        let random = SplitMix::of_stream(seed, 2);
        let coin = || random.below(2) == 0;
        let micros = |most: u64| Duration::from_micros(1 + random.below(most));
        let presets = CostModel::PRESETS;
        let preset = presets.into_iter().nth(random.below(4) as usize);
        let mut cost = preset.unwrap_or(CostModel::PAPER);
        // Some nodes take messages in on several threads.
        cost.mail_threads = 1 + (seed / 4 % 3) as u32;
        let mut faults = Faults::default();
        if coin() {
            faults.reorder_one_in = 1 + random.below(8) as u32;
            faults.reorder_by = micros(50);
        }
        if coin() {
            faults.tear_one_in = 1 + random.below(4) as u32;
            faults.tear_by = micros(20);
        }
        if coin() {
            faults.late_one_in = 1 + random.below(4) as u32;
            faults.late_by = micros(50);
        }
        let schedule = if coin() { Schedule::Random } else { Schedule::Fifo };
        let memory = || PeerId::memory(random.below(u64::from(memory_nodes)) as u16);
        let compute = || PeerId::compute(random.below(u64::from(compute_nodes)) as u16);
        let any = || if coin() { memory() } else { compute() };
        let when = || Duration::from_nanos(random.below(SPAN.as_nanos() as u64));
        let for_long =
            |most: Duration| Duration::from_nanos(1 + random.below(most.as_nanos() as u64));
        let mut troubles = Vec::new();
        for _ in 0..random.below(3) {
            troubles.push((when(), Trouble::Pause(compute(), for_long(LONGEST_PAUSE))));
        }
        for _ in 0..random.below(2) {
            troubles.push((when(), Trouble::Slow(any(), 2 + random.below(30) as u32)));
        }
        for _ in 0..random.below(3) {
            let (one, other) = (compute(), any());
            if one != other {
                let long = for_long(LONGEST_CUT.min(cost.unreachable_after / 2));
                troubles.push((when(), Trouble::Cut(one, other, long)));
            }
        }
        if random.below(8) == 0 {
            troubles.push((when(), Trouble::Crash(any())));
        }
        troubles.sort_by_key(|(at, _)| *at);
        Plan { cost, faults, schedule, troubles, later: Vec::new() }
    }

    /// Loses memory nodes only: each lost compute node becomes a memory node.
    pub(crate) fn spare_compute_nodes(&mut self) {
        for (_, trouble) in &mut self.troubles {
            if let Trouble::Crash(peer) = trouble
                && !peer.is_memory()
            {
                *peer = PeerId::memory(0);
            }
        }
    }

    /// Loses no node.
    pub(crate) fn spare_all_nodes(&mut self) {
        self.troubles.retain(|(_, trouble)| trouble.loses().is_none());
    }

    /// The same, but that no node is lost.
    pub(crate) fn without_losses(&self) -> Self {
        let mut plan = self.clone();
        plan.spare_all_nodes();
        plan
    }

    /// Nodes that are lost for good.
    pub fn lost(&self) -> Vec<PeerId> {
        let lost = |(_, trouble): &(Duration, Trouble)| trouble.loses();
        self.troubles.iter().chain(&self.later).filter_map(lost).collect()
    }

    /// Nodes that are lost for good and whose loss a pool of this coding does not make good: all,
    /// but for as many memory nodes as a page has parity splits.
    pub fn lost_beyond(&self, coding: Coding) -> Vec<PeerId> {
        let mut lost = self.lost();
        let memory_nodes = lost.iter().filter(|peer| peer.is_memory()).count();
        lost.retain(|peer| !peer.is_memory() || memory_nodes > coding.parity());
        lost
    }

    /// Arranges for the troubles to happen, counted from `now`, where nodes have no control plane.
    pub(crate) fn arrange(&self, controls: &Controls, now: Duration) {
        arrange(&self.troubles, controls, None, now);
    }

    /// Arranges for the later ones to happen, counted from `now`.
    pub(crate) fn arrange_later(&self, controls: &Controls, now: Duration) {
        arrange(&self.later, controls, None, now);
    }

    /// Arranges for the troubles to happen in a cluster, counted from now.
    pub(crate) fn arrange_in(&self, cluster: &SimCluster) {
        let (controls, now) = (cluster.world.controls(), cluster.world.now());
        arrange(&self.troubles, &controls, cluster.memory.plane(), now);
        for (after, trouble) in self.troubles.iter().copied() {
            if let Trouble::Leave(peer) = trouble {
                leave_after(cluster, after, peer);
            }
        }
    }
}

/// Closes a compute node after so long, and ends its process when it has left, or has failed.
fn leave_after(cluster: &SimCluster, after: Duration, peer: PeerId) {
    let index = usize::from(peer.index());
    let Some(engine) = cluster.engines.get(index).cloned() else { return };
    let (env, controls) = (cluster.env_of(index), cluster.world.controls());
    drop(env.clone().spawn("leaver", async move {
        env.sleep(after).await;
        controls.note(&format!("{peer} closes"));
        while let Err(error) = engine.close().await {
            controls.note(&format!("{peer} cannot close: {error}"));
            if !error.is_retryable() {
                break;
            }
        }
        controls.at(env.now(), move |controls| controls.kill(peer));
    }));
}

fn arrange(
    troubles: &[(Duration, Trouble)],
    controls: &Controls,
    plane: Option<&Arc<SimPlane>>,
    now: Duration,
) {
    for (after, trouble) in troubles.iter().copied() {
        let plane = plane.cloned();
        controls.at(now + after, move |controls| {
            let at = now + after;
            let cut_way = |one: PeerId, other: PeerId, long: Duration| {
                controls.block(one, other);
                controls.at(at + long, move |controls| controls.unblock(one, other));
            };
            let is_of_plane = matches!(
                trouble,
                Trouble::PlaneStands(_) | Trouble::PlaneLate(..) | Trouble::PlaneCut(..)
            );
            if let Some(plane) = plane.as_ref().filter(|_| is_of_plane) {
                trouble_plane(trouble, plane, controls, at);
            }
            match trouble {
                Trouble::Pause(peer, long) => {
                    controls.pause(peer);
                    controls.at(at + long, move |controls| controls.resume(peer));
                }
                Trouble::Slow(peer, times) => controls.slow(peer, times),
                Trouble::Cut(one, other, long) => {
                    controls.cut(one, other);
                    controls.at(at + long, move |controls| controls.heal(one, other));
                }
                Trouble::Sever(one, other, long) => {
                    cut_way(one, other, long);
                    cut_way(other, one, long);
                }
                Trouble::Block(one, other, long) => cut_way(one, other, long),
                Trouble::Freeze(peer, long) => {
                    controls.freeze(peer);
                    controls.at(at + long, move |controls| controls.thaw(peer));
                }
                Trouble::Suspend(peer, long) => {
                    controls.suspend(peer);
                    controls.at(at + long, move |controls| controls.thaw(peer));
                }
                Trouble::ClockForward(peer, by) => controls.set_clock_forward(peer, by),
                Trouble::ClockStands(peer, long, how) => {
                    controls.stop_clock(peer);
                    controls.at(at + long, move |controls| {
                        controls.start_clock(peer, how == ClockGoesOn::Right);
                    });
                }
                Trouble::Panic(peer, task) => controls.panic_in(peer, task),
                Trouble::Crash(peer) => controls.crash(peer),
                Trouble::Kill(peer) => controls.kill(peer),
                Trouble::KillAtVerb(peer, number) => {
                    controls.kill_after_verbs(peer, Some(number));
                }
                // The node does, the disk, or the control plane.
                Trouble::Leave(_)
                | Trouble::KillInAppend(..)
                | Trouble::PlaneStands(_)
                | Trouble::PlaneLate(..)
                | Trouble::PlaneCut(..) => {}
            }
        });
    }
}

/// Has a trouble of the control plane begin now, and end.
fn trouble_plane(trouble: Trouble, plane: &Arc<SimPlane>, controls: &Controls, at: Duration) {
    let plane = Arc::clone(plane);
    controls.note(&format!("of the plane: {trouble}"));
    match trouble {
        Trouble::PlaneStands(long) => {
            plane.hold(true);
            controls.at(at + long, move |_| plane.hold(false));
        }
        Trouble::PlaneLate(leg, long) => {
            plane.delay(leg);
            controls.at(at + long, move |_| plane.delay(Duration::ZERO));
        }
        Trouble::PlaneCut(node, way, long) => {
            let set = move |plane: &SimPlane, is_cut| {
                if way != WayToPlane::Answers {
                    plane.cut_requests(node, is_cut);
                }
                if way != WayToPlane::Requests {
                    plane.cut_answers(node, is_cut);
                }
            };
            set(&plane, true);
            controls.at(at + long, move |_| set(&plane, false));
        }
        _ => {}
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Pause(peer, long) => write!(f, "{peer} pauses {long:?}"),
            Trouble::Slow(peer, times) => write!(f, "{peer} {times}x slower"),
            Trouble::Cut(one, other, long) => write!(f, "{one} cut off from {other} for {long:?}"),
            Trouble::Sever(one, other, long) => {
                write!(f, "{one} and {other} reach each other no more for {long:?}")
            }
            Trouble::Block(one, other, long) => {
                write!(f, "{one} does not reach {other} for {long:?}")
            }
            Trouble::Freeze(peer, long) => write!(f, "{peer} stands still {long:?}"),
            Trouble::Suspend(peer, long) => {
                write!(f, "the machine of {peer} is suspended {long:?}")
            }
            Trouble::PlaneStands(long) => write!(f, "the plane stands still {long:?}"),
            Trouble::PlaneLate(leg, long) => {
                write!(f, "the plane takes {leg:?} each way for {long:?}")
            }
            Trouble::PlaneCut(peer, way, long) => {
                write!(f, "{peer} cut off from the plane for {long:?}, lost: {way:?}")
            }
            Trouble::ClockForward(peer, by) => write!(f, "the clock of {peer} goes {by:?} forward"),
            Trouble::ClockStands(peer, long, how) => {
                write!(f, "the clock of {peer} stands still {long:?}, and goes on: {how:?}")
            }
            Trouble::Panic(peer, task) => write!(f, "task `{task}` of {peer} panics"),
            Trouble::Leave(peer) => write!(f, "{peer} leaves and ends"),
            Trouble::Crash(peer) => write!(f, "{peer} crashes"),
            Trouble::Kill(peer) => write!(f, "{peer} is killed"),
            Trouble::KillAtVerb(peer, number) => write!(f, "{peer} is killed after {number} verbs"),
            Trouble::KillInAppend(peer, number, stage) => {
                write!(f, "{peer} is killed in append {number} to its log: {stage:?}")
            }
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Faults {
            reorder_one_in,
            reorder_by,
            tear_one_in,
            tear_by,
            late_one_in,
            late_by,
            corrupt_one_in: _,
            forgets_what_waits: _,
        } = &self.faults;
        write!(f, "network {}, tasks {:?}", self.cost.name, self.schedule)?;
        if *reorder_one_in > 0 {
            write!(f, "; 1 chain in {reorder_one_in} up to {reorder_by:?} slower")?;
        }
        if *tear_one_in > 0 {
            write!(f, "; 1 payload in {tear_one_in} torn by up to {tear_by:?}")?;
        }
        if *late_one_in > 0 {
            write!(f, "; 1 write in {late_one_in} in place up to {late_by:?} late")?;
        }
        let first = self.troubles.iter().map(|(at, trouble)| (at, trouble, ""));
        let later = self.later.iter().map(|(at, trouble)| (at, trouble, " later"));
        for (at, trouble, when) in first.chain(later) {
            write!(f, ";{when} at +{at:?} {trouble}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_follow_from_their_seed_and_meet_every_kind_of_trouble() {
        let plans: Vec<Plan> = (0..500).map(|seed| Plan::draw(seed, 3, 3)).collect();
        assert_eq!(plans[7], Plan::draw(7, 3, 3));
        let having = |what: fn(&Plan) -> bool| plans.iter().filter(|plan| what(plan)).count();
        let trouble = |plan: &Plan, what: fn(&Trouble) -> bool| {
            plan.troubles.iter().any(|(_, trouble)| what(trouble))
        };
        let counts = [
            having(|p| p.faults.reorder_one_in > 0),
            having(|p| p.faults.tear_one_in > 0),
            having(|p| p.faults.late_one_in > 0),
            having(|p| p.schedule == Schedule::Random),
            plans.iter().filter(|p| trouble(p, |t| matches!(t, Trouble::Pause(..)))).count(),
            plans.iter().filter(|p| trouble(p, |t| matches!(t, Trouble::Slow(..)))).count(),
            plans.iter().filter(|p| trouble(p, |t| matches!(t, Trouble::Cut(..)))).count(),
        ];
        assert!(counts.iter().all(|count| (100..=400).contains(count)), "{counts:?}");
        let lost = having(|p| !p.lost().is_empty());
        assert!(
            (30..100).contains(&lost),
            "{lost} of 500 plans lose a node, expected one in eight"
        );
        assert_eq!(having(|p| p.lost().len() > 1), 0, "one node at most");
    }
}
