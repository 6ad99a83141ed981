//! Answers in the place of nodes that have left the pool.
//!
//! A node leaves when it has given its lines up and all that it has sent has arrived (`close`). No
//! word names it then, it has no operation outstanding and owes no `Confirm`. It would answer every
//! further request by `NotHeld`. But its process may end before it does, or a request may not reach
//! it. So once its mail has been handled the others take that answer for given, and drop what still
//! comes from it. A line gets one answer to a request that way, as from any node.

use std::sync::atomic::Ordering;

use selkie_pool::control::PoolState;

use crate::coherence::machine::{Event, Message};
use crate::coherence::word::{ComputeId, MAX_COMPUTE_NODES, NodeSet};
use crate::core::Core;
use crate::{Coherence, GAddr};

use super::state::RecoveryState;

impl RecoveryState {
    /// Whether a node has left, and answers are given in its place.
    pub(crate) fn is_answered_for(&self, node: ComputeId) -> bool {
        // Acquire pairs with `note_left`: the mail of the node was handled before.
        NodeSet::from_bits(self.left.load(Ordering::Acquire)).contains(node)
    }

    fn note_left(&self, node: ComputeId) {
        self.left.fetch_or(NodeSet::EMPTY.with(node).to_bits(), Ordering::AcqRel);
    }

    /// Another node has the index of the one that left.
    pub(super) fn forget_left(&self, node: ComputeId) {
        self.left.fetch_and(!NodeSet::EMPTY.with(node).to_bits(), Ordering::AcqRel);
    }
}

/// The answer of a node that has left.
pub(crate) fn answer_of(node: ComputeId) -> Event {
    Event::Received { from: node, message: Message::NotHeld { holder: None } }
}

impl Core {
    /// Looks for nodes that have left, and gives the answers that this node's lines wait for.
    pub(crate) fn answer_for_left(&self) {
        if self.config.coherence == Coherence::Rpc {
            return;
        }
        let _gate = self.recovery.left_gate.lock();
        // The state is read last: a node that is known was in it.
        let known: [_; MAX_COMPUTE_NODES] =
            std::array::from_fn(|index| self.messenger.known_incarnation(index));
        let state = self.pool.state();
        for (index, incarnation) in known.into_iter().enumerate() {
            let incarnation = incarnation.filter(|incarnation| *incarnation != 0);
            let node = ComputeId::new(index).filter(|node| *node != self.me);
            let (Some(node), Some(incarnation)) = (node, incarnation) else { continue };
            if self.has_left_in(&state, node, incarnation)
                && !self.recovery.is_answered_for(node)
                && !self.messenger.mailbox_for(index).has_mail_from(index)
            {
                self.answer_for(node);
            }
        }
    }

    fn has_left_in(&self, state: &PoolState, node: ComputeId, incarnation: u32) -> bool {
        let index = node.index() as u16;
        let member = state.compute_nodes.get(&index);
        let is_member = member.is_some_and(|member| member.incarnation == incarnation);
        let is_dead = state.lost.contains_key(&index) || self.recovery.dead_nodes().contains(node);
        !is_member && !is_dead
    }

    /// Gives the answers of a node that has left, and whose mail has been handled. The caller holds
    /// the gate.
    pub(super) fn answer_for(&self, node: ComputeId) {
        self.recovery.note_left(node);
        let mut waiting = Vec::new();
        // A step that comes after this look finds that the node has left.
        for shard in self.cache.all_shards() {
            let lines = shard.lock();
            let waits = lines.iter().filter(|(_, open)| open.line.waits_for(node));
            waiting.extend(waits.map(|(addr, _)| GAddr::from_u64(*addr)));
        }
        for addr in waiting {
            self.with_line(addr, |open| {
                if open.line.waits_for(node) {
                    self.run(addr, open, answer_of(node), None);
                }
            });
        }
    }
}
