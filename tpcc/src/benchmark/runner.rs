//! A whole run of a benchmark in a pool of its own: start, load, measure, check, stop.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::{Env, RealRuntime};
use selkie_fabric::sim::{CostModel, World, WorldConfig};
use selkie_fabric::{Fabric, MemFabric, PeerId};
use selkie_txn::retry;

use super::definition::{Benchmark, Valid, WorkerContext};
use super::findings::Findings;
use super::load_progress::LoadProgress;
use super::report::Report;
use crate::cluster::{Cluster, MAX_VIRTUAL_DURATION, Network};
use crate::error::TpccError;
use crate::run::pieces::{Pieces, batches, in_pieces};
use crate::run::retries::{LOADING, PATIENCE};
use crate::run::tasks::unless_interrupted;
use crate::run::{
    Interval, LoadReport, Progress, WORKER_STREAMS, advance, measure, tell_load, work,
};
use crate::workload::Random;

/// Keys that a task loads or checks before it asks for more: so many that tasks seldom meet on a
/// page.
const PIECE: i32 = 512;
/// Keys that are loaded in one transaction.
const BATCH: i32 = 16;
/// Virtual time in which even the slowest run is over, with load and check.
const BOUND: Duration = Duration::from_secs(3 * 3600);
const _: () = assert!(BOUND.as_secs() >= 3 * MAX_VIRTUAL_DURATION.as_secs());

/// Loads a database into a pool of this process, runs the mix on it and checks it, in real time or,
/// where the network is simulated, in virtual time. Blocks until all is over; starts the threads it
/// needs.
///
/// # Errors
/// [`TpccError::PoolFull`]; else what broke. Rules that do not hold are no error but part of the
/// report.
pub fn run<B: Benchmark>(
    config: &Valid<B>,
    progress: &Arc<dyn Progress>,
) -> Result<Report<B>, TpccError> {
    let setup = config.shape().setup;
    match setup.network {
        Network::Real { threads } => {
            let runtime = RealRuntime::with_seed(threads, setup.seed)?;
            let env = runtime.env();
            // The calling thread is none of the runtime's, so it only waits.
            let (report, left) = runtime.block_on(async {
                let env_of = |_| env.clone();
                let told = Some(progress);
                match BenchmarkRun::begin(MemFabric::new(), &env, env_of, config, told).await {
                    Ok(stage) => stage.play(progress).await,
                    Err(error) => (Err(error), None),
                }
            });
            // First the tasks of the nodes end, then their memory goes.
            drop(runtime);
            drop(left);
            report
        }
        Network::Simulated(cost) => {
            let mail_threads = u32::try_from(setup.mail_tasks).unwrap_or(u32::MAX);
            let cost = CostModel { mail_threads, ..cost };
            let world = World::new(WorldConfig { cost, ..WorldConfig::new(setup.seed) });
            let report = world.run(BOUND, async {
                let stage = BenchmarkRun::start_in(&world, config).await?;
                stage.play(progress).await.0
            });
            report.map_err(|error| TpccError::Stuck(error.to_string()))?
        }
    }
}

/// A benchmark and the pool that it has for itself. [`run`] does one step after the other; tests do
/// something in between.
pub struct BenchmarkRun<B: Benchmark> {
    config: Arc<B>,
    cluster: Cluster<B::Tables>,
    ledger: Arc<B::Ledger>,
}

impl<B: Benchmark> BenchmarkRun<B> {
    /// Starts memory nodes, then compute nodes, each of these in an environment of its own, and
    /// creates the tables.
    ///
    /// # Errors
    /// What pool, engines and database report.
    pub async fn start(
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        config: &Valid<B>,
    ) -> Result<Self, TpccError> {
        Self::begin(fabric, env, env_of, config, None).await
    }

    /// As [`BenchmarkRun::start`], with the memory populated before anything else if there is
    /// somewhere to tell it.
    async fn begin(
        fabric: Arc<dyn Fabric>,
        env: &Env,
        env_of: impl Fn(usize) -> Env,
        config: &Valid<B>,
        told: Option<&Arc<dyn Progress>>,
    ) -> Result<Self, TpccError> {
        let (shape, ledger) = (config.shape(), Arc::new(config.ledger()));
        let cluster = Cluster::start_shaped(fabric, env, env_of, shape, told).await?;
        Ok(Self { config: Arc::new(B::clone(config)), cluster, ledger })
    }

