//! Compute nodes that read only: what they are refused, by themselves and by the memory.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::time::Duration;

use selkie_engine::{Engine, EngineConfig, EngineError, GAddr};
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{Buf, Fabric, FabricError, PeerId, RemoteAddr, Verb};
use selkie_pool::{Pool, layout};

use crate::common::{Cluster, GCL, PAGE, engine_config, id, pool_config};

fn reader() -> EngineConfig {
    EngineConfig { reads_only: true, ..engine_config() }
}

async fn write(engine: &Engine, addr: GAddr, value: u8) {
    engine.exclusive(addr).await.unwrap().bytes_mut(0..PAGE).fill(value);
}

/// A reader sees what a writer writes, also while both want the page again and again, and changes
/// nothing.
async fn reads_and_writes_nothing(writer: &Engine, reader: &Engine) {
    let pages = [(); 5].map(|()| writer.allocate());
    let mut addrs = Vec::new();
    for page in pages {
        addrs.push(page.await.unwrap().addr());
    }
    for round in 0..200 {
        for addr in &addrs {
            write(writer, *addr, round).await;
            assert!(reader.shared(*addr).await.unwrap().iter().all(|byte| *byte == round));
        }
    }
    let refused = |error| assert!(matches!(error, EngineError::ReadsOnly), "{error}");
    refused(reader.exclusive(addrs[0]).await.map(drop).unwrap_err());
    refused(reader.try_exclusive(addrs[0]).await.map(drop).unwrap_err());
    refused(reader.allocate().await.map(drop).unwrap_err());
    refused(reader.allocate_counter().await.map(drop).unwrap_err());
    let counter = writer.allocate_counter().await.unwrap();
    refused(reader.fetch_add(counter, 1).await.map(drop).unwrap_err());
    assert_eq!(writer.fetch_add(counter, 1).await.unwrap(), 0);
    assert_eq!(reader.shared(addrs[0]).await.unwrap()[0], 199, "refusals harm nothing");
    reader.close().await.unwrap();
    write(writer, addrs[0], 7).await;
    writer.close().await.unwrap();
}

#[test]
fn a_reader_of_an_embedded_pool_changes_nothing() {
    let cluster = Cluster::with(1, |_| MemFabric::new(), pool_config(2, 8 << 20), engine_config());
    cluster.run(async {
        let env = cluster.runtime.env();
        let reader = Engine::start(&cluster.pool, &cluster.fabric, &env, id(1), reader()).await;
        reads_and_writes_nothing(&cluster.engines[0], &reader.unwrap()).await;
    });
    assert!(cluster.run(cluster.latched_words()).is_empty());
}

#[cfg(target_os = "linux")]
mod over_tcp {
    use selkie_fabric::tcp::{Admission, TcpConfig, TcpFabric};
    use selkie_memnode::MemoryServer;
    use selkie_pool::control::{ControlPlane, Identity, LocalPlane, Timing};
    use selkie_pool::create;

    use super::*;

    fn fabric(env: &Env) -> Arc<dyn Fabric> {
        TcpFabric::new(TcpConfig { admission: Admission::ByCard, ..TcpConfig::new(7) }, env.clone())
    }

    /// What a process of its own would have of the pool.
    async fn process(
        plane: &Arc<dyn ControlPlane>,
        env: &Env,
        host: u64,
    ) -> (Arc<dyn Fabric>, Arc<Pool>) {
        let fabric = fabric(env);
        let pool = Pool::open(Arc::clone(&fabric), Arc::clone(plane), host).await.unwrap();
        pool.follow(env);
        (fabric, pool)
    }

    #[test]
    fn memory_refuses_what_a_reader_may_not_do() {
        let runtime = RealRuntime::new(2).unwrap();
        let env = runtime.env();
        runtime.block_on(async {
            let plane: Arc<dyn ControlPlane> = Arc::new(LocalPlane::default());
            let identity = Identity { name: "test", id: 7, fabric: "tcp" };
            let config = pool_config(1, 8 << 20);
            create(&*plane, identity, &config, Timing::default()).await.unwrap();
            let lent = MemoryServer::join(&fabric(&env), Arc::clone(&plane), &env, 1, 8 << 20)
                .await
                .unwrap();
            lent.follow(&env);
            let (fabric_of_writer, pool_of_writer) = process(&plane, &env, 2).await;
            let (fabric_of_reader, pool_of_reader) = process(&plane, &env, 3).await;
            let writer =
                Engine::start(&pool_of_writer, &fabric_of_writer, &env, id(0), engine_config());
            let writer = writer.await.unwrap();
            let reading = Engine::start(&pool_of_reader, &fabric_of_reader, &env, id(1), reader());
            reads_and_writes_nothing(&writer, &reading.await.unwrap()).await;

            // One that does not keep to it.
            let rogue = fabric_of_reader.join(PeerId::compute(2)).unwrap();
            pool_of_reader.announce(&env, &*rogue, true).await.unwrap();
            let memory = lent.node().descriptor().clone();
            let geometry = pool_of_reader.descriptor().geometry();
            let queue_pair = rogue.connect(memory.peer).unwrap();
            let at = |offset| RemoteAddr::new(memory.region, offset);
            let (page, latch) = (geometry.data_offset(1, 3), geometry.latch_offset(1, 3));
            let post = async |verb: Verb| {
                let done = queue_pair.post(verb.into()).await;
                done.map(drop).map_err(|error| error.error)
            };
            for offset in
                [page, page + GCL as u64 - 8, latch, layout::GLOBAL_EPOCH_AT, layout::MAGIC_AT]
            {
                let written = post(Verb::write(at(offset), Buf::zeroed(8))).await;
                assert!(
                    matches!(written, Err(FabricError::Forbidden { .. })),
                    "{offset}: {written:?}"
                );
            }
            for offset in [page, layout::EXTENTS_LEASED_AT, layout::GLOBAL_EPOCH_AT] {
                let added = post(Verb::fetch_and_add(at(offset), 1)).await;
                assert!(matches!(added, Err(FabricError::Forbidden { .. })), "{offset}: {added:?}");
                let swapped = post(Verb::compare_and_swap(at(offset), 0, 1)).await;
                assert!(
                    matches!(swapped, Err(FabricError::Forbidden { .. })),
                    "{offset}: {swapped:?}"
                );
            }
            assert_eq!(post(Verb::read(at(page), Buf::zeroed(GCL))).await, Ok(()));
            assert_eq!(post(Verb::fetch_and_add(at(latch), 1)).await, Ok(()));
            env.sleep(Duration::from_millis(1)).await;
            let region = lent.node().region();
            assert_eq!(region.load(page as usize), 0);
            assert_eq!(region.load(latch as usize), 1);
            pool_of_reader.retract(selkie_pool::ComputeIndex::new(2)).await;
        });
    }
}
