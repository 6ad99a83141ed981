//! A connection: the posting side of one queue pair.
//!
//! Its set-up goes over a session of `tcp` (`handshake`), which stays: the session tells of the
//! death of the peer, of its silence, and of fences. Data never goes over it.
//!
//! Chains wait in posting order. Each is posted in one or several *parts*: one doorbell of the card
//! each, of which only the last request completes. A part has as many requests as the queue and the
//! staging room take; mostly it is the whole chain.
//!
//! ```text
//! pending, in posting order:  posted ... | partly posted | waits ...
//!                             ^ front      ^ posting
//! parts, in posting order:    each of one chain; completions come in this order
//! ```
//! Reads and atomics land in the staging room, and are copied out when their part completes. So no
//! buffer of a caller is ever under the card, and none has to be registered.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::ffi::{AsyncEvent, RcQueuePair};
use super::hub::Hub;
use super::parts::{Landing, Part};
use super::remote::{RemoteRegion, RemoteRegions};
use super::staging::StagingRing;
use crate::error::{FabricError, RdmaFault};
use crate::id::{PeerId, RegionKey};
use crate::mem::words::Words;
use crate::tcp::client::outcome::{Completed as Outcomes, OutcomeCell, wake};
use crate::tcp::client::queue_pair::TcpQueuePair;
use crate::tcp::{MAX_CHAIN_BYTES, MAX_CHAIN_VERBS};
use crate::verb::{Chain, ChainError, Verb};

/// Bytes that the requests of one queue pair move at a time.
pub(super) const STAGING_BYTES: usize = 256 << 10;

pub(super) struct Connection {
    pub(super) id: u32,
    pub(super) peer: PeerId,
    pub(super) hub: Arc<Hub>,
    /// The session over which it was set up.
    pub(super) session: TcpQueuePair,
    pub(super) queue_pair: RcQueuePair,
    pub(super) state: Mutex<State>,
}

/// What the lock of a connection guards.
pub(super) struct State {
    pub(super) is_connected: bool,
    pub(super) regions: RemoteRegions,
    /// The region that is being looked up, for the chain that is to be posted next.
    looks_up: Option<RegionKey>,
    /// The peer has no such region: the chain that is to be posted next fails there.
    missing: Option<RegionKey>,
    pub(super) pending: VecDeque<PendingChain>,
    /// How many of `pending` are posted as a whole.
    pub(super) posted: usize,
    pub(super) parts: VecDeque<Part>,
    /// Number of the next part.
    pub(super) next_part: u32,
    /// Requests that the queue has room for.
    pub(super) free_requests: usize,
    pub(super) ring: StagingRing,
    /// For how long no part has completed, though some are under way.
    stalled: Duration,
    /// The queue pair was dropped.
    is_retired: bool,
    end: Option<FabricError>,
}

/// A chain without an outcome.
pub(super) struct PendingChain {
    pub(super) chain: Chain,
    cell: Arc<OutcomeCell>,
    /// Its verbs were checked.
    pub(super) is_checked: bool,
    /// How many verbs are to be executed.
    pub(super) verbs: usize,
    /// Why the verb behind these is not.
    failure: Option<FabricError>,
    /// The next verb to be posted, and the next byte of it.
    pub(super) cursor: (usize, usize),
    /// Parts that have not completed.
    pub(super) parts: usize,
}

impl State {
    /// Of a queue pair with room for so many requests.
    pub(super) fn new(requests: u32) -> Self {
        Self {
            is_connected: false,
            regions: RemoteRegions::new(),
            looks_up: None,
            missing: None,
            pending: VecDeque::new(),
            posted: 0,
            parts: VecDeque::new(),
            next_part: 0,
            free_requests: requests as usize,
            ring: StagingRing::new(STAGING_BYTES),
            stalled: Duration::ZERO,
            is_retired: false,
            end: None,
        }
    }

    /// Checks the chain that is to be posted next. `Err` with a region that has to be looked up.
    fn check_next(&mut self, peer: PeerId) -> Result<(), RegionKey> {
        let Some(next) = self.pending.get_mut(self.posted).filter(|next| !next.is_checked) else {
            return Ok(());
        };
        for (index, verb) in next.chain.verbs.iter().enumerate() {
            let key = verb.at().region;
            let failure = match self.regions.get(&key) {
                Some(region) => region.check(peer, verb).err(),
                None if self.missing == Some(key) => {
                    Some(FabricError::UnknownRegion { peer, region: key })
                }
                None => return Err(key),
            };
            if failure.is_some() {
                (next.verbs, next.failure) = (index, failure);
                break;
            }
        }
        next.is_checked = true;
        self.missing = None;
        Ok(())
    }

