//! The arenas of other nodes, as far as this node has read images there.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::{QueuePair, RegionKey};

/// How to read another node's arena.
#[derive(Clone)]
pub(super) struct RemoteArena {
    pub(super) incarnation: u32,
    pub(super) queue_pair: Arc<dyn QueuePair>,
    pub(super) region: RegionKey,
}

/// The arenas of other nodes by the nodes' indexes.
#[derive(Default)]
pub(super) struct RemoteArenas(Mutex<HashMap<usize, RemoteArena>>);

impl RemoteArenas {
    /// The arena of this incarnation of a node, if it is known.
    pub(super) fn get(&self, node: usize, incarnation: u32) -> Option<RemoteArena> {
        let known = self.0.lock().get(&node).cloned();
        known.filter(|arena| arena.incarnation == incarnation)
    }

    pub(super) fn insert(&self, node: usize, arena: RemoteArena) {
        self.0.lock().insert(node, arena);
    }

    /// The node is gone.
    pub(super) fn forget(&self, node: usize) {
        self.0.lock().remove(&node);
    }
}
