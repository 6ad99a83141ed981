//! A node of the simulated network.

use std::sync::Arc;

use super::adapter::Adapter;
use super::cost::{CostModel, nanos};
use super::events::Event;
use super::task::Task;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::node::Node;

pub(super) struct SimNode {
    pub(super) id: PeerId,
    pub(super) memory: Arc<Node>,
    pub(super) adapter: Adapter,
    /// How many times slower than the model the adapter is.
    pub(super) slowness: u32,
    pub(super) paused: bool,
    /// No verb executes at it.
    pub(super) frozen: bool,
    /// Chains that were about to be taken in or executed since then.
    pub(super) stalled: Vec<Event>,
    /// Since when the machine is suspended, if it is.
    pub(super) suspended_since: Option<u64>,
    /// For how long it was suspended in all: its timers have stood still for so long.
    pub(super) suspended_for: u64,
    /// How far its clock is ahead of that of the world.
    pub(super) ahead: u64,
    /// Since when its clock stands still, if it does.
    pub(super) clock_stands_since: Option<u64>,
    /// How far its clock is behind that of the world, as it stood still.
    pub(super) behind: u64,
    /// Its tasks run no more, and its memory cannot be reached.
    pub(super) crashed: bool,
    /// No verb of it executes any more.
    pub(super) fenced: bool,
    /// The node is killed after so many more of its verbs.
    pub(super) verbs_left: Option<u64>,
    /// Tasks that were woken while the node was paused.
    pub(super) parked: Vec<Arc<Task>>,
}

impl SimNode {
    pub(super) fn new(id: PeerId) -> Self {
        Self {
            id,
            memory: Arc::new(Node::new(id)),
            adapter: Adapter::default(),
            slowness: 1,
            paused: false,
            frozen: false,
            stalled: Vec::new(),
            suspended_since: None,
            suspended_for: 0,
            ahead: 0,
            clock_stands_since: None,
            behind: 0,
            crashed: false,
            fenced: false,
            verbs_left: None,
            parked: Vec::new(),
        }
    }

    pub(super) fn check_alive(&self) -> Result<(), FabricError> {
        if self.crashed || self.fenced {
            return Err(FabricError::PeerDead { peer: self.id });
        }
        Ok(())
    }

    /// Adapter time for so many verbs and bytes.
    fn transfer_time(&self, cost: &CostModel, verbs: u64, bytes: u64) -> u64 {
        (verbs * nanos(cost.verb) + cost.payload(bytes)) * u64::from(self.slowness)
    }

    /// Passes the sending queue of the adapter. Returns when the last byte is out.
    pub(super) fn send(&mut self, cost: &CostModel, ready: u64, verbs: u64, bytes: u64) -> u64 {
        let took = self.transfer_time(cost, verbs, bytes);
        self.adapter.send(ready, took)
    }

    /// Passes the receiving queue of the adapter. Returns when the last byte is in.
    pub(super) fn receive(&mut self, cost: &CostModel, ready: u64, verbs: u64, bytes: u64) -> u64 {
        let took = self.transfer_time(cost, verbs, bytes);
        self.adapter.receive(ready, took)
    }

    /// Passes the queue of atomics. Returns when the atomic executes.
    pub(super) fn atomic(&mut self, cost: &CostModel, ready: u64) -> u64 {
        let took = nanos(cost.atomic) * u64::from(self.slowness);
        self.adapter.atomic(ready, took)
    }

    /// When the thread that polls for messages of `sender` has taken in a message of it that
    /// arrives at `now`. The servers of a memory node charge for its messages themselves.
    pub(super) fn take_message(&mut self, cost: &CostModel, sender: PeerId, now: u64) -> u64 {
        if self.id.is_memory() {
            return now;
        }
        let threads = cost.mail_threads.max(1) as usize;
        self.adapter.take_message(usize::from(sender.index()), threads, now, nanos(cost.message))
    }
}
