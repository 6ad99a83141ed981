//! Scenarios: what clients do on a simulated cluster, and what must hold whatever goes wrong.

mod bank;
mod case;
mod corruption;
mod counter;
mod crash;
mod deaths;
mod history;
mod memnode_loss;
mod pages;
mod ring;
mod slab_eviction;
mod straggler;
mod tpcc;
mod tree;

pub use case::{Case, Refused, RefusedProtocol};
pub use history::{Recorded, history};

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::EngineConfig;
use selkie_fabric::PeerId;
use selkie_fabric::env::{SplitMix, TaskError};
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
    /// Transfers between accounts, audits of all accounts. No money is made or lost, and the
    /// history is strictly serializable.
    Bank,
    /// Transactions of every kind by each of the protocols: reads, writes, deletes and scans of
    /// registers, by their keys and by an index, appends to lists, savepoints. The history is
    /// strictly serializable.
    History,
    /// Inserts, updates, deletes, lookups and scans on one tree from all nodes, against an oracle.
    Tree,
    /// TPC-C, scaled down, and its consistency conditions.
    Tpcc,
    /// Messages from everybody to everybody: none lost, doubled, damaged or out of order.
    Ring,
    /// As many memory nodes of a coded pool as that has parity splits die under one of the loads
    /// above, and, when what they had is made again, as many others. Nobody notices, and nothing is
    /// lost, but what a compute node had changed that died as well.
    MemnodeLoss,
    /// The same under TPC-C, where the seeds go through all choices of those that die: first of the
    /// first, with each of the codings, then of the others.
    TpccLoss,
    /// Bits of splits change by themselves. No page is read that is not what was written; where
    /// damage is to be corrected it is, all of it.
    Corruption,
    /// Memory nodes answer many times slower, for a while. Pages are what they should be.
    Straggler,
    /// Hosts of memory nodes run short of memory, so that slabs are evicted, and lent again later.
    /// Nobody notices, and nothing is lost, but what a compute node had changed that died.
    SlabEviction,
    /// Compute nodes with logs die under transfers between accounts: one, also those that recover
    /// from it, or all; at any time, verb, or append to a log. Others go on, nothing that was
    /// acknowledged is lost, and nothing else is half there. In some runs the pool is lost as well,
    /// and made again from the logs.
    Crash,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 12] = [
        Scenario::Counter,
        Scenario::Bank,
        Scenario::History,
        Scenario::Tree,
        Scenario::Tpcc,
        Scenario::Ring,
        Scenario::MemnodeLoss,
        Scenario::TpccLoss,
        Scenario::Corruption,
        Scenario::Straggler,
        Scenario::SlabEviction,
        Scenario::Crash,
    ];

    /// What it is called on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Counter => "counter",
            Scenario::Bank => "bank",
            Scenario::History => "history",
            Scenario::Tree => "tree",
            Scenario::Tpcc => "tpcc",
            Scenario::Ring => "ring",
            Scenario::MemnodeLoss => "memnode-loss",
            Scenario::TpccLoss => "tpcc-loss",
            Scenario::Corruption => "corruption",
            Scenario::Straggler => "straggler",
            Scenario::SlabEviction => "slab-eviction",
            Scenario::Crash => "crash",
        }
    }

    /// The scenario that a sweep over all of them runs with `seed`: those that take longer than the
    /// others get fewer.
    pub fn of_seed(seed: u64) -> Scenario {
        match seed % 20 {
            0 => Scenario::Tpcc,
            1..=4 => Scenario::Counter,
            5 => Scenario::Crash,
            9 => Scenario::History,
            6..=8 => Scenario::Bank,
            10..=13 => Scenario::Tree,
            14 => Scenario::Ring,
            15 => Scenario::SlabEviction,
            16..=17 => Scenario::MemnodeLoss,
            18 => Scenario::Corruption,
            _ => Scenario::Straggler,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No scenario has that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScenario(pub String);

impl std::error::Error for UnknownScenario {}

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Scenario::ALL.map(Scenario::name).join(", ");
        write!(f, "there is no scenario {:?}; there are {names}", self.0)
    }
}

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
    pub case: Case,
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

