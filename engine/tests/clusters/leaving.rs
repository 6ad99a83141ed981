//! Nodes that leave while others ask them for pages.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use selkie_engine::{EngineError, GAddr};
use selkie_fabric::PeerId;

use crate::common::processes::{Processes, in_virtual_time, value, write};

const LEASE: Duration = Duration::from_secs(2);
const PAGES: usize = 32;

/// Pages that the second node has changed.
async fn held_by_the_second(processes: &Processes) -> Vec<GAddr> {
    let mut addrs = Vec::new();
    for number in 0..PAGES {
        let addr = processes.engines[0].allocate().await.unwrap().addr();
        write(&processes.engines[1], addr, number as u64 + 1).await;
        addrs.push(addr);
    }
    addrs
}

/// Requests that do not reach a node before its process ends are answered for it: the pages are
/// home, and no word names it.
#[test]
fn pages_are_had_that_were_asked_of_a_node_that_has_left_and_ended() {
    in_virtual_time(3, LEASE, async |processes, env, controls| {
        let addrs = held_by_the_second(&processes).await;
        let (first, second) = (PeerId::compute(0), PeerId::compute(1));
        env.sleep(Duration::from_millis(10)).await;
        // What the first node asks is on its way from now on.
        controls.block(first, second);
        let read = Arc::new(AtomicUsize::new(0));
        let mut readers = Vec::new();
        for (number, addr) in addrs.iter().copied().enumerate() {
            let (engine, read) = (processes.engines[0].clone(), Arc::clone(&read));
            readers.push(env.spawn("read", async move {
                assert_eq!(value(&engine, addr).await.unwrap(), number as u64 + 1);
                read.fetch_add(1, Ordering::Relaxed);
            }));
        }
        env.sleep(Duration::from_millis(10)).await;
        assert_eq!(read.load(Ordering::Relaxed), 0, "the way is blocked");
        let before = env.now();
        processes.engines[1].close().await.unwrap();
        controls.kill(second);
        controls.unblock(first, second);
        for reader in readers {
            reader.join().await.unwrap();
        }
        assert!(env.now() - before < LEASE, "{:?}", env.now() - before);
        processes.engines[0].close().await.unwrap();
    });
}

/// A node whose page stays latched cannot be taken for one that has given all pages up.
#[test]
fn a_node_that_cannot_give_a_page_up_stays_a_member() {
    in_virtual_time(3, LEASE, async |processes, _, _| {
        let addrs = held_by_the_second(&processes).await;
        let held = processes.engines[1].exclusive(addrs[0]).await.unwrap();
        let closed = processes.engines[1].close().await;
        assert!(matches!(closed, Err(EngineError::Timeout { addr, .. }) if addr == addrs[0]));
        assert!(processes.pools[0].is_member(selkie_pool::ComputeIndex::new(1)));
        drop(held);
        assert_eq!(value(&processes.engines[0], addrs[0]).await.unwrap(), 1);
        processes.close().await;
    });
}

/// It leased one extent after the other, gave each back at once, and so used up the pool.
#[test]
fn a_node_that_leaves_leases_nothing_for_callers_that_are_late() {
    in_virtual_time(3, LEASE, async |processes, env, _| {
        let [one, two] = &processes.engines;
        let addr = one.allocate().await.unwrap().addr();
        // It has no line at hand, and cannot leave before it has let this one go.
        let page = two.exclusive(addr).await.unwrap();
        let before = one.leased_bytes().await.unwrap();
        let closing = {
            let two = two.clone();
            env.spawn("close", async move { two.close().await.unwrap() })
        };
        env.sleep(Duration::from_millis(1)).await;
        let late = two.allocate().await.map(|page| page.addr());
        assert!(matches!(late, Err(EngineError::Closed)), "{late:?}");
        let late = two.allocate_counter().await;
        assert!(matches!(late, Err(EngineError::Closed)), "{late:?}");
        assert_eq!(one.leased_bytes().await.unwrap(), before);
        drop(page);
        closing.join().await.unwrap();
        one.close().await.unwrap();
    });
}
