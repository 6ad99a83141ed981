//! A line's own transitions: what is wanted of it, and what its operations found.

use super::super::word::{ComputeId, LatchDelta, LatchWord, NodeSet};
use super::{
    Action, Atomic, Deferred, Inquiry, LatchOperation, LocalUse, Message, Phase, Request,
    RequestKind, Step, UpgradeHope, Violation, WordAccess,
};

impl Step<'_> {
    pub(super) fn violation(&self) -> Violation {
        Violation { phase: self.line.phase, event: self.event }
    }

    pub(super) fn post(&mut self, phase: Phase, write_back: bool, atomic: Atomic, read: bool) {
        let word = WordAccess::Change(atomic);
        self.post_chain(phase, LatchOperation { write_back, word, read });
    }

    pub(super) fn look(&mut self, phase: Phase) {
        let operation = LatchOperation { write_back: false, word: WordAccess::Look, read: false };
        self.post_chain(phase, operation);
    }

    pub(super) fn post_chain(&mut self, phase: Phase, operation: LatchOperation) {
        assert!(!self.line.phase.operation_outstanding(), "R1: second operation on a line");
        self.line.phase = phase;
        self.out.push(Action::Post(operation));
    }

    pub(super) fn send(&mut self, to: ComputeId, message: Message) {
        debug_assert!(to != self.me, "a node does not write to itself");
        self.out.push(Action::Send { to, message });
    }

    pub(super) fn ask(&mut self, to: ComputeId, kind: RequestKind) {
        let request = Request { kind, nowait: self.line.nowait, priority: self.line.retries };
        self.send(to, Message::Request(request));
    }

    /// A global transition of the node's own may start.
    pub(super) fn may_start(&self) -> bool {
        self.line.phase.at_rest() && self.line.grantor.is_none()
    }

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
                // The winner's request ends the wait of those who wait.
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

    /// Upgrades, if the word is what it is taken for: without a holder.
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

    /// Becomes a reader of a line that had no holder when the word was last looked at. In a
    /// recovery the bit must not get into a word that names a dead holder by now, not even to be
    /// taken out again.
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

    /// Whether nothing keeps the node from giving its copy up.
    pub(super) fn may_release(&self) -> bool {
        self.may_start() && self.local == LocalUse::Idle && self.line.deferred.is_empty()
    }

    /// Eviction (R8). The bit of a shared copy stays in the word, where the rules have it so: the
    /// atomic, and that of the next fetch, are only needed once a writer asks for them.
    pub(super) fn evict(&mut self) {
        if self.line.phase == Phase::Shared && self.rules.sticky_bits && self.may_release() {
            self.line.phase = Phase::Lapsed;
        } else if !self.line.phase.without_copy() {
            self.release_own();
        }
    }

    /// The page goes home, and this node remains its holder: the word is left alone. Readers may
    /// look at it meanwhile.
    pub(super) fn write_back(&mut self) {
        let is_written = matches!(self.local, LocalUse::Writer | LocalUse::WriterNext);
        let may_start = self.may_start() && self.line.deferred.is_empty();
        if self.line.phase == Phase::Modified && may_start && !is_written {
            let word = WordAccess::Skip;
            let operation = LatchOperation { write_back: true, word, read: false };
            self.post_chain(Phase::WriteBack, operation);
        }
    }

    /// The node leaves. A bit in another's care is taken back first, as a shared copy would be.
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
            _ => self.release_own(),
        }
    }

    /// Gives up the copy and all that the word says of this node.
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

    /// The holder's change of the word, in which the bits that it carries go.
    pub(super) fn post_add(&mut self, phase: Phase, write_back: bool, delta: LatchDelta) {
        // A dead node's bit is for the sweep, also where this line has not heard of the death yet.
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
        // The operation is over; every branch below sets the phase it leads to.
        self.line.phase = Phase::Invalid;
        if let Some(phase) = self.failed_try(phase, old) {
            self.in_vain(phase);
            return Ok(());
        }
        match (phase, holder) {
            (Phase::Inquire { of, dead }, _) => self.inquired(of, dead, old)?,
            (Phase::Claim { dead, expected }, _) => self.claimed(dead, expected, old)?,
            (Phase::Disclaim { dead, expected }, _) => self.disclaimed(dead, expected, old)?,
            (Phase::Rejoin, _) => self.settle(Phase::Shared),
            _ => return self.operation_over(phase, holder, old),
        }
        Ok(())
    }

    /// What an operation found, but for those that follow a death.
    fn operation_over(
        &mut self,
        phase: Phase,
        holder: Option<ComputeId>,
        old: LatchWord,
    ) -> Result<(), Violation> {
        let me = self.me;
        match (phase, holder) {
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
            (Phase::UpgradeLook, None) => self.upgrade_from(old),
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
            _ => return Err(self.violation()),
        }
        Ok(())
    }

    /// Where the line stands after an operation that met somebody who is not to be asked.
    fn failed_try(&self, phase: Phase, old: LatchWord) -> Option<Phase> {
        match phase {
            _ if self.rules.ask_holders => None,
            Phase::ResetShared { .. } => Some(Phase::Invalid),
            Phase::AcquireExclusive => (old != LatchWord::FREE).then_some(Phase::Invalid),
            Phase::Upgrade => (old != LatchWord::read_by(self.me)).then_some(Phase::Shared),
            _ => None,
        }
    }

    /// Somebody is in the way who is not to be asked.
    pub(super) fn in_vain(&mut self, phase: Phase) {
        if self.line.nowait {
            self.out.push(Action::Refuse);
        }
        self.settle(phase);
    }

    /// The word has no holder: it is free, or writer intent must be announced (R3).
    pub(super) fn found_readers(&mut self, old: LatchWord) {
        if old == LatchWord::FREE {
            return self.settle(Phase::Modified);
        }
        let atomic = Atomic::Swap { expected: old, desired: old.with_intent(self.me) };
        self.post(Phase::Intent { expected: old }, false, atomic, true);
    }

    pub(super) fn intent_won(&mut self, old: LatchWord) {
        // A dead node reads no more; its bit is for the sweep that ends its recovery.
        let dead = self.rules.dead;
        let readers = old.readers().without(self.me).iter();
        let pending = readers.filter(|reader| !dead.contains(*reader)).collect::<NodeSet>();
        if pending.is_empty() {
            return self.settle(Phase::Modified);
        }
        self.line.phase = Phase::WaitSharers { pending, refused: false };
        self.line.upgrade = UpgradeHope::Open;
        self.line.lapsed = false;
        // Readers need not wait for the answers: the copy is good already.
        self.out.push(Action::Wake);
        for reader in pending.iter() {
            self.ask(reader, RequestKind::Release);
        }
        self.drain();
    }

    /// R4: stay Shared. Behind a holder its release request comes; else readers changed: try anew.
    pub(super) fn upgrade_lost(&mut self, holder: Option<ComputeId>) {
        match holder {
            // Its request never comes.
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

    pub(super) fn confirm(&mut self, to: ComputeId) {
        if self.rules.confirms() && !self.is_dead(to) {
            self.send(to, Message::Confirm);
        }
    }

    /// The line has come to rest: answer what waited, tell local waiters.
    pub(super) fn settle(&mut self, phase: Phase) {
        self.line.phase = phase;
        self.line.nowait = false;
        self.line.retries = 0;
        self.line.hinted = false;
        self.line.lapsed = false;
        self.line.ceded = false;
        self.line.leaving = false;
        if !matches!(phase, Phase::Shared | Phase::Lapsed) {
            self.line.upgrade = UpgradeHope::Open;
        }
        self.out.push(Action::Wake);
        self.drain();
    }

    /// Gives deferred requests another chance, the highest priority first, older ones before
    /// younger; those that must wait on are deferred again.
    pub(super) fn drain(&mut self) {
        if self.line.deferred.is_empty() || self.defers_all() {
            return;
        }
        let mut waiting = std::mem::take(&mut self.line.deferred);
        waiting.sort_by_key(|d| std::cmp::Reverse(d.request.priority));
        if let Some(first) = waiting.first().copied()
            && first.request.kind == RequestKind::Read
            && self.grants_reads()
        {
            self.line.deferred = waiting;
            return self.share(first.from);
        }
        for Deferred { from, mut request } in waiting {
            // Who is passed over grows older, so that nobody waits for ever behind those who try
            // again and again (SELCC §5.3).
            request.priority = request.priority.saturating_add(1).min(self.rules.max_priority);
            self.request(from, request);
        }
    }

    /// R6.
    pub(super) fn defers_all(&self) -> bool {
        self.line.phase.operation_outstanding() || self.line.grantor.is_some()
    }
}
