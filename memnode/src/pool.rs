//! The pool: the memory nodes of one process and their control plane.
//!
//! It starts the memory nodes, says how to reach them, knows which compute nodes are in, and keeps
//! the GCLs that leaving compute nodes hand back. None of this is on a data path: a compute node talks
//! to the pool when it starts, when it leaves, and when it runs out of memory.

use crate::config::{PoolConfig, PoolPlan};
use crate::error::PoolError;
use crate::layout::SlabGeometry;
use crate::node::{MemoryNode, MemoryNodeDescriptor};
use crate::registry::{ComputeIndex, Registry};
use parking_lot::Mutex;
use selkie_channels::MailboxDescriptor;
use selkie_fabric::Fabric;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Everything a compute node has to know to use the pool's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDescriptor {
    /// Bytes of a GCL.
    pub gcl_bytes: usize,
    /// Bytes of a range.
    pub range_bytes: u64,
    /// Compute nodes that may register; indexes are below it.
    pub max_compute_nodes: usize,
    /// The memory nodes, by index.
    pub memory_nodes: Vec<MemoryNodeDescriptor>,
}

impl PoolDescriptor {
    /// Where things lie in the memory nodes' regions.
    #[must_use]
    pub fn geometry(&self) -> SlabGeometry {
        SlabGeometry::new(self.gcl_bytes, self.range_bytes)
    }

    /// Extents of all memory nodes together.
    #[must_use]
    pub fn extents(&self) -> u64 {
        let geometry = self.geometry();
        self.memory_nodes.iter().map(|node| geometry.extents_per_node(node.ranges)).sum()
    }
}

/// How much of the pool is leased to compute nodes.
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
}

/// The memory nodes that one process started, with their control plane.
pub struct Pool {
    descriptor: PoolDescriptor,
    nodes: Vec<MemoryNode>,
    registry: Registry,
    /// Global addresses of GCLs nobody leases. Bounded by the number of GCLs in the pool; a set, so
    /// that a GCL donated twice is not adopted twice.
    donated: Mutex<BTreeSet<u64>>,
}

impl Pool {
    /// Validates the configuration and starts the memory nodes on `fabric`. Blocks only for memory
    /// registration; no round trips.
    ///
    /// # Errors
    /// [`PoolError::Config`] for a bad field, [`PoolError::MemoryNode`] if the fabric refuses a node.
    pub fn start(fabric: &Arc<dyn Fabric>, config: PoolConfig) -> Result<Arc<Self>, PoolError> {
        let plan = config.plan()?;
        let nodes = (0..config.memory_nodes)
            .map(|node| start_node(fabric, node, &plan))
            .collect::<Result<Vec<_>, _>>()?;
        let descriptor = PoolDescriptor {
            gcl_bytes: config.gcl_bytes,
            range_bytes: config.range_bytes,
            max_compute_nodes: config.max_compute_nodes,
            memory_nodes: nodes.iter().map(|node| node.descriptor().clone()).collect(),
        };
        let registry = Registry::new(config.max_compute_nodes, config.memory_nodes);
        Ok(Arc::new(Self { descriptor, nodes, registry, donated: Mutex::default() }))
    }

    /// How to use the pool's memory.
    #[must_use]
    pub fn descriptor(&self) -> &PoolDescriptor {
        &self.descriptor
    }

    /// The memory nodes, by index.
    #[must_use]
    pub fn memory_nodes(&self) -> &[MemoryNode] {
        &self.nodes
    }

    /// Enters a compute node with the mailboxes it receives at, each from its share of the senders: see
    /// [`Pool::mailbox_of`].
    ///
    /// # Errors
    /// [`PoolError::UnknownCompute`] for an index beyond the limit, [`PoolError::DuplicateCompute`] if
    /// the index is taken.
    pub fn register_compute(
        &self,
        node: ComputeIndex,
        mailboxes: Vec<MailboxDescriptor>,
    ) -> Result<(), PoolError> {
        self.registry.register(node, mailboxes)
    }

    /// Takes a compute node out; its index may be registered again afterwards.
    ///
    /// # Errors
    /// [`PoolError::NotRegistered`] or [`PoolError::UnknownCompute`].
    pub fn leave(&self, node: ComputeIndex) -> Result<(), PoolError> {
        self.registry.leave(node)
    }

    /// Enters the mailbox at which a memory node's processor serves calls, for the baseline that needs it.
    ///
    /// # Errors
    /// [`PoolError::Directory`] if there is no such memory node, or it has one already.
    pub fn register_directory(
        &self,
        memory_node: usize,
        mailbox: MailboxDescriptor,
    ) -> Result<(), PoolError> {
        if self.registry.register_directory(memory_node, mailbox) {
            Ok(())
        } else {
            Err(PoolError::Directory { memory_node })
        }
    }

    /// The mailbox at which a memory node's processor serves calls, if it does.
    #[must_use]
    pub fn directory_of(&self, memory_node: usize) -> Option<MailboxDescriptor> {
        self.registry.directory_of(memory_node)
    }

