//! The death of one node in the model, or of two at once, and the recovery from it
//! (docs/design.md, Membership and recovery, F1 to F5).
//!
//! ```text
//! Alive --at any time--> Dead --F1--> Fenced --F2 to F4 at each survivor; all are through-->
//!       Looked --F5: swaps what it has seen in the word, or looks again--> Swept
//!
//! each survivor:  Nothing --all their mail is handled--> Noted --Lost--> Due
//!                    --no operation outstanding--> Told
//! ```
//! The chain that a dead node posted still executes at home, and its mail still arrives, except
//! perhaps the last messages. The fence cuts the rest of the chain off; a write-back that is cut
//! short leaves home torn. Messages to the dead node do not arrive.
//!
//! Another node may die during the recovery, also the one that sweeps. Its own recovery then begins
//! with its fence, and no sweep begins before that. A survivor that had acknowledged the first
//! death learns of the second as of the first. A sweep that had begun may go on, or is begun anew.
//!
//! A survivor knows of the death (Noted) before it tells its lines one by one. It tells active
//! lines first, then lines whose frames or notes name the dead node. A line at rest that hands over
//! in between is not told (Passed). A line that was told is done when it is next without an
//! outstanding operation.
//!
//! Without logs there is no redo: if the word names the dead node and no living node's bit is in
//! it, the sweep takes the line for lost and leaves the word as it is. Otherwise home must be
//! fresh. With logs nothing is lost: the changes that home lacks must be in the logs of the dead
//! nodes.

use super::chain::{ChainVerb, PostedChain};
use super::omissions::{RecoveryOmission, RegenerationOmission};
use super::protocol::{ModelEvent, ModelStep, ProtocolModel};
use super::wire::{Packet, id, place};
use super::world::{DeathKnowledge, ModelFault, ModelNode, ModelWorld, NodeLife, RecoveryStage};
use crate::coherence::machine::{Event, Line, LocalUse, Message, Phase};
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

impl<const N: usize> ProtocolModel<N> {
    /// The place of the node that may die, alone or with another.
    pub(super) const MORTAL: usize = N - 1;

    /// Whether the node at this place runs.
    pub(super) fn runs(world: &ModelWorld<N>, node: usize) -> bool {
        world.nodes[node].life == NodeLife::Runs
    }

    /// Whether mail arrives at the node at this place.
    pub(super) fn takes_mail(world: &ModelWorld<N>, node: usize) -> bool {
        Self::runs(world, node) || world.nodes[node].life == NodeLife::Failed
    }

    fn skips(&self, part: RecoveryOmission) -> bool {
        self.skipped == Some(part)
    }

    /// The steps of death and recovery.
    pub(super) fn death(&self, world: &ModelWorld<N>, out: &mut Vec<ModelStep<N>>) {
        if !self.mortal {
            return;
        }
        let mut plain = |node, what, change: &dyn Fn(&mut ModelWorld<N>)| {
            let mut after = world.clone();
            change(&mut after);
            out.push(ModelStep::new(node, what, after));
        };
        let dead = || world.places(|node| node.life == NodeLife::Dead);
        match world.stage {
            RecoveryStage::Alive => {
                if self.fails && Self::runs(world, Self::MORTAL) {
                    plain(Self::MORTAL, ModelEvent::Fails, &|after| after.fail(Self::MORTAL));
                }
                plain(Self::MORTAL, ModelEvent::Dies, &|after| after.die([Self::MORTAL]));
                // One survivor is left to recover.
                let others = if N > 2 && !self.twice { 0..Self::MORTAL } else { 0..0 };
                for other in others {
                    plain(other, ModelEvent::DiesToo, &|after| after.die([Self::MORTAL, other]));
                }
            }
            RecoveryStage::Dead => {
                for node in dead().filter(|node| world.nodes[*node].chain.is_some()) {
                    plain(node, ModelEvent::Fenced, &|after| self.fence(after, node));
                    if world.is_writing_splits(node) && !self.skips(RecoveryOmission::Fence) {
                        plain(node, ModelEvent::Fenced, &|after| {
                            after.tear(node, self.careless == Some(RegenerationOmission::AtOnce));
                            self.fence(after, node);
                        });
                    }
                }
            }
            RecoveryStage::Fenced => {
                let any = self.skips(RecoveryOmission::OtherDeaths);
                for node in dead().filter(|node| world.is_through(*node, any)) {
                    plain(node, ModelEvent::Looked, &|after| self.judge(after, node));
                }
            }
            RecoveryStage::Looked { of, word, .. } => {
                plain(of, ModelEvent::Swept, &|after| self.sweep(after, of, word));
            }
            RecoveryStage::Swept => {}
        }
        self.die_later(world, out);
        for node in world.places(|node| node.life == NodeLife::Runs) {
            self.lose_mail(world, node, out);
            self.learn(world, node, out);
        }
    }

