//! The events of the simulated world, earliest first.

use std::collections::BinaryHeap;
use std::task::Waker;

use super::queue_pair::ChainInFlight;
use crate::id::RemoteAddr;

/// An event.
pub(super) enum Event {
    /// A sleep ends, or a task that yielded resumes.
    Wake(Waker),
    Arrive(Box<ChainInFlight>),
    Execute(Box<ChainInFlight>),
    Return(Box<ChainInFlight>),
    /// The adapter retries a chain on a cut link, and those behind it.
    Retry {
        queue_pair: usize,
    },
    Deliver(Box<ChainInFlight>),
    /// The late writes of a queue pair up to this one are placed.
    Place {
        queue_pair: usize,
        ticket: u64,
    },
    /// The doorbell of a region rings.
    Ring {
        node: usize,
        at: RemoteAddr,
    },
    /// A call of a fault plan.
    Call(Box<dyn FnOnce() + Send>),
}

struct Scheduled {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest is the greatest, as the heap gives out the greatest first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

/// Events by time; those of the same time in the order in which they were scheduled.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Scheduled>,
    order: u64,
}

impl Agenda {
    /// A number greater than all before.
    pub(super) fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        let order = self.next_order();
        self.heap.push(Scheduled { at, order, event });
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|next| next.at)
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|next| (next.at, next.event))
    }

    /// Takes all events, to be dropped.
    pub(super) fn clear(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.heap).into_iter().map(|scheduled| scheduled.event).collect()
    }
}
