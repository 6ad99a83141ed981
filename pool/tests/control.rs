//! Control planes, and pools of several processes that meet in one.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]
#![cfg(target_os = "linux")]

#[cfg(feature = "etcd")]
mod etcd_server;
mod relay_server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use selkie_channels::MailboxDescriptor;
use selkie_fabric::env::Env;
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{BoxFuture, Fabric, MemFabric, PeerId, RealRuntime, RegionKey};
use selkie_memnode::{Capacity, EmbeddedPool, MemoryServer};
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, Expectation, FilePlane, Identity, LocalPlane,
    PoolState, RemotePlane, Timing, Version, Versioned,
};
use selkie_pool::{Coding, ComputeIndex, Pool, PoolConfig, PoolError};
use tempfile::TempDir;

use relay_server::RelayServer;

const CONFIG: PoolConfig = PoolConfig {
    memory_nodes: 2,
    bytes_per_node: 2 << 20,
    gcl_bytes: 512,
    range_bytes: 1 << 19,
    max_compute_nodes: 4,
    coding: Coding::PLAIN,
    log_bytes: 0,
};

async fn create(plane: &dyn ControlPlane, config: &PoolConfig, id: u64) -> Result<(), PoolError> {
    let identity = Identity { name: "test", id, fabric: "mem" };
    selkie_pool::create(plane, identity, config, Timing::default()).await
}

async fn start_memory_node(
    fabric: &Arc<dyn Fabric>,
    plane: &Arc<dyn ControlPlane>,
    env: &Env,
    bytes: u64,
) -> Result<Arc<MemoryServer>, PoolError> {
    MemoryServer::join(fabric, Arc::clone(plane), env, 100, bytes).await
}

/// Runs `test` on an empty plane of each kind, and on one behind a relay to it.
fn on_every_plane(test: impl Fn(Arc<dyn ControlPlane>)) {
    let on_both = |empty: &dyn Fn() -> Arc<dyn ControlPlane>| {
        test(empty());
        test(Arc::new(Relayed::to(empty())));
    };
    on_both(&|| Arc::new(LocalPlane::default()));
    let directory = TempDir::new().unwrap();
    let pools = std::cell::Cell::new(0);
    on_both(&|| {
        pools.set(pools.get() + 1);
        Arc::new(FilePlane::at(directory.path().join(format!("pool-{}", pools.get()))))
    });
    #[cfg(feature = "etcd")]
    for relayed in [false, true] {
        let place = etcd_server::Place::new();
        let plane: Arc<dyn ControlPlane> = Arc::new(place.plane());
        test(if relayed { Arc::new(Relayed::to(plane)) } else { plane });
    }
}

/// A plane behind a relay, but for the making of pools, which relays refuse.
struct Relayed {
    /// To the pool that was made last: a way to one is none to another of its name, once it is
    /// connected anew.
    remote: Mutex<Arc<RemotePlane>>,
    plane: Arc<dyn ControlPlane>,
    server: RelayServer,
}

impl Relayed {
    fn to(plane: Arc<dyn ControlPlane>) -> Self {
        let server = RelayServer::start(Arc::clone(&plane), "test");
        Self { remote: Mutex::new(way_to(&server)), plane, server }
    }

    fn remote(&self) -> Arc<RemotePlane> {
        Arc::clone(&self.remote.lock().unwrap())
    }
}

fn way_to(server: &RelayServer) -> Arc<RemotePlane> {
    Arc::new(RemotePlane::new(&[server.endpoint()], Expectation::default()).unwrap())
}

impl ControlPlane for Relayed {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { self.remote().load().await })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        *self.remote.lock().unwrap() = way_to(&self.server);
        self.plane.create(state)
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move { self.remote().replace_as(change, expected, state).await })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async { self.remote().beat(beat).await })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async { self.remote().beats().await })
    }

    fn pace(&self) -> Duration {
        self.remote().pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.destroy()
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RealRuntime::new(1).unwrap().block_on(future)
}

/// Runs `test` on an empty plane of each kind, where waiting takes no time.
fn on_every_plane_in_virtual_time(test: impl AsyncFn(Arc<dyn ControlPlane>, Env)) {
    on_every_plane(|plane| {
        let plane: Arc<dyn ControlPlane> = Arc::new(Prompt(plane));
        let world = World::new(WorldConfig::new(1));
        world.run(Duration::from_secs(3600), test(plane, world.env())).unwrap();
    });
}

