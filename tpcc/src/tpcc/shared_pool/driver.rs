//! A driver among others on one database.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::env::Env;
use selkie_pool::{Pool, WaitNotice};
use serde::de::DeserializeOwned;

use super::awaited::{
    ANOTHER, AwaitedDriver, CHANGE, CHECK, LOADER, REPLACER, RUN, SILENT, others,
};
use super::labels::{
    DATABASE, DatabaseLabel, DatabaseShape, DriverPhases, LoadStage, LoadUnderWay, LoadedDatabase,
    PHASES, from_text, to_text,
};
use super::load_patience::LoadPatience;
use super::loader_absence::{LoaderAbsence, STARTING_PATIENCE};
use crate::error::TpccError;
use crate::run::tasks::unless_interrupted;
use crate::run::{Progress, check_interrupted};
use crate::tpcc::config::Config;

/// How often a driver that waits for others looks again.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long drivers may be in the way of a phase before the others give up, beyond the time that
/// their measurements take: a check of a large database lasts many minutes.
const PHASE_PATIENCE: Duration = Duration::from_secs(3600);

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

/// The warehouses of the database that the pool holds, or that a driver loads there; none if there
/// is no database.
///
/// # Errors
/// [`TpccError::Label`].
pub fn warehouses_in(pool: &Pool) -> Result<Option<u32>, TpccError> {
    let Some(text) = pool.label(DATABASE) else { return Ok(None) };
    Ok(match from_text(DATABASE, &text)? {
        DatabaseLabel::Complete(LoadedDatabase { shape, .. })
        | DatabaseLabel::Loading(LoadUnderWay { shape, .. }) => Some(shape.warehouses()),
        DatabaseLabel::CutShort { .. } => None,
    })
}

/// A driver among others.
pub struct Driver {
    pool: Arc<Pool>,
    env: Env,
    progress: Arc<dyn Progress>,
    shape: DatabaseShape,
    /// How long it measures.
    duration: Duration,
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
    /// [`TpccError::Config`] if the pool holds another database than asked for, or another driver
    /// loads one, [`TpccError::LoadCutShort`], [`TpccError::DatabaseInUse`],
    /// [`TpccError::PhaseHangs`], [`TpccError::Interrupted`], [`TpccError::Pool`].
    pub async fn meet(
        pool: &Arc<Pool>,
        env: &Env,
        config: &Config,
        loading: LoadPolicy,
        progress: &Arc<dyn Progress>,
    ) -> Result<(Self, DriverRole), TpccError> {
        let mut driver = Self::new(pool, env, config, progress);
        let (mut missing, mut patience) = (LoaderAbsence::default(), LoadPatience::default());
        let mut notice = WaitNotice::new(env.now());
        loop {
            let found = driver.label::<DatabaseLabel>(DATABASE)?;
            let mut waits_for = ANOTHER;
            match (found, loading) {
                (None, _) => {
                    driver.generation = 1;
                    if driver.set_database(None, Some(&driver.loading())).await? {
                        return Ok((driver, DriverRole::Loads));
                    }
                }
                (Some(DatabaseLabel::Complete(complete)), LoadPolicy::IfMissing) => {
                    complete.shape.admit(config, true)?;
                    driver.generation = complete.generation;
                    driver.abandoned_bytes = complete.abandoned_bytes;
                    return Ok((driver, DriverRole::Joins));
                }
                (Some(DatabaseLabel::CutShort { .. }), LoadPolicy::IfMissing) => {
                    return Err(TpccError::LoadCutShort);
                }
                (
                    Some(before @ (DatabaseLabel::Complete(_) | DatabaseLabel::CutShort { .. })),
                    LoadPolicy::Anew,
                ) => {
                    if driver.take_over(&before).await? {
                        return Ok((driver, DriverRole::Reloads));
                    }
                }
                (Some(DatabaseLabel::Loading(load)), _) => {
                    match (driver.look_after(&load, &mut missing).await?, loading) {
                        (LoaderStatus::Lives, LoadPolicy::Anew) => {
                            driver.refuse_others(Some(load.host)).await?;
                        }
                        (LoaderStatus::CutShort, LoadPolicy::IfMissing) => {
                            return Err(TpccError::LoadCutShort);
                        }
                        (LoaderStatus::CutShort, LoadPolicy::Anew) => {
                            if driver.take_over(&DatabaseLabel::Loading(load)).await? {
                                return Ok((driver, DriverRole::Reloads));
                            }
                        }
                        (LoaderStatus::Lives, LoadPolicy::IfMissing) => {
                            // Before the wait, at the end of which it would be refused.
                            load.shape.admit(config, false)?;
                            patience.check(&load, env.now())?;
                            waits_for = LOADER;
                        }
                        (LoaderStatus::IsAway, _) => waits_for = load.stage.of_one_away(),
                    }
                }
            }
            driver.wait(&mut notice, || (waits_for.what.to_owned(), waits_for.helps)).await?;
        }
    }

