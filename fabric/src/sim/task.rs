//! Tasks of a simulated cluster and the queue of those that are ready.
//!
//! Everything runs on the thread that calls `run`; the locks here are never contended, they only
//! make the types fit an interface made for threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use crate::env::BoxFuture;

/// A task; the one that stands for the main future of a run has no future of its own.
pub(super) struct Task {
    /// Index of the node it runs on; `None` for the world's own tasks.
    pub(super) node: Option<usize>,
    pub(super) name: &'static str,
    queued: AtomicBool,
    ready: Weak<ReadyQueue>,
    future: Mutex<Option<BoxFuture<'static, ()>>>,
}

/// Tasks that were woken.
#[derive(Default)]
pub(super) struct ReadyQueue {
    tasks: Mutex<VecDeque<Arc<Task>>>,
    /// The task that is being polled: when it wakes itself it has yielded.
    polled: AtomicPtr<Task>,
    yielded: AtomicBool,
}

impl Task {
    pub(super) fn new(
        node: Option<usize>,
        name: &'static str,
        ready: &Arc<ReadyQueue>,
        future: Option<BoxFuture<'static, ()>>,
    ) -> Arc<Task> {
        let (queued, ready) = (AtomicBool::new(false), Arc::downgrade(ready));
        Arc::new(Task { node, name, queued, ready, future: Mutex::new(future) })
    }

    /// Polls the task's own future once; whether it is pending.
    pub(super) fn poll(self: &Arc<Task>) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let mut future = self.future.lock();
        let Some(running) = future.as_mut() else { return false };
        match running.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => true,
            Poll::Ready(()) => {
                let done = future.take();
                drop(future);
                drop(done);
                false
            }
        }
    }

    /// Takes the future out, to be dropped.
    pub(super) fn abandon(&self) -> Option<BoxFuture<'static, ()>> {
        self.future.lock().take()
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if self.queued.swap(true, Ordering::Relaxed) {
            return;
        }
        let Some(ready) = self.ready.upgrade() else { return };
        if ready.polled.load(Ordering::Relaxed).cast_const() == Arc::as_ptr(&self) {
            ready.yielded.store(true, Ordering::Relaxed);
        } else {
            ready.tasks.lock().push_back(self);
        }
    }
}

impl ReadyQueue {
    /// The next task: the one that `pick` chooses among so many.
    pub(super) fn take(&self, pick: impl FnOnce(usize) -> usize) -> Option<Arc<Task>> {
        let mut tasks = self.tasks.lock();
        let index = if tasks.len() > 1 { pick(tasks.len()) } else { 0 };
        // The rest keeps its order but for one: which is fine, as the choice is by chance anyway.
        let task = if index == 0 { tasks.pop_front() } else { tasks.swap_remove_back(index) };
        drop(tasks);
        let task = task?;
        task.queued.store(false, Ordering::Relaxed);
        Some(task)
    }

    /// From now on `task` is being polled.
    pub(super) fn begin(&self, task: &Arc<Task>) {
        self.polled.store(Arc::as_ptr(task).cast_mut(), Ordering::Relaxed);
        self.yielded.store(false, Ordering::Relaxed);
    }

    /// The poll is over; whether the task woke itself in it.
    pub(super) fn end(&self, task: &Task) -> bool {
        self.polled.store(std::ptr::null_mut(), Ordering::Relaxed);
        let yielded = self.yielded.swap(false, Ordering::Relaxed);
        if yielded {
            task.queued.store(false, Ordering::Relaxed);
        }
        yielded
    }

    /// Takes everything out, to be dropped.
    pub(super) fn clear(&self) -> VecDeque<Arc<Task>> {
        std::mem::take(&mut *self.tasks.lock())
    }
}
