//! SIGINT and SIGTERM, which ask a command to end, and SIGHUP, by which its terminal is closed.
//!
//! The first has the command give up what it does, leave the pool that it is in, and say so. The
//! second ends the process at once: others then take its nodes for dead. A command that has nothing
//! to leave ends at the first.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use selkie::fabric::Env;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{SigId, flag, low_level};

use super::stderr::complain;

/// What shells add to the number of a signal that ended a process.
const EXIT_BASE: u8 = 128;
/// How long a command that was asked to end waits for what puts it into a pool: broken off there it
/// would leave a node behind that the others have to recover from.
const GRACE: Duration = Duration::from_secs(1);
/// How often a command that waits looks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// From here on the first SIGINT, SIGTERM or SIGHUP ends the process, which has nothing to leave,
/// and is told of on stderr.
///
/// # Errors
/// What the system reports.
pub(crate) fn end_at_first() -> std::io::Result<()> {
    let mut signals = Signals::new(asked_by())?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            complain!("error: {}", Interrupted::by(signal));
            // Ends the process as if nothing had been said.
            let _ = low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// The signals that ask a process to end. Called before one of them is minded.
pub(crate) fn asked_by() -> Vec<i32> {
    let hangup = (!is_hangup_ignored()).then_some(SIGHUP);
    [SIGINT, SIGTERM].into_iter().chain(hangup).collect()
}

/// Whether the process was started so that it outlives its terminal, as by `nohup`. Asked before
/// SIGHUP is minded, which would undo that. Where the system does not say, it was not.
fn is_hangup_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// The same by what the system says of a process: the lowest bit of a mask is that of signal 1.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Whether the process was asked to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    /// The last signal; 0: none.
    signal: Arc<AtomicUsize>,
    /// A signal has come: the next ends the process.
    is_second: Arc<AtomicBool>,
    /// What notes SIGINT.
    noting: Arc<Mutex<Vec<SigId>>>,
    /// SIGINT has asked for what runs to end, and not the process.
    stop: Arc<AtomicBool>,
}

impl Interrupt {
    /// From here on the first SIGINT, SIGTERM or SIGHUP is only noted.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn mind() -> std::io::Result<Self> {
        let own = Self::default();
        own.note_hangup()?;
        own.note(SIGTERM)?;
        let noting = own.note(SIGINT)?.to_vec();
        *own.noting.lock().unwrap_or_else(PoisonError::into_inner) = noting;
        Ok(own)
    }

    /// Does `work` of a user who types: meanwhile SIGINT ends what runs
    /// ([`is_stopped`](Self::is_stopped)), and not the process.
    ///
    /// # Errors
    /// What the system reports.
    pub(crate) fn with_user<T>(&self, work: impl FnOnce() -> T) -> std::io::Result<T> {
        let mut noting = self.noting.lock().unwrap_or_else(PoisonError::into_inner);
        let stopping = flag::register(SIGINT, Arc::clone(&self.stop))?;
        for id in noting.drain(..) {
            low_level::unregister(id);
        }
        let done = work();
        // At no time does a SIGINT go unseen.
        let registered = self.note(SIGINT);
        low_level::unregister(stopping);
        *noting = registered?.to_vec();
        Ok(done)
    }

    /// From here on the first of a signal is only noted.
    fn note(&self, signal: i32) -> std::io::Result<[SigId; 3]> {
        // They run in this order: the first signal sets what the second one finds.
        Ok([
            flag::register_conditional_default(signal, Arc::clone(&self.is_second))?,
            flag::register(signal, Arc::clone(&self.is_second))?,
            flag::register_usize(signal, Arc::clone(&self.signal), signal.unsigned_abs() as usize)?,
        ])
    }

    /// From here on SIGHUP is only noted, also the second: of a terminal that is closed one comes
    /// from the system, and one from the shell.
    fn note_hangup(&self) -> std::io::Result<()> {
        if is_hangup_ignored() {
            return Ok(());
        }
        flag::register(SIGHUP, Arc::clone(&self.is_second))?;
        let number = SIGHUP.unsigned_abs() as usize;
        flag::register_usize(SIGHUP, Arc::clone(&self.signal), number).map(drop)
    }

    /// The signal that asked the process to end, if one has.
    pub(crate) fn signal(&self) -> Option<Interrupted> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(Interrupted { signal: u8::try_from(signal).unwrap_or(u8::MAX) }),
        }
    }

    /// Whether SIGINT has asked for what runs to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// What SIGINT has asked to end has ended.
    pub(crate) fn clear_stop(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Waits for `work`, but drops it when a signal asks the process to end.
    ///
    /// # Errors
    /// The signal.
    pub(crate) async fn or_end<T>(
        &self,
        env: &Env,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        self.or_end_looking(env, work, || {}).await
    }

    /// Waits for `work` that joins a pool, and for [`GRACE`] more once a signal asks the process to
    /// end: what has joined by then leaves in an orderly way. Drops it after that.
    ///
    /// # Errors
    /// The signal, if the work was not done by then.
    pub(crate) async fn or_end_soon<T>(
        &self,
        env: &Env,
        work: impl Future<Output = T>,
    ) -> Result<T, Interrupted> {
        let mut work = pin!(work);
        match self.or_end(env, work.as_mut()).await {
            Ok(done) => Ok(done),
            Err(interrupted) => {
                let mut over = env.sleep(GRACE);
                poll_fn(|context| match work.as_mut().poll(context) {
                    Poll::Ready(done) => Poll::Ready(Ok(done)),
                    Poll::Pending => over.as_mut().poll(context).map(|()| Err(interrupted)),
                })
                .await
            }
        }
    }

    /// Fails if the process was asked to end.
    ///
    /// # Errors
    /// The signal.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        self.signal().map_or(Ok(()), Err)
    }

    /// As [`or_end`](Self::or_end), and does `each` every now and then meanwhile.
    ///
    /// # Errors
    /// The signal.
    pub(crate) async fn or_end_looking<T>(
        &self,
        env: &Env,
        work: impl Future<Output = T>,
        mut each: impl FnMut(),
    ) -> Result<T, Interrupted> {
        let (mut work, mut look) = (pin!(work), env.sleep(LOOK_EVERY));
        poll_fn(|context| {
            if let Poll::Ready(done) = work.as_mut().poll(context) {
                return Poll::Ready(Ok(done));
            }
            while look.as_mut().poll(context).is_ready() {
                if let Some(interrupted) = self.signal() {
                    return Poll::Ready(Err(interrupted));
                }
                each();
                look = env.sleep(LOOK_EVERY);
            }
            Poll::Pending
        })
        .await
    }
}

