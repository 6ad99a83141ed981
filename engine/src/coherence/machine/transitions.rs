//! Transitions that local wants and completed operations cause.

use super::event::{Action, Atomic, LatchOperation, LocalUse, Violation, WordAccess};
use super::line::UpgradeHope;
use super::message::RequestKind;
use super::phase::{Inquiry, Phase};
use super::transition::Transition;
use crate::coherence::word::{ComputeId, LatchDelta, LatchWord, NodeSet};

impl Transition<'_> {
    pub(super) fn want(&mut self, exclusive: bool, nowait: bool, look: bool) {
        if !self.may_start() {
            return;
        }
        let look = (look || self.rules.recovering) && self.rules.ask_holders;
        self.line.nowait = nowait;
        self.line.retries = 0;
        self.line.hinted = false;
        match self.line.phase {
            Phase::Invalid if look => self.look(Phase::Look { exclusive }),
            Phase::Invalid => self.acquire(exclusive),
            Phase::Lapsed if !exclusive => {
                let word = WordAccess::Skip;
                let read = LatchOperation { write_back: false, word, read: true };
                self.post_chain(Phase::Refetch, read);
            }
            Phase::Ceded { to } if self.is_dead(to) => self.inquire(Inquiry::Ceded, to),
            Phase::Ceded { to } => {
                self.line.ceded = true;
                self.wait_for(exclusive, to);
            }
            Phase::Shared | Phase::Lapsed
                if exclusive && self.line.upgrade == UpgradeHope::Lost =>
            {
                // The winner's release request wakes the callers that wait.
                self.out.extend(nowait.then_some(Action::Refuse));
            }
            Phase::Shared | Phase::Lapsed if exclusive => {
                self.line.lapsed = self.line.phase == Phase::Lapsed;
                if look {
                    self.look(Phase::UpgradeLook);
                } else {
                    self.upgrade_from(LatchWord::read_by(self.me));
                }
            }
            _ => {}
        }
    }

    /// Upgrades if the word still is `expected`, which has no holder.
    pub(super) fn upgrade_from(&mut self, expected: LatchWord) {
        let atomic = Atomic::Swap { expected, desired: expected.with_intent(self.me) };
        let alone = expected == LatchWord::read_by(self.me);
        let phase = if alone { Phase::Upgrade } else { Phase::UpgradeIntent { expected } };
        self.post(phase, false, atomic, self.line.lapsed);
    }

    pub(super) fn acquire(&mut self, exclusive: bool) {
        if exclusive {
            let atomic =
                Atomic::Swap { expected: LatchWord::FREE, desired: LatchWord::held_by(self.me) };
            self.post(Phase::AcquireExclusive, false, atomic, true);
        } else {
            let atomic = Atomic::Add(LatchDelta::add_reader(self.me));
            self.post(Phase::AcquireShared, false, atomic, true);
        }
    }

    /// Becomes a reader of a line whose word had no holder when it was last read. During a recovery
    /// the bit must never enter a word that names a dead holder by now, so the node swaps the word
    /// that it has read.
    pub(super) fn join(&mut self, old: LatchWord) {
        if !self.rules.recovering {
            return self.acquire(false);
        }
        let desired = old.add(LatchDelta::add_reader(self.me));
        self.post(
            Phase::Join { expected: old },
            false,
            Atomic::Swap { expected: old, desired },
            true,
        );
    }

    /// Whether the node may give its copy up.
    pub(super) fn may_release(&self) -> bool {
        self.may_start() && self.local == LocalUse::Idle && self.line.deferred.is_empty()
    }

    /// Eviction (R8). With [`super::Rules::sticky_bits`] the bit of a shared copy stays in the
    /// word: that saves the atomics of the eviction and of the next fetch.
    pub(super) fn evict(&mut self) {
        // The bit is given up when a writer asks for it: where none does it would stay.
        let keeps_bit = self.rules.sticky_bits || self.rules.recovering && self.rules.ask_holders;
        if self.line.phase == Phase::Shared && keeps_bit && self.may_release() {
            self.line.phase = Phase::Lapsed;
        } else if !self.line.phase.without_copy() {
            self.release_own();
        }
    }

    /// Writes the page home. This node stays the holder, so the word is left alone. Local readers
    /// may read meanwhile.
    pub(super) fn write_back(&mut self) {
        let is_written = matches!(self.local, LocalUse::Writer | LocalUse::WriterNext);
        let may_start = self.may_start() && self.line.deferred.is_empty();
        if self.line.phase == Phase::Modified && may_start && !is_written {
            let word = WordAccess::Skip;
            let operation = LatchOperation { write_back: true, word, read: false };
            self.post_chain(Phase::WriteBack, operation);
        }
    }

    /// The node leaves. A ceded bit is first taken back, by a shared acquisition.
    pub(super) fn leave(&mut self) {
        match self.line.phase {
            Phase::Ceded { to } if self.may_release() && self.is_dead(to) => {
                self.inquire(Inquiry::Ceded, to);
            }
            Phase::Ceded { to } if self.may_release() => {
                self.line.ceded = true;
                self.line.leaving = true;
                self.line.nowait = false;
                self.line.retries = 0;
                self.wait_for(false, to);
            }
            // The bit may be all that tells the sweep that home has the page (`death`).
            Phase::Shared | Phase::Lapsed if self.rules.recovering => {}
            _ => self.release_own(),
        }
    }

    /// Gives up the copy, and takes this node out of the word.
    pub(super) fn release_own(&mut self) {
        if !self.may_release() {
            return;
        }
        match self.line.phase {
            Phase::Shared | Phase::Lapsed => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(self.me));
                self.post(Phase::ReleaseShared, false, atomic, false);
            }
            Phase::Modified => {
                self.post_add(Phase::ReleaseModified, true, LatchDelta::remove_holder(self.me));
            }
            _ => {}
        }
    }

    /// Posts the holder's change of the word, which also clears the carried bits.
    pub(super) fn post_add(&mut self, phase: Phase, write_back: bool, delta: LatchDelta) {
        // The sweep clears a dead node's bit, also before this line is told of the death.
        let carried = std::mem::replace(&mut self.line.carried, NodeSet::EMPTY).iter();
        let clears = |reader: &ComputeId| !self.is_dead(*reader) || !self.rules.leaves_dead_bits();
        let carried = carried.filter(clears).collect();
        self.post(phase, write_back, Atomic::Add(delta.clearing(carried)), false);
    }

    pub(super) fn completed(&mut self, old: LatchWord) -> Result<(), Violation> {
        let me = self.me;
        let phase = self.line.phase;
        let holder = old.holder().map_err(|_| self.violation())?;
        if holder == Some(me) && phase.acquires() || !phase.operation_outstanding() {
            return Err(self.violation());
        }
        // The operation has completed; every branch below sets the next phase.
        self.line.phase = Phase::Invalid;
        if let Some(phase) = self.failed_try(phase, old) {
            self.try_failed(phase);
            return Ok(());
        }
        match (phase, holder) {
            (Phase::Inquire { of, dead }, _) => self.inquired(of, dead, old)?,
            (Phase::Claim { dead, expected }, _) => self.claimed(dead, expected, old)?,
            (Phase::Disclaim { dead, expected }, _) => self.disclaimed(dead, expected, old)?,
            (Phase::Rejoin { .. }, _) => self.settle(Phase::Shared),
            _ => return self.operation_completed(phase, holder, old),
        }
        Ok(())
    }

    /// Takes the completion of an operation, except of those that follow a death.
    fn operation_completed(
        &mut self,
        phase: Phase,
        holder: Option<ComputeId>,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let me = self.me;
        match (phase, holder) {
            (Phase::CededLook { to, exclusive }, _) => {
                return self.looked_for_ceded(to, exclusive, old);
            }
            (Phase::Look { exclusive }, Some(holder)) => {
                self.wait_for(exclusive, holder);
                self.drain();
            }
            (Phase::Look { exclusive: true }, None) if old != LatchWord::FREE => {
                self.found_readers(old);
            }
            (Phase::Look { exclusive: true }, None) => self.acquire(true),
            (Phase::Look { exclusive: false }, None) => self.join(old),
            (Phase::Join { expected }, None) if old == expected => self.settle(Phase::Shared),
            (Phase::Join { .. }, None) => self.join(old),
            (Phase::Join { .. }, Some(holder)) => {
                self.wait_for(false, holder);
                self.drain();
            }
            (Phase::AcquireShared, None) => self.settle(Phase::Shared),
            (Phase::AcquireShared, Some(holder)) => {
                let atomic = Atomic::Add(LatchDelta::remove_reader(me));
                self.post(Phase::ResetShared { holder }, false, atomic, false);
                if !self.rules.waits_for_reset() {
                    self.ask(holder, RequestKind::Read);
                }
            }
            (Phase::Refetch, _) => self.settle(Phase::Shared),
            (Phase::ResetShared { holder }, _) if self.is_dead(holder) => {
                self.back_off(holder, Phase::Invalid);
            }
            (Phase::ResetShared { holder }, _) => {
                self.line.phase = Phase::WaitRead { holder };
                if self.rules.waits_for_reset() {
                    self.ask(holder, RequestKind::Read);
                }
                self.drain();
            }
            (Phase::Downgrade { to }, _) => {
                to.iter().for_each(|reader| self.confirm(reader));
                self.settle(Phase::Shared);
            }
            (Phase::HandOver { to }, _) => {
                self.handed_to = Some(to).filter(|to| !self.is_dead(*to));
                self.confirm(to);
                self.settle(Phase::Invalid);
            }
            (Phase::ReleaseShared | Phase::ReleaseModified, _) => self.settle(Phase::Invalid),
            (Phase::WriteBack, _) => self.settle(Phase::Modified),
            (Phase::CancelIntent, _) => {
                self.out.push(Action::Refuse);
                self.settle(Phase::Shared);
            }
            _ => return self.write_right_tried(phase, holder, old),
        }
        Ok(())
    }

    /// The node `to` was to clear this node's bit, and does not hold the line. If it has not
    /// cleared the bit it has failed, and does so no more; until it has left the pool or is dead,
    /// an operation of it may still execute.
    fn looked_for_ceded(
        &mut self,
        to: ComputeId,
        exclusive: bool,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let holder = old.holder().map_err(|_| self.violation())?;
        if !old.readers().contains(self.me) {
            if self.line.leaving {
                self.settle(Phase::Invalid);
                return Ok(());
            }
            return self.operation_completed(Phase::Look { exclusive }, holder, old);
        }
        if self.is_dead(to) {
            // It may have cleared the bit between this look and its fence.
            self.inquire(Inquiry::Ceded, to);
        } else if holder == Some(to) {
            self.out.extend(self.line.nowait.then_some(Action::Refuse));
            self.settle(Phase::Ceded { to });
        } else {
            // It was the holder, and another node has put itself in its place.
            let atomic = Atomic::Add(LatchDelta::remove_reader(self.me));
            self.post(Phase::ReleaseShared, false, atomic, false);
        }
        Ok(())
    }

    /// Takes the completion of an operation that tried to get the right to write.
    fn write_right_tried(
        &mut self,
        phase: Phase,
        holder: Option<ComputeId>,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let me = self.me;
        match (phase, holder) {
            (Phase::UpgradeLook, None) => self.upgrade_from(old),
            (Phase::AcquireExclusive | Phase::Intent { .. }, Some(holder)) => {
                self.wait_for(true, holder);
                self.drain();
            }
            (Phase::AcquireExclusive, None) => self.found_readers(old),
            (Phase::Intent { expected }, None) if old == expected => self.intent_won(old),
            (Phase::Intent { .. }, None) if old == LatchWord::FREE => self.acquire(true),
            (Phase::Intent { .. }, None) => self.found_readers(old),
            (Phase::Upgrade, None) if old == LatchWord::read_by(me) => self.settle(Phase::Modified),
            (Phase::Upgrade, None) => self.upgrade_from(old),
            (Phase::UpgradeIntent { expected }, None) if old == expected => self.intent_won(old),
            (Phase::UpgradeLook | Phase::Upgrade | Phase::UpgradeIntent { .. }, _) => {
                self.upgrade_lost(holder);
            }
            _ => return Err(self.violation()),
        }
        Ok(())
    }

    /// The phase after an operation that found another node, where holders are not asked
    /// ([`super::Rules::ask_holders`]).
    fn failed_try(&self, phase: Phase, old: LatchWord) -> Option<Phase> {
        match phase {
            _ if self.rules.ask_holders => None,
            Phase::ResetShared { .. } => Some(Phase::Invalid),
            Phase::AcquireExclusive => (old != LatchWord::FREE).then_some(Phase::Invalid),
            Phase::Upgrade => (old != LatchWord::read_by(self.me)).then_some(Phase::Shared),
            _ => None,
        }
    }

    /// The try failed, and the node that is in the word is not asked.
    pub(super) fn try_failed(&mut self, phase: Phase) {
        if self.line.nowait {
            self.out.push(Action::Refuse);
        }
        self.settle(phase);
    }

    /// The word has no holder: it is free, or the writer announces its intent (R3).
    pub(super) fn found_readers(&mut self, old: LatchWord) {
        if old == LatchWord::FREE {
            return self.settle(Phase::Modified);
        }
        let atomic = Atomic::Swap { expected: old, desired: old.with_intent(self.me) };
        self.post(Phase::Intent { expected: old }, false, atomic, true);
    }

    pub(super) fn intent_won(&mut self, old: LatchWord) {
        // A dead node reads no more; the sweep of its recovery clears its bit.
        let dead = self.rules.dead;
        let readers = old.readers().without(self.me).iter();
        let pending = readers.filter(|reader| !dead.contains(*reader)).collect::<NodeSet>();
        if pending.is_empty() {
            return self.settle(Phase::Modified);
        }
        self.line.phase = Phase::WaitSharers { pending, refused: false };
        self.line.upgrade = UpgradeHope::Open;
        self.line.lapsed = false;
        // Local readers need not wait for the answers: the copy is valid already.
        self.out.push(Action::Wake);
        for reader in pending.iter() {
            self.ask(reader, RequestKind::Release);
        }
        self.drain();
    }

    /// R4: the line stays Shared. A holder sends its release request; if only the readers changed,
    /// the caller tries again.
    pub(super) fn upgrade_lost(&mut self, holder: Option<ComputeId>) {
        match holder {
            // A dead holder sends no request.
            Some(dead) if self.is_dead(dead) => self.out.push(Action::BackOff { dead }),
            Some(_) if self.line.upgrade == UpgradeHope::Open => {
                self.line.upgrade = UpgradeHope::Lost;
            }
            _ => {}
        }
        if holder.is_some() && self.line.nowait {
            self.out.push(Action::Refuse);
        }
        self.settle(if self.line.lapsed { Phase::Lapsed } else { Phase::Shared });
    }
}
