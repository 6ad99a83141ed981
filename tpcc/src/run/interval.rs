//! The measurement: workers on all compute nodes, the clock that stops them, and the counters at
//! both ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use selkie_engine::EngineStats;
use selkie_fabric::env::Env;
use selkie_fabric::meter::MeterSnapshot;
use selkie_txn::{AbortCause, TxnStats};

use super::progress::Progress;
use super::statistics::Measurements;
use super::tasks::{both, join_all};
use super::terminal::RunControl;
use crate::cluster::{Cluster, MAX_WORKERS, Node, Setup, TableSet, compute_index};
use crate::error::TpccError;
use crate::workload::Mix;

/// How often the progress of the measurement is told.
const TICK: Duration = Duration::from_millis(500);

/// What was counted between the beginning and the end of the measurement.
#[derive(Clone, Debug)]
pub struct Interval<K, C> {
    /// How long it was.
    pub elapsed: Duration,
    /// It was to be longer, and was told to end.
    pub interrupted: bool,
    /// What the workers measured.
    pub measurements: Measurements<K>,
    /// What they committed, as their driver notes it.
    pub commits: C,
    /// What each compute node's engine did.
    pub engine: Vec<EngineStats>,
    /// What became of each compute node's transactions.
    pub txn: Vec<TxnStats>,
    /// What all compute nodes asked of the fabric.
    pub traffic: MeterSnapshot,
    /// Bytes of pages in use at its end.
    pub database_bytes: u64,
}

impl<K: Mix, C> Interval<K, C> {
    /// Transactions completed.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.measurements.completed()
    }

    /// So many in a second of it.
    #[must_use]
    pub fn per_second(&self, count: u64) -> f64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// So many for each transaction that completed.
    #[must_use]
    pub fn per_txn(&self, count: u64) -> f64 {
        let completed = self.completed();
        if completed > 0 { count as f64 / completed as f64 } else { 0.0 }
    }

    /// A counter of all engines.
    #[must_use]
    pub fn engines(&self, field: fn(&EngineStats) -> u64) -> u64 {
        self.engine.iter().map(field).sum()
    }

    /// A counter of all databases.
    #[must_use]
    pub fn txns(&self, field: fn(&TxnStats) -> u64) -> u64 {
        self.txn.iter().map(field).sum()
    }

    /// How long row locks were waited for, all waits together.
    #[must_use]
    pub fn lock_wait_time(&self) -> Duration {
        self.txn.iter().map(|stats| stats.lock_wait_time).sum()
    }

    /// How long turns at hot rows were waited for, all waits together.
    #[must_use]
    pub fn turn_wait_time(&self) -> Duration {
        self.txn.iter().map(|stats| stats.turn_wait_time).sum()
    }

    /// Share of the accesses to pages that found them cached.
    #[must_use]
    pub fn hit_ratio(&self) -> f64 {
        let (hits, misses) = (self.engines(|stats| stats.hits), self.engines(|stats| stats.misses));
        if hits + misses == 0 { 1.0 } else { hits as f64 / (hits + misses) as f64 }
    }

    /// Attempts rolled back, by cause. Those asked for are the transactions that failed as the
    /// benchmark has it.
    pub fn aborts(&self) -> impl Iterator<Item = (AbortCause, u64)> + '_ {
        let of = |cause| self.txn.iter().map(|stats| stats.aborts.of(cause)).sum();
        AbortCause::ALL.into_iter().map(move |cause| (cause, of(cause)))
    }

    /// The same with what the workers committed.
    pub(crate) fn with_commits<N>(self, commits: N) -> Interval<K, N> {
        let Self { elapsed, interrupted, measurements, engine, txn, .. } = self;
        let (traffic, database_bytes) = (self.traffic, self.database_bytes);
        Interval {
            elapsed,
            interrupted,
            measurements,
            commits,
            engine,
            txn,
            traffic,
            database_bytes,
        }
    }

    /// Transactions completed in each whole second of it, and in what is left behind the last: how
    /// many seconds that is, and how many there.
    #[must_use]
    pub fn seconds(&self) -> (Vec<u64>, Option<(f64, u64)>) {
        let whole = usize::try_from(self.elapsed.as_secs()).unwrap_or(usize::MAX);
        let mut counts = self.measurements.seconds().to_vec();
        let rest = counts.split_off(whole.min(counts.len()));
        // Up to the last that saw one.
        counts.resize(whole, 0);
        let rest = rest.iter().sum::<u64>();
        let left = f64::from(self.elapsed.subsec_nanos()) / 1e9;
        (counts, (rest > 0).then_some((left, rest)))
    }
}

/// A worker's place.
pub(crate) struct WorkerIdentity<T> {
    /// Its node.
    pub(crate) node: Arc<Node<T>>,
    /// The incarnation of the node, from 1.
    pub(crate) incarnation: u32,
    /// Its number on the node.
    pub(crate) number: usize,
}

