//! Counters in pages: see [`super::Scenario::Counter`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::TraceSink;

use super::{Clients, Done, Scenario, Tune, client_random, done, ensure, start};
use crate::check::linear::{Action, Operation, linearizable};
use crate::cluster::{RUN_BOUND, is_refusal};
use crate::error::SimError;
use crate::plan::Plan;

const WORKERS: usize = 3;
const STEPS: usize = 150;
/// Pages everybody fights for.
const HOT_PAGES: usize = 4;
/// Pages in all: more than a cache has frames, so that pages are evicted, in one run of four.
const MANY_PAGES: usize = 1500;

/// What each page saw.
type History = Arc<Vec<Mutex<Vec<Operation>>>>;

pub(super) fn run(
    seed: u64,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<Done, SimError> {
    let cluster = start(Scenario::Counter, seed, plan, tune, log, |_| {})?;
    let nodes = cluster.engines.len();
    let many = seed.is_multiple_of(4);
    let page_count = if many { MANY_PAGES } else { 2 * HOT_PAGES };
    let pages = cluster.run(async {
        let mut pages = Vec::new();
        for _ in 0..page_count {
            let mut page = cluster.engine(0)?.allocate().await?;
            // A page of this run is not blank, so that a page never fetched is told from one.
            stamp(&mut page, 1);
            pages.push(page.addr());
        }
        Ok::<_, SimError>(Arc::new(pages))
    })??;
    let history: History = Arc::new(pages.iter().map(|_| Mutex::default()).collect());
    plan.arrange(&cluster.world.controls(), cluster.world.now());
    let mut clients = Clients::new(&cluster);
    for node in 0..nodes {
        for worker in 0..WORKERS {
            let client = node * WORKERS + worker;
            let worker = Worker {
                client,
                engine: cluster.engine(node)?.clone(),
                env: cluster.env_of(node),
                pages: Arc::clone(&pages),
                history: Arc::clone(&history),
                random: client_random(seed, client),
                steps: if many { 4 * STEPS } else { STEPS },
            };
            clients.spawn(node, "counter", worker.run());
        }
    }
    let tally = cluster.run(clients.finish(plan))??;
    for (page, operations) in history.iter().enumerate() {
        let operations = std::mem::take(&mut *operations.lock());
        let checked = linearizable(1, &operations);
        checked.map_err(|error| SimError::Broken(format!("page {page}: {error}")))?;
        if !plan.lost().is_empty() {
            // What a lost node had written and nobody else has is gone with it.
            continue;
        }
        let added = operations.iter().filter(|o| matches!(o.action, Action::FetchAdd { .. }));
        let expected = 1 + added.count() as u64;
        let addr = pages.get(page).copied().unwrap_or(GAddr::NULL);
        let found = cluster.run(async {
            let guard = cluster.engine(page % nodes)?.shared(addr).await?;
            whole(&guard, addr)
        })??;
        ensure(found == expected, || {
            format!("page {page} holds {found} after {} increments of 1", expected - 1)
        })?;
    }
    if plan.lost().is_empty() {
        cluster.world.run(RUN_BOUND, cluster.close_and_check(page_count as u64))??;
    }
    Ok(done(&cluster, &tally))
}

/// Writes the counter at both ends of the page.
fn stamp(page: &mut ExclusiveGuard<'_>, value: u64) {
    let end = page.len();
    page.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
    page.bytes_mut(end - 8..end).copy_from_slice(&value.to_le_bytes());
}

/// The counter, the same at both ends.
fn whole(page: &[u8], addr: GAddr) -> Result<u64, SimError> {
    let word = |bytes: Option<&[u8; 8]>| bytes.copied().map(u64::from_le_bytes);
    let (first, last) = (word(page.first_chunk()), word(page.last_chunk()));
    match (first, last) {
        (Some(first), Some(last)) if first == last => Ok(first),
        _ => Err(SimError::Broken(format!("page {addr} is torn: {first:?} and {last:?}"))),
    }
}

struct Worker {
    client: usize,
    engine: Engine,
    env: Env,
    pages: Arc<Vec<GAddr>>,
    history: History,
    random: SplitMix,
    steps: usize,
}

impl Worker {
    async fn run(self) -> Result<u64, SimError> {
        let mut operations = 0;
        for _ in 0..self.steps {
            let hot = self.random.below(4) != 0 || self.pages.len() <= 2 * HOT_PAGES;
            let span = if hot { 2 * HOT_PAGES } else { self.pages.len() };
            let page = self.random.below(span.min(self.pages.len()) as u64) as usize;
            let given_up = self.random.below(8) == 0;
            let step = self.step(page);
            let result = if given_up {
                polled(step, 1 + self.random.below(6) as u32).await
            } else {
                Some(step.await)
            };
            match result {
                Some(Ok(())) => operations += 1,
                Some(Err(SimError::Engine(error))) if is_refusal(&error) => {}
                Some(Err(error)) => return Err(error),
                None => {}
            }
            if self.random.below(4) == 0 {
                let pause = self.random.below(20_000);
                self.env.sleep(std::time::Duration::from_nanos(pause)).await;
            }
        }
        Ok(operations)
    }

    /// One access of `page`, recorded when it was made.
    async fn step(&self, page: usize) -> Result<(), SimError> {
        let addr = self.pages.get(page).copied().unwrap_or(GAddr::NULL);
        let invoked = self.now();
        let action = match self.random.below(10) {
            0..=4 => self.read(addr, self.random.below(4) == 0).await?,
            5..=7 => {
                let nowait = self.random.below(3) == 0;
                let mut guard = if nowait {
                    self.engine.try_exclusive(addr).await?
                } else {
                    self.engine.exclusive(addr).await?
                };
                let action = increment(&mut guard, addr)?;
                self.record(page, invoked, action);
                self.dwell().await;
                return Ok(());
            }
            8 => {
                let guard = self.engine.shared(addr).await?;
                match guard.try_upgrade().await {
                    Ok(mut guard) => increment(&mut guard, addr)?,
                    Err((guard, EngineError::Busy { .. })) => Action::Read(whole(&guard, addr)?),
                    Err((_, error)) => return Err(error.into()),
                }
            }
            _ => {
                let mut guard = self.engine.exclusive(addr).await?;
                let action = increment(&mut guard, addr)?;
                self.record(page, invoked, action);
                let guard = guard.downgrade();
                let again = self.now();
                self.dwell().await;
                let action = Action::Read(whole(&guard, addr)?);
                self.record(page, again, action);
                return Ok(());
            }
        };
        self.record(page, invoked, action);
        Ok(())
    }

    async fn read(&self, addr: GAddr, nowait: bool) -> Result<Action, SimError> {
        let guard = if nowait {
            self.engine.try_shared(addr).await?
        } else {
            self.engine.shared(addr).await?
        };
        let before = whole(&guard, addr)?;
        self.dwell().await;
        let after = whole(&guard, addr)?;
        ensure(before == after, || {
            format!("page {addr} changed from {before} to {after} under a shared latch")
        })?;
        Ok(Action::Read(before))
    }

    /// Keeps a latch for a while, now and then.
    async fn dwell(&self) {
        if self.random.below(3) == 0 {
            let pause = self.random.below(5_000);
            self.env.sleep(std::time::Duration::from_nanos(pause)).await;
        }
    }

    fn record(&self, page: usize, invoked: u64, action: Action) {
        let operation =
            Operation { process: self.client, invoked, returned: Some(self.now()), action };
        if let Some(history) = self.history.get(page) {
            history.lock().push(operation);
        }
    }

    fn now(&self) -> u64 {
        self.env.now().as_nanos() as u64
    }
}

fn increment(page: &mut ExclusiveGuard<'_>, addr: GAddr) -> Result<Action, SimError> {
    let old = whole(page, addr)?;
    stamp(page, old + 1);
    Ok(Action::FetchAdd { delta: 1, old })
}

/// Polls `future` at most `polls` times, then drops it.
async fn polled<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
