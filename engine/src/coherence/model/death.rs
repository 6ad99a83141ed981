//! The death of one node in the model, or of two at once, and the recovery from it (DESIGN §8, F1
//! to F5).
//!
//! ```text
//! Alive --at any moment--> Dead --F1--> Fenced --F2 to F4 at each survivor; all are through-->
//!       Looked --F5: swaps what it has seen in the word, or looks again--> Swept
//!
//! each survivor:  Nothing --all their mail is heard--> Noted --Lost--> Due --no operation outstanding--> Told
//! ```
//! A dead node's posted chain goes on at home and its mail on the wires, the end of which may be
//! lost; fenced, the rest of the chain is gone, and a write-back in the middle of it leaves home
//! torn. Nothing that is sent to it arrives.
//!
//! A survivor knows of the death (Noted) before it tells its lines one by one. It tells those that
//! it finds active first, then those whose frames and notes say something of the dead node: a line
//! at rest that hands over in between is not told (Passed). A line that is told is through when it
//! is seen, after that, without an operation outstanding.
//!
//! Without logs there is no redo: the sweep takes the line for lost if the word names the dead node
//! and no living node's bit is in it, and the word stays so. Else home must be fresh. With logs
//! nothing is lost: what home lacks must be in the logs of those who died.

use super::coded::Careless;
use super::protocol::{Protocol, Step, What};
use super::world::{Chain, Fault, Heard, Life, Node, Stage, Verb, World, id, place};
use crate::coherence::machine::{Event, Line, LocalUse, Message, Phase};
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

/// A part of the recovery that a test leaves out, to see it missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Skipped {
    /// The node is not fenced before it is taken for lost (F1).
    Fence,
    /// Survivors take the node for lost with its mail on the wires (F2).
    Mail,
    /// The sweep does not wait for operations that `Lost` began (F3).
    Inquiries,
    /// The sweep does not wait for operations that were under way before (F4).
    Operations,
    /// The sweep waits for such an operation, and not for those that follow it in the same step
    /// (F4).
    FollowUps,
    /// Who wants to read adds its bit without a look while the sweep is to come.
    Looks,
    /// Who has looked adds its bit to whatever the word has become.
    Joins,
    /// No word is taken for lost (F5).
    Loss,
    /// Every word that names the node is taken for lost (F5).
    Readers,
    /// The bit of another dead node counts as a proof of a copy (F5).
    DeadReaders,
    /// The sweep writes the word whatever it has become (F5).
    Compare,
    /// The sweep goes on when the word has changed (F5).
    Retry,
}

impl Skipped {
    pub(super) const ALL: [Skipped; 12] = [
        Skipped::Fence,
        Skipped::Mail,
        Skipped::Inquiries,
        Skipped::Operations,
        Skipped::FollowUps,
        Skipped::Looks,
        Skipped::Joins,
        Skipped::Loss,
        Skipped::Readers,
        Skipped::DeadReaders,
        Skipped::Compare,
        Skipped::Retry,
    ];
}

impl<const N: usize> Protocol<N> {
    /// The place of the node that may die, alone or with another.
    pub(super) const MORTAL: usize = N - 1;

    /// Whether the node at this place runs.
    pub(super) fn runs(world: &World<N>, node: usize) -> bool {
        world.nodes[node].life == Life::Runs
    }

    fn skips(&self, part: Skipped) -> bool {
        self.skipped == Some(part)
    }

    /// What death and recovery can do next.
    pub(super) fn death(&self, world: &World<N>, out: &mut Vec<Step<N>>) {
        if !self.mortal {
            return;
        }
        let mut plain = |node, what, change: &dyn Fn(&mut World<N>)| {
            let mut after = world.clone();
            change(&mut after);
            out.push(Step { node, what, after });
        };
        let dead = || world.places(|node| node.life == Life::Dead);
        match world.stage {
            Stage::Alive => {
                plain(Self::MORTAL, What::Dies, &|after| after.die([Self::MORTAL]));
                // Somebody is left to recover.
                let others = if N > 2 { 0..Self::MORTAL } else { 0..0 };
                for other in others {
                    plain(other, What::DiesToo, &|after| after.die([Self::MORTAL, other]));
                }
            }
            Stage::Dead => {
                for node in dead().filter(|node| world.nodes[*node].chain.is_some()) {
                    plain(node, What::Fenced, &|after| self.fence(after, node));
                    if world.is_writing_splits(node) && !self.skips(Skipped::Fence) {
                        plain(node, What::Fenced, &|after| {
                            after.tear(node, self.careless == Some(Careless::AtOnce));
                            self.fence(after, node);
                        });
                    }
                }
            }
            Stage::Fenced if world.is_through() => {
                for node in dead() {
                    plain(node, What::Looked, &|after| self.judge(after, node));
                }
            }
            Stage::Looked { of, word } => {
                plain(of, What::Swept, &|after| self.sweep(after, of, word));
            }
            Stage::Fenced | Stage::Swept => {}
        }
        for node in world.places(|node| node.life == Life::Runs) {
            self.lose_mail(world, node, out);
            self.hear(world, node, out);
        }
    }

