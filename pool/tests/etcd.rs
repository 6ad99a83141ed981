//! What the control plane in etcd promises beyond what all planes do: see `control.rs`.
#![cfg(feature = "etcd")]
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

mod etcd_server;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etcd_client::Client;
use selkie_channels::MailboxDescriptor;
use selkie_fabric::{Fabric, MemFabric, PeerId, RealRuntime, RegionKey};
use selkie_memnode::MemoryServer;
use selkie_pool::control::{
    Beat, ControlError, ControlPlane, EtcdPlane, Identity, PoolState, Timing,
};
use selkie_pool::{Coding, ComputeIndex, Pool, PoolConfig, PoolError};

use etcd_server::{Place, Server, ask};

const CONFIG: PoolConfig = PoolConfig {
    memory_nodes: 1,
    bytes_per_node: 2 << 20,
    gcl_bytes: 512,
    range_bytes: 1 << 19,
    max_compute_nodes: 4,
    coding: Coding::PLAIN,
    log_bytes: 0,
};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RealRuntime::new(1).unwrap().block_on(future)
}

async fn create(plane: &dyn ControlPlane, config: &PoolConfig, id: u64) -> Result<(), PoolError> {
    let identity = Identity { name: "test", id, fabric: "mem" };
    selkie_pool::create(plane, identity, config, Timing::default()).await
}

fn beat(node: u16, seen: u64) -> Beat {
    Beat { node: PeerId::compute(node), host: 5, seen, report: format!("{{\"seen\":{seen}}}") }
}

fn beat_and_look(plane: &EtcdPlane, nodes: &[u16]) -> Vec<(u16, Duration)> {
    block_on(async {
        for node in nodes {
            plane.beat(beat(*node, 1)).await.unwrap();
        }
        let mut beats: Vec<_> = plane
            .beats()
            .await
            .unwrap()
            .iter()
            .map(|(beat, age)| (beat.node.index(), *age))
            .collect();
        beats.sort_unstable();
        beats
    })
}

