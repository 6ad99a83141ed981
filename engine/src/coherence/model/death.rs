//! The death of one node in the model, and the recovery from it (DESIGN §8, F1 to F5).
//!
//! ```text
//! Alive --dies at any moment--> Dead --F1--> Fenced --F2, F3 at each survivor; all are through-->
//!       Looked --F5: the sweep takes the dead node out of the word--> Swept
//! ```
//! Dead, its posted chain goes on at home and its mail on the wires; fenced, the rest of the chain is gone,
//! a write-back in the middle of it leaves home torn, and nothing is sent to it any more. A survivor that has
//! heard all its mail is told; it is through when the operation it had under way then is over and what it
//! inquired is answered (F4). Redo is taken as given: where the word names the dead node, home is fresh
//! after the sweep.

use super::protocol::{Protocol, Step, What};
use super::world::{Stage, Verb, World, id};
use crate::coherence::machine::{Event, Line, LocalUse, Phase};
use crate::coherence::word::{LatchDelta, LatchWord};

/// A part of the recovery that a test leaves out, to see it missed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Skipped {
    /// Survivors take the node for lost with its mail on the wires (F2).
    Mail,
    /// The sweep does not wait for inquiries (F3).
    Inquiries,
    /// The sweep does not wait for operations that were under way (F4).
    Operations,
    /// The node is not fenced before it is taken for lost (F1).
    Fence,
}

impl<const N: usize> Protocol<N> {
    /// The place of the node that may die.
    pub(super) const MORTAL: usize = N - 1;

    /// Whether the node at this place runs.
    pub(super) fn runs(world: &World<N>, node: usize) -> bool {
        world.stage == Stage::Alive || node != Self::MORTAL
    }

    /// What death and recovery can do next.
    pub(super) fn death(&self, world: &World<N>, out: &mut Vec<Step<N>>) {
        if !self.mortal {
            return;
        }
        let mut plain = |what, change: &dyn Fn(&mut World<N>)| {
            let mut after = world.clone();
            change(&mut after);
            out.push(Step { node: Self::MORTAL, what, after });
        };
        match world.stage {
            Stage::Alive => plain(What::Dies, &|after| after.stage = Stage::Dead),
            Stage::Dead if self.skipped == Some(Skipped::Fence) => {
                plain(What::Fenced, &|after| after.stage = Stage::Fenced);
            }
            Stage::Dead => plain(What::Fenced, &Self::fence),
            Stage::Fenced if (0..Self::MORTAL).all(|node| self.is_through(world, node)) => {
                plain(What::Looked, &|after| {
                    let dead = id(Self::MORTAL);
                    let holder = after.word.holder() == Ok(Some(dead));
                    let reader = after.word.readers().contains(dead);
                    after.stage = Stage::Looked { holder, reader };
                });
            }
            Stage::Looked { holder, reader } => {
                plain(What::Swept, &|after| Self::sweep(after, holder, reader));
            }
            Stage::Fenced | Stage::Swept => {}
        }
        for node in 0..Self::MORTAL {
            self.tell(world, node, out);
        }
    }

    /// F1.
    fn fence(world: &mut World<N>) {
        world.stage = Stage::Fenced;
        let node = &mut world.nodes[Self::MORTAL];
        if node.chain.take().is_some_and(|chain| chain.next() == Some(Verb::WriteBack)) {
            world.home_fresh = false;
        }
        node.line = Line::new();
        node.latch = LocalUse::Idle;
        node.fresh = false;
        node.free_due = false;
        for peer in 0..Self::MORTAL {
            world.wires[peer][Self::MORTAL].clear();
        }
    }

    /// F5.
    fn sweep(world: &mut World<N>, holder: bool, reader: bool) {
        let dead = id(Self::MORTAL);
        world.stage = Stage::Swept;
        if holder {
            world.word = world.word.add(LatchDelta::remove_holder(dead));
            world.home_fresh = true;
        }
        if reader {
            world.word = world.word.add(LatchDelta::remove_reader(dead));
        }
    }

    /// F2, F3 and the end of it, at one survivor.
    fn tell(&self, world: &World<N>, node: usize, out: &mut Vec<Step<N>>) {
        let dead = id(Self::MORTAL);
        let received_all = world.wires[Self::MORTAL][node].packets().is_empty()
            || self.skipped == Some(Skipped::Mail);
        let mut before = world.clone();
        let state = &mut before.nodes[node];
        if world.stage != Stage::Fenced || state.told || !received_all {
            return;
        }
        state.told = true;
        state.due = state.chain.is_some();
        self.drive(&before, node, Event::Lost { node: dead }, |_, after| {
            out.push(Step { node, what: What::Lost, after });
        });
    }

    /// F4.
    fn is_through(&self, world: &World<N>, node: usize) -> bool {
        let state = &world.nodes[node];
        let inquires =
            matches!(state.line.phase, Phase::Inquire { .. } | Phase::Claim { .. } | Phase::Rejoin);
        let over = !state.due || self.skipped == Some(Skipped::Operations);
        state.told && over && (!inquires || self.skipped == Some(Skipped::Inquiries))
    }

    /// Death and recovery have nothing more to do.
    pub(super) fn is_over(world: &World<N>) -> bool {
        matches!(world.stage, Stage::Alive | Stage::Swept)
    }
}

/// Nothing of the dead node is in a word that has been swept.
pub(super) fn swept<const N: usize>(world: &World<N>) -> bool {
    let dead = id(N - 1);
    let word: LatchWord = world.word;
    world.stage != Stage::Swept || word.holder() != Ok(Some(dead)) && !word.readers().contains(dead)
}