    /// Takes the chains at the front that are done.
    fn take_done(&mut self, outcomes: &mut Outcomes) -> usize {
        let mut count = 0;
        while self.posted > 0 && self.pending.front().is_some_and(|first| first.parts == 0) {
            let Some(done) = self.pending.pop_front() else { break };
            self.posted -= 1;
            count += 1;
            let PendingChain { chain, cell, verbs, failure, .. } = done;
            let result = match failure {
                None => Ok(chain),
                Some(error) => Err(Box::new(ChainError { chain, executed: verbs, error })),
            };
            let waker = cell.fill(result);
            outcomes.push((cell, waker));
        }
        count
    }
}

impl Connection {
    /// The number of its queue pair.
    pub(super) fn number(&self) -> u32 {
        self.queue_pair.number()
    }

    /// Whether every chain is posted: what is missing is in the hands of the card.
    pub(super) fn is_posted(&self) -> bool {
        let state = self.state.lock();
        state.posted == state.pending.len()
    }

    /// Queues a chain, and posts it if nothing is in the way.
    pub(super) fn post(
        self: &Arc<Self>,
        chain: Chain,
    ) -> Result<Arc<OutcomeCell>, Box<ChainError>> {
        let refuse = |chain, error| Err(Box::new(ChainError { chain, executed: 0, error }));
        if let Err(error) = check_length(&chain) {
            return refuse(chain, error);
        }
        let mut state = self.state.lock();
        if let Some(error) = &state.end {
            let error = error.clone();
            drop(state);
            return refuse(chain, error);
        }
        let cell = Arc::new(OutcomeCell::default());
        let verbs = chain.verbs.len();
        state.pending.push_back(PendingChain {
            chain,
            cell: Arc::clone(&cell),
            is_checked: false,
            verbs,
            failure: None,
            cursor: (0, 0),
            parts: 0,
        });
        self.hub.chain_begins();
        let mut outcomes = Outcomes::new();
        let failed = self.post_pending(&mut state, &mut outcomes);
        let waits = state.posted < state.pending.len() && !state.parts.is_empty();
        drop(state);
        wake(outcomes);
        match failed {
            Err(error) => self.end(&error),
            // What waits is posted by whichever thread takes the next completion.
            Ok(()) if waits => self.hub.arm(),
            Ok(()) => {}
        }
        Ok(cell)
    }

    /// Posts what can be posted.
    fn post_pending(
        self: &Arc<Self>,
        state: &mut State,
        outcomes: &mut Outcomes,
    ) -> Result<(), FabricError> {
        while state.is_connected && state.looks_up.is_none() && state.posted < state.pending.len() {
            if let Err(key) = state.check_next(self.peer) {
                state.looks_up = Some(key);
                self.look_up(key);
                break;
            }
            if !self.post_part(state)? {
                break;
            }
        }
        let done = state.take_done(outcomes);
        self.hub.chains_end(done);
        Ok(())
    }

    /// A region was looked up; `None` if the peer has none of this key.
    pub(super) fn found(self: &Arc<Self>, key: RegionKey, region: Option<RemoteRegion>) {
        self.go_on(|state| {
            state.looks_up = None;
            match region {
                Some(region) => drop(state.regions.insert(key, region)),
                None => state.missing = Some(key),
            }
        });
    }

    /// The peer's queue pair answers.
    pub(super) fn connected(self: &Arc<Self>) {
        self.go_on(|state| state.is_connected = true);
    }

    fn go_on(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut outcomes = Outcomes::new();
        let mut state = self.state.lock();
        change(&mut state);
        let failed = self.post_pending(&mut state, &mut outcomes);
        let is_over = state.is_retired && state.pending.is_empty();
        let waits = !state.parts.is_empty();
        drop(state);
        wake(outcomes);
        match failed {
            Err(error) => self.end(&error),
            Ok(()) if is_over => self.end(&FabricError::PeerDead { peer: self.peer }),
            Ok(()) if waits => self.hub.arm(),
            Ok(()) => {}
        }
    }

