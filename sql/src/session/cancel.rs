//! Ending a statement from outside.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::Session;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::Interrupts;

/// Ends what a session runs, or the session, from another task or thread. It may be kept beside the
/// session.
#[derive(Clone, Default)]
pub struct CancelHandle {
    state: Arc<Mutex<CancelState>>,
}

#[derive(Default)]
struct CancelState {
    /// Parts of a statement that run, one within the other: it may be cancelled while any does.
    running: u32,
    cancelled: bool,
    waker: Option<Waker>,
    /// The session is to end.
    terminated: bool,
    /// Of what waits for that.
    idle: Option<Waker>,
}

impl CancelState {
    fn begin(&mut self) {
        if self.running == 0 {
            (self.cancelled, self.waker) = (self.terminated, None);
        }
        self.running += 1;
    }

    fn check(&self) -> SqlResult<()> {
        if !self.cancelled {
            return Ok(());
        }
        if self.terminated {
            return Err(SqlError::terminated());
        }
        let message = "canceling statement due to user request";
        Err(SqlError::new(SqlState::QUERY_CANCELED, message))
    }

    fn end(&mut self) {
        self.running = self.running.saturating_sub(1);
        if self.running == 0 {
            (self.cancelled, self.waker) = (false, None);
        }
    }
}

impl CancelHandle {
    /// Ends the statement that runs with 57014, at its next wait. It does nothing if none runs, or
    /// if its transaction commits already and waits for no row that others have locked.
    pub fn cancel(&self) {
        let mut state = self.state.lock();
        if state.running > 0 {
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
        (state.terminated, state.cancelled) = (true, state.running > 0);
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

    /// From now on something runs that may be cancelled, until what is returned is dropped: who
    /// cancels between two parts of it cancels the later one.
    pub(super) fn running(&self) -> Running {
        self.state.lock().begin();
        Running(self.clone())
    }

    /// Why what runs is to end, if it is.
    pub(super) fn check(&self) -> SqlResult<()> {
        self.state.lock().check()
    }

    /// What a future gives, or 57014 if it is cancelled before.
    pub(super) async fn guard<T>(
        &self,
        mut future: Pin<&mut impl Future<Output = T>>,
    ) -> SqlResult<T> {
        // To its end, also if the future is dropped.
        let _running = self.running();
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(value));
            }
            let mut state = self.state.lock();
            if let Err(ended) = state.check() {
                return Poll::Ready(Err(ended));
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
    /// The session, of which a statement calls `hand_over` when it computes for long without a
    /// wait, now and then: it lets another thread go on with the tasks of the one that it runs on.
    #[must_use]
    pub fn with_hand_over(self, hand_over: fn()) -> Self {
        Self { hand_over: Some(hand_over), ..self }
    }

    /// Ready when the statement is cancelled, or has taken as long as it may from now on: with the
    /// reason. For what is no operation of the session's transaction.
    pub(super) fn ended(&self) -> impl Future<Output = SqlError> + Send + use<> {
        self.ended_at(self.statement_end())
    }

    /// When a statement that begins now has to be over.
    pub(super) fn statement_end(&self) -> Option<Duration> {
        let now = self.txn.database().engine().env().now();
        self.settings.statement_timeout.map(|bound| now.saturating_add(bound))
    }

    /// As [`ended`](Self::ended), of a statement that has to be over at a time.
    pub(super) fn ended_at(
        &self,
        end: Option<Duration>,
    ) -> impl Future<Output = SqlError> + Send + use<> {
        let (cancel, env) = (self.cancel.clone(), self.txn.database().engine().env().clone());
        async move {
            let late = async {
                match end {
                    Some(end) => env.sleep(end.saturating_sub(env.now())).await,
                    None => std::future::pending().await,
                }
            };
            match cancel.guard(pin!(late)).await {
                Ok(()) => too_late(),
                Err(cancelled) => cancelled,
            }
        }
    }

    /// What ends a statement that begins now while it computes.
    pub(super) fn interrupts(&self) -> Interrupts {
        let (cancel, env) = (self.cancel.clone(), self.txn.database().engine().env().clone());
        // As the operation of the transaction in which it is run.
        let end = self.txn.limits().operation.map(|limit| env.now().saturating_add(limit));
        let ask = move || {
            cancel.check()?;
            let now = env.now();
            if end.is_some_and(|end| now >= end) { Err(too_late()) } else { Ok(now) }
        };
        Interrupts::new(Box::new(ask), self.hand_over)
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

fn too_late() -> SqlError {
    SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to statement timeout")
}

/// Something that may be cancelled, until it is dropped.
pub(super) struct Running(CancelHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.state.lock().end();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::Context;

    use super::*;

    /// As a commit, which runs for a while before it has something to wait for.
    #[test]
    fn what_computes_sees_that_it_is_cancelled() {
        let handle = CancelHandle::default();
        let running = handle.running();
        let own = handle.clone();
        let ask = move || own.check().map(|()| Duration::ZERO);
        let interrupts = Interrupts::new(Box::new(ask), None);
        interrupts.after(usize::MAX).unwrap();
        handle.cancel();
        assert_eq!(interrupts.after(usize::MAX).unwrap_err().state().code(), "57014");
        drop(running);
        interrupts.after(usize::MAX).unwrap();
        let _next = handle.running();
        handle.terminate();
        assert_eq!(interrupts.after(usize::MAX).unwrap_err().state().code(), "57P01");
    }

    #[test]
    fn who_cancels_before_the_wait_begins_ends_it() {
        let (handle, mut context) = (CancelHandle::default(), Context::from_waker(Waker::noop()));
        let mut poll = |handle: &CancelHandle| {
            let mut never = pin!(pending::<()>());
            pin!(handle.guard(never.as_mut())).poll(&mut context).map(Result::unwrap_err)
        };
        handle.cancel();
        let running = handle.running();
        assert!(poll(&handle).is_pending(), "nothing ran when it was cancelled");
        handle.cancel();
        let Poll::Ready(ended) = poll(&handle) else { panic!("it waits") };
        assert_eq!(ended.state().code(), "57014");
        drop(running);
        let _next = handle.running();
        assert!(poll(&handle).is_pending(), "another statement was cancelled");
    }
}
