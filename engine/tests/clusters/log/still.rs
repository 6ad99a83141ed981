//! A memory node of a plain pool that stands still for longer than a lease: nothing is taken for
//! dead, and all goes on when it goes on. When the links to it have ended meanwhile, compute nodes
//! end and say so; what they had acknowledged is in their logs. In virtual time.
#![expect(clippy::indexing_slicing, reason = "a test that meets something else has failed")]

use std::time::Duration;

use selkie_engine::EngineError;
use selkie_engine::log::LogTo;
use selkie_fabric::PeerId;
use selkie_fabric::env::Env;
use selkie_fabric::sim::Controls;

use super::cut::{LEASE, LINKS_END, Writer, with_cuts_and};
use crate::common::processes::Processes;

const MEMORY_NODES: u16 = 4;

/// Has a memory node stand still for so long: it executes nothing, and shows no sign of life.
async fn stand_still(
    processes: &Processes,
    env: &Env,
    controls: &Controls,
    (memory, long): (u16, Duration),
) {
    let way = &processes.memory_ways[usize::from(memory)];
    controls.freeze(PeerId::memory(memory));
    way.cut(true);
    env.sleep(long).await;
    controls.thaw(PeerId::memory(memory));
    way.cut(false);
}

fn sum(writer: &Writer) -> u64 {
    writer.acknowledged.lock().iter().sum()
}

#[test]
fn a_plain_pool_goes_on_when_a_memory_node_does_that_stood_still_for_longer_than_a_lease() {
    for log in [None, Some(LogTo::Memory)] {
        for memory in 0..MEMORY_NODES {
            for long in [LEASE * 5 / 4, LEASE * 3, LINKS_END * 15 / 16] {
                let case = format!("log: {}, mem{memory}, {long:?}", log.is_some());
                with_cuts_and("plain", log.clone(), async |processes, env, controls| {
                    let [one, two] = &processes.engines;
                    let writers = [Writer::start(one, env).await, Writer::start(two, env).await];
                    stand_still(processes, env, controls, (memory, long)).await;
                    let before = writers.each_ref().map(sum);
                    env.sleep(3 * LEASE).await;
                    for (writer, before) in writers.iter().zip(before) {
                        assert!(writer.ended.lock().is_none(), "{case}: {:?}", writer.ended.lock());
                        assert!(sum(writer) > before, "{case}: it goes on");
                    }
                    let dead =
                        (0..MEMORY_NODES.into()).any(|m| processes.pools[0].is_memory_dead(m));
                    assert!(!dead, "{case}: silence condemns none");
                    writers[0].others_go_on(two, env).await;
                    writers[1].others_go_on(one, env).await;
                    processes.close().await;
                });
            }
        }
    }
}

/// No node reaches the memory node for so long that links end, and what was under way with them.
/// Compute nodes that had something under way end then, and say so.
#[test]
fn what_a_plain_pool_had_acknowledged_is_there_when_its_links_have_ended() {
    let mut ended = 0;
    for memory in 0..MEMORY_NODES {
        with_cuts_and("plain", Some(LogTo::Memory), async |processes, env, controls| {
            let [one, two] = &processes.engines;
            let writers = [Writer::start(one, env).await, Writer::start(two, env).await];
            let (victim, all) = (PeerId::memory(memory), [0, 1].map(PeerId::compute));
            let way = &processes.memory_ways[usize::from(memory)];
            all.iter().for_each(|node| controls.cut(*node, victim));
            way.cut(true);
            env.sleep(LINKS_END * 3 / 2).await;
            all.iter().for_each(|node| controls.heal(*node, victim));
            way.cut(false);
            env.sleep(3 * LEASE).await;
            for writer in &writers {
                match &*writer.ended.lock() {
                    None => {}
                    Some(EngineError::Unreachable { peer }) => {
                        assert_eq!(*peer, victim);
                        ended += 1;
                    }
                    Some(other) => panic!("mem{memory}: {other}"),
                }
            }
            assert!((0..MEMORY_NODES.into()).all(|node| !processes.pools[0].is_memory_dead(node)));
            let third = processes.start_third(env).await;
            for writer in &writers {
                writer.others_go_on(&third, env).await;
            }
            third.close().await.unwrap();
        });
    }
    assert!(ended > 0, "some had something under way");
}
