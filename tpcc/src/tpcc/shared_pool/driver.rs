//! A driver among others on one database.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_pool::Pool;
use serde::de::DeserializeOwned;

use super::labels::{
    DATABASE, DatabaseLabel, DatabaseShape, DriverPhases, LoadedDatabase, PHASES, from_text,
    to_text,
};
use super::loader_absence::LoaderAbsence;
use crate::error::TpccError;
use crate::run::Progress;
use crate::tpcc::config::Config;

/// How often a driver that waits for others looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether this driver has to load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverRole {
    /// No driver has: this one loads, the others wait.
    Loads,
    /// It replaces what is there.
    Reloads,
    /// The database is there.
    Joins,
}

/// What to do about a database that is in the pool already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadPolicy {
    /// Work on it.
    IfMissing,
    /// Replace it, if no driver works on it. Its memory is not reclaimed.
    Anew,
}

/// A driver among others.
pub struct Driver {
    pool: Arc<Pool>,
    env: Env,
    generation: u64,
    abandoned_bytes: u64,
    /// What it is about to replace.
    replaces: Option<LoadedDatabase>,
}

/// What is known of a driver that loads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LoaderStatus {
    Lives,
    /// Its nodes are not in the pool: not yet, or no more.
    IsAway,
    /// It is gone, and what it wrote is of no use.
    CutShort,
}

impl Driver {
    /// Finds out what is to be done in the pool, and waits for a driver that loads.
    ///
    /// # Errors
    /// [`TpccError::Config`] if the pool holds another database than asked for,
    /// [`TpccError::LoadCutShort`], [`TpccError::DatabaseInUse`], [`TpccError::Pool`].
    pub async fn meet(
        pool: &Arc<Pool>,
        env: &Env,
        config: &Config,
        loading: LoadPolicy,
        progress: &Arc<dyn Progress>,
    ) -> Result<(Self, DriverRole), TpccError> {
        let (pool, env) = (Arc::clone(pool), env.clone());
        let mut driver = Self { pool, env, generation: 0, abandoned_bytes: 0, replaces: None };
        let mut missing = LoaderAbsence::default();
        let mut told = false;
        loop {
            match driver.label::<DatabaseLabel>(DATABASE)? {
                None => {
                    driver.generation = 1;
                    if driver.set_database(None, Some(&driver.writing())).await? {
                        return Ok((driver, DriverRole::Loads));
                    }
                }
                Some(DatabaseLabel::Complete(complete)) if loading == LoadPolicy::IfMissing => {
                    complete.shape.admit(config)?;
                    driver.generation = complete.generation;
                    driver.abandoned_bytes = complete.abandoned_bytes;
                    return Ok((driver, DriverRole::Joins));
                }
                Some(before @ DatabaseLabel::Complete(_)) => {
                    if driver.take_over(&before).await? {
                        return Ok((driver, DriverRole::Reloads));
                    }
                }
                Some(before @ DatabaseLabel::Loading { .. }) => {
                    match (driver.look_after(&before, &mut missing).await?, loading) {
                        (LoaderStatus::Lives, LoadPolicy::Anew) => {
                            return Err(TpccError::DatabaseInUse { drivers: 1 });
                        }
                        (LoaderStatus::CutShort, LoadPolicy::IfMissing) => {
                            return Err(TpccError::LoadCutShort);
                        }
                        (LoaderStatus::CutShort, LoadPolicy::Anew) => {
                            if driver.take_over(&before).await? {
                                return Ok((driver, DriverRole::Reloads));
                            }
                        }
                        (LoaderStatus::Lives | LoaderStatus::IsAway, _) => {}
                    }
                    if !std::mem::replace(&mut told, true) {
                        progress.note("another driver loads the database: waiting for it");
                    }
                }
            }
            driver.env.sleep(LOOK_EVERY).await;
        }
    }

