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
//!
//! A driver may also be told to load anew: it then takes the label of the database first, so that nobody can come
//! in, and gives up if somebody is. That works because a driver that comes in says so first, and looks at the label
//! again then: of two changes to one document one is the later, and who makes that sees the other. Databases
//! have *generations*, so that who comes in is not taken in by a new one under the same label.

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
    Loading {
        /// Its process.
        host: u64,
        /// The so-manieth database of the pool.
        generation: u64,
    },
    /// The database of these numbers.
    Complete {
        /// The so-manieth of the pool.
        generation: u64,
        /// Bytes of pages in use that are of those before.
        abandoned_bytes: u64,
        /// Its numbers.
        shape: Shape,
    },
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
    /// Have the database open.
    present: BTreeSet<u64>,
    running: BTreeSet<u64>,
    checking: BTreeSet<u64>,
}

/// Whether this driver has to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Nobody has: it loads, the others wait.
    Loads,
    /// It replaces what is there.
    Reloads,
    /// The database is there.
    Joins,
}

/// What to do about a database that is in the pool already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// Work on it.
    IfMissing,
    /// Replace it, if nobody works on it. The memory that it takes is not reclaimed.
    Anew,
}

/// A driver among others.
pub struct Driver {
    pool: Arc<Pool>,
    env: Env,
    generation: u64,
    abandoned_bytes: u64,
}

