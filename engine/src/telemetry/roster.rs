//! The compute nodes that a process runs, for reports and metrics while they work.
//!
//! The program that starts an engine enters it, with what else counts its work. Observers read the
//! counters of all that are entered, as often as they like. Nothing is counted for that: it
//! reads what engine, fabric and users count anyway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;
use selkie_fabric::meter::{Meter, MeterSnapshot};

use crate::{ComputeId, Engine, EngineStats, HotLine};

/// What a node's user has done so far, as it counts itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UserCounters {
    /// Operations completed, as committed transactions.
    pub operations: u64,
    /// Row locks that were waited for.
    pub lock_waits: u64,
    /// How long, all waits together that have ended.
    pub lock_wait_time: Duration,
    /// Transactions that gave up as they waited for each other.
    pub deadlocks: u64,
    /// Transactions that gave up as a row lock was not had in time.
    pub lock_timeouts: u64,
    /// Row locks that were not available to those who were not to wait.
    pub lock_refusals: u64,
    /// Turns at rows that many transactions change that were waited for.
    pub turn_waits: u64,
    /// How long, all waits together that have ended.
    pub turn_wait_time: Duration,
    /// Turns that were lost as they lasted too long.
    pub turns_lost: u64,
    /// Turns that were not waited for, as that would have closed a circle.
    pub turn_circles: u64,
    /// Transactions that ended as their snapshot was too old.
    pub snapshots_too_old: u64,
}

/// What says so.
pub type UserCounts = Arc<dyn Fn() -> UserCounters + Send + Sync>;

/// The compute nodes of a process. A cheap handle; there may be several rosters in a process.
#[derive(Clone, Default)]
pub struct Roster(Arc<Mutex<Entries>>);

#[derive(Default)]
struct Entries {
    next: u64,
    nodes: BTreeMap<u64, Entry>,
}

struct Entry {
    engine: Engine,
    meter: Option<Arc<Meter>>,
    users: BTreeMap<u64, UserCounts>,
    /// What those counted who are not there any more, if there were some.
    past: Option<UserCounters>,
}

/// What a node has done since its start.
#[derive(Clone, Debug)]
pub struct NodeCounters {
    /// The node.
    pub node: ComputeId,
    /// When, by the clock of the node's environment.
    pub at: Duration,
    /// What its engine counts.
    pub engine: EngineStats,
    /// Its counts of fabric operations, if these are metered.
    pub traffic: Option<MeterSnapshot>,
    /// What its users have done, all together, if one says.
    pub user: Option<UserCounters>,
    /// Its hottest lines, the hottest first: see [`Engine::hottest`].
    pub hottest: Vec<HotLine>,
}

impl Roster {
    /// Enters a node until the value returned is dropped; with the meter it works through, if it
    /// does, and what says what its user has done, if it is known by now.
    #[must_use = "dropping it takes the node out again"]
    pub fn enter(
        &self,
        engine: &Engine,
        meter: Option<Arc<Meter>>,
        user: Option<UserCounts>,
    ) -> Entered {
        let mut entries = self.0.lock();
        let number = entries.number();
        let users = user.map(|user| (number, user)).into_iter().collect();
        let entry = Entry { engine: engine.clone(), meter, users, past: None };
        entries.nodes.insert(number, entry);
        Entered { roster: self.clone(), number }
    }

    /// What the nodes have done, with at most `hottest` of their hottest lines, in the order they
    /// were entered.
    #[must_use]
    pub fn counters(&self, hottest: usize) -> Vec<NodeCounters> {
        self.0.lock().nodes.values().map(|entry| entry.counters(hottest)).collect()
    }
}

impl Entries {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl UserCounters {
    fn add(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            lock_waits: self.lock_waits + other.lock_waits,
            lock_wait_time: self.lock_wait_time + other.lock_wait_time,
            deadlocks: self.deadlocks + other.deadlocks,
            lock_timeouts: self.lock_timeouts + other.lock_timeouts,
            lock_refusals: self.lock_refusals + other.lock_refusals,
            turn_waits: self.turn_waits + other.turn_waits,
            turn_wait_time: self.turn_wait_time + other.turn_wait_time,
            turns_lost: self.turns_lost + other.turns_lost,
            turn_circles: self.turn_circles + other.turn_circles,
            snapshots_too_old: self.snapshots_too_old + other.snapshots_too_old,
        }
    }
}

impl Entry {
    fn counters(&self, hottest: usize) -> NodeCounters {
        let Self { engine, meter, users, past } = self;
        let peer = PeerId::compute(engine.node().index() as u16);
        NodeCounters {
            node: engine.node(),
            at: engine.env().now(),
            engine: engine.stats(),
            traffic: meter.as_ref().map(|meter| meter.snapshot(peer)),
            user: users.values().map(|user| user()).chain(*past).reduce(UserCounters::add),
            hottest: engine.hottest(hottest),
        }
    }
}

/// A node is in a roster, and its engine kept, for as long as this is.
pub struct Entered {
    roster: Roster,
    number: u64,
}

impl Entered {
    /// Adds one more who uses the node, until the value returned is dropped. What it has counted
    /// until then stays, so that counters never go down.
    #[must_use = "dropping it takes the user out again"]
    pub fn add_user(&self, user: UserCounts) -> EnteredUser {
        let mut entries = self.roster.0.lock();
        let number = entries.number();
        if let Some(entry) = entries.nodes.get_mut(&self.number) {
            entry.users.insert(number, user);
        }
        EnteredUser { roster: self.roster.clone(), node: self.number, number }
    }
}

/// Who uses a node is in a roster for as long as this is.
pub struct EnteredUser {
    roster: Roster,
    node: u64,
    number: u64,
}

impl Drop for EnteredUser {
    fn drop(&mut self) {
        let mut entries = self.roster.0.lock();
        let Some(entry) = entries.nodes.get_mut(&self.node) else { return };
        let Some(user) = entry.users.remove(&self.number) else { return };
        entry.past = Some(entry.past.unwrap_or_default().add(user()));
        drop(entries);
        // It may hold the last handle of the engine: not under the lock.
        drop(user);
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let entry = self.roster.0.lock().nodes.remove(&self.number);
        // The last handle of an engine may go with it: not under the lock.
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_users_count_is_added_up() {
        let counted = |first| UserCounters {
            operations: first,
            lock_waits: first + 1,
            lock_wait_time: Duration::from_micros(first + 2),
            deadlocks: first + 3,
            lock_timeouts: first + 4,
            lock_refusals: first + 5,
            snapshots_too_old: first + 6,
            turn_waits: first + 7,
            turn_wait_time: Duration::from_micros(first + 8),
            turns_lost: first + 9,
            turn_circles: first + 10,
        };
        let sum = UserCounters {
            operations: 110,
            lock_waits: 112,
            lock_wait_time: Duration::from_micros(114),
            deadlocks: 116,
            lock_timeouts: 118,
            lock_refusals: 120,
            snapshots_too_old: 122,
            turn_waits: 124,
            turn_wait_time: Duration::from_micros(126),
            turns_lost: 128,
            turn_circles: 130,
        };
        assert_eq!(counted(10).add(counted(100)), sum);
    }
}
