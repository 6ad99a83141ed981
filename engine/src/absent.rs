//! The way to a memory node that is not there any more, in a pool that does without it.

use std::sync::Arc;

use selkie_fabric::{Chain, Completion, FabricError, PeerId, QueuePair};

/// Leads nowhere: whatever is posted ends as with a peer that is dead.
struct Absent(PeerId);

impl QueuePair for Absent {
    fn peer(&self) -> PeerId {
        self.0
    }

    fn post(&self, chain: Chain) -> Completion {
        Completion::failed(chain, 0, FabricError::PeerDead { peer: self.0 })
    }
}

/// The way to a peer that is gone.
pub(crate) fn way_to(peer: PeerId) -> Arc<dyn QueuePair> {
    Arc::new(Absent(peer))
}
