//! The queue pairs to the memory nodes of a pool; more are opened as memory nodes join.
//!
//! There is one queue pair to each memory node. It is opened when the pool names the node
//! (`Observer::changed`), or by the first access if that is sooner. It never changes, so that all
//! latch operations of a line use the same one (rule R1), and it is found without a lock.

use std::sync::{Arc, OnceLock};

use selkie_fabric::{Endpoint, FabricError, PeerId, QueuePair, RegionKey};
use selkie_pool::control::PoolState;
use selkie_pool::{MAX_MEMORY_NODES, MemoryNodeDescriptor, Pool};

use super::disconnected;

/// The ways to all memory nodes, by index.
pub(crate) struct MemoryLinks {
    endpoint: Arc<dyn Endpoint>,
    reads_only: bool,
    slots: Box<[LinkSlot]>,
}

#[derive(Default)]
struct LinkSlot {
    way: OnceLock<MemoryLink>,
    /// Answers for a node to which there is no way yet.
    none: OnceLock<Arc<dyn QueuePair>>,
}

struct MemoryLink {
    queue_pair: Arc<dyn QueuePair>,
    region: RegionKey,
    /// For write-backs that a planted bug takes off their queue pair.
    #[cfg(feature = "planted")]
    loose: Arc<dyn QueuePair>,
}

impl MemoryLinks {
    /// To all memory nodes that the pool has now. Does not wait.
    ///
    /// # Errors
    /// What keeps the fabric from one of them. A coded pool does without those that are dead.
    pub(crate) fn open(
        pool: &Pool,
        endpoint: Arc<dyn Endpoint>,
        reads_only: bool,
    ) -> Result<Self, FabricError> {
        let slots = (0..MAX_MEMORY_NODES).map(|_| LinkSlot::default()).collect();
        let ways = Self { endpoint, reads_only, slots };
        for node in 0..pool.state().memory_nodes.len() {
            ways.connect(&pool.state(), node)?;
        }
        Ok(ways)
    }

    /// Opens ways to memory nodes that have joined; whether there is one to each. One that cannot
    /// be reached is tried again when this is called again: a page that could not go where it
    /// belongs would be lost.
    pub(crate) fn follow(&self, state: &PoolState) -> bool {
        let connected = (0..state.memory_nodes.len()).map(|node| self.connect(state, node));
        let failed: Vec<FabricError> = connected.filter_map(Result::err).collect();
        for error in &failed {
            tracing::debug!(%error, "no way to a memory node that joined");
        }
        failed.is_empty()
    }

    fn connect(&self, state: &PoolState, node: usize) -> Result<(), FabricError> {
        let Some(slot) = self.slots.get(node).filter(|slot| slot.way.get().is_none()) else {
            return Ok(());
        };
        let Some(&MemoryNodeDescriptor { peer, region, .. }) = state.memory_node(node as u16)
        else {
            return Ok(());
        };
        // A coded pool does without those that died, and nothing is on those that have left.
        let is_coded = !state.coding.is_plain();
        let queue_pair = if is_coded && !state.lives(node as u16) {
            disconnected::gone(peer)
        } else {
            match self.way_to(state, peer) {
                Err(FabricError::PeerDead { peer: dead }) if is_coded && dead == peer => {
                    disconnected::gone(peer)
                }
                way => way?,
            }
        };
        let way = MemoryLink {
            #[cfg(feature = "planted")]
            loose: self.way_to(state, peer).unwrap_or_else(|_| Arc::clone(&queue_pair)),
            queue_pair,
            region,
        };
        // If another task was faster, all use the queue pair that it opened.
        let _ = slot.way.set(way);
        Ok(())
    }

    fn way_to(&self, state: &PoolState, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        if self.reads_only {
            return self.endpoint.connect_within(peer, &Arc::new(state.reading()));
        }
        self.endpoint.connect(peer)
    }

    /// The way to a memory node of the pool; one that cannot be reached yet is no dead one.
    #[expect(clippy::indexing_slicing, reason = "a pool has no more memory nodes than slots")]
    pub(crate) fn to(&self, pool: &Pool, node: usize) -> &dyn QueuePair {
        let slot = &self.slots[node];
        match slot.way.get() {
            Some(way) => &*way.queue_pair,
            None => self.late(pool, node, slot),
        }
    }

    #[cold]
    fn late<'s>(&self, pool: &Pool, node: usize, slot: &'s LinkSlot) -> &'s dyn QueuePair {
        let connected = self.connect(&pool.state(), node);
        match slot.way.get() {
            Some(way) => &*way.queue_pair,
            None => {
                let error = connected.err();
                tracing::debug!(memory = node, ?error, "no way to a memory node yet");
                &**slot.none.get_or_init(|| disconnected::not_met(PeerId::memory(node as u16)))
            }
        }
    }

    /// The region that a memory node lends, once there is a way to it.
    pub(crate) fn region(&self, node: usize) -> Option<RegionKey> {
        Some(self.slots.get(node)?.way.get()?.region)
    }

    #[cfg(feature = "planted")]
    pub(crate) fn loose(&self, node: usize) -> Option<&dyn QueuePair> {
        Some(&*self.slots.get(node)?.way.get()?.loose)
    }
}
