//! Memory nodes that look after the memory of their hosts.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, RealRuntime};
use selkie_memnode::{Capacity, EmbeddedPool, MemoryServer, monitor::MonitorConfig};
use selkie_pool::control::{ControlPlane, Identity, LocalPlane, Timing};
use selkie_pool::{Pool, PoolConfig, Reclaim, create};

const PATIENCE: Duration = Duration::from_secs(20);

fn config(coding: &str) -> PoolConfig {
    PoolConfig {
        memory_nodes: 3,
        bytes_per_node: 4 << 20,
        gcl_bytes: 512,
        range_bytes: 1 << 18,
        max_compute_nodes: 2,
        coding: coding.parse().unwrap(),
        log_bytes: 0,
    }
}

/// A host with so much free memory; `u64::MAX` cannot be read.
#[derive(Clone, Default)]
struct Host(Arc<AtomicU64>);

impl Host {
    fn has(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
    }

    fn watched(&self, headroom: u64) -> MonitorConfig {
        let free = Arc::clone(&self.0);
        let source = move || match free.load(Ordering::Relaxed) {
            u64::MAX => Err(io::ErrorKind::NotFound.into()),
            bytes => Ok(bytes),
        };
        let config = MonitorConfig::new(headroom, source);
        MonitorConfig { every: Duration::from_millis(5), ..config }
    }
}

fn until(what: &str, pool: &Pool, is_so: impl Fn(&Reclaim) -> bool) {
    let started = Instant::now();
    loop {
        let reclaim = pool.state().reclaim_of(0).unwrap().clone();
        if is_so(&reclaim) {
            return;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: {reclaim:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn free_slabs_are_given_back_and_lent_again_and_slabs_in_use_wait_to_be_moved() {
    const GIB: u64 = 1 << 30;
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let runtime = RealRuntime::new(1).unwrap();
    let memory = EmbeddedPool::start(&fabric, config("2+1")).unwrap();
    let pool = memory.pool();
    let slabs = pool.descriptor().memory_nodes.first().unwrap().ranges;
    // One range, which node 0 has a slab of.
    runtime.block_on(pool.ensure_range(&runtime.env())).unwrap();
    let used = pool.state().ranges.first().unwrap().slabs.first().copied().unwrap();
    assert_eq!((used.node, used.slab), (0, 0));
    let region = std::sync::Arc::clone(memory.memory_nodes()[0].region());
    let at = pool.descriptor().geometry().slab_offset(0) as usize;
    region.store(at + 4096, 7);

    let host = Host::default();
    host.has(u64::MAX);
    memory.start_monitor(0, &runtime.env(), host.watched(GIB));
    std::thread::sleep(Duration::from_millis(50));
    until("what cannot be read changes nothing", pool, |own| own.withdrawn.is_empty());
    host.has(0);
    until("all is taken back", pool, |own| {
        own.evicting.contains(0) && own.withdrawn.len() as u32 == slabs - 1
    });
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(region.load(at + 4096), 7, "no node has moved it");
    assert_eq!(pool.state().most_ranges(), 1);
    host.has(GIB);
    std::thread::sleep(Duration::from_millis(50));
    until("there is no margin", pool, |own| !own.evicting.is_empty());
    host.has(2 * GIB);
    until("all slabs are available again", pool, |own| {
        own.evicting.is_empty() && own.withdrawn.is_empty()
    });
    assert!(pool.state().most_ranges() > 1);
}

#[test]
fn a_pool_whose_pages_cannot_move_has_no_place_for_a_node_that_gives_memory_back() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let runtime = RealRuntime::new(1).unwrap();
    let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
    let identity = Identity { name: "test", id: 1, fabric: "mem" };
    let (env, config) = (runtime.env(), config("plain"));
    runtime.block_on(create(&*plane, identity, &config, Timing::default())).unwrap();
    let offer = Capacity { headroom: Some(1 << 30), ..Capacity::from(4 << 20) };
    let joined = MemoryServer::join(&fabric, Arc::clone(&plane), &env, 1, offer);
    let error = runtime.block_on(joined).map(drop).unwrap_err().to_string();
    let why = "headroom = 1073741824 is not allowed: in a pool of coding plain pages lie where they are made";
    assert!(error.starts_with(why), "{error}");
    assert_eq!(runtime.block_on(plane.load()).unwrap().state.memory_nodes, vec![None; 3]);
}
