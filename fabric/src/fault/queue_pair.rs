//! The queue pair of the `fault` fabric: draws the fate of every chain. A driver task executes the
//! chains that do not pass at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::delay_queue::{DelayQueue, DelayedCompletion};
use super::plan::{Cut, Fate, Flip, Tally};
use super::state::{FaultState, PeerLife};
use super::tear::{first_failed, rejoin, second_failed, tear};
use crate::api::QueuePair;
use crate::completion::Completion;
use crate::env::SplitMix;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::{Chain, ChainError, ChainResult, Verb};

pub(crate) struct FaultQueuePair {
    route: Arc<Route>,
}

/// What a queue pair shares with its driver and its completions.
struct Route {
    inner: Arc<dyn QueuePair>,
    owner: Arc<PeerLife>,
    target: Arc<PeerLife>,
    state: Arc<FaultState>,
    random: SplitMix,
    delayed: Mutex<DelayQueue>,
}

impl FaultQueuePair {
    pub(crate) fn new(
        inner: Arc<dyn QueuePair>,
        owner: Arc<PeerLife>,
        target: Arc<PeerLife>,
        state: Arc<FaultState>,
        random: SplitMix,
    ) -> Self {
        let delayed = Mutex::default();
        Self { route: Arc::new(Route { inner, owner, target, state, random, delayed }) }
    }
}

impl QueuePair for FaultQueuePair {
    fn peer(&self) -> PeerId {
        self.route.inner.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        let Route { owner, target, state, .. } = &*self.route;
        if let Err(error) = owner.check_alive().and_then(|()| target.accept()) {
            Tally::one(&state.tally.refused);
            return Completion::failed(chain, 0, error);
        }
        let mut delayed = self.route.delayed.lock();
        let fate = Fate::draw(&state.plan, &self.route.random, &chain);
        let now = state.env.now();
        if fate.is_harmless() && delayed.is_idle(now) {
            // Posted with the lock held, so that no later chain overtakes it.
            return self.route.inner.post(chain);
        }
        if fate.outbound + fate.inbound > Duration::ZERO {
            Tally::one(&state.tally.delayed);
        }
        let (cell, deliver_at, needs_driver) = delayed.enqueue(chain, fate, now);
        // Spawning may drop the driver at once, and its drop takes the lock.
        drop(delayed);
        if needs_driver {
            let driver = Driver { route: Arc::clone(&self.route), ended: false };
            state.env.spawn("fault-lane", driver.run()).detach();
        }
        let route = Arc::clone(&self.route);
        Completion::outstanding(Box::new(DelayedCompletion {
            cell,
            deliver_at,
            env: state.env.clone(),
            peer: self.route.inner.peer(),
            verdict: move |result| route.deliver(result),
            sleep: None,
        }))
    }
}

impl Route {
    fn check_alive(&self) -> Result<(), FabricError> {
        self.owner.check_alive()?;
        self.target.check_alive()
    }

    /// The outcome for the caller. A chain that was outstanding when a peer died fails.
    fn deliver(&self, result: ChainResult) -> ChainResult {
        match (result, self.check_alive()) {
            (Ok(chain), Err(error)) => {
                Tally::one(&self.state.tally.refused);
                Err(Box::new(ChainError { chain, executed: 0, error }))
            }
            (result, _) => result,
        }
    }

    async fn execute(&self, chain: Chain, fate: Fate) -> ChainResult {
        if let Err(error) = self.check_alive() {
            return Err(Box::new(ChainError { chain, executed: 0, error }));
        }
        let mut chain = match fate.cut {
            None => self.inner.post(chain).await?,
            Some(cut) => self.execute_torn(chain, cut).await?,
        };
        if let Some(flip) = fate.flip {
            self.corrupt(&mut chain, flip);
        }
        Ok(chain)
    }

    async fn execute_torn(&self, chain: Chain, cut: Cut) -> ChainResult {
        let torn = match tear(chain, cut) {
            Ok(torn) => torn,
            Err(chain) => return self.inner.post(chain).await,
        };
        let first = match self.inner.post(torn.first).await {
            Ok(first) => first,
            Err(error) => return Err(first_failed(*error, torn.whole, torn.second)),
        };
        let gap = self.state.plan.tear.gap;
        if gap.is_zero() {
            self.state.env.yield_now().await;
        } else {
            self.state.env.sleep(gap).await;
        }
        if let Err(error) = self.check_alive() {
            let error = ChainError { chain: torn.second, executed: 0, error };
            return Err(second_failed(first, torn.whole, error));
        }
        match self.inner.post(torn.second).await {
            Ok(second) => {
                Tally::one(&self.state.tally.torn);
                Ok(rejoin(first, torn.whole, second))
            }
            Err(error) => Err(second_failed(first, torn.whole, *error)),
        }
    }

    fn corrupt(&self, chain: &mut Chain, flip: Flip) {
        if let Some(Verb::Read { into, .. }) = chain.verbs.get_mut(flip.verb)
            && let Some(byte) = into.get_mut((flip.bit / 8) as usize)
        {
            *byte ^= 1 << (flip.bit % 8);
            Tally::one(&self.state.tally.corrupted);
        }
    }
}

/// Executes the chains of a delay queue until there are none.
struct Driver {
    route: Arc<Route>,
    /// It found no more chains. The queue may have another driver from then on.
    ended: bool,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let next = self.route.delayed.lock().next();
            let Some(next) = next else { break };
            let env = &self.route.state.env;
            let rest = next.execute_at.saturating_sub(env.now());
            if !rest.is_zero() {
                env.sleep(rest).await;
            }
            next.promise.fill(self.route.execute(next.chain, next.fate).await);
        }
        self.ended = true;
    }
}

impl Drop for Driver {
    /// Before its end, a driver is only dropped by an environment that stops.
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let abandoned = self.route.delayed.lock().abandon();
        for delayed in abandoned {
            let error = FabricError::Stopped { peer: self.route.inner.peer() };
            let error = ChainError { chain: delayed.chain, executed: 0, error };
            delayed.promise.fill(Err(Box::new(error)));
        }
    }
}
