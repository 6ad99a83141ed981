//! Ways to memory nodes that are not there: any more, in a pool that does without them, or not yet.

use std::sync::Arc;

use selkie_fabric::{Chain, Completion, FabricError, PeerId, QueuePair};

/// Leads nowhere: whatever is posted ends with this error.
struct DisconnectedQueuePair {
    peer: PeerId,
    error: FabricError,
}

impl QueuePair for DisconnectedQueuePair {
    fn peer(&self) -> PeerId {
        self.peer
    }

    fn post(&self, chain: Chain) -> Completion {
        Completion::failed(chain, 0, self.error.clone())
    }
}

/// The way to a peer that is gone.
pub(crate) fn gone(peer: PeerId) -> Arc<dyn QueuePair> {
    Arc::new(DisconnectedQueuePair { peer, error: FabricError::PeerDead { peer } })
}

/// The queue pair to a peer that this node has not connected to yet.
pub(crate) fn not_met(peer: PeerId) -> Arc<dyn QueuePair> {
    Arc::new(DisconnectedQueuePair { peer, error: FabricError::UnknownPeer { peer } })
}