    /// What a dead node sent last, and more of that, may not have arrived, whatever it did at home
    /// after that.
    fn lose_mail(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        if world.stage == Stage::Alive || world.nodes[node].heard != Heard::Nothing {
            return;
        }
        for from in world.dead().iter().map(place) {
            if !world.wires[from][node].packets().is_empty() {
                let mut after = world.clone();
                after.wires[from][node].lose_last();
                out.push(Step { node, what: What::MailLost { from }, after });
            }
        }
    }

    /// F1.
    fn fence(&self, world: &mut World<N>, node: usize) {
        if self.skips(Skipped::Fence) {
            world.stage = Stage::Fenced;
            return;
        }
        let chain = world.nodes[node].chain.take();
        if chain.is_some_and(|chain| chain.next() == Some(Verb::WriteBack)) {
            world.home_fresh = false;
        }
        world.forget(node);
        world.forget_chain(node);
    }

    /// F2 and F3 at one survivor.
    fn hear(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        if !matches!(world.stage, Stage::Fenced | Stage::Swept) {
            return;
        }
        let state = &world.nodes[node];
        let swept = world.stage == Stage::Swept;
        let received_all =
            world.dead().iter().all(|dead| world.wires[place(dead)][node].packets().is_empty());
        let mut plain = |heard| {
            let mut after = world.clone();
            after.nodes[node].heard = heard;
            after.nodes[node].untold = match heard {
                Heard::Noted => world.dead(),
                Heard::Passed => state.untold,
                _ => NodeSet::EMPTY,
            };
            out.push(Step { node, what: What::Heard(heard), after });
        };
        let owes = state.claimed && state.line.phase == Phase::Modified && !self.hoards;
        let told = if owes { Heard::Due } else { Heard::Told };
        let touched = world.dead().iter().any(|dead| Self::is_touched(&state.line, dead));
        match state.heard {
            Heard::Nothing if received_all || self.skips(Skipped::Mail) => plain(Heard::Noted),
            Heard::Noted if !state.line.is_plain() => self.lose(world, node, out),
            Heard::Noted if touched => plain(Heard::Passed),
            Heard::Noted => plain(told),
            Heard::Passed => {
                if !touched && Self::is_unlisted(&state.line) {
                    plain(told);
                }
                self.lose(world, node, out);
            }
            Heard::Told if swept => plain(Heard::Over),
            Heard::Nothing | Heard::Told | Heard::Due | Heard::Over => {}
        }
    }

    /// Whether a line at rest says something of a dead node.
    fn is_touched(line: &Line, dead: ComputeId) -> bool {
        line.carried.contains(dead) || line.phase == Phase::Ceded { to: dead }
    }

    /// Whether neither the frame nor what was left in the word speaks of a dead node any more. They
    /// do so until the line comes to rest, but that the frame of a line that is given away goes at
    /// once.
    fn is_unlisted(line: &Line) -> bool {
        matches!(line.phase, Phase::HandOver { .. } | Phase::ReleaseModified) || line.is_plain()
    }

    /// A line is told of a death; of two, one after the other.
    fn lose(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        for dead in world.nodes[node].untold.iter() {
            let mut before = world.clone();
            let state = &mut before.nodes[node];
            state.untold = state.untold.without(dead);
            let was_under_way = state.line.phase.operation_outstanding();
            let waits = match self.skipped {
                Some(Skipped::Inquiries) => was_under_way,
                Some(Skipped::Operations) => !was_under_way,
                _ => true,
            };
            if state.untold.is_empty() {
                // Due until the line is seen without an operation, perhaps at the end of this step.
                state.heard = if waits { Heard::Due } else { Heard::Told };
            }
            self.drive(&before, node, Event::Lost { node: dead }, |_, after| {
                out.push(Step { node, what: What::Lost(place(dead)), after });
            });
        }
    }

    /// An operation of a survivor is over; what follows has not begun.
    pub(super) fn completes(&self, world: &mut World<N>, node: usize) {
        let heard = &mut world.nodes[node].heard;
        if self.skips(Skipped::FollowUps) && *heard == Heard::Due {
            *heard = Heard::Told;
        }
    }

    /// Whether a node takes this event by the rules of a recovery: from some time after it knows of
    /// the death, and before it has found the lines to be told.
    pub(super) fn recovers(&self, heard: Heard, event: Event) -> bool {
        let knows = matches!(heard, Heard::Passed | Heard::Told | Heard::Due);
        let joins = !self.skips(Skipped::Joins) || !matches!(event, Event::Completed { .. });
        knows && joins && !self.skips(Skipped::Looks)
    }

