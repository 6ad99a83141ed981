//! The compute nodes that a process runs, for reports and metrics while they work.
//!
//! The program that starts an engine enters it, with what else counts its work. Observers read the
//! counters of all that are entered, as often as he likes. Nothing is counted for that: it reads
//! what engine and fabric count anyway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::PeerId;
use selkie_fabric::meter::{Meter, MeterSnapshot};

use crate::{ComputeId, Engine, EngineStats, HotLine};

/// Operations that a node's user has completed so far.
pub type Operations = Arc<dyn Fn() -> u64 + Send + Sync>;

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
    operations: Option<Operations>,
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
    /// Operations that its user has completed, if he says.
    pub operations: Option<u64>,
    /// Its hottest lines, the hottest first: see [`Engine::hottest`].
    pub hottest: Vec<HotLine>,
}

impl Roster {
    /// Enters a node until the value returned is dropped; with the meter it works through, if it
    /// does, and what says how many operations its user has completed.
    #[must_use = "dropping it takes the node out again"]
    pub fn enter(
        &self,
        engine: &Engine,
        meter: Option<Arc<Meter>>,
        operations: Option<Operations>,
    ) -> Entered {
        let entry = Entry { engine: engine.clone(), meter, operations };
        let mut entries = self.0.lock();
        let number = entries.next;
        entries.next += 1;
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

impl Entry {
    fn counters(&self, hottest: usize) -> NodeCounters {
        let Self { engine, meter, operations } = self;
        let peer = PeerId::compute(engine.node().index() as u16);
        NodeCounters {
            node: engine.node(),
            at: engine.env().now(),
            engine: engine.stats(),
            traffic: meter.as_ref().map(|meter| meter.snapshot(peer)),
            operations: operations.as_ref().map(|operations| operations()),
            hottest: engine.hottest(hottest),
        }
    }
}

/// A node is in a roster, and its engine kept, for as long as this is.
pub struct Entered {
    roster: Roster,
    number: u64,
}

impl Drop for Entered {
    fn drop(&mut self) {
        let entry = self.roster.0.lock().nodes.remove(&self.number);
        // The last handle of an engine may go with it: not under the lock.
        drop(entry);
    }
}