#[test]
fn values_that_are_damaged_or_of_another_format_are_refused_and_kept() {
    let place = Place::new();
    block_on(create(&place.plane(), &CONFIG, 1)).unwrap();
    let put = |key: &str, value: &str| {
        let (key, value) = (place.key(key), value.to_owned());
        ask(&place.endpoints, async |mut client| client.put(key, value, None).await).unwrap();
    };
    let stored = || {
        let key = place.key("state");
        let found = ask(&place.endpoints, async |mut client| client.get(key, None).await).unwrap();
        found.kvs()[0].value_str().unwrap().to_owned()
    };
    let good = stored();
    let state = PoolState::clone(&block_on(place.plane().load()).unwrap().state);
    let other = good.replace(&format!("\"format\":{}", state.format), "\"format\":99");
    assert_ne!(other, good);
    for bad in [&good[..good.len() / 2], "", "{}", &other] {
        let plane = place.plane();
        let first = block_on(plane.load()).unwrap().version;
        put("state", bad);
        let refused = |error: ControlError| {
            assert!(matches!(error, ControlError::Damaged { .. }), "{bad}: {error}");
            assert!(error.to_string().contains(&place.key("state")), "{error}");
            assert!(error.to_string().contains(&place.endpoints[0]), "{error}");
        };
        refused(block_on(plane.load()).unwrap_err());
        refused(block_on(plane.replace(first, state.clone())).unwrap_err());
        refused(block_on(plane.create(state.clone())).unwrap_err());
        assert_eq!(stored(), bad, "damage is not written over");
        put("state", &good);
    }
    put("beats/cn3", "{}");
    let plane = place.plane();
    // Bound to no lease, as no plane writes it.
    let beats = block_on(plane.beats());
    assert!(beats.as_ref().is_ok_and(Vec::is_empty), "{beats:?}");
    block_on(plane.beat(beat(2, 1))).unwrap();
    let lease = |key: String| {
        let read = async |mut client: Client| client.get(key, None).await;
        ask(&place.endpoints, read).unwrap().kvs()[0].lease()
    };
    let options = etcd_client::PutOptions::new().with_lease(lease(place.key("beats/cn2")));
    let damage = async |mut client: Client| {
        client.put(place.key("beats/cn2"), "{\"node\":", Some(options)).await
    };
    ask(&place.endpoints, damage).unwrap();
    // It made all of them unreadable: no node could be told from a dead one.
    block_on(plane.beat(beat(1, 1))).unwrap();
    let beats = block_on(plane.beats()).unwrap();
    assert_eq!(beats.iter().map(|(beat, _)| beat.node.index()).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_pool_that_is_not_there_is_not_made_by_replacing_it() {
    let place = Place::new();
    let other = Place::new();
    let plane = place.plane();
    block_on(create(&other.plane(), &CONFIG, 2)).unwrap();
    let found = block_on(other.plane().load()).unwrap();
    for version in [0, 1, found.version, u64::MAX] {
        let replaced = block_on(plane.replace(version, PoolState::clone(&found.state)));
        assert!(matches!(replaced, Err(ControlError::NoPool { .. })), "{version}: {replaced:?}");
    }
    assert!(matches!(block_on(plane.load()), Err(ControlError::NoPool { .. })));
}

#[test]
fn a_state_is_read_again_only_when_it_has_changed() {
    let place = Place::new();
    let (here, there) = (place.plane(), place.plane());
    block_on(async {
        create(&here, &CONFIG, 1).await.unwrap();
        let (first, again) = (there.load().await.unwrap(), there.load().await.unwrap());
        assert!(Arc::ptr_eq(&first.state, &again.state), "not sent twice");
        let changed = PoolState { next_index: 2, ..PoolState::clone(&first.state) };
        let version = here.replace(first.version, changed).await.unwrap().unwrap();
        let now = there.load().await.unwrap();
        assert_eq!((now.version, now.state.next_index), (version, 2));
    });
    let key = place.key("state");
    ask(&place.endpoints, async |mut client| client.delete(key, None).await).unwrap();
    let gone = block_on(there.load());
    assert!(matches!(gone, Err(ControlError::NoPool { .. })), "what is known does not stand in");
}

#[test]
fn a_beat_grows_old_until_the_next_one_and_goes_with_its_lease() {
    let place = Place::new();
    let plane = place.plane();
    assert!(beat_and_look(&plane, &[1, 2]).iter().all(|(_, age)| *age < Duration::from_secs(2)));
    sleep(Duration::from_millis(3200));
    let beats = beat_and_look(&plane, &[2]);
    let [(1, old), (2, young)] = beats[..] else { panic!("{beats:?}") };
    assert!(old >= Duration::from_secs(3) && young < old, "{beats:?}");
    let started = Instant::now();
    // Another process sees the same.
    let other = place.plane();
    while beat_and_look(&other, &[]).len() > 1 {
        beat_once(&plane, 2);
        assert!(started.elapsed() < Duration::from_secs(30), "node 1 is never gone");
        sleep(Duration::from_millis(100));
    }
    assert_eq!(beat_and_look(&other, &[])[0].0, 2);
    // Its plane notices that the lease is gone.
    assert_eq!(beat_and_look(&plane, &[1]).len(), 2);
}

fn beat_once(plane: &EtcdPlane, node: u16) {
    block_on(plane.beat(beat(node, 1))).unwrap();
}

#[test]
fn beats_that_say_nothing_new_write_nothing() {
    // Alone, because others' writes count too.
    let server = Arc::new(Server::start());
    let place = Place::of(vec![server.endpoint()], Some(server));
    let revision = || {
        let read = async |mut client: Client| client.get("x", None).await;
        ask(&place.endpoints, read).unwrap().header().unwrap().revision()
    };
    let plane = place.plane();
    beat_once(&plane, 1);
    let first = revision();
    (0..5).for_each(|_| beat_once(&plane, 1));
    assert_eq!(revision(), first);
    block_on(plane.beat(beat(1, 2))).unwrap();
    assert_eq!(revision(), first + 1);
    assert_eq!(block_on(plane.beats()).unwrap()[0].0, beat(1, 2));
}

#[test]
fn beats_are_kept_for_longer_than_the_pool_waits_for_the_silent() {
    let place = Place::new();
    let plane = place.plane();
    let timing = Timing { lease: Duration::from_secs(20), ..Timing::default() };
    block_on(async {
        let identity = Identity { name: "test", id: 1, fabric: "mem" };
        selkie_pool::create(&plane, identity, &CONFIG, timing).await.unwrap();
        plane.load().await.unwrap();
    });
    beat_once(&plane, 1);
    let kept = async |mut client: Client| {
        let found = client.get(place.key("beats/cn1"), None).await?;
        let lease = found.kvs()[0].lease();
        Ok(client.lease_time_to_live(lease, None).await?.granted_ttl())
    };
    assert!(ask(&place.endpoints, kept).unwrap() > 40);
}

#[test]
fn a_plane_may_be_dropped_inside_a_task() {
    let place = Place::new();
    block_on(async {
        let plane = place.plane();
        assert!(matches!(plane.load().await, Err(ControlError::NoPool { .. })));
        drop(plane);
    });
}

/// Every call ends in time, and says which endpoint did not answer.
fn is_away(plane: &EtcdPlane, state: &PoolState, endpoint: &str) {
    let started = Instant::now();
    let check = |call: &str, error: ControlError| {
        let took = started.elapsed();
        assert!(took < Duration::from_secs(6), "{call}: {took:?}");
        assert!(matches!(error, ControlError::Unavailable { .. }), "{call}: {error}");
        assert!(error.is_retryable() && error.to_string().contains(endpoint), "{call}: {error}");
    };
    std::thread::scope(|calls| {
        calls.spawn(|| check("load", block_on(plane.load()).unwrap_err()));
        calls.spawn(|| check("create", block_on(plane.create(state.clone())).unwrap_err()));
        calls.spawn(|| check("replace", block_on(plane.replace(1, state.clone())).unwrap_err()));
        calls.spawn(|| check("beat", block_on(plane.beat(beat(1, 1))).unwrap_err()));
        calls.spawn(|| check("beats", block_on(plane.beats()).unwrap_err()));
    });
}

#[test]
fn a_pool_goes_on_with_what_is_known_while_etcd_is_away_and_with_etcd_afterwards() {
    let mut server = Server::start();
    let endpoint = server.endpoint();
    let place = Place::of(vec![endpoint.clone()], None);
    let plane = Arc::new(place.plane());
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    let one = ComputeIndex::new(1);
    let (peer, region) = (PeerId::compute(1), RegionKey::from_raw(3));
    let mailbox = MailboxDescriptor { peer, region, ring_bytes: 1 << 16, peers: 4 };
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let (pool, state, _memory) = runtime.block_on(async {
        create(&*plane, &CONFIG, 1).await.unwrap();
        let shared = || Arc::clone(&plane) as Arc<dyn ControlPlane>;
        let memory = MemoryServer::join(&fabric, shared(), &env, 9, 2 << 20).await.unwrap();
        let pool = Pool::open(Arc::clone(&fabric), shared(), 5).await.unwrap();
        pool.register_compute(&env, one, vec![mailbox.clone()]).await.unwrap();
        pool.follow(&env);
        let state = PoolState::clone(&plane.load().await.unwrap().state);
        (pool, state, memory)
    });
    let known = || {
        assert_eq!(pool.members(), [one]);
        assert_eq!(pool.mailbox_of(one, 0), Some(mailbox.clone()));
        assert_eq!(pool.descriptor().memory_nodes.len(), 1);
    };

    server.stop();
    is_away(&plane, &state, &endpoint);
    known();
    server.resume();
    assert!(runtime.block_on(plane.load()).is_ok(), "it was only slow");

    server.kill();
    is_away(&plane, &state, &endpoint);
    is_away(&place.plane(), &state, &endpoint);
    known();
    let joined = runtime.block_on(pool.next_index());
    assert!(joined.is_err_and(|error| error.is_retryable()), "no change without agreement");

    server.restart();
    let given = [(); 2].map(|()| runtime.block_on(pool.next_index()).unwrap());
    assert_eq!(given, [0, 2].map(ComputeIndex::new), "what etcd kept is there: 1 is taken");
    let hosts = runtime.block_on(async {
        // The process is followed again without being told.
        env.sleep(Duration::from_secs(4)).await;
        plane.beats().await.unwrap()
    });
    assert!(hosts.iter().any(
        |(beat, age)| beat.node == PeerId::compute(one.get()) && *age < Duration::from_secs(3)
    ));
}

/// Stands between a plane and its etcd, and loses answers, or holds them back, while it is told to.
struct Gap {
    endpoint: String,
    loses: Arc<AtomicBool>,
    holds: Arc<AtomicBool>,
}

impl Gap {
    fn before(endpoint: &str) -> Gap {
        let server = endpoint.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let [loses, holds] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let told = [&loses, &holds].map(Arc::clone);
        // The threads end with the process, or with their connection.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, told) = (client.unwrap(), told.clone());
                let Ok(server) = TcpStream::connect(&server) else { continue };
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::thread::spawn(move || answer(server, client, &told));
            }
        });
        Gap { endpoint, loses, holds }
    }
}

