//! A queue pair of the simulated network, and the chains and writes that are in flight on it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::outcome::OutcomeCell;
use crate::error::FabricError;
use crate::id::RemoteAddr;
use crate::verb::{Chain, ChainError, ChainResult, Verb};

/// Bytes on the wire of a verb without payload, and of a reply without payload.
const HEADER_BYTES: u64 = 32;

/// A chain on its way.
pub(super) struct ChainInFlight {
    pub(super) chain: Chain,
    pub(super) queue_pair: usize,
    pub(super) cell: Arc<OutcomeCell>,
    /// Verbs executed.
    pub(super) executed: usize,
    /// Words done of the verb that is being executed in two parts.
    pub(super) words_done: usize,
    pub(super) error: Option<FabricError>,
    /// When the adapter gives up on a link.
    pub(super) gives_up_at: u64,
}

impl ChainInFlight {
    pub(super) fn request_bytes(&self) -> u64 {
        let payload = |verb: &Verb| match verb {
            Verb::Read { .. } => 0,
            verb => verb.buf().map_or(0, |buf| buf.len() as u64),
        };
        self.chain.verbs.iter().map(|verb| HEADER_BYTES + payload(verb)).sum()
    }

    pub(super) fn reply_bytes(&self) -> u64 {
        let read = |verb: &Verb| match verb {
            Verb::Read { into, .. } => into.len() as u64,
            _ => 0,
        };
        HEADER_BYTES + self.chain.verbs.iter().map(read).sum::<u64>()
    }

    pub(super) fn finish(self) -> (Arc<OutcomeCell>, ChainResult) {
        let ChainInFlight { chain, cell, executed, error, .. } = self;
        match error {
            None => (cell, Ok(chain)),
            Some(error) => (cell, Err(Box::new(ChainError { chain, executed, error }))),
        }
    }
}

/// A write that is complete but not in place yet.
pub(super) struct LateWrite {
    pub(super) ticket: u64,
    pub(super) at: RemoteAddr,
    pub(super) words: Vec<u64>,
    /// When it is due: not before earlier late writes.
    pub(super) due: u64,
    pub(super) ring: bool,
}

/// One queue pair.
pub(super) struct QueuePairState {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) last_arrive: u64,
    pub(super) last_deliver: u64,
    /// A chain is being executed.
    pub(super) busy: bool,
    /// Chains that arrived behind it, and when their last byte was in.
    pub(super) waiting: VecDeque<(Box<ChainInFlight>, u64)>,
    /// Chains that wait for a cut link, oldest first.
    pub(super) held_up: VecDeque<Box<ChainInFlight>>,
    /// Chains that were executed and whose answers wait for a blocked link, oldest first.
    pub(super) held_answers: VecDeque<Box<ChainInFlight>>,
    pub(super) late_writes: VecDeque<LateWrite>,
    /// The process of the source knows that the peer is dead: what is outstanding fails as well.
    pub(super) ended: bool,
    /// The adapter gave the peer up: every later chain fails.
    pub(super) broken: bool,
}

impl QueuePairState {
    pub(super) const fn new(from: usize, to: usize) -> Self {
        Self {
            from,
            to,
            last_arrive: 0,
            last_deliver: 0,
            busy: false,
            waiting: VecDeque::new(),
            held_up: VecDeque::new(),
            held_answers: VecDeque::new(),
            ended: false,
            late_writes: VecDeque::new(),
            broken: false,
        }
    }

    /// Its two nodes, and whether it is broken.
    pub(super) const fn ends(&self) -> (usize, usize, bool) {
        (self.from, self.to, self.broken)
    }
}
