//! Checks of order: within a chain, over the chains of a queue pair, and as third parties see it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::check::{Check, CheckFailure, CheckResult, CheckSubject};
use super::testbed::{MEMORY, Race, Testbed, ensure, equal, filled, word_read, write_word};
use crate::buf::Buf;
use crate::id::PeerId;
use crate::verb::{Chain, Verb};

pub(super) const CHECKS: &[Check] = &[
    Check { name: "verbs of a chain execute in order", run: |s| Box::pin(within_a_chain(s)) },
    Check { name: "chains of a queue pair execute in order", run: |s| Box::pin(over_chains(s)) },
    Check { name: "completions of a queue pair come in order", run: |s| Box::pin(completions(s)) },
    Check { name: "a write is published by a later word", run: |s| Box::pin(word_publishes(s)) },
    Check {
        name: "a write is published by a later atomic",
        run: |s| Box::pin(atomic_publishes(s)),
    },
    Check {
        name: "a read keeps behind an earlier atomic",
        run: |s| Box::pin(read_after_atomic(s)),
    },
];

/// Rounds of the checks in which tasks race.
const ROUNDS: u64 = 100;

/// Words of the payloads that are published: a default page.
const PAYLOAD_WORDS: usize = 256;

/// Where payloads are; the word that publishes them is at 0.
const PAYLOAD_AT: u64 = 4096;

async fn within_a_chain(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let at = testbed.at(0);
    let mut chain = Chain::from([
        write_word(at, 1),
        Verb::fetch_and_add(at, 1),
        Verb::read(at, Buf::zeroed(8)),
        Verb::compare_and_swap(at, 2, 9),
        Verb::read(at, Buf::zeroed(16)),
    ]);
    chain.push(Verb::write(at, filled(2, 4)));
    chain.push(Verb::fetch_and_add(at, 0));
    let chain = testbed.post(chain).await?;
    equal("add after write", chain.old(1), Some(1))?;
    equal("read after add", word_read(&chain, 2)?, 2)?;
    equal("swap after read", chain.old(3), Some(2))?;
    equal("read after swap", word_read(&chain, 4)?, 9)?;
    equal("add after long write", chain.old(6), Some(4))
}

async fn over_chains(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let at = testbed.at(8);
    let post = |index| {
        let verbs = [write_word(at, index), Verb::fetch_and_add(at, 1000)];
        let written = testbed.queue_pair.post(verbs.into());
        (written, testbed.queue_pair.post(Verb::read(at, Buf::zeroed(8)).into()))
    };
    let posted: Vec<_> = (0..100).map(post).collect();
    for (index, (written, read)) in (0..).zip(posted) {
        equal("add after write", written.await?.old(1), Some(index))?;
        equal("read of the next chain", word_read(&read.await?, 0)?, index + 1000)?;
    }
    Ok(())
}

async fn completions(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let post = |_| testbed.queue_pair.post(Verb::fetch_and_add(testbed.at(0), 1).into());
    let mut posted: Vec<_> = (0..100).map(post).collect();
    // Awaits only the last; by then all the others must be there.
    let last = posted.pop().ok_or_else(|| CheckFailure::new("nothing posted"))?;
    equal("old value of the last", last.await?.old(0), Some(99))?;
    for (index, mut earlier) in (0..).zip(posted) {
        let result = earlier.try_take();
        let claim = || format!("chain {index} of 100 is not complete though the last one is");
        ensure(result.is_some(), claim)?;
        let old = result.transpose()?.and_then(|chain| chain.old(0));
        equal("old value", old, Some(index))?;
    }
    Ok(())
}

/// A task writes a payload of the round's number and publishes it with `publish`; the owner of the
/// memory waits for the number at 0 and must find the payload complete.
async fn payload_is_there(
    subject: CheckSubject,
    publish: fn(&Testbed, u64) -> Verb,
    in_one_chain: bool,
) -> CheckResult {
    let testbed = Arc::new(Testbed::new(subject)?);
    let sender = Arc::clone(&testbed);
    let done = Arc::new(AtomicBool::new(false));
    let sent = Arc::clone(&done);
    let task = testbed.env.spawn("conformance-sender", async move {
        for round in 1..=ROUNDS {
            // Waits until the receiver has looked, so that it must find this very round.
            while sender.region.load(8) != round - 1 {
                sender.env.yield_now().await;
            }
            let payload = Verb::write(sender.at(PAYLOAD_AT), filled(PAYLOAD_WORDS, round));
            let publish = publish(&sender, round);
            if in_one_chain {
                drop(sender.queue_pair.post([payload, publish].into()));
            } else {
                drop(sender.queue_pair.post(payload.into()));
                drop(sender.queue_pair.post(publish.into()));
            }
        }
        sent.store(true, Ordering::Release);
    });
    let mut payload = vec![0; PAYLOAD_WORDS * 8];
    for round in 1..=ROUNDS {
        while testbed.region.load(0) != round {
            testbed.env.yield_now().await;
        }
        testbed.region.read(PAYLOAD_AT as usize, &mut payload);
        let expected = round.to_le_bytes();
        let behind = payload.chunks(8).filter(|word| **word != expected).count();
        equal("words not yet there when they were published", behind, 0)?;
        testbed.region.store(8, round);
    }
    task.join().await?;
    equal("the sender got through", done.load(Ordering::Acquire), true)
}

async fn word_publishes(subject: CheckSubject) -> CheckResult {
    payload_is_there(subject, |testbed, round| write_word(testbed.at(0), round), false).await
}

async fn atomic_publishes(subject: CheckSubject) -> CheckResult {
    payload_is_there(subject, |testbed, _| Verb::fetch_and_add(testbed.at(0), 1), true).await
}

async fn read_after_atomic(subject: CheckSubject) -> CheckResult {
    let testbed = Arc::new(Testbed::new(subject)?);
    let race = Race::of(2, &testbed.env);
    let last = Arc::new(AtomicU64::new(u64::MAX));
    let (writer, pace, end) = (Arc::clone(&testbed), race.clone(), Arc::clone(&last));
    let task = testbed.env.spawn("conformance-writer", async move {
        pace.start().await;
        let mut round = 0;
        while pace.continues(round) {
            round += 1;
            let payload = Verb::write(writer.at(PAYLOAD_AT), filled(PAYLOAD_WORDS, round));
            let count = Verb::fetch_and_add(writer.at(0), 1);
            drop(writer.queue_pair.post([payload, count].into()).await);
        }
        end.store(round, Ordering::Release);
    });
    let reader = testbed.fabric.join(PeerId::compute(1))?;
    let queue_pair = reader.connect(MEMORY)?;
    race.start().await;
    loop {
        let read = Verb::read(testbed.at(PAYLOAD_AT), Buf::zeroed(PAYLOAD_WORDS * 8));
        let chain = [Verb::fetch_and_add(testbed.at(0), 0), read].into();
        let chain = queue_pair.post(chain).await?;
        let count = chain.old(0).unwrap_or(u64::MAX);
        let oldest = chain.buf(1).and_then(|buf| buf.words().iter().min().copied());
        let claim = || format!("the atomic saw round {count}, the read behind it {oldest:?}");
        ensure(oldest.is_some_and(|oldest| oldest >= count), claim)?;
        if count == last.load(Ordering::Acquire) {
            break;
        }
        testbed.env.yield_now().await;
    }
    Ok(task.join().await?)
}
