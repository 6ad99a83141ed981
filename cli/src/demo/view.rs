//! A pool as `selkie pool status` and `selkie top` show it, in one line.

use std::sync::Arc;
use std::time::{Duration, Instant};

use selkie::fabric::RealRuntime;
use selkie::pool::control::PoolState;
use selkie::pool::{Health, Verdict};
use selkie::shared::{Credentials, Place, SharedPool, SharedPoolError};
use selkie_tpcc::units;

use crate::commands::pool_verdict::headline;
use crate::scenario::error::ScenarioError;
use crate::top::snapshot::{PoolWatch, Snapshot};

/// A pool that is looked at again and again.
pub(super) struct View {
    name: String,
    shared: SharedPool,
    runtime: RealRuntime,
    watch: PoolWatch,
    started: Instant,
    /// When how many slabs were to be rebuilt, for the rate.
    rebuilding: Option<(Instant, usize)>,
}

/// The pool at one time.
pub(super) struct Look {
    pub(super) state: Arc<PoolState>,
    pub(super) health: Health,
    /// What `selkie top` shows.
    pub(super) seen: Snapshot,
    /// Bytes a second that are rebuilt.
    rebuilt: Option<f64>,
}

impl View {
    pub(super) fn of(place: &Place) -> Result<Self, ScenarioError> {
        let runtime =
            RealRuntime::new(1).map_err(|source| ScenarioError::io("a thread", source))?;
        let shared = SharedPool::at(place, Credentials::default()).map_err(refused)?;
        let (watch, started) = (PoolWatch::default(), Instant::now());
        Ok(Self { name: place.to_string(), shared, runtime, watch, started, rebuilding: None })
    }

    pub(super) fn look(&mut self) -> Result<Look, ScenarioError> {
        let shared = &self.shared;
        let looked = self.runtime.block_on(async {
            let (state, living) = (shared.load().await?, shared.living().await?);
            let beats = shared.plane().beats().await.map_err(|error| shared.explain(error))?;
            Ok::<_, SharedPoolError>((state, living, beats))
        });
        let (state, living, beats) = looked.map_err(refused)?;
        let health = state.health(|node| living.contains(&node));
        let seen = self.watch.look(&self.name, self.started.elapsed(), &state, &beats, &health);
        let rebuilt = self.rebuilt(&state, health.slabs_to_rebuild);
        Ok(Look { state, health, seen, rebuilt })
    }

    /// How fast slabs become fewer that are to be rebuilt, since they began to.
    fn rebuilt(&mut self, state: &PoolState, left: usize) -> Option<f64> {
        let now = Instant::now();
        let (since, before) = match self.rebuilding {
            Some((_, before)) if left == 0 || left > before => {
                self.rebuilding = None;
                return None;
            }
            Some(rebuilding) => rebuilding,
            None => *self.rebuilding.insert((now, left)),
        };
        let seconds = now.duration_since(since).as_secs_f64();
        let done = (before - left) as f64 * state.slab_bytes() as f64;
        (done > 0.0 && seconds > 0.0).then(|| done / seconds)
    }
}

impl Look {
    pub(super) fn is_healthy(&self) -> bool {
        self.health.verdict() == Verdict::Healthy
    }

    /// Whether the memory node is missed.
    pub(super) fn misses(&self, node: u16) -> bool {
        self.health.gone.contains(&node) || self.health.silent.contains(&node)
    }

    /// The first line of `pool status`, and the rate of `top`.
    pub(super) fn line(&self) -> String {
        // Transactions a second of all drivers, if they have reported.
        let rate = match self.seen.total.operations {
            Some(rate) => format!("{} transactions a second", units::count(rate as u64)),
            None => "no rate yet".to_owned(),
        };
        format!("{rate}; pool {}", headline(&self.health, &self.state, self.rebuilt))
    }
}

/// How often a pool is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

fn refused(error: SharedPoolError) -> ScenarioError {
    ScenarioError::Process { name: "the pool".to_owned(), what: error.to_string() }
}
