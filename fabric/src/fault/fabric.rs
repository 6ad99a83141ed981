//! `FaultFabric` and its endpoints: the plan, and who is still alive.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::plan::{FaultPlan, FaultReport, Tally};
use super::queue_pair::FaultQueuePair;
use crate::access::Domain;
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair, Reach};
use crate::env::{Env, SplitMix};
use crate::error::FabricError;
use crate::id::PeerId;

/// A fabric that does to the one it wraps what a plan says.
pub struct FaultFabric {
    inner: Arc<dyn Fabric>,
    shared: Arc<Shared>,
}

/// What endpoints and queue pairs share.
pub(crate) struct Shared {
    pub(crate) plan: FaultPlan,
    pub(crate) env: Env,
    pub(crate) tally: Tally,
    peers: Mutex<HashMap<PeerId, Arc<Peer>>>,
    queue_pairs: AtomicU64,
}

/// Whether one peer lives, as the plan has it.
pub(crate) struct Peer {
    id: PeerId,
    dead: AtomicBool,
    /// Chains posted to it so far.
    chains: AtomicU64,
    dies_after: u64,
}

impl FaultFabric {
    /// Wraps `inner`. Delays are slept, and delayed chains executed, in `env`.
    pub fn wrap(inner: Arc<dyn Fabric>, plan: FaultPlan, env: Env) -> Arc<Self> {
        let shared = Shared {
            plan,
            env,
            tally: Tally::default(),
            peers: Mutex::default(),
            queue_pairs: AtomicU64::new(0),
        };
        Arc::new(Self { inner, shared: Arc::new(shared) })
    }

    /// Lets `peer` die now: chains outstanding and later, to it and from it, fail with `PeerDead`.
    pub fn drop_peer(&self, peer: PeerId) {
        self.shared.peer(peer).die();
    }

    /// How many faults have happened so far.
    pub fn report(&self) -> FaultReport {
        self.shared.tally.report()
    }
}

impl Fabric for FaultFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let inner = self.inner.join(id)?;
        let owner = self.shared.peer(id);
        Ok(Arc::new(FaultEndpoint { inner, owner, shared: Arc::clone(&self.shared) }))
    }

    fn fence(&self, peer: PeerId) -> Result<Reach, FabricError> {
        self.drop_peer(peer);
        self.inner.fence(peer)
    }

    fn meet(
        &self,
        peer: PeerId,
        card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        self.inner.meet(peer, card, within)
    }

    fn forget(&self, peer: PeerId) -> bool {
        self.inner.forget(peer)
    }
}

impl Shared {
    fn peer(&self, id: PeerId) -> Arc<Peer> {
        let mut peers = self.peers.lock();
        let peer = peers.entry(id).or_insert_with(|| {
            let deaths = self.plan.deaths.iter().filter(|death| death.peer == id);
            Arc::new(Peer {
                id,
                dead: AtomicBool::new(false),
                chains: AtomicU64::new(0),
                dies_after: deaths.map(|death| death.after_chains).min().unwrap_or(u64::MAX),
            })
        });
        Arc::clone(peer)
    }
}

impl Peer {
    fn die(&self) {
        // Release: pairs with `check_alive`; whoever sees the death sees what led to it.
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        // Acquire: pairs with `die`.
        if self.dead.load(Ordering::Acquire) {
            return Err(FabricError::PeerDead { peer: self.id });
        }
        Ok(())
    }

    /// Counts a chain posted to this peer; it may be the one too many.
    pub(crate) fn accept(&self) -> Result<(), FabricError> {
        if self.chains.fetch_add(1, Ordering::Relaxed) >= self.dies_after {
            self.die();
        }
        self.check_alive()
    }
}

struct FaultEndpoint {
    inner: Arc<dyn Endpoint>,
    owner: Arc<Peer>,
    shared: Arc<Shared>,
}

impl Endpoint for FaultEndpoint {
    fn id(&self) -> PeerId {
        self.inner.id()
    }

    fn card(&self) -> Option<String> {
        self.inner.card()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.owner.check_alive()?;
        self.inner.register(bytes)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let target = self.shared.peer(peer);
        self.owner.check_alive()?;
        target.check_alive()?;
        let inner = self.inner.connect(peer)?;
        let stream = self.shared.queue_pairs.fetch_add(1, Ordering::Relaxed);
        let random = SplitMix::of_stream(self.shared.plan.seed, stream);
        let owner = Arc::clone(&self.owner);
        let shared = Arc::clone(&self.shared);
        Ok(Arc::new(FaultQueuePair::new(inner, owner, target, shared, random)))
    }
}
