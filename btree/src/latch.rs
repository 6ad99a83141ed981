//! Latching pages with bounded patience, the same way for both kinds of latch.

use std::future::Future;
use std::ops::Deref;
use std::time::Duration;

use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr, SharedGuard};

use crate::error::TreeError;

/// As [`LatchKind::BUSY_RETRIES`], of most kinds.
const BUSY_RETRIES: u32 = 64;
/// How often an operation starts again at the root. Every restart means that another operation
/// completed a structure change in between.
pub(crate) const RESTARTS: u32 = 256;
/// As [`LatchKind::RESTARTS`], of a caller that holds leaves.
const RESTARTS_WITH_LEAVES: u32 = 4;
/// First pause of a retry; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// Longest pause of a retry.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
const _: () = assert!(FIRST_PAUSE.as_nanos() < LONGEST_PAUSE.as_nanos());

/// A kind of latch: [`SharedLatch`], [`SharedInOrderLatch`] or [`ExclusiveLatch`].
pub(crate) trait LatchKind {
    /// What holds the latch.
    type Guard<'e>: Deref<Target = [u8]> + Send;

    /// How often a request that was answered `Busy` is repeated.
    const BUSY_RETRIES: u32 = BUSY_RETRIES;

    /// How often a descent starts again at the root. Where that is seldom, the end is `Busy`.
    const RESTARTS: u32 = RESTARTS;

    /// Asks the engine once; waits as long as the engine allows.
    fn ask(
        engine: &Engine,
        addr: GAddr,
    ) -> impl Future<Output = Result<Self::Guard<'_>, EngineError>> + Send;
}

pub(crate) struct SharedLatch;
/// For callers that hold leaves: `Busy` at once if a recovery from a node's death is in the way,
/// which may need those leaves, and soon if the way down ends beside the key: others wait for the
/// leaves, and the tree may be dropped and its root part of another one.
pub(crate) struct SharedInOrderLatch;
pub(crate) struct ExclusiveLatch;

impl LatchKind for SharedLatch {
    type Guard<'e> = SharedGuard<'e>;

    #[inline]
    fn ask(
        engine: &Engine,
        addr: GAddr,
    ) -> impl Future<Output = Result<SharedGuard<'_>, EngineError>> + Send {
        engine.shared(addr)
    }
}

impl LatchKind for SharedInOrderLatch {
    type Guard<'e> = SharedGuard<'e>;
    const BUSY_RETRIES: u32 = 0;
    const RESTARTS: u32 = RESTARTS_WITH_LEAVES;

    #[inline]
    fn ask(
        engine: &Engine,
        addr: GAddr,
    ) -> impl Future<Output = Result<SharedGuard<'_>, EngineError>> + Send {
        engine.shared_in_order(addr)
    }
}

impl LatchKind for ExclusiveLatch {
    type Guard<'e> = ExclusiveGuard<'e>;

    #[inline]
    fn ask(
        engine: &Engine,
        addr: GAddr,
    ) -> impl Future<Output = Result<ExclusiveGuard<'_>, EngineError>> + Send {
        engine.exclusive(addr)
    }
}

/// Latches a page, waiting for it, and repeats a bounded number of `Busy` answers.
#[inline]
pub(crate) async fn latch<L: LatchKind>(
    engine: &Engine,
    addr: GAddr,
) -> Result<L::Guard<'_>, TreeError> {
    let mut retries = 0;
    loop {
        match L::ask(engine, addr).await {
            Err(EngineError::Busy { .. }) if retries < L::BUSY_RETRIES => retries += 1,
            result => return Ok(result?),
        }
        pause(engine, retries).await;
    }
}

/// Latches a page exclusively if it is not latched now.
pub(crate) async fn try_exclusive(
    engine: &Engine,
    addr: GAddr,
) -> Result<Option<ExclusiveGuard<'_>>, TreeError> {
    if_free(engine.try_exclusive(addr).await)
}

/// What an attempt to latch a page gave, if nothing was in its way.
pub(crate) fn if_free<G>(latched: Result<G, EngineError>) -> Result<Option<G>, TreeError> {
    match latched {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.is_retryable() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lets others finish before attempt number `attempt` at the same thing.
pub(crate) async fn pause(engine: &Engine, attempt: u32) {
    let pause = FIRST_PAUSE.saturating_mul(1 << attempt.min(16)).min(LONGEST_PAUSE);
    engine.env().pause(pause).await;
}
