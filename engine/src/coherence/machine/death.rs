//! What the death of a node does to a line (docs/design.md, Membership and recovery, F2 to F5).
//!
//! A line is told of a death when the dead node is fenced and its mail has been handled. From then
//! on the dead node changes no word and sends no message.
//!
//! ```text
//!  Lost(d):  waits for d, or Ceded to d -> Inquire{Ceded}
//!            grant of d unconfirmed -> Inquire{Shared or Modified}
//!            else                   -> the line waits no more for answers of d
//!
//!  Inquire{Ceded}    -- bit set --> ReleaseShared --> Invalid     -- not --> Invalid
//!                    -- names this node --> Disclaim --> d is named again; as above
//!  Inquire{Modified} -- word names d --> Claim --> Modified       -- names this node --> Modified
//!  Inquire{Shared}   -- word names d --> Rejoin --> Shared        -- does not --> Shared
//! ```
//! A shared copy that d granted may be the only valid one: d may have died in its write-back. So a
//! node with such a copy writes it home and enters its bit (Rejoin). Several nodes can have been
//! granted copies together. They write the same bytes, and d stays in the word until all have
//! written, so no node writes other bytes meanwhile. No node takes its bit back before the sweep: a
//! node that leaves waits for it.
//!
//! A grant that d entered in the word may have been lost with d, and the only copy with it. Then
//! the node makes the word name d again (Disclaim), so that the sweep treats the line as one that d
//! held.
//!
//! A caller that finds d in the word backs off until the recovery is over. The sweep that ends the
//! recovery clears the bits of d: no node clears one for d any more, and d gets no grant.
//!
//! The sweep takes a line that d holds for lost unless a survivor's bit is in the word, so no bit
//! may be there by mistake. The bit of a reader whose add failed is there until the reset. An add
//! that was posted when the word had no holder can execute after a survivor that was not yet told
//! of the death has handed the line to d. So during a recovery readers enter their bits by a swap
//! of a word without a holder (Join).

use super::event::{Action, Atomic, LatchOperation, Violation, WordAccess};
use super::line::UpgradeHope;
use super::phase::{Inquiry, Phase};
use super::transition::Transition;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord};

