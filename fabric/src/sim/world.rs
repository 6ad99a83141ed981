//! The world: runs tasks and events in virtual time on the calling thread.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::controls::Controls;
use super::cost::{CostModel, Faults, nanos};
use super::env::SimEnvironment;
use super::events::Event;
use super::fabric::SimFabric;
use super::network::{Action, Network};
use super::simulation::{Schedule, Simulation};
use super::task::Task;
use super::trace::{Trace, TraceSink};
use crate::api::Fabric;
use crate::env::{Env, TaskError};
use crate::id::PeerId;

/// Virtual time that a yield takes. Without it, a task that waits by yielding would stop the clock.
const YIELD_NANOS: u64 = 100;

/// The settings of a world.
pub struct WorldConfig {
    /// Seed of all random choices.
    pub seed: u64,
    /// What operations cost.
    pub cost: CostModel,
    /// Random faults.
    pub faults: Faults,
    /// Order of the tasks that are ready at the same time.
    pub schedule: Schedule,
    /// Receives the event log.
    pub log: Option<TraceSink>,
}

impl WorldConfig {
    /// A world without faults, with the costs of the paper's network.
    pub fn new(seed: u64) -> Self {
        let (cost, faults) = (CostModel::PAPER, Faults::default());
        Self { seed, cost, faults, schedule: Schedule::Fifo, log: None }
    }
}

/// Why a run ended before its main future did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No event is left that could wake the main future.
    #[error("stuck at {at:?}: every task waits and nothing is under way")]
    Stuck {
        /// Virtual time.
        at: Duration,
    },
    /// The bound was reached.
    #[error("not done within {bound:?} of virtual time")]
    TimeUp {
        /// The bound.
        bound: Duration,
    },
    /// A task panicked, and no task joins it.
    #[error("at {at:?}: {error}")]
    Panicked {
        /// Virtual time.
        at: Duration,
        /// The task and its panic.
        error: TaskError,
    },
}

/// A simulated world. Dropping it drops everything in it.
pub struct World {
    pub(super) simulation: Arc<Simulation>,
}

impl World {
    /// An empty world at time zero.
    pub fn new(config: WorldConfig) -> Self {
        let WorldConfig { seed, cost, faults, schedule, log } = config;
        let network = Network::new(cost, faults, seed, Trace::new(log));
        Self { simulation: Arc::new(Simulation::new(network, seed, schedule)) }
    }

    /// The fabric that connects the world's nodes.
    pub fn fabric(&self) -> Arc<dyn Fabric> {
        Arc::new(SimFabric::new(Arc::clone(&self.simulation)))
    }

    /// The same network as a process of its own sees it: a fence of it holds for its own nodes
    /// alone, and nodes have access cards, as where processes share a network.
    pub fn process_fabric(&self) -> Arc<dyn Fabric> {
        Arc::new(SimFabric::of_process(Arc::clone(&self.simulation)))
    }

    /// The environment outside the nodes, for clients and checkers. Faults do not stop it.
    pub fn env(&self) -> Env {
        Env::new(Arc::new(SimEnvironment::new(Arc::clone(&self.simulation), None)))
    }

    /// The environment of a node that has joined or will join. Its tasks stop while the node is
    /// paused, and for good when it crashes.
    pub fn env_of(&self, peer: PeerId) -> Env {
        Env::new(Arc::new(SimEnvironment::new(Arc::clone(&self.simulation), Some(peer))))
    }

    /// Controls of nodes and links.
    pub fn controls(&self) -> Controls {
        Controls::of(&self.simulation)
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.simulation.now()
    }

    /// The tasks that are not done, by the node they run on and the name they were spawned with.
    pub fn living_tasks(&self) -> Vec<(Option<PeerId>, &'static str)> {
        let tasks: Vec<_> = self.simulation.tasks.lock().iter().filter_map(Weak::upgrade).collect();
        let network = self.simulation.network.lock();
        tasks.iter().map(|task| (task.node.map(|n| network.node(n).id), task.name)).collect()
    }

    /// A hash of all events so far: the same for every run of one seed.
    pub fn trace_hash(&self) -> u64 {
        self.simulation.network.lock().trace.hash()
    }