/// Runs `case` under the faults drawn from its seed.
///
/// # Errors
/// What does not hold, with all it takes to see it again.
pub fn run(case: Case, log: Option<TraceSink>) -> Result<Summary, Box<Failure>> {
    run_with(case, &case.plan(), &|_| {}, log)
}

/// [`run`] under faults of the caller's choice, with engines configured by `tune`, which is given
/// the scenario's own configuration (TPC-C and the rings have none).
///
/// # Errors
/// As [`run`].
pub fn run_with(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<Summary, Box<Failure>> {
    let outcome = match case.scenario {
        Scenario::Counter => counter::run(case, plan, tune, log),
        Scenario::Bank => bank::run(case, plan, tune, log),
        Scenario::History => history::run(case, plan, tune, log),
        Scenario::Tree => tree::run(case, plan, tune, log),
        Scenario::Tpcc => tpcc::run(case, plan, log),
        Scenario::Ring => ring::run(case, plan, log),
        Scenario::MemnodeLoss | Scenario::TpccLoss => memnode_loss::run(case, plan, tune, log),
        Scenario::Corruption => corruption::run(case, plan, tune, log),
        Scenario::Straggler => straggler::run(case, plan, tune, log),
        Scenario::SlabEviction => slab_eviction::run(case, plan, tune, log),
        Scenario::Crash => crash::run(case, plan, tune, log),
    };
    match outcome {
        Ok(Done { trace_hash, virtual_time, operations, gave_up }) => {
            Ok(Summary { case, plan: plan.clone(), trace_hash, virtual_time, operations, gave_up })
        }
        Err(error) => Err(Box::new(Failure { case, plan: plan.clone(), error })),
    }
}

/// Memory nodes of a scenario, at least.
const LEAST_MEMORY_NODES: u16 = 3;
/// How often who waits for clients looks whether their node is lost.
const LOOK_EVERY: Duration = Duration::from_micros(100);

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

impl Tally {
    /// Takes over what others did.
    fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.gave_up += other.gave_up;
    }
}

/// The nodes that are lost for good, also those of which nobody knew beforehand.
#[derive(Clone, Default)]
struct Gone(Arc<Mutex<Losses>>);

#[derive(Default)]
struct Losses {
    nodes: BTreeSet<PeerId>,
    are_over: bool,
}

impl Gone {
    /// Whether it may be lost: not at the end any more, when the others leave.
    fn add(&self, peer: PeerId) -> bool {
        let mut losses = self.0.lock();
        if !losses.are_over {
            losses.nodes.insert(peer);
        }
        !losses.are_over
    }

    fn has_compute(&self, node: usize) -> bool {
        self.0.lock().nodes.contains(&PeerId::compute(node as u16))
    }

    fn all(&self) -> Vec<PeerId> {
        self.0.lock().nodes.iter().copied().collect()
    }

    /// All that are lost, as no others will be.
    fn end(&self) -> Vec<PeerId> {
        self.0.lock().are_over = true;
        self.all()
    }
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

    /// Waits for the clients of all nodes but the lost ones. Without a lost node an error of a
    /// client is the run's.
    async fn finish(self, lost: &[PeerId]) -> Result<Tally, SimError> {
        let gone = Gone::default();
        gone.0.lock().nodes.extend(lost);
        match self.join(&gone).await? {
            (_, Some(error)) if lost.is_empty() || matches!(error, SimError::Broken(_)) => {
                Err(error)
            }
            (tally, _) => Ok(tally),
        }
    }

    /// As [`Clients::finish`], where a lost node is no excuse for the clients of the others, and
    /// may be lost on the way.
    async fn finish_all(self, gone: &Gone) -> Result<Tally, SimError> {
        let (tally, error) = self.join(gone).await?;
        error.map_or(Ok(tally), Err)
    }

