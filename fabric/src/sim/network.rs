//! The simulated network: its state, and the path of a chain through it. The target executes the
//! chain in `execution`.
//!
//! ```text
//! post -> Arrive at the target's adapter -> Execute (one event a verb, two if it tears) -> Return
//!      at the source's adapter -> Deliver: the completion is ready
//! ```
//! Along a queue pair each of these times never decreases, so verbs execute and complete in posting
//! order. Different queue pairs overtake each other, by their queues and by faults. All this
//! happens under the lock of the world and wakes no task: what must happen without the lock is
//! returned.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;

use super::adapter::AdapterBusy;
use super::cost::{CostModel, Faults, nanos};
use super::events::{Agenda, Event};
use super::node::SimNode;
use super::outcome::OutcomeCell;
use super::queue_pair::{ChainInFlight, QueuePairState};
use super::trace::{Trace, TraceEvent};
use crate::env::SplitMix;
use crate::error::FabricError;
use crate::id::{PeerId, RemoteAddr};
use crate::mem::node::Node;
use crate::verb::Chain;

/// How often the adapter retries a chain on a cut link before it gives the queue pair up.
const RETRIES: u64 = 16;

/// What the world has to do without its lock.
pub(super) enum Action {
    Nothing,
    Wake(Waker),
    Fill(Box<ChainInFlight>),
    Ring(Arc<Node>, RemoteAddr),
    Call(Box<dyn FnOnce() + Send>),
}

/// The network, its clock and its events.
pub(super) struct Network {
    pub(super) now: u64,
    pub(super) agenda: Agenda,
    pub(super) nodes: Vec<SimNode>,
    pub(super) names: HashMap<PeerId, usize>,
    queue_pairs: Vec<QueuePairState>,
    /// Pairs of nodes that cannot reach each other.
    pub(super) cut: BTreeSet<(usize, usize)>,
    pub(super) cost: CostModel,
    pub(super) faults: Faults,
    pub(super) random: SplitMix,
    pub(super) trace: Trace,
    pub(super) stopped: bool,
}

impl Network {
    pub(super) fn new(cost: CostModel, faults: Faults, seed: u64, trace: Trace) -> Self {
        Self {
            now: 0,
            agenda: Agenda::default(),
            nodes: Vec::new(),
            names: HashMap::new(),
            queue_pairs: Vec::new(),
            cut: BTreeSet::new(),
            cost,
            faults,
            random: SplitMix::of_stream(seed, 1),
            trace,
            stopped: false,
        }
    }

    pub(super) fn schedule(&mut self, at: u64, event: Event) {
        self.agenda.schedule(at.max(self.now), event);
    }

