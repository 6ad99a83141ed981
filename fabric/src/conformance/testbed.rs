//! The start of most checks: a memory node with a region, and a compute node connected to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::check::{CheckFailure, CheckResult, CheckSubject, Kill};
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair};
use crate::buf::Buf;
use crate::env::Env;
use crate::id::{PeerId, RemoteAddr};
use crate::verb::{Chain, Verb};

/// Bytes of the region of the testbed.
pub(super) const REGION_BYTES: usize = 64 << 10;

pub(super) const MEMORY: PeerId = PeerId::memory(0);
pub(super) const NODE: PeerId = PeerId::compute(0);

pub(super) struct Testbed {
    pub(super) fabric: Arc<dyn Fabric>,
    pub(super) env: Env,
    pub(super) kill: Kill,
    pub(super) memory: Arc<dyn Endpoint>,
    /// The memory node's region, as the memory node sees it.
    pub(super) region: Arc<dyn LocalRegion>,
    pub(super) node: Arc<dyn Endpoint>,
    /// From the compute node to the memory node.
    pub(super) queue_pair: Arc<dyn QueuePair>,
}

impl Testbed {
    pub(super) fn new(subject: CheckSubject) -> Result<Self, CheckFailure> {
        let CheckSubject { fabric, env, kill } = subject;
        let memory = fabric.join(MEMORY)?;
        let region = memory.register(REGION_BYTES)?;
        let node = fabric.join(NODE)?;
        let queue_pair = node.connect(MEMORY)?;
        Ok(Self { fabric, env, kill, memory, region, node, queue_pair })
    }

    /// The address `offset` bytes into the region.
    pub(super) fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.region.key(), offset)
    }

    /// Reads on the queue pair of the testbed: its earlier writes are then in place for all
    /// readers.
    pub(super) async fn settle(&self) -> CheckResult {
        self.post([Verb::read(self.at(0), Buf::zeroed(8))]).await.map(drop)
    }

    /// Posts on the testbed's queue pair and waits.
    pub(super) async fn post(&self, chain: impl Into<Chain>) -> Result<Chain, CheckFailure> {
        Ok(self.queue_pair.post(chain.into()).await?)
    }
}

/// How long racing tasks run: long enough to race, however fast or slow verbs are.
#[derive(Clone)]
pub(super) struct Race {
    env: Env,
    racers: u64,
    started: Arc<AtomicU64>,
    until: Duration,
}

impl Race {
    /// Least rounds of a racer; slow fabrics do no more.
    const LEAST_ROUNDS: u64 = 50;

    /// Most rounds of a racer, in case the clock stands still.
    const MOST_ROUNDS: u64 = 50_000;

    const DURATION: Duration = Duration::from_millis(50);

    pub(super) fn of(racers: u64, env: &Env) -> Self {
        let started = Arc::new(AtomicU64::new(0));
        Self { env: env.clone(), racers, started, until: env.now() + Self::DURATION }
    }

    /// Waits until all racers have started.
    pub(super) async fn start(&self) {
        self.started.fetch_add(1, Ordering::AcqRel);
        while self.started.load(Ordering::Acquire) < self.racers {
            self.env.yield_now().await;
        }
    }

    /// Whether a racer runs another round after `rounds` rounds.
    pub(super) fn continues(&self, rounds: u64) -> bool {
        rounds < Self::LEAST_ROUNDS || (rounds < Self::MOST_ROUNDS && self.env.now() < self.until)
    }
}

/// A buffer of `words` words, all `value`.
pub(super) fn filled(words: usize, value: u64) -> Buf {
    let mut buf = Buf::zeroed(words * 8);
    buf.words_mut().fill(value);
    buf
}

/// A write of the single word `value`.
pub(super) fn write_word(at: RemoteAddr, value: u64) -> Verb {
    Verb::write(at, filled(1, value))
}

/// The first word read by the verb at `index`.
pub(super) fn word_read(chain: &Chain, index: usize) -> Result<u64, CheckFailure> {
    let word = chain.buf(index).and_then(|buf| buf.words().first().copied());
    word.ok_or_else(|| CheckFailure::new(format!("verb {index} came back without its buffer")))
}

/// Fails the check, saying what was claimed, unless both are equal.
pub(super) fn equal<T: PartialEq + std::fmt::Debug>(
    claim: &str,
    found: T,
    expected: T,
) -> CheckResult {
    if found == expected {
        return Ok(());
    }
    Err(CheckFailure::new(format!("{claim}: found {found:?}, expected {expected:?}")))
}

/// Fails the check, saying what was claimed, unless `holds`.
pub(super) fn ensure(holds: bool, claim: impl FnOnce() -> String) -> CheckResult {
    if holds { Ok(()) } else { Err(CheckFailure::new(claim())) }
}