    /// The same in a simulated world, each compute node with its own time.
    async fn start_in(world: &World, config: &Valid<B>) -> Result<Self, TpccError> {
        let node = |index: usize| PeerId::compute(u16::try_from(index).unwrap_or(u16::MAX));
        let env_of = |index| world.env_of(node(index));
        Self::start(world.fabric(), &world.env(), env_of, config).await
    }

    /// The pool's nodes.
    #[must_use]
    pub fn cluster(&self) -> &Cluster<B::Tables> {
        &self.cluster
    }

    /// Loads, measures, checks and stops. The report, and the nodes if they were not closed.
    async fn play(
        self,
        progress: &Arc<dyn Progress>,
    ) -> (Result<Report<B>, TpccError>, Option<Cluster<B::Tables>>) {
        let _entered = progress.roster().map(|roster| self.cluster.enter(roster));
        let report = async {
            let load = self.load(progress).await?;
            let interval = self.measure(progress).await?;
            self.report(load, interval, progress).await
        };
        let report = report.await;
        match (report, self.cluster.leave(progress).await) {
            (report, Ok(left)) => (report, left),
            // What broke first says more than what broke because of it.
            (report, Err(error)) => (report.and(Err(error)), None),
        }
    }

    fn pieces(&self) -> Pieces {
        let tasks_per_node = self.cluster.shape().setup.tasks_per_node();
        Pieces { numbers: 1..self.config.keys().saturating_add(1), size: PIECE, tasks_per_node }
    }

    /// Loads all keys.
    ///
    /// # Errors
    /// [`TpccError::PoolFull`] if they do not fit; else what the database reports.
    pub async fn load(&self, progress: &Arc<dyn Progress>) -> Result<LoadReport, TpccError> {
        let env = self.cluster.env();
        let started = env.now();
        progress.begin("load", self.config.keys().unsigned_abs().into());
        let told = LoadProgress::new(progress);
        let loaded = self.load_keys(progress, &told).await;
        progress.end();
        let rows = loaded.map_err(|error| {
            let keys = self.config.keys().unsigned_abs().into();
            let error = error.or_pool_full(self.cluster.shape().needed_bytes());
            error.or_load_stopped(told.loaded(), keys)
        })?;
        let duration = env.now() - started;
        let load = LoadReport { duration, rows, database_bytes: self.cluster.used_bytes().await? };
        tell_load(&load, self.cluster.shape(), progress);
        Ok(load)
    }

    /// Loads all keys, at once or in pieces; how many rows.
    async fn load_keys(
        &self,
        progress: &Arc<dyn Progress>,
        told: &LoadProgress,
    ) -> Result<u64, TpccError> {
        if let Some(node) = self.cluster.nodes.first() {
            let at_once = self.config.load_at_once(node, told);
            if let Some(rows) =
                unless_interrupted(&self.cluster.env(), &**progress, at_once).await?
            {
                return Ok(rows);
            }
        }
        let (sum, told) = (Arc::new(Mutex::new(0)), told.clone());
        let (config, rows) = (Arc::clone(&self.config), Arc::clone(&sum));
        let pieces =
            in_pieces(&self.cluster.nodes, "load", self.pieces(), progress, move |node, keys| {
                let (config, rows, told) = (Arc::clone(&config), Arc::clone(&rows), told.clone());
                async move {
                    for keys in batches(keys, BATCH) {
                        let load = || config.load(&node, keys.clone());
                        let loaded = retry(node.engine.env(), &LOADING, load).await;
                        *rows.lock() +=
                            loaded.map_err(|error| TpccError::of_retry("load", error))?;
                        told.advance(keys.len() as u64)?;
                    }
                    Ok(())
                }
            });
        pieces.await?;
        Ok(*sum.lock())
    }

