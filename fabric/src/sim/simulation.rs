//! What the parts of a world share: the network, the tasks, the clock and the random sequence.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use super::network::Network;
use super::task::{ReadyQueue, Task};
use crate::env::{BoxFuture, SplitMix, TaskError};

/// Which of the tasks that are ready at the same time runs first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Schedule {
    /// The one that has been ready longest.
    #[default]
    Fifo,
    /// A random one, to find what depends on the order.
    Random,
}

/// See the module.
pub(super) struct Simulation {
    pub(super) network: Mutex<Network>,
    /// A copy of the clock of the network, which can be read without its lock.
    pub(super) clock: AtomicU64,
    /// Whether any node was ever paused or lost. Until then no task needs the check that its node
    /// runs.
    pub(super) any_stopped: AtomicBool,
    pub(super) ready: Arc<ReadyQueue>,
    /// All tasks, to be dropped with the world.
    pub(super) tasks: Mutex<Vec<Weak<Task>>>,
    pub(super) random: SplitMix,
    pub(super) schedule: Schedule,
    pub(super) panicked: Mutex<Option<TaskError>>,
}

impl Simulation {
    pub(super) fn new(network: Network, seed: u64, schedule: Schedule) -> Self {
        Self {
            network: Mutex::new(network),
            clock: AtomicU64::new(0),
            any_stopped: AtomicBool::new(false),
            ready: Arc::default(),
            tasks: Mutex::default(),
            random: SplitMix::of_stream(seed, 0),
            schedule,
            panicked: Mutex::new(None),
        }
    }

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
        // Finished tasks are removed whenever the list is full, which keeps it short.
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
