//! The plane is away from memory nodes too, from all or from some.

use selkie_fabric::PeerId;
use selkie_pool::PoolConfig;

use super::reader::{CUT, LEASE, is_recovered_from, ms, read, renewals, silent_for, until};
use crate::common::processes::{in_virtual_time, in_virtual_time_with, value, write};
use crate::common::{page, pool_config};

/// The memory node is away from the plane too, from later on, and gets it back before it is missed
/// itself: until then the death is not complete, and the node serves. It cannot tell a memory node
/// that it does not reach from one that acts.
#[test]
fn a_memory_node_that_gets_the_plane_back_is_heard_before_it_acts() {
    for is_far in [false, true] {
        in_virtual_time(1, LEASE, async |processes, env, network| {
            let two = &processes.engines[1];
            let (addr, reader) = read(&processes, &env).await;
            processes.ways[0].cut(true);
            env.sleep(LEASE / 4).await;
            processes.memory_ways[0].cut(true);
            let pool = &processes.pools[1];
            until(&env, "it is declared dead", || !pool.is_member(CUT)).await;
            assert!(silent_for(&processes, &env) > LEASE);
            assert!(
                env.now() - reader.latest() < ms(1),
                "it serves, as no node has acted upon that"
            );
            let reads = reader.reads();
            env.sleep(ms(100)).await;
            assert!(reader.reads() - reads > 100);
            assert!(!pool.lost().is_empty());
            if is_far {
                // The node keeps its last probes.
                network.cut(PeerId::compute(CUT.get()), PeerId::memory(0));
            }
            processes.memory_ways[0].cut(false);
            is_recovered_from(&env, pool).await;
            write(two, addr, 2).await;
            reader.written(2);
            assert!(env.now() - reader.latest() > LEASE / 32, "it stopped well before");
            // The memory node knows of the death, and is away again.
            processes.memory_ways[0].cut(true);
            env.sleep(LEASE / 2).await;
            processes.ways[0].cut(false);
            reader.ends_expelled(&env).await;
            two.close().await.unwrap();
        });
    }
}

/// The plane is away from all, and the node pauses: its memory nodes have read nothing meanwhile.
#[test]
fn a_node_that_learns_late_that_the_plane_is_away_resumes() {
    in_virtual_time(1, LEASE, async |processes, env, network| {
        let two = &processes.engines[1];
        let (addr, reader) = read(&processes, &env).await;
        processes.all_ways().for_each(|way| way.cut(true));
        let cut_at = env.now();
        env.sleep(2 * LEASE).await;
        assert!(env.now() - reader.latest() < ms(1), "it serves");
        network.slow(PeerId::memory(0), 10_000_000);
        reader.stops(&env).await;
        network.slow(PeerId::memory(0), 1);
        let reads = reader.reads();
        until(&env, "it serves", || reader.reads() > reads + 100).await;
        assert!(env.now() - cut_at < 3 * LEASE);
        write(two, addr, 2).await;
        reader.written(2);
        env.sleep(LEASE).await;
        assert_eq!(renewals(&processes), 0, "all without the plane");
        processes.all_ways().for_each(|way| way.cut(false));
        until(&env, "it makes sure", || renewals(&processes) == 1).await;
        assert!(reader.end().await.is_none());
        processes.close().await;
    });
}

/// A memory node that alone is away from the plane does not show that the plane is away. It fences
/// no node, so that the recovery ends only once it is back: it may be all that has these pages.
#[test]
fn a_memory_node_that_alone_is_away_is_not_relied_on() {
    in_virtual_time(2, LEASE, async |processes, env, _| {
        let two = &processes.engines[1];
        let (addr, reader) = read(&processes, &env).await;
        processes.ways[0].cut(true);
        processes.memory_ways[0].cut(true);
        let (reads, cut_at) = (reader.reads(), env.now());
        reader.stops(&env).await;
        assert!(reader.reads() - reads > 1_000, "it served before");
        assert!(reader.latest() - cut_at < LEASE, "in time");
        let pool = &processes.pools[1];
        until(&env, "it is waited for", || pool.is_memory_suspected(0)).await;
        assert!(!pool.is_memory_dead(0) && !pool.is_memory_dead(1));
        env.sleep(LEASE).await;
        assert!(!pool.lost().is_empty(), "not all memory nodes have fenced the node");
        processes.memory_ways[0].cut(false);
        is_recovered_from(&env, pool).await;
        write(two, addr, 2).await;
        reader.written(2);
        reader.ends_expelled(&env).await;
        assert_eq!(value(two, addr).await.unwrap(), 2);
    });
}

/// A node had granted pages, and they were on their way home, when a memory node died and no node
/// could say so: the node gave them up, and later found itself as their holder.
#[test]
fn pages_on_their_way_home_wait_for_the_word_that_a_memory_node_is_dead() {
    let config = PoolConfig { coding: "2+1".parse().unwrap(), ..pool_config(4, 8 << 20) };
    in_virtual_time_with(config, LEASE, async |processes, env, network| {
        let [one, two] = &processes.engines;
        let mut pages = Vec::new();
        for number in 0..60 {
            let addr = page(one).await;
            write(one, addr, number).await;
            pages.push(addr);
        }
        processes.all_ways().for_each(|way| way.cut(true));
        network.crash(PeerId::memory(1));
        let reads = (0..).zip(&pages).map(|(number, addr)| {
            let (two, addr) = (two.clone(), *addr);
            env.spawn("read", async move {
                assert_eq!(value(&two, addr).await.unwrap(), number);
            })
        });
        let reads: Vec<_> = reads.collect();
        env.sleep(LEASE / 2).await;
        processes.all_ways().for_each(|way| way.cut(false));
        for read in reads {
            read.join().await.unwrap();
        }
        for (number, addr) in (100..).zip(&pages) {
            write(one, *addr, number).await;
            assert_eq!(value(two, *addr).await.unwrap(), number);
        }
        processes.close().await;
    });
}
