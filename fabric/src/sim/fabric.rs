//! The traits of a fabric over the simulated network.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

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
    /// The process that it belongs to; `None`: all nodes are of one.
    process: Option<Mutex<Process>>,
}

/// A process, by the indices of nodes.
#[derive(Default)]
struct Process {
    nodes: Vec<usize>,
    /// Those of others that it has fenced.
    fenced: Vec<usize>,
}

impl SimFabric {
    pub(super) fn new(simulation: Arc<Simulation>) -> Self {
        Self { simulation, process: None }
    }

    pub(super) fn of_process(simulation: Arc<Simulation>) -> Self {
        Self { simulation, process: Some(Mutex::default()) }
    }
}

impl Fabric for SimFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let mut network = self.simulation.network.lock();
        let index = network.join(id)?;
        let memory = Arc::clone(&network.node(index).memory);
        if let Some(process) = &self.process {
            let mut process = process.lock();
            process.nodes.push(index);
            process.fenced.iter().for_each(|dead| network.fence_at(*dead, index));
        }
        drop(network);
        let (simulation, has_card) = (Arc::clone(&self.simulation), self.process.is_some());
        Ok(Arc::new(SimEndpoint { simulation, index, memory, has_card }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        let Some(process) = &self.process else {
            Controls::of(&self.simulation).kill(peer);
            return Ok(FenceScope::Everywhere);
        };
        let mut network = self.simulation.network.lock();
        if let Some(dead) = network.names.get(&peer).copied() {
            let mut process = process.lock();
            process.fenced.push(dead);
            process.nodes.iter().for_each(|own| network.fence_at(dead, *own));
        }
        Ok(FenceScope::ThisProcess)
    }
}

struct SimEndpoint {
    simulation: Arc<Simulation>,
    index: usize,
    memory: Arc<Node>,
    has_card: bool,
}

impl Endpoint for SimEndpoint {
    fn id(&self) -> PeerId {
        self.memory.id()
    }

    fn access_card(&self) -> Option<String> {
        self.has_card.then(|| self.id().to_string())
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.simulation.network.lock().silence_of(self.index, peer)
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
        self.simulation.panic_if_planted();
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
