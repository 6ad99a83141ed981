//! The traits of a fabric over the simulated network.

use std::sync::Arc;

use super::controls::Controls;
use super::network::Network;
use super::outcome::{OutcomeCell, OutstandingChain};
use super::simulation::Simulation;
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::completion::Completion;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::node::Node;
use crate::verb::Chain;

pub(super) struct SimFabric {
    simulation: Arc<Simulation>,
}

impl SimFabric {
    pub(super) fn new(simulation: Arc<Simulation>) -> Self {
        Self { simulation }
    }
}

impl Fabric for SimFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let mut network = self.simulation.network.lock();
        let index = network.join(id)?;
        let memory = Arc::clone(&network.node(index).memory);
        drop(network);
        Ok(Arc::new(SimEndpoint { simulation: Arc::clone(&self.simulation), index, memory }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        Controls::of(&self.simulation).kill(peer);
        Ok(FenceScope::Everywhere)
    }
}

struct SimEndpoint {
    simulation: Arc<Simulation>,
    index: usize,
    memory: Arc<Node>,
}

impl Endpoint for SimEndpoint {
    fn id(&self) -> PeerId {
        self.memory.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.simulation.network.lock().check_alive(self.index)?;
        Ok(self.memory.register(bytes)?)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let queue_pair = self.simulation.network.lock().connect(self.index, peer)?;
        Ok(Arc::new(SimQueuePair { simulation: Arc::clone(&self.simulation), queue_pair, peer }))
    }
}

struct SimQueuePair {
    simulation: Arc<Simulation>,
    queue_pair: usize,
    peer: PeerId,
}

impl QueuePair for SimQueuePair {
    fn peer(&self) -> PeerId {
        self.peer
    }

    fn post(&self, chain: Chain) -> Completion {
        let mut network = self.simulation.network.lock();
        if network.stopped {
            drop(network);
            return Completion::failed(chain, 0, FabricError::Stopped { peer: self.peer });
        }
        let cell = Arc::new(OutcomeCell::default());
        Network::post(&mut network, self.queue_pair, chain, Arc::clone(&cell));
        drop(network);
        Completion::outstanding(Box::new(OutstandingChain(cell)))
    }
}
