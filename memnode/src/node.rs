//! A memory node: one registered region with its control page. After the start it runs nothing.
//!
//! The node never reads a latch word and never looks at a page: compute nodes do all the work with
//! one-sided verbs. It keeps the endpoint and the region, so that the memory stays reachable.

use std::ops::ControlFlow;
use std::sync::Arc;

use selkie_fabric::{Endpoint, Fabric, LocalRegion, PeerId};
use selkie_pool::control::PoolState;
use selkie_pool::{MAX_MEMORY_NODES, MemoryNodeDescriptor, PoolError, PoolPlan, PoolUsage, layout};

use crate::capacity::PopulationWatcher;
use crate::monitor::{FreeMemory, HostMemory};

// Memory nodes are numbered by 16 bits on the fabric.
const _: () = assert!(MAX_MEMORY_NODES <= u16::MAX as usize);

/// A started memory node.
pub struct MemoryNode {
    descriptor: MemoryNodeDescriptor,
    region: Arc<dyn LocalRegion>,
    /// Keeps the node on the fabric for as long as it lives.
    endpoint: Arc<dyn Endpoint>,
}

impl MemoryNode {
    /// Joins the fabric as memory node `node`, registers the region, writes the control page. The
    /// memory is populated if there is a watcher, else when it is touched.
    pub(crate) fn start(
        fabric: &Arc<dyn Fabric>,
        node: usize,
        plan: &PoolPlan,
        watcher: Option<&PopulationWatcher>,
    ) -> Result<Self, PoolError> {
        assert!(node < MAX_MEMORY_NODES, "memory node {node} is beyond the largest pool");
        let peer = PeerId::memory(node as u16);
        let failed = |source| PoolError::MemoryNode { node, source };
        let endpoint = fabric.join(peer).map_err(failed)?;
        let bytes = plan.region_bytes;
        let registered = match watcher {
            Some(watcher) => {
                // A system that promises more than it has ends processes later. Looked for before
                // each piece: other processes may take memory at the same time.
                let refused = |free| PoolError::HostMemory { node, bytes: bytes as u64, free };
                if let Some(free) = lacks(bytes as u64) {
                    return Err(refused(free));
                }
                let mut short = None;
                let told = &mut |done: usize| {
                    short = lacks((bytes - done) as u64);
                    match short {
                        Some(_) => ControlFlow::Break(()),
                        None => watcher.told(done as u64, bytes as u64),
                    }
                };
                let registered = endpoint.register_populated(bytes, told);
                registered.map_err(|source| short.map_or_else(|| failed(source), refused))
            }
            None => endpoint.register(bytes).map_err(failed),
        };
        let region = registered?;
        write_control_page(region.as_ref(), plan);
        let descriptor = MemoryNodeDescriptor { peer, region: region.key(), ranges: plan.ranges };
        Ok(Self { descriptor, region, endpoint })
    }

    /// How compute nodes reach this node.
    #[must_use]
    pub fn descriptor(&self) -> &MemoryNodeDescriptor {
        &self.descriptor
    }

    /// The node's place on the fabric, for what its own processor does: nothing, but in the
    /// baseline that serves calls.
    #[must_use]
    pub fn endpoint(&self) -> &Arc<dyn Endpoint> {
        &self.endpoint
    }

    /// The node's memory as its own processor sees it.
    #[must_use]
    pub fn region(&self) -> &Arc<dyn LocalRegion> {
        &self.region
    }

    /// How much of it is leased, by its control page; in a coded pool, how much lies in the slabs
    /// that ranges have.
    #[must_use]
    pub fn usage(&self, state: &PoolState) -> PoolUsage {
        let geometry = state.geometry();
        let slabs = u64::from(self.descriptor.ranges);
        let extents = geometry.extents_in_slabs(slabs);
        if !state.coding.is_plain() {
            // What of a range is leased, its own counters say, and those lie on a few of its nodes.
            let slabs_used = state.slabs_on(self.descriptor.peer.index()) as u64;
            let leased = geometry.extents_in_slabs(slabs_used);
            let bytes_leased = geometry.page_bytes_in_slabs(slabs_used);
            let bytes = geometry.page_bytes_in_slabs(slabs);
            let of_extents = PoolUsage::of(&geometry, leased, extents);
            return PoolUsage { slabs_used, slabs, bytes_leased, bytes, ..of_extents };
        }
        // The counter runs past the end when an exhausted node is asked again.
        let leased = self.region.load(layout::EXTENTS_LEASED_AT as usize).min(extents);
        let slabs_used = leased.div_ceil(geometry.extents_per_range());
        PoolUsage { slabs_used, slabs, ..PoolUsage::of(&geometry, leased, extents) }
    }
}

/// What memory is free on the host, if that is less than this, and the system says so.
fn lacks(bytes: u64) -> Option<u64> {
    HostMemory::default().free_bytes().ok().filter(|free| *free < bytes)
}

/// Sizes first, magic last: a node that sees the magic sees the rest. The other words start as
/// zero.
fn write_control_page(region: &dyn LocalRegion, plan: &PoolPlan) {
    let words = [
        (layout::VERSION_AT, layout::LAYOUT_VERSION),
        (layout::GCL_BYTES_AT, plan.geometry.gcl_bytes() as u64),
        (layout::RANGE_BYTES_AT, plan.geometry.range_bytes()),
        (layout::MAGIC_AT, layout::CONTROL_MAGIC),
    ];
    for (offset, value) in words {
        region.store(offset as usize, value);
    }
}
