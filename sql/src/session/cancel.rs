//! Ending a statement from outside.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use super::Session;
use crate::error::{SqlError, SqlResult, SqlState};

/// Ends what a session runs, or the session, from another task or thread. It may be kept beside the
/// session.
#[derive(Clone, Default)]
pub struct CancelHandle {
    state: Arc<Mutex<CancelState>>,
}

#[derive(Default)]
struct CancelState {
    /// A statement runs, and may be cancelled.
    runs: bool,
    cancelled: bool,
    waker: Option<Waker>,
    /// The session is to end.
    terminated: bool,
    /// Of what waits for that.
    idle: Option<Waker>,
}

impl CancelState {
    /// No statement runs, or another begins.
    fn reset(&mut self, runs: bool) {
        (self.runs, self.cancelled, self.waker) = (runs, runs && self.terminated, None);
    }
}

impl CancelHandle {
    /// Ends the statement that runs with 57014, at its next wait. It does nothing if none runs, or
    /// if its transaction commits already.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        if state.runs {
            state.cancelled = true;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the statement that runs, as [`cancel`](Self::cancel), but with 57P01, and asks the
    /// owner of the session to end that ([`terminated`](Self::terminated)).
    pub fn terminate(&self) {
        let mut state = self.state.lock();
        (state.terminated, state.cancelled) = (true, state.runs);
        let wakers = [state.waker.take(), state.idle.take()];
        drop(state);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    /// Whether the session is to end.
    #[must_use]
    pub fn is_terminated(&self) -> bool {
        self.state.lock().terminated
    }

    /// Returns when the session is to end. One task may wait for that. Cancel safe.
    pub async fn terminated(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.terminated {
                return Poll::Ready(());
            }
            state.idle = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// What a future gives, or 57014 if it is cancelled before.
    pub(super) async fn guard<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> SqlResult<T> {
        self.state.lock().reset(true);
        // Also if the future is dropped.
        let _over = RunsNoMore(self);
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let mut state = self.state.lock();
            if state.cancelled && state.terminated {
                return Poll::Ready(Err(SqlError::terminated()));
            }
            if state.cancelled {
                let message = "canceling statement due to user request";
                return Poll::Ready(Err(SqlError::new(SqlState::QUERY_CANCELED, message)));
            }
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

impl Session {
    /// Ready when the statement is cancelled, or has taken as long as it may from now on: with the
    /// reason. For work that is no part of the session's transaction.
    pub(super) fn ended(&self) -> impl Future<Output = SqlError> + Send + use<> {
        let (cancel, env) = (self.cancel.clone(), self.txn.database().engine().env().clone());
        let bound = self.settings.statement_timeout;
        async move {
            let late = async {
                match bound {
                    Some(bound) => env.sleep(bound).await,
                    None => std::future::pending().await,
                }
            };
            match cancel.guard(pin!(late)).await {
                Ok(()) => {
                    let message = "canceling statement due to statement timeout";
                    SqlError::new(SqlState::QUERY_CANCELED, message)
                }
                Err(cancelled) => cancelled,
            }
        }
    }

    /// What a future gives, unless the statement [has ended](Self::ended) before.
    pub(super) async fn unless_ended<T>(&self, future: impl Future<Output = T>) -> SqlResult<T> {
        let (mut future, mut ended) = (pin!(future), pin!(self.ended()));
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Ok(value)),
            Poll::Pending => ended.as_mut().poll(cx).map(Err),
        })
        .await
    }
}

struct RunsNoMore<'c>(&'c CancelHandle);

impl Drop for RunsNoMore<'_> {
    fn drop(&mut self) {
        self.0.state.lock().reset(false);
    }
}
