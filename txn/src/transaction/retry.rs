//! Running a transaction again after a conflict.
//!
//! No transaction waits for a lock, so two that conflict must not conflict again at once: each
//! waits a random time below a bound that doubles with every attempt ("full jitter"), up to a cap.

use std::future::Future;
use std::time::Duration;

use selkie_fabric::env::Env;

use crate::error::{AbortCause, TxnError};
use crate::stats::AbortCounts;

/// Attempts that may end in a timeout. Each of them has waited as long as the engine allows, which
/// is far longer than conflicts last: the page is not coming back.
const MAX_TIMEOUTS: u64 = 4;

/// How often to try, and how long to wait in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Most attempts, the first included. Zero counts as one.
    pub attempts: u32,
    /// Bound of the wait after the first failure; it doubles with each further one.
    pub base: Duration,
    /// The bound grows no further than this.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    /// 64 attempts, 20 us doubling up to 10 ms: about half a second before giving up.
    fn default() -> Self {
        let (base, cap) = (Duration::from_micros(20), Duration::from_millis(10));
        Self { attempts: 64, base, cap }
    }
}

impl RetryPolicy {
    /// The wait after failure number `failures` (from 0), given 64 random bits.
    fn wait(&self, failures: u32, random: u64) -> Duration {
        let factor = 1u32.checked_shl(failures).unwrap_or(u32::MAX);
        let bound = self.base.saturating_mul(factor).min(self.cap);
        let bound_ns = u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX);
        // The high half of the product is uniform below the bound.
        let wait_ns = (u128::from(bound_ns) * u128::from(random)) >> 64;
        Duration::from_nanos(u64::try_from(wait_ns).unwrap_or(bound_ns))
    }
}

/// An error that knows whether the transaction behind it was rolled back, and why.
pub trait Retryable {
    /// The cause if running the transaction again makes sense, `None` if the error is final.
    fn retry_cause(&self) -> Option<AbortCause>;
}

impl Retryable for TxnError {
    fn retry_cause(&self) -> Option<AbortCause> {
        self.abort_cause().filter(|cause| cause.is_retryable())
    }
}

/// [`retry`] gave up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError<E: std::error::Error + 'static> {
    /// The transaction failed for a reason that another attempt does not change.
    #[error(transparent)]
    Final(E),
    /// Every attempt failed.
    #[error("gave up after {attempts} attempts, the last failed with: {last}")]
    Exhausted {
        /// Attempts made.
        attempts: u32,
        /// Why they failed.
        aborts: AbortCounts,
        /// The last error.
        #[source]
        last: E,
    },
}

impl<E: std::error::Error + 'static> RetryError<E> {
    /// The error of the last attempt.
    pub fn into_inner(self) -> E {
        match self {
            Self::Final(error) | Self::Exhausted { last: error, .. } => error,
        }
    }

    /// Whether calling [`retry`] again may help.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Exhausted { .. })
    }
}

/// Runs `attempt` until it succeeds, fails for good, or the policy's attempts are used up.
/// `attempt` begins and commits its own transaction; when it fails the transaction must be dropped
/// or rolled back before the error is returned, as `?` does.
///
/// # Errors
/// [`RetryError::Final`] with the first error that is not retryable, [`RetryError::Exhausted`] with
/// the last one that is, once the attempts are used up or four of them ended in a timeout.
pub async fn retry<T, E, F, Fut>(
    env: &Env,
    policy: &RetryPolicy,
    mut attempt: F,
) -> Result<T, RetryError<E>>
where
    E: Retryable + std::error::Error + 'static,
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    retry_numbered(env, policy, |_| attempt()).await
}

/// As [`retry()`], and tells each attempt how many have failed before: one that has failed often
/// may [insist](crate::Txn::insist).
///
/// # Errors
/// As [`retry()`].
pub async fn retry_numbered<T, E, F, Fut>(
    env: &Env,
    policy: &RetryPolicy,
    mut attempt: F,
) -> Result<T, RetryError<E>>
where
    E: Retryable + std::error::Error + 'static,
    F: FnMut(u32) -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut aborts = AbortCounts::default();
    let mut failures = 0;
    loop {
        let error = match attempt(failures).await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let Some(cause) = error.retry_cause() else { return Err(RetryError::Final(error)) };
        aborts.count(cause);
        let hopeless = aborts.of(AbortCause::Timeout) >= MAX_TIMEOUTS;
        if hopeless || failures + 1 >= policy.attempts {
            return Err(RetryError::Exhausted { attempts: failures + 1, aborts, last: error });
        }
        env.pause(policy.wait(failures, env.random_u64())).await;
        failures += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use selkie_engine::{EngineError, GAddr};
    use selkie_fabric::RealRuntime;

    use super::*;

    fn conflict() -> TxnError {
        TxnError::Conflict { leaf: GAddr::NULL, upgrade: false }
    }

    #[test]
    fn conflicts_are_repeated_up_to_the_bound_and_counted() {
        let runtime = RealRuntime::new(1).unwrap();
        let env = runtime.env();
        let policy = RetryPolicy { attempts: 5, ..RetryPolicy::default() };
        let run = |failures: u32, error: fn() -> TxnError| {
            let calls = Cell::new(0);
            let result = runtime.block_on(retry(&env, &policy, || {
                calls.set(calls.get() + 1);
                let done = calls.get() > failures;
                async move { if done { Ok("done") } else { Err(error()) } }
            }));
            (result, calls.get())
        };
        let (result, calls) = run(4, conflict);
        assert_eq!((result.unwrap(), calls), ("done", 5));
        let (result, calls) = run(5, conflict);
        assert_eq!(calls, 5);
        let Err(RetryError::Exhausted { attempts: 5, aborts, last }) = result else { panic!() };
        assert_eq!((aborts.total(), aborts.of(AbortCause::Conflict)), (5, 5));
        assert!(matches!(last, TxnError::Conflict { .. }));
        let waited = Duration::from_secs(1);
        let timeout = || EngineError::Timeout { addr: GAddr::NULL, waited }.into();
        let policy = RetryPolicy { attempts: 50, base: Duration::ZERO, ..policy };
        let calls = Cell::new(0);
        let result: Result<(), RetryError<TxnError>> =
            runtime.block_on(retry(&env, &policy, || {
                calls.set(calls.get() + 1);
                async { Err(timeout()) }
            }));
        assert!(matches!(result, Err(RetryError::Exhausted { attempts: 4, .. })), "{result:?}");
        let (result, calls) =
            run(5, || TxnError::NotFound { table: String::new(), key: String::new() });
        assert!(matches!(result, Err(RetryError::Final(TxnError::NotFound { .. }))));
        assert_eq!(calls, 1);
    }

    #[test]
    fn waits_double_up_to_the_cap_and_are_spread_below_the_bound() {
        let policy = RetryPolicy {
            attempts: 9,
            base: Duration::from_micros(10),
            cap: Duration::from_micros(50),
        };
        let longest = |failures| policy.wait(failures, u64::MAX).as_nanos();
        assert_eq!([0, 1, 2, 3, 40].map(longest), [9_999, 19_999, 39_999, 49_999, 49_999]);
        assert_eq!(policy.wait(3, 0), Duration::ZERO);
        assert_eq!(policy.wait(1, 1 << 63), Duration::from_micros(10));
    }
}
