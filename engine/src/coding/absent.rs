//! The way to a memory node that is not there: a node that joins a coded pool after its loss has none to it.

use selkie_fabric::{Chain, Completion, FabricError, PeerId, QueuePair};

/// Ends everything that is posted as the memory node's death does.
pub(crate) struct Absent(pub(crate) PeerId);

impl QueuePair for Absent {
    fn peer(&self) -> PeerId {
        self.0
    }

    fn post(&self, chain: Chain) -> Completion {
        Completion::failed(chain, 0, FabricError::PeerDead { peer: self.0 })
    }
}
