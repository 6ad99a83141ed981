//! The world: runs tasks and events in virtual time on the calling thread, and does what fault
//! plans ask of nodes and links.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::cost::{CostModel, Faults, nanos};
use super::env::SimEnvironment;
use super::events::Event;
use super::fabric::SimFabric;
use super::network::{After, Network};
use super::parts::{Busy, SimNode};
use super::task::{ReadyQueue, Task};
use super::trace::{Trace, TraceEvent, TraceSink};
use crate::api::Fabric;
use crate::env::{BoxFuture, Env, SplitMix, TaskError};
use crate::id::PeerId;

/// What a task that yields to others costs: time must pass, or those who wait by yielding would
/// stop the clock.
const YIELD_NANOS: u64 = 100;

/// Which of the tasks that are ready at one moment goes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// The one that has been ready longest.
    #[default]
    Fifo,
    /// Any of them, by chance: for finding what depends on the order.
    Random,
}

/// How a world is made.
pub struct WorldConfig {
    /// Where all chance comes from.
    pub seed: u64,
    /// What operations cost.
    pub cost: CostModel,
    /// What goes wrong by chance.
    pub faults: Faults,
    /// Order of tasks that are ready at one moment.
    pub schedule: Schedule,
    /// Takes the event log, if anybody reads it.
    pub log: Option<TraceSink>,
}

impl WorldConfig {
    /// A world without faults at the costs of the paper's network.
    pub fn new(seed: u64) -> Self {
        let (cost, faults) = (CostModel::PAPER, Faults::default());
        Self { seed, cost, faults, schedule: Schedule::Fifo, log: None }
    }
}

/// Why a run ended before its main future did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Nothing is to come that could wake the main future.
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
    /// A task nobody joined panicked.
    #[error("at {at:?}: {error}")]
    Panicked {
        /// Virtual time.
        at: Duration,
        /// The task and its panic.
        error: TaskError,
    },
}

/// What the parts of a world share.
pub(super) struct Shared {
    pub(super) network: Mutex<Network>,
    /// The network's clock as it was when tasks began to run, for those who only want to know the
    /// time.
    clock: AtomicU64,
    /// Whether any node was ever paused or lost: until then no task need be asked whether its node
    /// runs.
    any_stopped: AtomicBool,
    pub(super) ready: Arc<ReadyQueue>,
    /// Every task that was ever started, to be dropped with the world.
    tasks: Mutex<Vec<Weak<Task>>>,
    pub(super) random: SplitMix,
    schedule: Schedule,
    panicked: Mutex<Option<TaskError>>,
}

