//! Handles of background tasks, and what becomes of a task's panic.
//!
//! A panic reaches exactly one place: `join` if the task is joined, else the environment's report.
//! A task's outcome is therefore kept in a cell shared by the task and its handle; the one that is
//! last to leave with a panic still in the cell reports it.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::{BoxFuture, Environment};

/// Why a task did not finish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The task panicked.
    #[error("task `{name}` panicked: {message}")]
    Panicked {
        /// The name it was spawned with.
        name: &'static str,
        /// The panic's message.
        message: String,
    },
    /// The environment stopped before the task was done.
    #[error("task `{name}` was cancelled because its environment stopped")]
    Cancelled {
        /// The name it was spawned with.
        name: &'static str,
    },
}

impl TaskError {
    /// Whether joining again may succeed: never, a task runs once.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

/// A background task. Dropping the handle detaches the task, which runs on.
pub struct TaskHandle {
    name: &'static str,
    cell: Arc<Cell>,
}

impl TaskHandle {
    /// Waits until the task is done. Dropping this future detaches the task.
    ///
    /// # Errors
    /// `Panicked` if the task panicked, `Cancelled` if the environment stopped first.
    pub async fn join(self) -> Result<(), TaskError> {
        poll_fn(|context| self.cell.poll(context)).await
    }

    /// Lets the task run on unobserved; its panic would be reported by the environment.
    pub fn detach(self) {}

    /// The name the task was spawned with.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        self.cell.leave();
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskHandle({})", self.name)
    }
}

/// Where the outcome goes from the task to the handle.
struct Cell {
    environment: Arc<dyn Environment>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    outcome: Option<Result<(), TaskError>>,
    joiner: Option<Waker>,
    detached: bool,
}

impl Cell {
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), TaskError>> {
        let mut state = self.state.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.joiner = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The task is done.
    fn finish(&self, outcome: Result<(), TaskError>) {
        let mut state = self.state.lock();
        if state.detached {
            drop(state);
            self.report(outcome);
            return;
        }
        state.outcome = Some(outcome);
        let joiner = state.joiner.take();
        drop(state);
        if let Some(joiner) = joiner {
            joiner.wake();
        }
    }

    /// The handle is dropped.
    fn leave(&self) {
        let mut state = self.state.lock();
        state.detached = true;
        let (outcome, joiner) = (state.outcome.take(), state.joiner.take());
        drop(state);
        drop(joiner);
        if let Some(outcome) = outcome {
            self.report(outcome);
        }
    }

    fn report(&self, outcome: Result<(), TaskError>) {
        if let Err(failure @ TaskError::Panicked { .. }) = outcome {
            self.environment.report(&failure);
        }
    }
}

/// A spawned future that catches its own panic and announces its end, even by being dropped.
struct Watched<F> {
    name: &'static str,
    cell: Arc<Cell>,
    /// `None` once done; boxed so that it can be dropped in place.
    future: Option<Pin<Box<F>>>,
}

/// Wraps `future` for [`Environment::launch`] and makes the handle that goes with it.
pub(crate) fn watch<F>(
    environment: Arc<dyn Environment>,
    name: &'static str,
    future: F,
) -> (BoxFuture<'static, ()>, TaskHandle)
where
    F: Future<Output = ()> + Send + 'static,
{
    let cell = Arc::new(Cell { environment, state: Mutex::new(State::default()) });
    let future = Some(Box::pin(future));
    let task = Watched { name, cell: Arc::clone(&cell), future };
    (Box::pin(task), TaskHandle { name, cell })
}

impl<F: Future<Output = ()>> Future for Watched<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(future) = &mut self.future else { return Poll::Ready(()) };
        // A future that panicked is never polled again, so no code sees its broken state; what it
        // shares with others is theirs to keep sound, as with any panicking thread.
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context)));
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => Ok(()),
            Err(panic) => {
                Err(TaskError::Panicked { name: self.name, message: message_of(&*panic) })
            }
        };
        // What the task held is released before its handle learns that it is done.
        self.future = None;
        self.cell.finish(outcome);
        Poll::Ready(())
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        if self.future.take().is_some() {
            self.cell.finish(Err(TaskError::Cancelled { name: self.name }));
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "no message".to_owned()
    }
}
