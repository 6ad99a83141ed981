//! The traits of a fabric over the simulated network.

use std::sync::Arc;

use super::network::Network;
use super::slot::{Slot, Waiting};
use super::world::{Controls, Shared};
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair, Reach};
use crate::completion::Completion;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::node::Node;
use crate::verb::Chain;

pub(super) struct SimFabric {
    shared: Arc<Shared>,
}

impl SimFabric {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Fabric for SimFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let mut network = self.shared.network.lock();
        let index = network.join(id)?;
        let memory = Arc::clone(&network.node(index).memory);
        drop(network);
        Ok(Arc::new(SimEndpoint { shared: Arc::clone(&self.shared), index, memory }))
    }

    fn fence(&self, peer: PeerId) -> Result<Reach, FabricError> {
        Controls::of(&self.shared).kill(peer);
        Ok(Reach::Everywhere)
    }
}

struct SimEndpoint {
    shared: Arc<Shared>,
    index: usize,
    memory: Arc<Node>,
}

impl Endpoint for SimEndpoint {
    fn id(&self) -> PeerId {
        self.memory.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.shared.network.lock().check_alive(self.index)?;
        Ok(self.memory.register(bytes)?)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let lane = self.shared.network.lock().connect(self.index, peer)?;
        Ok(Arc::new(SimQueuePair { shared: Arc::clone(&self.shared), lane, peer }))
    }
}

struct SimQueuePair {
    shared: Arc<Shared>,
    lane: usize,
    peer: PeerId,
}

impl QueuePair for SimQueuePair {
    fn peer(&self) -> PeerId {
        self.peer
    }

    fn post(&self, chain: Chain) -> Completion {
        let mut network = self.shared.network.lock();
        if network.stopped {
            drop(network);
            return Completion::failed(chain, 0, FabricError::Stopped { peer: self.peer });
        }
        let slot = Arc::new(Slot::default());
        Network::post(&mut network, self.lane, chain, Arc::clone(&slot));
        drop(network);
        Completion::outstanding(Box::new(Waiting(slot)))
    }
}
