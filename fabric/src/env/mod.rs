//! The environment a node runs in: clock, sleep, tasks and randomness.
//!
//! Product code takes them from an [`Env`] it is given and from nowhere else, so that a whole
//! cluster can run under a virtual clock on one thread. [`RealRuntime`] is the real one.
//!
//! Contents: `task` (handles, and what becomes of a panic), `real` (threads and the system clock),
//! `random` (the generator that environments share).

mod random;
mod real;
mod task;

pub use random::SplitMix;
pub use real::{PanicHook, RealRuntime, RuntimeConfig};
pub use task::{TaskError, TaskHandle};

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A boxed future that may move between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What an environment provides; product code uses it through [`Env`].
pub trait Environment: Send + Sync {
    /// Time since the environment started; never goes backwards.
    fn now(&self) -> Duration;

    /// Is ready once at least `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;

    /// Sleeps below this take longer than asked for.
    fn timer_grain(&self) -> Duration;

    /// Whether time is virtual: it passes only while tasks sleep or wait.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Runs `task` in the background. It never panics: [`Env::spawn`] has wrapped it. An
    /// environment that stops drops it.
    fn launch(&self, name: &'static str, task: BoxFuture<'static, ()>);

    /// The next number of a uniformly distributed sequence.
    fn random_u64(&self) -> u64;

    /// Called when a task panicked whose handle was dropped.
    fn report(&self, failure: &TaskError);
}

/// A cheap handle to an environment.
#[derive(Clone)]
pub struct Env(Arc<dyn Environment>);

impl Env {
    /// A handle to `environment`.
    pub fn new(environment: Arc<dyn Environment>) -> Self {
        Self(environment)
    }

    /// A handle to the environment of `runtime`, the same as [`RealRuntime::env`].
    pub fn real(runtime: &RealRuntime) -> Self {
        runtime.env()
    }

    /// Monotonic time since the environment started.
    pub fn now(&self) -> Duration {
        self.0.now()
    }

    /// Is ready once at least `duration` has passed. Allocates.
    pub fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }

    /// Waits about `duration` while other tasks run. Unlike [`Env::sleep`] it keeps short waits
    /// short where timers are coarse: there it yields until the time is over, which costs processor
    /// time.
    pub async fn pause(&self, duration: Duration) {
        if duration >= self.0.timer_grain() {
            return self.sleep(duration).await;
        }
        let started = self.now();
        loop {
            yield_now().await;
            if self.now().saturating_sub(started) >= duration {
                return;
            }
        }
    }

    /// Accounts for processor work: in a virtual environment the time passes, in a real one it has
    /// passed already.
    pub async fn spend(&self, work: Duration) {
        if self.0.is_virtual() {
            self.sleep(work).await;
        }
    }

    /// Runs `task` in the background, whether or not the handle is kept. A panic of the task is
    /// returned by [`TaskHandle::join`], or reported by the environment if the handle is dropped.
    pub fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        let (task, handle) = task::watch(self.0.clone(), name, task);
        self.0.launch(name, task);
        handle
    }

    /// The next number of the environment's uniformly distributed sequence. Not for secrets.
    pub fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }

    /// Lets the other tasks that are ready run once; the same as [`yield_now`].
    pub fn yield_now(&self) -> YieldNow {
        yield_now()
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Env(at {:?})", self.now())
    }
}

/// Lets the other tasks that are ready run once: the caller goes to the back of the queue.
/// Allocates nothing. Outside a task, in `block_on`, there is no queue and it merely polls again.
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// Future of [`yield_now`].
#[must_use = "nothing is yielded unless awaited"]
#[derive(Debug)]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    }
}
