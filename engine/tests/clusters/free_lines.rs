//! Free lines of nodes that leave, die or keep them: none is lost, and the document does not grow.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::collections::HashSet;
use std::time::Duration;

use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::FabricError;
use selkie_fabric::mem::MemFabric;
use selkie_pool::{Coding, PoolConfig};

use crate::common::{Cluster, engine_config, id, page, pool_config};

/// Nodes that come in, use memory and are gone again.
const TIMES: usize = 1_000;
/// Pages that each of them allocates, and of those, how many it leaves in use.
const PAGES: usize = 40;
const LEFT: usize = 10;
/// Bytes of the document, in any case: it has some nodes and no lists that grow.
const DOCUMENT_BYTES: usize = 4_096;
/// Enough on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

fn plain(bytes: u64) -> PoolConfig {
    PoolConfig { coding: Coding::PLAIN, ..pool_config(1, bytes) }
}

/// A pool of 512 lines in one memory node.
fn small(engines: usize) -> Cluster {
    Cluster::with(engines, |_| MemFabric::new(), plain(320 << 10), engine_config())
}

async fn until(cluster: &Cluster, what: &str, is_so: impl Fn() -> bool) {
    let env = cluster.runtime.env();
    let until = env.now() + PATIENCE;
    while !is_so() {
        assert!(env.now() < until, "not: {what}");
        env.sleep(Duration::from_millis(1)).await;
    }
}

async fn newcomer(cluster: &Cluster) -> Engine {
    let (pool, fabric, env) = (&cluster.pool, &cluster.fabric, cluster.runtime.env());
    let until = env.now() + PATIENCE;
    loop {
        let index = id(cluster.pool.next_index().await.unwrap().as_usize());
        match Engine::start(pool, fabric, &env, index, engine_config()).await {
            // A task of the last node of this index has not ended yet.
            Err(EngineError::Fabric(FabricError::AlreadyJoined { .. })) if env.now() < until => {
                env.sleep(Duration::from_millis(1)).await;
            }
            started => return started.unwrap(),
        }
    }
}