    fn new(pool: &Arc<Pool>, env: &Env, config: &Config, progress: &Arc<dyn Progress>) -> Self {
        Self {
            pool: Arc::clone(pool),
            env: env.clone(),
            progress: Arc::clone(progress),
            shape: DatabaseShape::of(config),
            duration: config.duration,
            generation: 0,
            abandoned_bytes: 0,
            replaces: None,
        }
    }

    /// Says that a database was just loaded into a pool that no other driver uses. Drivers of
    /// a pool that is recovered from its logs go by that.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub(crate) async fn alone(
        pool: &Arc<Pool>,
        env: &Env,
        config: &Config,
        progress: &Arc<dyn Progress>,
    ) -> Result<Self, TpccError> {
        let driver = Self { generation: 1, ..Self::new(pool, env, config, progress) };
        driver.set_database(None, Some(&driver.writing())).await?;
        Ok(driver)
    }

    /// Waits for `work`, but not for long once the run is interrupted.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = Result<T, TpccError>>,
    ) -> Result<T, TpccError> {
        unless_interrupted(&self.env, &*self.progress, work).await
    }

    /// Waits a little, and says for what if that lasts, and what would help.
    async fn wait(
        &self,
        notice: &mut WaitNotice,
        what: impl FnOnce() -> (String, &'static str),
    ) -> Result<(), TpccError> {
        check_interrupted(&*self.progress)?;
        let (what, helps) = what();
        self.progress.wait(&what);
        if let Some(waited) = notice.due(self.env.now()) {
            let waited = waited.as_secs();
            self.progress.note(&format!("has waited for {waited} s, for {what}; {helps}"));
        }
        self.env.sleep(LOOK_EVERY).await;
        Ok(())
    }

    /// Looks whether the driver that loads still lives. If it is gone and has not changed a byte,
    /// puts back what was there; the label is another then.
    async fn look_after(
        &self,
        load: &LoadUnderWay,
        missing: &mut LoaderAbsence,
    ) -> Result<LoaderStatus, TpccError> {
        let LoadUnderWay { host, generation, stage, .. } = load;
        // It is in the pool only once its nodes are.
        let there = self.pool.living_hosts().await?.contains(host);
        let patience = match stage {
            LoadStage::Begins(_) => STARTING_PATIENCE,
            // It was in. A short silence is not the end of it.
            LoadStage::Writes => self.pool.state().timing.lease,
        };
        if !missing.is_gone((*host, *generation), there, self.env.now(), patience) {
            return Ok(if there { LoaderStatus::Lives } else { LoaderStatus::IsAway });
        }
        let before = match stage {
            LoadStage::Writes => return Ok(LoaderStatus::CutShort),
            LoadStage::Begins(replaces) => replaces.clone().map(DatabaseLabel::Complete),
        };
        let loading = DatabaseLabel::Loading(load.clone());
        self.set_database(Some(&loading), before.as_ref()).await?;
        Ok(LoaderStatus::IsAway)
    }

    /// Takes the label of the database that was found, and gives it back if a driver uses it;
    /// false if the label was not `before`.
    async fn take_over(&mut self, before: &DatabaseLabel) -> Result<bool, TpccError> {
        let (generation, replaces, loader) = match before {
            DatabaseLabel::Loading(LoadUnderWay { host, generation, .. }) => {
                (*generation, None, Some(*host))
            }
            DatabaseLabel::CutShort { generation } => (*generation, None, None),
            DatabaseLabel::Complete(complete) => {
                (complete.generation, Some(complete.clone()), None)
            }
        };
        // A driver that comes in meanwhile is not to be kept waiting by one that will be refused.
        self.refuse_others(loader).await?;
        (self.generation, self.replaces) = (generation + 1, replaces);
        // What a broken-off load has left is there whatever becomes of this one.
        let taken = if self.replaces.is_some() { self.loading() } else { self.writing() };
        if !self.set_database(Some(before), Some(&taken)).await? {
            return Ok(false);
        }
        // From here on, every new driver sees the label.
        let refused = self.refuse_others(loader).await;
        if refused.is_err() {
            self.set_database(Some(&taken), Some(before)).await?;
        }
        refused.map(|()| true)
    }

    /// Refuses to go on if others have the database open, or the one that loads it has come back.
    /// One that was killed a moment ago still counts as living: it is waited for until it shows
    /// that it lives, or is taken for gone.
    async fn refuse_others(&self, loader: Option<u64>) -> Result<(), TpccError> {
        let mut users = self.label::<DriverPhases>(PHASES)?.unwrap_or_default().present;
        users.extend(loader);
        users.remove(&self.pool.host());
        let began = self.env.now();
        let mut notice = WaitNotice::new(began);
        loop {
            let living = self.pool.living_hosts().await?;
            users.retain(|host| living.contains(host));
            if users.is_empty() {
                return Ok(());
            }
            let shown = self.pool.hosts_within(self.env.now() - began).await?;
            let drivers = users.intersection(&shown).count();
            if drivers > 0 {
                return Err(TpccError::DatabaseInUse { drivers });
            }
            self.wait(&mut notice, || (SILENT.what.to_owned(), SILENT.helps)).await?;
        }
    }

    /// The label before it writes.
    fn loading(&self) -> DatabaseLabel {
        self.at(LoadStage::Begins(self.replaces.clone()))
    }

    /// The label while it writes.
    fn writing(&self) -> DatabaseLabel {
        self.at(LoadStage::Writes)
    }

    fn at(&self, stage: LoadStage) -> DatabaseLabel {
        let (host, generation, shape) = (self.pool.host(), self.generation, self.shape.clone());
        DatabaseLabel::Loading(LoadUnderWay { host, generation, shape, stage })
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
        let writing = self.writing();
        if self.set_database(Some(&self.loading()), Some(&writing)).await?
            || self.label(DATABASE)? == Some(writing)
        {
            return Ok(());
        }
        Err(TpccError::LoadCutShort)
    }

    /// Gives up a load that is not done: puts back what it was to replace, if it has not begun to,
    /// and else says that a part is there. Does nothing if another driver took it for dead.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn give_up(&self) -> Result<(), TpccError> {
        let before = self.replaces.clone().map(DatabaseLabel::Complete);
        if self.set_database(Some(&self.loading()), before.as_ref()).await? {
            return Ok(());
        }
        let cut_short = DatabaseLabel::CutShort { generation: self.generation };
        self.set_database(Some(&self.writing()), Some(&cut_short)).await.map(drop)
    }

    /// Tells the others that the database is there, and how many bytes in use are not of it.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn loaded(&mut self, abandoned_bytes: u64) -> Result<(), TpccError> {
        let (generation, shape) = (self.generation, self.shape.clone());
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
    /// [`TpccError::DatabaseReplaced`] if it is another one meanwhile, [`TpccError::PhaseHangs`],
    /// [`TpccError::Interrupted`], [`TpccError::Pool`].
    pub async fn come_in(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        let present = |phases: &mut DriverPhases| {
            phases.present.insert(host);
            0
        };
        self.enter(present, CHANGE).await?;
        let (mut missing, mut patience) = (LoaderAbsence::default(), LoadPatience::default());
        let mut notice = WaitNotice::new(self.env.now());
        loop {
            let generation = match self.label::<DatabaseLabel>(DATABASE)? {
                Some(DatabaseLabel::Complete(LoadedDatabase { generation, .. })) => {
                    Some(generation)
                }
                Some(DatabaseLabel::Loading(load)) if load.host == host => Some(load.generation),
                Some(DatabaseLabel::Loading(
                    load @ LoadUnderWay { stage: LoadStage::Begins(Some(_)), .. },
                )) => {
                    self.look_after(&load, &mut missing).await?;
                    patience.check(&load, self.env.now())?;
                    self.wait(&mut notice, || (REPLACER.what.to_owned(), REPLACER.helps)).await?;
                    continue;
                }
                Some(DatabaseLabel::Loading(_) | DatabaseLabel::CutShort { .. }) | None => None,
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
    /// [`TpccError::Pool`], [`TpccError::Interrupted`], [`TpccError::PhaseHangs`].
    pub async fn begin_run(&self) -> Result<(), TpccError> {
        let (host, own_s) = (self.pool.host(), self.duration.as_secs());
        let run = |phases: &mut DriverPhases| {
            let others_s = if phases.running.is_empty() { 0 } else { phases.longest_run_s };
            phases.longest_run_s = own_s.max(others_s);
            phases.running.insert(host);
            phases.checking.len()
        };
        self.enter(run, CHECK).await
    }

    /// Is no longer among the drivers that run, waits until none does, and is then among those that
    /// check.
    ///
    /// # Errors
    /// [`TpccError::Pool`], [`TpccError::Interrupted`], [`TpccError::PhaseHangs`].
    pub async fn begin_check(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        let rest = |phases: &mut DriverPhases| {
            phases.running.remove(&host);
            0
        };
        self.enter(rest, CHANGE).await?;
        let check = |phases: &mut DriverPhases| {
            phases.checking.insert(host);
            phases.running.len()
        };
        self.enter(check, RUN).await
    }

    /// Neither runs nor checks, and has the database open no more.
    ///
    /// # Errors
    /// [`TpccError::Pool`].
    pub async fn leave(&self) -> Result<(), TpccError> {
        let host = self.pool.host();
        let leave = |phases: &mut DriverPhases| {
            phases.running.remove(&host);
            phases.checking.remove(&host);
            phases.present.remove(&host);
            0
        };
        while self.try_to_enter(&leave).await?.is_some() {
            self.env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Changes the phases as soon as no drivers are in the way, which `change` counts. Waits until
    /// they have ended what they do, as long as some of them do so now and then.
    async fn enter(
        &self,
        change: impl Fn(&mut DriverPhases) -> usize,
        phase: AwaitedDriver,
    ) -> Result<(), TpccError> {
        let AwaitedDriver { what, helps } = phase;
        let (mut notice, mut patience) = (WaitNotice::new(self.env.now()), None);
        while let Some(in_the_way) = self.try_to_enter(&change).await? {
            let now = self.env.now();
            let (since, before) = *patience.get_or_insert((now, in_the_way));
            // Others may have begun meanwhile, or the phases have changed.
            if in_the_way != before {
                patience = Some((now, in_the_way));
            } else if now - since > PHASE_PATIENCE + self.longest_run()? {
                let waited_s = (now - since).as_secs();
                return Err(TpccError::PhaseHangs { drivers: in_the_way.max(1), what, waited_s });
            }
            self.wait(&mut notice, || (format!("{} to end {what}", others(in_the_way)), helps))
                .await?;
        }
        Ok(())
    }

    /// How long the measurements may last that are under way.
    fn longest_run(&self) -> Result<Duration, TpccError> {
        let phases = self.label::<DriverPhases>(PHASES)?.unwrap_or_default();
        Ok(Duration::from_secs(phases.longest_run_s).max(self.duration))
    }

    /// Changes the phases, without the drivers whose nodes are gone, unless some are in the way:
    /// how many. Also not if the phases have changed meanwhile.
    async fn try_to_enter(
        &self,
        change: &impl Fn(&mut DriverPhases) -> usize,
    ) -> Result<Option<usize>, TpccError> {
        let text = self.pool.label(PHASES);
        let mut phases: DriverPhases = self.label(PHASES)?.unwrap_or_default();
        let living = self.pool.living_hosts().await?;
        phases.present.retain(|host| living.contains(host));
        phases.running.retain(|host| living.contains(host));
        phases.checking.retain(|host| living.contains(host));
        let in_the_way = change(&mut phases);
        if in_the_way > 0 {
            return Ok(Some(in_the_way));
        }
        let new = to_text(&phases)?;
        let is_set = self.pool.set_label(PHASES, text.as_deref(), Some(&new)).await?;
        Ok((!is_set).then_some(0))
    }

    fn label<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, TpccError> {
        let Some(text) = self.pool.label(name) else { return Ok(None) };
        from_text(name, &text).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::sim::{World, WorldConfig};
    use selkie_memnode::EmbeddedPool;

    use super::super::labels::DatabaseShape;
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
            self.of_the_gone(LoadStage::Begins(Some(complete)))
        }

        fn of_the_gone(&self, stage: LoadStage) -> DatabaseLabel {
            let shape = DatabaseShape::of(&self.config);
            DatabaseLabel::Loading(LoadUnderWay { host: GONE, generation: 2, shape, stage })
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

    #[test]
    fn what_a_driver_that_is_gone_was_only_about_to_replace_is_put_back() {
        for (loading, role) in
            [(LoadPolicy::IfMissing, DriverRole::Joins), (LoadPolicy::Anew, DriverRole::Reloads)]
        {
            let setting = Setting::new();
            setting.label(&setting.reloading());
            let (driver, found) = setting.meet(loading).unwrap();
            assert_eq!(found, role);
            assert!(setting.world.now() > STARTING_PATIENCE, "it may only not have started yet");
            setting.run(driver.give_up()).unwrap();
            assert_eq!(setting.found(), setting.complete());
        }
    }

    #[test]
    fn what_a_driver_that_is_gone_was_only_about_to_load_is_loaded_by_the_next() {
        let setting = Setting::new();
        setting.label(&setting.of_the_gone(LoadStage::Begins(None)));
        let (driver, role) = setting.meet(LoadPolicy::IfMissing).unwrap();
        assert_eq!((role, driver.generation), (DriverRole::Loads, 1));
    }

    #[test]
    fn what_was_begun_to_be_written_is_cut_short() {
        let setting = Setting::new();
        setting.label(&setting.of_the_gone(LoadStage::Writes));
        let refused = setting.meet(LoadPolicy::IfMissing).map(|(_, role)| role).unwrap_err();
        assert!(matches!(refused, TpccError::LoadCutShort), "{refused}");
        let (driver, role) = setting.meet(LoadPolicy::Anew).unwrap();
        assert_eq!((role, driver.generation), (DriverRole::Reloads, 3));
        setting.run(driver.still_loads()).unwrap();
        setting.run(driver.give_up()).unwrap();
        assert_eq!(setting.found(), DatabaseLabel::CutShort { generation: 3 });
        let began = setting.world.now();
        let refused = setting.meet(LoadPolicy::IfMissing).map(|(_, role)| role).unwrap_err();
        assert!(matches!(refused, TpccError::LoadCutShort), "{refused}");
        assert_eq!(setting.world.now(), began, "there is nothing to wait for");
        let (driver, role) = setting.meet(LoadPolicy::Anew).unwrap();
        assert_eq!((role, driver.generation), (DriverRole::Reloads, 4));
    }

    #[test]
    fn a_driver_gives_back_only_what_it_has_not_changed() {
        let setting = Setting::new();
        let (driver, _) = setting.meet(LoadPolicy::Anew).unwrap();
        assert_ne!(setting.found(), setting.complete());
        setting.run(driver.give_up()).unwrap();
        assert_eq!(setting.found(), setting.complete());
        let refused = setting.run(driver.still_loads()).unwrap_err();
        assert!(matches!(refused, TpccError::LoadCutShort), "{refused}");

        let (driver, _) = setting.meet(LoadPolicy::Anew).unwrap();
        setting.run(driver.still_loads()).unwrap();
        setting.run(driver.give_up()).unwrap();
        assert_eq!(setting.found(), DatabaseLabel::CutShort { generation: 2 });
    }

    /// One that shows that it lives, and does not get on.
    #[test]
    fn a_driver_that_never_ends_its_run_is_not_waited_for_for_ever() {
        let mut setting = Setting::new();
        setting.config.duration = Duration::from_secs(10);
        let (driver, _) = setting.meet(LoadPolicy::IfMissing).unwrap();
        let waits = driver.enter(|_| 2, RUN);
        let bound = PHASE_PATIENCE + Duration::from_secs(60);
        let error = setting.world.run(bound, waits).unwrap().unwrap_err();
        assert!(setting.world.now() > PHASE_PATIENCE + setting.config.duration);
        let said = error.to_string();
        assert!(said.starts_with("2 other drivers have been in the way for 3,6"), "{said}");
    }

    /// It is one of this process, which lives.
    #[test]
    fn a_driver_that_never_ends_its_load_is_not_waited_for_for_ever() {
        let setting = Setting::new();
        let shape = DatabaseShape::of(&setting.config);
        let (host, stage) = (setting.pool.host(), LoadStage::Writes);
        let load = LoadUnderWay { host, generation: 2, shape, stage };
        setting.label(&DatabaseLabel::Loading(load.clone()));
        let (env, progress): (_, Arc<dyn Progress>) = (setting.world.env(), Arc::new(Silent));
        let policy = LoadPolicy::IfMissing;
        let waits = Driver::meet(&setting.pool, &env, &setting.config, policy, &progress);
        let bound = LoadPatience::bound(&load);
        let met = setting.world.run(bound + Duration::from_secs(60), waits).unwrap();
        let said = met.map(|(_, role)| role).unwrap_err().to_string();
        assert!(setting.world.now() > bound);
        assert!(said.contains(" and not ended the load; "), "{said}");
    }

    #[test]
    fn who_comes_in_waits_for_what_becomes_of_a_reload() {
        let setting = Setting::new();
        let (driver, _) = setting.meet(LoadPolicy::IfMissing).unwrap();
        setting.label(&setting.reloading());
        setting.run(driver.come_in()).unwrap();
        assert_eq!(setting.found(), setting.complete());
        setting.label(&setting.of_the_gone(LoadStage::Writes));
        let error = setting.run(driver.come_in()).unwrap_err();
        assert!(matches!(error, TpccError::DatabaseReplaced), "{error}");
    }
}
