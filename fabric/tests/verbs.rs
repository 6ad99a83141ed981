//! The fabric on RDMA devices. On a host without a device the tests say so and pass; in the guest
//! of `tests/rdma-guest`, which has one of software, they have to run.

#![cfg(all(target_os = "linux", feature = "verbs"))]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod certificates;

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::conformance::{Report, Subject, run_all};
use selkie_fabric::tcp::{AccessKey, Admission, Invitation, TcpConfig};
use selkie_fabric::verbs::{DeviceChoice, VerbsConfig, VerbsError, VerbsFabric};
use selkie_fabric::{
    Access, Buf, Chain, Domain, Endpoint, Fabric, FabricError, PeerId, QueuePair, RealRuntime,
    RegionKey, RemoteAddr, Rights, Verb,
};

const MEMORY: PeerId = PeerId::memory(0);
const NODE: PeerId = PeerId::compute(0);
const THREADS: usize = 4;

/// Whether there is a device. Where one has to be, it is an error if there is none.
fn has_device() -> bool {
    let runtime = RealRuntime::new(1).unwrap();
    match VerbsFabric::open(VerbsConfig::new(TcpConfig::new(7)), runtime.env()) {
        Ok(_) => true,
        Err(error) => {
            assert!(std::env::var_os("SELKIE_RDMA").is_none(), "no device to test on: {error}");
            println!("skipped: {error}");
            false
        }
    }
}

fn open(runtime: &RealRuntime, adjust: impl FnOnce(&mut VerbsConfig)) -> Arc<VerbsFabric> {
    let mut config = VerbsConfig::new(TcpConfig::new(7));
    adjust(&mut config);
    VerbsFabric::open(config, runtime.env()).unwrap()
}

fn over_verbs(adjust: fn(&mut VerbsConfig)) -> Report {
    run_all(&|| {
        Subject::real(RealRuntime::new(THREADS).unwrap(), |env| {
            let mut config = VerbsConfig::new(TcpConfig::new(7));
            adjust(&mut config);
            let verbs = VerbsFabric::open(config, env.clone()).unwrap();
            let killer = Arc::clone(verbs.tcp());
            (verbs, Box::new(move |peer| killer.kill(peer)))
        })
    })
}

#[test]
fn conformance() {
    if has_device() {
        over_verbs(|_| {}).assert_passed();
    }
}

#[test]
fn conformance_among_those_who_have_met() {
    if has_device() {
        over_verbs(|config| {
            config.tcp.admission = Admission::ByCard;
            config.poll_for = Duration::ZERO;
        })
        .assert_passed();
    }
}

#[test]
fn conformance_with_sessions_that_are_secured() {
    if has_device() {
        over_verbs(|config| {
            config.tcp.security = Some(certificates::Authority::new("pool").node());
        })
        .assert_passed();
    }
}

/// Posts, and waits for the outcome.
fn post(runtime: &RealRuntime, queue_pair: &Arc<dyn QueuePair>, chain: impl Into<Chain>) -> Chain {
    runtime.block_on(queue_pair.post(chain.into())).unwrap()
}

#[test]
fn a_miss_costs_one_post_and_one_completion_and_nothing_at_the_memory_node() {
    if !has_device() {
        return;
    }
    let runtime = RealRuntime::new(2).unwrap();
    let fabric = open(&runtime, |_| {});
    let memory = fabric.join(MEMORY).unwrap();
    let region = memory.register(64 << 10).unwrap();
    let node = fabric.join(NODE).unwrap();
    let queue_pair = node.connect(MEMORY).unwrap();
    let at = |offset| RemoteAddr::new(region.key(), offset);
    let miss = || [Verb::fetch_and_add(at(0), 1), Verb::read(at(4096), Buf::zeroed(2048))];
    post(&runtime, &queue_pair, miss());
    let (before, served) = (fabric.counters(NODE), fabric.counters(MEMORY).served);
    for round in 0..20 {
        let chain = post(&runtime, &queue_pair, miss());
        assert_eq!(chain.old_value(0), round + 1);
    }
    let after = fabric.counters(NODE);
    assert_eq!(
        [
            after.posts - before.posts,
            after.completions - before.completions,
            after.requests - before.requests
        ],
        [20, 20, 40]
    );
    assert_eq!(fabric.counters(MEMORY).served, served, "the memory node ran something");
}

