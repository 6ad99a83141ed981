//! How compute nodes reach a memory node.

use selkie_fabric::{PeerId, RegionKey};

/// What a compute node has to know about a memory node to use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNodeDescriptor {
    /// The node's name on the fabric.
    pub peer: PeerId,
    /// Its one region, laid out by [`crate::layout`].
    pub region: RegionKey,
    /// Ranges (slabs) in the region.
    pub ranges: u32,
}
