//! What home and the network can do: execute a verb, complete a chain, deliver a message.

use super::chain::ChainVerb;
use super::protocol::{ModelEvent, ModelStep, ProtocolModel};
use super::wire::{Packet, id};
use super::world::ModelWorld;
use crate::coherence::machine::{Event, Inquiry, Message, Phase};

impl<const N: usize> ProtocolModel<N> {
    pub(super) fn system(&self, world: &ModelWorld<N>, node: usize, out: &mut Vec<ModelStep<N>>) {
        if world.nodes[node].free_due && Self::runs(world, node) {
            let mut before = world.clone();
            before.nodes[node].free_due = false;
            self.drive(&before, node, Event::LocalFree, |local, after| {
                out.push(ModelStep::new(node, ModelEvent::Freed(local), after));
            });
        }
        let Some(chain) = world.nodes[node].chain else { return };
        let mut before = world.clone();
        let Some(verb) = chain.next() else {
            if !Self::runs(world, node) {
                return;
            }
            before.nodes[node].chain = None;
            let phase = before.nodes[node].line.phase;
            let claims =
                matches!(phase, Phase::Claim { .. } | Phase::Inquire { of: Inquiry::Modified, .. });
            before.nodes[node].claimed |= claims && self.logs;
            self.completes(&mut before, node);
            if chain.reads() {
                before.nodes[node].fresh = chain.data;
            }
            self.drive(&before, node, Event::Completed { old: chain.old }, |local, after| {
                out.push(ModelStep::new(node, ModelEvent::Complete(local), after));
            });
            return;
        };
        let fresh = world.nodes[node].fresh;
        let (mut writes, mut reads) = (false, false);
        if let Some(chain) = &mut before.nodes[node].chain {
            match verb {
                ChainVerb::WriteBack => before.home_fresh = fresh,
                ChainVerb::Parity | ChainVerb::Data | ChainVerb::Versions => {
                    writes = true;
                }
                ChainVerb::Word => {
                    before.word = chain.change(id(node), world.word);
                }
                ChainVerb::Read => {
                    chain.data = world.home_fresh;
                    reads = chain.is_granted();
                }
            }
            chain.advance();
            if matches!(verb, ChainVerb::WriteBack | ChainVerb::Versions) {
                let chain = *chain;
                before.is_home(&chain);
                before.nodes[node].claimed = false;
            }
        }
        if writes {
            before.write_stage(node, verb, fresh);
        }
        if reads {
            before.read_splits();
        }
        before.forget(node);
        if !Self::runs(world, node) {
            before.forget_chain(node);
        }
        out.push(ModelStep::new(node, ModelEvent::Home(verb), before));
    }

    /// A node that has failed answers a request; all other mail says nothing to it.
    pub(super) fn refuse_mail(
        &self,
        world: &ModelWorld<N>,
        node: usize,
        from: usize,
        out: &mut Vec<ModelStep<N>>,
    ) {
        let Some(packet) = world.wires[from][node].first() else { return };
        let mut after = world.clone();
        after.wires[from][node].pop();
        if matches!(packet.message, Message::Request(_)) {
            after.answer_not_held(node, id(from));
        }
        out.push(ModelStep::new(node, ModelEvent::Refused { from }, after));
    }

    pub(super) fn mail(
        &self,
        world: &ModelWorld<N>,
        node: usize,
        from: usize,
        out: &mut Vec<ModelStep<N>>,
    ) {
        let Some(Packet { message, fresh }) = world.wires[from][node].first() else { return };
        let mut before = world.clone();
        before.wires[from][node].pop();
        if matches!(message, Message::GrantShared | Message::GrantModified) {
            before.nodes[node].fresh = fresh;
        }
        let older = world.nodes[node].line.deferred.len();
        let event = Event::Received { from: id(from), message };
        self.drive(&before, node, event, |local, after| {
            let newcomer = after.nodes[node].line.deferred.len() > older;
            for overtakes in 1..=if newcomer { older } else { 0 } {
                let mut after = after.clone();
                after.nodes[node].line.deferred[older - overtakes..].rotate_right(1);
                let what = ModelEvent::Receive { from, message, local, overtakes };
                out.push(ModelStep::new(node, what, after));
            }
            let what = ModelEvent::Receive { from, message, local, overtakes: 0 };
            out.push(ModelStep::new(node, what, after));
        });
    }
}
