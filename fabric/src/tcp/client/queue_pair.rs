//! Queue pairs and their completions.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::link::Link;
use super::outcome::OutcomeCell;
use crate::api::QueuePair;
use crate::completion::{Completion, Outstanding};
use crate::id::PeerId;
use crate::tcp::node::TcpNode;
use crate::verb::{Chain, ChainResult};

pub(crate) struct TcpQueuePair {
    /// The node lives as long as its queue pairs.
    _node: Arc<TcpNode>,
    link: Arc<Link>,
}

impl TcpQueuePair {
    pub(in crate::tcp) fn new(node: Arc<TcpNode>, link: Arc<Link>) -> Self {
        Self { _node: node, link }
    }

    /// Its link.
    #[cfg(feature = "verbs")]
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl QueuePair for TcpQueuePair {
    fn peer(&self) -> PeerId {
        self.link.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        match self.link.post(chain) {
            Ok(cell) => {
                let link = Arc::clone(&self.link);
                let polls = PollState::NeverPolled;
                Completion::outstanding(Box::new(OutstandingChain { link, cell, polls }))
            }
            Err(error) => Completion::ready(Err(error)),
        }
    }
}

impl Drop for TcpQueuePair {
    fn drop(&mut self) {
        self.link.retire();
    }
}

/// The completion of a chain.
struct OutstandingChain {
    link: Arc<Link>,
    cell: Arc<OutcomeCell>,
    polls: PollState,
}

/// What the caller has done with a completion.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollState {
    NeverPolled,
    Polled,
    /// The caller has the outcome.
    Taken,
}

impl OutstandingChain {
    fn take(&mut self) -> Option<ChainResult> {
        let result = self.cell.take();
        if result.is_some() {
            self.polls = PollState::Taken;
        }
        result
    }

    /// Receives. If the chain is the only one of its node, waits for its outcome for a bounded
    /// time.
    fn take_now(&self) -> Option<ChainResult> {
        let reactor = self.link.reactor();
        if !reactor.has_one_outstanding() {
            self.link.drive();
            return self.cell.take();
        }
        let (poll_for, block) = (reactor.config().poll_for, reactor.config().block_alone);
        if !poll_for.is_zero() {
            let until = reactor.now() + poll_for;
            while reactor.now() < until {
                std::hint::spin_loop();
                self.link.ask(&self.cell);
                if let Some(result) = self.cell.take() {
                    return Some(result);
                }
            }
        }
        if block.is_zero() {
            return None;
        }
        let until = reactor.now() + block;
        let mut rest = block;
        while !rest.is_zero() && self.link.block_alone(&self.cell, rest) {
            if let Some(result) = self.cell.take() {
                return Some(result);
            }
            rest = until.saturating_sub(reactor.now());
        }
        None
    }
}

impl Outstanding for OutstandingChain {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        if let Some(result) = self.take() {
            return Poll::Ready(result);
        }
        if self.polls == PollState::NeverPolled {
            // Other tasks may post now. Their chains then leave together with this one.
            self.polls = PollState::Polled;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.link.flush();
        let taken = match self.take_now() {
            Some(result) => Some(result),
            None => self.cell.take_or_register(context.waker()),
        };
        if let Some(result) = taken {
            self.polls = PollState::Taken;
            return Poll::Ready(result);
        }
        self.link.arm();
        Poll::Pending
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        if let Some(result) = self.take() {
            return Some(result);
        }
        if self.polls == PollState::NeverPolled {
            self.link.ask(&self.cell);
        } else {
            // A waker may be registered, and then the driver has to receive.
            self.link.flush();
            self.link.drive();
        }
        self.take()
    }
}

impl Drop for OutstandingChain {
    fn drop(&mut self) {
        if self.polls != PollState::Taken {
            self.cell.clear_waker();
            self.link.flush();
            self.link.arm();
        }
    }
}
