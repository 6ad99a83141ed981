//! The target of a chain executes its verbs.
//!
//! The target executes one chain of a queue pair at a time. An atomic waits for its turn at the
//! adapter, and a verb may tear into two parts; other queue pairs execute in between.

use std::sync::Arc;

use super::cost::nanos;
use super::events::Event;
use super::network::Network;
use super::queue_pair::ChainInFlight;
use super::trace::TraceEvent;
use crate::error::FabricError;
use crate::mem::execute::{apply, apply_words};
use crate::verb::Verb;

impl Network {
    /// Schedules the next verb of the chain, at `ready` or when its turn comes.
    pub(super) fn schedule_execution(&mut self, flight: Box<ChainInFlight>, ready: u64) {
        let to = self.queue_pair(flight.queue_pair).to;
        let mut at = ready;
        if flight.words_done == 0
            && let Some(Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. }) =
                flight.chain.verbs.get(flight.executed)
        {
            let (node, cost) = self.node_and_cost(to);
            at = node.atomic(cost, at);
        }
        self.schedule(at, Event::Execute(flight));
    }

    /// The next chain of the queue pair may execute.
    fn start_next_chain(&mut self, index: usize) {
        let queue_pair = self.queue_pair(index);
        match queue_pair.waiting.pop_front() {
            Some((flight, received)) => {
                let at = received.max(self.now);
                self.schedule_execution(flight, at);
            }
            None => queue_pair.busy = false,
        }
    }

    /// Executes the verbs of the chain that are due now.
    pub(super) fn execute(&mut self, mut flight: Box<ChainInFlight>) {
        let (from, to, _) = self.queue_pair(flight.queue_pair).ends();
        loop {
            let refused = if self.node(to).crashed || self.fenced.contains(&(from, to)) {
                Some(FabricError::PeerDead { peer: self.node(to).id })
            } else if self.node(from).fenced {
                Some(FabricError::PeerDead { peer: self.node(from).id })
            } else {
                None
            };
            if let Some(error) = refused {
                self.start_next_chain(flight.queue_pair);
                return self.fail(flight, error, nanos(self.cost.dead_after));
            }
            match self.execute_verb(&mut flight, to) {
                Ok(None) => self.count_verb(from),
                Ok(Some(later)) => return self.schedule_execution(flight, later),
                Err(error) => {
                    flight.error = Some(error);
                    break;
                }
            }
            if flight.executed == flight.chain.verbs.len() {
                break;
            }
            // Other queue pairs may come between the verbs of a chain: an atomic takes its turn.
            let verb = flight.chain.verbs.get(flight.executed);
            if matches!(verb, Some(Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. })) {
                return self.schedule_execution(flight, self.now);
            }
        }
        self.start_next_chain(flight.queue_pair);
        self.reply(flight, to);
    }

    /// Counts an executed verb of a node, and kills the node if that was its last.
    fn count_verb(&mut self, from: usize) {
        let now = self.now;
        let node = self.node_mut(from);
        let Some(left) = node.verbs_left.as_mut() else { return };
        *left = left.saturating_sub(1);
        if *left == 0 {
            (node.crashed, node.fenced, node.verbs_left) = (true, true, None);
            let note = format!("{} is killed at its verb", node.id);
            self.trace.record(now, &TraceEvent::Note(&note));
        }
    }

    /// Executes the next verb or a part of it. Returns when the rest is due.
    fn execute_verb(
        &mut self,
        flight: &mut ChainInFlight,
        to: usize,
    ) -> Result<Option<u64>, FabricError> {
        let queue_pair = flight.queue_pair;
        let memory = Arc::clone(&self.node(to).memory);
        let index = flight.executed;
        let Some(verb) = flight.chain.verbs.get_mut(index) else { return Ok(None) };
        let words = verb.buf().map_or(1, |buf| buf.words().len());
        let is_write = matches!(verb, Verb::Write { .. } | Verb::WriteWithDoorbell { .. });
        let rings = matches!(verb, Verb::WriteWithDoorbell { .. });
        if !is_write {
            // Earlier writes of this queue pair are in place before it reads.
            self.place_up_to(queue_pair, u64::MAX);
        } else if flight.words_done == 0 {
            let late = self.hits(self.faults.late_one_in);
            let taken_at = if rings { self.message_taken_at(queue_pair) } else { 0 };
            if late || taken_at > self.now || !self.queue_pair(queue_pair).late_writes.is_empty() {
                apply_words(&memory, verb, 0..0)?;
                self.defer_placement(queue_pair, verb, rings, taken_at, late);
                flight.executed += 1;
                return Ok(None);
            }
        }
        if words > 1 && flight.words_done == 0 && self.hits(self.faults.tear_one_in) {
            let first = 1 + self.random.below(words as u64 - 1) as usize;
            apply_words(&memory, verb, 0..first)?;
            flight.words_done = first;
            return Ok(Some(self.now + self.random.below(nanos(self.faults.tear_by) + 1)));
        }
        if flight.words_done > 0 {
            apply_words(&memory, verb, flight.words_done..words)?;
            flight.words_done = 0;
        } else {
            apply(&memory, verb)?;
        }
        if words > 1 && !is_write && self.hits(self.faults.corrupt_one_in) {
            let bit = self.random.below(words as u64 * 64) as usize;
            if let Verb::Read { into, .. } = verb
                && let Some(byte) = into.get_mut(bit / 8)
            {
                *byte ^= 1 << (bit % 8);
            }
        }
        let at = verb.at();
        flight.executed += 1;
        if rings {
            self.ring(to, at);
        }
        Ok(None)
    }
}
