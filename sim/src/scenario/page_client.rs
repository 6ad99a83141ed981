//! A client that increments and reads pages with counts, latched in every way, and gives some
//! accesses up half-way.
//!
//! An increment changes one part of a page, some, or all: so write-backs are of every extent.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr};
use selkie_fabric::env::{Env, SplitMix};

use super::page_bytes::{PARTS, counts, fill, part_of, value};
use super::page_record::{PageRecord, WriteAttempt};
use crate::check::linear::{Action, Operation};
use crate::error::{SimError, ensure};

/// Pages for which all clients compete.
pub(super) const HOT_PAGES: usize = 4;
/// Longest pause of a client that has done its steps and continues.
const LINGER: Duration = Duration::from_micros(800);

/// What may become of pages in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tolerance {
    /// They may be lost, with a compute node that dies.
    pub(super) lost: bool,
    /// They may be damaged, where that is only to be noticed.
    pub(super) damaged: bool,
}

/// What clients do.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageLoad {
    pub(super) seed: u64,
    /// Steps that each client makes.
    pub(super) steps: usize,
    /// When a client may stop, if it has made its steps.
    pub(super) until: Duration,
    pub(super) tolerance: Tolerance,
    /// Whether an operation counts only when its node was in the pool after it.
    pub(super) acknowledges: bool,
    /// Tells clients of one load from those of another.
    pub(super) round: usize,
}

/// One client.
pub(super) struct PageClient {
    pub(super) client: usize,
    pub(super) node: usize,
    pub(super) engine: Engine,
    pub(super) env: Env,
    /// By which operations of all nodes are ordered.
    pub(super) clock: Env,
    /// Operations, with their pages, that do not count yet.
    pub(super) unacknowledged: Mutex<Vec<(usize, usize)>>,
    pub(super) addrs: Arc<Vec<GAddr>>,
    pub(super) logs: Arc<Vec<Mutex<PageRecord>>>,
    pub(super) random: SplitMix,
    pub(super) load: PageLoad,
}

impl PageClient {
    /// Makes the steps of the load; how many operations were made.
    pub(super) async fn run(self) -> Result<u64, SimError> {
        let (mut operations, mut steps) = (0, 0);
        while steps < self.load.steps || self.clock.now() < self.load.until {
            if steps >= self.load.steps {
                let pause = self.random.below(LINGER.as_nanos() as u64);
                self.env.sleep(Duration::from_nanos(pause)).await;
            }
            steps += 1;
            let hot = self.random.below(4) != 0 || self.addrs.len() <= 2 * HOT_PAGES;
            let span = if hot { 2 * HOT_PAGES } else { self.addrs.len() };
            let page = self.random.below(span.min(self.addrs.len()) as u64) as usize;
            let given_up = self.random.below(8) == 0;
            let looks = self.load.acknowledges && self.random.below(3) == 0;
            let step =
                async { if looks { self.look_around().await } else { self.step(page).await } };
            let result = if given_up {
                polled(step, 1 + self.random.below(6) as u32).await
            } else {
                Some(step.await)
            };
            match result {
                Some(Ok(())) => operations += 1,
                Some(Err(SimError::Engine(error))) if is_refusal(&error) => {}
                Some(Err(SimError::Engine(error))) if self.tolerates(page, &error) => {}
                Some(Err(error)) => return Err(error),
                None => {}
            }
            self.acknowledge().await?;
            if self.random.below(4) == 0 {
                let pause = self.random.below(20_000);
                self.env.sleep(Duration::from_nanos(pause)).await;
            }
        }
        Ok(operations)
    }

    fn tolerates(&self, page: usize, error: &EngineError) -> bool {
        let Some(log) = self.logs.get(page) else { return false };
        match error {
            EngineError::PageLost { .. } if self.load.tolerance.lost => {
                log.lock().lost = true;
                true
            }
            EngineError::PageDamaged { .. } if self.load.tolerance.damaged => {
                log.lock().damaged = true;
                true
            }
            _ => false,
        }
    }

    /// One access of `page`, recorded when it was made.
    async fn step(&self, page: usize) -> Result<(), SimError> {
        let missing = || SimError::Broken(format!("there is no page {page}"));
        let addr = self.addrs.get(page).copied().ok_or_else(missing)?;
        let invoked = self.now();
        let action = match self.random.below(10) {
            0..=4 => self.read(addr, self.random.below(4) == 0).await?,
            5..=7 => {
                let attempt = self.attempt(page);
                let nowait = self.random.below(3) == 0;
                let mut guard = if nowait {
                    self.engine.try_exclusive(addr).await?
                } else {
                    self.engine.exclusive(addr).await?
                };
                let action = self.increment(&mut guard, addr)?;
                self.record(page, invoked, action);
                self.ended(page, attempt);
                self.dwell().await;
                return Ok(());
            }
            8 => {
                let guard = self.engine.shared(addr).await?;
                let attempt = self.attempt(page);
                let action = match guard.try_upgrade().await {
                    Ok(mut guard) => self.increment(&mut guard, addr)?,
                    Err((guard, EngineError::Busy { .. })) => Action::Read(value(&guard, addr)?),
                    Err((_, error)) => return Err(error.into()),
                };
                self.ended(page, attempt);
                action
            }
            _ => {
                let attempt = self.attempt(page);
                let mut guard = self.engine.exclusive(addr).await?;
                let action = self.increment(&mut guard, addr)?;
                self.record(page, invoked, action);
                self.ended(page, attempt);
                let guard = guard.downgrade();
                let again = self.now();
                self.dwell().await;
                let action = Action::Read(value(&guard, addr)?);
                self.record(page, again, action);
                return Ok(());
            }
        };
        self.record(page, invoked, action);
        Ok(())
    }

