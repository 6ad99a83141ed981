//! What the local callers of a node can do.

use super::protocol::{Latching, ModelEvent, ModelStep, ProtocolModel};
use super::wire::id;
use super::world::{ModelNode, ModelWorld};
use crate::coherence::machine::{Event, LocalUse, Phase};

impl<const N: usize> ProtocolModel<N> {
    pub(super) fn application(
        &self,
        world: &ModelWorld<N>,
        node: usize,
        out: &mut Vec<ModelStep<N>>,
    ) {
        let ModelNode { line, latch, .. } = &world.nodes[node];
        let mut event = |what, event| {
            self.drive(world, node, event, |_, after| {
                if after != *world {
                    out.push(ModelStep::new(node, what, after));
                }
            });
        };
        for exclusive in [false, true] {
            let allowed = if exclusive { line.writable() } else { line.readable() };
            for nowait in self.callers[node]
                .nowait()
                .iter()
                .copied()
                .filter(|_| !allowed && line.phase.at_rest())
            {
                for look in [false, true] {
                    let want = Event::Want { exclusive, nowait, look };
                    event(ModelEvent::Want { exclusive, nowait, look }, want);
                }
            }
        }
        if line.phase.at_rest() {
            event(ModelEvent::Evict, Event::Evict);
            event(ModelEvent::Leave, Event::Leave);
        }
        if self.logs && line.phase == Phase::Modified {
            event(ModelEvent::WriteBack, Event::WriteBack);
        }
        let mut plain = |what, change: &dyn Fn(&mut ModelWorld<N>)| {
            let mut after = world.clone();
            change(&mut after);
            if after != *world {
                out.push(ModelStep::new(node, what, after));
            }
        };
        let explicit = self.latching == Latching::Explicit;
        if explicit && *latch == LocalUse::Idle {
            for (right, local) in
                [(line.readable(), LocalUse::Readers), (line.writable(), LocalUse::Writer)]
            {
                if right {
                    plain(ModelEvent::Latch(local), &|after| after.nodes[node].latch = local);
                }
            }
        }
        let writer = *latch == LocalUse::Writer || !explicit && *latch == LocalUse::Idle;
        if writer && line.writable() {
            plain(ModelEvent::Write, &|after| {
                after.write(node);
                if self.logs {
                    after.unhomed = after.unhomed.with(id(node));
                }
            });
        }
        if *latch != LocalUse::Idle {
            plain(ModelEvent::Unlatch, &|after| {
                let node = &mut after.nodes[node];
                node.latch = LocalUse::Idle;
                node.free_due = !node.line.deferred.is_empty();
            });
        }
    }
}