/// A page, unless there is none within what a caller waits.
async fn allocated(engine: &Engine) -> Option<GAddr> {
    match engine.allocate().await {
        Ok(page) => Some(page.addr()),
        Err(EngineError::PoolFull { .. } | EngineError::FreedInUse) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Pages until there are so many. On a busy machine the epochs of lines that there are pass late.
async fn allocate(cluster: &Cluster, engine: &Engine, count: usize) -> Vec<GAddr> {
    let env = cluster.runtime.env();
    let (mut pages, until) = (Vec::new(), env.now() + PATIENCE);
    while pages.len() < count {
        pages.extend(allocated(engine).await);
        assert!(env.now() < until, "{} of {count} pages", pages.len());
    }
    pages
}

/// Allocates pages, and frees all but some of them, and those that the last node left.
async fn works(cluster: &Cluster, engine: &Engine, live: &mut Vec<GAddr>) {
    let before = std::mem::take(live);
    live.extend(allocate(cluster, engine, PAGES).await);
    for addr in live.split_off(LEFT).into_iter().chain(before) {
        engine.free(engine.exclusive(addr).await.unwrap());
    }
}

fn document_bytes(cluster: &Cluster) -> usize {
    format!("{:?}", cluster.pool.state()).len()
}

/// Allocates all that is left. Asserts that this is every line that is not in use, once.
async fn takes_the_rest(cluster: &Cluster, engine: &Engine, live: &[GAddr], lines: usize) {
    // Two lines are the null address and the superblock.
    let left = lines - 2 - live.len();
    let pages = allocate(cluster, engine, left).await;
    let all: HashSet<GAddr> = live.iter().chain(&pages).copied().collect();
    assert_eq!(all.len(), lines - 2, "a line was handed out twice");
    assert_eq!(allocated(engine).await, None);
}

/// The document had a number for each line that such a node gave back.
#[test]
fn a_thousand_nodes_that_leave_keep_no_line_and_the_document_stays_small() {
    let cluster = small(1);
    cluster.run(async {
        let mut live = Vec::new();
        for _ in 0..TIMES {
            let engine = newcomer(&cluster).await;
            works(&cluster, &engine, &mut live).await;
            engine.close().await.unwrap();
            let bytes = document_bytes(&cluster);
            assert!(bytes < DOCUMENT_BYTES, "{bytes} bytes");
        }
        takes_the_rest(&cluster, &cluster.engines[0], &live, 512).await;
    });
}

/// What they had freed, and the rest of their extents, was never used again.
#[test]
fn a_thousand_nodes_that_die_keep_no_line_and_the_document_stays_small() {
    let cluster = small(1);
    cluster.run(async {
        let mut live = Vec::new();
        for _ in 0..TIMES {
            let engine = newcomer(&cluster).await;
            works(&cluster, &engine, &mut live).await;
            for addr in &live {
                engine.evict(*addr).await.unwrap();
            }
            let is_marked = || engine.unused_lines().2 == 0 && engine.active_lines().is_empty();
            until(&cluster, "what it freed is marked", is_marked).await;
            let node = selkie_pool::ComputeIndex::new(engine.node().index() as u16);
            cluster.pool.declare_dead(node).await.unwrap();
            until(&cluster, "it is recovered from", || cluster.pool.lost().is_empty()).await;
            let bytes = document_bytes(&cluster);
            assert!(bytes < DOCUMENT_BYTES, "{bytes} bytes");
        }
        assert_eq!((cluster.pool.lost_pages(), cluster.pool.dead()), (vec![], vec![]));
        takes_the_rest(&cluster, &cluster.engines[0], &live, 512).await;
    });
}

/// Each death took a node's index for good, as the word of the page that was lost named it.
#[test]
fn a_thousand_crashes_that_lose_pages_leave_room_for_the_next_node() {
    let cluster = Cluster::with(1, |_| MemFabric::new(), plain(2 << 20), engine_config());
    cluster.run(async {
        let mut lost = Vec::new();
        for _ in 0..TIMES {
            let addr = page(&cluster.engines[0]).await;
            let engine = newcomer(&cluster).await;
            engine.exclusive(addr).await.unwrap().bytes_mut(0..8).fill(7);
            let node = selkie_pool::ComputeIndex::new(engine.node().index() as u16);
            cluster.pool.declare_dead(node).await.unwrap();
            until(&cluster, "it is recovered from", || cluster.pool.lost().is_empty()).await;
            lost.push(addr);
        }
        assert_eq!(cluster.pool.dead(), []);
        let next = newcomer(&cluster).await;
        for addr in lost.iter().step_by(97) {
            for engine in [&next, &cluster.engines[0]] {
                let got = engine.shared(*addr).await.map(drop);
                assert!(matches!(got, Err(EngineError::PageLost { node: None, .. })), "{got:?}");
            }
        }
        assert_eq!(cluster.pool.lost_pages().len(), TIMES);
        drop(next.allocate().await.unwrap());
        next.close().await.unwrap();
    });
}

/// One node had all free lines, and the other was told that the pool is full.
#[test]
fn a_node_gets_what_another_has_freed_and_does_not_need() {
    for (bytes, lines) in [(320 << 10, 512), (8 << 20, 28 * 512)] {
        let cluster = Cluster::with(2, |_| MemFabric::new(), plain(bytes), engine_config());
        cluster.run(async {
            let [one, two] = [&cluster.engines[0], &cluster.engines[1]];
            for addr in allocate(&cluster, one, lines - 2).await {
                one.free(one.exclusive(addr).await.unwrap());
            }
            // The other keeps some for itself.
            let seen: HashSet<_> =
                allocate(&cluster, two, lines - lines / 4).await.into_iter().collect();
            assert_eq!(seen.len(), lines - lines / 4);
            // It has not taken from the other what that uses.
            let own = one.allocate().await.unwrap();
            assert!(!seen.contains(&own.addr()));
        });
    }
}

/// A mark stays in the header of a line that is in use: it is of an earlier page.
#[test]
fn a_line_in_use_is_not_taken_whatever_mark_it_has() {
    let cluster = Cluster::with(1, |_| MemFabric::new(), plain(320 << 10), engine_config());
    cluster.run(async {
        let gone = newcomer(&cluster).await;
        let mut live = Vec::new();
        // Fresh lines that were marked when they were leased, and lines that were freed and
        // allocated again.
        for _ in 0..3 {
            works(&cluster, &gone, &mut live).await;
            until(&cluster, "ripe", || gone.unused_lines().2 == 0).await;
        }
        for (number, addr) in live.iter().enumerate() {
            gone.exclusive(*addr).await.unwrap().bytes_mut(0..1).fill(number as u8 + 1);
        }
        gone.close().await.unwrap();
        let engine = &cluster.engines[0];
        takes_the_rest(&cluster, engine, &live, 512).await;
        for (number, addr) in live.iter().enumerate() {
            assert_eq!(engine.shared(*addr).await.unwrap()[0], number as u8 + 1);
        }
    });
}

/// Also in a coded pool, where headers have splits behind them.
#[test]
fn lines_of_a_coded_pool_are_used_again_after_their_node_has_died() {
    let coded = PoolConfig { coding: "2+1".parse().unwrap(), ..pool_config(3, 1 << 20) };
    let cluster = Cluster::with(1, |_| MemFabric::new(), coded, engine_config());
    cluster.run(async {
        let engine = &cluster.engines[0];
        let mut live = Vec::new();
        for _ in 0..30 {
            let gone = newcomer(&cluster).await;
            works(&cluster, &gone, &mut live).await;
            for addr in &live {
                gone.evict(*addr).await.unwrap();
            }
            until(&cluster, "marked", || gone.unused_lines().2 == 0).await;
            let node = selkie_pool::ComputeIndex::new(gone.node().index() as u16);
            cluster.pool.declare_dead(node).await.unwrap();
            until(&cluster, "it is recovered from", || cluster.pool.lost().is_empty()).await;
        }
        // Grows as far as it can, then finds the rest.
        let lines = cluster.pool.extents() as usize * 64;
        takes_the_rest(&cluster, engine, &live, lines).await;
    });
}

/// Lines whose headers do not say yet that they are free counted as leaked, and were freed twice.
#[test]
fn lines_that_were_freed_just_now_are_not_taken_for_leaked() {
    let cluster = Cluster::with(1, |_| MemFabric::new(), plain(320 << 10), engine_config());
    cluster.run(async {
        let engine = &cluster.engines[0];
        let mut live = Vec::new();
        for is_dry in [true, false] {
            // Of the second round these are leaked.
            let left = live.len() as u64;
            live = allocate(&cluster, engine, 100).await;
            let mut last_freed = GAddr::NULL;
            for addr in live.split_off(20) {
                engine.free(engine.exclusive(addr).await.unwrap());
                last_freed = addr;
            }
            let used: HashSet<_> = live.iter().copied().collect();
            // A page that does not go home, though it is marked: one has read its address before.
            let late = match is_dry {
                true => Some(engine.shared(last_freed).await.unwrap()),
                false => None,
            };
            let census = engine.repair_lines(&used, is_dry).await.unwrap();
            drop(late);
            assert_eq!((census.in_use, census.leaked), (20, left), "{census:?}");
        }
        takes_the_rest(&cluster, engine, &live, 512).await;
    });
}
