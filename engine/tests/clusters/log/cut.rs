//! Cuts between two nodes around the time in which their links end: a link that heals before goes
//! on, and no other node waits for long after the cut if it does not. In virtual time.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig, EngineError, GAddr, change_together};
use selkie_fabric::env::{Env, TaskHandle};
use selkie_fabric::sim::{Controls, CostModel, World, WorldConfig};
use selkie_fabric::{Fabric, PeerId};
use selkie_pool::PoolConfig;

use super::cluster::{read, write};
use crate::common::pages::coded;
use crate::common::processes::{Carded, Processes};
use crate::common::{engine_config, page};

pub(super) const LEASE: Duration = Duration::from_millis(200);
/// As `Timing::unreachable_after` has it.
pub(super) const LINKS_END: Duration = LEASE.saturating_mul(4);
const ONE: PeerId = PeerId::compute(0);
const TWO: PeerId = PeerId::compute(1);
const PAGES: u64 = 24;

/// Two compute nodes with logs in memory, on a network whose links end as those of TCP.
pub(super) fn with_cuts(coding: &str, test: impl AsyncFnOnce(&Processes, &Env, &Controls)) {
    with_cuts_and(coding, Some(LogTo::Memory), test);
}

/// The same, with logs or without.
pub(super) fn with_cuts_and(
    coding: &str,
    log: Option<LogTo>,
    test: impl AsyncFnOnce(&Processes, &Env, &Controls),
) {
    let cost = CostModel { unreachable_after: LINKS_END, ..CostModel::PAPER };
    let world = World::new(WorldConfig { cost, ..WorldConfig::new(29) });
    let (env, network, controls) = (world.env(), world.fabric(), world.controls());
    let fabric = || -> Arc<dyn Fabric> { Arc::new(Carded(Arc::clone(&network) as _)) };
    let engine =
        EngineConfig { log, request_timeout: 40 * LEASE, cache_bytes: 1 << 20, ..engine_config() };
    let main = async {
        let config = PoolConfig { log_bytes: 1 << 20, max_compute_nodes: 4, ..coded(4, coding) };
        let config = PoolConfig { bytes_per_node: 8 << 20, ..config };
        let processes = Processes::start_with(&env, (config, &engine), LEASE, fabric).await;
        test(&processes, &env, &controls).await;
    };
    world.run(200 * LEASE, main).unwrap();
}

/// Changes pages in turn, and notes what is acknowledged, until its node ends.
pub(super) struct Writer {
    pub(super) addrs: Vec<GAddr>,
    pub(super) acknowledged: Arc<Mutex<Vec<u64>>>,
    pub(super) ended: Arc<Mutex<Option<EngineError>>>,
    _task: TaskHandle,
}

impl Writer {
    pub(super) async fn start(engine: &Engine, env: &Env) -> Self {
        let mut addrs = Vec::new();
        for _ in 0..PAGES {
            addrs.push(page(engine).await);
        }
        let acknowledged = Arc::new(Mutex::new(vec![0; addrs.len()]));
        let ended: Arc<Mutex<Option<EngineError>>> = Arc::default();
        let (engine, clock, pages) = (engine.clone(), env.clone(), addrs.clone());
        let (notes, end) = (Arc::clone(&acknowledged), Arc::clone(&ended));
        let task = env.spawn("writer", async move {
            for number in 1_u64.. {
                let at = number as usize % pages.len();
                let changed = async {
                    let mut page = engine.exclusive(pages[at]).await?;
                    page.bytes_mut(16..24).copy_from_slice(&number.to_le_bytes());
                    let lsn = change_together([&mut page]).unwrap_or_default();
                    drop(page);
                    engine.until_durable(lsn).await
                };
                match changed.await {
                    Ok(()) => notes.lock()[at] = number,
                    Err(error @ (EngineError::Unreachable { .. } | EngineError::Closed)) => {
                        *end.lock() = Some(error);
                        return;
                    }
                    Err(_) => {}
                }
                clock.sleep(LEASE / 200).await;
            }
        });
        env.sleep(LEASE).await;
        Self { addrs, acknowledged, ended, _task: task }
    }

