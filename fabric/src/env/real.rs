//! The real environment: threads, timers and the system's clock, by way of tokio.
//!
//! This is the only place of the product that knows tokio or reads a clock.

use std::collections::hash_map::RandomState;
use std::future::Future;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use super::{BoxFuture, Env, Environment, SplitMix, TaskError};

/// tokio's timers tick every millisecond, and a sleep ends at the tick after its time.
const TIMER_GRAIN: Duration = Duration::from_millis(2);

/// The stack of a worker thread: what runs on it may recurse as deeply as statements of SQL are
/// nested. The system gives memory as a stack is used.
const STACK_BYTES: usize = 8 << 20;

/// Greatest number of worker threads.
const MAX_THREADS: usize = 4096;

/// Handles a panic of a task that is not joined.
pub type PanicHook = Arc<dyn Fn(&TaskError) + Send + Sync>;

/// How a [`RealRuntime`] is set up.
pub struct RuntimeConfig {
    /// Worker threads, 1 to 4096. The thread in `block_on` is not one of them.
    pub threads: usize,
    /// Seed of `random_u64`; by default the system's randomness.
    pub seed: Option<u64>,
    /// Told of every panic of a task whose handle is gone; by default it is printed to stderr.
    pub on_panic: Option<PanicHook>,
}

/// Worker threads and timers. Dropping it stops them: tasks are dropped where they wait, and their
/// handles say `Cancelled`. It must not be dropped inside one of its own tasks.
pub struct RealRuntime {
    runtime: tokio::runtime::Runtime,
    env: Env,
}

impl RealRuntime {
    /// Starts `threads` worker threads, with randomness from the system.
    ///
    /// # Errors
    /// `InvalidInput` if `threads` is not 1 to 4096; else what the system says.
    pub fn new(threads: usize) -> io::Result<Self> {
        Self::start(RuntimeConfig { threads, seed: None, on_panic: None })
    }

    /// As [`RealRuntime::new`], with a chosen seed for `random_u64`.
    ///
    /// # Errors
    /// As [`RealRuntime::new`].
    pub fn with_seed(threads: usize, seed: u64) -> io::Result<Self> {
        Self::start(RuntimeConfig { threads, seed: Some(seed), on_panic: None })
    }

    /// Starts the runtime that `config` describes.
    ///
    /// # Errors
    /// As [`RealRuntime::new`].
    pub fn start(config: RuntimeConfig) -> io::Result<Self> {
        let threads = config.threads;
        if !(1..=MAX_THREADS).contains(&threads) {
            let what = format!("threads = {threads}: allowed are 1 to {MAX_THREADS}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("selkie-worker")
            .thread_stack_size(STACK_BYTES)
            .enable_time()
            .build()?;
        let environment = RealEnvironment {
            handle: runtime.handle().clone(),
            started: boot_time(),
            // Each `RandomState` carries fresh keys of the system, and hashes nothing to a number.
            random: SplitMix::new(
                config.seed.unwrap_or_else(|| RandomState::new().build_hasher().finish()),
            ),
            on_panic: config.on_panic,
        };
        Ok(Self { runtime, env: Env::new(Arc::new(environment)) })
    }

    /// The environment these threads provide. It may outlive the runtime, but then tasks are
    /// cancelled at once, and sleeping panics.
    pub fn env(&self) -> Env {
        self.env.clone()
    }

    /// Runs `future` on the calling thread until it is done, beside the worker threads.
    ///
    /// # Panics
    /// When called inside one of the runtime's tasks; and with the panic of `future`.
    #[expect(clippy::expect_used, reason = "what is over has left its output")]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut output = None;
        self.drive(pin!(async { output = Some(future.await) }));
        output.expect("the future is done")
    }

    /// Of no type parameter: the scheduler's loop is compiled once, not for each future.
    fn drive(&self, future: Pin<&mut dyn Future<Output = ()>>) {
        self.runtime.block_on(future);
    }
}

/// Time since the process first asked. Pools that machines share need Linux.
#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

/// Time since the machine started. It goes on while the machine is suspended: a lease does too.
#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // The system counts both up from zero.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

struct RealEnvironment {
    handle: tokio::runtime::Handle,
    started: Duration,
    random: SplitMix,
    on_panic: Option<PanicHook>,
}

impl Environment for RealEnvironment {
    fn now(&self) -> Duration {
        boot_time().saturating_sub(self.started)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let _inside = self.handle.enter();
        Box::pin(tokio::time::sleep(duration))
    }

    fn timer_grain(&self) -> Duration {
        TIMER_GRAIN
    }

    fn launch(&self, _name: &'static str, task: BoxFuture<'static, ()>) {
        // The task announces its own end, so tokio's handle to it is not needed.
        drop(self.handle.spawn(task));
    }

    fn random_u64(&self) -> u64 {
        self.random.next_u64()
    }

    fn report(&self, failure: &TaskError) {
        match &self.on_panic {
            Some(hook) => hook(failure),
            None => eprintln!("selkie: {failure}"),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::Command;

    use rustix::time::{ClockId, clock_gettime};

    use super::*;

    /// Set in the process whose clocks are apart.
    const APART: &str = "SELKIE_TEST_CLOCKS_APART";
    /// For how long its machine was suspended, as its clocks have it.
    const SUSPENDED: Duration = Duration::from_secs(100_000);

    fn clock(id: ClockId) -> Duration {
        let time = clock_gettime(id);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
    }

    /// By the clock that stands still meanwhile, a node that wakes up would take its lease for one
    /// that lasts. On a machine that was never suspended both clocks are the same, so this runs in
    /// a namespace where they are not.
    #[test]
    fn time_for_which_the_machine_was_suspended_counts() {
        if std::env::var_os(APART).is_some() {
            let apart = clock(ClockId::Boottime).saturating_sub(clock(ClockId::Monotonic));
            // They are read one after the other.
            assert!(apart + Duration::from_secs(60) >= SUSPENDED, "{apart:?}");
            let before = clock(ClockId::Boottime);
            let now = boot_time();
            assert!((before..=clock(ClockId::Boottime)).contains(&now), "{now:?}, not {before:?}");
            return;
        }
        let seconds = SUSPENDED.as_secs().to_string();
        let name = "env::real::tests::time_for_which_the_machine_was_suspended_counts";
        let unshare = |program: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--time", "--fork", "--boottime", &seconds, "--"]);
            command.args(program).env(APART, "1").output()
        };
        if !unshare(&["true"]).is_ok_and(|output| output.status.success()) {
            println!("not tested: no namespace of clocks may be made here");
            return;
        }
        let own = std::env::current_exe().unwrap();
        let output = unshare(&[own.to_str().unwrap(), "--exact", name, "--nocapture"]).unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
}
