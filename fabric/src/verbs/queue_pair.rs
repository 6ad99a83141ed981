//! Queue pairs as callers have them, and their completions.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use super::connection::Connection;
use super::fabric::NodeCore;
use crate::api::QueuePair;
use crate::completion::{Completion, Outstanding};
use crate::id::PeerId;
use crate::tcp::client::outcome::OutcomeCell;
use crate::verb::{Chain, ChainResult};

/// Looks at the completion queue between two at the clock.
const LOOKS: usize = 16;

pub(super) struct VerbsQueuePair {
    /// The node lives as long as its queue pairs.
    _node: Arc<NodeCore>,
    connection: Arc<Connection>,
}

impl VerbsQueuePair {
    pub(super) fn new(node: Arc<NodeCore>, connection: Arc<Connection>) -> Self {
        Self { _node: node, connection }
    }
}

impl QueuePair for VerbsQueuePair {
    fn peer(&self) -> PeerId {
        self.connection.peer
    }

    fn post(&self, chain: Chain) -> Completion {
        match self.connection.post(chain) {
            Ok(cell) => {
                let connection = Arc::clone(&self.connection);
                let outstanding = OutstandingChain { connection, cell, is_taken: false };
                Completion::outstanding(Box::new(outstanding))
            }
            Err(error) => Completion::ready(Err(error)),
        }
    }
}

impl Drop for VerbsQueuePair {
    fn drop(&mut self) {
        self.connection.retire();
    }
}

/// The completion of a chain.
struct OutstandingChain {
    connection: Arc<Connection>,
    cell: Arc<OutcomeCell>,
    /// The caller has the outcome.
    is_taken: bool,
}

impl OutstandingChain {
    fn take(&mut self) -> Option<ChainResult> {
        let result = self.cell.take();
        self.is_taken = result.is_some();
        result
    }

    /// Asks for the completion; for a bounded time if it is the only one of the node.
    fn take_now(&mut self) -> Option<ChainResult> {
        self.connection.hub.poll();
        let result = self.take();
        let hub = &self.connection.hub;
        if result.is_some() || !hub.has_one_outstanding() || !self.connection.is_posted() {
            return result;
        }
        let mut until = None;
        loop {
            for _ in 0..LOOKS {
                // Where the card is software it may need this processor.
                thread::yield_now();
                self.connection.hub.poll();
                if let Some(result) = self.take() {
                    return Some(result);
                }
            }
            // Mostly it is there before the clock is asked.
            let hub = &self.connection.hub;
            let now = hub.env.now();
            if now >= *until.get_or_insert(now + hub.times.poll_for) {
                return None;
            }
        }
    }
}

impl Outstanding for OutstandingChain {
    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<ChainResult> {
        if let Some(result) = self.take().or_else(|| self.take_now()) {
            return Poll::Ready(result);
        }
        if let Some(result) = self.cell.take_or_register(context.waker()) {
            self.is_taken = true;
            return Poll::Ready(result);
        }
        self.connection.hub.arm();
        match self.take() {
            Some(result) => Poll::Ready(result),
            None => Poll::Pending,
        }
    }

    fn try_result(&mut self) -> Option<ChainResult> {
        if let Some(result) = self.take() {
            return Some(result);
        }
        self.connection.hub.poll();
        self.take()
    }
}

impl Drop for OutstandingChain {
    fn drop(&mut self) {
        if !self.is_taken {
            self.cell.clear_waker();
        }
    }
}
