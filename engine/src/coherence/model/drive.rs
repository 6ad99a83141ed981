//! Feeds events to the machine, and carries its actions out in the world.
//!
//! The model drives lines as the engine does: it admits no new local users during a step, a grant
//! takes the page as it is at the step, and a write-back takes the local copy when home executes it
//! (the page is not writable then). Every write-back counts as one of a dirty page: to write a
//! clean page back changes nothing at home.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::chain::PostedChain;
use super::phases::phase_tag;
use super::protocol::{Latching, ProtocolModel};
use super::wire::{Packet, id, place};
use super::world::{ModelFault, ModelNode, ModelWorld, NodeView};
use crate::coherence::machine::{Action, Actions, Event, Line, LocalUse, Message, Rules};

/// Every use of a local copy; those to which others are compared come first.
const ALL_USES: [LocalUse; 5] = [
    LocalUse::Idle,
    LocalUse::Readers,
    LocalUse::Writer,
    LocalUse::ReaderNext,
    LocalUse::WriterNext,
];

/// Whether a step under the use `a` stands for one under `b` with the same outcome.
fn stands_for(a: LocalUse, b: LocalUse) -> bool {
    matches!(
        (a, b),
        (LocalUse::Idle, _)
            | (LocalUse::Readers, LocalUse::ReaderNext)
            | (LocalUse::Writer, LocalUse::WriterNext)
    )
}

impl<const N: usize> ProtocolModel<N> {
    /// Runs the machine at a node, by what the node knows of deaths; `None` for an error or a
    /// panic.
    pub(super) fn run(
        &self,
        line: &mut Line,
        NodeView { node, knowledge, dead, recovered_before }: NodeView,
        event: Event,
        local: LocalUse,
    ) -> Option<Actions> {
        let recovering = self.recovers(knowledge, recovered_before, event);
        let rules = Rules { dead, recovering, ..self.rules };
        let step = AssertUnwindSafe(|| line.step(&rules, id(node), event, local));
        catch_unwind(step).ok()?.ok()
    }

    /// Whether a local caller can only wait to be woken.
    pub(super) fn stuck(&self, at: NodeView, line: &Line, exclusive: bool, nowait: bool) -> bool {
        let allowed = if exclusive { line.writable() } else { line.readable() };
        if allowed || nowait && line.refuses_nowait() {
            return false;
        }
        if !line.phase.at_rest() {
            return true;
        }
        let mut tried = line.clone();
        let actions = self.run(
            &mut tried,
            at,
            Event::Want { exclusive, nowait, look: false },
            LocalUse::Idle,
        );
        actions.is_some_and(|actions| actions.is_empty()) && tried == *line
    }

    /// Uses of the local copy that an event can meet.
    fn uses(&self, world: &ModelWorld<N>, node: usize) -> impl Iterator<Item = LocalUse> + use<N> {
        let ModelNode { line, latch, .. } = &world.nodes[node];
        let open = self.latching == Latching::Lazy && *latch == LocalUse::Idle;
        let (readable, writable, latch) = (line.readable(), line.writable(), *latch);
        ALL_USES.into_iter().filter(move |local| {
            if !open {
                return *local == latch;
            }
            match local {
                LocalUse::Idle | LocalUse::ReaderNext | LocalUse::WriterNext => true,
                LocalUse::Readers => readable,
                LocalUse::Writer => writable,
            }
        })
    }

    /// Feeds an event to a line under every use of its copy, and carries the actions out. `world`
    /// is the state before the event.
    pub(super) fn drive(
        &self,
        world: &ModelWorld<N>,
        node: usize,
        event: Event,
        mut then: impl FnMut(LocalUse, ModelWorld<N>),
    ) {
        let at = world.site(node);
        let mut outcomes: SmallVec<[(LocalUse, (Line, Actions)); 5]> = SmallVec::new();
        for local in self.uses(world, node) {
            let mut line = world.nodes[node].line.clone();
            let Some(actions) = self.run(&mut line, at, event, local) else {
                // Under weakened rules the message is ignored: the word is damaged anyway.
                if !self.published() {
                    let mut after = world.clone();
                    after.nodes[node].line = line;
                    after.fault = Some(ModelFault::Violation);
                    then(local, after);
                }
                return;
            };
            let same = |use_: LocalUse, (other, done): &(Line, Actions)| {
                stands_for(use_, local) && *other == line && *done == actions
            };
            if outcomes.iter().any(|(use_, outcome)| same(*use_, outcome)) {
                continue;
            }
            // Only now: most of the time of a search is the copying of worlds.
            let mut after = world.clone();
            after.nodes[node].line = line.clone();
            if !after.nodes[node].line.deferred.is_empty() {
                after.nodes[node].latch = local;
            }
            after.fault = self.fault(world, &after, node, event, &actions);
            for action in &actions {
                if !self.carry_out(&mut after, node, *action) {
                    after.fault = Some(ModelFault::Action);
                }
            }
            if self.published() {
                after.fault = None;
            }
            let met = 1 << phase_tag(line.phase);
            if self.met.load(Ordering::Relaxed) & met == 0 {
                self.met.fetch_or(met, Ordering::Relaxed);
            }
            outcomes.push((local, (line, actions)));
            after.see_through(node, self.keeps_claimed);
            after.forget(node);
            then(local, after);
        }
    }

    /// The fault of a step, if it has one.
    fn fault(
        &self,
        before: &ModelWorld<N>,
        after: &ModelWorld<N>,
        node: usize,
        event: Event,
        actions: &Actions,
    ) -> Option<ModelFault> {
        let at = before.site(node);
        let (before, after) = (&before.nodes[node].line, &after.nodes[node].line);
        let keeps = |local, right: fn(&Line) -> bool| {
            let mut line = before.clone();
            !right(before) || self.run(&mut line, at, event, local).is_none() || right(&line)
        };
        if !keeps(LocalUse::Readers, Line::readable) || !keeps(LocalUse::Writer, Line::writable) {
            return Some(ModelFault::RightLost);
        }
        let told = actions.contains(&Action::Wake) || matches!(event, Event::Want { .. });
        let missed = |exclusive, nowait| {
            self.stuck(at, before, exclusive, nowait) && !self.stuck(at, after, exclusive, nowait)
        };
        let pairs = [(false, false), (false, true), (true, false), (true, true)];
        let lost = !told && pairs.into_iter().any(|(exclusive, nowait)| missed(exclusive, nowait));
        lost.then_some(ModelFault::WakeLost)
    }

    /// Returns false for an action that no driver could carry out.
    fn carry_out(&self, world: &mut ModelWorld<N>, node: usize, action: Action) -> bool {
        match action {
            Action::Post(operation) => {
                let phase = world.nodes[node].line.phase;
                let chain = PostedChain::post(operation, phase, id(node), N, self.coded);
                chain.is_some() && std::mem::replace(&mut world.nodes[node].chain, chain).is_none()
            }
            Action::Send { to, message } => {
                let grant = matches!(message, Message::GrantShared | Message::GrantModified);
                let fresh = grant && world.nodes[node].fresh;
                let to = place(to);
                if to < N && !Self::takes_mail(world, to) {
                    return true;
                }
                to < N && to != node && world.wires[node][to].push(Packet { message, fresh })
            }
            Action::Wake | Action::Refuse | Action::BackOff { .. } => true,
        }
    }
}
