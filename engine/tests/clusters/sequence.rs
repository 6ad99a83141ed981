//! The sequence numbers of pages: counted once a guard that changed something, wherever the page
//! goes.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]

use selkie_engine::{Engine, GAddr};

use crate::common::load::until;
use crate::common::pages::cluster;
use crate::common::{Cluster, page};

async fn psn(engine: &Engine, addr: GAddr) -> u64 {
    let guard = engine.shared(addr).await.unwrap();
    // What a hit shows is the same.
    let cached = engine.psn_if_cached(addr);
    assert!(cached.is_none_or(|cached| cached == guard.psn()));
    guard.psn()
}

async fn change(engine: &Engine, addr: GAddr) {
    engine.exclusive(addr).await.unwrap().bytes_mut(8..16).fill(1);
}

#[test]
fn a_guard_counts_once_if_it_changed_something() {
    let cluster = Cluster::new(2);
    cluster.run(async {
        let engine = &cluster.engines[0];
        let addr = page(engine).await;
        let before = psn(engine, addr).await;
        drop(engine.exclusive(addr).await.unwrap());
        assert_eq!(psn(engine, addr).await, before, "nothing was changed");
        let mut guard = engine.exclusive(addr).await.unwrap();
        guard.bytes_mut(8..8).fill(1);
        drop(guard);
        assert_eq!(psn(engine, addr).await, before, "no byte was");
        let mut guard = engine.exclusive(addr).await.unwrap();
        guard.bytes_mut(8..16).fill(1);
        guard.bytes_mut(32..48).fill(2);
        assert_eq!(guard.psn(), before, "of what it was before");
        drop(guard);
        assert_eq!(psn(engine, addr).await, before + 1);
        let mut guard = engine.exclusive(addr).await.unwrap();
        guard.bytes_mut(8..16).fill(2);
        let guard = guard.downgrade();
        assert_eq!(guard.psn(), before + 2, "readers may come in");
        drop(guard);
        let guard = engine.shared(addr).await.unwrap();
        let mut guard = guard.try_upgrade().await.map_err(|(_, error)| error).unwrap();
        guard.bytes_mut(8..16).fill(3);
        drop(guard);
        assert_eq!(psn(engine, addr).await, before + 3);
    });
    cluster.close_and_check();
}

#[test]
fn the_number_goes_wherever_the_page_goes() {
    for coding in ["plain", "replicate=2", "2+1", "4+2", "2+2,journal=always"] {
        let (_, cluster) = cluster(3, 6, coding);
        let env = cluster.runtime.env();
        cluster.run(async {
            let addr = page(&cluster.engines[0]).await;
            let mut number = psn(&cluster.engines[0], addr).await;
            for round in 0..30 {
                let engine = &cluster.engines[round % 3];
                change(engine, addr).await;
                number += 1;
                if round % 2 == 0 {
                    // Home, and from there.
                    engine.evict(addr).await.unwrap();
                    until(&env, &cluster, "is given up", || engine.psn_if_cached(addr).is_none())
                        .await;
                }
                for engine in &cluster.engines {
                    assert_eq!(psn(engine, addr).await, number, "{coding}");
                }
            }
            // It goes on when the page is used for something else.
            let engine = &cluster.engines[0];
            let guard = engine.exclusive(addr).await.unwrap();
            engine.free(guard);
            for _ in 0..5_000 {
                let guard = engine.allocate().await.unwrap();
                if guard.addr() == addr {
                    assert!(guard.psn() >= number, "{coding}: {} after {number}", guard.psn());
                    return;
                }
                drop(guard);
                env.pause(std::time::Duration::from_micros(100)).await;
            }
            panic!("{coding}: the page is not used again");
        });
    }
}
