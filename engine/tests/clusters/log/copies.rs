//! Copies of a log in memory that replace those of memory nodes that died.
#![expect(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::log::LogTo;
use selkie_engine::{Engine, EngineConfig};
use selkie_fabric::sim::{World, WorldConfig};
use selkie_fabric::{Buf, Endpoint, Fabric, PeerId, RemoteAddr, Verb};
use selkie_memnode::EmbeddedPool;
use selkie_pool::{Pool, PoolConfig};
use selkie_wal::ring::{HEAD_STRIDE, RingHead};

use super::cluster::owners;
use crate::common::pages::coded;
use crate::common::{engine_config, id, page};

const LOG_BYTES: u64 = 4 << 20;

/// Where each copy of the log of node 0 says that the log is kept from.
async fn starts(reader: &Arc<dyn Endpoint>, pool: &Pool) -> Vec<u64> {
    let owner = owners(pool, 1).remove(0);
    let at = pool.descriptor().geometry().log_offset(0);
    let mut starts = Vec::new();
    for memory in &pool.descriptor().memory_nodes {
        if pool.is_memory_dead(usize::from(memory.peer.index())) {
            continue;
        }
        let queue_pair = reader.connect(memory.peer).unwrap();
        let read = Verb::read(RemoteAddr::new(memory.region, at), Buf::zeroed(2 * HEAD_STRIDE));
        let done = queue_pair.post(read.into()).await.unwrap();
        let heads = done.buf(0).unwrap().chunks(HEAD_STRIDE);
        starts.extend(heads.filter_map(|head| RingHead::decode(owner, head)).max());
    }
    starts.into_iter().map(|head| head.start).collect()
}

/// A node writes, and loses one of two copies of its log after a while. Whether the log was
/// truncated while the copy that replaces it was made.
fn loses_a_copy_after(pause: Duration) -> bool {
    let world = World::new(WorldConfig::new(5));
    let (env, fabric): (_, Arc<dyn Fabric>) = (world.env(), world.fabric());
    let config = PoolConfig {
        log_bytes: LOG_BYTES,
        max_compute_nodes: 2,
        bytes_per_node: 32 << 20,
        ..coded(4, "2+1")
    };
    let memory = EmbeddedPool::start(&fabric, config).unwrap();
    let (pool, controls) = (Arc::clone(memory.pool()), world.controls());
    let mut has_met = false;
    let main = async {
        let log = Some(LogTo::Memory);
        let config = EngineConfig { log, cache_bytes: 1 << 20, ..engine_config() };
        let engine = Engine::start(&pool, &fabric, &env, id(0), config).await.unwrap();
        let reader = fabric.join(PeerId::compute(1)).unwrap();
        let mut pages = Vec::new();
        for _ in 0..40 {
            pages.push(page(&engine).await);
        }
        let changes = async |bytes: u64| {
            let (mut first, mut last) = (None, 0);
            while last - first.unwrap_or(last) < bytes {
                for addr in &pages {
                    let mut page = engine.exclusive(*addr).await.unwrap();
                    page.bytes_mut(16..400).fill(7);
                    drop(page);
                    last = engine.shared(*addr).await.unwrap().lsn();
                    first.get_or_insert(last);
                }
                engine.until_durable(last).await.unwrap();
            }
        };
        // More than checkpoints keep.
        changes(LOG_BYTES * 7 / 16).await;
        env.sleep(pause).await;
        let [before, other] = starts(&reader, &pool).await[..] else { panic!("two copies") };
        assert_eq!(before, other);
        controls.kill(PeerId::memory(0));
        pool.declare_memory_dead(0).await.unwrap();
        changes(1).await;
        let now = starts(&reader, &pool).await;
        assert_eq!(now.len(), 2, "the copy is replaced");
        assert_eq!(now.first(), now.last(), "after {pause:?}: a copy has an old start");
        has_met = now.first() != Some(&before);
    };
    world.run(Duration::from_secs(60), main).unwrap();
    has_met
}

/// A truncation did not know of a copy that was being made, and that copy got the start from
/// before: its records are overwritten once the log has gone around.
#[test]
fn a_copy_that_is_made_while_the_log_is_truncated_has_its_new_start() {
    let pauses = (0..24).map(|step| step * Duration::from_micros(500));
    let met = pauses.filter(|pause| loses_a_copy_after(*pause)).count();
    assert!(met > 0, "no truncation while a copy was made");
    println!("{met} truncations while a copy was made");
}
