//! Drivers of several processes on one database.
//!
//! They meet in labels of the pool: [`DATABASE`] says what is loaded or who is loading, [`PHASES`] which
//! drivers run the mix and which check. A check reads the whole database and needs it to be at rest, so
//! that drivers wait for each other: nobody begins to check while another runs, nor to run while another
//! checks. A driver whose nodes are gone is waited for no longer.
//!
//! ```text
//! open --> load, or wait for who loads --> run --> wait until nobody runs --> check --> leave
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_memnode::Pool;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::error::TpccError;
use crate::progress::Progress;
use crate::scale::Scale;

/// Label of what is loaded.
const DATABASE: &str = "tpcc.database";
/// Label of who is in which phase.
const PHASES: &str = "tpcc.phases";
/// How often a driver that waits for others looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long a driver that loads may be without a living node.
const LOADER_PATIENCE: Duration = Duration::from_secs(10);

/// What is in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Loaded {
    /// A driver is at it.
    Loading(u64),
    /// The database of these numbers.
    Complete(Shape),
}

/// What two drivers must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    warehouses: u32,
    items: i32,
    customers_per_district: i32,
    new_orders_per_district: i32,
    seed: u64,
}

impl Shape {
    fn of(config: &Config) -> Self {
        let Config { warehouses, seed, scale, .. } = *config;
        let Scale { items, customers_per_district, new_orders_per_district } = scale;
        Self { warehouses, items, customers_per_district, new_orders_per_district, seed }
    }

    /// Refuses a driver that is not of this shape.
    fn admit(&self, config: &Config) -> Result<(), TpccError> {
        let own = Self::of(config);
        let allowed = |what: String| format!("the pool holds a database of {what}");
        let refused = |key, value: String, what| {
            Err(TpccError::Config { key, value, allowed: allowed(what) })
        };
        if self.warehouses != own.warehouses {
            let what = format!("{} warehouses", self.warehouses);
            return refused("warehouses", own.warehouses.to_string(), what);
        }
        if self.seed != own.seed {
            return refused("seed", own.seed.to_string(), format!("seed {}", self.seed));
        }
        if *self != own {
            let what = format!("another scale: {} items", self.items);
            return refused("scale", format!("of {} items", own.items), what);
        }
        Ok(())
    }
}

/// Drivers by process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Phases {
    running: BTreeSet<u64>,
    checking: BTreeSet<u64>,
}

/// Whether this driver has to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody has: it loads, the others wait.
    Loads,
    /// The database is there.
    Joins,
}

/// A driver among others.
pub struct Driver {
    pool: Arc<Pool>,
    env: Env,
}

impl Driver {
    /// Finds out what is to be done in the pool, and waits for a driver that loads.
    ///
    /// # Errors
    /// [`TpccError::Config`] if the pool holds another database than asked for, [`TpccError::LoadCutShort`],
    /// [`TpccError::Pool`].
    pub async fn meet(
        pool: &Arc<Pool>,
        env: &Env,
        config: &Config,
        progress: &Arc<dyn Progress>,
    ) -> Result<(Self, Role), TpccError> {
        let driver = Self { pool: Arc::clone(pool), env: env.clone() };
        let mut missing_since = None;
        let mut told = false;
        loop {
            let host = driver.pool.host();
            let loading = to_text(&Loaded::Loading(host))?;
            match driver.label::<Loaded>(DATABASE)? {
                None => {
                    if driver.pool.set_label(DATABASE, None, Some(&loading)).await? {
                        return Ok((driver, Role::Loads));
                    }
                }
                Some(Loaded::Complete(shape)) => {
                    shape.admit(config)?;
                    return Ok((driver, Role::Joins));
                }
                Some(Loaded::Loading(loader)) => {
                    if !std::mem::replace(&mut told, true) {
                        progress.note("another driver loads the database: waiting for it");
                    }
                    // It is in the pool only once its nodes are.
                    let there = driver.pool.living_hosts().await?.contains(&loader);
                    let now = driver.env.now();
                    let since = *missing_since.get_or_insert(now);
                    if there {
                        missing_since = None;
                    } else if now - since > LOADER_PATIENCE {
                        return Err(TpccError::LoadCutShort);
                    }
                }
            }
            driver.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Tells the others that the database is there.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn loaded(&self, config: &Config) -> Result<(), TpccError> {
        let loading = to_text(&Loaded::Loading(self.pool.host()))?;
        let complete = to_text(&Loaded::Complete(Shape::of(config)))?;
        if self.pool.set_label(DATABASE, Some(&loading), Some(&complete)).await? {
            return Ok(());
        }
        // Somebody took it for dead.
        Err(TpccError::LoadCutShort)
    }

    /// Waits until nobody checks, and is then among those who run.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn begin_run(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        self.enter(|phases| phases.checking.is_empty() && phases.running.insert(host)).await
    }

    /// Is no longer among those who run, waits until nobody does, and is then among those who check.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn begin_check(&self) -> Result<(), TpccError> {
        self.leave().await?;
        let host = self.pool.host();
        self.enter(|phases| phases.running.is_empty() && phases.checking.insert(host)).await
    }

    /// Neither runs nor checks.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn leave(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        self.enter(|phases| {
            phases.running.remove(&host);
            phases.checking.remove(&host);
            true
        })
        .await
    }

    /// Changes the phases as soon as `change` agrees to them, without those whose nodes are gone. Waits for
    /// as long as living drivers are in the way.
    async fn enter(&self, change: impl Fn(&mut Phases) -> bool) -> Result<(), TpccError> {
        loop {
            let text = self.pool.label(PHASES);
            let mut phases: Phases = self.label(PHASES)?.unwrap_or_default();
            let living = self.pool.living_hosts().await?;
            phases.running.retain(|host| living.contains(host));
            phases.checking.retain(|host| living.contains(host));
            if change(&mut phases) {
                let new = to_text(&phases)?;
                if self.pool.set_label(PHASES, text.as_deref(), Some(&new)).await? {
                    return Ok(());
                }
            }
            self.env.sleep(LOOK_EVERY).await;
        }
    }

    fn label<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, TpccError> {
        let Some(text) = self.pool.label(name) else { return Ok(None) };
        let what = |error: serde_json::Error| TpccError::Label {
            name: name.to_owned(),
            what: error.to_string(),
        };
        serde_json::from_str(&text).map(Some).map_err(what)
    }
}

fn to_text<T: Serialize>(value: &T) -> Result<String, TpccError> {
    serde_json::to_string(value)
        .map_err(|error| TpccError::Label { name: "new".into(), what: error.to_string() })
}