    /// Whether a second node may die: the recovery from the first is under way.
    fn another_may_die(&self, world: &ModelWorld<N>) -> bool {
        let is_under_way = !matches!(world.stage, RecoveryStage::Alive | RecoveryStage::Swept);
        self.twice && is_under_way && world.dead().len() == 1
    }

    /// The nodes of which one may die now, while it has no operation outstanding.
    pub(super) fn next_to_die(&self, world: &ModelWorld<N>) -> impl Iterator<Item = usize> {
        let is_first = self.mortal && world.stage == RecoveryStage::Alive;
        let any = self.another_may_die(world);
        let runs = world.places(|node| node.life == NodeLife::Runs);
        runs.filter(move |node| any || is_first && *node == Self::MORTAL)
    }

    /// A second node dies while the recovery from the first is under way.
    fn die_later(&self, world: &ModelWorld<N>, out: &mut Vec<ModelStep<N>>) {
        if !self.another_may_die(world) {
            return;
        }
        for node in world.places(|node| node.life == NodeLife::Runs) {
            let mut died = |what, stage: Option<RecoveryStage>| {
                let mut after = world.clone();
                after.die([node]);
                if let Some(stage) = stage {
                    after.stage = stage;
                }
                out.push(ModelStep::new(node, what, after));
            };
            match world.stage {
                RecoveryStage::Looked { of, word, .. } => {
                    let died_since = Some(node);
                    let goes_on = RecoveryStage::Looked { of, word, died: died_since };
                    died(ModelEvent::DiesLater, Some(goes_on));
                    died(ModelEvent::SweeperDies, None);
                }
                _ => died(ModelEvent::DiesLater, None),
            }
        }
    }

    /// The last messages of a dead node may be lost, also those that it sent before its last verb.
    fn lose_mail(&self, world: &ModelWorld<N>, node: usize, out: &mut Vec<ModelStep<N>>) {
        if world.stage == RecoveryStage::Alive {
            return;
        }
        let known = world.nodes[node].known;
        for from in world.dead().iter().filter(|dead| !known.contains(*dead)).map(place) {
            if !world.wires[from][node].packets().is_empty() {
                let mut after = world.clone();
                after.wires[from][node].lose_last();
                out.push(ModelStep::new(node, ModelEvent::MailLost { from }, after));
            }
        }
    }

    /// F1.
    fn fence(&self, world: &mut ModelWorld<N>, node: usize) {
        if self.skips(RecoveryOmission::Fence) {
            world.stage = RecoveryStage::Fenced;
            return;
        }
        let chain = world.nodes[node].chain.take();
        // A survivor that resolves a grant writes home what may be there already. Such a write that
        // is cut short changes nothing. Where no node dies later only dirty pages matter here.
        let is_home = self.twice && world.home_fresh && world.nodes[node].fresh;
        let writes = chain.is_some_and(|chain| chain.next() == Some(ChainVerb::WriteBack));
        if writes && !is_home {
            world.home_fresh = false;
        }
        world.forget(node);
        world.forget_chain(node);
    }

