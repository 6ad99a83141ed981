//! Ending a statement from outside.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

use crate::error::{SqlError, SqlResult, SqlState};

/// Ends what a session runs, from another task or thread. It may be kept beside the session.
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

    /// What a future gives, or 57014 if it is cancelled before.
    pub(super) async fn guard<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> SqlResult<T> {
        *self.state.lock() = CancelState { runs: true, ..CancelState::default() };
        // Also if the future is dropped.
        let _over = RunsNoMore(self);
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let mut state = self.state.lock();
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

struct RunsNoMore<'c>(&'c CancelHandle);

impl Drop for RunsNoMore<'_> {
    fn drop(&mut self) {
        *self.0.state.lock() = CancelState::default();
    }
}
