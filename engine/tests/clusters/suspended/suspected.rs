//! Memory nodes that are silent: how many are taken for dead, and what becomes of the others.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use selkie_pool::PoolConfig;

use super::reader::{LEASE, until};
use crate::common::processes::{in_virtual_time_with, value, write};
use crate::common::{page, pool_config};

fn coded(memory_nodes: usize) -> PoolConfig {
    PoolConfig { coding: "2+1".parse().unwrap(), ..pool_config(memory_nodes, 8 << 20) }
}

fn plain(memory_nodes: usize) -> PoolConfig {
    PoolConfig { coding: selkie_pool::Coding::PLAIN, ..pool_config(memory_nodes, 8 << 20) }
}

/// Both were declared dead with the same change, though their memory was there, and the pages with
/// them.
#[test]
fn two_memory_nodes_cut_off_from_the_plane_are_waited_for_and_lose_nothing() {
    in_virtual_time_with(coded(4), LEASE, async |processes, env, _| {
        let [one, two] = &processes.engines;
        let pool = &processes.pools[1];
        let mut pages = Vec::new();
        for number in 0..200 {
            let addr = page(one).await;
            write(one, addr, number).await;
            pages.push(addr);
        }
        processes.memory_ways[..2].iter().for_each(|way| way.cut(true));
        until(&env, "both are suspected", || {
            pool.is_memory_suspected(0) && pool.is_memory_suspected(1)
        })
        .await;
        env.sleep(5 * LEASE).await;
        assert!((0..4).all(|node| !pool.is_memory_dead(node)), "more than the pool can spare");
        // The data path does not know of that.
        for (number, addr) in (0..).zip(&pages) {
            assert_eq!(value(two, *addr).await.unwrap(), number);
            write(two, *addr, number + 1_000).await;
        }
        processes.memory_ways[..2].iter().for_each(|way| way.cut(false));
        until(&env, "they are back", || !(0..4).any(|node| pool.is_memory_suspected(node))).await;
        for (number, addr) in (1_000..).zip(&pages) {
            assert_eq!(value(one, *addr).await.unwrap(), number);
        }
        processes.close().await;
    });
}

/// The second is declared dead when what the first had is elsewhere, and not before.
#[test]
fn a_coded_pool_spares_the_next_memory_node_once_it_is_whole_again() {
    in_virtual_time_with(coded(4), LEASE, async |processes, env, network| {
        let one = &processes.engines[0];
        let pool = &processes.pools[1];
        let mut pages = Vec::new();
        for number in 0..200 {
            let addr = page(one).await;
            write(one, addr, number).await;
            pages.push(addr);
        }
        // No slab can be filled while the others are this slow.
        network.slow(selkie_fabric::PeerId::memory(2), 1_000);
        processes.memory_ways[0].cut(true);
        until(&env, "the first is dead", || pool.is_memory_dead(0)).await;
        assert!(!pool.state().may_spare(1), "it has lost what it may lose");
        processes.memory_ways[1].cut(true);
        until(&env, "the second is suspected", || {
            pool.is_memory_suspected(1) || pool.state().may_spare(1)
        })
        .await;
        network.slow(selkie_fabric::PeerId::memory(2), 1);
        until(&env, "it is whole", || pool.state().may_spare(1)).await;
        assert_eq!(pool.state().slabs_on(0), 0);
        until(&env, "the second is dead", || pool.is_memory_dead(1)).await;
        for (number, addr) in (0..).zip(&pages) {
            assert_eq!(value(one, *addr).await.unwrap(), number);
        }
    });
}

/// A plain pool has no other copy: its memory node is waited for until a person gives it up.
#[test]
fn a_plain_pool_waits_for_its_memory_node() {
    in_virtual_time_with(plain(2), LEASE, async |processes, env, _| {
        let [one, two] = &processes.engines;
        let pool = &processes.pools[1];
        let addr = page(one).await;
        write(one, addr, 7).await;
        processes.memory_ways[1].cut(true);
        until(&env, "it is suspected", || pool.is_memory_suspected(1)).await;
        env.sleep(5 * LEASE).await;
        assert!(!pool.is_memory_dead(1));
        assert_eq!(value(two, addr).await.unwrap(), 7);
        processes.memory_ways[1].cut(false);
        until(&env, "it is back", || !pool.is_memory_suspected(1)).await;
        processes.close().await;
    });
}