    /// Reads all hot pages, one right after the other: those that are cached, in one poll. Values
    /// only grow, so none may be less than what was acknowledged before: that is all that is asked
    /// of these reads, as the search for an order of so many would take too long.
    async fn look_around(&self) -> Result<(), SimError> {
        let mut seen = Vec::new();
        for page in 0..(2 * HOT_PAGES).min(self.addrs.len()) {
            let Some((addr, log)) = self.addrs.get(page).zip(self.logs.get(page)) else { continue };
            let least = log.lock().acknowledged;
            match self.engine.shared(*addr).await {
                Ok(guard) => seen.push((page, least, value(&guard, *addr)?)),
                Err(error) if self.tolerates(page, &error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.engine.until_durable(0).await?;
        for (page, least, found) in seen {
            ensure(found >= least, || {
                format!("page {page} held {found} after it was known to hold {least}")
            })?;
        }
        Ok(())
    }

    async fn read(&self, addr: GAddr, nowait: bool) -> Result<Action, SimError> {
        let guard = if nowait {
            self.engine.try_shared(addr).await?
        } else {
            self.engine.shared(addr).await?
        };
        let before = value(&guard, addr)?;
        self.dwell().await;
        let after = value(&guard, addr)?;
        ensure(before == after, || {
            format!("page {addr} changed from {before} to {after} under a shared latch")
        })?;
        Ok(Action::Read(before))
    }

    /// Adds 1 to a part, and writes that, or a stretch of parts around it, or all.
    fn increment(&self, page: &mut ExclusiveGuard<'_>, addr: GAddr) -> Result<Action, SimError> {
        let mut counts = counts(page, addr)?;
        let old = counts.iter().sum();
        let part = self.random.below(PARTS as u64) as usize;
        if let Some(count) = counts.get_mut(part) {
            *count += 1;
        }
        let (first, last) = match self.random.below(4) {
            0 => (0, PARTS - 1),
            1 => (part.saturating_sub(1), part),
            _ => (part, part),
        };
        let length = page.len();
        for (part, count) in counts.into_iter().enumerate().take(last + 1).skip(first) {
            fill(page.bytes_mut(part_of(length, part)), addr, part, count);
        }
        Ok(Action::FetchAdd { delta: 1, old })
    }

    /// Keeps a latch for a while, now and then.
    async fn dwell(&self) {
        if self.random.below(3) == 0 {
            let pause = self.random.below(5_000);
            self.env.sleep(Duration::from_nanos(pause)).await;
        }
    }

    fn record(&self, page: usize, invoked: u64, action: Action) {
        let returned = (!self.load.acknowledges).then(|| self.now());
        let operation = Operation { process: self.client, invoked, returned, action };
        if let Some(log) = self.logs.get(page) {
            let mut log = log.lock();
            if self.load.acknowledges {
                self.unacknowledged.lock().push((page, log.operations.len()));
            }
            log.operations.push(operation);
        }
    }

    /// Has the operations count, once it is known that the node was in the pool after them.
    async fn acknowledge(&self) -> Result<(), SimError> {
        let made = std::mem::take(&mut *self.unacknowledged.lock());
        if made.is_empty() {
            return Ok(());
        }
        self.engine.until_durable(0).await?;
        let now = self.now();
        for (page, number) in made {
            let Some(log) = self.logs.get(page) else { continue };
            let mut log = log.lock();
            let Some(operation) = log.operations.get_mut(number) else { continue };
            operation.returned = Some(now);
            let seen = match operation.action {
                Action::Read(value) | Action::Write(value) => value,
                Action::FetchAdd { delta, old } => old + delta,
            };
            log.acknowledged = log.acknowledged.max(seen);
        }
        Ok(())
    }

    /// Notes that the right to change a page is asked for.
    fn attempt(&self, page: usize) -> usize {
        let Some(log) = self.logs.get(page) else { return 0 };
        let mut log = log.lock();
        log.attempts.push(WriteAttempt { node: self.node, ended: None });
        log.attempts.len() - 1
    }

    fn ended(&self, page: usize, attempt: usize) {
        let now = self.now();
        if let Some(log) = self.logs.get(page)
            && let Some(attempt) = log.lock().attempts.get_mut(attempt)
        {
            attempt.ended = Some(now);
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_nanos() as u64
    }
}

/// Whether an access may end so when no node was lost.
fn is_refusal(error: &EngineError) -> bool {
    matches!(error, EngineError::Busy { .. })
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