/// A plane whose calls are done when they are polled first: virtual time does not wait for other
/// machines.
struct Prompt(Arc<dyn ControlPlane>);

impl ControlPlane for Prompt {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { block_on(self.0.load()) })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        Box::pin(async { block_on(self.0.create(state)) })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move { block_on(self.0.replace_as(change, expected, state)) })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move { block_on(self.0.beat(beat)) })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async { block_on(self.0.beats()) })
    }

    fn pace(&self) -> Duration {
        self.0.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async { block_on(self.0.destroy()) })
    }
}

#[test]
fn a_pool_is_made_once_and_replaced_by_who_has_seen_it() {
    on_every_plane(|plane| {
        block_on(async {
            assert!(matches!(plane.load().await, Err(ControlError::NoPool { .. })));
            create(&*plane, &CONFIG, 7).await.unwrap();
            let again = create(&*plane, &CONFIG, 8).await;
            let exists = ControlError::PoolExists { place: String::new() };
            assert!(matches!(&again, Err(PoolError::Control { source })
                if std::mem::discriminant(source) == std::mem::discriminant(&exists)));

            let first = plane.load().await.unwrap();
            assert_eq!((first.state.id, first.state.memory_nodes.len()), (7, 2));
            let changed = PoolState { next_index: 3, ..PoolState::clone(&first.state) };
            let second = plane.replace(first.version, changed.clone()).await.unwrap().unwrap();
            assert!(second > first.version);
            let late = PoolState { next_index: 9, ..PoolState::clone(&first.state) };
            assert_eq!(plane.replace(first.version, late).await.unwrap(), None);
            let now = plane.load().await.unwrap();
            assert_eq!((now.version, &*now.state), (second, &changed));
        });
    });
}

#[test]
fn a_change_that_is_asked_for_again_is_made_once_and_known_again() {
    on_every_plane(|plane| {
        block_on(async {
            create(&*plane, &CONFIG, 1).await.unwrap();
            let first = plane.load().await.unwrap();
            let changed = PoolState { next_index: 3, ..PoolState::clone(&first.state) };
            let [ours, theirs] = [Change::random(), Change::random()];
            let replace = |change, expected, state: &PoolState| {
                plane.replace_as(change, expected, state.clone())
            };
            let made = replace(ours, first.version, &changed).await.unwrap();
            assert!(made.is_some_and(|version| version > first.version));
            assert_eq!(replace(theirs, first.version, &changed).await.unwrap(), None);
            assert_eq!(replace(ours, first.version, &changed).await.unwrap(), made);
            assert_eq!(plane.load().await.unwrap().version, made.unwrap(), "made once");
            let later = replace(theirs, made.unwrap(), &first.state).await.unwrap();
            assert!(later > made);
            assert_eq!(replace(ours, first.version, &changed).await.unwrap(), None);
            let now = plane.load().await.unwrap();
            assert_eq!((Some(now.version), &now.state), (later, &first.state));
        });
    });
}

#[test]
fn a_pool_that_is_removed_is_not_there_and_may_be_made_again() {
    on_every_plane(|plane| {
        block_on(async {
            create(&*plane, &CONFIG, 7).await.unwrap();
            let node = PeerId::compute(0);
            let beat = Beat { node, host: 5, seen: 1, report: String::new() };
            plane.beat(beat.clone()).await.unwrap();
            let first = plane.load().await.unwrap();
            plane.destroy().await.unwrap();
            assert!(matches!(plane.load().await, Err(ControlError::NoPool { .. })));
            let late = plane.replace(first.version, PoolState::clone(&first.state)).await;
            assert!(late.is_err(), "{late:?}");
            plane.destroy().await.unwrap();
            create(&*plane, &CONFIG, 8).await.unwrap();
            assert!(plane.beats().await.unwrap().is_empty(), "of the other one");
        });
    });
}