    /// The mailbox in which a compute node receives from the peer `sender`, if it is in the pool: of its
    /// mailboxes the one whose number is the remainder of `sender`.
    #[must_use]
    pub fn mailbox_of(&self, node: ComputeIndex, sender: usize) -> Option<MailboxDescriptor> {
        self.registry.mailbox_of(node, sender)
    }

    /// Whether a compute node is in the pool.
    #[must_use]
    pub fn is_member(&self, node: ComputeIndex) -> bool {
        self.registry.is_member(node)
    }

    /// The compute nodes in the pool, by rising index.
    #[must_use]
    pub fn members(&self) -> Vec<ComputeIndex> {
        self.registry.members()
    }

    /// Hands back GCLs (global addresses) that the caller leases, does not use, and that no reader
    /// can still meet. Donating an address twice is the same as once.
    pub fn donate(&self, gcls: Vec<u64>) {
        self.donated.lock().extend(gcls);
    }

    /// Takes over at most `max` donated GCLs, lowest addresses first; empty if there are none.
    #[must_use = "an adopted GCL belongs to the caller; dropping the list loses the memory"]
    pub fn adopt(&self, max: usize) -> Vec<u64> {
        let mut donated = self.donated.lock();
        let taken = max.min(donated.len());
        (0..taken).map_while(|_| donated.pop_first()).collect()
    }

    /// Reads the memory nodes' control pages for a report: extents leased, and how many there are.
    /// GCLs donated and not yet adopted still count as leased.
    #[must_use]
    pub fn used_extents(&self) -> PoolUsage {
        let geometry = self.descriptor.geometry();
        let leased = self.nodes.iter().map(|node| {
            // The counter runs past the end when an exhausted node is asked again.
            node.extents_leased().min(geometry.extents_per_node(node.descriptor().ranges))
        });
        let extents_leased = leased.sum();
        let extents = self.descriptor.extents();
        PoolUsage {
            extents_leased,
            extents,
            bytes_leased: extents_leased * geometry.extent_bytes(),
            bytes: extents * geometry.extent_bytes(),
        }
    }
}

fn start_node(
    fabric: &Arc<dyn Fabric>,
    node: usize,
    plan: &PoolPlan,
) -> Result<MemoryNode, PoolError> {
    // Validated to be at most MAX_MEMORY_NODES.
    let index = u16::try_from(node).unwrap_or(u16::MAX);
    MemoryNode::start(fabric, index, plan).map_err(|source| PoolError::MemoryNode { node, source })
}