    /// A part has completed: those before it have, too.
    pub(super) fn complete(self: &Arc<Self>, part: u32, outcomes: &mut Outcomes) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.stalled = Duration::ZERO;
        while let Some(done) = state.parts.pop_front() {
            let is_last = done.number == part;
            self.land(&mut state, &done);
            state.free_requests += done.requests;
            state.ring.give_back(done.staged);
            if is_last {
                break;
            }
        }
        let failed = self.post_pending(&mut state, outcomes);
        let is_over = state.is_retired && state.pending.is_empty();
        drop(state);
        // Under the lock of the hub: the driver ends it.
        match failed {
            Err(error) => self.end_soon(error),
            Ok(()) if is_over => self.end_soon(FabricError::PeerDead { peer: self.peer }),
            Ok(()) => {}
        }
    }

    /// Copies what a part has fetched to its chain.
    fn land(&self, state: &mut State, part: &Part) {
        // The parts of a chain complete before those of the next, so it is the first that has any.
        let Some(pending) = state.pending.iter_mut().find(|pending| pending.parts > 0) else {
            return;
        };
        pending.parts -= 1;
        let Some(staging) = self.queue_pair.staging() else { return };
        let words = staging.words();
        for landing in &part.landings {
            match *landing {
                Landing::Read { verb, first, count, at } => {
                    if let Some(Verb::Read { into, .. }) = pending.chain.verbs.get_mut(verb)
                        && let Some(into) = into.words_mut().get_mut(first..first + count)
                        && let Some(from) = words.get(at / 8..at / 8 + count)
                    {
                        Words::copy_out(from, into);
                    }
                }
                Landing::Atomic { verb, at } => {
                    if let Some(Verb::CompareAndSwap { old, .. } | Verb::FetchAndAdd { old, .. }) =
                        pending.chain.verbs.get_mut(verb)
                    {
                        *old = words.get(at / 8).map(Words::load);
                    }
                }
            }
        }
    }

    /// The queue pair was dropped: it ends once its chains are done.
    pub(super) fn retire(&self) {
        let mut state = self.state.lock();
        state.is_retired = true;
        let is_over = state.pending.is_empty();
        drop(state);
        if is_over {
            self.end(&FabricError::PeerDead { peer: self.peer });
        } else {
            self.hub.arm();
        }
    }

    /// Ends the connection, and every chain with `error`. Once this returns, the card touches
    /// nothing of it. The second call does nothing.
    pub(super) fn end(&self, error: &FabricError) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        state.end = Some(error.clone());
        let pending = std::mem::take(&mut state.pending);
        (state.posted, state.parts) = (0, VecDeque::new());
        drop(state);
        self.queue_pair.destroy();
        self.hub.chains_end(pending.len());
        let fail = |pending: PendingChain| {
            let error = ChainError { chain: pending.chain, executed: 0, error: error.clone() };
            let waker = pending.cell.fill(Err(Box::new(error)));
            (pending.cell, waker)
        };
        let outcomes: Outcomes = pending.into_iter().map(fail).collect();
        wake(outcomes);
        self.hub.leave(self.id);
    }

    /// Ends it without the locks of the caller.
    fn end_soon(self: &Arc<Self>, error: FabricError) {
        let connection = Arc::clone(self);
        drop(self.hub.env.spawn("verbs-end", async move { connection.end(&error) }));
    }

    /// A request failed: the card executes no more of them.
    pub(super) fn fail(&self, status: u32) {
        match RdmaFault::of_status(status) {
            // The peer does not acknowledge, or this side is being taken down.
            None => self.session.link().end_by_silence(),
            Some(why) => {
                tracing::warn!(peer = %self.peer, %why, "a queue pair fails");
                self.end(&FabricError::Rdma { peer: self.peer, why });
            }
        }
    }

    /// The card says that the queue pair fails, or fails itself.
    pub(super) fn fail_by(&self, event: AsyncEvent) {
        let why = match event {
            AsyncEvent::QueuePair(_) => RdmaFault::QueuePair,
            _ => RdmaFault::Device,
        };
        self.end(&FabricError::Rdma { peer: self.peer, why });
    }

    /// Looks at deadlines; the driver was awake for `since` after the last look.
    pub(super) fn check(&self, since: Duration) {
        let mut state = self.state.lock();
        if state.parts.is_empty() {
            state.stalled = Duration::ZERO;
            return;
        }
        state.stalled += since;
        let is_dead = state.stalled >= self.hub.times.dead_after;
        drop(state);
        if is_dead {
            self.session.link().end_by_silence();
        }
    }
}

/// Refuses a chain that is longer than on other networks.
fn check_length(chain: &Chain) -> Result<(), FabricError> {
    let payload = |verb: &Verb| verb.buf().map_or(0, |buf| buf.len());
    let (verbs, bytes) =
        (chain.verbs.len(), chain.verbs.iter().map(payload).fold(0, usize::saturating_add));
    if verbs <= MAX_CHAIN_VERBS && bytes <= MAX_CHAIN_BYTES {
        return Ok(());
    }
    Err(FabricError::ChainTooLong {
        verbs: verbs as u64,
        bytes: bytes as u64,
        max_verbs: MAX_CHAIN_VERBS as u64,
        max_bytes: MAX_CHAIN_BYTES as u64,
    })
}

/// Landings of a part, which mostly are few.
pub(super) type Landings = SmallVec<[Landing; 4]>;
