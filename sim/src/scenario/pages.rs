//! Pages that many clients increment and read, latched in every way, some accesses given up
//! half-way.
//!
//! A page is cut into [`PARTS`] parts. Each has a count, and every word of it follows from that;
//! the value of the page is the sum of its counts. An increment changes one part, some, or all: so
//! write-backs are of every extent, a page that is put together of old and new pieces has the wrong
//! value, and a bit that is wrong shows wherever it is.
//!
//! One file, as the clients and what judges them share the record of what they did.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr};
use selkie_fabric::env::{Env, SplitMix};

use super::clients::Clients;
use super::random::client_random;
use crate::check::linear::{Action, Operation, linearizable};
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};

/// Clients of a node.
pub(super) const WORKERS: usize = 3;
/// Pages everybody fights for.
pub(super) const HOT_PAGES: usize = 4;
/// Pages of a run: some more than caches have frames, and of several ranges, or few.
pub(super) const MANY_PAGES: usize = 1200;
pub(super) const FEW_PAGES: usize = 20 * HOT_PAGES;
/// Pieces of a page that change by themselves.
const PARTS: usize = 8;
/// What a page is worth before the first increment, so that a page never fetched is told from one.
const FIRST: u64 = 1;
/// Longest pause of a client that has done its steps and continues.
const LINGER: Duration = Duration::from_micros(800);

/// What a page saw.
#[derive(Default)]
struct PageRecord {
    operations: Vec<Operation>,
    /// Attempts to get the right to change it.
    attempts: Vec<WriteAttempt>,
    /// The largest value that an acknowledged operation has seen or made.
    acknowledged: u64,
    /// A client learned that it is lost.
    lost: bool,
    /// A client learned that it is damaged.
    damaged: bool,
}

#[derive(Clone, Copy)]
struct WriteAttempt {
    node: usize,
    /// `None` if the outcome is unknown.
    ended: Option<u64>,
}

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

/// The pages of a run.
pub(super) struct CounterPages {
    addrs: Arc<Vec<GAddr>>,
    logs: Arc<Vec<Mutex<PageRecord>>>,
}

impl CounterPages {
    /// Allocates pages at the first node.
    pub(super) async fn allocate(cluster: &SimCluster, count: usize) -> Result<Self, SimError> {
        let mut addrs = Vec::new();
        for _ in 0..count {
            let mut page = cluster.engine(0)?.allocate().await?;
            let addr = page.addr();
            let first = part_of(page.len(), 0);
            fill(page.bytes_mut(first), addr, 0, FIRST);
            addrs.push(addr);
        }
        // The node that allocated them holds them.
        let ended = Some(cluster.world.now().as_nanos() as u64);
        let log = || PageRecord {
            attempts: vec![WriteAttempt { node: 0, ended }],
            ..PageRecord::default()
        };
        let logs = addrs.iter().map(|_| Mutex::new(log())).collect();
        Ok(Self { addrs: Arc::new(addrs), logs: Arc::new(logs) })
    }

    pub(super) fn addrs(&self) -> &[GAddr] {
        &self.addrs
    }

    /// Starts the clients of a node.
    pub(super) fn spawn(
        &self,
        clients: &mut Clients<'_>,
        node: usize,
        load: PageLoad,
    ) -> Result<(), SimError> {
        for worker in 0..WORKERS {
            let client = node * WORKERS + worker;
            let stream = load.round * 10_000 + client;
            let worker = Worker {
                client,
                node,
                engine: clients.cluster.engine(node)?.clone(),
                clock: clients.cluster.world.env(),
                unacknowledged: Mutex::default(),
                env: clients.cluster.env_of(node),
                addrs: Arc::clone(&self.addrs),
                logs: Arc::clone(&self.logs),
                random: client_random(load.seed, stream),
                load,
            };
            clients.spawn(node, "counter", worker.run());
        }
        Ok(())
    }

    /// Checks that the history of every page is linearizable.
    pub(super) fn check_histories(&self) -> Result<(), SimError> {
        for (addr, log) in self.addrs.iter().zip(self.logs.iter()) {
            let checked = linearizable(FIRST, &log.lock().operations);
            checked.map_err(|error| SimError::Broken(format!("page {addr}: {error}")))?;
        }
        Ok(())
    }

    /// The value that a page must have.
    fn expected(&self, page: usize) -> RangeInclusive<u64> {
        let Some(log) = self.logs.get(page) else { return 0..=0 };
        let log = log.lock();
        let adds = log.operations.iter().filter(|o| matches!(o.action, Action::FetchAdd { .. }));
        let known = adds.clone().filter(|add| add.returned.is_some()).count() as u64;
        FIRST + known..=FIRST + adds.count() as u64
    }