    /// F2 and F3 at one survivor.
    fn learn(&self, world: &ModelWorld<N>, node: usize, out: &mut Vec<ModelStep<N>>) {
        if !matches!(world.stage, RecoveryStage::Fenced | RecoveryStage::Swept) {
            return;
        }
        let state = &world.nodes[node];
        let swept = world.stage == RecoveryStage::Swept;
        let unknown = || world.dead().iter().filter(|dead| !state.known.contains(*dead));
        let received_all =
            unknown().all(|dead| world.wires[place(dead)][node].packets().is_empty());
        let learns = received_all || self.skips(RecoveryOmission::Mail);
        let mut plain = |knowledge| {
            let mut after = world.clone();
            after.nodes[node].knowledge = knowledge;
            if knowledge == DeathKnowledge::Noted {
                if state.knowledge != DeathKnowledge::Due {
                    after.nodes[node].acknowledged = state.known;
                }
                after.nodes[node].known = world.dead();
            }
            let acknowledged = after.nodes[node].acknowledged;
            after.nodes[node].untold = match knowledge {
                // Those that were told and are not acknowledged are told once more.
                DeathKnowledge::Noted => {
                    world.dead().iter().filter(|dead| !acknowledged.contains(*dead)).collect()
                }
                DeathKnowledge::Passed => state.untold,
                _ => NodeSet::EMPTY,
            };
            out.push(ModelStep::new(node, ModelEvent::Knows(knowledge), after));
        };
        let owes = state.claimed && state.line.phase == Phase::Modified && !self.keeps_claimed;
        let told = if owes { DeathKnowledge::Due } else { DeathKnowledge::Told };
        let touched = state.untold.iter().any(|dead| Self::is_touched(&state.line, dead));
        match state.knowledge {
            DeathKnowledge::Nothing | DeathKnowledge::Told | DeathKnowledge::Due
                if learns && unknown().next().is_some() =>
            {
                plain(DeathKnowledge::Noted)
            }
            DeathKnowledge::Noted if !state.line.is_plain() => self.lose(world, node, out),
            DeathKnowledge::Noted if touched => plain(DeathKnowledge::Passed),
            DeathKnowledge::Noted => plain(told),
            DeathKnowledge::Passed => {
                if !touched && Self::is_unlisted(&state.line) {
                    plain(told);
                }
                self.lose(world, node, out);
            }
            DeathKnowledge::Told if swept => plain(DeathKnowledge::Over),
            DeathKnowledge::Nothing
            | DeathKnowledge::Told
            | DeathKnowledge::Due
            | DeathKnowledge::Over => {}
        }
    }

    /// Whether a line at rest names a dead node.
    fn is_touched(line: &Line, dead: ComputeId) -> bool {
        line.carried.contains(dead) || line.phase == Phase::Ceded { to: dead }
    }

    /// Whether neither the frame nor the notes of the line name a dead node any more. They do until
    /// the line comes to rest; only the frame of a line that is handed over goes at once.
    fn is_unlisted(line: &Line) -> bool {
        matches!(line.phase, Phase::HandOver { .. } | Phase::ReleaseModified) || line.is_plain()
    }

    /// Tells a line of a death; of two deaths, one after the other.
    fn lose(&self, world: &ModelWorld<N>, node: usize, out: &mut Vec<ModelStep<N>>) {
        for dead in world.nodes[node].untold.iter() {
            let mut before = world.clone();
            let state = &mut before.nodes[node];
            state.untold = state.untold.without(dead);
            let was_under_way = state.line.phase.operation_outstanding();
            let waits = match self.skipped {
                Some(RecoveryOmission::Inquiries) => was_under_way,
                Some(RecoveryOmission::Operations) => !was_under_way,
                _ => true,
            };
            if state.untold.is_empty() {
                // Due until the line has no operation, perhaps at the end of this step.
                state.knowledge = if waits { DeathKnowledge::Due } else { DeathKnowledge::Told };
            }
            self.drive(&before, node, Event::Lost { node: dead }, |_, after| {
                out.push(ModelStep::new(node, ModelEvent::Lost(place(dead)), after));
            });
        }
    }

    /// An operation of a survivor has completed; the next one is not posted yet.
    pub(super) fn completes(&self, world: &mut ModelWorld<N>, node: usize) {
        let knowledge = &mut world.nodes[node].knowledge;
        if self.skips(RecoveryOmission::FollowUps) && *knowledge == DeathKnowledge::Due {
            *knowledge = DeathKnowledge::Told;
        }
    }

