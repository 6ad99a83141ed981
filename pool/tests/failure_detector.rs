//! Silent nodes: when they are declared dead, and when other nodes learn of it. In virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_channels::MailboxDescriptor;
use selkie_fabric::env::Env;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{BoxFuture, Doorbell, Fabric, PeerId, RegionKey};
use selkie_memnode::{MemoryServer, monitor::MonitorConfig};
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, Identity, LocalPlane, PoolState, Timing, Version,
    Versioned,
};
use selkie_pool::{ComputeIndex, Pool, PoolConfig, create, layout};

const BEAT: Duration = Duration::from_millis(200);
const TIMING: Timing = Timing { lease: Duration::from_secs(2), heartbeat: BEAT };
/// The node that is silent, and the one that sees it.
const SILENT: ComputeIndex = ComputeIndex::new(1);
const OTHER: ComputeIndex = ComputeIndex::new(2);

/// What all processes share: a plane, and when each node has beaten last.
struct Plane {
    plane: LocalPlane,
    env: Env,
    beaten: Mutex<BTreeMap<PeerId, Duration>>,
}

/// Where calls wait while it is shut.
#[derive(Default)]
struct Gate {
    is_shut: AtomicBool,
    waiting: AtomicUsize,
    opened: Doorbell,
}

impl Gate {
    fn shut(&self, is_shut: bool) {
        self.is_shut.store(is_shut, Ordering::SeqCst);
        self.opened.ring();
    }

    fn is_waited_at(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    async fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut seen = 0;
        while self.is_shut.load(Ordering::SeqCst) {
            seen = self.opened.wait_past(seen).await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The connection of a process to the plane.
struct PlaneLink {
    shared: Arc<Plane>,
    is_cut: AtomicBool,
    /// Before changes are made.
    changes: Gate,
    /// After beats are.
    beats: Gate,
}

impl PlaneLink {
    fn to(shared: &Arc<Plane>) -> Arc<Self> {
        let (is_cut, changes, beats) = (AtomicBool::new(false), Gate::default(), Gate::default());
        Arc::new(Self { shared: Arc::clone(shared), is_cut, changes, beats })
    }

    fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    fn plane(&self) -> Result<&LocalPlane, ControlError> {
        if self.is_cut.load(Ordering::SeqCst) {
            let (place, what) = ("the plane".to_owned(), "the link is cut".to_owned());
            return Err(ControlError::Unavailable { place, what });
        }
        Ok(&self.shared.plane)
    }
}

impl ControlPlane for PlaneLink {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { self.plane()?.load().await })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        Box::pin(async { self.plane()?.create(state).await })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            self.plane()?;
            self.changes.pass().await;
            self.plane()?.replace_as(change, expected, state).await
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move {
            let node = beat.node;
            self.plane()?.beat(beat).await?;
            self.shared.beaten.lock().insert(node, self.shared.env.now());
            self.beats.pass().await;
            Ok(())
        })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            let beats = self.plane()?.beats().await?;
            let (now, beaten) = (self.shared.env.now(), self.shared.beaten.lock());
            let age = |(beat, _): (Beat, Duration)| (beat.clone(), now - beaten[&beat.node]);
            Ok(beats.into_iter().map(age).collect())
        })
    }

    fn pace(&self) -> Duration {
        self.shared.plane.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.shared.plane.destroy()
    }
}

/// Two memory nodes, and two compute nodes of a process each.
struct Processes {
    env: Env,
    plane: Arc<Plane>,
    memory: [Arc<MemoryServer>; 2],
    memory_links: [Arc<PlaneLink>; 2],
    /// Of the node that is silent, and of the other.
    pools: [Arc<Pool>; 2],
    links: [Arc<PlaneLink>; 2],
}

fn with_processes(test: impl AsyncFnOnce(Processes)) {
    let world = World::new(WorldConfig::new(5));
    let env = world.env();
    let main = async {
        let processes = Processes::start(&env).await;
        // A node that declares others dead has looked for a while.
        env.sleep(2 * TIMING.lease).await;
        test(processes).await;
    };
    world.run(Duration::from_secs(600), main).unwrap();
}

