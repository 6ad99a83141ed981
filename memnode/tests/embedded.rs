//! A pool with its memory nodes in one process.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_channels::MailboxDescriptor;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{
    Buf, Chain, Endpoint, Fabric, FabricError, PeerId, RealRuntime, RemoteAddr, Verb,
};
use selkie_memnode::{EmbeddedPool, PopulationWatcher};
use selkie_pool::{Coding, ComputeIndex, Pool, PoolConfig, PoolError, PoolUsage, layout};

const CONFIG: PoolConfig = PoolConfig {
    memory_nodes: 2,
    bytes_per_node: 2 << 20,
    gcl_bytes: 512,
    range_bytes: 1 << 19,
    max_compute_nodes: 4,
    coding: Coding::PLAIN,
    log_bytes: 0,
};

fn pool() -> (Arc<dyn Fabric>, Arc<EmbeddedPool>) {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let pool = EmbeddedPool::start(&fabric, CONFIG).unwrap();
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
    let (fabric, memory) = pool();
    let pool = memory.pool();
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
    let (fabric, memory) = pool();
    let pool = memory.pool();
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
    let (fabric, memory) = pool();
    let pool = memory.pool();
    // 1,024 GCLs a range are 16 extents; 3 ranges, 2 nodes.
    let all = 2 * 3 * 16;
    let extent_bytes = 64 * 512;
    let bytes = all * extent_bytes;
    let none = PoolUsage {
        extents_leased: 0,
        extents: all,
        bytes_leased: 0,
        bytes,
        slabs_used: 0,
        slabs: 6,
    };
    assert_eq!(memory.used_extents(), none);
    let endpoint = join(&fabric);
    let lease = |node: usize, delta: u64| {
        let node = &pool.descriptor().memory_nodes[node];
        let at = RemoteAddr { region: node.region, offset: layout::EXTENTS_LEASED_AT };
        run(&endpoint, node.peer, Verb::fetch_and_add(at, delta));
    };
    lease(1, 5);
    assert_eq!(memory.used_extents().extents_leased, 5);
    assert_eq!(memory.used_extents().bytes_leased, 5 * extent_bytes);
    assert_eq!(memory.used_extents().slabs_used, 1);
    lease(1, 1000);
    assert_eq!(memory.used_extents().extents_leased, 48, "the other node has nothing leased");
    lease(0, 1000);
    assert_eq!(memory.used_extents().bytes_leased, bytes);
}

#[test]
fn usage_of_a_coded_pool_is_that_of_its_ranges_and_not_of_their_slabs() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = PoolConfig { memory_nodes: 4, coding: "2+1".parse().unwrap(), ..CONFIG };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let pool = memory.pool();
    let capacity = u64::from(pool.descriptor().memory_nodes[0].ranges);
    // Sixteen extents a range, which lies on three of four nodes.
    let ranges = 4 * capacity / 3;
    let empty = memory.used_extents();
    assert_eq!((empty.extents_leased, empty.extents), (0, 16 * ranges));
    assert_eq!(empty.bytes, ranges * config.range_bytes);
    assert_eq!((empty.slabs_used, empty.slabs), (0, 4 * capacity));
    let runtime = RealRuntime::new(1).unwrap();
    let mut known = 0;
    while runtime.block_on(pool.add_range(&runtime.env(), known)).unwrap().is_some() {
        known += 1;
    }
    assert_eq!(known as u64, ranges, "as many as there was said to be room for");
    let endpoint = join(&fabric);
    let state = pool.state();
    let lease = |range: usize, delta: u64| {
        for slab in &state.ranges[range].slabs[..2] {
            let node = &pool.descriptor().memory_nodes[usize::from(slab.node)];
            let offset = pool.descriptor().geometry().leased_offset(slab.slab);
            let at = RemoteAddr { region: node.region, offset };
            run(&endpoint, node.peer, Verb::fetch_and_add(at, delta));
        }
    };
    lease(0, 3);
    lease(1, 100);
    let used = memory.used_extents();
    assert_eq!((used.extents_leased, used.extents), (3 + 16, 16 * ranges));
    assert_eq!(used.slabs_used, 3 * ranges);
    let node = memory.memory_nodes()[0].usage(&state);
    assert_eq!((node.slabs_used, node.slabs), (state.slabs_on(0) as u64, capacity));
    assert_eq!(node.extents, 16 * capacity / 3, "its share of what lies there");
    assert!(node.bytes_leased > 0 && node.bytes_leased <= node.bytes);
}