#[test]
fn long_payloads_and_chains_arrive_whole() {
    if !has_device() {
        return;
    }
    let runtime = RealRuntime::new(2).unwrap();
    let fabric = open(&runtime, |_| {});
    let memory = fabric.join(MEMORY).unwrap();
    // More than the staging room and than the queue of one queue pair.
    let bytes = 3 << 20;
    let region = memory.register(bytes).unwrap();
    let node = fabric.join(NODE).unwrap();
    let queue_pair = node.connect(MEMORY).unwrap();
    let at = |offset| RemoteAddr::new(region.key(), offset);
    let mut payload = Buf::zeroed(bytes - 8);
    payload.words_mut().iter_mut().zip(1..).for_each(|(word, value)| *word = value);
    let read = Verb::read(at(8), Buf::zeroed(bytes - 8));
    let chain = post(&runtime, &queue_pair, [Verb::write(at(8), payload), read]);
    let found = chain.buf(1).unwrap().words();
    let wrong = found.iter().zip(1..).position(|(word, value)| *word != value);
    assert_eq!(wrong, None);
    let mut chain = Chain::new();
    for index in 0..1000 {
        chain.push(Verb::write(at(8 * (index % 64)), Buf::copy_of(&[7; 120])));
        if index % 40 == 0 {
            chain.push(Verb::fetch_and_add(at(1 << 20), 1));
        }
    }
    chain.verbs.truncate(1024);
    post(&runtime, &queue_pair, chain);
    assert_eq!(region.load(1 << 20) - (1 << 17), 25);
}

/// A fabric of its own for each node, as in processes of their own.
struct Apart {
    runtime: RealRuntime,
    memory: Arc<VerbsFabric>,
    compute: Arc<VerbsFabric>,
    memory_node: Arc<dyn Endpoint>,
    node: Arc<dyn Endpoint>,
}

impl Apart {
    fn new() -> Self {
        Self::admitting(Admission::Anyone, None)
    }

    fn admitting(admission: Admission, key: Option<AccessKey>) -> Self {
        let runtime = RealRuntime::new(2).unwrap();
        let memory = open(&runtime, |config| config.tcp.admission = admission);
        let compute = open(&runtime, |_| {});
        let memory_node = memory.join(MEMORY).unwrap();
        let node = compute.join(NODE).unwrap();
        compute.tcp().introduce(MEMORY, memory.tcp().listen_addr(MEMORY).unwrap(), key);
        Self { runtime, memory, compute, memory_node, node }
    }
}

#[test]
fn a_fenced_node_of_another_process_writes_nothing_more() {
    if !has_device() {
        return;
    }
    let apart = Apart::new();
    let region = apart.memory_node.register(4096).unwrap();
    let queue_pair = apart.node.connect(MEMORY).unwrap();
    let at = RemoteAddr::new(region.key(), 0);
    post(&apart.runtime, &queue_pair, Verb::fetch_and_add(at, 1));
    assert_eq!(apart.memory.queue_pairs(MEMORY), (0, 1));
    let _reach = apart.memory.fence(NODE).unwrap();
    assert_eq!(apart.memory.queue_pairs(MEMORY), (0, 0), "its queue pair is gone");
    for _ in 0..3 {
        let posted = apart.runtime.block_on(queue_pair.post(Verb::fetch_and_add(at, 1).into()));
        let error = posted.map_err(|error| error.error).err();
        assert_eq!(error, Some(FabricError::PeerDead { peer: MEMORY }));
    }
    assert_eq!(region.load(0), 1);
    let again = apart.node.connect(MEMORY).unwrap();
    let refused = apart.runtime.block_on(again.post(Verb::fetch_and_add(at, 1).into()));
    let refused = refused.map_err(|error| error.error).err();
    assert!(matches!(refused, Some(FabricError::Refused { .. })), "{refused:?}");
    assert_eq!(region.load(0), 1);
}

