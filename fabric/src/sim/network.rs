//! The state of the simulated network, and the way of a chain through it.
//!
//! ```text
//! post -> Arrive at the target's adapter -> Execute (one event a verb, two if it tears) -> Return
//!      at the source's adapter -> Deliver: the completion is ready
//! ```
//! Along a queue pair each of these times never decreases, so verbs execute and complete in posting
//! order; different queue pairs overtake each other as queues and faults have it. Everything here
//! happens under the world's lock and wakes nobody: what must happen outside it is returned.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::cost::{CostModel, Faults, nanos};
use super::events::{Agenda, Event};
use super::parts::{Adapter, Busy, Flight, Lane, MailThread, SimNode, Unplaced};
use super::slot::Slot;
use super::trace::{Trace, TraceEvent};
use crate::env::SplitMix;
use crate::error::FabricError;
use crate::id::{PeerId, RemoteAddr};
use crate::mem::node::Node;
use crate::mem::queue_pair::{apply, apply_words};
use crate::mem::words::Words;
use crate::verb::{Chain, Verb};

/// How often a chain that meets a cut link is tried again before the queue pair is given up.
const RETRIES: u64 = 16;

/// What the world has to do once its lock is free.
pub(super) enum After {
    Nothing,
    Wake(Waker),
    Fill(Box<Flight>),
    Ring(Arc<Node>, RemoteAddr),
    Call(Box<dyn FnOnce() + Send>),
}

/// The network, its clock and what is to come.
pub(super) struct Network {
    pub(super) now: u64,
    agenda: Agenda,
    pub(super) nodes: Vec<SimNode>,
    pub(super) names: HashMap<PeerId, usize>,
    lanes: Vec<Lane>,
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
            lanes: Vec::new(),
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

