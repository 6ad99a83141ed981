//! Writes that are complete before they are in place.
//!
//! The completion of a write says nothing about when its bytes are in place. They come late by
//! chance, or because the receiver has not taken in earlier messages. Writes of one queue pair are
//! placed in posting order, and before any later read or atomic of that queue pair.

use std::sync::Arc;

use super::cost::nanos;
use super::events::Event;
use super::network::Network;
use super::queue_pair::LateWrite;
use crate::id::RemoteAddr;
use crate::mem::words::Words;
use crate::verb::Verb;

impl Network {
    /// When the receiver has taken in a message that comes now on this queue pair.
    pub(super) fn message_taken_at(&mut self, queue_pair: usize) -> u64 {
        let (from, to, _) = self.queue_pair(queue_pair).ends();
        let (now, sender) = (self.now, self.node(from).id);
        let (node, cost) = self.node_and_cost(to);
        node.take_message(cost, sender, now)
    }

    pub(super) fn ring(&mut self, node: usize, at: RemoteAddr) {
        self.schedule(self.now, Event::Ring { node, at });
    }

    /// Places a write at `taken_at`, or some time later if it is `late`, but never before earlier
    /// writes of its queue pair.
    pub(super) fn defer_placement(
        &mut self,
        queue_pair: usize,
        verb: &Verb,
        ring: bool,
        taken_at: u64,
        late: bool,
    ) {
        #[expect(clippy::expect_used, reason = "only writes are placed late")]
        let words = verb.buf().expect("a write has a payload").words().to_vec();
        let by = if late { self.random.below(nanos(self.faults.late_by) + 1) } else { 0 };
        let ahead = self.queue_pair(queue_pair).late_writes.back().map_or(0, |last| last.due);
        let due = (self.now.max(taken_at) + by).max(ahead);
        let ticket = self.agenda.next_order();
        let at = verb.at();
        self.queue_pair(queue_pair).late_writes.push_back(LateWrite {
            ticket,
            at,
            words,
            due,
            ring,
        });
        self.schedule(due, Event::Place { queue_pair, ticket });
    }

    /// Places the late writes of a queue pair, up to and including `ticket`.
    pub(super) fn place_up_to(&mut self, queue_pair: usize, ticket: u64) {
        loop {
            let to = self.queue_pair(queue_pair).to;
            let due = self
                .queue_pair(queue_pair)
                .late_writes
                .front()
                .is_some_and(|first| first.ticket <= ticket);
            if !due {
                return;
            }
            let Some(first) = self.queue_pair(queue_pair).late_writes.pop_front() else { return };
            if self.node(to).crashed {
                continue;
            }
            let memory = Arc::clone(&self.node(to).memory);
            if let Ok(region) = memory.region(first.at)
                && let Some(words) = region.words(first.at.offset, first.words.len())
            {
                Words::copy_in(words, &first.words);
            }
            if first.ring {
                self.ring(to, first.at);
            }
        }
    }
}