    /// Runs the mix for the configured time.
    ///
    /// # Errors
    /// The first error of a worker that trying again does not mend.
    pub async fn measure(
        &self,
        progress: &Arc<dyn Progress>,
    ) -> Result<Interval<B::TransactionType, ()>, TpccError> {
        let setup = &self.cluster.shape().setup;
        let (seed, access) = (setup.seed, setup.network.access_time());
        measure(&self.cluster, setup, progress, |seat, control| {
            let (config, ledger) = (Arc::clone(&self.config), Arc::clone(&self.ledger));
            async move {
                let random = Random::stream(seed, WORKER_STREAMS + seat.ordinal());
                let place = WorkerContext { node: &*seat.node, ledger: &*ledger, access };
                let mut terminal = config.terminal(place, random)?;
                work(&mut terminal, seat.node.engine.env(), &control).await
            }
        })
        .await
    }

    /// Looks at the whole database. No transaction may write meanwhile.
    ///
    /// # Errors
    /// What the database reports.
    pub async fn check(&self, progress: &Arc<dyn Progress>) -> Result<Findings, TpccError> {
        progress.begin("check", self.config.keys().unsigned_abs().into());
        let (sum, told) = (Arc::new(Mutex::new(Findings::default())), Arc::clone(progress));
        let (config, ledger) = (Arc::clone(&self.config), Arc::clone(&self.ledger));
        let all = Arc::clone(&sum);
        let checked =
            in_pieces(&self.cluster.nodes, "check", self.pieces(), progress, move |node, keys| {
                let (config, ledger) = (Arc::clone(&config), Arc::clone(&ledger));
                let (all, told) = (Arc::clone(&all), Arc::clone(&told));
                async move {
                    let check = || config.check(&node, &ledger, keys.clone());
                    let found = retry(node.engine.env(), &PATIENCE, check).await;
                    all.lock().merge(found.map_err(|error| TpccError::of_retry("check", error))?);
                    advance(&*told, keys.len() as u64)?;
                    Ok(())
                }
            });
        let checked = checked.await;
        progress.end();
        checked?;
        let mut findings = std::mem::take(&mut *sum.lock());
        self.config.judge(&self.ledger, &mut findings);
        Ok(findings)
    }

    /// Checks, and says what came out.
    ///
    /// # Errors
    /// As [`BenchmarkRun::check`].
    pub async fn report(
        &self,
        load: LoadReport,
        interval: Interval<B::TransactionType, ()>,
        progress: &Arc<dyn Progress>,
    ) -> Result<Report<B>, TpccError> {
        let env = self.cluster.env();
        let started = env.now();
        let findings = self.check(progress).await?;
        let check = env.now() - started;
        Ok(Report { config: (*self.config).clone(), load, interval, findings, check })
    }

    /// Stops the compute nodes.
    ///
    /// # Errors
    /// The first failure; all nodes are stopped all the same.
    pub async fn close(self) -> Result<(), TpccError> {
        self.cluster.close().await
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::cluster::{Node, Setup};
    use crate::run::Silent;

    /// One compute node, in virtual time.
    pub(crate) fn one_node() -> Setup {
        let network = Network::Simulated(CostModel::PAPER);
        Setup { compute_nodes: 1, memory_nodes: 1, network, ..Setup::default() }
    }

    /// Loads a database in a world of its own and lets `test` work on it. All of it is checked
    /// then, against what `test` returns.
    pub(crate) fn on_loaded<B: Benchmark>(
        config: B,
        test: impl AsyncFnOnce(&[Arc<Node<B::Tables>>]) -> B::Ledger,
    ) {
        let config = Valid::new(config).unwrap();
        let world = World::new(WorldConfig::new(config.shape().setup.seed));
        let all = async {
            let progress: Arc<dyn Progress> = Arc::new(Silent);
            let mut stage = BenchmarkRun::start_in(&world, &config).await.unwrap();
            stage.load(&progress).await.unwrap();
            stage.ledger = Arc::new(test(&stage.cluster.nodes).await);
            let findings = stage.check(&progress).await.unwrap();
            stage.close().await.unwrap();
            findings
        };
        let findings = world.run(BOUND, all).unwrap();
        let broken: Vec<_> = findings.violations().map(ToString::to_string).collect();
        assert!(findings.hold(), "{broken:#?}");
    }
}