fn answer(mut server: TcpStream, mut client: TcpStream, [loses, holds]: &[Arc<AtomicBool>; 2]) {
    let mut bytes = [0; 4096];
    let mut lost = false;
    while let Ok(read @ 1..) = server.read(&mut bytes) {
        while holds.load(Ordering::SeqCst) {
            sleep(Duration::from_millis(1));
        }
        lost |= loses.load(Ordering::SeqCst);
        if !lost && client.write_all(bytes.get(..read).unwrap()).is_err() {
            break;
        }
        if lost {
            // What comes after a hole makes no sense.
            while loses.load(Ordering::SeqCst) {
                sleep(Duration::from_millis(1));
            }
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

#[test]
fn a_change_whose_answer_is_lost_is_made_once_or_told_to_be_unknown() {
    let place = Place::new();
    let direct = place.plane();
    let gap = Gap::before(&place.endpoints[0]);
    let plane = Arc::new(EtcdPlane::at(&[&gap.endpoint], &place.pool).unwrap());
    block_on(create(&direct, &CONFIG, 1)).unwrap();
    // Whether others change the state before the answer is asked for again, and whether the first
    // one is lost or late.
    for (others, late) in [(false, false), (true, false), (false, true), (true, true)] {
        let first = block_on(plane.load()).unwrap();
        let changed = PoolState { next_index: 2, ..PoolState::clone(&first.state) };
        let obstacle = if late { &gap.holds } else { &gap.loses };
        obstacle.store(true, Ordering::SeqCst);
        let call = std::thread::spawn({
            let (plane, changed) = (Arc::clone(&plane), changed.clone());
            move || block_on(plane.replace(first.version, changed))
        });
        let made = loop {
            let now = block_on(direct.load()).unwrap();
            if now.version > first.version {
                break now;
            }
            sleep(Duration::from_millis(1));
        };
        if others {
            let state = PoolState { next_index: 3, ..changed };
            assert!(block_on(direct.replace(made.version, state)).unwrap().is_some());
        }
        if late {
            // Longer than one attempt waits.
            sleep(Duration::from_millis(1400));
        }
        obstacle.store(false, Ordering::SeqCst);
        match (others, call.join().unwrap()) {
            (false, Ok(version)) => assert_eq!(version, Some(made.version)),
            (true, Err(ControlError::Unavailable { .. })) => {}
            (_, answer) => panic!("others {others}, late {late}: {answer:?}"),
        }
    }
}

#[test]
fn an_endpoint_that_is_away_is_passed_over() {
    let place = Place::new();
    let away =
        format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap());
    let endpoints = [&[away][..], &place.endpoints].concat();
    let plane = EtcdPlane::at(&endpoints, &place.pool).unwrap();
    block_on(async {
        create(&plane, &CONFIG, 1).await.unwrap();
        for next_index in 1..30 {
            let now = plane.load().await.unwrap();
            let state = PoolState { next_index, ..PoolState::clone(&now.state) };
            assert!(plane.replace(now.version, state.clone()).await.unwrap().is_some());
            let late = plane.replace(now.version, state).await;
            assert_eq!(late, Ok(None), "what was never sent was not made");
            plane.beat(beat(1, now.version)).await.unwrap();
            assert_eq!(plane.beats().await.unwrap()[0].0, beat(1, now.version));
        }
    });
}
