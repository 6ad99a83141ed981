//! `MemFabric` and its endpoints: the nodes of this process.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::RwLock;

use super::node::{Node, NodeGuard};
use super::queue_pair::MemQueuePair;
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::error::FabricError;
use crate::id::PeerId;

type Nodes = RwLock<HashMap<PeerId, Arc<Node>>>;

/// A fabric within one process. Its memory lives until the fabric, its endpoints, regions and queue
/// pairs are dropped.
pub struct MemFabric {
    nodes: Arc<Nodes>,
}

impl MemFabric {
    /// A fabric without nodes.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { nodes: Arc::new(Nodes::default()) })
    }

    /// Declares `peer` dead: verbs to it and from it fail with `PeerDead` from now on. A verb that
    /// another thread is executing now may still finish. A new node may then join by the same name.
    /// Does nothing if there is no such peer.
    pub fn kill(&self, peer: PeerId) {
        if let Some(node) = self.nodes.read().get(&peer) {
            node.kill();
        }
    }
}

impl Fabric for MemFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let mut nodes = self.nodes.write();
        if nodes.get(&id).is_some_and(|node| !node.is_dead()) {
            return Err(FabricError::AlreadyJoined { peer: id });
        }
        let node = Arc::new(Node::new(id));
        nodes.insert(id, Arc::clone(&node));
        let guard = Arc::new(NodeGuard::new(Arc::clone(&node)));
        Ok(Arc::new(MemEndpoint { node, guard, nodes: Arc::clone(&self.nodes) }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.kill(peer);
        if let Some(node) = self.nodes.read().get(&peer) {
            node.wait_until_idle();
        }
        Ok(FenceScope::Everywhere)
    }
}

struct MemEndpoint {
    node: Arc<Node>,
    guard: Arc<NodeGuard>,
    nodes: Arc<Nodes>,
}

impl Endpoint for MemEndpoint {
    fn id(&self) -> PeerId {
        self.node.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.node.check_alive()?;
        Ok(self.node.register(bytes)?)
    }

    fn register_populated(
        &self,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.node.check_alive()?;
        Ok(self.node.register_words(bytes, |words| words.populate(told))?)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        self.node.check_alive()?;
        let target = self.nodes.read().get(&peer).map(Arc::clone);
        let target = target.ok_or(FabricError::UnknownPeer { peer })?;
        target.check_alive()?;
        Ok(Arc::new(MemQueuePair::new(Arc::clone(&self.node), Arc::clone(&self.guard), target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_again_once_its_node_is_dead() {
        let fabric = MemFabric::new();
        let id = PeerId::memory(0);
        let first = fabric.join(id).unwrap();
        assert_eq!(fabric.join(id).err(), Some(FabricError::AlreadyJoined { peer: id }));
        fabric.kill(id);
        let second = fabric.join(id).unwrap();
        assert_eq!(first.register(8).err(), Some(FabricError::PeerDead { peer: id }));
        assert!(second.register(8).is_ok());
        drop(first);
        assert!(second.register(8).is_ok(), "they are not the same");
        drop(second);
        assert!(fabric.join(id).is_ok());
    }
}
