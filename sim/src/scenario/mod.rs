//! Scenarios: what clients do on a simulated cluster, and what must hold whatever goes wrong.

mod bank;
mod counter;
mod ring;
mod tpcc;
mod tree;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::EngineConfig;
use selkie_fabric::PeerId;
use selkie_fabric::env::SplitMix;
use selkie_fabric::sim::TraceSink;

use crate::cluster::{Shape, SimCluster};
use crate::error::{Failure, SimError};
use crate::plan::Plan;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Increments and reads of a counter in each of some pages, latched in every way, some given up
    /// half-way. The history of each page is linearizable, no page is seen torn.
    Counter,
    /// Transfers between accounts, audits of all accounts. No money is made or lost, and the history
    /// is strictly serializable.
    Bank,
    /// Inserts, updates, deletes, lookups and scans on one tree from all nodes, against an oracle.
    Tree,
    /// TPC-C, scaled down, and its consistency conditions.
    Tpcc,
    /// Messages from everybody to everybody: none lost, doubled, damaged or out of order.
    Ring,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 5] =
        [Scenario::Counter, Scenario::Bank, Scenario::Tree, Scenario::Tpcc, Scenario::Ring];

    /// What it is called on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Counter => "counter",
            Scenario::Bank => "bank",
            Scenario::Tree => "tree",
            Scenario::Tpcc => "tpcc",
            Scenario::Ring => "ring",
        }
    }

    /// The scenario that a sweep over all of them runs with `seed`: TPC-C takes longer than the
    /// others and gets fewer.
    pub fn of_seed(seed: u64) -> Scenario {
        match seed % 16 {
            0 => Scenario::Tpcc,
            1..=5 => Scenario::Counter,
            6..=9 => Scenario::Bank,
            10..=13 => Scenario::Tree,
            _ => Scenario::Ring,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No scenario has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no scenario {0:?}; there are counter, bank, tree, tpcc, ring")]
pub struct UnknownScenario(pub String);

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(name: &str) -> Result<Self, UnknownScenario> {
        let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.ok_or_else(|| UnknownScenario(name.to_owned()))
    }
}

/// What a run that went well did.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// What was run.
    pub scenario: Scenario,
    /// From which seed.
    pub seed: u64,
    /// Under which faults.
    pub plan: Plan,
    /// Hash of everything that happened.
    pub trace_hash: u64,
    /// Virtual time it took.
    pub virtual_time: Duration,
    /// Operations that clients completed.
    pub operations: u64,
    /// Clients that ended in a typed error, which only a lost node excuses.
    pub gave_up: u64,
}

/// Changes the configuration of a scenario's engines.
pub type Tune<'t> = dyn Fn(&mut EngineConfig) + 't;

/// Runs `scenario` with `seed`, under the faults drawn from it.
///
/// # Errors
/// What does not hold, with all it takes to see it again.
pub fn run(scenario: Scenario, seed: u64, log: Option<TraceSink>) -> Result<Summary, Box<Failure>> {
    run_with(scenario, seed, &scenario.plan(seed), &|_| {}, log)
}

