//! For how long a commit waits for rows that others have locked, and what ends that wait.
//!
//! It waits before it has drawn a stamp or changed a leaf, with no leaf held. So there it may be
//! given up, as an operation may be. The rest of a commit is bounded by the engine, and not ended
//! from outside.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use selkie_fabric::env::Env;

use crate::error::TxnError;

/// What ends the wait of a commit for locks.
#[derive(Default)]
pub(super) struct CommitBound<'w> {
    /// When it has to be over, and how long what it belongs to may take.
    pub(super) ends: Option<(Duration, Duration)>,
    /// What that is: "operation" or "transaction".
    pub(super) what: &'static str,
    /// Ready when the caller gives up.
    pub(super) stop: Option<Pin<&'w mut (dyn Future<Output = ()> + Send)>>,
    /// When the commit has begun to wait for locks.
    pub(super) since: Option<Duration>,
}

impl CommitBound<'_> {
    /// Since when the commit waits for locks, be it for the first or for a later one.
    pub(super) fn waits_since(&mut self, now: Duration) -> Duration {
        *self.since.get_or_insert(now)
    }

    /// What a wait for locks gives, if it ends in time and the caller does not give up before.
    pub(super) async fn apply<T>(
        &mut self,
        env: &Env,
        wait: impl Future<Output = Result<T, TxnError>>,
    ) -> Result<T, TxnError> {
        let Self { ends, what, stop, .. } = self;
        let mut wait = pin!(wait);
        let stopped = poll_fn(move |cx| {
            if let Poll::Ready(ended) = wait.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            match stop.as_mut().map(|stop| stop.as_mut().poll(cx)) {
                Some(Poll::Ready(())) => Poll::Ready(Err(TxnError::CommitStopped)),
                _ => Poll::Pending,
            }
        });
        let Some((end, limit)) = *ends else { return stopped.await };
        let exceeded = Err(TxnError::DeadlineExceeded { what, limit });
        before(env, end, stopped).await.unwrap_or(exceeded)
    }
}

/// What a future gives, if it does so before the end. It is not begun after the end.
pub(super) async fn before<T>(
    env: &Env,
    end: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    let mut future = pin!(future);
    let left = end.checked_sub(env.now()).filter(|left| !left.is_zero())?;
    let mut timer = env.sleep(left);
    poll_fn(move |cx| match future.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}