    /// Whether a node takes this event by the rules of a recovery. They hold from some time after
    /// the node knows of the death, and before it lists the lines to be told.
    pub(super) fn recovers(
        &self,
        knowledge: DeathKnowledge,
        recovered_before: bool,
        event: Event,
    ) -> bool {
        let knows = match knowledge {
            DeathKnowledge::Passed | DeathKnowledge::Told | DeathKnowledge::Due => true,
            DeathKnowledge::Noted => recovered_before,
            DeathKnowledge::Nothing | DeathKnowledge::Over => false,
        };
        let joins =
            !self.skips(RecoveryOmission::Joins) || !matches!(event, Event::Completed { .. });
        knows && joins && !self.skips(RecoveryOmission::Looks)
    }

    /// The decision of the sweep for `dead` about a word: the new word, and whether the line is
    /// lost.
    fn judgement(
        &self,
        world: &ModelWorld<N>,
        dead: ComputeId,
        word: LatchWord,
    ) -> (LatchWord, bool) {
        let holds = word.holder() == Ok(Some(dead));
        let died = match world.stage {
            RecoveryStage::Looked { died, .. } => died,
            _ => None,
        };
        let lives = |reader: ComputeId| {
            if died.is_some_and(|died| id(died) == reader) {
                return true;
            }
            let other = self.skips(RecoveryOmission::DeadReaders) && reader != dead;
            other || !world.dead().contains(reader)
        };
        let is_lost = match self.skipped {
            Some(RecoveryOmission::Loss) => false,
            Some(RecoveryOmission::Readers) => holds,
            _ => holds && !word.readers().iter().any(lives),
        };
        let mut swept = word;
        if word.readers().contains(dead) {
            swept = swept.add(LatchDelta::remove_reader(dead));
        }
        if holds && !is_lost {
            swept = swept.add(LatchDelta::remove_holder(dead));
        }
        (swept, is_lost)
    }

    /// F5: the sweep has read the word.
    fn judge(&self, world: &mut ModelWorld<N>, of: usize) {
        let word = world.word;
        let (swept, lost) = self.judgement(world, id(of), word);
        if swept == word {
            self.repair_torn(world, of, lost);
            world.end_sweep(of, lost);
        } else {
            let died = match world.stage {
                RecoveryStage::Looked { died, .. } => died,
                _ => None,
            };
            world.stage = RecoveryStage::Looked { of, word, died };
        }
    }

    /// F5: the sweep swaps the word that it has read, or reads another.
    fn sweep(&self, world: &mut ModelWorld<N>, of: usize, seen: LatchWord) {
        let (swept, lost) = self.judgement(world, id(of), seen);
        if world.word == seen || self.skips(RecoveryOmission::Compare) {
            world.word = swept;
            self.repair_torn(world, of, lost);
            world.end_sweep(of, lost);
            if seen.holder() != swept.holder() && !world.home_fresh {
                world.fault = Some(ModelFault::Judgement);
            }
        } else if self.skips(RecoveryOmission::Retry) {
            self.repair_torn(world, of, lost);
            world.end_sweep(of, lost);
        } else {
            self.judge(world, of);
        }
    }

    /// Whether death and recovery have no more steps.
    pub(super) fn is_over(world: &ModelWorld<N>) -> bool {
        matches!(world.stage, RecoveryStage::Alive | RecoveryStage::Swept)
            && !world.nodes.iter().any(|node| node.life == NodeLife::Failed)
    }
}

impl<const N: usize> ModelWorld<N> {
    /// A node finds that the line's memory does not answer. The rest of its chain may be executed
    /// all the same, until the fence.
    fn fail(&mut self, place: usize) {
        let node = &mut self.nodes[place];
        node.life = NodeLife::Failed;
        node.latch = LocalUse::Idle;
        node.free_due = false;
        let asked = std::mem::take(&mut node.line.deferred);
        node.line = Line::new();
        for asked in asked {
            self.answer_not_held(place, asked.from);
        }
        self.forget(place);
    }

    pub(super) fn answer_not_held(&mut self, node: usize, asker: ComputeId) {
        let message = Message::NotHeld { holder: None };
        if !self.wires[node][place(asker)].push(Packet { message, fresh: false }) {
            self.fault = Some(ModelFault::Action);
        }
    }