/// [`run`] under faults of the caller's choice, with engines configured by `tune`, which is given
/// the scenario's own configuration (TPC-C and the rings have none).
///
/// # Errors
/// As [`run`].
pub fn run_with(
    scenario: Scenario,
    seed: u64,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<Summary, Box<Failure>> {
    let outcome = match scenario {
        Scenario::Counter => counter::run(seed, plan, tune, log),
        Scenario::Bank => bank::run(seed, plan, tune, log),
        Scenario::Tree => tree::run(seed, plan, tune, log),
        Scenario::Tpcc => tpcc::run(seed, plan, log),
        Scenario::Ring => ring::run(seed, plan, log),
    };
    match outcome {
        Ok(Done { trace_hash, virtual_time, operations, gave_up }) => Ok(Summary {
            scenario,
            seed,
            plan: plan.clone(),
            trace_hash,
            virtual_time,
            operations,
            gave_up,
        }),
        Err(error) => Err(Box::new(Failure { scenario, seed, plan: plan.clone(), error })),
    }
}

/// Memory nodes of every scenario.
const MEMORY_NODES: u16 = 3;

impl Scenario {
    /// What goes wrong in the run of `seed`.
    pub fn plan(self, seed: u64) -> Plan {
        let mut plan = Plan::draw(seed, MEMORY_NODES, self.compute_nodes(seed));
        if self == Scenario::Tpcc {
            // The driver waits for its workers on all nodes, and those of a lost one never end.
            plan.spare_compute_nodes();
        }
        plan
    }

    /// Compute nodes: two to four, by the seed.
    fn compute_nodes(self, seed: u64) -> u16 {
        2 + (seed / 16 % 3) as u16
    }
}

/// What a scenario reports.
struct Done {
    trace_hash: u64,
    virtual_time: Duration,
    operations: u64,
    gave_up: u64,
}

/// What the clients of a run report to.
#[derive(Default)]
struct Tally {
    operations: u64,
    gave_up: u64,
    first_error: Option<SimError>,
}

/// Clients of one cluster, each on a compute node.
struct Clients<'c> {
    cluster: &'c SimCluster,
    tally: Arc<Mutex<Tally>>,
    /// The node of each client, and whether the client is done.
    running: Vec<(usize, selkie_fabric::env::TaskHandle)>,
}

impl<'c> Clients<'c> {
    fn new(cluster: &'c SimCluster) -> Self {
        Self { cluster, tally: Arc::default(), running: Vec::new() }
    }

    /// Starts a client on compute node `node`; it returns how many operations it completed.
    fn spawn<F>(&mut self, node: usize, name: &'static str, client: F)
    where
        F: Future<Output = Result<u64, SimError>> + Send + 'static,
    {
        let tally = Arc::clone(&self.tally);
        let task = self.cluster.env_of(node).spawn(name, async move {
            let result = client.await;
            let mut tally = tally.lock();
            match result {
                Ok(operations) => tally.operations += operations,
                Err(error) => {
                    tally.gave_up += 1;
                    tally.first_error.get_or_insert(error);
                }
            }
        });
        self.running.push((node, task));
    }

    /// Waits for the clients of all nodes but those that `plan` loses. Without a lost node an error
    /// of a client is the run's.
    async fn finish(self, plan: &Plan) -> Result<Tally, SimError> {
        let lost = plan.lost();
        for (node, task) in self.running {
            if lost.contains(&PeerId::compute(node as u16)) {
                task.detach();
                continue;
            }
            task.join().await.map_err(|error| SimError::Broken(error.to_string()))?;
        }
        let mut tally = std::mem::take(&mut *self.tally.lock());
        let broken = matches!(tally.first_error, Some(SimError::Broken(_)));
        match tally.first_error.take() {
            Some(error) if lost.is_empty() || broken => Err(error),
            _ => Ok(tally),
        }
    }
}

/// Fails the run, saying what was claimed, unless `holds`.
fn ensure(holds: bool, claim: impl FnOnce() -> String) -> Result<(), SimError> {
    if holds { Ok(()) } else { Err(SimError::Broken(claim())) }
}

/// The generator of one client.
fn client_random(seed: u64, client: usize) -> SplitMix {
    SplitMix::of_stream(seed, 1000 + client as u64)
}

/// The report of a cluster's run.
/// Starts the scenario's cluster as `shaped`, on top of what is usual.
fn start(
    scenario: Scenario,
    seed: u64,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
    shaped: impl FnOnce(&mut Shape),
) -> Result<SimCluster, SimError> {
    let nodes = usize::from(scenario.compute_nodes(seed));
    let mut shape = Shape::small(usize::from(MEMORY_NODES), nodes);
    shape.engine.mail_tasks = plan.cost.mail_threads as usize;
    shaped(&mut shape);
    tune(&mut shape.engine);
    SimCluster::start(seed, plan, &shape, log)
}

fn done(cluster: &SimCluster, tally: &Tally) -> Done {
    Done {
        trace_hash: cluster.world.trace_hash(),
        virtual_time: cluster.world.now(),
        operations: tally.operations,
        gave_up: tally.gave_up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_go_by_their_names() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
            assert!(UnknownScenario(String::new()).to_string().contains(scenario.name()));
        }
        assert!("Counter".parse::<Scenario>().is_err());
    }
}