    /// Takes everything that is to come, to be dropped.
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
        reason = "lane indices are given out by connect, never revoked"
    )]
    fn lane(&mut self, index: usize) -> &mut Lane {
        &mut self.lanes[index]
    }

    pub(super) fn busy(&self) -> Vec<(PeerId, Busy)> {
        self.nodes.iter().map(|node| (node.id, node.adapter.busy)).collect()
    }

    pub(super) fn join(&mut self, id: PeerId) -> Result<usize, FabricError> {
        if self.names.get(&id).is_some_and(|index| !self.node(*index).crashed) {
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let index = self.nodes.len();
        self.names.insert(id, index);
        self.nodes.push(SimNode {
            id,
            memory: Arc::new(Node::new(id)),
            adapter: Adapter::default(),
            slowness: 1,
            paused: false,
            crashed: false,
            fenced: false,
            verbs_left: None,
            parked: Vec::new(),
        });
        Ok(index)
    }

    pub(super) fn connect(&mut self, from: usize, peer: PeerId) -> Result<usize, FabricError> {
        self.check_alive(from)?;
        let to = *self.names.get(&peer).ok_or(FabricError::UnknownPeer { peer })?;
        self.check_alive(to)?;
        self.lanes.push(Lane::new(from, to));
        Ok(self.lanes.len() - 1)
    }

    pub(super) fn check_alive(&self, node: usize) -> Result<(), FabricError> {
        let node = self.node(node);
        if node.crashed || node.fenced {
            return Err(FabricError::PeerDead { peer: node.id });
        }
        Ok(())
    }

    /// One in `one_in`; 0 is never.
    fn hits(&self, one_in: u32) -> bool {
        one_in > 0 && self.random.below(u64::from(one_in)) == 0
    }

    /// A chain leaves its node.
    pub(super) fn post(&mut self, lane: usize, chain: Chain, slot: Arc<Slot>) {
        let (from, to, broken) = self.lane(lane).ends();
        let peer = self.node(to).id;
        let mut flight = Box::new(Flight {
            chain,
            lane,
            slot,
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
        let sent = self.send(from, ready, flight.chain.verbs.len() as u64, bytes);
        let mut arrive = sent + nanos(self.cost.one_way);
        if self.hits(self.faults.reorder_one_in) {
            arrive += self.random.below(nanos(self.faults.reorder_by) + 1);
        }
        let lane = self.lane(lane);
        lane.last_arrive = lane.last_arrive.max(arrive);
        let arrive = lane.last_arrive;
        self.schedule(arrive, Event::Arrive(flight));
    }

    /// Passes the sending queue of an adapter; when the last byte is out.
    fn send(&mut self, node: usize, ready: u64, verbs: u64, bytes: u64) -> u64 {
        let took = verbs * nanos(self.cost.verb) + self.cost.payload(bytes);
        let node = self.node_mut(node);
        let took = took * u64::from(node.slowness);
        node.adapter.sends = node.adapter.sends.max(ready) + took;
        node.adapter.busy.sends += Duration::from_nanos(took);
        node.adapter.sends
    }

    /// Passes the receiving queue of an adapter; when all is in.
    fn receive(&mut self, node: usize, verbs: u64, bytes: u64) -> u64 {
        let took = verbs * nanos(self.cost.verb) + self.cost.payload(bytes);
        let now = self.now;
        let node = self.node_mut(node);
        let took = took * u64::from(node.slowness);
        node.adapter.receives = node.adapter.receives.max(now) + took;
        node.adapter.busy.receives += Duration::from_nanos(took);
        node.adapter.receives
    }

    /// Takes the next event that is due by `bound`, moves the clock there and lets it happen.
    pub(super) fn step(&mut self) -> Option<After> {
        let (at, event) = self.agenda.pop()?;
        self.now = at;
        Some(match event {
            Event::Wake(waker) => After::Wake(waker),
            Event::Call(call) => After::Call(call),
            Event::Arrive(flight) => {
                self.arrive(flight);
                After::Nothing
            }
            Event::Execute(flight) => {
                self.execute(flight);
                After::Nothing
            }
            Event::Retry { lane } => {
                self.retry(lane);
                After::Nothing
            }
            Event::Return(flight) => {
                self.come_back(flight);
                After::Nothing
            }
            Event::Deliver(flight) => {
                let (from, to, _) = self.lane(flight.lane).ends();
                self.trace_flight(from, to, &flight);
                After::Fill(flight)
            }
            Event::Place { lane, ticket } => {
                self.place_up_to(lane, ticket);
                After::Nothing
            }
            Event::Ring { node, at } => {
                self.trace.record(self.now, &TraceEvent::Ring { peer: self.node(node).id, at });
                After::Ring(Arc::clone(&self.node(node).memory), at)
            }
        })
    }

    fn trace_flight(&mut self, from: usize, to: usize, flight: &Flight) {
        let event = TraceEvent::Completed {
            from: self.node(from).id,
            to: self.node(to).id,
            verbs: &flight.chain.verbs,
            error: flight.error.as_ref(),
        };
        self.trace.record(self.now, &event);
    }

    /// A chain reaches the adapter of its target, nobody, or a link that is cut.
    fn arrive(&mut self, mut flight: Box<Flight>) {
        let (from, to, broken) = self.lane(flight.lane).ends();
        let give_up = nanos(self.cost.unreachable_after);
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        if broken || self.node(to).crashed {
            self.lane(flight.lane).broken = true;
            return self.fail(flight, dead, if broken { 0 } else { give_up });
        }
        let is_cut = self.is_cut(from, to);
        let now = self.now;
        let index = flight.lane;
        let lane = self.lane(index);
        if is_cut || !lane.held_up.is_empty() {
            // The adapter tries again until the link is back, or gives the queue pair up. Chains
            // behind the one it tries keep behind it.
            let first = lane.held_up.is_empty();
            flight.gives_up_at = now + give_up;
            lane.held_up.push_back(flight);
            if first {
                self.schedule(now + (give_up / RETRIES).max(1), Event::Retry { lane: index });
            }
            return;
        }
        self.accept(flight, from, to);
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cut.contains(&(from.min(to), from.max(to)))
    }

    /// An adapter tries again what a cut link holds up.
    fn retry(&mut self, index: usize) {
        let (from, to, _) = self.lane(index).ends();
        let now = self.now;
        if !self.is_cut(from, to) {
            for flight in std::mem::take(&mut self.lane(index).held_up) {
                self.accept(flight, from, to);
            }
            return;
        }
        let over = self.lane(index).held_up.front().is_some_and(|first| now >= first.gives_up_at);
        if !over {
            let again = now + (nanos(self.cost.unreachable_after) / RETRIES).max(1);
            return self.schedule(again, Event::Retry { lane: index });
        }
        let dead = FabricError::PeerDead { peer: self.node(to).id };
        self.lane(index).broken = true;
        for flight in std::mem::take(&mut self.lane(index).held_up) {
            self.fail(flight, dead.clone(), 0);
        }
    }

    /// The target's adapter takes a chain in.
    fn accept(&mut self, flight: Box<Flight>, from: usize, to: usize) {
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
        let received = self.receive(to, verbs, bytes);
        let lane = self.lane(flight.lane);
        if lane.busy {
            return lane.waiting.push_back((flight, received));
        }
        lane.busy = true;
        self.schedule_execution(flight, received);
    }

    /// Schedules the execution of the flight's next verb, at `ready` or when its turn comes.
    fn schedule_execution(&mut self, flight: Box<Flight>, ready: u64) {
        let to = self.lane(flight.lane).to;
        let mut at = ready;
        if flight.words_done == 0
            && let Some(Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. }) =
                flight.chain.verbs.get(flight.executed)
        {
            let took = nanos(self.cost.atomic) * u64::from(self.node(to).slowness);
            let adapter = &mut self.node_mut(to).adapter;
            adapter.atomics = adapter.atomics.max(at) + took;
            adapter.busy.atomics += Duration::from_nanos(took);
            at = adapter.atomics;
        }
        self.schedule(at, Event::Execute(flight));
    }

    /// The queue pair's next chain may be executed.
    fn next_in_lane(&mut self, index: usize) {
        let lane = self.lane(index);
        match lane.waiting.pop_front() {
            Some((flight, received)) => {
                let at = received.max(self.now);
                self.schedule_execution(flight, at);
            }
            None => lane.busy = false,
        }
    }

    /// Executes as many of the flight's verbs as happen at this moment.
    fn execute(&mut self, mut flight: Box<Flight>) {
        let (from, to, _) = self.lane(flight.lane).ends();
        loop {
            let refused = if self.node(to).crashed {
                Some(FabricError::PeerDead { peer: self.node(to).id })
            } else if self.node(from).fenced {
                Some(FabricError::PeerDead { peer: self.node(from).id })
            } else {
                None
            };
            if let Some(error) = refused {
                self.next_in_lane(flight.lane);
                return self.fail(flight, error, nanos(self.cost.unreachable_after));
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
            // Other queue pairs may get between the verbs of a chain: an atomic takes its turn.
            let verb = flight.chain.verbs.get(flight.executed);
            if matches!(verb, Some(Verb::CompareAndSwap { .. } | Verb::FetchAndAdd { .. })) {
                return self.schedule_execution(flight, self.now);
            }
        }
        self.next_in_lane(flight.lane);
        self.reply(flight, to);
    }

    /// A verb of a node was executed, perhaps the last before it is killed.
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

    /// Executes the next verb, or a part of it; when the next part is due.
    fn execute_verb(&mut self, flight: &mut Flight, to: usize) -> Result<Option<u64>, FabricError> {
        let lane = flight.lane;
        let memory = Arc::clone(&self.node(to).memory);
        let index = flight.executed;
        let Some(verb) = flight.chain.verbs.get_mut(index) else { return Ok(None) };
        let words = verb.buf().map_or(1, |buf| buf.words().len());
        let is_write = matches!(verb, Verb::Write { .. } | Verb::WriteWithDoorbell { .. });
        let rings = matches!(verb, Verb::WriteWithDoorbell { .. });
        if !is_write {
            // Whatever this queue pair wrote is in place before it reads.
            self.place_up_to(lane, u64::MAX);
        } else if flight.words_done == 0 {
            let late = self.hits(self.faults.late_one_in);
            let heard = if rings { self.heard(lane) } else { 0 };
            if late || heard > self.now || !self.lane(lane).unplaced.is_empty() {
                apply_words(&memory, verb, 0..0)?;
                self.defer_placement(lane, verb, rings, heard, late);
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

    /// When the thread that polls for messages of this queue pair has taken in one that comes now.
    /// What a memory node does with its messages is charged by those who serve them.
    fn heard(&mut self, lane: usize) -> u64 {
        let (from, to, _) = self.lane(lane).ends();
        let (now, took) = (self.now, nanos(self.cost.message));
        let threads = self.cost.mail_threads.max(1) as usize;
        let sender = usize::from(self.node(from).id.index());
        let target = self.node_mut(to);
        if target.id.is_memory() {
            return now;
        }
        let adapter = &mut target.adapter;
        adapter.mail.resize_with(threads, MailThread::default);
        let Some(thread) = adapter.mail.get_mut(sender % threads) else { return now };
        thread.free_at = now.max(thread.free_at) + took;
        thread.busy += took;
        adapter.busy.mail = adapter.busy.mail.max(Duration::from_nanos(thread.busy));
        thread.free_at
    }

    fn ring(&mut self, node: usize, at: RemoteAddr) {
        self.schedule(self.now, Event::Ring { node, at });
    }

    /// The write is in place at `heard`, some time after if it is late, and in any case not before
    /// what its queue pair wrote earlier.
    fn defer_placement(&mut self, lane: usize, verb: &Verb, ring: bool, heard: u64, late: bool) {
        let words = verb.buf().map(|buf| buf.words().to_vec()).unwrap_or_default();
        let by = if late { self.random.below(nanos(self.faults.late_by) + 1) } else { 0 };
        let ahead = self.lane(lane).unplaced.back().map_or(0, |last| last.due);
        let due = (self.now.max(heard) + by).max(ahead);
        let ticket = self.agenda.next_order();
        let at = verb.at();
        self.lane(lane).unplaced.push_back(Unplaced { ticket, at, words, due, ring });
        self.schedule(due, Event::Place { lane, ticket });
    }

    /// Puts the late writes of a queue pair in place, up to and with `ticket`.
    fn place_up_to(&mut self, lane: usize, ticket: u64) {
        loop {
            let to = self.lane(lane).to;
            let due = self.lane(lane).unplaced.front().is_some_and(|first| first.ticket <= ticket);
            if !due {
                return;
            }
            let Some(first) = self.lane(lane).unplaced.pop_front() else { return };
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

    /// The target's adapter answers.
    fn reply(&mut self, flight: Box<Flight>, to: usize) {
        let bytes = flight.reply_bytes();
        let sent = self.send(to, self.now, 0, bytes);
        self.schedule(sent + nanos(self.cost.one_way), Event::Return(flight));
    }

    /// The answer reaches the source's adapter.
    fn come_back(&mut self, flight: Box<Flight>) {
        let from = self.lane(flight.lane).from;
        let bytes = flight.reply_bytes();
        let received = self.receive(from, 0, bytes);
        self.deliver(flight, received);
    }

    fn deliver(&mut self, flight: Box<Flight>, at: u64) {
        let lane = self.lane(flight.lane);
        lane.last_deliver = lane.last_deliver.max(at);
        let at = lane.last_deliver;
        self.schedule(at, Event::Deliver(flight));
    }

    fn fail(&mut self, mut flight: Box<Flight>, error: FabricError, after: u64) {
        flight.error = Some(error);
        let at = self.now + after;
        self.deliver(flight, at);
    }
}