    /// What the sweep for `dead` makes of a word: the new one, and whether the line is lost.
    fn judgement(&self, world: &World<N>, dead: ComputeId, word: LatchWord) -> (LatchWord, bool) {
        let holds = word.holder() == Ok(Some(dead));
        let lives = |reader: ComputeId| {
            let other = self.skips(Skipped::DeadReaders) && reader != dead;
            other || !world.dead().contains(reader)
        };
        let is_lost = match self.skipped {
            Some(Skipped::Loss) => false,
            Some(Skipped::Readers) => holds,
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

    /// F5: the sweep has seen the word as it is.
    fn judge(&self, world: &mut World<N>, of: usize) {
        let word = world.word;
        let (swept, lost) = self.judgement(world, id(of), word);
        if swept == word {
            self.mend(world, of, lost);
            world.end_sweep(of, lost);
        } else {
            world.stage = Stage::Looked { of, word };
        }
    }

    /// F5: the sweep swaps the word that it has seen, or sees another.
    fn sweep(&self, world: &mut World<N>, of: usize, seen: LatchWord) {
        let (swept, lost) = self.judgement(world, id(of), seen);
        if world.word == seen || self.skips(Skipped::Compare) {
            world.word = swept;
            self.mend(world, of, lost);
            world.end_sweep(of, lost);
            if seen.holder() != swept.holder() && !world.home_fresh {
                world.fault = Some(Fault::Judgement);
            }
        } else if self.skips(Skipped::Retry) {
            self.mend(world, of, lost);
            world.end_sweep(of, lost);
        } else {
            self.judge(world, of);
        }
    }

    /// Death and recovery have nothing more to do.
    pub(super) fn is_over(world: &World<N>) -> bool {
        matches!(world.stage, Stage::Alive | Stage::Swept)
    }
}

impl<const N: usize> World<N> {
    /// Of dead nodes only their chains at home and their mail are left.
    fn die<const D: usize>(&mut self, dead: [usize; D]) {
        self.stage = Stage::Dead;
        for place in dead {
            let node = &mut self.nodes[place];
            node.life = Life::Dead;
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

    /// A dead node's chain that changes nothing more is as good as fenced.
    pub(super) fn forget_chain(&mut self, node: usize) {
        let chain = &mut self.nodes[node].chain;
        *chain = chain.filter(Chain::will_change);
        let acts = |node: &Node| node.life == Life::Dead && node.chain.is_some();
        if self.stage == Stage::Dead && !self.nodes.iter().any(acts) {
            self.stage = Stage::Fenced;
        }
    }

    /// F4: a line that had an operation outstanding is seen without one.
    pub(super) fn see_through(&mut self, node: usize, hoards: bool) {
        let node = &mut self.nodes[node];
        // What it has taken over from a dead node it brings home first.
        let is_claimed = node.claimed && node.line.phase == Phase::Modified && !hoards;
        if node.heard == Heard::Due && !node.line.phase.operation_outstanding() && !is_claimed {
            node.heard = Heard::Told;
        }
    }

    /// Whether all survivors have acknowledged.
    fn is_through(&self) -> bool {
        self.nodes.iter().all(|node| node.life != Life::Runs || node.heard == Heard::Told)
    }

    fn end_sweep(&mut self, of: usize, lost: bool) {
        self.nodes[of].life = Life::Swept { lost };
        let left = self.nodes.iter().any(|node| node.life == Life::Dead);
        self.stage = if left { Stage::Fenced } else { Stage::Swept };
        let dead = self.dead();
        // The logs of all the dead are read for a line that is lost, and not needed any more when
        // all is over.
        let is_lost = self.nodes.iter().any(|node| node.life == Life::Swept { lost: true });
        let owed = |node| if is_lost { !dead.contains(node) } else { !left && dead.contains(node) };
        if self.unhomed.iter().any(owed) {
            self.fault = Some(Fault::Unhomed);
        }
    }
}

/// A word that has been swept names the dead node only if the line is lost, and then for ever.
pub(super) fn swept<const N: usize>(world: &World<N>) -> bool {
    let (holder, readers) = (world.word.holder(), world.word.readers());
    world.nodes.iter().enumerate().all(|(place, node)| match node.life {
        Life::Swept { lost } => {
            lost == (holder == Ok(Some(id(place)))) && !readers.contains(id(place))
        }
        Life::Runs | Life::Dead => true,
    })
}

/// No survivor has a copy of a line that is lost, or a grant of one.
pub(super) fn lost_only_without_copies<const N: usize>(world: &World<N>) -> bool {
    let is_lost = world.nodes.iter().any(|node| node.life == Life::Swept { lost: true });
    let is_grant = |message| matches!(message, Message::GrantShared | Message::GrantModified);
    let packets = || world.wires.as_flattened().iter().flat_map(|wire| wire.packets());
    !is_lost
        || !world.nodes.iter().any(|node| node.line.readable() || node.line.grantor.is_some())
            && !packets().any(|packet| is_grant(packet.message))
}
