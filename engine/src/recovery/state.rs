//! The deaths of other nodes that a node knows of, and the state of its part in the recoveries.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::claimed::ClaimedLines;
use super::doubts::Doubts;
use crate::coding::repair_gate::RepairGate;
use crate::coherence::word::{ComputeId, NodeSet};
use crate::log::LogOwner;

/// Deaths of other nodes, and this node's part in the recoveries from them.
#[derive(Default)]
pub(crate) struct RecoveryState {
    /// Nodes that died, as a [`NodeSet`]: nothing is asked of them.
    dead: AtomicU64,
    /// Nodes that have left, as a [`NodeSet`]: this node gives their answers ([`super::left`]).
    pub(super) left: AtomicU64,
    /// Held while a node is taken for one that has left, or its index for that of another.
    pub(super) left_gate: Mutex<()>,
    /// A recovery is in progress that this node has noted.
    is_recovering: AtomicBool,
    /// Peers that this node does not reach.
    pub(crate) doubts: Doubts,
    /// Lines taken over from a dead node that granted them.
    pub(crate) claimed: ClaimedLines,
    /// Logs of dead nodes that this node has tried to redo, and how often.
    pub(crate) redo_attempts: Mutex<BTreeMap<LogOwner, u32>>,
    /// Steps that this node takes for the pool as a whole.
    pub(crate) repairs: RepairGate,
}

impl RecoveryState {
    /// The nodes that died, as far as this node has taken note.
    pub(crate) fn dead_nodes(&self) -> NodeSet {
        // Acquire pairs with `note_dead`: the mail of the dead was handled before.
        NodeSet::from_bits(self.dead.load(Ordering::Acquire))
    }

    pub(crate) fn note_dead(&self, nodes: NodeSet) {
        // Release: a reader of the set sees the mail of these nodes handled.
        self.dead.fetch_or(nodes.to_bits(), Ordering::AcqRel);
    }

    /// Another node has the index of the dead one.
    pub(crate) fn forget_dead(&self, node: ComputeId) {
        self.dead.fetch_and(!NodeSet::EMPTY.with(node).to_bits(), Ordering::AcqRel);
    }

    /// Whether a recovery is under way that this node has taken note of.
    pub(crate) fn is_recovering(&self) -> bool {
        self.is_recovering.load(Ordering::Acquire)
    }

    pub(crate) fn set_recovering(&self, is_recovering: bool) {
        self.is_recovering.store(is_recovering, Ordering::Release);
    }

    /// Notes that no recovery is in progress. Returns whether one was.
    pub(crate) fn end_recovery(&self) -> bool {
        self.is_recovering.swap(false, Ordering::AcqRel)
    }
}