impl Driver {
    /// Finds out what is to be done in the pool, and waits for a driver that loads.
    ///
    /// # Errors
    /// [`TpccError::Config`] if the pool holds another database than asked for, [`TpccError::LoadCutShort`],
    /// [`TpccError::DatabaseInUse`], [`TpccError::Pool`].
    pub async fn meet(
        pool: &Arc<Pool>,
        env: &Env,
        config: &Config,
        loading: Loading,
        progress: &Arc<dyn Progress>,
    ) -> Result<(Self, Role), TpccError> {
        let (pool, env) = (Arc::clone(pool), env.clone());
        let mut driver = Self { pool, env, generation: 0, abandoned_bytes: 0 };
        let mut missing_since = None;
        let mut told = false;
        loop {
            match driver.label::<Loaded>(DATABASE)? {
                None => {
                    driver.generation = 1;
                    if driver.set_database(None, Some(&driver.loading()?)).await? {
                        return Ok((driver, Role::Loads));
                    }
                }
                Some(Loaded::Complete { generation, abandoned_bytes, shape })
                    if loading == Loading::IfMissing =>
                {
                    shape.admit(config)?;
                    (driver.generation, driver.abandoned_bytes) = (generation, abandoned_bytes);
                    return Ok((driver, Role::Joins));
                }
                Some(before @ Loaded::Complete { generation, .. }) => {
                    if driver.take_over(&before, generation).await? {
                        return Ok((driver, Role::Reloads));
                    }
                }
                Some(before @ Loaded::Loading { host, generation }) => {
                    // It is in the pool only once its nodes are.
                    let there = driver.pool.living_hosts().await?.contains(&host);
                    let now = driver.env.now();
                    let since = *missing_since.get_or_insert(now);
                    let is_gone = !there && now - since > LOADER_PATIENCE;
                    match loading {
                        Loading::Anew if there => {
                            return Err(TpccError::DatabaseInUse { drivers: 1 });
                        }
                        Loading::Anew
                            if is_gone && driver.take_over(&before, generation).await? =>
                        {
                            return Ok((driver, Role::Reloads));
                        }
                        Loading::IfMissing if is_gone => return Err(TpccError::LoadCutShort),
                        Loading::IfMissing if there => missing_since = None,
                        _ => {}
                    }
                    if !std::mem::replace(&mut told, true) {
                        progress.note("another driver loads the database: waiting for it");
                    }
                }
            }
            driver.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Takes the label of the database that was found, and gives it back if somebody uses that; false if the
    /// label was not `before`.
    async fn take_over(&mut self, before: &Loaded, generation: u64) -> Result<bool, TpccError> {
        self.generation = generation + 1;
        let (before, own) = (to_text(before)?, self.loading()?);
        if !self.set_database(Some(&before), Some(&own)).await? {
            return Ok(false);
        }
        // From here on nobody comes in unseen.
        let mut users = self.label::<Phases>(PHASES)?.unwrap_or_default().present;
        if let Loaded::Loading { host, .. } = from_text(DATABASE, &before)? {
            users.insert(host);
        }
        users.remove(&self.pool.host());
        let living = self.pool.living_hosts().await?;
        users.retain(|host| living.contains(host));
        if users.is_empty() {
            return Ok(true);
        }
        self.set_database(Some(&own), Some(&before)).await?;
        Err(TpccError::DatabaseInUse { drivers: users.len() })
    }

    fn loading(&self) -> Result<String, TpccError> {
        to_text(&Loaded::Loading { host: self.pool.host(), generation: self.generation })
    }

    async fn set_database(&self, old: Option<&str>, new: Option<&str>) -> Result<bool, TpccError> {
        Ok(self.pool.set_label(DATABASE, old, new).await?)
    }

    /// Bytes of pages in use in the pool that are of databases before this one.
    #[must_use]
    pub fn abandoned_bytes(&self) -> u64 {
        self.abandoned_bytes
    }

    /// Says, before anything is written, that this driver still is the one that loads: its nodes are in the pool
    /// now, so that nobody takes it for dead any more.
    ///
    /// # Errors
    /// [`TpccError::LoadCutShort`] if somebody did, [`TpccError::Pool`].
    pub async fn still_loads(&self) -> Result<(), TpccError> {
        let own = self.loading()?;
        if self.set_database(Some(&own), Some(&own)).await? {
            return Ok(());
        }
        Err(TpccError::LoadCutShort)
    }

    /// Tells the others that the database is there, and how many bytes in use are not of it.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn loaded(&mut self, config: &Config, abandoned_bytes: u64) -> Result<(), TpccError> {
        let (generation, shape) = (self.generation, Shape::of(config));
        let complete = to_text(&Loaded::Complete { generation, abandoned_bytes, shape })?;
        if self.set_database(Some(&self.loading()?), Some(&complete)).await? {
            self.abandoned_bytes = abandoned_bytes;
            return Ok(());
        }
        // Somebody took it for dead.
        Err(TpccError::LoadCutShort)
    }

    /// Is among those who have the database open, whose nodes are in the pool.
    ///
    /// # Errors
    /// [`TpccError::DatabaseReplaced`] if it is another one meanwhile, [`TpccError::Pool`].
    pub async fn come_in(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        self.enter(|phases| {
            phases.present.insert(host);
            true
        })
        .await?;
        let generation = match self.label::<Loaded>(DATABASE)? {
            Some(Loaded::Complete { generation, .. }) => Some(generation),
            Some(Loaded::Loading { host: loader, generation }) if loader == host => {
                Some(generation)
            }
            _ => None,
        };
        if generation == Some(self.generation) {
            return Ok(());
        }
        Err(TpccError::DatabaseReplaced)
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
        let host = self.pool.host();
        self.enter(|phases| {
            phases.running.remove(&host);
            true
        })
        .await?;
        self.enter(|phases| phases.running.is_empty() && phases.checking.insert(host)).await
    }

    /// Neither runs nor checks, and has the database open no more.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn leave(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        self.enter(|phases| {
            phases.running.remove(&host);
            phases.checking.remove(&host);
            phases.present.remove(&host);
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
            phases.present.retain(|host| living.contains(host));
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
        from_text(name, &text).map(Some)
    }
}

fn from_text<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, TpccError> {
    serde_json::from_str(text)
        .map_err(|error| TpccError::Label { name: name.to_owned(), what: error.to_string() })
}

fn to_text<T: Serialize>(value: &T) -> Result<String, TpccError> {
    serde_json::to_string(value)
        .map_err(|error| TpccError::Label { name: "new".into(), what: error.to_string() })
}