#[test]
fn the_newest_beat_of_a_node_counts() {
    on_every_plane(|plane| {
        block_on(async {
            create(&*plane, &CONFIG, 1).await.unwrap();
            let beat = |node, seen| Beat {
                node: PeerId::compute(node),
                host: 5,
                seen,
                report: format!("{{\"seen\":{seen}}}"),
            };
            for (node, seen) in [(0, 1), (3, 1), (0, 2)] {
                plane.beat(beat(node, seen)).await.unwrap();
            }
            let mut beats = plane.beats().await.unwrap();
            beats.sort_by_key(|(beat, _)| beat.node);
            assert_eq!(
                beats.iter().map(|(beat, _)| beat.clone()).collect::<Vec<_>>(),
                [beat(0, 2), beat(3, 1)]
            );
            assert!(beats.iter().all(|(_, age)| *age < Duration::from_secs(60)));
        });
    });
}

#[test]
fn no_change_of_many_at_once_is_lost() {
    const CHANGES: u16 = 100;
    on_every_plane(|plane| {
        block_on(create(&*plane, &PoolConfig { max_compute_nodes: 58, ..CONFIG }, 1)).unwrap();
        let changer = |plane: Arc<dyn ControlPlane>| {
            std::thread::spawn(move || {
                block_on(async {
                    // What a plane did that answered too late is not known.
                    let (mut made, mut unknown) = (0, 0);
                    while made < CHANGES {
                        let now = plane.load().await.unwrap();
                        let next_index = now.state.next_index + 1;
                        let state = PoolState { next_index, ..PoolState::clone(&now.state) };
                        match plane.replace(now.version, state).await {
                            Ok(replaced) => made += u16::from(replaced.is_some()),
                            Err(ControlError::Unavailable { .. }) => unknown += 1,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    unknown
                })
            })
        };
        let changers: Vec<_> = (0..4).map(|_| changer(Arc::clone(&plane))).collect();
        let unknown: u16 = changers.into_iter().map(|changer| changer.join().unwrap()).sum();
        let changes = block_on(plane.load()).unwrap().state.next_index;
        assert!((4 * CHANGES..=4 * CHANGES + unknown).contains(&changes), "{changes}, {unknown}");
    });
}

#[test]
fn files_that_are_damaged_or_of_another_format_are_refused() {
    let directory = TempDir::new().unwrap();
    let plane = FilePlane::at(directory.path());
    block_on(create(&plane, &CONFIG, 1)).unwrap();
    let path = directory.path().join("state.json");
    let good = std::fs::read_to_string(&path).unwrap();
    // What a crash in the middle of a write leaves beside it does no harm.
    std::fs::write(directory.path().join("state.new-1"), &good[..9]).unwrap();
    assert!(block_on(plane.load()).is_ok());
    for bad in [&good[..good.len() / 2], "", "{}", &good.replace("\"format\":7", "\"format\":99")] {
        std::fs::write(&path, bad).unwrap();
        let error = block_on(plane.load()).unwrap_err();
        assert!(matches!(error, ControlError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("state.json"), "{error}");
        let replaced = block_on(plane.replace(1, serde_json_state(&good)));
        assert!(replaced.is_err(), "damage is not written over");
    }
}

/// The removal of a pool's directory ended in "directory not empty" when a node showed meanwhile
/// that it lives.
#[test]
fn a_pool_is_destroyed_while_its_nodes_show_that_they_live() {
    let directory = TempDir::new().unwrap();
    for pool in 0..100 {
        let path = directory.path().join(format!("pool-{pool}"));
        let plane = Arc::new(FilePlane::at(&path));
        block_on(create(&*plane, &CONFIG, 1)).unwrap();
        let nodes: Vec<_> = (0..2_u16)
            .map(|thread| {
                let plane = Arc::clone(&plane);
                std::thread::spawn(move || {
                    for number in 0..10_000_u64 {
                        let node = PeerId::compute((number % 20) as u16 * 2 + thread);
                        let beat = Beat { node, host: 1, seen: 1, report: String::new() };
                        if block_on(plane.beat(beat)).is_err() {
                            return;
                        }
                    }
                })
            })
            .collect();
        std::thread::sleep(Duration::from_micros(200));
        block_on(plane.destroy()).unwrap();
        assert!(!path.exists());
        nodes.into_iter().for_each(|node| node.join().unwrap());
    }
}

fn serde_json_state(text: &str) -> PoolState {
    let stored: serde_json::Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(stored.get("state").unwrap().clone()).unwrap()
}

#[test]
fn memory_nodes_of_several_processes_make_up_a_pool() {
    on_every_plane_in_virtual_time(async |plane, env| {
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let absent = start_memory_node(&fabric, &plane, &env, 2 << 20).await.map(drop);
        assert!(matches!(absent, Err(PoolError::Control { .. })), "{absent:?}");
        create(&*plane, &CONFIG, 1).await.unwrap();
        let one = start_memory_node(&fabric, &plane, &env, 2 << 20).await.unwrap();
        let open = Pool::open(Arc::clone(&fabric), Arc::clone(&plane), 5).await.map(drop);
        assert!(matches!(open, Err(PoolError::Incomplete { joined: 1, nodes: 2 })), "{open:?}");
        let small = start_memory_node(&fabric, &plane, &env, 4096).await.map(drop);
        assert!(matches!(small, Err(PoolError::Config { key: "bytes_per_node", .. })));
        let two = start_memory_node(&fabric, &plane, &env, 4 << 20).await.unwrap();
        let pool = Pool::open(Arc::clone(&fabric), Arc::clone(&plane), 5).await.unwrap();
        let nodes = [one.node().descriptor().clone(), two.node().descriptor().clone()];
        assert_eq!(pool.descriptor().memory_nodes, nodes);
        assert!(nodes[1].ranges > nodes[0].ranges, "each has its own capacity");
        let third = start_memory_node(&fabric, &plane, &env, 2 << 20).await.map(drop);
        assert!(matches!(third, Err(PoolError::MemoryNodeRefused { .. })), "{third:?}");
    });
}

/// Two processes' views of one pool.
async fn two_hosts(plane: &Arc<dyn ControlPlane>, env: &Env) -> (Arc<Pool>, Arc<Pool>) {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    create(&**plane, &CONFIG, 1).await.unwrap();
    for _ in 0..CONFIG.memory_nodes {
        start_memory_node(&fabric, plane, env, 2 << 20).await.unwrap();
    }
    let open = |host| Pool::open(Arc::clone(&fabric), Arc::clone(plane), host);
    (open(5).await.unwrap(), open(6).await.unwrap())
}

fn mailbox(node: u16) -> MailboxDescriptor {
    let (peer, region) = (PeerId::compute(node), RegionKey::from_raw(3));
    MailboxDescriptor { peer, region, ring_bytes: 1 << 16, peers: 4 }
}

#[test]
fn a_node_is_in_once_the_nodes_of_other_processes_know_it() {
    on_every_plane_in_virtual_time(async |plane, env| {
        let (here, there) = two_hosts(&plane, &env).await;
        let (one, two) = (ComputeIndex::new(1), ComputeIndex::new(2));
        here.register_compute(&env, one, vec![mailbox(1)]).await.unwrap();

        // No task follows the pool for the first process: its node learns of nothing.
        let before = env.now();
        let refused = there.register_compute(&env, two, vec![mailbox(2)]).await;
        assert!(
            matches!(refused, Err(PoolError::Unresponsive { node, .. }) if node == PeerId::compute(1))
        );
        assert!(env.now() - before > Duration::from_secs(5));
        assert_eq!(there.members(), [one], "it is not in");

        here.follow(&env);
        let second = there.register_compute(&env, two, vec![mailbox(2)]).await.unwrap();
        assert_eq!(here.mailbox_of(two, 1), Some(mailbox(2)), "known before it is in");
        assert_eq!(there.mailbox_of(one, 2), Some(mailbox(1)));
        let taken = there.register_compute(&env, one, vec![mailbox(1)]).await;
        assert!(matches!(taken, Err(PoolError::DuplicateCompute { node }) if node == one));

        there.leave(&env, two, second).await.unwrap();
        assert!(!here.is_member(two), "known before it has left");
        let again = there.leave(&env, two, second).await;
        assert!(matches!(again, Err(PoolError::NotRegistered { node }) if node == two));

        there.register_compute(&env, two, vec![mailbox(2)]).await.unwrap();
        let late = there.leave(&env, two, second).await;
        assert!(matches!(late, Err(PoolError::NotRegistered { node }) if node == two));
        assert_eq!(here.mailbox_of(two, 1), Some(mailbox(2)), "the next one stays");
    });
}

#[test]
fn indexes_are_given_out_in_turn_and_labels_are_set_by_who_has_seen_them() {
    on_every_plane_in_virtual_time(async |plane, env| {
        let (here, there) = two_hosts(&plane, &env).await;
        let mut given = Vec::new();
        for pool in [&here, &there, &here, &there] {
            given.push(pool.next_index().await.unwrap().get());
        }
        assert_eq!(given, [0, 1, 2, 3]);
        let index = ComputeIndex::new;
        for node in [0, 1] {
            here.register_compute(&env, index(node), vec![mailbox(node)]).await.unwrap();
        }
        assert_eq!(there.next_index().await.unwrap(), index(2), "others are free again");
        here.register_compute(&env, index(3), vec![mailbox(3)]).await.unwrap();
        here.declare_dead(index(1)).await.unwrap();
        assert_eq!(there.next_index().await.unwrap(), index(2));
        here.register_compute(&env, index(2), vec![mailbox(2)]).await.unwrap();
        let full = there.next_index().await;
        assert!(matches!(full, Err(PoolError::Full { limit: 4, lost: 1, dead: 0 })), "{full:?}");
        let recover = async |lost: &[u64]| {
            here.finish_recovery(index(1), index(0), lost, lost).await.unwrap();
            assert!(!here.lost().is_empty(), "no node has claimed the sweep yet");
            assert!(here.fence(index(1)).await.unwrap());
            for by in [0, 2, 3] {
                here.acknowledge(index(1), index(by)).await.unwrap();
            }
            assert!(here.claim_sweep(index(1), index(0)).await.unwrap());
            assert!(!here.claim_sweep(index(1), index(2)).await.unwrap());
            here.leave_sweep(index(1), index(0)).await.unwrap();
            assert!(here.claim_sweep(index(1), index(2)).await.unwrap());
            here.finish_recovery(index(1), index(0), lost, lost).await.unwrap();
            assert!(!here.lost().is_empty(), "it is another's sweep");
            here.finish_recovery(index(1), index(2), lost, lost).await.unwrap();
            assert!(here.lost().is_empty());
        };
        recover(&[]).await;
        assert_eq!(there.next_index().await.unwrap(), index(1), "nothing names it any more");
        let again = here.register_compute(&env, index(1), vec![mailbox(1)]).await.unwrap();
        assert_eq!(again, 2);
        assert!(here.is_incarnation(index(1), 2) && !here.is_incarnation(index(1), 1));
        here.declare_dead(index(1)).await.unwrap();
        recover(&[512]).await;
        let full = there.next_index().await;
        assert!(matches!(full, Err(PoolError::Full { limit: 4, lost: 0, dead: 1 })), "{full:?}");

        assert!(here.set_label("a", None, Some("1")).await.unwrap());
        assert!(!there.set_label("a", None, Some("2")).await.unwrap());
        assert!(there.set_label("a", Some("1"), Some("3")).await.unwrap());
        assert_eq!(there.label("a").as_deref(), Some("3"));
        assert_eq!(here.label("a").as_deref(), Some("1"), "seen when it looks");
        assert!(!here.set_label("a", Some("1"), None).await.unwrap());
        assert_eq!(here.label("a").as_deref(), Some("3"));
        assert!(here.set_label("a", Some("3"), None).await.unwrap());
        assert_eq!(here.label("a"), None);
    });
}

#[test]
fn a_node_that_only_recovers_comes_in_behind_the_limit_and_only_if_it_has_to() {
    on_every_plane_in_virtual_time(async |plane, env| {
        let (here, there) = two_hosts(&plane, &env).await;
        let index = ComputeIndex::new;
        let refused = there.spare_index(0).await;
        assert!(matches!(refused, Err(PoolError::UnknownCompute { limit: 4, .. })), "{refused:?}");
        for node in 0..4 {
            here.register_compute(&env, index(node), vec![mailbox(node)]).await.unwrap();
        }
        let refused = there.spare_index(0).await;
        assert!(matches!(refused, Err(PoolError::UnknownCompute { limit: 4, .. })), "{refused:?}");
        for node in 0..4 {
            here.declare_dead(index(node)).await.unwrap();
        }
        let spare = there.spare_index(54 + 3).await.unwrap();
        assert_eq!(spare, index(7), "one of 54");
        there.register_compute(&env, spare, vec![mailbox(7)]).await.unwrap();
        assert_eq!(there.spare_index(3).await.unwrap(), index(8), "others go on");
        there.declare_dead(spare).await.unwrap();
        let next = there.spare_index(3).await.unwrap();
        assert_eq!(next, index(8), "it is to be recovered from");
        let eighth = there.register_compute(&env, next, vec![mailbox(8)]).await.unwrap();
        there.leave(&env, next, eighth).await.unwrap();
        let again = there.leave(&env, next, eighth).await;
        assert!(matches!(again, Err(PoolError::UnknownCompute { .. })), "{again:?}");
        let now = plane.load().await.unwrap();
        let mut state = PoolState::clone(&now.state);
        let lost = state.lost[&0].clone();
        state.lost.extend((0..58).map(|node| (node, lost.clone())));
        plane.replace(now.version, state).await.unwrap().unwrap();
        let none = there.spare_index(3).await;
        assert!(matches!(none, Err(PoolError::NoSpareIndex { limit: 4 })), "{none:?}");
    });
}

#[test]
fn versions_grow() {
    on_every_plane(|plane| {
        block_on(async {
            create(&*plane, &CONFIG, 1).await.unwrap();
            let mut versions: Vec<Version> = Vec::new();
            for next_index in 1..5 {
                let now = plane.load().await.unwrap();
                let state = PoolState { next_index, ..PoolState::clone(&now.state) };
                versions.push(plane.replace(now.version, state).await.unwrap().unwrap());
            }
            assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{versions:?}");
        });
    });
}

#[test]
fn a_memory_node_is_refused_if_too_few_failure_domains_would_be_left() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let runtime = RealRuntime::new(1).unwrap();
    let env = runtime.env();
    let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
    let coding: Coding = "2+1".parse().unwrap();
    let config = PoolConfig { memory_nodes: 4, coding, ..CONFIG };
    let join = |domain: &str| {
        let domain = domain.parse().unwrap_or_default();
        runtime.block_on(MemoryServer::join(
            &fabric,
            Arc::clone(&plane),
            &env,
            100,
            Capacity { domain, ..Capacity::from(4 << 20) },
        ))
    };
    runtime.block_on(create(&*plane, &config, 1)).unwrap();
    let _first = join("rack-a").unwrap();
    let _second = join("rack-a").unwrap();
    let refused = join("rack-a").map(drop).unwrap_err().to_string();
    let why = "failure domain rack-a has a memory node already, so the pool's 4 could be of no more than 2 domains; \
               coding 2+1 needs 3";
    assert!(refused.ends_with(why), "{refused}");
    let _third = join("").unwrap();
    assert!(join("rack-a").is_err());
    let _fourth = join("rack-b").unwrap();
    let pool = runtime.block_on(Pool::open(fabric, plane, 1)).unwrap();
    runtime.block_on(pool.ensure_range(&env)).unwrap();
    let state = pool.state();
    let nodes: Vec<u16> = state.ranges[0].slabs.iter().map(|slab| slab.node).collect();
    assert!(nodes.contains(&2) && nodes.contains(&3), "{nodes:?}");
}

#[test]
fn a_range_that_has_no_place_says_what_it_needs() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let runtime = RealRuntime::new(1).unwrap();
    let env = runtime.env();
    let coding: Coding = "2+1".parse().unwrap();
    let bytes_per_node = 4 << 20;
    let config = PoolConfig { memory_nodes: 3, bytes_per_node, coding, ..CONFIG };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let pool = memory.pool();
    // One more than the coding allows for.
    for node in [1, 2] {
        runtime.block_on(pool.declare_memory_dead(node)).unwrap();
    }
    let refused = runtime.block_on(pool.ensure_range(&env)).unwrap_err().to_string();
    let why = "needs memory nodes with a free slab in 3 failure domains; of 1 living memory nodes 1 have one, in 1 domains";
    assert!(refused.ends_with(why), "{refused}");
}