const _: () = assert!(crate::config::MAX_MEMORY_NODES <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout;
    use selkie_fabric::mem::MemFabric;
    use selkie_fabric::{Buf, Chain, Endpoint, PeerId, RemoteAddr, Verb};

    const CONFIG: PoolConfig = PoolConfig {
        memory_nodes: 2,
        bytes_per_node: 2 << 20,
        gcl_bytes: 512,
        range_bytes: 1 << 19,
        max_compute_nodes: 4,
    };

    fn pool() -> (Arc<dyn Fabric>, Arc<Pool>) {
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let pool = Pool::start(&fabric, CONFIG).unwrap();
        (fabric, pool)
    }

    fn join(fabric: &Arc<dyn Fabric>) -> Arc<dyn Endpoint> {
        fabric.join(PeerId::compute(0)).unwrap()
    }

    fn run(endpoint: &Arc<dyn Endpoint>, node: PeerId, verb: Verb) -> Verb {
        let queue_pair = endpoint.connect(node).unwrap();
        let mut chain = Chain::new();
        chain.push(verb);
        let done = queue_pair.post(chain).try_take().expect("mem completes inline").unwrap();
        done.verbs.into_iter().next().unwrap()
    }

    fn mailbox(node: u16, pool: &Pool) -> MailboxDescriptor {
        let region = pool.descriptor().memory_nodes[0].region;
        MailboxDescriptor { peer: PeerId::compute(node), region, ring_bytes: 1 << 16, peers: 4 }
    }

    #[test]
    fn control_pages_are_readable_over_the_fabric() {
        let (fabric, pool) = pool();
        let node = &pool.descriptor().memory_nodes[1];
        let at = RemoteAddr { region: node.region, offset: 0 };
        let verb = run(&join(&fabric), node.peer, Verb::Read { at, into: Buf::zeroed(640) });
        let Verb::Read { into, .. } = verb else { panic!("not the verb posted") };
        let word = |at: u64| u64::from_le_bytes(into[at as usize..][..8].try_into().unwrap());
        assert_eq!(word(layout::MAGIC_AT), layout::CONTROL_MAGIC);
        assert_eq!(word(layout::VERSION_AT), layout::LAYOUT_VERSION);
        assert_eq!(word(layout::GCL_BYTES_AT), 512);
        assert_eq!(word(layout::RANGE_BYTES_AT), 1 << 19);
        assert!(into[32..].iter().all(|&byte| byte == 0), "counters and epochs start as zero");
    }

    #[test]
    fn the_last_gcl_lies_in_the_region_and_one_beyond_does_not() {
        let (fabric, pool) = pool();
        let node = &pool.descriptor().memory_nodes[0];
        let geometry = pool.descriptor().geometry();
        assert_eq!(node.ranges, 3);
        let endpoint = join(&fabric);
        let last = geometry.data_offset(node.ranges - 1, geometry.gcls_per_range() as u32 - 1);
        let at = RemoteAddr { region: node.region, offset: last };
        run(&endpoint, node.peer, Verb::Read { at, into: Buf::zeroed(512) });
        let beyond = geometry.slab_offset(node.ranges).next_multiple_of(4096);
        let at = RemoteAddr { region: node.region, offset: beyond };
        let chain = Chain::from([Verb::Read { at, into: Buf::zeroed(8) }]);
        let answer = endpoint.connect(node.peer).unwrap().post(chain).try_take();
        assert!(answer.expect("mem completes inline").is_err());
    }

    #[test]
    fn usage_counts_leased_extents_and_stops_at_the_capacity() {
        let (fabric, pool) = pool();
        // 1,024 GCLs a range are 16 extents; 3 ranges, 2 nodes.
        let all = 2 * 3 * 16;
        let extent_bytes = 64 * 512;
        let bytes = all * extent_bytes;
        let none = PoolUsage { extents_leased: 0, extents: all, bytes_leased: 0, bytes };
        assert_eq!(pool.used_extents(), none);
        let endpoint = join(&fabric);
        let lease = |node: usize, delta: u64| {
            let node = &pool.descriptor().memory_nodes[node];
            let at = RemoteAddr { region: node.region, offset: layout::EXTENTS_LEASED_AT };
            run(&endpoint, node.peer, Verb::FetchAndAdd { at, delta, old: 0 });
        };
        lease(1, 5);
        assert_eq!(pool.used_extents().extents_leased, 5);
        assert_eq!(pool.used_extents().bytes_leased, 5 * extent_bytes);
        lease(1, 1000);
        assert_eq!(pool.used_extents().extents_leased, 48, "the other node has nothing leased");
        lease(0, 1000);
        assert_eq!(pool.used_extents().bytes_leased, bytes);
    }

    #[test]
    fn registry_refuses_duplicates_and_indexes_beyond_the_limit() {
        let (_fabric, pool) = pool();
        let (one, three) = (ComputeIndex::new(1), ComputeIndex::new(3));
        pool.register_compute(one, vec![mailbox(1, &pool), mailbox(9, &pool)]).unwrap();
        pool.register_compute(three, vec![mailbox(3, &pool)]).unwrap();
        assert_eq!(pool.mailbox_of(one, 0), Some(mailbox(1, &pool)));
        assert_eq!(pool.mailbox_of(one, 3), Some(mailbox(9, &pool)), "each sender has its mailbox");
        assert_eq!(pool.mailbox_of(three, 3), Some(mailbox(3, &pool)));
        assert_eq!(pool.mailbox_of(ComputeIndex::new(0), 0), None);
        assert_eq!(pool.members(), [one, three]);
        assert!(pool.is_member(one) && !pool.is_member(ComputeIndex::new(0)));
        assert!(!pool.is_member(ComputeIndex::new(4)), "beyond the limit");
        let again = pool.register_compute(one, vec![mailbox(2, &pool)]);
        assert!(matches!(again, Err(PoolError::DuplicateCompute { node }) if node == one));
        assert_eq!(pool.mailbox_of(one, 0), Some(mailbox(1, &pool)), "the first stays");
        let beyond = pool.register_compute(ComputeIndex::new(4), vec![mailbox(4, &pool)]);
        assert!(matches!(beyond, Err(PoolError::UnknownCompute { limit: 4, .. })));
        pool.leave(one).unwrap();
        assert!(matches!(pool.leave(one), Err(PoolError::NotRegistered { .. })));
        let unknown = pool.leave(ComputeIndex::new(4));
        assert!(matches!(unknown, Err(PoolError::UnknownCompute { .. })));
        pool.register_compute(one, vec![mailbox(2, &pool)]).unwrap();
        assert_eq!(pool.mailbox_of(one, 1), Some(mailbox(2, &pool)));
    }

    #[test]
    fn donated_gcls_are_adopted_once() {
        let (_fabric, pool) = pool();
        assert!(pool.adopt(10).is_empty());
        pool.donate(vec![4096, 512, 1024]);
        pool.donate(vec![512]);
        assert_eq!(pool.adopt(2), [512, 1024]);
        assert_eq!(pool.adopt(usize::MAX), [4096]);
        assert!(pool.adopt(1).is_empty());
    }

    #[test]
    fn a_second_pool_on_the_same_fabric_is_a_typed_error() {
        let (fabric, _pool) = pool();
        let second = Pool::start(&fabric, CONFIG).map(drop);
        assert!(matches!(second, Err(PoolError::MemoryNode { node: 0, .. })), "{second:?}");
    }
}