#[test]
fn registry_refuses_duplicates_and_indexes_beyond_the_limit() {
    let (_fabric, memory) = pool();
    let pool = memory.pool();
    let runtime = RealRuntime::new(1).unwrap();
    let env = runtime.env();
    let register = |node, mailboxes| runtime.block_on(pool.register_compute(&env, node, mailboxes));
    let leave = |node: (ComputeIndex, u32)| runtime.block_on(pool.leave(&env, node.0, node.1));
    let (one, three) = (ComputeIndex::new(1), ComputeIndex::new(3));
    let first = (one, register(one, vec![mailbox(1, pool), mailbox(9, pool)]).unwrap());
    register(three, vec![mailbox(3, pool)]).unwrap();
    assert_eq!(pool.mailbox_of(one, 0), Some(mailbox(1, pool)));
    assert_eq!(pool.mailbox_of(one, 3), Some(mailbox(9, pool)), "each sender has its mailbox");
    assert_eq!(pool.mailbox_of(three, 3), Some(mailbox(3, pool)));
    assert_eq!(pool.mailbox_of(ComputeIndex::new(0), 0), None);
    assert_eq!(pool.members(), [one, three]);
    assert!(pool.is_member(one) && !pool.is_member(ComputeIndex::new(0)));
    assert!(!pool.is_member(ComputeIndex::new(4)), "beyond the limit");
    let again = register(one, vec![mailbox(2, pool)]);
    assert!(matches!(again, Err(PoolError::DuplicateCompute { node }) if node == one));
    assert_eq!(pool.mailbox_of(one, 0), Some(mailbox(1, pool)), "the first stays");
    let beyond = register(ComputeIndex::new(4), vec![mailbox(4, pool)]);
    assert!(matches!(beyond, Err(PoolError::UnknownCompute { limit: 4, .. })));
    leave(first).unwrap();
    assert!(matches!(leave(first), Err(PoolError::NotRegistered { .. })));
    let unknown = leave((ComputeIndex::new(4), 1));
    assert!(matches!(unknown, Err(PoolError::UnknownCompute { .. })));
    register(one, vec![mailbox(2, pool)]).unwrap();
    assert_eq!(pool.mailbox_of(one, 1), Some(mailbox(2, pool)));
}

#[test]
fn a_second_pool_on_the_same_fabric_is_a_typed_error() {
    let (fabric, _pool) = pool();
    let second = EmbeddedPool::start(&fabric, CONFIG).map(drop);
    assert!(matches!(second, Err(PoolError::MemoryNode { node: 0, .. })), "{second:?}");
}

#[test]
fn memory_is_populated_node_by_node_until_that_is_broken_off() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let until = |most: u64| {
        let told = Arc::clone(&told);
        PopulationWatcher::new(move |done, of| {
            told.lock().push((done, of));
            if done < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
    };
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let pool = EmbeddedPool::start_populated(&fabric, CONFIG, &until(u64::MAX)).unwrap();
    let region = pool.memory_nodes()[0].region().len() as u64;
    assert_eq!(*told.lock(), [(0, region), (region, region), (0, region), (region, region)]);
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let broken_off = EmbeddedPool::start_populated(&fabric, CONFIG, &until(0)).map(drop);
    let is_interrupted = matches!(
        broken_off,
        Err(PoolError::MemoryNode { node: 0, source: FabricError::Interrupted })
    );
    assert!(is_interrupted, "{broken_off:?}");
}