#[test]
fn a_guest_does_what_its_domain_allows_and_nothing_else() {
    if !has_device() {
        return;
    }
    let key = AccessKey::random().unwrap();
    let apart = Apart::admitting(Admission::Invited, Some(key));
    let region = apart.memory_node.register(8192).unwrap();
    let domain = Domain::new([(0..8192, Rights::READ), (64..128, Rights::ATOMIC)]).unwrap();
    apart.memory.tcp().invite(MEMORY, NODE, Invitation::new(key).within(domain)).unwrap();
    let queue_pair = apart.node.connect(MEMORY).unwrap();
    let at = |offset| RemoteAddr::new(region.key(), offset);
    let add = Verb::fetch_and_add(at(120), 3);
    let chain = post(&apart.runtime, &queue_pair, [add, Verb::read(at(0), Buf::zeroed(8192))]);
    assert_eq!(chain.buf(1).unwrap().words()[15], 3, "over three windows");
    for (bad, offset, what) in [
        (Verb::write(at(64), Buf::zeroed(8)), 64, Access::Write),
        (Verb::fetch_and_add(at(128), 1), 128, Access::Atomic),
    ] {
        let chain = Chain::from([Verb::fetch_and_add(at(64), 1), bad]);
        let error = apart.runtime.block_on(queue_pair.post(chain)).unwrap_err();
        let region = region.key();
        let expected = FabricError::Forbidden { peer: MEMORY, region, offset, what };
        assert_eq!((error.executed, error.error), (1, expected));
    }
    assert_eq!([region.load(64), region.load(128)], [2, 0]);
}

#[test]
fn queue_pairs_go_with_their_handles() {
    if !has_device() {
        return;
    }
    let apart = Apart::new();
    let region = apart.memory_node.register(4096).unwrap();
    let at = RemoteAddr::new(region.key(), 0);
    for round in 0..5 {
        let queue_pair = apart.node.connect(MEMORY).unwrap();
        let chain = post(&apart.runtime, &queue_pair, Verb::fetch_and_add(at, 1));
        assert_eq!(chain.old_value(0), round);
        drop(queue_pair.post(Verb::fetch_and_add(at, 0).into()));
    }
    let gone = || apart.compute.queue_pairs(NODE) == (0, 0);
    wait_until("the node's queue pairs are gone", gone);
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("10 s have passed, and not: {what}");
}

#[test]
fn devices_ports_and_addresses_that_are_not_there_are_refused_with_what_is() {
    if !has_device() {
        return;
    }
    let runtime = RealRuntime::new(1).unwrap();
    let refused = |device: DeviceChoice| {
        let config = VerbsConfig { device, ..VerbsConfig::new(TcpConfig::new(7)) };
        VerbsFabric::open(config, runtime.env()).err().unwrap()
    };
    let unknown = refused(DeviceChoice { device: Some("mlx9".into()), ..DeviceChoice::default() });
    assert!(matches!(&unknown, VerbsError::UnknownDevice { found, .. } if !found.is_empty()));
    let port = refused(DeviceChoice { port: Some(9), ..DeviceChoice::default() });
    assert!(matches!(port, VerbsError::UnknownPort { port: 9, .. }), "{port}");
    let gid = refused(DeviceChoice { gid_index: Some(200), ..DeviceChoice::default() });
    assert!(matches!(gid, VerbsError::NoGid { index: Some(200), .. }), "{gid}");
}

/// Rounds of each of the four threads of the stress, and the operations of a round.
const ROUNDS: u64 = 5000;
const OPERATIONS: u64 = 5;
const PAGE: u64 = 4096;

