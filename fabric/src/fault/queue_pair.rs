//! The queue pair of the `fault` fabric: gives every chain its fate, and the driver task that
//! executes the chains whose fate is not to pass at once.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::fabric::{Peer, Shared};
use super::lane::{Held, Lane};
use super::plan::{Cut, Fate, Flip, Tally};
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
    owner: Arc<Peer>,
    target: Arc<Peer>,
    shared: Arc<Shared>,
    random: SplitMix,
    lane: Mutex<Lane>,
}

impl FaultQueuePair {
    pub(crate) fn new(
        inner: Arc<dyn QueuePair>,
        owner: Arc<Peer>,
        target: Arc<Peer>,
        shared: Arc<Shared>,
        random: SplitMix,
    ) -> Self {
        let lane = Mutex::default();
        Self { route: Arc::new(Route { inner, owner, target, shared, random, lane }) }
    }
}

impl QueuePair for FaultQueuePair {
    fn peer(&self) -> PeerId {
        self.route.inner.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        let Route { owner, target, shared, .. } = &*self.route;
        if let Err(error) = owner.check_alive().and_then(|()| target.accept()) {
            Tally::one(&shared.tally.refused);
            return Completion::failed(chain, 0, error);
        }
        let mut lane = self.route.lane.lock();
        let fate = Fate::draw(&shared.plan, &self.route.random, &chain);
        let now = shared.env.now();
        if fate.is_harmless() && lane.is_idle(now) {
            // Under the lock, so that no later chain overtakes it.
            return self.route.inner.post(chain);
        }
        if fate.outbound + fate.inbound > Duration::ZERO {
            Tally::one(&shared.tally.delayed);
        }
        let (slot, deliver_at, needs_driver) = lane.enqueue(chain, fate, now);
        // Spawning may drop the driver at once, and that takes the lock.
        drop(lane);
        if needs_driver {
            let driver = Driver { route: Arc::clone(&self.route), ended: false };
            shared.env.spawn("fault-lane", driver.run()).detach();
        }
        let route = Arc::clone(&self.route);
        Completion::outstanding(Box::new(Held {
            slot,
            deliver_at,
            env: shared.env.clone(),
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

    /// What the caller gets to know: of a chain that was outstanding when a peer died, nothing.
    fn deliver(&self, result: ChainResult) -> ChainResult {
        match (result, self.check_alive()) {
            (Ok(chain), Err(error)) => {
                Tally::one(&self.shared.tally.refused);
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
        let gap = self.shared.plan.tear.gap;
        if gap.is_zero() {
            self.shared.env.yield_now().await;
        } else {
            self.shared.env.sleep(gap).await;
        }
        if let Err(error) = self.check_alive() {
            let error = ChainError { chain: torn.second, executed: 0, error };
            return Err(second_failed(first, torn.whole, error));
        }
        match self.inner.post(torn.second).await {
            Ok(second) => {
                Tally::one(&self.shared.tally.torn);
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
            Tally::one(&self.shared.tally.corrupted);
        }
    }
}

/// Executes a lane's chains until there are none.
struct Driver {
    route: Arc<Route>,
    /// It ran out of chains. From then on the lane may have another driver.
    ended: bool,
}

impl Driver {
    async fn run(mut self) {
        loop {
            let job = self.route.lane.lock().next_job();
            let Some(job) = job else { break };
            let env = &self.route.shared.env;
            let rest = job.execute_at.saturating_sub(env.now());
            if !rest.is_zero() {
                env.sleep(rest).await;
            }
            job.promise.fill(self.route.execute(job.chain, job.fate).await);
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
        let abandoned = self.route.lane.lock().abandon();
        for job in abandoned {
            let error = FabricError::Stopped { peer: self.route.inner.peer() };
            job.promise.fill(Err(Box::new(ChainError { chain: job.chain, executed: 0, error })));
        }
    }
}