    /// Reads all pages at `engine` and compares them with what was done to them; how many are lost.
    /// `may_be_lost` says which may be.
    pub(super) async fn check_pages(
        &self,
        engine: &Engine,
        may_be_lost: impl Fn(&Self, usize) -> bool,
    ) -> Result<u64, SimError> {
        let mut lost = 0;
        for (page, addr) in self.addrs.iter().copied().enumerate() {
            let expected = self.expected(page);
            let guard = match engine.shared(addr).await {
                Err(EngineError::PageLost { .. }) if may_be_lost(self, page) => {
                    lost += 1;
                    continue;
                }
                got => got?,
            };
            let was_lost = self.logs.get(page).is_some_and(|log| log.lock().lost);
            ensure(!was_lost, || format!("page {page} ({addr}) was lost and is there again"))?;
            let found = value(&guard, addr)?;
            ensure(expected.contains(&found), || {
                format!("page {page} ({addr}) holds {found} and not {expected:?}")
            })?;
        }
        Ok(lost)
    }

    /// Whether a node may have held a modified page when it died: it asked for the exclusive latch,
    /// and no other node has accessed the page since.
    pub(super) fn may_have_been_held(&self, page: usize, node: usize) -> bool {
        let Some(log) = self.logs.get(page) else { return false };
        let log = log.lock();
        let since = |attempt: &WriteAttempt| {
            let Some(ended) = attempt.ended else { return false };
            let others = |o: &&Operation| o.process / WORKERS != node && o.invoked >= ended;
            log.operations.iter().any(|operation| others(&operation))
        };
        let own = |attempt: &&WriteAttempt| attempt.node == node;
        log.attempts.iter().filter(own).any(|attempt| !since(attempt))
    }

    /// How many pages clients found damaged.
    pub(super) fn damaged(&self) -> usize {
        self.logs.iter().filter(|log| log.lock().damaged).count()
    }
}

/// Writes a part that has this count.
fn fill(bytes: &mut [u8], addr: GAddr, part: usize, count: u64) {
    for (place, word) in bytes.chunks_exact_mut(8).zip(0..) {
        place.copy_from_slice(&word_of(addr, part, count, word).to_le_bytes());
    }
}

/// The bytes of a part, whole words: parts differ by a word at most.
fn part_of(page_bytes: usize, part: usize) -> std::ops::Range<usize> {
    let start = |part: usize| part * (page_bytes / 8) / PARTS * 8;
    start(part)..start(part + 1)
}

/// The first word of a part is its count, the others are mixed of it. A part is zero until it is
/// incremented, as a page is until it is written: not all of its splits are, the first time.
fn word_of(addr: GAddr, part: usize, count: u64, word: u64) -> u64 {
    if word == 0 || count == 0 {
        return count;
    }
    let mixed = addr.to_u64() ^ (part as u64) << 56 ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.rotate_left(word as u32).wrapping_add(word)
}

/// The counts of a page's parts, every word of which is as it should be.
fn counts(page: &[u8], addr: GAddr) -> Result<[u64; PARTS], SimError> {
    let mut counts = [0; PARTS];
    for (part, own) in counts.iter_mut().enumerate() {
        let (words, _) = page.get(part_of(page.len(), part)).unwrap_or_default().as_chunks::<8>();
        let missing = || SimError::Broken(format!("page {addr} is too short for part {part}"));
        *own = u64::from_le_bytes(words.first().copied().ok_or_else(missing)?);
        for (word, bytes) in (0..).zip(words) {
            let (found, expected) = (u64::from_le_bytes(*bytes), word_of(addr, part, *own, word));
            ensure(found == expected, || {
                format!(
                    "page {addr} is torn or damaged: word {word} of part {part}, whose count is {own}, is \
                     {found:#x} and not {expected:#x}"
                )
            })?;
        }
    }
    Ok(counts)
}

/// The value of a page: the sum of its counts.
fn value(page: &[u8], addr: GAddr) -> Result<u64, SimError> {
    Ok(counts(page, addr)?.iter().sum())
}

struct Worker {
    client: usize,
    node: usize,
    engine: Engine,
    env: Env,
    /// By which operations of all nodes are ordered.
    clock: Env,
    /// Operations, with their pages, that do not count yet.
    unacknowledged: Mutex<Vec<(usize, usize)>>,
    addrs: Arc<Vec<GAddr>>,
    logs: Arc<Vec<Mutex<PageRecord>>>,
    random: SplitMix,
    load: PageLoad,
}

impl Worker {
    async fn run(self) -> Result<u64, SimError> {
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