    /// Runs until `main` is done, at most to the virtual time `bound`.
    ///
    /// # Errors
    /// [`RunError`]. The world can then still be inspected and run.
    #[expect(clippy::expect_used, reason = "what is over has left its output")]
    pub fn run<T>(&self, bound: Duration, main: impl Future<Output = T>) -> Result<T, RunError> {
        let mut output = None;
        self.drive(bound, pin!(async { output = Some(main.await) }))?;
        Ok(output.expect("the future is done"))
    }

    /// Of no type parameter: the loop is compiled once, not for each future.
    fn drive(
        &self,
        bound: Duration,
        mut main: Pin<&mut dyn Future<Output = ()>>,
    ) -> Result<(), RunError> {
        let simulation = &self.simulation;
        let own = Task::new(None, "main", &simulation.ready, None);
        let waker = Waker::from(Arc::clone(&own));
        waker.wake_by_ref();
        loop {
            let next = simulation.ready.take(|count| match simulation.schedule {
                Schedule::Fifo => 0,
                Schedule::Random => simulation.random.below(count as u64) as usize,
            });
            let Some(task) = next else {
                self.next_events(bound)?;
                continue;
            };
            if self.parks(&task) {
                continue;
            }
            simulation.ready.begin(&task);
            if simulation.any_planted.load(Ordering::Relaxed) {
                *simulation.current.lock() = Some((task.node, task.name));
            }
            let pending = if Arc::ptr_eq(&task, &own) {
                match main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(()) => {
                        simulation.ready.end(&task);
                        return Ok(());
                    }
                    Poll::Pending => true,
                }
            } else {
                task.poll()
            };
            if simulation.ready.end(&task) && pending {
                let mut network = simulation.network.lock();
                let at = network.now + YIELD_NANOS;
                network.schedule(at, Event::Wake(Waker::from(task)));
            }
            if let Some(error) = simulation.panicked.lock().take() {
                return Err(RunError::Panicked { at: self.now(), error });
            }
        }
    }

    /// Parks a task of a node that is paused or crashed. Returns whether it did.
    fn parks(&self, task: &Arc<Task>) -> bool {
        let Some(index) = task.node else { return false };
        if !self.simulation.any_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let mut network = self.simulation.network.lock();
        let node = network.node_mut(index);
        if node.paused {
            node.parked.push(Arc::clone(task));
        }
        node.paused || node.crashed
    }

    /// Executes events, up to the first that needs an action outside the network.
    fn next_events(&self, bound: Duration) -> Result<(), RunError> {
        let bound_nanos = nanos(bound);
        let action = {
            let mut network = self.simulation.network.lock();
            loop {
                let at = Duration::from_nanos(network.now);
                let next = network.next_at().ok_or(RunError::Stuck { at })?;
                if next > bound_nanos {
                    return Err(RunError::TimeUp { bound });
                }
                let action = network.step();
                self.simulation.clock.store(network.now, Ordering::Relaxed);
                if !matches!(action, Some(Action::Nothing)) {
                    break action;
                }
            }
        };
        match action {
            Some(Action::Wake(waker)) => waker.wake(),
            Some(Action::Fill(flight)) => {
                let (slot, result) = flight.finish();
                slot.fill(result);
            }
            Some(Action::Ring(node, at)) => {
                if let Ok(region) = node.region(at) {
                    region.doorbell().ring();
                }
            }
            Some(Action::Call(call)) => call(),
            Some(Action::Nothing) | None => {}
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Futures and buffers are dropped without locks: their destructors may post.
        self.simulation.network.lock().stopped = true;
        let tasks = std::mem::take(&mut *self.simulation.tasks.lock());
        for task in tasks.iter().filter_map(Weak::upgrade) {
            drop(task.abandon());
        }
        let events = self.simulation.network.lock().clear();
        drop(events);
        drop(self.simulation.ready.clear());
        let parked: Vec<_> = {
            let mut network = self.simulation.network.lock();
            network.nodes.iter_mut().map(|node| std::mem::take(&mut node.parked)).collect()
        };
        drop(parked);
    }
}
