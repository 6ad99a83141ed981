//! A pool in numbers.

use crate::coding::Coding;
use crate::document::MemoryNodeDescriptor;
use crate::layout::SlabGeometry;

/// Everything a compute node has to know to use the pool's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDescriptor {
    /// Bytes of a GCL.
    pub gcl_bytes: usize,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Compute nodes that may register; indexes are below it.
    pub max_compute_nodes: usize,
    /// How pages are kept.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of each compute node; 0: none.
    pub log_bytes: u64,
    /// The memory nodes that the pool had when this process opened it, by index. A coded pool may
    /// get more, which its state names.
    pub memory_nodes: Vec<MemoryNodeDescriptor>,
}

impl PoolDescriptor {
    /// Where things lie in the memory nodes' regions.
    #[must_use]
    pub fn geometry(&self) -> SlabGeometry {
        SlabGeometry::coded(self.gcl_bytes, self.range_bytes, self.coding)
            .with_logs(self.log_bytes, self.max_compute_nodes)
    }
}

/// How much of a pool, or of a memory node, is leased to compute nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// Extents leased so far.
    pub extents_leased: u64,
    /// Extents there are.
    pub extents: u64,
    /// Bytes of page data leased so far (headers not counted).
    pub bytes_leased: u64,
    /// Bytes of page data there are.
    pub bytes: u64,
    /// Slabs of which something is leased; in a coded pool, that ranges lie in.
    pub slabs_used: u64,
    /// Slabs there are.
    pub slabs: u64,
}

impl PoolUsage {
    /// The usage of these extents, and no slabs.
    #[must_use]
    pub fn of(geometry: &SlabGeometry, extents_leased: u64, extents: u64) -> Self {
        let bytes = |extents| extents * geometry.extent_bytes();
        let (bytes_leased, bytes) = (bytes(extents_leased), bytes(extents));
        Self { extents_leased, extents, bytes_leased, bytes, slabs_used: 0, slabs: 0 }
    }
}
