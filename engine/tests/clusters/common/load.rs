//! Load on coded pools while slabs are moved, and what is to hold for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::env::{Env, TaskHandle};
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, Migration, MigrationStage, Observer, Pool};

use super::pages::{check, fill, pages};
use super::{Cluster, PAGE};

/// Far beyond what anything here takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub async fn until(env: &Env, cluster: &Cluster, what: &str, over: impl Fn() -> bool) {
    let started = env.now();
    while !over() {
        let late = env.now() - started > PATIENCE;
        assert!(!late, "{what}: {:?}\n{}", cluster.pool.state(), cluster.describe());
        env.sleep(Duration::from_micros(200)).await;
    }
}

/// Whether all slabs lie on living memory nodes, and have all their splits.
pub fn is_whole(pool: &Pool) -> bool {
    let state = pool.state();
    let mut slabs = state.ranges.iter().flat_map(|range| &range.slabs);
    state.regeneration.is_none()
        && state.rebuilds.is_empty()
        && slabs.all(|slab| state.lives(slab.node))
}

/// Writers on all engines, each of which changes pages of its own and reads all, and adds to a
/// counter.
pub struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<TaskHandle>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
}

/// What a writer did: how often it changed each page, and what its adds returned.
pub type Outcome = Result<(Vec<u64>, Vec<u64>), EngineError>;

impl Load {
    pub fn start(cluster: &Cluster, pages: &Arc<Vec<GAddr>>, counter: GAddr) -> Self {
        let (env, stop) = (cluster.runtime.env(), Arc::new(AtomicBool::new(false)));
        let engines = cluster.engines.len();
        let outcomes: Arc<Mutex<Vec<Outcome>>> = Arc::default();
        let tasks = (0..2 * engines).map(|task| {
            let (engine, pages) = (cluster.engines[task % engines].clone(), Arc::clone(pages));
            let stop = Arc::clone(&stop);
            let told = Arc::clone(&outcomes);
            let (all, pool) = (cluster.engines.clone(), Arc::clone(&cluster.pool));
            let work = async move {
                let mut seed = task as u64 * 7919 + 1;
                let (mut changed, mut sums) = (vec![0; pages.len()], Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let number = (seed >> 33) as usize % pages.len();
                    let addr = pages[number];
                    if seed >> 20 & 15 == 0 {
                        sums.push(engine.fetch_add(counter, 1).await?);
                    }
                    // Some pages are of one engine, some of all.
                    let is_own = number % 4 == 3 || number % engines == task % engines;
                    if seed >> 24 & 3 == 0 || !is_own {
                        match engine.shared(addr).await {
                            Err(EngineError::PageLost { .. }) => continue,
                            page => drop(check(&page?, addr)),
                        }
                        continue;
                    }
                    let mut page = match engine.exclusive(addr).await {
                        Err(EngineError::PageLost { .. }) => continue,
                        page => page?,
                    };
                    let value = check(&page, addr);
                    fill(page.bytes_mut(0..PAGE), addr, value + 1);
                    changed[number] += 1;
                }
                Ok((changed, sums))
            };
            env.spawn("writer", async move {
                let outcome = work.await;
                if let Err(error) = &outcome {
                    let lines = all.iter().map(|engine| (engine.node(), engine.active_lines()));
                    let lines: Vec<_> = lines.collect();
                    eprintln!("a writer ends: {error}\n{lines:#?}\n{:?}", pool.state());
                }
                told.lock().push(outcome);
            })
        });
        let tasks = tasks.collect();
        Self { stop, tasks, outcomes }
    }

    pub async fn end(self) -> Vec<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            task.join().await.unwrap();
        }
        std::mem::take(&mut *self.outcomes.lock())
    }
}

impl Load {
    /// Ends, and finds that all writers have gone on, and that every engine reads what they did;
    /// the engines leave.
    pub async fn ends_well(self, cluster: &Cluster, pages: &[GAddr]) {
        let outcomes = self.end().await;
        for outcome in &outcomes {
            let (changed, sums) = outcome.as_ref().unwrap();
            assert!(changed.iter().sum::<u64>() > 100 && sums.len() > 10, "writers go on");
        }
        for engine in &cluster.engines {
            check_all(engine, pages, &outcomes).await;
        }
        for engine in &cluster.engines {
            engine.close().await.unwrap();
        }
    }
}

/// Reads all pages at an engine, and compares them with what the writers did.
pub async fn check_all(engine: &Engine, pages: &[GAddr], outcomes: &[Outcome]) {
    for (number, addr) in pages.iter().enumerate() {
        let changes = |outcome: &Outcome| outcome.as_ref().unwrap().0[number];
        let expected: u64 = outcomes.iter().map(changes).sum();
        assert_eq!(check(&engine.shared(*addr).await.unwrap(), *addr), expected + 1, "{addr}");
    }
    let mut sums = BTreeSet::new();
    for sum in outcomes.iter().flat_map(|outcome| &outcome.as_ref().unwrap().1) {
        assert!(sums.insert(*sum), "{sum} was returned twice");
    }
    assert!(sums.iter().copied().eq(0..sums.len() as u64), "all that was added was counted");
}

pub async fn prepare(cluster: &Cluster, count: usize) -> (Arc<Vec<GAddr>>, GAddr) {
    let counter = cluster.engines[0].allocate_counter().await.unwrap();
    (Arc::new(pages(&cluster.engines[0], count).await), counter)
}

/// Does something at the moment at which the move of a slab gets to a stage: before who moves it
/// begins with that.
pub struct AtStage<F> {
    stage: MigrationStage,
    pub met: OnceLock<Migration>,
    act: F,
}

impl<F: Fn(&Migration) + Send + Sync + 'static> AtStage<F> {
    pub fn watch(pool: &Pool, stage: MigrationStage, act: F) -> Arc<Self> {
        let watch = Arc::new(Self { stage, met: OnceLock::new(), act });
        let observer: Weak<dyn Observer> = Arc::downgrade(&watch) as Weak<dyn Observer>;
        pool.observe(observer);
        watch
    }
}

impl<F: Fn(&Migration) + Send + Sync> Observer for AtStage<F> {
    fn joined(&self, _: ComputeIndex, _: u32) -> bool {
        true
    }

    fn gone(&self, _: ComputeIndex) {}

    // The process that moves a migration on to a stage is told here first, in the same call.
    fn changed(&self, state: &PoolState) -> bool {
        let task = state.migration.filter(|task| task.stage == self.stage);
        if let Some(task) = task
            && self.met.set(task).is_ok()
        {
            (self.act)(&task);
        }
        true
    }
}
