//! One step of a line, and the operations that all transitions share.

use super::event::{
    Action, Actions, Atomic, Event, LatchOperation, LocalUse, Violation, WordAccess,
};
use super::line::{Line, UpgradeHope};
use super::message::{Deferred, Message, Request, RequestKind};
use super::phase::Phase;
use super::rules::Rules;
use crate::coherence::word::ComputeId;

/// One step: the line, the event with its context, and the actions so far.
pub(super) struct Transition<'a> {
    pub(super) line: &'a mut Line,
    pub(super) rules: &'a Rules,
    pub(super) me: ComputeId,
    pub(super) local: LocalUse,
    pub(super) out: Actions,
    pub(super) event: Event,
    /// The node that the line was handed to in this step.
    pub(super) handed_to: Option<ComputeId>,
}

impl Line {
    /// Takes one event. `local` is the present use of the local copy.
    ///
    /// An error means that a peer or the word broke the protocol; the line is then unchanged.
    pub fn step(
        &mut self,
        rules: &Rules,
        me: ComputeId,
        event: Event,
        local: LocalUse,
    ) -> Result<Actions, Violation> {
        // A dead node gets no grant, also before this line is told of the death: the sweep removes
        // its bit, which must not be entered again.
        self.deferred.retain(|deferred| !rules.dead.contains(deferred.from));
        let mut cx = Transition {
            line: self,
            rules,
            me,
            local,
            out: Actions::new(),
            event,
            handed_to: None,
        };
        match event {
            Event::Want { exclusive, nowait, look } => cx.want(exclusive, nowait, look),
            Event::Evict => cx.evict(),
            Event::WriteBack => cx.write_back(),
            Event::Leave => cx.leave(),
            Event::Completed { old } => cx.completed(old)?,
            Event::Received { from, message } => cx.received(from, message)?,
            Event::LocalFree => cx.drain(),
            Event::Lost { node } => cx.lost(node),
        }
        Ok(cx.out)
    }
}

impl Transition<'_> {
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

    /// Whether the node may start a global transition of its own.
    pub(super) fn may_start(&self) -> bool {
        self.line.phase.at_rest() && self.line.grantor.is_none()
    }

    pub(super) fn confirm(&mut self, to: ComputeId) {
        if self.rules.confirms() && !self.is_dead(to) {
            self.send(to, Message::Confirm);
        }
    }

    /// The line comes to rest: wakes local waiters and answers deferred requests.
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

    /// Takes deferred requests again, the highest priority first, older ones before younger. Those
    /// that still must wait are deferred again.
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
            // A request that is passed over gains priority, so that none starves (SELCC §5.3).
            request.priority = request.priority.saturating_add(1).min(self.rules.max_priority);
            self.request(from, request);
        }
    }

    /// Whether the line defers every request (R6).
    pub(super) fn defers_all(&self) -> bool {
        self.line.phase.operation_outstanding() || self.line.grantor.is_some()
    }
}