impl Processes {
    async fn start(env: &Env) -> Self {
        let (beaten, local) = (Mutex::default(), LocalPlane::default());
        let plane = Arc::new(Plane { plane: local, env: env.clone(), beaten });
        let config = PoolConfig {
            memory_nodes: 2,
            bytes_per_node: 4 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 18,
            max_compute_nodes: 4,
            coding: "replicate=2".parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "test", id: 3, fabric: "mem" };
        create(&plane.plane, identity, &config, TIMING).await.unwrap();
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let [memory_links, links] = [(); 2].map(|()| [(); 2].map(|()| PlaneLink::to(&plane)));
        let serve = async |number: usize| {
            let link = Arc::clone(&memory_links[number]);
            let server =
                MemoryServer::join(&fabric, link, env, 10 + number as u64, 4 << 20).await.unwrap();
            server.follow(env);
            server
        };
        let memory = [serve(0).await, serve(1).await];
        let open = async |number: usize, node: ComputeIndex| {
            let link = Arc::clone(&links[number]);
            let host = 20 + number as u64;
            let pool = Pool::open(Arc::clone(&fabric), link, host).await.unwrap();
            pool.follow(env);
            let (peer, region) = (PeerId::compute(node.get()), RegionKey::from_raw(3));
            let mailbox = MailboxDescriptor { peer, region, ring_bytes: 1 << 16, peers: 4 };
            pool.register_compute(env, node, vec![mailbox]).await.unwrap();
            pool
        };
        let pools = [open(0, SILENT).await, open(1, OTHER).await];
        Self { env: env.clone(), plane, memory, memory_links, pools, links }
    }

    async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let started = self.env.now();
        while !is_so() {
            assert!(self.env.now() - started < 10 * TIMING.lease, "not: {what}");
            self.env.sleep(Duration::from_millis(1)).await;
        }
    }

    async fn state(&self) -> Versioned {
        self.plane.plane.load().await.unwrap()
    }

    async fn is_in(&self) -> bool {
        self.state().await.state.compute_nodes.contains_key(&SILENT.get())
    }

    /// Which version a memory node says it has acted upon.
    async fn seen_by(&self, number: u16) -> Version {
        let beats = self.plane.plane.beats().await.unwrap();
        let own = beats.iter().find(|(beat, _)| beat.node == PeerId::memory(number));
        own.unwrap().0.seen
    }
}

#[test]
fn a_declaration_of_death_that_comes_too_late_fails_after_a_renewal() {
    with_processes(async |all| {
        let [silent, other] = &all.links;
        // Of the others, only one declares nodes dead.
        all.memory_links.iter().for_each(|link| link.changes.shut(true));
        silent.cut(true);
        other.changes.shut(true);
        all.until("it is about to be declared dead", || other.changes.is_waited_at()).await;
        assert!(all.pools[0].signs_of_life(all.env.now()).silent_for > TIMING.lease);
        silent.cut(false);
        let is_shown = || all.pools[0].signs_of_life(all.env.now()).silent_for < BEAT;
        all.until("it shows that it lives", is_shown).await;
        assert!(all.pools[0].renew(SILENT, 1).await.unwrap());
        other.changes.shut(false);
        all.memory_links.iter().for_each(|link| link.changes.shut(false));
        all.env.sleep(TIMING.lease / 2).await;
        assert!(all.is_in().await, "it has beaten and renewed before");
        assert_eq!(all.state().await.state.compute_nodes[&SILENT.get()].renewals, 1);

        // The others change the state meanwhile; it is silent all the same.
        silent.cut(true);
        other.changes.shut(true);
        all.memory_links.iter().for_each(|link| link.changes.shut(true));
        all.until("it is about to be declared dead", || other.changes.is_waited_at()).await;
        let Versioned { version, state } = all.state().await;
        let changed = PoolState { next_index: 3, ..PoolState::clone(&state) };
        all.plane.plane.replace(version, changed).await.unwrap().unwrap();
        other.changes.shut(false);
        all.env.yield_now().await;
        let is_dead = || !all.pools[1].is_member(SILENT);
        all.until("it is declared dead", is_dead).await;
        assert!(!all.pools[0].renew(SILENT, 1).await.is_ok_and(|is_in| is_in));
        silent.cut(false);
        assert!(!all.pools[0].renew(SILENT, 1).await.unwrap(), "it is out");
        assert_eq!(all.state().await.state.next_index, 3, "nothing is undone");
    });
}

#[test]
fn a_renewal_changes_the_state_of_its_own_incarnation_only() {
    with_processes(async |all| {
        let before = all.state().await.version;
        assert!(!all.pools[0].renew(SILENT, 2).await.unwrap(), "there is no second one yet");
        assert_eq!(all.state().await.version, before);
        for times in 1..3 {
            assert!(all.pools[0].renew(SILENT, 1).await.unwrap());
            let now = all.state().await;
            assert_eq!(
                (now.version, now.state.compute_nodes[&1].renewals),
                (before + times, times)
            );
        }
    });
}

