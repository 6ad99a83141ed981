//! Coded pages whose splits come late: in virtual time, where it can be said what is waited for.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{ComputeId, Engine, EngineConfig, GAddr, PSN_BYTES};
use selkie_fabric::sim::{CostModel, World, WorldConfig};
use selkie_fabric::{Fabric, PeerId};
use selkie_memnode::EmbeddedPool;
use selkie_pool::PoolConfig;

const GCL: usize = 512;
const PAGE: usize = GCL - PSN_BYTES;
const BOUND: Duration = Duration::from_secs(60);

struct Slow {
    world: World,
    engines: Vec<Engine>,
    pages: Vec<GAddr>,
    _memory: Arc<EmbeddedPool>,
}

/// Two engines; the first has written the pages.
fn slow(coding: &str, memory_nodes: usize, seed: u64) -> Slow {
    let world = World::new(WorldConfig { cost: CostModel::MODERN, ..WorldConfig::new(seed) });
    let fabric: Arc<dyn Fabric> = world.fabric();
    let pool = PoolConfig {
        memory_nodes,
        bytes_per_node: 8 << 20,
        gcl_bytes: GCL,
        range_bytes: 256 << 10,
        max_compute_nodes: 2,
        coding: coding.parse().unwrap(),
        log_bytes: 0,
    };
    let memory = EmbeddedPool::start(&fabric, pool).unwrap();
    let config =
        EngineConfig { cache_bytes: EngineConfig::min_cache_bytes(GCL), ..EngineConfig::default() };
    let mut engines = Vec::new();
    for index in 0..2 {
        let env = world.env_of(PeerId::compute(index));
        let id = ComputeId::new(usize::from(index)).unwrap();
        let start = Engine::start(memory.pool(), &fabric, &env, id, config.clone());
        engines.push(world.run(BOUND, start).unwrap().unwrap());
    }
    let first = engines.first().unwrap().clone();
    let pages = world
        .run(BOUND, async move {
            let mut pages = Vec::new();
            for number in 0..400_u64 {
                let mut page = first.allocate().await.unwrap();
                for (at, word) in page.bytes_mut(0..PAGE).chunks_exact_mut(8).enumerate() {
                    word.copy_from_slice(&(number << 8 | at as u64).to_le_bytes());
                }
                pages.push(page.addr());
            }
            pages
        })
        .unwrap();
    let slow = Slow { world, engines, pages, _memory: memory };
    slow.forget();
    slow
}

fn is_page(page: &[u8], number: usize) -> bool {
    (0_u64..)
        .zip(page.chunks_exact(8))
        .all(|(at, word)| word == ((number as u64) << 8 | at).to_le_bytes())
}

impl Slow {
    /// The pages are in no cache.
    fn forget(&self) {
        for engine in self.engines.clone() {
            let allocate = async move {
                for _ in 0..1_500 {
                    drop(engine.allocate().await.unwrap());
                }
            };
            self.world.run(BOUND, allocate).unwrap();
        }
    }

    /// Reads, and every third time changes, all pages at the second engine; how long each took,
    /// sorted.
    fn read_all(&self) -> Vec<Duration> {
        let (engine, pages) = (self.engines.last().unwrap().clone(), self.pages.clone());
        let env = self.world.env_of(PeerId::compute(1));
        let mut took = self
            .world
            .run(BOUND, async move {
                let mut took = Vec::new();
                for (number, addr) in pages.into_iter().enumerate() {
                    let started = env.now();
                    if number % 3 == 0 {
                        let mut page = engine.exclusive(addr).await.unwrap();
                        took.push(env.now() - started);
                        assert!(is_page(&page, number), "{addr}");
                        // What comes late must not come over it.
                        page.bytes_mut(0..8).fill(7);
                        env.sleep(Duration::from_micros(50)).await;
                        assert!(
                            !is_page(&page, number) && page.get(..8) == Some(&[7; 8]),
                            "{addr}"
                        );
                        page.bytes_mut(0..8).copy_from_slice(&(number as u64 * 256).to_le_bytes());
                    } else {
                        let page = engine.shared(addr).await.unwrap();
                        took.push(env.now() - started);
                        assert!(is_page(&page, number), "{addr}");
                    }
                }
                took
            })
            .unwrap();
        took.sort_unstable();
        took
    }

    fn close(&self) {
        for engine in &self.engines {
            self.world.run(BOUND, engine.close()).unwrap().unwrap();
            let stats = engine.stats();
            assert_eq!(stats.frames, stats.frames_free);
        }
    }
}

/// The share of reads that took long: those whose home is slow can do nothing else.
fn long(took: &[Duration], than: Duration) -> f64 {
    took.iter().filter(|took| **took > than).count() as f64 / took.len() as f64
}

#[test]
fn a_late_split_is_not_waited_for() {
    const SLOW: PeerId = PeerId::memory(1);
    for (coding, memory_nodes, homes) in [("2+1", 3, 3.0), ("4+2", 6, 6.0), ("8+2", 10, 10.0)] {
        let slow = slow(coding, memory_nodes, 7);
        let usual = slow.read_all().pop().unwrap();
        let before = slow.engines.last().unwrap().stats().late_reads;
        slow.world.controls().slow(SLOW, 1000);
        slow.forget();
        let took = slow.read_all();
        let share = long(&took, usual * 2);
        assert!(share < 1.3 / homes, "{coding}: {share} of the reads waited");
        assert!(share > 0.5 / homes, "{coding}: a home is waited for, {share}");
        let late = slow.engines.last().unwrap().stats().late_reads - before;
        assert!(late > 50, "{coding}: {late}");
        assert_eq!(before, 0, "{coding}: in time, nothing goes elsewhere");
        slow.close();
    }
}
