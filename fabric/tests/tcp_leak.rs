//! Connections over the `tcp` fabric leave neither threads nor descriptors behind. By itself in a
//! process, since it counts what the whole process has.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

use std::time::{Duration, Instant};

use selkie_fabric::tcp::{TcpConfig, TcpFabric};
use selkie_fabric::{Fabric, FabricError, PeerId, RealRuntime, RemoteAddr, Verb};

const PATIENCE: Duration = Duration::from_secs(20);
const MEMORY: PeerId = PeerId::memory(0);

/// Descriptors and threads of this process.
fn held() -> (usize, usize) {
    let count = |path| std::fs::read_dir(path).unwrap().count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}

/// Waits until no more is held than `before`: threads end soon, but not at once.
fn assert_back_to(before: (usize, usize), what: &str) {
    let started = Instant::now();
    while held() > before || held().1 > before.1 {
        assert!(started.elapsed() < PATIENCE, "{what}: {:?} held, {before:?} before", held());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn connections_and_nodes_leave_nothing_behind() {
    let runtime = RealRuntime::new(2).unwrap();
    let start = |id| {
        let fabric = TcpFabric::new(TcpConfig::new(1), runtime.env());
        let endpoint = fabric.join(id).unwrap();
        (fabric, endpoint)
    };
    let without_nodes = held();
    let (memory_fabric, memory) = start(MEMORY);
    let region = memory.register(4096).unwrap();
    let at = RemoteAddr::new(region.key(), 0);
    let (fabric, node) = start(PeerId::compute(0));
    fabric.introduce(MEMORY, memory_fabric.listen_addr(MEMORY).unwrap(), None);

    let before = held();
    for round in 0..50 {
        let queue_pair = node.connect(MEMORY).unwrap();
        if round % 2 == 0 {
            runtime.block_on(queue_pair.post(Verb::fetch_and_add(at, 1).into())).unwrap();
        } else {
            drop(queue_pair.post(Verb::fetch_and_add(at, 1).into()));
        }
    }
    assert_back_to(before, "queue pairs");
    assert_eq!(region.load(0), 50);

    for _ in 0..50 {
        let (fabric, node) = start(PeerId::compute(1));
        fabric.introduce(MEMORY, memory_fabric.listen_addr(MEMORY).unwrap(), None);
        let queue_pair = node.connect(MEMORY).unwrap();
        runtime.block_on(queue_pair.post(Verb::fetch_and_add(at, 1).into())).unwrap();
        drop((node, fabric, queue_pair));
    }
    assert_back_to(before, "nodes that connected");

    let queue_pair = node.connect(MEMORY).unwrap();
    runtime.block_on(queue_pair.post(Verb::fetch_and_add(at, 1).into())).unwrap();
    memory_fabric.kill(MEMORY);
    let after = runtime.block_on(queue_pair.post(Verb::fetch_and_add(at, 1).into()));
    let error = after.err().map(|error| error.error);
    assert_eq!(error, Some(FabricError::PeerDead { peer: MEMORY }));
    drop((queue_pair, memory, node, fabric, memory_fabric));
    assert_back_to(without_nodes, "everything");
}