impl<T> WorkerIdentity<T> {
    /// The same for no two workers of a pool, whatever numbers of workers its processes run.
    pub(crate) fn ordinal(&self) -> u64 {
        (self.node.engine.node().index() * MAX_WORKERS + self.number) as u64
    }
}

/// Runs `worker` at every seat for the time of the setup.
///
/// # Errors
/// The first error of a worker, once all are over. `Log` or `LogTimeout` if none failed, but one
/// had to be dropped, and a log takes nothing in for the request timeout.
pub(crate) async fn measure<T, K, F>(
    cluster: &Cluster<T>,
    setup: &Setup,
    progress: &Arc<dyn Progress>,
    worker: impl Fn(WorkerIdentity<T>, Arc<RunControl<K>>) -> F,
) -> Result<Interval<K, ()>, TpccError>
where
    T: TableSet,
    K: Mix,
    F: Future<Output = Result<(), TpccError>> + Send + 'static,
{
    let env = cluster.env();
    let workers = cluster.nodes.len() * setup.workers;
    let control = Arc::new(RunControl::new(workers, setup.transactions)?);
    let state = cluster.pool().state();
    let mut tasks = Vec::new();
    for node in &cluster.nodes {
        // A pool of one process counts no incarnations.
        let index = compute_index(node.engine.node());
        let incarnation = state.incarnations.get(&index).copied().unwrap_or(0);
        for number in 0..setup.workers {
            let seat = WorkerIdentity { node: Arc::clone(node), incarnation, number };
            let worker = worker(seat, Arc::clone(&control));
            let control = Arc::clone(&control);
            tasks.push(async move {
                let result = worker.await;
                if result.is_err() {
                    control.stop();
                }
                control.worker_ended();
                result
            });
        }
    }
    let millis = u64::try_from(setup.duration.as_millis()).unwrap_or(u64::MAX);
    progress.begin("run", setup.transactions.unwrap_or(millis));
    let clock = async {
        wait(&env, setup.warmup, &control, None).await;
        // By the clock of now, as this task may wake up late: workers and counters begin as one.
        control.begin(env.now());
        let before = Counters::of(cluster, env.now());
        let interrupted = wait(&env, setup.duration, &control, Some(progress)).await;
        control.stop();
        (interrupted, before, Counters::of(cluster, env.now()))
    };
    // The clock comes first: without a warm-up nothing runs before the counters are read.
    let ((interrupted, before, after), result) = both(clock, join_all(&env, "worker", tasks)).await;
    progress.end();
    result.map_err(|error| error.or_pool_full(cluster.shape().needed_bytes()))?;
    if control.has_dropped() {
        // If that waited for a log that cannot be written, so would the check, at one page after
        // the other.
        for node in &cluster.nodes {
            node.engine.until_room(0).await?;
        }
    }
    Ok(Interval {
        elapsed: after.at - before.at,
        interrupted,
        measurements: control.take_measurements()?,
        commits: (),
        engine: sum(&after.engines, &before.engines),
        txn: after.txns.iter().zip(&before.txns).map(|(after, before)| *after - *before).collect(),
        traffic: after.traffic - before.traffic,
        database_bytes: cluster.used_bytes().await?,
    })
}

/// Waits for so long, or until the workers are told to stop; tells the progress of it. Whether it
/// was told to end before.
async fn wait<K: Mix>(
    env: &Env,
    duration: Duration,
    control: &RunControl<K>,
    progress: Option<&Arc<dyn Progress>>,
) -> bool {
    let started = env.now();
    let (mut told, waker, all) = (0, control.waker(), control.left());
    loop {
        let elapsed = (env.now() - started).min(duration);
        if let Some(progress) = progress {
            // Of the whole time: parts of milliseconds that each look dropped would be missing at
            // the end.
            let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
            let taken = all.zip(control.left()).map(|(all, left)| all.saturating_sub(left));
            let steps = taken.unwrap_or(elapsed_ms);
            progress.advance(steps.saturating_sub(told));
            told = steps;
        }
        let is_over = progress.is_some_and(|progress| progress.is_over());
        if elapsed >= duration || control.stopped() || is_over {
            return is_over && elapsed < duration;
        }
        // A run that has failed is over at once.
        control.sleep(env, &waker, TICK.min(duration - elapsed)).await;
    }
}

/// A snapshot of all counters.
struct Counters {
    at: Duration,
    engines: Vec<EngineStats>,
    txns: Vec<TxnStats>,
    traffic: MeterSnapshot,
}

impl Counters {
    fn of<T: TableSet>(cluster: &Cluster<T>, at: Duration) -> Self {
        Self {
            at,
            engines: cluster.nodes.iter().map(|node| node.engine.stats()).collect(),
            txns: cluster.nodes.iter().map(|node| node.db.stats()).collect(),
            traffic: cluster.traffic(),
        }
    }
}

fn sum(after: &[EngineStats], before: &[EngineStats]) -> Vec<EngineStats> {
    after.iter().zip(before).map(|(after, before)| *after - *before).collect()
}
