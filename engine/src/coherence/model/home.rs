//! The loss of the home, in the model: one step that stands for all that follows.
//!
//! Nodes come to a stop at moments of their own, and no verb executes at a lost home; both are
//! schedules that are searched anyway, as anything may be slow. What is left is the moment from
//! which nobody does anything more, and what is made of it: that is the step. The home is lost
//! once.

use super::protocol::{Protocol, Step, What};
use super::world::{Fault, World, id};
use crate::coherence::machine::{LocalUse, Message, Phase};
use crate::coherence::word::{LatchDelta, LatchWord, NodeSet};

/// What the loss of a home can leave out, to show that it is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Omitted {
    /// Grants that are under way are not waited for.
    Grants,
    /// Operations are cut short before the page has got to its splits.
    WriteBack,
    /// Readers do not enter themselves in the new word.
    Readers,
}

impl Omitted {
    pub(super) const ALL: [Omitted; 3] = [Omitted::Grants, Omitted::WriteBack, Omitted::Readers];
}

impl<const N: usize> Protocol<N> {
    pub(super) fn home_loss(&self, world: &World<N>, out: &mut Vec<Step<N>>) {
        if !self.homeless || world.home_lost {
            return;
        }
        let mut after = world.clone();
        after.home_lost = true;
        for node in 0..N {
            let Some(chain) = after.nodes[node].chain.take() else { continue };
            if chain.will_write_back() && self.omitted != Some(Omitted::WriteBack) {
                after.home_fresh = after.nodes[node].fresh;
            }
        }
        for (from, to) in (0..N).flat_map(|from| (0..N).map(move |to| (from, to))) {
            let wire = &mut after.wires[from][to];
            let packets = wire.packets().to_vec();
            wire.clear();
            for packet in packets {
                let grant = matches!(packet.message, Message::GrantShared | Message::GrantModified);
                if !grant || self.omitted == Some(Omitted::Grants) {
                    continue;
                }
                let node = &mut after.nodes[to];
                node.line.received_at_rest(id(from), packet.message);
                node.fresh = packet.fresh;
            }
        }
        // Who writes the page goes on until all splits are written.
        if self.omitted != Some(Omitted::WriteBack) {
            after.store.end();
        }
        after.check_splits();
        after.word = LatchWord::FREE;
        for node in 0..N {
            let Some(own) = after.nodes.get_mut(node) else { continue };
            let before = (own.line.readable(), own.line.writable());
            own.line = own.line.without_home(NodeSet::EMPTY);
            own.free_due = false;
            match own.line.phase {
                Phase::Modified => {
                    after.word = after.word.add(LatchDelta::add_holder(id(node)));
                }
                Phase::Shared if self.omitted != Some(Omitted::Readers) => {
                    after.word = after.word.add(LatchDelta::add_reader(id(node)));
                }
                _ => {}
            }
            let kept = match own.latch {
                LocalUse::Writer | LocalUse::WriterNext => own.line.writable() || !before.1,
                LocalUse::Readers | LocalUse::ReaderNext => own.line.readable() || !before.0,
                LocalUse::Idle => true,
            };
            if !kept {
                after.fault = Some(Fault::RightLost);
            }
            after.forget(node);
        }
        out.push(Step { node: 0, what: What::HomeLost, after });
    }
}
