//! Drives the coherence machine: feeds events to a line, and carries its actions out.
//!
//! All steps of a line happen under its shard's lock with the frame's latch sealed. Verbs and
//! messages are posted under the lock too (posting never blocks), so operations and messages of a
//! line leave in the order of its steps.

use smallvec::SmallVec;

use super::chains::Batch;
use super::machine::{Action, Deferred, Event, Line, Message, Rules, WordAccess};
use super::open_line::OpenLine;
use super::word::ComputeId;
use crate::core::Core;
use crate::recovery::left::answer_of;
use crate::{Coherence, EngineError, GAddr};

/// Answers for nodes that have left until a line comes to rest. A word that names such a node again
/// and again is damaged.
const MAX_GIVEN: u16 = 256;

/// Events of a line that are fed to it at once.
#[derive(Default)]
struct DueEvents {
    next: Option<Event>,
    /// Nodes that were asked and have left ([`crate::recovery::left`]).
    left: SmallVec<[ComputeId; 4]>,
}

impl DueEvents {
    /// The next one for a line in this state: one that waits no more gets no answer.
    fn take(&mut self, line: &Line) -> Option<Event> {
        self.left.retain(|node| line.waits_for(*node));
        self.next.take().or_else(|| self.left.pop().map(answer_of))
    }
}

impl Core {
    /// Feeds one event to an open line, carries out the actions, and feeds completions that are
    /// ready at once. With a batch, latch operations are gathered there instead of posted.
    pub(crate) fn run(
        &self,
        addr: GAddr,
        open: &mut OpenLine,
        event: Event,
        mut batch: Option<&mut Vec<Batch>>,
    ) {
        if self.config.coherence == Coherence::Rpc {
            return self.run_client(addr, open, event);
        }
        let mut due = DueEvents { next: Some(event), ..DueEvents::default() };
        while let Some(event) = due.take(&open.line) {
            if self.lifecycle.has_panicked() {
                return;
            }
            if self.is_quiesced(addr, open) {
                return self.run_quiesced(addr, open, event);
            }
            if open.damaged.is_some() && self.refuse_damaged(addr, open, event) {
                return;
            }
            let is_over = matches!(event, Event::Completed { .. });
            if self.rules.home_first && is_over && open.line.phase.brings_page_home() {
                // What it has taken over is home.
                self.recovery.claimed.remove(addr);
            }
            let local = self.refresh_use(open);
            let local = self.without_hold(open, event, local);
            // A step that finds the recovery under way finds the lines as the sweep may see them.
            let recovering = self.recovery.is_recovering();
            let dead = self.recovery.dead_nodes().with(ComputeId::LOST);
            let rules = Rules { dead, recovering, ..self.rules };
            let actions = match open.line.step(&rules, self.me, event, local) {
                Ok(actions) => actions,
                Err(source) => return self.fail(open, EngineError::Protocol { addr, source }),
            };
            let mut wake = false;
            for action in actions {
                wake |= self.carry_out(addr, open, action, batch.as_deref_mut(), &mut due);
            }
            open.is_through |= !open.line.phase.operation_outstanding();
            if open.line.phase.at_rest() {
                open.answers_given = 0;
            }
            if let Some(node) = due.left.last().filter(|_| open.answers_given > MAX_GIVEN) {
                return self.fail_line(addr, open, &EngineError::PeerGone { node: node.index() });
            }
            if wake {
                open.effects.woken = true;
                open.waiters.signal_all(open.effects.refused);
            }
            if open.line.refuses_nowait() && !open.line.phase.acquires() {
                // It waits for another node now.
                open.waiters.refuse_nowait();
            }
        }
    }

    /// Carries one action out, and notes the events that follow at once. Whether waiters are to be
    /// woken.
    fn carry_out(
        &self,
        addr: GAddr,
        open: &mut OpenLine,
        action: Action,
        batch: Option<&mut Vec<Batch>>,
        due: &mut DueEvents,
    ) -> bool {
        match action {
            Action::Post(operation) => {
                match batch {
                    // Batches are told apart by what their atomics found. What is coded goes home
                    // in steps.
                    Some(batch)
                        if matches!(operation.word, WordAccess::Change(_))
                            && !(operation.write_back && self.memory.coded.is_some()) =>
                    {
                        self.gather(addr, open, operation, batch)
                    }
                    _ => due.next = self.post(addr, open, operation),
                }
                self.free_early(addr, open);
            }
            Action::Send { to, message: Message::Request(_) }
                if self.recovery.is_answered_for(to) =>
            {
                due.left.push(to);
                open.answers_given = open.answers_given.saturating_add(1);
            }
            Action::Send { to, message } => self.send(addr, open, to, message),
            Action::BackOff { dead } => self.back_off(addr, open, dead),
            Action::Wake => return true,
            Action::Refuse => {
                open.effects.refused = true;
                return true;
            }
        }
        false
    }

    /// The word names a dead node: waiters wait for the end of the recovery, or, if that is over,
    /// learn that the line is lost.
    fn back_off(&self, addr: GAddr, open: &mut OpenLine, dead: ComputeId) {
        if self.recovers_from(dead) {
            open.deaths.backs_off = Some(dead);
            open.waiters.refuse_in_recovery();
            return;
        }
        // The word may have been read before the recovery was over: one more look tells.
        if open.deaths.doubted.replace(dead) != Some(dead) {
            return;
        }
        let node = (dead != ComputeId::LOST).then(|| dead.index());
        let error = EngineError::PageLost { addr, node };
        open.lose(&error);
    }

    /// Answers that a damaged page is not held here; `true` if the event was such a request.
    fn refuse_damaged(&self, addr: GAddr, open: &mut OpenLine, event: Event) -> bool {
        let asked = match event {
            Event::Received { from, message: Message::Request(request) } => {
                open.line.deferred.push(Deferred { from, request });
                true
            }
            _ => false,
        };
        self.answer_not_held(addr, open);
        asked
    }

    /// A protocol violation: this engine can serve nothing more.
    pub(super) fn fail(&self, open: &mut OpenLine, error: EngineError) {
        open.waiters.fail_all(&error);
        if matches!(error, EngineError::Protocol { .. }) {
            self.lifecycle.fail(error);
        }
    }

    /// The line's memory or a peer cannot be reached: ends the waits, forgets the copy.
    pub(crate) fn fail_line(&self, addr: GAddr, open: &mut OpenLine, error: &EngineError) {
        open.lose(error);
        if self.config.coherence == Coherence::Rpc {
            open.line.deferred.clear();
        }
        self.answer_not_held(addr, open);
        open.line = open.line.forgotten();
    }
}