    /// When the next event is.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.agenda.next_at()
    }

    /// Takes all events, to be dropped.
    pub(super) fn clear(&mut self) -> Vec<Event> {
        self.agenda.clear()
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "node indices are given out by join, never revoked"
    )]
    pub(super) fn node(&self, index: usize) -> &SimNode {
        &self.nodes[index]
    }

    #[expect(clippy::indexing_slicing, reason = "as for node()")]
    pub(super) fn node_mut(&mut self, index: usize) -> &mut SimNode {
        &mut self.nodes[index]
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "indices of queue pairs are given out by connect, never revoked"
    )]
    pub(super) fn queue_pair(&mut self, index: usize) -> &mut QueuePairState {
        &mut self.queue_pairs[index]
    }

    #[expect(clippy::indexing_slicing, reason = "as for node()")]
    pub(super) fn node_and_cost(&mut self, index: usize) -> (&mut SimNode, &CostModel) {
        (&mut self.nodes[index], &self.cost)
    }

    pub(super) fn busy(&self) -> Vec<(PeerId, AdapterBusy)> {
        self.nodes.iter().map(|node| (node.id, node.adapter.busy())).collect()
    }

    pub(super) fn join(&mut self, id: PeerId) -> Result<usize, FabricError> {
        if self.names.get(&id).is_some_and(|index| !self.node(*index).crashed) {
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let index = self.nodes.len();
        self.names.insert(id, index);
        self.nodes.push(SimNode::new(id));
        Ok(index)
    }

    pub(super) fn connect(&mut self, from: usize, peer: PeerId) -> Result<usize, FabricError> {
        self.check_alive(from)?;
        let to = *self.names.get(&peer).ok_or(FabricError::UnknownPeer { peer })?;
        self.check_alive(to)?;
        self.queue_pairs.push(QueuePairState::new(from, to));
        Ok(self.queue_pairs.len() - 1)
    }

    pub(super) fn check_alive(&self, node: usize) -> Result<(), FabricError> {
        self.node(node).check_alive()
    }

    /// True once in `one_in` draws; never for 0.
    pub(super) fn hits(&self, one_in: u32) -> bool {
        one_in > 0 && self.random.below(u64::from(one_in)) == 0
    }

    /// A node posts a chain.
    pub(super) fn post(&mut self, queue_pair: usize, chain: Chain, cell: Arc<OutcomeCell>) {
        let (from, to, broken) = self.queue_pair(queue_pair).ends();
        let peer = self.node(to).id;
        let mut flight = Box::new(ChainInFlight {
            chain,
            queue_pair,
            cell,
            executed: 0,
            words_done: 0,
            error: None,
            gives_up_at: u64::MAX,
        });
        flight.error = if self.stopped {
            Some(FabricError::Stopped { peer })
        } else if broken {
            Some(FabricError::PeerDead { peer })
        } else {
            self.check_alive(from).err()
        };
        if flight.error.is_some() {
            return self.schedule(self.now, Event::Deliver(flight));
        }
        let bytes = flight.request_bytes();
        let ready = self.now + nanos(self.cost.post);
        let verbs = flight.chain.verbs.len() as u64;
        let (node, cost) = self.node_and_cost(from);
        let sent = node.send(cost, ready, verbs, bytes);
        let mut arrive = sent + nanos(self.cost.one_way);
        if self.hits(self.faults.reorder_one_in) {
            arrive += self.random.below(nanos(self.faults.reorder_by) + 1);
        }
        let queue_pair = self.queue_pair(queue_pair);
        queue_pair.last_arrive = queue_pair.last_arrive.max(arrive);
        let arrive = queue_pair.last_arrive;
        self.schedule(arrive, Event::Arrive(flight));
    }

    /// Takes the next event, moves the clock to its time, and executes it.
    pub(super) fn step(&mut self) -> Option<Action> {
        let (at, event) = self.agenda.pop()?;
        self.now = at;
        Some(match event {
            Event::Wake(waker) => Action::Wake(waker),
            Event::Call(call) => Action::Call(call),
            Event::Arrive(flight) => {
                self.arrive(flight);
                Action::Nothing
            }
            Event::Execute(flight) => {
                self.execute(flight);
                Action::Nothing
            }
            Event::Retry { queue_pair } => {
                self.retry(queue_pair);
                Action::Nothing
            }
            Event::Return(flight) => {
                self.return_chain(flight);
                Action::Nothing
            }
            Event::Deliver(flight) => {
                let (from, to, _) = self.queue_pair(flight.queue_pair).ends();
                self.trace_flight(from, to, &flight);
                Action::Fill(flight)
            }
            Event::Place { queue_pair, ticket } => {
                self.place_up_to(queue_pair, ticket);
                Action::Nothing
            }
            Event::Ring { node, at } => {
                self.trace.record(self.now, &TraceEvent::Ring { peer: self.node(node).id, at });
                Action::Ring(Arc::clone(&self.node(node).memory), at)
            }
        })
    }

    fn trace_flight(&mut self, from: usize, to: usize, flight: &ChainInFlight) {
        let event = TraceEvent::Completed {
            from: self.node(from).id,
            to: self.node(to).id,
            verbs: &flight.chain.verbs,
            error: flight.error.as_ref(),
        };
        self.trace.record(self.now, &event);
    }

    /// A chain reaches the adapter of its target, a crashed node, or a cut link.
    fn arrive(&mut self, mut flight: Box<ChainInFlight>) {
        let (from, to, broken) = self.queue_pair(flight.queue_pair).ends();
        let give_up = nanos(self.cost.unreachable_after);
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        if broken || self.node(to).crashed {
            self.queue_pair(flight.queue_pair).broken = true;
            return self.fail(flight, dead, if broken { 0 } else { give_up });
        }
        let is_cut = self.is_cut(from, to);
        let now = self.now;
        let index = flight.queue_pair;
        let queue_pair = self.queue_pair(index);
        if is_cut || !queue_pair.held_up.is_empty() {
            // The adapter retries until the link is back, or gives the queue pair up. Later chains
            // stay behind the one that it retries.
            let first = queue_pair.held_up.is_empty();
            flight.gives_up_at = now + give_up;
            queue_pair.held_up.push_back(flight);
            if first {
                self.schedule(now + (give_up / RETRIES).max(1), Event::Retry { queue_pair: index });
            }
            return;
        }
        self.accept(flight, from, to);
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from.min(to), from.max(to)))
    }

    /// The adapter retries the chains that wait for a cut link.
    fn retry(&mut self, index: usize) {
        let (from, to, _) = self.queue_pair(index).ends();
        let now = self.now;
        if !self.is_cut(from, to) {
            for flight in std::mem::take(&mut self.queue_pair(index).held_up) {
                self.accept(flight, from, to);
            }
            return;
        }
        let over =
            self.queue_pair(index).held_up.front().is_some_and(|first| now >= first.gives_up_at);
        if !over {
            let again = now + (nanos(self.cost.unreachable_after) / RETRIES).max(1);
            return self.schedule(again, Event::Retry { queue_pair: index });
        }
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        self.queue_pair(index).broken = true;
        for flight in std::mem::take(&mut self.queue_pair(index).held_up) {
            self.fail(flight, dead.clone(), 0);
        }
    }

    /// The adapter of the target takes a chain in.
    fn accept(&mut self, flight: Box<ChainInFlight>, from: usize, to: usize) {
        if self.node(to).crashed {
            let dead = FabricError::PeerDead { peer: self.node(to).id };
            return self.fail(flight, dead, nanos(self.cost.unreachable_after));
        }
        if self.node(from).fenced {
            let error = FabricError::PeerDead { peer: self.node(from).id };
            return self.fail(flight, error, 0);
        }
        let verbs = flight.chain.verbs.len() as u64;
        let bytes = flight.request_bytes();
        let now = self.now;
        let (node, cost) = self.node_and_cost(to);
        let received = node.receive(cost, now, verbs, bytes);
        let queue_pair = self.queue_pair(flight.queue_pair);
        if queue_pair.busy {
            return queue_pair.waiting.push_back((flight, received));
        }
        queue_pair.busy = true;
        self.schedule_execution(flight, received);
    }

    /// The adapter of the target answers.
    pub(super) fn reply(&mut self, flight: Box<ChainInFlight>, to: usize) {
        let bytes = flight.reply_bytes();
        let now = self.now;
        let (node, cost) = self.node_and_cost(to);
        let sent = node.send(cost, now, 0, bytes);
        self.schedule(sent + nanos(self.cost.one_way), Event::Return(flight));
    }

    /// The answer reaches the adapter of the source.
    fn return_chain(&mut self, flight: Box<ChainInFlight>) {
        let from = self.queue_pair(flight.queue_pair).from;
        let bytes = flight.reply_bytes();
        let now = self.now;
        let (node, cost) = self.node_and_cost(from);
        let received = node.receive(cost, now, 0, bytes);
        self.deliver(flight, received);
    }

    fn deliver(&mut self, flight: Box<ChainInFlight>, at: u64) {
        let queue_pair = self.queue_pair(flight.queue_pair);
        queue_pair.last_deliver = queue_pair.last_deliver.max(at);
        let at = queue_pair.last_deliver;
        self.schedule(at, Event::Deliver(flight));
    }

    pub(super) fn fail(&mut self, mut flight: Box<ChainInFlight>, error: FabricError, after: u64) {
        flight.error = Some(error);
        let at = self.now + after;
        self.deliver(flight, at);
    }
}
