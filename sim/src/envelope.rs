//! How much may go wrong in a run, and what the wider of the two envelopes draws beside what every
//! plan may have ([`Plan::draw`]).
//!
//! ```text
//! gentle  links and nodes fail for less than anything takes for a death, or for good
//! wide    each node is a process with a lease; links, nodes and the control plane fail for
//!         0.1 to 5 leases, in one direction too; clocks jump; tasks panic
//! ```
//! A node that is silent for long is declared dead, and ends. [`Plan::exposed`] says which may; the
//! others have no excuse.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_pool::Coding;

use crate::cluster::LEASE;
use crate::plan::{ClockGoesOn, Plan, Trouble, WayToPlane};

/// How much may go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Envelope {
    /// What no node takes for a death, and deaths.
    Gentle,
    /// Whatever a network, a machine, a clock and a control plane may do.
    #[default]
    Wide,
}

impl Envelope {
    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Envelope::Gentle => "gentle",
            Envelope::Wide => "wide",
        }
    }
}

impl fmt::Display for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Envelope {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let all = [Envelope::Gentle, Envelope::Wide];
        let found = all.into_iter().find(|envelope| envelope.name() == name);
        found.ok_or_else(|| format!("there is no envelope {name:?}; there are gentle, wide"))
    }
}

/// Stream of the seed that draws the wide envelope.
const WIDE_STREAM: u64 = 40;
/// Stream of the seed that draws whether links are given up sooner than they may be back.
const SHORT_STREAM: u64 = 47;
/// Stream of the seed that draws which node leaves.
const LEAVE_STREAM: u64 = 50;
/// Stream of the seed that draws rarer troubles: clocks that stand still, those of memory nodes,
/// and tasks that not every node has. They are drawn for themselves, so that they move no other,
/// and by a stream in which the seeds that tests name have none.
const RARE_STREAM: u64 = 13_609;
/// Stream of the seed that draws the long troubles of runs without leases.
const LONG_STREAM: u64 = 62;
/// The span in which the troubles of the wide envelope begin.
const SPAN: Duration = Duration::from_millis(12);
/// How long an operation on a link that is away is tried: longer than any link is cut, but in some
/// runs.
pub(crate) const UNREACHABLE_AFTER: Duration = Duration::from_millis(8 * 8);
/// The longest leg of a call to the control plane.
const LONGEST_LEG: Duration = Duration::from_nanos(LEASE.as_nanos() as u64 / 40);
/// A node that is silent for so long in all may be taken for dead, or end itself.
const THREAT: Duration = Duration::from_nanos(LEASE.as_nanos() as u64 / 2);
/// When the plane is away for so long, a node that cannot show why may end.
const PLANE_THREAT: Duration = Duration::from_millis(2 * 8);

/// Tasks of an engine that may panic.
const TASKS: [&str; 6] = ["lease", "mail", "recovery", "evictor", "housekeeping", "log"];

/// More of them, which are not always there, or rarely do anything.
const RARE_TASKS: [&str; 9] = [
    "checkpoints",
    "archive",
    "doubts",
    "regeneration",
    "activity",
    "eviction",
    "latch operation",
    "hold",
    "late splits",
];

/// What a pool survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Keeps {
    pub(crate) coding: Coding,
    /// Whether engines keep logs.
    pub(crate) has_logs: bool,
    /// Whether the run knows which pages may be lost with a node that held them.
    pub(crate) finds_losses: bool,
}

/// Draws one kind of trouble.
struct Draw {
    random: SplitMix,
    memory_nodes: u64,
    compute_nodes: u64,
}

impl Draw {
    fn one_in(&self, count: u64) -> bool {
        self.random.below(count) == 0
    }

    fn memory(&self) -> PeerId {
        PeerId::memory(self.random.below(self.memory_nodes) as u16)
    }

    fn compute(&self) -> PeerId {
        PeerId::compute(self.random.below(self.compute_nodes) as u16)
    }

    fn any(&self) -> PeerId {
        if self.one_in(2) { self.memory() } else { self.compute() }
    }

    fn when(&self) -> Duration {
        Duration::from_nanos(self.random.below(SPAN.as_nanos() as u64))
    }

    /// From 0.1 to 5 leases, half of the time at most one.
    fn long(&self) -> Duration {
        let most = if self.one_in(2) { 10 } else { 50 };
        LEASE * (1 + self.random.below(most) as u32) / 10
    }