    async fn join(self, gone: &Gone) -> Result<(Tally, Option<SimError>), SimError> {
        let env = self.cluster.world.env();
        for (node, task) in self.running {
            let mut joined = pin!(task.join());
            let ended = loop {
                if gone.has_compute(node) {
                    // Its clients have stopped with it.
                    break Ok(());
                }
                let mut look_again = pin!(env.sleep(LOOK_EVERY));
                let ended = poll_fn(|context| match joined.as_mut().poll(context) {
                    Poll::Ready(ended) => Poll::Ready(Some(ended)),
                    Poll::Pending => look_again.as_mut().poll(context).map(|()| None),
                });
                if let Some(ended) = ended.await {
                    break ended;
                }
            };
            match ended {
                // Its node is lost.
                Ok(()) | Err(TaskError::Cancelled { .. }) => {}
                Err(error) => return Err(SimError::Broken(error.to_string())),
            }
        }
        let mut tally = std::mem::take(&mut *self.tally.lock());
        let error = tally.first_error.take();
        Ok((tally, error))
    }
}

/// Fails the run, saying what was claimed, unless `holds`.
fn ensure(holds: bool, claim: impl FnOnce() -> String) -> Result<(), SimError> {
    if holds { Ok(()) } else { Err(SimError::Broken(claim())) }
}

/// One of some choices for a run, which the seed draws from a stream of its own: the remainders of
/// seeds say already which scenario they run in a sweep over all, and would leave each scenario
/// some of the choices only.
fn drawn<T>(seed: u64, stream: u64, choices: &[T]) -> Option<&T> {
    let number = SplitMix::of_stream(seed, stream).below(choices.len() as u64);
    choices.get(usize::try_from(number).ok()?)
}

/// The generator of one client.
fn client_random(seed: u64, client: usize) -> SplitMix {
    SplitMix::of_stream(seed, 1000_u64.wrapping_add(client as u64))
}

/// Starts the scenario's cluster as `shaped`, on top of what is usual.
fn start(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
    shaped: impl FnOnce(&mut Shape),
) -> Result<SimCluster, SimError> {
    let nodes = usize::from(case.compute_nodes());
    let mut shape = Shape::small(usize::from(case.memory_nodes()), nodes);
    shape.coding = case.coding();
    shape.engine.mail_tasks = plan.cost.mail_threads as usize;
    shaped(&mut shape);
    tune(&mut shape.engine);
    SimCluster::start(case.seed, plan, &shape, log)
}

/// The report of a cluster's run.
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

    /// The codings that a sweep over all scenarios runs this one with.
    fn codings(scenario: Scenario, seeds: std::ops::Range<u64>) -> BTreeSet<String> {
        let own = seeds.filter(|seed| Scenario::of_seed(*seed) == scenario);
        own.map(|seed| Case::of(scenario, seed).coding().to_string()).collect()
    }

    #[test]
    fn a_sweep_over_all_scenarios_has_every_shape_of_each() {
        for (scenario, shapes) in [
            (Scenario::MemnodeLoss, &memnode_loss::SHAPES.map(|(coding, _)| coding)[..]),
            (Scenario::Corruption, &corruption::CODINGS),
            (Scenario::Straggler, &straggler::CODINGS),
            (Scenario::SlabEviction, &slab_eviction::CODINGS),
            (Scenario::Crash, &crash::CODINGS),
        ] {
            let seen = codings(scenario, 0..1000);
            for shape in shapes {
                let coding: selkie_memnode::Coding = shape.parse().unwrap();
                assert!(seen.contains(&coding.to_string()), "{scenario}: {shape} not in {seen:?}");
            }
        }
        let journals = codings(Scenario::MemnodeLoss, 0..400);
        assert!(journals.iter().any(|coding| coding.contains("journal=always")), "{journals:?}");
    }

    #[test]
    fn scenarios_go_by_their_names() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
            assert!(UnknownScenario(String::new()).to_string().contains(scenario.name()));
        }
        assert!("Counter".parse::<Scenario>().is_err());
    }
}
