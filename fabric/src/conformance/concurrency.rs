//! Checks of atomicity: tasks on several threads race for the same words.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::runner::{Check, CheckResult, CheckSubject};
use super::stage::{MEMORY, Stage, ensure, equal, filled, write_word};
use crate::api::QueuePair;
use crate::buf::Buf;
use crate::env::{Env, TaskHandle};
use crate::id::{PeerId, RemoteAddr};
use crate::verb::Verb;

pub(super) const CHECKS: &[Check] = &[
    Check { name: "adds of four tasks lose nothing", run: |s| Box::pin(adds(s)) },
    Check { name: "swaps of four tasks lose nothing", run: |s| Box::pin(swaps(s)) },
    Check { name: "tasks may share a queue pair", run: |s| Box::pin(shared_queue_pair(s)) },
    Check { name: "words never tear", run: |s| Box::pin(words_never_tear(s)) },
];

const TASKS: u16 = 4;

/// Operations of each task.
const ROUNDS: u64 = 300;

/// A queue pair from a node of its own for each task.
fn queue_pairs(stage: &Stage) -> Result<Vec<Arc<dyn QueuePair>>, crate::FabricError> {
    (1..=TASKS).map(|index| stage.fabric.join(PeerId::compute(index))?.connect(MEMORY)).collect()
}

/// Adds `index + 1` to the word at 0 again and again, and the old values to `sum`.
fn adder(env: &Env, queue_pair: Arc<dyn QueuePair>, at: RemoteAddr, index: u64) -> TaskHandle {
    env.spawn("conformance-adder", async move {
        let mut last = None;
        for _ in 0..ROUNDS {
            let posted = queue_pair.post(Verb::fetch_and_add(at, index + 1).into()).await;
            let old = posted.ok().and_then(|chain| chain.old(0));
            assert!(old > last, "old values must grow: {old:?} after {last:?}");
            last = old;
        }
    })
}

async fn adds(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    let queue_pairs = queue_pairs(&stage)?.into_iter().zip(0..);
    let tasks: Vec<_> = queue_pairs
        .map(|(queue_pair, index)| adder(&stage.env, queue_pair, stage.at(0), index))
        .collect();
    for task in tasks {
        task.join().await?;
    }
    equal("sum", stage.region.load(0), ROUNDS * (1..=u64::from(TASKS)).sum::<u64>())
}

async fn shared_queue_pair(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    let task = |index| adder(&stage.env, Arc::clone(&stage.queue_pair), stage.at(0), index);
    let tasks: Vec<_> = (0..u64::from(TASKS)).map(task).collect();
    for task in tasks {
        task.join().await?;
    }
    equal("sum", stage.region.load(0), ROUNDS * (1..=u64::from(TASKS)).sum::<u64>())
}

async fn swaps(subject: CheckSubject) -> CheckResult {
    let stage = Stage::set(subject)?;
    let at = stage.at(64);
    let tasks: Vec<_> = queue_pairs(&stage)?
        .into_iter()
        .map(|queue_pair| {
            stage.env.spawn("conformance-swapper", async move {
                let mut expected = 0;
                let mut swapped = 0;
                while swapped < ROUNDS / 4 {
                    let verb = Verb::compare_and_swap(at, expected, expected + 1);
                    let posted = queue_pair.post(verb.into()).await;
                    let old = posted.ok().and_then(|chain| chain.old(0)).unwrap_or(0);
                    swapped += u64::from(old == expected);
                    expected = if old == expected { expected + 1 } else { old };
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().await?;
    }
    equal("swaps", stage.region.load(64), u64::from(TASKS) * (ROUNDS / 4))
}

/// Two tasks write words of all zeros and all ones, one of them as part of a longer payload.
async fn words_never_tear(subject: CheckSubject) -> CheckResult {
    let stage = Arc::new(Stage::set(subject)?);
    let running = Arc::new(AtomicU64::new(2));
    let writers =
        queue_pairs(&stage)?.into_iter().take(2).zip([1, 8]).map(|(queue_pair, words)| {
            let (at, running) = (stage.at(0), Arc::clone(&running));
            stage.env.spawn("conformance-writer", async move {
                for round in 0..ROUNDS {
                    let value = if round % 2 == 0 { u64::MAX } else { 0 };
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
            [Verb::read(stage.at(0), Buf::zeroed(8)), Verb::read(stage.at(0), Buf::zeroed(64))];
        let chain = stage.post(read).await?;
        for buf in chain.verbs.iter().filter_map(Verb::buf) {
            let torn = buf.words().iter().find(|word| !whole(**word));
            ensure(torn.is_none(), || format!("half of a word was read: {torn:x?}"))?;
        }
        let local = stage.region.load(0);
        ensure(whole(local), || format!("half of a word was loaded: {local:#x}"))?;
        stage.env.yield_now().await;
    }
    for writer in writers {
        writer.join().await?;
    }
    Ok(())
}
