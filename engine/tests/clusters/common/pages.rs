//! Pages whose every byte tells what they are, in coded pools.

use std::sync::Arc;

use selkie_engine::{Engine, GAddr};
use selkie_fabric::mem::MemFabric;
use selkie_pool::PoolConfig;

use super::{Cluster, PAGE, engine_config, get, pool_config};

pub fn coded(memory_nodes: usize, coding: &str) -> PoolConfig {
    PoolConfig { coding: coding.parse().unwrap(), ..pool_config(memory_nodes, 8 << 20) }
}

pub fn cluster(engines: usize, memory_nodes: usize, coding: &str) -> (Arc<MemFabric>, Cluster) {
    let mem = MemFabric::new();
    let fabric = Arc::clone(&mem);
    let config = coded(memory_nodes, coding);
    (mem, Cluster::with(engines, move |_| fabric, config, engine_config()))
}

/// Every word of the page depends on the page and on the value.
pub fn fill(page: &mut [u8], addr: GAddr, value: u64) {
    for (word, place) in page.chunks_exact_mut(8).zip(0_u64..) {
        let word_value =
            if place == 0 { value } else { addr.to_u64() ^ value.rotate_left(place as u32) };
        word.copy_from_slice(&word_value.to_le_bytes());
    }
}

pub async fn write(engine: &Engine, addr: GAddr, value: u64) {
    let mut page = engine.exclusive(addr).await.unwrap();
    fill(page.bytes_mut(0..PAGE), addr, value);
}

pub fn check(page: &[u8], addr: GAddr) -> u64 {
    let value = get(page);
    let mut expected = vec![0; PAGE];
    fill(&mut expected, addr, value);
    assert_eq!(page, &expected[..], "{addr}");
    value
}

pub async fn pages(engine: &Engine, count: usize) -> Vec<GAddr> {
    let mut pages = Vec::new();
    for _ in 0..count {
        let addr = engine.allocate().await.unwrap().addr();
        write(engine, addr, 1).await;
        pages.push(addr);
    }
    pages
}
