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
use std::time::Duration;

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
    /// Pairs of nodes whose requests do not reach each other.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// Nodes from which nothing reaches another one, neither requests nor answers.
    pub(super) blocked: BTreeSet<(usize, usize)>,
    /// Nodes of which no verb executes any more at another one, whose process has fenced them.
    pub(super) fenced: BTreeSet<(usize, usize)>,
    /// Nodes to whose peer the latest queue pair that ended did so after retries in vain.
    silent: BTreeSet<(usize, usize)>,
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
            blocked: BTreeSet::new(),
            fenced: BTreeSet::new(),
            silent: BTreeSet::new(),
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

    /// What the clock of a node shows.
    pub(super) fn clock_of(&self, index: usize) -> u64 {
        let node = self.node(index);
        let shown = node.clock_stands_since.unwrap_or(self.now);
        (shown + node.ahead).saturating_sub(node.behind)
    }

    /// What the timers of a node show; those of no node show the time of the world.
    pub(super) fn timers_of(&self, node: Option<usize>) -> u64 {
        let Some(node) = node.map(|index| self.node(index)) else { return self.now };
        let suspended = node.suspended_since.map_or(0, |since| self.now - since);
        self.now - node.suspended_for - suspended
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
        if self.fenced.contains(&(to, from)) {
            return Err(FabricError::PeerDead { peer });
        }
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
                if let Some(flight) = self.unless_frozen(flight, Event::Arrive) {
                    self.arrive(flight);
                }
                Action::Nothing
            }
            Event::Execute(flight) => {
                if let Some(flight) = self.unless_frozen(flight, Event::Execute) {
                    self.execute(flight);
                }
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
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        if broken || self.node(to).crashed || self.fenced.contains(&(from, to)) {
            self.queue_pair(flight.queue_pair).broken = true;
            if !broken {
                self.silent.remove(&(from, to));
            }
            let after = if broken { 0 } else { nanos(self.cost.dead_after) };
            return self.fail(flight, dead, after);
        }
        let is_cut = self.is_cut(from, to);
        let index = flight.queue_pair;
        if is_cut || !self.queue_pair(index).held_up.is_empty() {
            // The adapter retries until the link is back, or gives the queue pair up. Later chains
            // stay behind the one that it retries.
            self.begin_retries(index);
            flight.gives_up_at = self.now + nanos(self.cost.unreachable_after);
            self.queue_pair(index).held_up.push_back(flight);
            return;
        }
        self.accept(flight, from, to);
    }

    /// The indices of two nodes, if they have joined.
    pub(super) fn way(&self, from: PeerId, to: PeerId) -> Option<(usize, usize)> {
        self.names.get(&from).copied().zip(self.names.get(&to).copied())
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from.min(to), from.max(to))) || self.blocked.contains(&(from, to))
    }

    /// Retries from now on what a queue pair holds back, unless that is done already.
    fn begin_retries(&mut self, index: usize) {
        let queue_pair = self.queue_pair(index);
        if queue_pair.held_up.is_empty() && queue_pair.held_answers.is_empty() {
            let again = self.now + (nanos(self.cost.unreachable_after) / RETRIES).max(1);
            self.schedule(again, Event::Retry { queue_pair: index });
        }
    }

    /// The adapters retry what waits for the link of a queue pair.
    fn retry(&mut self, index: usize) {
        self.let_pass(index);
        let now = self.now;
        let queue_pair = self.queue_pair(index);
        let (from, to, _) = queue_pair.ends();
        let first = queue_pair.held_up.front().or(queue_pair.held_answers.front());
        let Some(first) = first else { return };
        if now < first.gives_up_at {
            let again = now + (nanos(self.cost.unreachable_after) / RETRIES).max(1);
            return self.schedule(again, Event::Retry { queue_pair: index });
        }
        self.silent.insert((from, to));
        self.end_queue_pair(index);
    }

    /// See [`crate::Endpoint::silence_of`].
    pub(super) fn silence_of(&self, from: usize, peer: PeerId) -> Duration {
        let to = self.names.get(&peer);
        let is_silent = to.is_some_and(|to| self.silent.contains(&(from, *to)));
        if is_silent { self.cost.unreachable_after } else { Duration::ZERO }
    }

    /// Lets pass what waits for the link of a queue pair, if that is there again.
    fn let_pass(&mut self, index: usize) {
        let (from, to, _) = self.queue_pair(index).ends();
        if !self.is_cut(from, to) {
            for mut flight in std::mem::take(&mut self.queue_pair(index).held_up) {
                if self.faults.forgets_what_waits {
                    flight.executed = flight.chain.verbs.len();
                    self.deliver(flight, self.now);
                } else {
                    self.accept(flight, from, to);
                }
            }
        }
        if !self.blocked.contains(&(to, from)) {
            for flight in std::mem::take(&mut self.queue_pair(index).held_answers) {
                self.take_answer(flight);
            }
        }
    }

    /// Lets pass what waits for a link between two nodes that is there again.
    pub(super) fn link_is_back(&mut self, one: usize, other: usize) {
        for index in 0..self.queue_pairs.len() {
            let (from, to, _) = self.queue_pair(index).ends();
            if (from, to) == (one, other) || (to, from) == (one, other) {
                self.let_pass(index);
            }
        }
    }

    /// Ends a queue pair: what waits for its link fails, and what comes later.
    fn end_queue_pair(&mut self, index: usize) {
        let to = self.queue_pair(index).to;
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        let queue_pair = self.queue_pair(index);
        queue_pair.broken = true;
        let mut failing = std::mem::take(&mut queue_pair.held_answers);
        failing.append(&mut queue_pair.held_up);
        for flight in failing {
            self.fail(flight, dead.clone(), 0);
        }
    }

    /// A process fences a node: no verb of `dead` executes at the node `own` of the process any
    /// more, and what `own` has outstanding there fails.
    pub(super) fn fence_at(&mut self, dead: usize, own: usize) {
        if !self.fenced.insert((dead, own)) {
            return;
        }
        for index in 0..self.queue_pairs.len() {
            let (from, to, _) = self.queue_pair(index).ends();
            if (from, to) == (own, dead) {
                self.queue_pair(index).ended = true;
                self.silent.remove(&(own, dead));
                self.end_queue_pair(index);
            }
        }
        let stalled = std::mem::take(&mut self.node_mut(dead).stalled);
        let error = FabricError::PeerDead { peer: self.node(dead).id };
        for event in stalled {
            match event {
                Event::Arrive(flight) if self.queue_pair(flight.queue_pair).from == own => {
                    self.fail(flight, error.clone(), 0);
                }
                Event::Execute(flight) if self.queue_pair(flight.queue_pair).from == own => {
                    // Those that arrived behind it would wait for its end.
                    let queue_pair = self.queue_pair(flight.queue_pair);
                    queue_pair.busy = false;
                    let behind = std::mem::take(&mut queue_pair.waiting);
                    self.fail(flight, error.clone(), 0);
                    for (flight, _) in behind {
                        self.fail(flight, error.clone(), 0);
                    }
                }
                event => self.node_mut(dead).stalled.push(event),
            }
        }
    }

    /// Keeps a chain for later if its target is frozen.
    fn unless_frozen(
        &mut self,
        flight: Box<ChainInFlight>,
        event: fn(Box<ChainInFlight>) -> Event,
    ) -> Option<Box<ChainInFlight>> {
        let to = self.queue_pair(flight.queue_pair).to;
        let node = self.node_mut(to);
        if node.frozen && !node.crashed {
            node.stalled.push(event(flight));
            return None;
        }
        Some(flight)
    }

    /// Goes on with what a node has stalled.
    pub(super) fn go_on(&mut self, index: usize) {
        for event in std::mem::take(&mut self.node_mut(index).stalled) {
            self.schedule(self.now, event);
        }
    }

    /// The adapter of the target takes a chain in.
    fn accept(&mut self, flight: Box<ChainInFlight>, from: usize, to: usize) {
        if self.node(to).crashed {
            let dead = FabricError::PeerDead { peer: self.node(to).id };
            return self.fail(flight, dead, nanos(self.cost.dead_after));
        }
        if self.fenced.contains(&(from, to)) {
            let dead = FabricError::PeerDead { peer: self.node(to).id };
            return self.fail(flight, dead, 0);
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
    fn return_chain(&mut self, mut flight: Box<ChainInFlight>) {
        let index = flight.queue_pair;
        let (from, to, _) = self.queue_pair(index).ends();
        if self.queue_pair(index).ended {
            let dead = FabricError::PeerDead { peer: self.node(to).id };
            return self.fail(flight, dead, 0);
        }
        let is_blocked = self.blocked.contains(&(to, from));
        if is_blocked || !self.queue_pair(index).held_answers.is_empty() {
            self.begin_retries(index);
            flight.gives_up_at = self.now + nanos(self.cost.unreachable_after);
            return self.queue_pair(index).held_answers.push_back(flight);
        }
        self.take_answer(flight);
    }

    /// The adapter of the source takes an answer in.
    fn take_answer(&mut self, flight: Box<ChainInFlight>) {
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
