//! What the parts of a world share: the network, the tasks, the clock and the random sequence.

use std::panic::resume_unwind;
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
    /// Whether the clock of any node is not that of the world.
    pub(super) any_clock_off: AtomicBool,
    /// Whether a panic waits for its task.
    pub(super) any_planted: AtomicBool,
    /// The nodes whose tasks of these names panic.
    pub(super) planted: Mutex<Vec<(usize, &'static str)>>,
    /// The task that is being polled, while a panic waits.
    pub(super) current: Mutex<Option<(Option<usize>, &'static str)>>,
}

/// The message of a panic that a fault plan plants.
pub(super) const PLANTED_PANIC: &str = "planted by the fault plan";

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
            any_clock_off: AtomicBool::new(false),
            any_planted: AtomicBool::new(false),
            planted: Mutex::default(),
            current: Mutex::default(),
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

    /// Panics if a fault plan wants that of the task that is being polled. For calls that tasks
    /// make, before any lock.
    pub(super) fn panic_if_planted(&self) {
        if !self.any_planted.load(Ordering::Relaxed) {
            return;
        }
        let Some((Some(node), name)) = *self.current.lock() else { return };
        let mut planted = self.planted.lock();
        if let Some(number) = planted.iter().position(|own| *own == (node, name)) {
            planted.remove(number);
            self.any_planted.store(!planted.is_empty(), Ordering::Relaxed);
            drop(planted);
            // Not told to the hook of the process: it is no news.
            resume_unwind(Box::new(PLANTED_PANIC.to_owned()));
        }
    }

    /// A panic that was planted is no news.
    pub(super) fn report(&self, failure: &TaskError) {
        if matches!(failure, TaskError::Panicked { message, .. } if message == PLANTED_PANIC) {
            return;
        }
        self.panicked.lock().get_or_insert_with(|| failure.clone());
    }
}
