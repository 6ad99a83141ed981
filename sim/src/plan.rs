//! What goes wrong in a run: drawn from its seed, printed with a failure.
//!
//! Every seed switches each kind of fault on or off by itself, so that faults are met alone and in
//! all combinations (swarm testing). Faults that the engine must ride out are in every plan; one
//! plan in eight also loses a node for good, after which clients may only end in typed errors.

use std::fmt;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::{Controls, CostModel, Faults, Schedule};
use selkie_pool::Coding;

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
    /// The node is lost for good.
    Crash(PeerId),
    /// The node is lost for good, and nothing that it has sent is executed any more.
    Kill(PeerId),
    /// The same as soon as so many of its verbs were executed.
    KillAtVerb(PeerId, u64),
    /// The same in the append of this number to its log.
    KillInAppend(PeerId, u64, AppendStage),
}

impl Trouble {
    /// The node that is lost by it.
    fn loses(&self) -> Option<PeerId> {
        match *self {
            Self::Crash(peer)
            | Self::Kill(peer)
            | Self::KillAtVerb(peer, _)
            | Self::KillInAppend(peer, ..) => Some(peer),
            Self::Pause(..) | Self::Slow(..) | Self::Cut(..) => None,
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

    /// Arranges for the troubles to happen, counted from `now`.
    pub fn arrange(&self, controls: &Controls, now: Duration) {
        arrange(&self.troubles, controls, now);
    }

    /// Arranges for the later ones to happen, counted from `now`.
    pub fn arrange_later(&self, controls: &Controls, now: Duration) {
        arrange(&self.later, controls, now);
    }
}

fn arrange(troubles: &[(Duration, Trouble)], controls: &Controls, now: Duration) {
    for (after, trouble) in troubles.iter().copied() {
        controls.at(now + after, move |controls| {
            let at = now + after;
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
                Trouble::Crash(peer) => controls.crash(peer),
                Trouble::Kill(peer) => controls.kill(peer),
                Trouble::KillAtVerb(peer, number) => {
                    controls.kill_after_verbs(peer, Some(number));
                }
                // The disk does.
                Trouble::KillInAppend(..) => {}
            }
        });
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
            write!(f, ";{when} at +{at:?} ")?;
            match trouble {
                Trouble::Pause(peer, long) => write!(f, "{peer} pauses {long:?}")?,
                Trouble::Slow(peer, times) => write!(f, "{peer} {times}x slower")?,
                Trouble::Cut(one, other, long) => {
                    write!(f, "{one} cut off from {other} for {long:?}")?;
                }
                Trouble::Crash(peer) => write!(f, "{peer} crashes")?,
                Trouble::Kill(peer) => write!(f, "{peer} is killed")?,
                Trouble::KillAtVerb(peer, number) => {
                    write!(f, "{peer} is killed after {number} verbs")?;
                }
                Trouble::KillInAppend(peer, number, stage) => {
                    write!(f, "{peer} is killed in append {number} to its log: {stage:?}")?;
                }
            }
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
