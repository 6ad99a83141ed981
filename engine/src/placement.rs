//! Where a line lives: from a global address to its home and the offsets of latch word and page.
//!
//! The address space is cut into ranges of equal size; consecutive ranges lie on different memory
//! nodes as long as those have ranges left. A range here is one plain slab (k = 1, r = 0).

use selkie_fabric::{RegionKey, RemoteAddr};
use selkie_memnode::PoolDescriptor;
use selkie_memnode::layout::{EXTENT_GCLS, SlabGeometry};

use crate::GAddr;

/// Where a range lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Placement {
    node: u16,
    local_range: u32,
}

/// Where a line lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// Index of the memory node.
    pub(crate) node: usize,
    /// The latch word.
    pub(crate) latch: RemoteAddr,
    /// The page.
    pub(crate) page: RemoteAddr,
}

/// The map of all ranges of a pool.
pub(crate) struct PlacementMap {
    ranges: Box<[Placement]>,
    /// For each memory node its ranges in local order, as indices into `ranges`.
    by_node: Box<[Box<[u32]>]>,
    regions: Box<[RegionKey]>,
    geometry: SlabGeometry,
    range_shift: u32,
    gcl_shift: u32,
}

impl PlacementMap {
    pub(crate) fn new(pool: &PoolDescriptor) -> PlacementMap {
        let most = pool.memory_nodes.iter().map(|n| n.ranges).max().unwrap_or(0);
        let mut ranges = Vec::new();
        let mut by_node = vec![Vec::new(); pool.memory_nodes.len()];
        for local_range in 0..most {
            for (node, (memory, own)) in pool.memory_nodes.iter().zip(&mut by_node).enumerate() {
                if local_range < memory.ranges {
                    own.push(ranges.len() as u32);
                    ranges.push(Placement { node: node as u16, local_range });
                }
            }
        }
        PlacementMap {
            ranges: ranges.into(),
            by_node: by_node.into_iter().map(Into::into).collect(),
            regions: pool.memory_nodes.iter().map(|n| n.region).collect(),
            geometry: pool.geometry(),
            range_shift: pool.range_bytes.trailing_zeros(),
            gcl_shift: pool.gcl_bytes.trailing_zeros(),
        }
    }

    /// Bytes of page data in the pool.
    pub(crate) fn capacity(&self) -> u64 {
        (self.ranges.len() as u64) << self.range_shift
    }

    /// Extents that a memory node has.
    pub(crate) fn extents_of(&self, node: usize) -> u64 {
        let ranges = self.by_node.get(node).map_or(0, |own| own.len() as u32);
        self.geometry.extents_per_node(ranges)
    }

    /// First line of a memory node's extent, or `None` beyond its last.
    pub(crate) fn extent(&self, node: usize, extent: u64) -> Option<GAddr> {
        let byte = extent.checked_mul(EXTENT_GCLS << self.gcl_shift)?;
        let range = *self.by_node.get(node)?.get((byte >> self.range_shift) as usize)?;
        let within = byte & ((1 << self.range_shift) - 1);
        Some(GAddr::from_u64((u64::from(range) << self.range_shift) + within))
    }

    /// The line whose header is that of GCL `gcl` in a range of a memory node, by the node's own count.
    pub(crate) fn addr_of(&self, node: usize, local_range: u32, gcl: u32) -> Option<GAddr> {
        let range = *self.by_node.get(node)?.get(local_range as usize)?;
        let within = u64::from(gcl) << self.gcl_shift;
        Some(GAddr::from_u64((u64::from(range) << self.range_shift) + within))
    }

    /// Where `addr` lies, or `None` when it is no line of the pool.
    pub(crate) fn home(&self, addr: GAddr) -> Option<Home> {
        let raw = addr.to_u64();
        let placement = self.ranges.get((raw >> self.range_shift) as usize)?;
        let region = *self.regions.get(usize::from(placement.node))?;
        let within = raw & ((1 << self.range_shift) - 1);
        if addr.is_null() || within & ((1 << self.gcl_shift) - 1) != 0 {
            return None;
        }
        let gcl = (within >> self.gcl_shift) as u32;
        let at = |offset| RemoteAddr::new(region, offset);
        Some(Home {
            node: usize::from(placement.node),
            latch: at(self.geometry.latch_offset(placement.local_range, gcl)),
            page: at(self.geometry.data_offset(placement.local_range, gcl)),
        })
    }
}
