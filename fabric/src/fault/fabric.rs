//! `FaultFabric` and its endpoints.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::plan::{FaultPlan, FaultReport};
use super::queue_pair::FaultQueuePair;
use super::state::{FaultState, PeerLife};
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::domain::Domain;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;

/// A fabric that makes the fabric it wraps fail by a plan.
pub struct FaultFabric {
    inner: Arc<dyn Fabric>,
    state: Arc<FaultState>,
}

impl FaultFabric {
    /// Wraps `inner`. Delays are slept, and delayed chains executed, in `env`.
    pub fn wrap(inner: Arc<dyn Fabric>, plan: FaultPlan, env: Env) -> Arc<Self> {
        Arc::new(Self { inner, state: Arc::new(FaultState::new(plan, env)) })
    }

    /// Lets `peer` die now: outstanding and later chains to it and from it fail with `PeerDead`.
    pub fn drop_peer(&self, peer: PeerId) {
        self.state.peer(peer).die();
    }

    /// How many faults have happened so far.
    pub fn report(&self) -> FaultReport {
        self.state.tally.report()
    }
}

impl Fabric for FaultFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let inner = self.inner.join(id)?;
        let owner = self.state.peer(id);
        Ok(Arc::new(FaultEndpoint { inner, owner, state: Arc::clone(&self.state) }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.drop_peer(peer);
        self.inner.fence(peer)
    }

    fn add_peer(
        &self,
        peer: PeerId,
        access_card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        self.inner.add_peer(peer, access_card, within)
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        self.inner.remove_peer(peer)
    }
}

struct FaultEndpoint {
    inner: Arc<dyn Endpoint>,
    owner: Arc<PeerLife>,
    state: Arc<FaultState>,
}

impl Endpoint for FaultEndpoint {
    fn id(&self) -> PeerId {
        self.inner.id()
    }

    fn access_card(&self) -> Option<String> {
        self.inner.access_card()
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.inner.silence_of(peer)
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.owner.check_alive()?;
        self.inner.register(bytes)
    }

    fn register_populated(
        &self,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.owner.check_alive()?;
        self.inner.register_populated(bytes, told)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let target = self.state.peer(peer);
        self.owner.check_alive()?;
        target.check_alive()?;
        let inner = self.inner.connect(peer)?;
        let random = self.state.new_sequence();
        let owner = Arc::clone(&self.owner);
        let state = Arc::clone(&self.state);
        Ok(Arc::new(FaultQueuePair::new(inner, owner, target, state, random)))
    }
}
