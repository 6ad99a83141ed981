//! Local tasks that wait for a line: who, for what, since when, and how each is told.

use std::time::Duration;

use std::task::Waker;

use crate::EngineError;

/// Which holders of a page a caller waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitPolicy {
    /// None. It may hold latches taken in any order.
    NoWait,
    /// Nodes that live. It holds latches taken in order; a recovery, and a log that has no room,
    /// may need the pages under them to go home first.
    LivingHolders,
    /// All. It holds no latch.
    AllHolders,
}

impl WaitPolicy {
    pub(crate) fn is_nowait(self) -> bool {
        self == Self::NoWait
    }

    /// Whether the caller waits although it may be the end of a node's recovery that it waits for.
    pub(crate) fn outlasts_recovery(self) -> bool {
        self == Self::AllHolders
    }
}

/// Order of arrival among the waiters of a line.
pub(crate) type Ticket = u64;

/// What a waiter has been told.
#[derive(Debug)]
pub(crate) enum Signal {
    /// Nothing yet.
    None,
    /// Look again.
    Retry,
    /// The attempt ended in Busy.
    Refused,
    /// The wait has failed.
    Failed(EngineError),
}

#[derive(Debug)]
struct Waiter {
    ticket: Ticket,
    exclusive: bool,
    policy: WaitPolicy,
    since: Duration,
    signal: Signal,
    waker: Option<Waker>,
}

/// The waiters of one line, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    queue: Vec<Waiter>,
    next: Ticket,
}

impl Waiters {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Joins the queue, or keeps the place of `ticket` in it and waits for another signal.
    pub(crate) fn enqueue(
        &mut self,
        ticket: Option<Ticket>,
        exclusive: bool,
        policy: WaitPolicy,
        now: Duration,
    ) -> Ticket {
        if let Some(waiter) = self.queue.iter_mut().find(|w| Some(w.ticket) == ticket) {
            // That the wait is over is still to be said.
            if !matches!(waiter.signal, Signal::Failed(_)) {
                waiter.signal = Signal::None;
            }
            return waiter.ticket;
        }
        let ticket = self.next;
        self.next += 1;
        let signal = Signal::None;
        self.queue.push(Waiter { ticket, exclusive, policy, since: now, signal, waker: None });
        ticket
    }

    /// Why the wait of `ticket` has failed, if it has.
    pub(crate) fn failure(&self, ticket: Ticket) -> Option<EngineError> {
        let own = self.queue.iter().find(|w| w.ticket == ticket)?;
        if let Signal::Failed(error) = &own.signal { Some(error.clone()) } else { None }
    }

    /// Leaves the queue.
    pub(crate) fn remove(&mut self, ticket: Ticket) {
        self.queue.retain(|w| w.ticket != ticket);
    }

    /// Whether a waiter that came before `ticket` (any, for a newcomer) goes first: writers
    /// before all, and before a newcoming writer all.
    pub(crate) fn goes_first(&self, ticket: Option<Ticket>, exclusive: bool) -> bool {
        match ticket {
            Some(own) => self.queue.iter().any(|w| w.ticket < own && w.exclusive),
            None => self.queue.iter().any(|w| w.exclusive || exclusive),
        }
    }

    /// What the first in turn waits for: whether to write. Those whose wait has failed and who only
    /// have to take note of it do not count.
    pub(crate) fn next_is_writer(&self) -> Option<bool> {
        let waits = |w: &&Waiter| !matches!(w.signal, Signal::Failed(_) | Signal::Refused);
        self.queue.iter().find(waits).map(|w| w.exclusive)
    }

    /// Tells those that do not wait for other nodes that the attempt has ended in Busy.
    pub(crate) fn refuse_nowait(&mut self) {
        self.refuse(WaitPolicy::is_nowait);
    }

    /// Tells those that wait for no recovery that one is in the way.
    pub(crate) fn refuse_in_recovery(&mut self) {
        self.refuse(|policy| !policy.outlasts_recovery());
    }

    fn refuse(&mut self, is_refused: impl Fn(WaitPolicy) -> bool) {
        for waiter in self.queue.iter_mut().filter(|waiter| is_refused(waiter.policy)) {
            if !matches!(waiter.signal, Signal::Failed(_)) {
                waiter.signal = Signal::Refused;
            }
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Tells all to look again; those that do not wait for other nodes get Busy when `refuse`.
    pub(crate) fn signal_all(&mut self, refuse: bool) {
        if refuse {
            self.refuse_nowait();
        }
        for waiter in &mut self.queue {
            if matches!(waiter.signal, Signal::None) {
                waiter.signal = Signal::Retry;
            }
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Tells all waiters that the line cannot be had.
    pub(crate) fn fail_all(&mut self, error: &EngineError) {
        for waiter in &mut self.queue {
            waiter.signal = Signal::Failed(error.clone());
            if let Some(waker) = waiter.waker.take() {
                waker.wake();
            }
        }
    }

    /// Ends the waits that are older than `bound`.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        bound: Duration,
        error: impl Fn(Duration) -> EngineError,
    ) {
        for waiter in &mut self.queue {
            let waited = now.saturating_sub(waiter.since);
            if waited > bound {
                waiter.signal = Signal::Failed(error(waited));
                if let Some(waker) = waiter.waker.take() {
                    waker.wake();
                }
            }
        }
    }

    /// Takes what `ticket` has been told, or leaves its waker.
    pub(crate) fn poll(&mut self, ticket: Ticket, waker: &Waker) -> Signal {
        let Some(waiter) = self.queue.iter_mut().find(|w| w.ticket == ticket) else {
            return Signal::Retry;
        };
        let signal = std::mem::replace(&mut waiter.signal, Signal::None);
        if matches!(signal, Signal::None) {
            waiter.waker = Some(waker.clone());
        }
        signal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recovery_refuses_callers_that_may_hold_latches() {
        let policies = [WaitPolicy::NoWait, WaitPolicy::LivingHolders, WaitPolicy::AllHolders];
        let is_refused = |refuse: fn(&mut Waiters)| {
            let mut waiters = Waiters::default();
            let queue = |policy| waiters.enqueue(None, true, policy, Duration::ZERO);
            let tickets = policies.map(queue);
            refuse(&mut waiters);
            tickets.map(|ticket| matches!(waiters.poll(ticket, Waker::noop()), Signal::Refused))
        };
        assert_eq!(is_refused(Waiters::refuse_in_recovery), [true, true, false]);
        assert_eq!(is_refused(Waiters::refuse_nowait), [true, false, false]);
        assert_eq!(is_refused(|waiters| waiters.signal_all(false)), [false; 3]);
    }
}
