//! What the simulated network is made of: nodes with their adapters, queue pairs, chains under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::slot::Slot;
use crate::error::FabricError;
use crate::id::{PeerId, RemoteAddr};
use crate::mem::node::Node;
use crate::verb::{Chain, ChainError, Verb};

/// Bytes on the wire of a verb without payload, and of a reply without.
const HEADER_BYTES: u64 = 32;

/// When each queue of an adapter has served all it has.
#[derive(Default)]
pub(super) struct Adapter {
    pub(super) sends: u64,
    pub(super) receives: u64,
    pub(super) atomics: u64,
    /// The threads that poll the node's mailboxes.
    pub(super) mail: Vec<MailThread>,
    pub(super) busy: Busy,
}

/// A thread that takes messages in.
#[derive(Clone, Default)]
pub(super) struct MailThread {
    pub(super) free_at: u64,
    pub(super) busy: u64,
}

/// How long each queue of a node's adapter has served, of the time that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Busy {
    /// Sending.
    pub sends: Duration,
    /// Receiving.
    pub receives: Duration,
    /// Executing atomics.
    pub atomics: Duration,
    /// The busiest of the threads that take messages in.
    pub mail: Duration,
}

/// One node.
pub(super) struct SimNode {
    pub(super) id: PeerId,
    pub(super) memory: Arc<Node>,
    pub(super) adapter: Adapter,
    /// How many times slower than the model its adapter is.
    pub(super) slowness: u32,
    pub(super) paused: bool,
    /// It runs nothing more.
    pub(super) crashed: bool,
    /// Nothing of it is executed any more.
    pub(super) fenced: bool,
    /// After so many more of its verbs it is killed.
    pub(super) verbs_left: Option<u64>,
    /// Tasks that were woken while it was paused.
    pub(super) parked: Vec<Arc<super::task::Task>>,
}

/// A chain under way.
pub(super) struct Flight {
    pub(super) chain: Chain,
    pub(super) lane: usize,
    pub(super) slot: Arc<Slot>,
    /// Verbs executed.
    pub(super) executed: usize,
    /// Words done of the verb that is being executed in two parts.
    pub(super) words_done: usize,
    pub(super) error: Option<FabricError>,
    /// When a link that is cut gives up.
    pub(super) gives_up_at: u64,
}

impl Flight {
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

    pub(super) fn finish(self) -> (Arc<Slot>, Result<Chain, Box<ChainError>>) {
        let Flight { chain, slot, executed, error, .. } = self;
        match error {
            None => (slot, Ok(chain)),
            Some(error) => (slot, Err(Box::new(ChainError { chain, executed, error }))),
        }
    }
}

/// A write that is completed but not in place.
pub(super) struct Unplaced {
    pub(super) ticket: u64,
    pub(super) at: RemoteAddr,
    pub(super) words: Vec<u64>,
    /// When it is due: not before those ahead of it.
    pub(super) due: u64,
    pub(super) ring: bool,
}

/// One queue pair.
pub(super) struct Lane {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) last_arrive: u64,
    pub(super) last_deliver: u64,
    /// A chain is being executed.
    pub(super) busy: bool,
    /// Chains that arrived behind it, and when they were all in.
    pub(super) waiting: VecDeque<(Box<Flight>, u64)>,
    /// Chains that met a cut link, oldest first.
    pub(super) held_up: VecDeque<Box<Flight>>,
    pub(super) unplaced: VecDeque<Unplaced>,
    /// The peer was given up: every later chain fails.
    pub(super) broken: bool,
}

impl Lane {
    pub(super) const fn new(from: usize, to: usize) -> Lane {
        Lane {
            from,
            to,
            last_arrive: 0,
            last_deliver: 0,
            busy: false,
            waiting: VecDeque::new(),
            held_up: VecDeque::new(),
            unplaced: VecDeque::new(),
            broken: false,
        }
    }

    /// From where to where it leads, and whether it is broken.
    pub(super) const fn ends(&self) -> (usize, usize, bool) {
        (self.from, self.to, self.broken)
    }
}