    /// Looks whether the driver that loads still lives. If it is gone and has not changed a byte,
    /// puts back what was there; the label is another then.
    async fn look_after(
        &self,
        loading: &DatabaseLabel,
        missing: &mut LoaderAbsence,
    ) -> Result<LoaderStatus, TpccError> {
        let DatabaseLabel::Loading { host, generation, replaces } = loading else {
            return Ok(LoaderStatus::IsAway);
        };
        // It is in the pool only once its nodes are.
        let there = self.pool.living_hosts().await?.contains(host);
        if !missing.is_gone(*host, *generation, there, self.env.now()) {
            return Ok(if there { LoaderStatus::Lives } else { LoaderStatus::IsAway });
        }
        let Some(complete) = replaces else { return Ok(LoaderStatus::CutShort) };
        self.set_database(Some(loading), Some(&DatabaseLabel::Complete(complete.clone()))).await?;
        Ok(LoaderStatus::IsAway)
    }

    /// Takes the label of the database that was found, and gives it back if a driver uses it;
    /// false if the label was not `before`.
    async fn take_over(&mut self, before: &DatabaseLabel) -> Result<bool, TpccError> {
        let (generation, replaces, loader) = match before {
            DatabaseLabel::Loading { host, generation, .. } => (*generation, None, Some(*host)),
            DatabaseLabel::Complete(complete) => {
                (complete.generation, Some(complete.clone()), None)
            }
        };
        // Who comes in meanwhile is not to be kept waiting by one that will be refused.
        self.refuse_others(loader).await?;
        (self.generation, self.replaces) = (generation + 1, replaces);
        if !self.set_database(Some(before), Some(&self.loading())).await? {
            return Ok(false);
        }
        // From here on, every new driver sees the label.
        let refused = self.refuse_others(loader).await;
        if refused.is_err() {
            self.set_database(Some(&self.loading()), Some(before)).await?;
        }
        refused.map(|()| true)
    }

    /// Refuses to go on if others have the database open, or the one that loads it has come back.
    async fn refuse_others(&self, loader: Option<u64>) -> Result<(), TpccError> {
        let mut users = self.label::<DriverPhases>(PHASES)?.unwrap_or_default().present;
        users.extend(loader);
        users.remove(&self.pool.host());
        let living = self.pool.living_hosts().await?;
        users.retain(|host| living.contains(host));
        if users.is_empty() {
            return Ok(());
        }
        Err(TpccError::DatabaseInUse { drivers: users.len() })
    }

    fn loading(&self) -> DatabaseLabel {
        let (host, generation) = (self.pool.host(), self.generation);
        DatabaseLabel::Loading { host, generation, replaces: self.replaces.clone() }
    }

    async fn set_database(
        &self,
        old: Option<&DatabaseLabel>,
        new: Option<&DatabaseLabel>,
    ) -> Result<bool, TpccError> {
        let (old, new) = (old.map(to_text).transpose()?, new.map(to_text).transpose()?);
        Ok(self.pool.set_label(DATABASE, old.as_deref(), new.as_deref()).await?)
    }

    /// Bytes of pages in use in the pool that are of databases before this one.
    #[must_use]
    pub fn abandoned_bytes(&self) -> u64 {
        self.abandoned_bytes
    }

    /// Says, before anything is written, that this driver still is the one that loads: its nodes
    /// are in the pool now, so that no driver takes it for dead. What it replaces cannot be
    /// put back from then on.
    ///
    /// # Errors
    /// [`TpccError::LoadCutShort`] if another driver did, [`TpccError::Pool`].
    pub async fn still_loads(&self) -> Result<(), TpccError> {
        if self.set_database(Some(&self.loading()), Some(&self.writing())).await? {
            return Ok(());
        }
        Err(TpccError::LoadCutShort)
    }

    /// The label while it writes.
    fn writing(&self) -> DatabaseLabel {
        DatabaseLabel::Loading {
            host: self.pool.host(),
            generation: self.generation,
            replaces: None,
        }
    }

