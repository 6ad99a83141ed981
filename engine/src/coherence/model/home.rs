//! The loss of the home, in the model: one step for the whole relocation.
//!
//! Nodes quiesce at different times, and a lost home executes no verb. Both are schedules that are
//! searched anyway, because every step may be slow. So the model has one step, from the time when
//! all nodes have quiesced to the time when all have entered their copies in the new word. The home
//! is lost once.
//!
//! Nodes may have died before, and a recovery may have got as far as it likes. The dead are fenced
//! before the word is made anew. The new word says what the survivors enter:
//!
//! - the holder, or the readers;
//! - if a reader has its copy from a dead node that did not confirm: that node as the holder;
//! - if no holder is entered: as the holder one of the dead that are still to be swept out of
//!   words. The engine takes the first of them; the model tries each.
//!
//! A line that a sweep took for lost stays lost. Recoveries stand still meanwhile. A sweep that had
//! begun begins anew, and deaths that a survivor has not acknowledged are told to its line again.
//!
//! A node may also die in the step itself: it was quiet, and the others had looked who is dead, but
//! it had not entered its copy. A node that has failed is waited for until it is dead.

use super::omissions::RelocationOmission;
use super::protocol::{ModelEvent, ModelStep, ProtocolModel};
use super::wire::{id, place};
use super::world::{DeathKnowledge, ModelFault, ModelNode, ModelWorld, NodeLife, RecoveryStage};
use crate::coherence::machine::{LocalUse, Message, Phase};
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

impl<const N: usize> ProtocolModel<N> {
    pub(super) fn home_loss(&self, world: &ModelWorld<N>, out: &mut Vec<ModelStep<N>>) {
        let is_waited_for = |node: &ModelNode| match node.life {
            NodeLife::Runs => false,
            NodeLife::Failed => true,
            NodeLife::Dead | NodeLife::Swept { .. } => node.chain.is_some(),
        };
        if !self.homeless || world.home_lost || world.nodes.iter().any(is_waited_for) {
            return;
        }
        let quiet = self.quiesced(world);
        self.enter_all(&quiet, None, out);
        for node in self.next_to_die(world) {
            self.enter_all(&quiet, Some(node), out);
        }
    }

    /// All nodes are quiet, and have taken in the grants that were sent before.
    fn quiesced(&self, world: &ModelWorld<N>) -> ModelWorld<N> {
        let mut after = world.clone();
        after.home_lost = true;
        for node in 0..N {
            let Some(chain) = after.nodes[node].chain.take() else { continue };
            // Perhaps nothing of it was posted; that all of it is home is another schedule.
            let rejoins = matches!(after.nodes[node].line.phase, Phase::Rejoin { .. });
            let omitted = self.omitted == Some(RelocationOmission::WriteBack);
            if chain.will_write_back() && !rejoins && !omitted {
                after.home_fresh = after.nodes[node].fresh;
                // Without deaths no sweep asks what home lacks.
                if self.mortal {
                    after.is_home(&chain);
                    after.nodes[node].claimed = false;
                }
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
        after
    }

    /// Survivors enter their copies in the new word. The node `dies` has not entered its own.
    fn enter_all(&self, quiet: &ModelWorld<N>, dies: Option<usize>, out: &mut Vec<ModelStep<N>>) {
        let mut after = quiet.clone();
        let is_dead = |node: &ModelNode| node.life == NodeLife::Dead;
        let known: NodeSet = after.places(is_dead).map(id).collect();
        if let Some(node) = dies {
            after.die([node]);
        }
        if let RecoveryStage::Looked { .. } = after.stage {
            after.stage = RecoveryStage::Fenced;
        }
        let lost = after.places(|node| node.life == NodeLife::Swept { lost: true }).next();
        after.word = lost.map_or(LatchWord::FREE, |node| LatchWord::held_by(id(node)));
        let mut grantors = NodeSet::EMPTY;
        for node in 0..N {
            if Self::runs(&after, node)
                && let Some(grantor) = self.enter(&mut after, node, known)
            {
                grantors = grantors.with(grantor);
            }
        }
        if self.omitted == Some(RelocationOmission::Grantors) {
            grantors = NodeSet::EMPTY;
        }
        let doubtful: NodeSet = after.places(is_dead).map(id).collect();
        let named = if grantors.is_empty() { doubtful } else { grantors };
        let mut step = |names: Option<ComputeId>| {
            let mut after = after.clone();
            if let Some(dead) = names {
                after.word = after.word.add(LatchDelta::add_holder(dead));
            }
            let what = ModelEvent::HomeLost { dies, names: names.map(place) };
            out.push(ModelStep::new(dies.unwrap_or(0), what, after));
        };
        if named.is_empty() || after.word.holder() != Ok(None) {
            return step(None);
        }
        named.iter().for_each(|dead| step(Some(dead)));
    }

    /// A survivor that knows of these dead nodes enters its copy. Returns the dead node that has
    /// granted it a shared copy and did not confirm.
    fn enter(&self, world: &mut ModelWorld<N>, node: usize, dead: NodeSet) -> Option<ComputeId> {
        let own = &mut world.nodes[node];
        let before = own.line.clone();
        own.line = before.without_home(dead);
        own.free_due = false;
        let rejoins = matches!(before.phase, Phase::Rejoin { .. });
        if rejoins && self.omitted == Some(RelocationOmission::Rejoins) {
            own.line.grantor = None;
        }
        let phase = own.line.phase;
        let grantor = own.line.grantor.filter(|_| phase == Phase::Shared);
        let kept = match own.latch {
            LocalUse::Writer | LocalUse::WriterNext => own.line.writable() || !before.writable(),
            LocalUse::Readers | LocalUse::ReaderNext => own.line.readable() || !before.readable(),
            LocalUse::Idle => true,
        };
        own.forget_telling();
        match phase {
            Phase::Modified => {
                world.word = world.word.add(LatchDelta::add_holder(id(node)));
            }
            Phase::Shared if self.omitted != Some(RelocationOmission::Readers) => {
                world.word = world.word.add(LatchDelta::add_reader(id(node)));
            }
            _ => {}
        }
        if !kept {
            world.fault = Some(ModelFault::RightLost);
        }
        world.forget(node);
        grantor
    }
}

impl ModelNode {
    /// Deaths that this node has not acknowledged are told to its line anew.
    fn forget_telling(&mut self) {
        let is_being_told = matches!(
            self.knowledge,
            DeathKnowledge::Noted | DeathKnowledge::Passed | DeathKnowledge::Due
        );
        if is_being_told {
            let is_told = |dead: &ComputeId| self.acknowledged.contains(*dead);
            self.untold = self.known.iter().filter(|dead| !is_told(dead)).collect();
            self.knowledge = DeathKnowledge::Noted;
        }
    }
}