/// A signal asked the process to end before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) struct Interrupted {
    signal: u8,
}

impl Interrupted {
    /// By the signal of this number.
    pub(crate) fn by(signal: i32) -> Self {
        Self { signal: u8::try_from(signal).unwrap_or(u8::MAX) }
    }

    /// Says so on stderr. The exit code of a command that it has ended.
    pub(crate) fn end(self) -> ExitCode {
        complain!("error: {self}");
        ExitCode::from(EXIT_BASE.saturating_add(self.signal))
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = low_level::signal_name(self.signal.into()).unwrap_or("a signal");
        write!(f, "interrupted by {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use selkie::fabric::RealRuntime;

    #[test]
    fn a_wait_ends_with_its_work_or_with_a_signal() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, interrupt) = (runtime.env(), Interrupt::default());
        assert_eq!(runtime.block_on(interrupt.or_end(&env, async { 7 })), Ok(7));
        interrupt.signal.store(15, Ordering::Relaxed);
        let never = interrupt.or_end(&env, std::future::pending::<()>());
        let interrupted = runtime.block_on(never).unwrap_err();
        assert_eq!(interrupted.to_string(), "interrupted by SIGTERM");
        assert_eq!(interrupted.end(), ExitCode::from(143));
    }

    #[test]
    fn what_joins_a_pool_has_a_moment_to_do_so_and_no_more() {
        let runtime = RealRuntime::new(1).unwrap();
        let (env, interrupt) = (runtime.env(), Interrupt::default());
        interrupt.signal.store(15, Ordering::Relaxed);
        let soon = async {
            env.sleep(3 * LOOK_EVERY).await;
            7
        };
        assert_eq!(runtime.block_on(interrupt.or_end_soon(&env, soon)), Ok(7));
        let never = interrupt.or_end_soon(&env, std::future::pending::<()>());
        assert_eq!(runtime.block_on(never), Err(Interrupted::by(15)));
        assert_eq!(interrupt.check(), Err(Interrupted::by(15)));
    }

    #[test]
    fn who_was_started_to_outlive_its_terminal_is_known() {
        let of =
            |mask: &str| ignores_hangup(&format!("SigBlk:\t0001\nSigIgn:\t{mask}\nSigCgt:\t1\n"));
        assert!(of("0000000000000001") && of("0000000000001001"));
        assert!(!of("0000000000001000") && !of("no mask") && !ignores_hangup(""));
    }

    #[test]
    fn what_runs_for_a_user_ends_by_sigint_and_the_process_does_not() {
        let interrupt = Interrupt::mind().unwrap();
        let twice = || (0..2).for_each(|_| low_level::raise(SIGINT).unwrap());
        interrupt.with_user(twice).unwrap();
        assert!(interrupt.is_stopped() && interrupt.signal().is_none());
        interrupt.clear_stop();
        low_level::raise(SIGINT).unwrap();
        assert_eq!(interrupt.signal(), Some(Interrupted::by(SIGINT)));
        assert!(!interrupt.is_stopped());
    }
}
