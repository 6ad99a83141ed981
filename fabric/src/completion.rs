//! `Completion`: the future of a posted chain.
//!
//! A completion is *self-polling*: polling it drives its queue pair, so any executor will do and no
//! thread has to poll in the background. Backends that execute inline return it ready, and then it
//! holds the result itself: neither a waker nor an allocation is involved, and callers in a hurry
//! ask [`Completion::try_take`] before they bother to await.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::error::FabricError;
use crate::verb::{Chain, ChainError, ChainResult};

/// A chain that was posted and is not known to be done: what a backend puts into a pending
/// [`Completion`].
///
/// Dropping it must not cancel the operation, nor free its buffers while they may be used.
pub trait Outstanding: Send {
    /// Drives the queue pair; wakes the task when there is progress to be had by polling again.
    /// Wakers are called without holding locks: they may poll, post and drop completions at once.
    /// Not called again after it returned `Ready`.
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult>;

    /// Drives the queue pair as far as it goes without waiting. Not called again after `Some`.
    fn try_result(&mut self) -> Option<ChainResult>;
}

/// The outcome of one posted chain, now or later.
///
/// Dropping it cancels interest in the outcome, never the operation.
#[must_use = "the buffers and the error of the chain come back through its completion"]
pub struct Completion {
    state: State,
}

/// The ready kind is large so that the fast path needs no allocation.
enum State {
    Ready(ChainResult),
    Outstanding(Box<dyn Outstanding>),
    Taken,
}

impl Completion {
    /// The completion of a chain that is done. Does not allocate.
    #[inline]
    pub fn ready(result: ChainResult) -> Self {
        Self { state: State::Ready(result) }
    }

    /// The completion of a chain whose verb at index `executed` failed.
    #[cold]
    pub fn failed(chain: Chain, executed: usize, error: FabricError) -> Self {
        Self::ready(Err(Box::new(ChainError { chain, executed, error })))
    }

    /// The completion of a chain that is still under way.
    pub fn outstanding(operation: Box<dyn Outstanding>) -> Self {
        Self { state: State::Outstanding(operation) }
    }

    /// The outcome if the chain is done, without waiting; drives the queue pair. `None` if it is
    /// not done, and also once the outcome has been taken.
    #[inline]
    pub fn try_take(&mut self) -> Option<ChainResult> {
        if let State::Outstanding(operation) = &mut self.state {
            let result = operation.try_result();
            if result.is_some() {
                self.state = State::Taken;
            }
            return result;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Some(result),
            _ => None,
        }
    }
}

impl Future for Completion {
    type Output = ChainResult;

    /// # Panics
    /// When polled after it returned the outcome.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ChainResult> {
        if let State::Outstanding(operation) = &mut self.state {
            let polled = operation.poll_result(context);
            if polled.is_ready() {
                self.state = State::Taken;
            }
            return polled;
        }
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            _ => panic!("completion polled after its outcome was taken"),
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Ready(Ok(_)) => "Completion(done)",
            State::Ready(Err(_)) => "Completion(failed)",
            State::Outstanding(_) => "Completion(outstanding)",
            State::Taken => "Completion(taken)",
        })
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Is done at the second look, and must not be looked at again.
    struct SecondTime(u32);

    impl SecondTime {
        fn look(&mut self) -> Option<ChainResult> {
            self.0 += 1;
            assert!(self.0 <= 2, "asked again after the outcome");
            (self.0 == 2).then(|| Ok(Chain::new()))
        }
    }

    impl Outstanding for SecondTime {
        fn poll_result(&mut self, _context: &mut Context<'_>) -> Poll<ChainResult> {
            self.look().map_or(Poll::Pending, Poll::Ready)
        }

        fn try_result(&mut self) -> Option<ChainResult> {
            self.look()
        }
    }

    #[test]
    fn an_outstanding_outcome_is_taken_once_by_try_take_or_by_polling() {
        let mut taken = Completion::outstanding(Box::new(SecondTime(0)));
        let outcomes = [(); 3].map(|()| taken.try_take().is_some());
        assert_eq!(outcomes, [false, true, false]);

        let mut context = Context::from_waker(Waker::noop());
        let mut polled = Completion::outstanding(Box::new(SecondTime(0)));
        assert!(Pin::new(&mut polled).poll(&mut context).is_pending());
        assert!(Pin::new(&mut polled).poll(&mut context).is_ready());
        assert!(polled.try_take().is_none());
    }

    #[test]
    #[should_panic(expected = "after its outcome was taken")]
    fn polling_for_an_outcome_that_was_taken_panics() {
        let mut completion = Completion::ready(Ok(Chain::new()));
        assert!(completion.try_take().is_some());
        let _ = Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
    }
}
