//! What the death of a node does to a line (DESIGN §8, F2 to F5).
//!
//! The dead node is fenced, and its mail has been taken in, before a line hears of its death: from
//! then on nothing of it changes the word any more, and nothing new comes from it.
//!
//! ```text
//!  Lost(d):  waits for d, or Ceded to d -> Inquire{Ceded}
//!            grant of d unconfirmed -> Inquire{Shared or Modified}
//!            else                   -> d's requests and answers are no more waited for
//!
//!  Inquire{Ceded}    -- bit set --> ReleaseShared --> Invalid     -- not --> Invalid
//!                    -- names this node --> Disclaim --> d is named again; as above
//!  Inquire{Modified} -- word names d --> Claim --> Modified       -- names this node --> Modified
//!  Inquire{Shared}   -- word names d --> Rejoin --> Shared        -- does not --> Shared
//! ```
//! A shared copy that d granted may be the only good one: d may have died in its write-back. So
//! whoever has such a copy writes it home, and enters its bit. Several can have been granted copies
//! together; they write the same bytes, and d stays in the word, so that nobody writes others
//! before all have.
//!
//! A grant that d entered in the word may have been lost with d, and the only copy with it. Then
//! the word is made to name d again, so that the sweep finds what it finds of a line that d had.
//!
//! Who meets d in the word backs off until the recovery is over. The bits of d itself are left to
//! the sweep that ends it: nobody clears one on d's behalf any more, and d is granted nothing more.
//!
//! The sweep takes a line that d holds for lost unless a survivor's bit is in the word, so bits
//! must not be there by mistake. A reader that adds its bit in vain has it there until the reset;
//! an add that was posted when the word had no holder can land when a survivor that had not heard
//! of the death yet has handed the line to d. So during a recovery readers put their bits in by a
//! swap of a word without a holder (Join).

use super::super::word::{ComputeId, LatchDelta, LatchWord};
use super::terms::Inquiry;
use super::{Action, Atomic, LatchOperation, Phase, Step, UpgradeHope, Violation, WordAccess};

impl Step<'_> {
    /// Whether a node is not to be asked any more.
    pub(super) fn is_dead(&self, node: ComputeId) -> bool {
        self.rules.dead.contains(node)
    }

    /// The word names a dead node: nothing can be had before the recovery is over.
    pub(super) fn back_off(&mut self, dead: ComputeId, phase: Phase) {
        self.out.push(Action::BackOff { dead });
        self.settle(phase);
    }

    pub(super) fn lost(&mut self, dead: ComputeId) {
        self.line.carried = self.line.carried.without(dead);
        if self.line.upgrade == UpgradeHope::Lost {
            // The winner may have been the dead node, whose request never comes.
            self.line.upgrade = UpgradeHope::Open;
            self.out.push(Action::Wake);
        }
        if self.line.grantor == Some(dead) {
            let of = match self.line.phase {
                Phase::Modified => Inquiry::Modified,
                Phase::Shared => Inquiry::Shared,
                // The copy is gone already; the bit may be there or not.
                _ => Inquiry::Ceded,
            };
            self.line.grantor = None;
            return self.inquire(of, dead);
        }
        match self.line.phase {
            // The dead node may have granted the line in the word, by a message that was lost with
            // it.
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

    /// What the word says of a line that a dead node had a hand in.
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
                self.post_chain(Phase::Rejoin, operation);
            }
            Inquiry::Shared if has_bit => self.settle(Phase::Shared),
            Inquiry::Shared | Inquiry::Modified => return Err(self.violation()),
        }
        Ok(())
    }

    /// A swap of this node for the dead one is over.
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

    /// A swap of the dead node for this one is over.
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
    use super::super::super::word::NodeSet;
    use super::super::{Deferred, Event, Line, LocalUse, Message, Request, RequestKind, Rules};
    use super::*;

    const READ: Request = Request { kind: RequestKind::Read, nowait: false, priority: 0 };

    fn node(index: usize) -> ComputeId {
        ComputeId::new(index).unwrap()
    }

    /// A line that has not heard of the death would put the bit that it carries in a second time.
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