    /// Nodes die: only their chains at home and their mail are left.
    pub(super) fn die<const D: usize>(&mut self, dead: [usize; D]) {
        self.stage = RecoveryStage::Dead;
        for place in dead {
            let node = &mut self.nodes[place];
            node.life = NodeLife::Dead;
            node.line = Line::new();
            node.latch = LocalUse::Idle;
            node.free_due = false;
            for wires in &mut self.wires {
                wires[place].clear();
            }
            self.forget(place);
        }
        for place in dead {
            self.forget_chain(place);
        }
    }

    /// Drops the chain of a dead node that changes nothing more, as the fence would.
    pub(super) fn forget_chain(&mut self, node: usize) {
        let chain = &mut self.nodes[node].chain;
        *chain = chain.filter(PostedChain::will_change);
        let acts = |node: &ModelNode| node.life == NodeLife::Dead && node.chain.is_some();
        if self.stage == RecoveryStage::Dead && !self.nodes.iter().any(acts) {
            self.stage = RecoveryStage::Fenced;
        }
    }

    /// F4: notes that a line has no operation outstanding any more.
    pub(super) fn see_through(&mut self, node: usize, keeps_claimed: bool) {
        let node = &mut self.nodes[node];
        // The node first writes home what it has taken over from a dead node.
        let is_claimed = node.claimed && node.line.phase == Phase::Modified && !keeps_claimed;
        if node.knowledge == DeathKnowledge::Due
            && !node.line.phase.operation_outstanding()
            && !is_claimed
        {
            node.knowledge = DeathKnowledge::Told;
        }
    }

    /// Whether all survivors have acknowledged the death of the node at this place, or `any` death.
    fn is_through(&self, of: usize, any: bool) -> bool {
        self.nodes.iter().filter(|node| node.life == NodeLife::Runs).all(|node| {
            let is_told = node.knowledge == DeathKnowledge::Told;
            let through = if is_told { node.known } else { node.acknowledged };
            through.contains(id(of)) || any && !through.is_empty()
        })
    }

    fn end_sweep(&mut self, of: usize, lost: bool) {
        self.nodes[of].life = NodeLife::Swept { lost };
        let left = self.nodes.iter().any(|node| node.life == NodeLife::Dead);
        let acts = |node: &ModelNode| node.life == NodeLife::Dead && node.chain.is_some();
        self.stage = match self.nodes.iter().any(acts) {
            true => RecoveryStage::Dead,
            false if left => RecoveryStage::Fenced,
            false => RecoveryStage::Swept,
        };
        let dead = self.dead();
        // For a lost line the logs of all dead nodes are read. They are not kept after the last
        // sweep.
        let is_lost = self.nodes.iter().any(|node| node.life == NodeLife::Swept { lost: true });
        let owed = |node| if is_lost { !dead.contains(node) } else { !left && dead.contains(node) };
        if self.unhomed.iter().any(owed) {
            self.fault = Some(ModelFault::Unhomed);
        }
    }
}

/// A swept word names the dead node exactly if the line is lost, and then for ever.
pub(super) fn swept<const N: usize>(world: &ModelWorld<N>) -> bool {
    let (holder, readers) = (world.word.holder(), world.word.readers());
    world.nodes.iter().enumerate().all(|(place, node)| match node.life {
        NodeLife::Swept { lost } => {
            lost == (holder == Ok(Some(id(place)))) && !readers.contains(id(place))
        }
        NodeLife::Runs | NodeLife::Failed | NodeLife::Dead => true,
    })
}

/// No survivor has a copy of a lost line, or a grant of one.
pub(super) fn lost_only_without_copies<const N: usize>(world: &ModelWorld<N>) -> bool {
    let is_lost = world.nodes.iter().any(|node| node.life == NodeLife::Swept { lost: true });
    let is_grant = |message| matches!(message, Message::GrantShared | Message::GrantModified);
    let packets = || world.wires.as_flattened().iter().flat_map(|wire| wire.packets());
    !is_lost
        || !world.nodes.iter().any(|node| node.line.readable() || node.line.grantor.is_some())
            && !packets().any(|packet| is_grant(packet.message))
}
