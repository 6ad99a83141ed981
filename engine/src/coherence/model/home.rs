//! The loss of the home, in the model: one step for the whole relocation.
//!
//! Nodes quiesce at different times, and a lost home executes no verb. Both are schedules that are
//! searched anyway, because every step may be slow. So the model has one step, from the time when
//! all nodes have quiesced to the time when all have entered their copies in the new word. The home
//! is lost once.

use super::omissions::RelocationOmission;
use super::protocol::{ModelEvent, ModelStep, ProtocolModel};
use super::wire::id;
use super::world::{ModelFault, ModelWorld};
use crate::coherence::machine::{LocalUse, Message, Phase};
use crate::coherence::word::{LatchDelta, LatchWord, NodeSet};

impl<const N: usize> ProtocolModel<N> {
    pub(super) fn home_loss(&self, world: &ModelWorld<N>, out: &mut Vec<ModelStep<N>>) {
        if !self.homeless || world.home_lost {
            return;
        }
        let mut after = world.clone();
        after.home_lost = true;
        for node in 0..N {
            let Some(chain) = after.nodes[node].chain.take() else { continue };
            if chain.will_write_back() && self.omitted != Some(RelocationOmission::WriteBack) {
                after.home_fresh = after.nodes[node].fresh;
            }
        }
        for (from, to) in (0..N).flat_map(|from| (0..N).map(move |to| (from, to))) {
            let wire = &mut after.wires[from][to];
            let packets = wire.packets().to_vec();
            wire.clear();
            for packet in packets {
                let grant = matches!(packet.message, Message::GrantShared | Message::GrantModified);
                if !grant || self.omitted == Some(RelocationOmission::Grants) {
                    continue;
                }
                let node = &mut after.nodes[to];
                node.line.received_at_rest(id(from), packet.message);
                node.fresh = packet.fresh;
            }
        }
        // The writer continues until all splits are written.
        if self.omitted != Some(RelocationOmission::WriteBack) {
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
                Phase::Shared if self.omitted != Some(RelocationOmission::Readers) => {
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
                after.fault = Some(ModelFault::RightLost);
            }
            after.forget(node);
        }
        out.push(ModelStep::new(0, ModelEvent::HomeLost, after));
    }
}
