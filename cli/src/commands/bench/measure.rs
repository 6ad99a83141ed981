//! Measurements of chains: latency one at a time, rate with many under way.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use selkie::fabric::{Chain, Completion, FabricError, QueuePair, RealRuntime};

/// Rounds before those that count.
const WARM_UP: u32 = 50;
/// Chains under way when the rate is measured.
const UNDER_WAY: usize = 16;

/// What one kind of work takes.
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) median: Duration,
    pub(super) p99: Duration,
    /// Of one thread; `None` where one waits for the other.
    pub(super) per_second: Option<f64>,
}

/// Median and 99th percentile. The list is not empty.
pub(super) fn percentiles(mut taken: Vec<Duration>) -> (Duration, Duration) {
    taken.sort_unstable();
    let at = |part: usize| taken.get(taken.len() * part / 100).or(taken.last()).copied();
    (at(50).unwrap_or_default(), at(99).unwrap_or_default())
}

/// Times `work` so often.
pub(super) fn times<E>(
    rounds: u32,
    mut work: impl FnMut() -> Result<(), E>,
) -> Result<Vec<Duration>, E> {
    (0..rounds)
        .map(|_| {
            let started = Instant::now();
            work()?;
            Ok(started.elapsed())
        })
        .collect()
}

/// Posts a chain and waits for it.
pub(super) fn post(
    runtime: &RealRuntime,
    queue_pair: &Arc<dyn QueuePair>,
    chain: Chain,
) -> Result<Chain, FabricError> {
    runtime.block_on(queue_pair.post(chain)).map_err(|error| error.error)
}

/// Measures the chains that `make` makes.
pub(super) fn measure(
    runtime: &RealRuntime,
    queue_pair: &Arc<dyn QueuePair>,
    (name, rounds): (&str, u32),
    make: &dyn Fn() -> Chain,
) -> Result<Figure, FabricError> {
    let mut once = || post(runtime, queue_pair, make()).map(drop);
    times(WARM_UP, &mut once)?;
    let (median, p99) = percentiles(times(rounds, &mut once)?);
    let started = Instant::now();
    let mut under_way: VecDeque<Completion> = VecDeque::new();
    for _ in 0..rounds {
        if under_way.len() == UNDER_WAY
            && let Some(first) = under_way.pop_front()
        {
            runtime
                .block_on(first)
                .map_err(|error: Box<selkie::fabric::ChainError>| error.error)?;
        }
        under_way.push_back(queue_pair.post(make()));
    }
    for last in under_way {
        runtime.block_on(last).map_err(|error| error.error)?;
    }
    let per_second = Some(f64::from(rounds) / started.elapsed().as_secs_f64());
    Ok(Figure { name: name.to_owned(), median, p99, per_second })
}