impl Transition<'_> {
    /// Whether a node is dead, as far as this node knows.
    pub(super) fn is_dead(&self, node: ComputeId) -> bool {
        self.rules.dead.contains(node)
    }

    /// The word names a dead node: the line can be acquired when the recovery is over.
    pub(super) fn back_off(&mut self, dead: ComputeId, phase: Phase) {
        self.out.push(Action::BackOff { dead });
        self.settle(phase);
    }

    pub(super) fn lost(&mut self, dead: ComputeId) {
        self.line.carried = self.line.carried.without(dead);
        if self.line.upgrade == UpgradeHope::Lost {
            // The winner may have been the dead node, which sends no release request.
            self.line.upgrade = UpgradeHope::Open;
            self.out.push(Action::Wake);
        }
        if self.line.grantor == Some(dead) {
            let of = match self.line.phase {
                Phase::Modified => Inquiry::Modified,
                Phase::Shared => Inquiry::Shared,
                // The copy is given up already; the bit may be in the word or not.
                _ => Inquiry::Ceded,
            };
            self.line.grantor = None;
            return self.inquire(of, dead);
        }
        match self.line.phase {
            // The dead node may have entered this node in the word, and the grant was lost with it.
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } if holder == dead => {
                self.inquire(Inquiry::Ceded, dead);
            }
            Phase::Ceded { to } if to == dead => self.inquire(Inquiry::Ceded, dead),
            Phase::WaitSharers { pending, refused } if pending.contains(dead) => {
                self.sharer_answered(pending.without(dead), refused);
            }
            _ => {}
        }
    }

    pub(super) fn inquire(&mut self, of: Inquiry, dead: ComputeId) {
        self.look(Phase::Inquire { of, dead });
    }

    /// Acts on the word that an inquiry found.
    pub(super) fn inquired(
        &mut self,
        of: Inquiry,
        dead: ComputeId,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let me = self.me;
        let holder = old.holder().map_err(|_| self.violation())?;
        let has_bit = old.readers().contains(me);
        match of {
            Inquiry::Ceded if holder == Some(me) => {
                let desired = old.add(LatchDelta::hand_over(me, dead));
                let atomic = Atomic::Swap { expected: old, desired };
                self.post(Phase::Disclaim { dead, expected: old }, false, atomic, false);
            }
            Inquiry::Ceded if has_bit => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(me));
                self.post(Phase::ReleaseShared, false, atomic, false);
            }
            Inquiry::Ceded => self.settle(Phase::Invalid),
            Inquiry::Modified if holder == Some(me) => self.settle(Phase::Modified),
            Inquiry::Modified if holder == Some(dead) => {
                let atomic = Atomic::Swap { expected: old, desired: old.with_intent(me) };
                self.post(Phase::Claim { dead, expected: old }, false, atomic, false);
            }
            Inquiry::Shared if holder == Some(dead) => {
                let add = WordAccess::Change(Atomic::Add(LatchDelta::add_reader(me)));
                let word = if has_bit { WordAccess::Skip } else { add };
                let operation = LatchOperation { write_back: true, word, read: false };
                self.post_chain(Phase::Rejoin { dead }, operation);
            }
            Inquiry::Shared if has_bit => self.settle(Phase::Shared),
            Inquiry::Shared | Inquiry::Modified => return Err(self.violation()),
        }
        Ok(())
    }

    /// The swap that puts the dead node back in the place of this one has completed.
    pub(super) fn disclaimed(
        &mut self,
        dead: ComputeId,
        expected: LatchWord,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let word =
            if old == expected { old.add(LatchDelta::hand_over(self.me, dead)) } else { old };
        self.inquired(Inquiry::Ceded, dead, word)
    }

    /// The swap that puts this node in the place of the dead one has completed.
    pub(super) fn claimed(
        &mut self,
        dead: ComputeId,
        expected: LatchWord,
        old: LatchWord,
    ) -> Result<(), Violation> {
        if old == expected {
            self.settle(Phase::Modified);
            return Ok(());
        }
        self.inquired(Inquiry::Modified, dead, old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coherence::machine::{
        Deferred, Event, Line, LocalUse, Message, Request, RequestKind, Rules,
    };
    use crate::coherence::word::NodeSet;

    const READ: Request = Request { kind: RequestKind::Read, nowait: false, priority: 0 };

    fn node(index: usize) -> ComputeId {
        ComputeId::new(index).unwrap()
    }

    /// A grant to a dead node would enter, a second time, a bit that the line carries.
    #[test]
    fn nothing_is_granted_to_a_node_known_to_be_dead() {
        let dead = NodeSet::EMPTY.with(node(1));
        let mut line = Line::resting(Phase::Modified);
        line.carried = dead;
        line.deferred = vec![Deferred { from: node(1), request: READ }];
        let rules = Rules { dead, ..Rules::DESIGNED };
        let freed = line.step(&rules, node(0), Event::LocalFree, LocalUse::Idle).unwrap();
        assert!(freed.is_empty() && line.phase == Phase::Modified, "{freed:?} {line:?}");

        line.deferred = vec![Deferred { from: node(1), request: READ }];
        let event = Event::Received { from: node(2), message: Message::Request(READ) };
        line.step(&rules, node(0), event, LocalUse::Idle).unwrap();
        assert_eq!(line.phase, Phase::Downgrade { to: NodeSet::EMPTY.with(node(2)) });
    }

    #[test]
    fn during_a_recovery_readers_swap_their_bits_into_words_without_holder() {
        let me = node(0);
        let rules = Rules { recovering: true, ..Rules::DESIGNED };
        let want = Event::Want { exclusive: false, nowait: false, look: false };
        let others = LatchWord::read_by(node(2));
        let more = others.add(LatchDelta::add_reader(node(3)));
        let joins = |expected: LatchWord| {
            let desired = expected.add(LatchDelta::add_reader(me));
            let word = WordAccess::Change(Atomic::Swap { expected, desired });
            [Action::Post(LatchOperation { write_back: false, word, read: true })]
        };
        let mut line = Line::new();
        let mut step = |event| {
            let actions = line.step(&rules, me, event, LocalUse::Idle).unwrap();
            (line.phase, actions)
        };
        assert_eq!(step(want).0, Phase::Look { exclusive: false });
        let found = |old| Event::Completed { old };
        for word in [LatchWord::FREE, more, others] {
            let (phase, actions) = step(found(word));
            assert_eq!((phase, &actions[..]), (Phase::Join { expected: word }, &joins(word)[..]));
        }
        assert_eq!(step(found(others)).0, Phase::Shared);
        let mut line = Line::new();
        line.phase = Phase::Join { expected: others };
        let held = found(LatchWord::held_by(node(1)));
        line.step(&rules, me, held, LocalUse::Idle).unwrap();
        assert_eq!(line.phase, Phase::WaitRead { holder: node(1) });
    }
}
