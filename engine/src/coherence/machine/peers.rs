//! Transitions that messages of other nodes cause: requests, and the answers to them.

use super::event::{Action, LocalUse, Violation};
use super::line::UpgradeHope;
use super::message::{Deferred, Message, Request, RequestKind};
use super::phase::Phase;
use super::transition::Transition;
use crate::coherence::word::{ComputeId, LatchDelta, NodeSet};

impl Transition<'_> {
    /// Answers or defers a request of another node.
    pub(super) fn request(&mut self, from: ComputeId, request: Request) {
        let defer = self.defers_all()
            || match (self.line.phase, request.kind) {
                // R7: a node with an intent answers when its intent is decided. That may wait for
                // latches at other nodes unless its own callers are `nowait`. A reader that waits
                // for a grant cannot say whether it has a copy before the holder has answered.
                (Phase::WaitSharers { .. }, RequestKind::Read | RequestKind::Write) => {
                    if request.nowait && !self.line.nowait {
                        return self.send(from, Message::Busy);
                    }
                    true
                }
                (Phase::WaitRead { holder }, RequestKind::Release) => from != holder,
                _ => false,
            };
        if defer {
            return self.line.deferred.push(Deferred { from, request });
        }
        let in_use = match (self.line.phase, request.kind) {
            // A local writer that is next has no use for a shared copy, and must not keep it from
            // the writer to which its upgrade lost.
            (Phase::Shared, RequestKind::Release) => {
                !matches!(self.local, LocalUse::Idle | LocalUse::WriterNext)
            }
            (Phase::Lapsed, RequestKind::Release) => false,
            (Phase::Modified, RequestKind::Write) => self.local != LocalUse::Idle,
            (Phase::Modified, RequestKind::Read) => !self.grants_reads(),
            _ => {
                let holder = self.handed_to.filter(|holder| *holder != from);
                return self.send(from, Message::NotHeld { holder });
            }
        };
        match (in_use, request.nowait) {
            (true, true) => {
                self.refuse_release(request.kind);
                self.send(from, Message::Busy);
            }
            (true, false) => {
                if request.kind == RequestKind::Release {
                    self.line.upgrade = UpgradeHope::Lost;
                }
                self.line.deferred.push(Deferred { from, request });
            }
            (false, _) => self.give(from, request.kind),
        }
    }

    /// A writer that is answered Busy cancels its intent: upgrades may be tried again.
    pub(super) fn refuse_release(&mut self, kind: RequestKind) {
        if kind != RequestKind::Release {
            return;
        }
        if self.line.upgrade == UpgradeHope::Lost {
            self.out.push(Action::Wake);
        }
        self.line.upgrade = UpgradeHope::Refused;
    }

    /// Grants the line (R5), or releases a shared copy.
    pub(super) fn give(&mut self, to: ComputeId, kind: RequestKind) {
        let me = self.me;
        match kind {
            // The writer clears the bit with its next change of the word.
            RequestKind::Release => {
                self.send(to, Message::Released);
                self.settle(Phase::Ceded { to });
            }
            RequestKind::Write => {
                self.send(to, Message::GrantModified);
                let delta = LatchDelta::hand_over(me, to);
                self.post_add(Phase::HandOver { to }, self.rules.home_first, delta);
            }
            RequestKind::Read => self.share(to),
        }
    }

    /// Whether requests to read are granted.
    pub(super) fn grants_reads(&self) -> bool {
        self.line.phase == Phase::Modified
            && !matches!(self.local, LocalUse::Writer | LocalUse::WriterNext)
    }

    /// Grants shared copies to `first` and to all whose deferred requests are reads, by one atomic.
    pub(super) fn share(&mut self, first: ComputeId) {
        let mut to = NodeSet::EMPTY.with(first);
        self.line.deferred.retain(|deferred| {
            let reads = deferred.request.kind == RequestKind::Read;
            if reads {
                to = to.with(deferred.from);
            }
            !reads
        });
        to.iter().for_each(|reader| self.send(reader, Message::GrantShared));
        self.post_add(Phase::Downgrade { to }, true, LatchDelta::downgrade(self.me, to));
    }

    pub(super) fn received(&mut self, from: ComputeId, message: Message) -> Result<(), Violation> {
        if from == self.me {
            return Err(self.violation());
        }
        match (message, self.line.phase) {
            (Message::Request(request), _) => self.request(from, request),
            (Message::GrantShared, Phase::WaitRead { holder }) if holder == from => {
                self.granted(from, Phase::Shared);
            }
            (Message::GrantModified, Phase::WaitWrite { holder }) if holder == from => {
                self.granted(from, Phase::Modified);
            }
            (Message::Confirm, Phase::Shared | Phase::Modified | Phase::Lapsed)
                if self.line.grantor == Some(from) =>
            {
                self.line.grantor = None;
                self.settle(self.line.phase);
            }
            (Message::NotHeld { holder: hint }, Phase::WaitRead { holder }) if holder == from => {
                self.try_again(false, hint);
            }
            (Message::NotHeld { holder: hint }, Phase::WaitWrite { holder }) if holder == from => {
                self.try_again(true, hint);
            }
            (Message::Busy, Phase::WaitRead { holder } | Phase::WaitWrite { holder })
                if holder == from =>
            {
                self.out.push(Action::Refuse);
                self.settle(if self.line.ceded {
                    Phase::Ceded { to: holder }
                } else {
                    Phase::Invalid
                });
            }
            (
                Message::Released | Message::NotHeld { .. } | Message::Busy,
                Phase::WaitSharers { pending, refused },
            ) if pending.contains(from) => {
                if message == Message::Released {
                    self.line.carried = self.line.carried.with(from);
                }
                let refused = refused || message == Message::Busy;
                self.sharer_answered(pending.without(from), refused);
            }
            _ => return Err(self.violation()),
        }
        Ok(())
    }

    pub(super) fn granted(&mut self, grantor: ComputeId, phase: Phase) {
        self.line.grantor = Some(grantor).filter(|_| self.rules.confirms());
        self.settle(if self.line.leaving { Phase::Lapsed } else { phase });
    }

    /// The node that was asked does not hold the line: asks the node that it names, once, or goes
    /// back to the word.
    pub(super) fn try_again(&mut self, exclusive: bool, hint: Option<ComputeId>) {
        // A node that has failed names none, and may not have cleared this node's bit.
        let doubted = self.asked().filter(|_| self.line.ceded && hint.is_none());
        if self.line.leaving && doubted.is_none() {
            return self.settle(Phase::Invalid);
        }
        self.line.retries = self.line.retries.saturating_add(1).min(self.rules.max_priority);
        self.line.ceded = false;
        self.line.phase = Phase::Invalid;
        self.drain();
        match (hint, doubted) {
            (Some(holder), _) if self.follows(holder) => self.follow(exclusive, holder),
            (_, Some(to)) => {
                self.line.hinted = false;
                self.look(Phase::CededLook { to, exclusive });
            }
            _ => {
                self.line.hinted = false;
                if self.rules.ask_holders {
                    self.look(Phase::Look { exclusive });
                } else {
                    self.acquire(exclusive);
                }
            }
        }
    }

    /// The node that was asked for the line.
    fn asked(&self) -> Option<ComputeId> {
        match self.line.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } => Some(holder),
            _ => None,
        }
    }

    /// Whether the current acquisition may ask a node that is perhaps not the holder: once.
    pub(super) fn follows(&self, holder: ComputeId) -> bool {
        self.rules.follow_hints && !self.line.hinted && holder != self.me && !self.is_dead(holder)
    }

    /// Asks a node that probably holds the line.
    pub(super) fn follow(&mut self, exclusive: bool, holder: ComputeId) {
        self.line.hinted = true;
        self.wait_for(exclusive, holder);
    }

    /// Asks `holder`.
    pub(super) fn wait_for(&mut self, exclusive: bool, holder: ComputeId) {
        if self.is_dead(holder) {
            return self.back_off(holder, Phase::Invalid);
        }
        let (phase, kind) = if exclusive {
            (Phase::WaitWrite { holder }, RequestKind::Write)
        } else {
            (Phase::WaitRead { holder }, RequestKind::Read)
        };
        self.line.phase = phase;
        self.ask(holder, kind);
    }

    pub(super) fn sharer_answered(&mut self, pending: NodeSet, refused: bool) {
        if !pending.is_empty() {
            self.line.phase = Phase::WaitSharers { pending, refused };
        } else if refused {
            // R9: only this node can be the holder, so the add turns its intent into its bit.
            let delta = LatchDelta::cancel_intent(self.me);
            self.post_add(Phase::CancelIntent, false, delta);
        } else {
            self.settle(Phase::Modified);
        }
    }
}
