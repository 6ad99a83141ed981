//! A memory node that joins a pool of several processes.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Fabric, FabricError, RealRuntime};
use selkie_memnode::{Capacity, MemoryServer, PopulationWatcher};
use selkie_pool::control::{ControlPlane, FilePlane, Identity, Timing};
use selkie_pool::{Coding, PoolConfig, PoolError};

const BYTES: u64 = 512 << 20;
const CONFIG: PoolConfig = PoolConfig {
    memory_nodes: 1,
    bytes_per_node: BYTES,
    gcl_bytes: 512,
    range_bytes: 1 << 19,
    max_compute_nodes: 4,
    coding: Coding::PLAIN,
    log_bytes: 0,
};

#[test]
fn population_is_broken_off_when_the_pool_is_destroyed() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("pool");
    let runtime = RealRuntime::new(1).unwrap();
    let timing = Timing { heartbeat: Duration::from_millis(10), ..Timing::default() };
    let plane: Arc<dyn ControlPlane> = Arc::new(FilePlane::at(&directory));
    let identity = Identity { name: "test", id: 7, fabric: "mem" };
    runtime.block_on(selkie_pool::create(&*plane, identity, &CONFIG, timing)).unwrap();

    let told = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&told);
    let watcher = PopulationWatcher::new(move |done, of| {
        seen.lock().unwrap().push((done, of));
        // By another process.
        let _ = std::fs::remove_dir_all(&directory);
        std::thread::sleep(2 * timing.heartbeat);
        ControlFlow::Continue(())
    });
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let offer = Capacity { watcher, ..Capacity::from(BYTES) };
    let env = runtime.env();
    let joined = runtime.block_on(MemoryServer::join(&fabric, plane, &env, 1, offer)).err();
    let is_interrupted =
        matches!(&joined, Some(PoolError::MemoryNode { source: FabricError::Interrupted, .. }));
    assert!(is_interrupted, "{joined:?}");
    let told = told.lock().unwrap();
    assert!(told.len() == 1 && told.iter().all(|(done, of)| *done == 0 && *of > 0), "{told:?}");
}
