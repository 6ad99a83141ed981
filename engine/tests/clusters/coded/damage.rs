//! Bits that flip in memory nodes: checksums and parity find them, and splits are repaired.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::time::Duration;

use selkie_engine::{EngineConfig, EngineError, GAddr};
use selkie_fabric::mem::MemFabric;

use crate::common::pages::{check, cluster, coded, pages};
use crate::common::{Cluster, GCL, engine_config};

/// Flips a bit in one split of each page, in another split for each. A second call flips it back.
fn flip(cluster: &Cluster, pages: &[GAddr], splits: usize) {
    for (number, addr) in pages.iter().enumerate() {
        flip_split(cluster, *addr, number, |_, split| split == number % splits);
    }
}

/// Flips a bit of the page, which `number` chooses, in the splits that are `chosen` by their node
/// and number.
fn flip_split(cluster: &Cluster, addr: GAddr, number: usize, chosen: impl Fn(u16, usize) -> bool) {
    let (geometry, state) = (cluster.pool.descriptor().geometry(), cluster.pool.state());
    let (range, within) =
        (addr.to_u64() / geometry.range_bytes(), addr.to_u64() % geometry.range_bytes());
    let gcl = (within / GCL as u64) as u32;
    let slabs = &state.ranges[range as usize].slabs;
    for split in 0..slabs.len() {
        let slab = slabs[geometry.split_position(gcl, split)];
        if chosen(slab.node, split) {
            let nodes = cluster.memory.memory_nodes();
            let region = nodes[usize::from(slab.node)].region();
            let at = geometry.data_offset(slab.slab, gcl) as usize + 8 * (number % 7);
            region.store(at, region.load(at) ^ 1 << (number % 64));
        }
    }
}

/// Pages that are in no cache.
async fn cold_pages(cluster: &Cluster) -> Vec<GAddr> {
    let pages = pages(&cluster.engines[0], 200).await;
    for engine in &cluster.engines {
        for _ in 0..2_000 {
            drop(engine.allocate().await.unwrap());
        }
    }
    pages
}

#[test]
fn flipped_bits_are_found_and_repaired() {
    for coding in ["2+1", "4+2", "2+3,mode=correct", "4+2,mode=ec-only"] {
        let splits = coding[..1].parse::<usize>().unwrap() + coding[2..3].parse::<usize>().unwrap();
        let (_, cluster) = cluster(2, splits, coding);
        let env = cluster.runtime.env();
        cluster.run(async {
            let pages = cold_pages(&cluster).await;
            flip(&cluster, &pages, splits);
            let engine = &cluster.engines[1];
            for addr in &pages {
                assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1, "{coding}");
            }
            let found = engine.stats().corruptions;
            assert!(found >= 200 / splits as u64, "{coding}: {found}");
            let started = env.now();
            while engine.stats().repairs < found {
                assert!(env.now() - started < Duration::from_secs(10), "{:?}", engine.stats());
                env.sleep(Duration::from_millis(1)).await;
            }
            if coding.contains("correct") {
                assert!(found >= 190, "{found}: after the first few all splits are compared");
            }
        });
    }
}

#[test]
fn damage_that_a_node_has_found_is_repaired_before_it_leaves() {
    let (_, cluster) = cluster(3, 5, "2+3,mode=correct");
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        flip(&cluster, &pages, 5);
        let [_, first, second] = &cluster.engines[..] else { panic!("three nodes") };
        for addr in &pages {
            assert_eq!(check(&first.shared(*addr).await.unwrap(), *addr), 1);
        }
        // At once, before its task looks for repairs.
        first.close().await.unwrap();
        let found = first.stats().corruptions;
        assert!(found >= 190, "{found}");
        assert_eq!(first.stats().repairs, found);
        let most = pages.len() as u64 - found;
        for addr in &pages {
            assert_eq!(check(&second.shared(*addr).await.unwrap(), *addr), 1);
        }
        assert!(second.stats().corruptions <= most, "{} of {most}", second.stats().corruptions);
    });
}

#[test]
fn in_mode_detect_damage_is_an_error() {
    let (_, cluster) = cluster(2, 3, "2+1,mode=detect");
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        flip(&cluster, &pages, 3);
        let engine = &cluster.engines[1];
        for (number, addr) in pages.iter().enumerate() {
            let got = match number % 2 {
                0 => engine.shared(*addr).await.map(drop),
                _ => engine.exclusive(*addr).await.map(drop),
            };
            assert!(matches!(got, Err(EngineError::PageDamaged { .. })), "{got:?}");
        }
        flip(&cluster, &pages, 3);
        for addr in &pages {
            assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}

#[test]
fn a_memory_node_that_errs_too_often_is_drained() {
    let config =
        EngineConfig { error_correction_limit: 2, slab_regeneration_limit: 20, ..engine_config() };
    let cluster = Cluster::with(2, |_| MemFabric::new(), coded(4, "2+1"), config);
    let env = cluster.runtime.env();
    cluster.run(async {
        let pages = cold_pages(&cluster).await;
        let others = crate::common::pages::pages(&cluster.engines[0], 1_500).await;
        let erring = cluster.pool.state().ranges[0].slabs[1].node;
        let started = env.now();
        while cluster.pool.state().lives(erring) {
            for (number, addr) in pages.iter().enumerate() {
                flip_split(&cluster, *addr, number, |node, _| node == erring);
            }
            for addr in &pages {
                assert_eq!(check(&cluster.engines[1].shared(*addr).await.unwrap(), *addr), 1);
            }
            for addr in &others {
                drop(cluster.engines[1].shared(*addr).await.unwrap());
            }
            assert!(env.now() - started < Duration::from_secs(30), "{:?}", cluster.pool.state());
        }
        assert_eq!(cluster.pool.state().slabs_on(erring), 0);
        for addr in &pages {
            assert_eq!(check(&cluster.engines[0].shared(*addr).await.unwrap(), *addr), 1);
        }
    });
}