/// One thread of the stress: counts, latches, writes and reads back. A round has five operations.
fn stress(runtime: &RealRuntime, queue_pair: &Arc<dyn QueuePair>, key: RegionKey, worker: u64) {
    let at = |offset| RemoteAddr::new(key, offset);
    let own = PAGE * (worker + 1);
    let mut swapped = 0;
    let mut expected = 0;
    for round in 0..ROUNDS {
        let mut payload = Buf::zeroed(512);
        payload.words_mut().fill(worker << 32 | round);
        let chain = [
            Verb::fetch_and_add(at(0), 1),
            Verb::compare_and_swap(at(8), expected, expected + 1),
            Verb::write(at(own), payload),
            Verb::fetch_and_add(at(own + 1024), worker + 1),
            Verb::read(at(own), Buf::zeroed(512)),
        ];
        let chain = post(runtime, queue_pair, chain);
        let old = chain.old_value(1);
        swapped += u64::from(old == expected);
        expected = if old == expected { old + 1 } else { old };
        assert_eq!(chain.old_value(3), round * (worker + 1));
        let read = chain.buf(4).unwrap().words();
        assert!(read.iter().all(|word| *word == worker << 32 | round), "{round}: {read:x?}");
    }
    post(runtime, queue_pair, Verb::fetch_and_add(at(16), swapped));
}

/// Two threads of the stress, each with a node of its own.
fn two_workers(fabric: &Arc<VerbsFabric>, key: RegionKey, first: u64) {
    std::thread::scope(|scope| {
        for worker in first..first + 2 {
            scope.spawn(move || {
                let runtime = RealRuntime::new(1).unwrap();
                let node = fabric.join(PeerId::compute(worker as u16)).unwrap();
                let queue_pair = node.connect(MEMORY).unwrap();
                stress(&runtime, &queue_pair, key, worker);
            });
        }
    });
}

#[test]
fn two_processes_and_four_threads_get_every_value_right() {
    if !has_device() {
        return;
    }
    let runtime = RealRuntime::new(2).unwrap();
    let fabric = open(&runtime, |_| {});
    let memory = fabric.join(MEMORY).unwrap();
    let region = memory.register(5 * PAGE as usize).unwrap();
    let addr = fabric.tcp().listen_addr(MEMORY).unwrap();
    let said = format!("{addr} {}", region.key().to_raw());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env("SELKIE_STRESS", said)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    two_workers(&fabric, region.key(), 0);
    assert!(child.wait().unwrap().success(), "the other process failed");
    assert_eq!(region.load(0), 4 * ROUNDS, "{} operations", 4 * ROUNDS * OPERATIONS);
    assert_eq!(region.load(8), region.load(16), "swaps, and who says that it swapped");
    for worker in 0..4 {
        let own = (PAGE * (worker + 1)) as usize;
        assert_eq!(region.load(own + 1024), ROUNDS * (worker + 1));
        assert_eq!(region.load(own), worker << 32 | (ROUNDS - 1));
    }
    assert_eq!(fabric.counters(MEMORY).served, 8, "a set-up and a look-up a queue pair, no more");
    assert_eq!(fabric.counters(MEMORY).failures, 0);
    // Sessions of processes that have gone are kept for a while.
    wait_until("no queue pair serves guests that have gone", || {
        fabric.queue_pairs(MEMORY) == (0, 0)
    });
}

#[test]
#[ignore = "the other process of the stress, which starts it"]
fn the_other_process() {
    let said = std::env::var("SELKIE_STRESS").unwrap();
    let (addr, key) = said.split_once(' ').unwrap();
    let (addr, key): (SocketAddr, u32) = (addr.parse().unwrap(), key.parse().unwrap());
    let runtime = RealRuntime::new(2).unwrap();
    let fabric = open(&runtime, |_| {});
    fabric.tcp().introduce(MEMORY, addr, None);
    two_workers(&fabric, RegionKey::from_raw(key), 2);
}
