//! Checks of doorbells: rung after the payload, seen by every waiter, never lost.

use std::sync::Arc;

use super::check::{Check, CheckFailure, CheckResult, CheckSubject};
use super::testbed::{MEMORY, Testbed, ensure, equal, filled};
use crate::api::{LocalRegion, QueuePair};
use crate::buf::Buf;
use crate::id::{PeerId, RemoteAddr};
use crate::verb::Verb;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "only writes with doorbell ring, once each", run: |s| Box::pin(rings_once(s)) },
    Check { name: "the doorbell of another region is silent", run: |s| Box::pin(other_region(s)) },
    Check { name: "the payload is there when the doorbell rings", run: |s| Box::pin(payload(s)) },
    Check { name: "a doorbell wakes all its waiters", run: |s| Box::pin(many_waiters(s)) },
    Check { name: "no wake-up is lost between two nodes", run: |s| Box::pin(ping_pong(s)) },
];

/// Rings of the checks in which tasks race.
const ROUNDS: u64 = 100;

async fn rings_once(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let doorbell = testbed.region.doorbell();
    equal("rings of a fresh region", doorbell.count(), 0)?;
    let at = testbed.at(0);
    let silent = [
        Verb::read(at, Buf::zeroed(8)),
        Verb::write(at, Buf::zeroed(8)),
        Verb::compare_and_swap(at, 0, 1),
        Verb::fetch_and_add(at, 1),
    ];
    testbed.post(silent).await?;
    equal("rings of other verbs", doorbell.count(), 0)?;
    let ring = |words| Verb::write_with_doorbell(at, filled(words, 9));
    testbed.post([ring(1), ring(64)]).await?;
    equal("rings of two writes", doorbell.count(), 2)?;
    equal("payload", testbed.region.load(63 * 8), 9)
}

async fn other_region(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let other = testbed.memory.register(4096)?;
    let at = RemoteAddr::new(other.key(), 0);
    testbed.post([Verb::write_with_doorbell(at, filled(1, 1))]).await?;
    equal("the region's own", other.doorbell().count(), 1)?;
    equal("the other's", testbed.region.doorbell().count(), 0)
}

async fn payload(subject: CheckSubject) -> CheckResult {
    let testbed = Arc::new(Testbed::new(subject)?);
    let sender = Arc::clone(&testbed);
    let task = testbed.env.spawn("conformance-sender", async move {
        for round in 1..=ROUNDS {
            let verb = Verb::write_with_doorbell(sender.at(0), filled(64, round));
            drop(sender.queue_pair.post(verb.into()).await);
        }
    });
    let mut seen = 0;
    let mut words = vec![0; 64 * 8];
    while seen < ROUNDS {
        seen = testbed.region.doorbell().wait_past(seen).await;
        testbed.region.read(0, &mut words);
        for (word, _) in words.as_chunks().0.iter().zip(0..64) {
            let value = u64::from_le_bytes(*word);
            ensure(value >= seen, || format!("ring {seen} is seen, but the payload is {value}"))?;
        }
    }
    Ok(task.join().await?)
}

async fn many_waiters(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let wait = |_| {
        let region = Arc::clone(&testbed.region);
        testbed.env.spawn("conformance-waiter", async move {
            let mut seen = 0;
            while seen < ROUNDS {
                let count = region.doorbell().wait_past(seen).await;
                assert!(count > seen, "woken at {count} though {seen} was known");
                seen = count;
            }
        })
    };
    let waiters: Vec<_> = (0..8).map(wait).collect();
    for round in 0..ROUNDS {
        // Let them fall asleep now and then.
        if round % 16 == 0 {
            testbed.env.yield_now().await;
        }
        testbed.post([Verb::write_with_doorbell(testbed.at(0), filled(1, round))]).await?;
    }
    for waiter in waiters {
        waiter.join().await?;
    }
    Ok(())
}

/// One side of a game: waits for each of its own rings, and answers it at the other side.
async fn play(
    mine: Arc<dyn LocalRegion>,
    other: (Arc<dyn QueuePair>, RemoteAddr),
    serves: bool,
) -> CheckResult {
    let (queue_pair, at) = other;
    for round in 1..=ROUNDS {
        let ring = || queue_pair.post(Verb::write_with_doorbell(at, filled(1, round)).into());
        if serves {
            ring().await?;
        }
        while mine.load(0) < round {
            let seen = mine.doorbell().count();
            if mine.load(0) < round {
                mine.doorbell().wait_past(seen).await;
            }
        }
        if !serves {
            ring().await?;
        }
    }
    Ok(())
}

async fn ping_pong(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let near = testbed.node.register(4096)?;
    let far = Arc::clone(&testbed.region);
    let back = testbed.memory.connect(testbed.node.id())?;
    let forth = Arc::clone(&testbed.queue_pair);
    let (near_at, far_at) = (RemoteAddr::new(near.key(), 0), testbed.at(0));
    let task = testbed.env.spawn("conformance-returner", async move {
        let played = play(far, (back, near_at), false).await;
        assert_eq!(played, Ok(()));
    });
    play(near, (forth, far_at), true).await?;
    task.join().await?;
    // A third node that only listens is not needed for the game, but must not disturb it either.
    let listener = testbed.fabric.join(PeerId::compute(9))?;
    let rings = testbed.region.doorbell().count();
    equal("peer of a late queue pair", listener.connect(MEMORY)?.peer(), MEMORY)?;
    if rings == ROUNDS { Ok(()) } else { Err(CheckFailure::new(format!("{rings} rings"))) }
}