    /// A node stands still, in some way.
    fn stop(&self, node: PeerId) -> Trouble {
        let long = self.long();
        match self.random.below(3) {
            // Its memory can be reached, as on one host.
            0 => Trouble::Pause(node, long),
            1 => Trouble::Freeze(node, long),
            _ => Trouble::Suspend(node, long),
        }
    }

    fn cut(&self) -> Option<Trouble> {
        let (one, other, long) = (self.compute(), self.any(), self.long());
        (one != other).then(|| match self.random.below(3) {
            0 => Trouble::Block(one, other, long),
            1 => Trouble::Block(other, one, long),
            _ => Trouble::Sever(one, other, long),
        })
    }

    fn plane(&self) -> Trouble {
        let (node, long) = (self.any(), self.long());
        match self.random.below(6) {
            0 => Trouble::PlaneStands(long),
            1 => Trouble::PlaneLate(
                Duration::from_nanos(1 + self.random.below(LONGEST_LEG.as_nanos() as u64)),
                long,
            ),
            2 => Trouble::PlaneCut(node, WayToPlane::Requests, long),
            3 => Trouble::PlaneCut(node, WayToPlane::Answers, long),
            _ => Trouble::PlaneCut(node, WayToPlane::Both, long),
        }
    }

    fn task(&self, tasks: &[&'static str]) -> &'static str {
        let number = self.random.below(tasks.len() as u64) as usize;
        tasks.get(number).copied().unwrap_or("lease")
    }

    /// The clock of a node stands still. That of one that nothing else happens to: its lease is as
    /// long as its clock says.
    fn standing_clock(&self, others: &[(Duration, Trouble)]) -> Option<Trouble> {
        let (peer, long) = (self.any(), self.long());
        let how = if self.one_in(2) { ClockGoesOn::Right } else { ClockGoesOn::Behind };
        let is_alone = others.iter().all(|(_, trouble)| !trouble.may_silence(peer));
        is_alone.then_some(Trouble::ClockStands(peer, long, how))
    }
}

impl Plan {
    /// Adds what the wide envelope of `seed` draws for a cluster of so many nodes.
    pub(crate) fn widen(&mut self, seed: u64, memory_nodes: u16, compute_nodes: u16, keeps: Keeps) {
        let draw = Draw {
            random: SplitMix::of_stream(seed, WIDE_STREAM),
            memory_nodes: u64::from(memory_nodes),
            compute_nodes: u64::from(compute_nodes),
        };
        self.cost.unreachable_after = UNREACHABLE_AFTER;
        if SplitMix::of_stream(seed, SHORT_STREAM).below(6) == 0 {
            // Then a cut may end a queue pair between two nodes that live.
            self.cost.unreachable_after = LEASE / 2;
        }
        // A process that has ended is noticed at once, a machine that is gone is not.
        self.cost.dead_after =
            if draw.one_in(2) { Duration::from_millis(1) } else { UNREACHABLE_AFTER };
        let mut troubles = Vec::new();
        if draw.one_in(3) {
            for _ in 0..=draw.random.below(2) {
                troubles.extend(draw.cut());
            }
        }
        if draw.one_in(3) {
            for _ in 0..=draw.random.below(2) {
                troubles.push(draw.stop(draw.compute()));
            }
        }
        if draw.one_in(4) {
            troubles.push(draw.stop(draw.memory()));
        }
        if draw.one_in(3) {
            for _ in 0..=draw.random.below(2) {
                troubles.push(draw.plane());
            }
        }
        if draw.one_in(8) {
            troubles.push(Trouble::ClockForward(draw.compute(), draw.long()));
        }
        if draw.one_in(8) {
            troubles.push(Trouble::Panic(draw.compute(), draw.task(&TASKS)));
        }
        self.troubles.extend(troubles.into_iter().map(|trouble| (draw.when(), trouble)));
        let leaver = Draw { random: SplitMix::of_stream(seed, LEAVE_STREAM), ..draw };
        if leaver.one_in(6) {
            self.troubles.push((leaver.when(), Trouble::Leave(leaver.compute())));
        }
        self.add_rare(&Draw { random: SplitMix::of_stream(seed, RARE_STREAM), ..leaver });
        if !draw.one_in(8) {
            self.spare_what_is_not_kept(keeps);
        }
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    fn add_rare(&mut self, draw: &Draw) {
        let (kind, at) = (draw.random.below(20), draw.when());
        let trouble = match kind {
            0..=1 => Some(Trouble::Panic(draw.compute(), draw.task(&RARE_TASKS))),
            2 => Some(Trouble::ClockForward(draw.memory(), draw.long())),
            3..=4 => draw.standing_clock(&self.troubles),
            _ => None,
        };
        self.troubles.extend(trouble.map(|trouble| (at, trouble)));
    }

    /// Adds troubles of any length to a run whose nodes have no leases, so that nothing ends by
    /// them: all goes on when they are over.
    pub(crate) fn prolong(&mut self, seed: u64, memory_nodes: u16, compute_nodes: u16) {
        let draw = Draw {
            random: SplitMix::of_stream(seed, LONG_STREAM),
            memory_nodes: u64::from(memory_nodes),
            compute_nodes: u64::from(compute_nodes),
        };
        self.cost.unreachable_after = UNREACHABLE_AFTER;
        let mut troubles = Vec::new();
        if draw.one_in(2) {
            for _ in 0..=draw.random.below(2) {
                troubles.extend(draw.cut());
            }
        }
        if draw.one_in(2) {
            troubles.push(draw.stop(draw.compute()));
        }
        if draw.one_in(2) {
            troubles.push(draw.stop(draw.memory()));
        }
        if draw.one_in(8) {
            troubles.push(Trouble::ClockForward(draw.compute(), draw.long()));
        }
        if draw.one_in(8) {
            let how = if draw.one_in(2) { ClockGoesOn::Right } else { ClockGoesOn::Behind };
            troubles.push(Trouble::ClockStands(draw.compute(), draw.long(), how));
        }
        self.troubles.extend(troubles.into_iter().map(|trouble| (draw.when(), trouble)));
        self.troubles.sort_by_key(|(at, _)| *at);
    }

    /// Takes back troubles by which more memory nodes may be taken for dead than the pool survives.
    fn spare_what_is_not_kept(&mut self, keeps: Keeps) {
        let exposed = self.exposed().into_iter().filter(|peer| peer.is_memory());
        let spared: Vec<PeerId> = exposed.skip(keeps.coding.parity()).collect();
        self.troubles.retain(|(_, trouble)| {
            trouble.silences().is_none_or(|(peer, _)| !spared.contains(&peer))
                && !trouble.loses().is_some_and(|peer| spared.contains(&peer))
        });
    }

    /// The nodes that may end by this plan: those that are lost, or silent for too long, or whose
    /// clock or task goes wrong.
    pub(crate) fn exposed(&self) -> Vec<PeerId> {
        let mut silent: BTreeMap<PeerId, Duration> = BTreeMap::new();
        let mut plane_away = Duration::ZERO;
        for (_, trouble) in self.troubles.iter().chain(&self.later) {
            if let Some((peer, long)) = trouble.silences() {
                *silent.entry(peer).or_default() += long;
            }
            if let Some(peer) = trouble.loses() {
                *silent.entry(peer).or_default() += THREAT;
            }
            if let Trouble::Sever(one, other, long) | Trouble::Block(one, other, long) = trouble
                && 4 * *long >= 3 * self.cost.unreachable_after
            {
                // One of both may give its membership up.
                for peer in [one, other].into_iter().filter(|peer| !peer.is_memory()) {
                    *silent.entry(*peer).or_default() += THREAT;
                }
            }
            if let Trouble::PlaneStands(long) = trouble {
                plane_away += *long;
            }
        }
        if plane_away >= PLANE_THREAT && self.troubles.len() > 1 {
            for node in 0..PeerId::MAX_INDEX {
                *silent.entry(PeerId::compute(node)).or_default() += THREAT;
            }
        }
        silent.into_iter().filter(|(_, long)| *long >= THREAT).map(|(peer, _)| peer).collect()
    }

    /// The compute nodes that leave and end: nothing is lost with them.
    pub(crate) fn leavers(&self) -> impl Iterator<Item = PeerId> + '_ {
        self.troubles.iter().filter_map(|(_, trouble)| match trouble {
            Trouble::Leave(peer) => Some(*peer),
            _ => None,
        })
    }

    /// Whether what was acknowledged may be lost by this plan.
    pub(crate) fn may_lose_data(&self, keeps: Keeps) -> bool {
        let exposed = self.exposed();
        let memory = exposed.iter().filter(|peer| peer.is_memory()).count();
        let compute = exposed.len() - memory;
        let is_journalled = keeps.coding.journal() == selkie_pool::Journal::Always;
        memory > keeps.coding.parity()
            || (compute > 0 && !keeps.has_logs && !keeps.finds_losses)
            // A node that died may have held any page whose latch word was lost as well.
            || (compute > 0 && memory > 0 && !(is_journalled && keeps.has_logs))
    }

    /// When all troubles are over, from the start of the load.
    pub(crate) fn over(&self) -> Duration {
        let ends = self.troubles.iter().map(|(at, trouble)| *at + trouble.lasts());
        ends.max().unwrap_or_default()
    }
}

impl Trouble {
    /// The node of which no other can tell meanwhile that it lives, and for how long.
    fn silences(&self) -> Option<(PeerId, Duration)> {
        match *self {
            Self::Pause(peer, long)
            | Self::Freeze(peer, long)
            | Self::Suspend(peer, long)
            | Self::PlaneCut(peer, _, long)
            | Self::ClockForward(peer, long)
            // It finds itself late when its clock goes on.
            | Self::ClockStands(peer, long, _) => Some((peer, long)),
            // It ends.
            Self::Panic(peer, _) => Some((peer, THREAT)),
            _ => None,
        }
    }

    /// Whether others may miss the node meanwhile, or not hear of it.
    fn may_silence(&self, node: PeerId) -> bool {
        match *self {
            Self::Sever(one, other, _) | Self::Block(one, other, _) | Self::Cut(one, other, _) => {
                one == node || other == node
            }
            Self::PlaneStands(_) | Self::PlaneLate(..) => true,
            Self::Slow(..) => false,
            _ => {
                self.silences().is_some_and(|(peer, _)| peer == node)
                    || self.loses() == Some(node)
                    || *self == Self::Leave(node)
            }
        }
    }

    /// For how long it lasts.
    fn lasts(&self) -> Duration {
        match *self {
            Self::Pause(_, long)
            | Self::Freeze(_, long)
            | Self::Suspend(_, long)
            | Self::PlaneCut(_, _, long)
            | Self::PlaneStands(long)
            | Self::PlaneLate(_, long)
            | Self::Cut(_, _, long)
            | Self::Sever(_, _, long)
            | Self::Block(_, _, long)
            | Self::ClockStands(_, long, _) => long,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPS: Keeps = Keeps { coding: Coding::PLAIN, has_logs: true, finds_losses: false };

    fn wide(seed: u64) -> Plan {
        let mut plan = Plan::draw(seed, 3, 3);
        plan.widen(seed, 3, 3, KEEPS);
        plan
    }

    #[test]
    fn wide_plans_follow_from_their_seed_and_meet_every_kind_of_trouble() {
        let plans: Vec<Plan> = (0..1000).map(wide).collect();
        assert_eq!(plans[7], wide(7));
        let having = |what: fn(&Trouble) -> bool| {
            plans.iter().filter(|plan| plan.troubles.iter().any(|(_, own)| what(own))).count()
        };
        let counts = [
            having(|t| matches!(t, Trouble::Sever(..))),
            having(|t| matches!(t, Trouble::Block(from, _, _) if !from.is_memory())),
            having(|t| matches!(t, Trouble::Block(from, _, _) if from.is_memory())),
            having(|t| matches!(t, Trouble::Freeze(peer, _) if !peer.is_memory())),
            having(|t| matches!(t, Trouble::Suspend(..))),
            having(|t| matches!(t, Trouble::Freeze(peer, _) if peer.is_memory())),
            having(|t| matches!(t, Trouble::PlaneStands(_))),
            having(|t| matches!(t, Trouble::PlaneLate(..))),
            having(|t| matches!(t, Trouble::PlaneCut(..))),
            having(|t| matches!(t, Trouble::ClockForward(..))),
            having(|t| matches!(t, Trouble::ClockForward(peer, _) if peer.is_memory())),
            having(|t| matches!(t, Trouble::ClockStands(..))),
            having(|t| matches!(t, Trouble::Panic(..))),
            having(|t| matches!(t, Trouble::Panic(_, task) if RARE_TASKS.contains(task))),
            having(|t| matches!(t, Trouble::Leave(_))),
        ];
        assert!(counts.iter().all(|count| *count > 5), "{counts:?}");
        let long = having(|t| t.lasts() > 4 * LEASE);
        let short = having(|t| matches!(t, Trouble::Sever(_, _, long) if *long < LEASE / 2));
        assert!(long > 50 && short > 20, "{long} {short}");
        let most = plans.iter().filter(|plan| !plan.may_lose_data(KEEPS)).count();
        assert!(most > 700, "{most} of 1000 plans excuse no loss");
    }
}
