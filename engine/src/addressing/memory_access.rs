//! The pool's memory as a node sees it: where lines lie, and how their memory nodes are reached.

use std::sync::Arc;

use selkie_fabric::{FabricError, PeerId, QueuePair, RemoteAddr};
use selkie_pool::Pool;

use super::memory_links::MemoryLinks;
use super::placement::PlacementMap;
use crate::EngineError;
use crate::coding::coded::CodingState;
use crate::coding::quiesced::QuiescedHomes;
use crate::telemetry::account::{self, Item};

/// Access to the memory nodes of a pool.
pub(crate) struct MemoryAccess {
    pub(crate) placement: PlacementMap,
    pub(crate) links: MemoryLinks,
    /// Of pools with redundancy.
    pub(crate) coded: Option<CodingState>,
    /// Operations that wait for a lost memory node to be replaced.
    pub(crate) quiesced: QuiescedHomes,
    pool: Arc<Pool>,
}

impl MemoryAccess {
    pub(crate) fn new(pool: &Arc<Pool>, links: MemoryLinks, coded: Option<CodingState>) -> Self {
        Self {
            placement: PlacementMap::new(pool.descriptor()),
            links,
            coded,
            quiesced: QuiescedHomes::default(),
            pool: Arc::clone(pool),
        }
    }

    /// The queue pair to a memory node, to post one chain.
    pub(crate) fn queue_pair(&self, node: usize) -> &dyn QueuePair {
        account::note(Item::RoundTrip);
        self.links.to(&self.pool, node)
    }

    /// How many memory nodes the pool has had, those that are dead or have left among them.
    pub(crate) fn node_count(&self) -> usize {
        self.pool.state().memory_nodes.len()
    }

    /// An offset in a memory node's region.
    pub(crate) fn at(&self, node: usize, offset: u64) -> Result<RemoteAddr, EngineError> {
        // The region is known once the node is connected.
        let _connected = self.links.to(&self.pool, node);
        let peer = PeerId::memory(node as u16);
        let region = self.links.region(node).ok_or(FabricError::UnknownPeer { peer })?;
        Ok(RemoteAddr::new(region, offset))
    }
}