/// Also where it changes the state itself when it has the plane back.
#[test]
fn a_memory_node_that_was_away_counts_looks_before_it_reports_a_change() {
    for is_watching in [false, true] {
        with_processes(async |all| {
            let looks = || all.memory[0].node().region().load(layout::PLANE_LOOKS_AT as usize);
            all.memory_links[0].cut(true);
            all.env.sleep(Duration::from_millis(20)).await;
            let away = looks();
            all.env.sleep(TIMING.away_after()).await;
            assert_eq!(looks(), away);
            all.pools[1].declare_dead(SILENT).await.unwrap();
            let version = all.state().await.version;
            if is_watching {
                let config = MonitorConfig::new(1, || Ok(1 << 30));
                all.memory[0]
                    .start_monitor(&all.env, MonitorConfig { every: BEAT / 200, ..config });
            }
            all.memory_links[0].cut(false);
            all.until("it counts", || looks() > away).await;
            let (back, mut counted, mut latest) = (all.env.now(), looks(), all.env.now());
            while all.seen_by(0).await < version {
                assert!(all.env.now() - back < TIMING.lease, "it does not act");
                all.env.sleep(Duration::from_millis(1)).await;
                if looks() > counted {
                    (counted, latest) = (looks(), all.env.now());
                }
                assert!(all.env.now() - latest <= TIMING.away_after(), "it keeps counting");
            }
            let took = all.env.now() - back;
            assert!(took + Duration::from_millis(2) >= TIMING.acts_after(), "{took:?}");
            assert!(all.state().await.version >= version);
        });
    }
}

#[test]
fn a_change_after_a_look_is_acted_upon_with_the_next_look() {
    with_processes(async |all| {
        let looks = || all.memory[0].node().region().load(layout::PLANE_LOOKS_AT as usize);
        all.memory_links[0].cut(true);
        all.env.sleep(2 * BEAT).await;
        let away = looks();
        all.memory_links[0].cut(false);
        all.until("it counts", || looks() > away).await;
        let back = all.env.now();
        all.pools[1].declare_dead(SILENT).await.unwrap();
        let version = all.state().await.version;
        // A change of its own shows it what others have changed.
        let config = MonitorConfig::new(1, || Ok(1 << 30));
        all.memory[0].start_monitor(&all.env, MonitorConfig { every: BEAT / 200, ..config });
        while all.seen_by(0).await < version {
            assert!(all.env.now() - back < TIMING.lease, "it does not act");
            all.env.sleep(Duration::from_millis(1)).await;
        }
        let (took, pace) = (all.env.now() - back, all.links[0].pace());
        assert!(took >= TIMING.acts_after() + pace / 2, "{took:?}");
    });
}

#[test]
fn a_late_look_counts_as_an_absence() {
    with_processes(async |all| {
        let looks = || all.memory[0].node().region().load(layout::PLANE_LOOKS_AT as usize);
        // It counts its look, and then stands still with its beat.
        all.memory_links[0].beats.shut(true);
        all.until("it stands still", || all.memory_links[0].beats.is_waited_at()).await;
        let counted = looks();
        all.env.sleep(TIMING.away_after()).await;
        assert_eq!(looks(), counted);
        all.pools[1].declare_dead(SILENT).await.unwrap();
        let version = all.state().await.version;
        all.memory_links[0].beats.shut(false);
        all.until("it counts", || looks() > counted).await;
        let back = all.env.now();
        while all.seen_by(0).await < version {
            assert!(all.env.now() - back < TIMING.lease, "it does not act");
            all.env.sleep(Duration::from_millis(1)).await;
        }
        let took = all.env.now() - back;
        assert!(took + Duration::from_millis(2) >= TIMING.acts_after(), "{took:?}");
    });
}

#[test]
fn a_beat_that_completes_too_late_counts_as_a_silence() {
    with_processes(async |all| {
        let signs = || all.pools[0].signs_of_life(all.env.now());
        assert_eq!(signs().silences, 0);
        assert!(signs().silent_for <= BEAT + Duration::from_millis(20));
        for (silences, held_for) in [(0, TIMING.lease / 2), (1, TIMING.lease * 3 / 4)] {
            all.links[0].beats.shut(true);
            all.until("it beats", || all.links[0].beats.is_waited_at()).await;
            all.env.sleep(held_for).await;
            assert!(signs().silent_for > held_for, "its beat was begun after the one before");
            all.links[0].beats.shut(false);
            all.env.sleep(Duration::from_millis(1)).await;
            assert_eq!(signs().silences, silences, "{held_for:?}");
            all.until("it beats again", || signs().silent_for < BEAT).await;
        }
    });
}