    /// Waits until another node has read every page. How long that took; nothing acknowledged is
    /// lost.
    pub(super) async fn others_go_on(&self, other: &Engine, env: &Env) -> Duration {
        let (started, noted) = (env.now(), self.acknowledged.lock().clone());
        for (addr, acknowledged) in self.addrs.iter().zip(noted) {
            let found = read(other, *addr).await;
            assert!(found >= acknowledged, "{found} where {acknowledged} was acknowledged");
            write(other, *addr, 1 << 40).await;
        }
        env.now() - started
    }

    pub(super) fn end(&self) -> Option<PeerId> {
        match &*self.ended.lock() {
            Some(EngineError::Unreachable { peer }) => Some(*peer),
            _ => None,
        }
    }
}

/// Cuts the second compute node off from another node for so long. Returns how long the first one
/// waits after that, and whom the second one did not reach when it ended.
fn cut(coding: &str, peer: PeerId, long: Duration) -> (Duration, Option<PeerId>) {
    let mut seen = (Duration::ZERO, None);
    with_cuts(coding, async |processes, env, controls| {
        let [one, two] = &processes.engines;
        let writer = Writer::start(two, env).await;
        // So that there is a link between the two compute nodes as well.
        assert!(read(one, writer.addrs[0]).await > 0);
        controls.cut(TWO, peer);
        if peer == ONE {
            // Each asks the other one.
            let (one, addr) = (one.clone(), writer.addrs[1]);
            drop(env.spawn("asks", async move { drop(one.shared(addr).await) }));
        }
        env.sleep(long).await;
        controls.heal(TWO, peer);
        let waited = writer.others_go_on(one, env).await;
        seen = (waited, writer.end());
        one.close().await.unwrap();
    });
    seen
}

#[test]
fn a_link_that_is_whole_again_before_it_ends_goes_on() {
    for coding in ["plain", "2+1"] {
        for peer in [PeerId::memory(1), ONE] {
            let (waited, ended) = cut(coding, peer, LINKS_END * 15 / 16);
            assert!(ended.is_none() && waited < LEASE, "{coding} {peer}: {waited:?}, {ended:?}");
        }
    }
}

/// The node gave its membership up three leases later, as the silence in which its link had ended
/// was forgotten with the first new queue pair, and the others waited for it.
#[test]
fn others_do_not_wait_after_a_cut_in_which_a_link_has_ended() {
    for coding in ["plain", "2+1"] {
        for peer in [PeerId::memory(1), ONE] {
            let (waited, ended) = cut(coding, peer, LINKS_END * 17 / 16);
            assert_eq!(ended, Some(peer), "{coding}: {waited:?}");
            assert!(waited < LEASE, "{coding} {peer}: {waited:?}");
        }
    }
}

/// While the plane suspects the memory node as well, its death may be unheard of. The node looked
/// again only three leases later.
#[test]
fn others_do_not_wait_after_a_cut_of_a_memory_node_that_was_suspected() {
    with_cuts("2+1", async |processes, env, controls| {
        let [one, two] = &processes.engines;
        let writer = Writer::start(two, env).await;
        controls.cut(TWO, PeerId::memory(1));
        let to_plane = &processes.memory_ways[1..3];
        to_plane.iter().for_each(|way| way.cut(true));
        env.sleep(2 * LINKS_END + LEASE / 4).await;
        assert!(processes.pools[1].is_memory_suspected(1));
        assert_eq!(writer.end(), None, "it waits");
        to_plane.iter().for_each(|way| way.cut(false));
        controls.heal(TWO, PeerId::memory(1));
        let waited = writer.others_go_on(one, env).await;
        assert_eq!(writer.end(), Some(PeerId::memory(1)));
        assert!(waited < 2 * LEASE, "{waited:?}");
        one.close().await.unwrap();
    });
}