    /// Puts back what it was to replace, if it has not begun to.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn give_back(&self) -> Result<(), TpccError> {
        let Some(complete) = &self.replaces else { return Ok(()) };
        let complete = DatabaseLabel::Complete(complete.clone());
        self.set_database(Some(&self.loading()), Some(&complete)).await.map(drop)
    }

    /// Tells the others that the database is there, and how many bytes in use are not of it.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn loaded(&mut self, config: &Config, abandoned_bytes: u64) -> Result<(), TpccError> {
        let (generation, shape) = (self.generation, DatabaseShape::of(config));
        let complete =
            DatabaseLabel::Complete(LoadedDatabase { generation, abandoned_bytes, shape });
        if self.set_database(Some(&self.writing()), Some(&complete)).await? {
            self.abandoned_bytes = abandoned_bytes;
            return Ok(());
        }
        // Another driver took it for dead.
        Err(TpccError::LoadCutShort)
    }

    /// Is among those who have the database open, whose nodes are in the pool. Waits for a driver
    /// that may replace it, until it does or does not.
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
        let mut missing = LoaderAbsence::default();
        loop {
            let label = self.label::<DatabaseLabel>(DATABASE)?;
            let generation = match &label {
                Some(DatabaseLabel::Complete(LoadedDatabase { generation, .. })) => {
                    Some(*generation)
                }
                Some(DatabaseLabel::Loading { host: loader, generation, .. })
                    if *loader == host =>
                {
                    Some(*generation)
                }
                Some(loading @ DatabaseLabel::Loading { replaces: Some(_), .. }) => {
                    self.look_after(loading, &mut missing).await?;
                    self.env.sleep(LOOK_EVERY).await;
                    continue;
                }
                Some(DatabaseLabel::Loading { replaces: None, .. }) | None => None,
            };
            if generation == Some(self.generation) {
                return Ok(());
            }
            return Err(TpccError::DatabaseReplaced);
        }
    }

    /// Waits until no driver checks, then enters the run phase.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn begin_run(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        self.enter(|phases| phases.checking.is_empty() && phases.running.insert(host)).await
    }

    /// Is no longer among the drivers that run, waits until none does, and is then among those that
    /// check.
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

    /// Changes the phases as soon as `change` agrees to them, without those whose nodes are gone.
    /// Waits for as long as living drivers are in the way.
    async fn enter(&self, change: impl Fn(&mut DriverPhases) -> bool) -> Result<(), TpccError> {
        loop {
            let text = self.pool.label(PHASES);
            let mut phases: DriverPhases = self.label(PHASES)?.unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use std::future::Future;

    use selkie_fabric::sim::{World, WorldConfig};
    use selkie_memnode::EmbeddedPool;

    use super::super::labels::DatabaseShape;
    use super::super::loader_absence::LOADER_PATIENCE;
    use super::*;
    use crate::run::Silent;
    use crate::tpcc::scale::Scale;

    const BOUND: Duration = Duration::from_secs(60);
    /// A process that is not there.
    const GONE: u64 = 99;

    /// A pool that holds a database, in virtual time.
    struct Setting {
        world: World,
        pool: Arc<Pool>,
        config: Config,
        _memory: Arc<EmbeddedPool>,
    }

    impl Setting {
        fn new() -> Self {
            let world = World::new(WorldConfig::new(1));
            let config = Config {
                warehouses: 1,
                compute_nodes: 1,
                memory_nodes: 1,
                scale: Scale::divided_by(100),
                ..Config::default()
            };
            let memory = EmbeddedPool::start(&world.fabric(), config.pool()).unwrap();
            let pool = Arc::clone(memory.pool());
            let setting = Self { world, pool, config, _memory: memory };
            setting.label(&setting.complete());
            setting
        }

        fn run<T: 'static>(&self, work: impl Future<Output = T>) -> T {
            self.world.run(BOUND, work).unwrap()
        }

        /// The first database of the pool.
        fn complete(&self) -> DatabaseLabel {
            let shape = DatabaseShape::of(&self.config);
            DatabaseLabel::Complete(LoadedDatabase { generation: 1, abandoned_bytes: 0, shape })
        }

        /// The label of a driver that is gone, which wanted to replace that one.
        fn reloading(&self) -> DatabaseLabel {
            let DatabaseLabel::Complete(complete) = self.complete() else { unreachable!() };
            DatabaseLabel::Loading { host: GONE, generation: 2, replaces: Some(complete) }
        }

        fn label(&self, loaded: &DatabaseLabel) {
            let (old, new) = (self.pool.label(DATABASE), to_text(loaded).unwrap());
            let set = self.pool.set_label(DATABASE, old.as_deref(), Some(&new));
            assert!(self.run(set).unwrap());
        }

        fn found(&self) -> DatabaseLabel {
            from_text(DATABASE, &self.pool.label(DATABASE).unwrap()).unwrap()
        }

        fn meet(&self, loading: LoadPolicy) -> Result<(Driver, DriverRole), TpccError> {
            let progress: Arc<dyn Progress> = Arc::new(Silent);
            let env = self.world.env();
            self.run(Driver::meet(&self.pool, &env, &self.config, loading, &progress))
        }
    }

    const CUT_SHORT: DatabaseLabel =
        DatabaseLabel::Loading { host: GONE, generation: 2, replaces: None };

    #[test]
    fn what_a_driver_that_is_gone_was_only_about_to_replace_is_put_back() {
        for (loading, role) in
            [(LoadPolicy::IfMissing, DriverRole::Joins), (LoadPolicy::Anew, DriverRole::Reloads)]
        {
            let setting = Setting::new();
            setting.label(&setting.reloading());
            let (driver, found) = setting.meet(loading).unwrap();
            assert_eq!(found, role);
            assert!(setting.world.now() > LOADER_PATIENCE, "it may only not have started yet");
            setting.run(driver.give_back()).unwrap();
            assert_eq!(setting.found(), setting.complete());
        }
    }

    #[test]
    fn what_was_begun_to_be_replaced_is_cut_short() {
        let setting = Setting::new();
        setting.label(&CUT_SHORT);
        let refused = setting.meet(LoadPolicy::IfMissing).map(|(_, role)| role).unwrap_err();
        assert!(matches!(refused, TpccError::LoadCutShort), "{refused}");
        let (driver, role) = setting.meet(LoadPolicy::Anew).unwrap();
        assert_eq!((role, driver.generation), (DriverRole::Reloads, 3));
        setting.run(driver.give_back()).unwrap();
        let DatabaseLabel::Loading { generation: 3, replaces: None, .. } = setting.found() else {
            panic!("there is nothing to give back: {:?}", setting.found());
        };
    }

    #[test]
    fn a_driver_gives_back_only_what_it_has_not_changed() {
        let setting = Setting::new();
        let (driver, _) = setting.meet(LoadPolicy::Anew).unwrap();
        assert_ne!(setting.found(), setting.complete());
        setting.run(driver.give_back()).unwrap();
        assert_eq!(setting.found(), setting.complete());
        let refused = setting.run(driver.still_loads()).unwrap_err();
        assert!(matches!(refused, TpccError::LoadCutShort), "{refused}");

        let (driver, _) = setting.meet(LoadPolicy::Anew).unwrap();
        setting.run(driver.still_loads()).unwrap();
        setting.run(driver.give_back()).unwrap();
        assert_eq!(setting.found(), driver.writing());
    }

    #[test]
    fn who_comes_in_waits_for_what_becomes_of_a_reload() {
        let setting = Setting::new();
        let (driver, _) = setting.meet(LoadPolicy::IfMissing).unwrap();
        setting.label(&setting.reloading());
        setting.run(driver.come_in()).unwrap();
        assert_eq!(setting.found(), setting.complete());
        setting.label(&CUT_SHORT);
        let error = setting.run(driver.come_in()).unwrap_err();
        assert!(matches!(error, TpccError::DatabaseReplaced), "{error}");
    }
}
