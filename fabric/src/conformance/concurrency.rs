//! Checks of atomicity: tasks on several threads race for the same words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::check::{Check, CheckResult, CheckSubject};
use super::testbed::{MEMORY, Race, Testbed, ensure, equal, filled, write_word};
use crate::api::QueuePair;
use crate::buf::Buf;
use crate::id::{PeerId, RemoteAddr};
use crate::verb::Verb;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "adds of four tasks lose nothing", run: |s| Box::pin(adds(s)) },
    Check { name: "swaps of four tasks lose nothing", run: |s| Box::pin(swaps(s)) },
    Check { name: "tasks may share a queue pair", run: |s| Box::pin(shared_queue_pair(s)) },
    Check { name: "words never tear", run: |s| Box::pin(words_never_tear(s)) },
];

const TASKS: u16 = 4;

/// A queue pair from a node of its own for each task.
fn queue_pairs(testbed: &Testbed) -> Result<Vec<Arc<dyn QueuePair>>, crate::FabricError> {
    (1..=TASKS).map(|index| testbed.fabric.join(PeerId::compute(index))?.connect(MEMORY)).collect()
}

/// Lets a task for each of `queue_pairs` add its own number to one word, and checks the sum.
async fn race_of_adds(testbed: &Testbed, queue_pairs: Vec<Arc<dyn QueuePair>>) -> CheckResult {
    let race = Race::of(queue_pairs.len() as u64, &testbed.env);
    let expected = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = queue_pairs
        .into_iter()
        .zip(1..)
        .map(|(queue_pair, delta)| {
            let (race, expected) = (race.clone(), Arc::clone(&expected));
            testbed
                .env
                .spawn("conformance-adder", adder(race, queue_pair, testbed.at(0), delta, expected))
        })
        .collect();
    for task in tasks {
        task.join().await?;
    }
    equal("sum", testbed.region.load(0), expected.load(Ordering::Acquire))
}

async fn adder(
    race: Race,
    queue_pair: Arc<dyn QueuePair>,
    at: RemoteAddr,
    delta: u64,
    expected: Arc<AtomicU64>,
) {
    race.start().await;
    let mut last = None;
    let mut rounds = 0;
    while race.continues(rounds) {
        let posted = queue_pair.post(Verb::fetch_and_add(at, delta).into()).await;
        let old = posted.ok().and_then(|chain| chain.old(0));
        assert!(old > last, "old values must grow: {old:?} after {last:?}");
        last = old;
        rounds += 1;
    }
    expected.fetch_add(rounds * delta, Ordering::AcqRel);
}

async fn adds(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let queue_pairs = queue_pairs(&testbed)?;
    race_of_adds(&testbed, queue_pairs).await
}

async fn shared_queue_pair(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let queue_pairs = (0..TASKS).map(|_| Arc::clone(&testbed.queue_pair)).collect();
    race_of_adds(&testbed, queue_pairs).await
}

/// Counts one word up by compare-and-swap, and adds the number of its swaps to `total`.
async fn swapper(
    race: Race,
    queue_pair: Arc<dyn QueuePair>,
    at: RemoteAddr,
    total: Arc<AtomicU64>,
) {
    race.start().await;
    let (mut expected, mut swapped, mut rounds) = (0, 0, 0);
    while race.continues(rounds) {
        let verb = Verb::compare_and_swap(at, expected, expected + 1);
        let posted = queue_pair.post(verb.into()).await;
        let old = posted.ok().and_then(|chain| chain.old(0));
        #[expect(clippy::expect_used, reason = "a check fails by a panic of its task")]
        let old = old.expect("a compare-and-swap completes with its old value");
        swapped += u64::from(old == expected);
        expected = if old == expected { expected + 1 } else { old };
        rounds += 1;
    }
    total.fetch_add(swapped, Ordering::AcqRel);
}

async fn swaps(subject: CheckSubject) -> CheckResult {
    let testbed = Testbed::new(subject)?;
    let race = Race::of(u64::from(TASKS), &testbed.env);
    let total = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = queue_pairs(&testbed)?
        .into_iter()
        .map(|queue_pair| {
            let (race, total, at) = (race.clone(), Arc::clone(&total), testbed.at(64));
            testbed.env.spawn("conformance-swapper", swapper(race, queue_pair, at, total))
        })
        .collect();
    for task in tasks {
        task.join().await?;
    }
    equal("swaps", testbed.region.load(64), total.load(Ordering::Acquire))
}

/// Two tasks write words of all zeros and all ones, one of them as part of a longer payload.
async fn words_never_tear(subject: CheckSubject) -> CheckResult {
    let testbed = Arc::new(Testbed::new(subject)?);
    let running = Arc::new(AtomicU64::new(2));
    let race = Race::of(2, &testbed.env);
    let writers =
        queue_pairs(&testbed)?.into_iter().take(2).zip([1, 8]).map(|(queue_pair, words)| {
            let (at, running, race) = (testbed.at(0), Arc::clone(&running), race.clone());
            testbed.env.spawn("conformance-writer", async move {
                race.start().await;
                let mut round = 0;
                while race.continues(round) {
                    let value = if round % 2 == 0 { u64::MAX } else { 0 };
                    round += 1;
                    let verb = match words {
                        1 => write_word(at, value),
                        words => Verb::write(at, filled(words, value)),
                    };
                    drop(queue_pair.post(verb.into()).await);
                }
                running.fetch_sub(1, Ordering::Release);
            })
        });
    let writers: Vec<_> = writers.collect();
    let whole = |word: u64| word == 0 || word == u64::MAX;
    while running.load(Ordering::Acquire) > 0 {
        let read =
            [Verb::read(testbed.at(0), Buf::zeroed(8)), Verb::read(testbed.at(0), Buf::zeroed(64))];
        let chain = testbed.post(read).await?;
        for buf in chain.verbs.iter().filter_map(Verb::buf) {
            let torn = buf.words().iter().find(|word| !whole(**word));
            ensure(torn.is_none(), || format!("half of a word was read: {torn:x?}"))?;
        }
        let local = testbed.region.load(0);
        ensure(whole(local), || format!("half of a word was loaded: {local:#x}"))?;
        testbed.env.yield_now().await;
    }
    for writer in writers {
        writer.join().await?;
    }
    Ok(())
}
