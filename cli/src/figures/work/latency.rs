//! How long reads and write-backs of pages that are not cached take.
//!
//! Workers of four compute nodes, each with pages of its own, so that no worker waits for another:
//! read a page that is not cached, give it up, write to it, give it up, which takes it home.

use std::time::Duration;

use selkie::engine::{Engine, EngineError, GAddr};
use selkie::fabric::PeerId;
use selkie::fabric::env::SplitMix;
use selkie::fabric::sim::Faults;
use selkie::pool::Coding;

use super::cluster::{BOUND, Cluster, ClusterShape, NETWORK, RunError, Workers};
use super::quantiles::Quantiles;

pub(in crate::figures) const COMPUTE_NODES: usize = 4;
pub(in crate::figures) const WORKERS: usize = 2;
const SHAPE: ClusterShape = ClusterShape {
    compute_nodes: COMPUTE_NODES,
    pages: 2048,
    range_bytes: 1 << 20,
    cache_bytes: 4 << 20,
};

/// What delays some of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::figures) enum Stragglers {
    None,
    /// The adapter of one memory node is slower: others use it, or their links.
    SlowNode,
    /// Chains that take longer on their way, and hold up those behind them.
    LateChains,
}

/// How much slower the slow node is.
pub(in crate::figures) const SLOWER: u32 = 20;
const SLOW_NODE: PeerId = PeerId::memory(3);
/// One in so many chains is late, by so much at most.
pub(in crate::figures) const LATE_ONE_IN: u32 = 50;
pub(in crate::figures) const LATE_BY: Duration = Duration::from_micros(20);

impl Stragglers {
    pub(in crate::figures) const ALL: [Stragglers; 3] =
        [Stragglers::None, Stragglers::SlowNode, Stragglers::LateChains];

    pub(in crate::figures) const fn name(self) -> &'static str {
        match self {
            Stragglers::None => "undisturbed",
            Stragglers::SlowNode => "slow node",
            Stragglers::LateChains => "late chains",
        }
    }

    fn faults(self) -> Faults {
        match self {
            Stragglers::LateChains => {
                Faults { reorder_one_in: LATE_ONE_IN, reorder_by: LATE_BY, ..Faults::default() }
            }
            _ => Faults::default(),
        }
    }
}

/// A point of the latencies.
pub(in crate::figures) struct Latency {
    pub(in crate::figures) stragglers: Stragglers,
    pub(in crate::figures) coding: &'static str,
}

/// What a cluster took for its operations.
pub(in crate::figures) struct Latencies {
    pub(in crate::figures) operations: usize,
    pub(in crate::figures) read: Quantiles,
    /// Of pages of which a word was changed.
    pub(in crate::figures) word: Quantiles,
    /// Of pages that were changed from end to end.
    pub(in crate::figures) page: Quantiles,
}

/// Durations of one worker's operations.
#[derive(Default)]
struct WorkerLatencies {
    read: Vec<Duration>,
    word: Vec<Duration>,
    page: Vec<Duration>,
}

impl Latency {
    pub(in crate::figures) fn run(
        &self,
        duration: Duration,
        seed: u64,
    ) -> Result<Latencies, RunError> {
        let coding: Coding = self.coding.parse()?;
        let cluster = Cluster::start(SHAPE, coding, self.stragglers.faults(), seed)?;
        if self.stragglers == Stragglers::SlowNode {
            cluster.world.controls().slow(SLOW_NODE, SLOWER);
        }
        let from = cluster.world.now() + duration;
        let span = (from, from + duration);
        let workers = COMPUTE_NODES * WORKERS;
        let tasks = (0..workers).zip(cluster.engines.iter().cycle()).map(|(worker, engine)| {
            let own = cluster.pages.iter().skip(worker).step_by(workers);
            let (pages, engine) = (own.copied().collect(), engine.clone());
            let random = SplitMix::of_stream(seed, 100 + worker as u64);
            (cluster.env_of(&engine), work(engine, pages, random, span))
        });
        let taken = cluster.world.run(BOUND, Workers::start(tasks).join())??;
        let mut all = WorkerLatencies::default();
        for WorkerLatencies { read, word, page } in taken {
            all.read.extend(read);
            all.word.extend(word);
            all.page.extend(page);
        }
        Ok(Latencies {
            operations: all.read.len(),
            read: Quantiles::of(&mut all.read),
            word: Quantiles::of(&mut all.word),
            page: Quantiles::of(&mut all.page),
        })
    }
}

/// What one worker does until the end of the span; what it took since its beginning.
async fn work(
    engine: Engine,
    pages: Vec<GAddr>,
    random: SplitMix,
    (from, to): (Duration, Duration),
) -> Result<WorkerLatencies, EngineError> {
    let env = engine.env().clone();
    let mut taken = WorkerLatencies::default();
    let mut whole = false;
    while env.now() < to {
        let page = pages.get(random.below(pages.len() as u64) as usize);
        let Some(page) = page.copied() else { return Ok(taken) };
        let counts = env.now() >= from;
        let started = env.now();
        drop(engine.shared(page).await?);
        let read = env.now() - started;
        env.spend(NETWORK.access).await;
        engine.evict(page).await?;
        let mut guard = engine.exclusive(page).await?;
        let changed = if whole { 0..guard.len() } else { 8..16 };
        guard.bytes_mut(changed).fill(random.next_u64() as u8);
        drop(guard);
        env.spend(NETWORK.access).await;
        let started = env.now();
        engine.evict(page).await?;
        let written = env.now() - started;
        if counts {
            taken.read.push(read);
            if whole { &mut taken.page } else { &mut taken.word }.push(written);
        }
        whole = !whole;
    }
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Long enough for some ten late chains.
    const SHORT: Duration = Duration::from_micros(1500);

    fn of(stragglers: Stragglers, coding: &'static str) -> Latencies {
        let latencies = Latency { stragglers, coding }.run(SHORT, 1).unwrap();
        assert!(latencies.operations > 100, "{}", latencies.operations);
        latencies
    }

    #[test]
    fn a_coded_read_is_one_round_trip_and_a_write_back_one_more_than_without() {
        let round_trip = 2.0 * NETWORK.one_way.as_secs_f64() * 1e6;
        let [plain, coded] = ["plain", "8+2"].map(|coding| of(Stragglers::None, coding));
        for latencies in [&plain, &coded] {
            let read = latencies.read.median;
            assert!((round_trip..1.9 * round_trip).contains(&read), "{read} µs");
        }
        assert!(plain.word.median < 1.9 * round_trip, "{}", plain.word.median);
        // Parity, then the data, then the header.
        let stages = coded.word.median / round_trip;
        assert!((3.0..4.0).contains(&stages), "{stages} round trips");
    }

    #[test]
    fn stragglers_are_in_the_tail_of_plain_reads() {
        let [none, slow, late] = Stragglers::ALL.map(|stragglers| of(stragglers, "plain").read);
        assert!(
            slow.p99 > 2.0 * none.p99 && late.p99 > 2.0 * none.p99,
            "{none:?} {slow:?} {late:?}"
        );
        assert!(slow.median < 1.2 * none.median && late.median < 1.2 * none.median);
    }
}