impl Shared {
    pub(super) fn now(&self) -> Duration {
        // Relaxed: everything runs on one thread.
        Duration::from_nanos(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn spawn(
        self: &Arc<Self>,
        node: Option<usize>,
        name: &'static str,
        future: BoxFuture<'static, ()>,
    ) {
        if self.network.lock().stopped {
            return drop(future);
        }
        let task = Task::new(node, name, &self.ready, Some(future));
        let mut tasks = self.tasks.lock();
        // Finished tasks are forgotten now and then, so that the list stays as long as they are
        // many.
        if tasks.len() >= 64 && tasks.len() == tasks.capacity() {
            tasks.retain(|task| task.strong_count() > 0);
        }
        tasks.push(Arc::downgrade(&task));
        drop(tasks);
        Waker::from(task).wake();
    }

    pub(super) fn report(&self, failure: &TaskError) {
        self.panicked.lock().get_or_insert_with(|| failure.clone());
    }
}

/// A simulated world. Dropping it drops everything in it.
pub struct World {
    pub(super) shared: Arc<Shared>,
}

impl World {
    /// An empty world at time zero.
    pub fn new(config: WorldConfig) -> Self {
        let WorldConfig { seed, cost, faults, schedule, log } = config;
        let network = Network::new(cost, faults, seed, Trace::new(log));
        let shared = Arc::new(Shared {
            network: Mutex::new(network),
            clock: AtomicU64::new(0),
            any_stopped: AtomicBool::new(false),
            ready: Arc::default(),
            tasks: Mutex::default(),
            random: SplitMix::of_stream(seed, 0),
            schedule,
            panicked: Mutex::new(None),
        });
        Self { shared }
    }

    /// The fabric that connects the world's nodes.
    pub fn fabric(&self) -> Arc<dyn Fabric> {
        Arc::new(SimFabric::new(Arc::clone(&self.shared)))
    }

    /// The environment of what stands outside the nodes: clients, checkers. Nothing stops it.
    pub fn env(&self) -> Env {
        Env::new(Arc::new(SimEnvironment::new(Arc::clone(&self.shared), None)))
    }

    /// The environment of a node that has joined or will join: its tasks stand still while the node
    /// is paused and for ever once it has crashed.
    pub fn env_of(&self, peer: PeerId) -> Env {
        Env::new(Arc::new(SimEnvironment::new(Arc::clone(&self.shared), Some(peer))))
    }

    /// What can be done to nodes and links.
    pub fn controls(&self) -> Controls {
        Controls::of(&self.shared)
    }

    /// Virtual time.
    pub fn now(&self) -> Duration {
        self.shared.now()
    }

    /// The tasks that are not done, by the node they run on and the name they were spawned with.
    pub fn living_tasks(&self) -> Vec<(Option<PeerId>, &'static str)> {
        let tasks: Vec<_> = self.shared.tasks.lock().iter().filter_map(Weak::upgrade).collect();
        let network = self.shared.network.lock();
        tasks.iter().map(|task| (task.node.map(|n| network.node(n).id), task.name)).collect()
    }

    /// A hash of all that happened so far: the same for every run of one seed.
    pub fn trace_hash(&self) -> u64 {
        self.shared.network.lock().trace.hash()
    }

    /// Runs until `main` is done, at most to the virtual time `bound`.
    ///
    /// # Errors
    /// [`RunError`]; the world can then still be looked at, and run further.
    pub fn run<T>(&self, bound: Duration, main: impl Future<Output = T>) -> Result<T, RunError> {
        let shared = &self.shared;
        let mut main = pin!(main);
        let own = Task::new(None, "main", &shared.ready, None);
        let waker = Waker::from(Arc::clone(&own));
        waker.wake_by_ref();
        loop {
            let next = shared.ready.take(|count| match shared.schedule {
                Schedule::Fifo => 0,
                Schedule::Random => shared.random.below(count as u64) as usize,
            });
            let Some(task) = next else {
                self.next_events(bound)?;
                continue;
            };
            if self.parks(&task) {
                continue;
            }
            shared.ready.begin(&task);
            let pending = if Arc::ptr_eq(&task, &own) {
                match main.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(output) => {
                        shared.ready.end(&task);
                        return Ok(output);
                    }
                    Poll::Pending => true,
                }
            } else {
                task.poll()
            };
            if shared.ready.end(&task) && pending {
                let mut network = shared.network.lock();
                let at = network.now + YIELD_NANOS;
                network.schedule(at, Event::Wake(Waker::from(task)));
            }
            if let Some(error) = shared.panicked.lock().take() {
                return Err(RunError::Panicked { at: self.now(), error });
            }
        }
    }

    /// Keeps a task of a node that stands still; whether it did.
    fn parks(&self, task: &Arc<Task>) -> bool {
        let Some(index) = task.node else { return false };
        if !self.shared.any_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let mut network = self.shared.network.lock();
        let node = network.node_mut(index);
        if node.paused {
            node.parked.push(Arc::clone(task));
        }
        node.paused || node.crashed
    }

    /// Lets happen what happens next, up to what concerns somebody outside the network.
    fn next_events(&self, bound: Duration) -> Result<(), RunError> {
        let bound_nanos = nanos(bound);
        let after = {
            let mut network = self.shared.network.lock();
            loop {
                let at = Duration::from_nanos(network.now);
                let next = network.next_at().ok_or(RunError::Stuck { at })?;
                if next > bound_nanos {
                    return Err(RunError::TimeUp { bound });
                }
                let after = network.step();
                self.shared.clock.store(network.now, Ordering::Relaxed);
                if !matches!(after, Some(After::Nothing)) {
                    break after;
                }
            }
        };
        match after {
            Some(After::Wake(waker)) => waker.wake(),
            Some(After::Fill(flight)) => {
                let (slot, result) = flight.finish();
                slot.fill(result);
            }
            Some(After::Ring(node, at)) => {
                if let Ok(region) = node.region(at) {
                    region.doorbell().ring();
                }
            }
            Some(After::Call(call)) => call(),
            Some(After::Nothing) | None => {}
        }
        Ok(())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Futures and buffers are dropped outside the locks: their destructors may post.
        self.shared.network.lock().stopped = true;
        let tasks = std::mem::take(&mut *self.shared.tasks.lock());
        for task in tasks.iter().filter_map(Weak::upgrade) {
            drop(task.abandon());
        }
        let events = self.shared.network.lock().clear();
        drop(events);
        drop(self.shared.ready.clear());
        let parked: Vec<_> = {
            let mut network = self.shared.network.lock();
            network.nodes.iter_mut().map(|node| std::mem::take(&mut node.parked)).collect()
        };
        drop(parked);
    }
}

/// Does things to nodes and links. Outlives its world harmlessly.
#[derive(Clone)]
pub struct Controls {
    shared: Weak<Shared>,
}

impl Controls {
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::downgrade(shared) }
    }

    /// Calls `what` at the virtual time `at`.
    pub fn at(&self, at: Duration, what: impl FnOnce(&Controls) + Send + 'static) {
        let controls = self.clone();
        if let Some(shared) = self.shared.upgrade() {
            let call = Box::new(move || what(&controls));
            shared.network.lock().schedule(nanos(at), Event::Call(call));
        }
    }

    /// The node stops for ever: its tasks and, once they have left, its verbs. What it has sent is
    /// still executed. Peers that want something of it get `PeerDead`, after a while.
    pub fn crash(&self, peer: PeerId) {
        self.stop(&format!("{peer} crashes"), peer, |node| node.crashed = true);
    }

    /// The node stops for ever, and nothing of it that is under way is executed any more.
    pub fn kill(&self, peer: PeerId) {
        self.stop(&format!("{peer} is killed"), peer, |node| {
            node.crashed = true;
            node.fenced = true;
        });
    }

    /// As [`Controls::kill`], as soon as `verbs` more verbs of the node have been executed, be it
    /// in the middle of a chain; `None`: not any more.
    pub fn kill_after_verbs(&self, peer: PeerId, verbs: Option<u64>) {
        let what = match verbs {
            Some(verbs) => format!("{peer} is to be killed after {verbs} verbs"),
            None => format!("{peer} is spared"),
        };
        self.stop(&what, peer, |node| node.verbs_left = verbs);
    }

    /// Whether the node has joined and runs, be it paused.
    pub fn lives(&self, peer: PeerId) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let network = shared.network.lock();
        network.names.get(&peer).is_some_and(|index| !network.node(*index).crashed)
    }

    /// The node's tasks stand still; its memory can still be reached.
    pub fn pause(&self, peer: PeerId) {
        self.stop(&format!("{peer} is paused"), peer, |node| node.paused = true);
    }

    /// The node's tasks go on.
    pub fn resume(&self, peer: PeerId) {
        let mut parked = Vec::new();
        self.change(&format!("{peer} goes on"), |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                let node = network.node_mut(index);
                node.paused = false;
                parked = std::mem::take(&mut node.parked);
            }
        });
        for task in parked {
            Waker::from(task).wake();
        }
    }

    /// From now on the node's adapter is so many times slower than the model says.
    pub fn slow(&self, peer: PeerId, times: u32) {
        self.change(&format!("{peer} is {times} times slower"), |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                network.node_mut(index).slowness = times.max(1);
            }
        });
    }

    /// The two nodes cannot reach each other any more. Operations between them are tried again for
    /// a while and then fail with `PeerDead`, and with them the queue pair.
    pub fn cut(&self, one: PeerId, other: PeerId) {
        self.link(one, other, true);
    }

    /// The two nodes reach each other again.
    pub fn heal(&self, one: PeerId, other: PeerId) {
        self.link(one, other, false);
    }

    /// How long each node's adapter has been busy; nothing once the world is gone.
    pub fn busy(&self) -> Vec<(PeerId, Busy)> {
        self.shared.upgrade().map(|shared| shared.network.lock().busy()).unwrap_or_default()
    }

    /// Puts a line into the event log.
    pub fn note(&self, text: &str) {
        self.change(text, |_| {});
    }

    fn link(&self, one: PeerId, other: PeerId, cut: bool) {
        let what = if cut { "cut off from" } else { "reaches" };
        self.change(&format!("{one} {what} {other}"), |network| {
            let index = |peer: PeerId| network.names.get(&peer).copied();
            if let (Some(one), Some(other)) = (index(one), index(other)) {
                let pair = (one.min(other), one.max(other));
                if cut {
                    network.cut.insert(pair);
                } else {
                    network.cut.remove(&pair);
                }
            }
        });
    }

    fn stop(&self, what: &str, peer: PeerId, stop: impl FnOnce(&mut SimNode)) {
        if let Some(shared) = self.shared.upgrade() {
            shared.any_stopped.store(true, Ordering::Relaxed);
        }
        self.change(what, |network| {
            if let Some(index) = network.names.get(&peer).copied() {
                stop(network.node_mut(index));
            }
        });
    }

    fn change(&self, what: &str, change: impl FnOnce(&mut Network)) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut network = shared.network.lock();
        let now = network.now;
        network.trace.record(now, &TraceEvent::Note(what));
        change(&mut network);
    }
}
