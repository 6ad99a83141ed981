//! A scenario while it runs: its processes, in the order in which they are needed, and the faults
//! in between.
//!
//! ```text
//! pool create --> memory nodes --> load --> drivers --[all run: time 0]--> faults, late drivers
//!    --> all have ended --> pool status --> memory nodes stop --> pool destroy
//!    --> is anything left?
//! ```
//! All of it happens on the thread that called: processes are to end with it. Every wait has a
//! bound, looks for signals to stop, and leaves by an error; whatever was made is removed when the
//! stage is dropped.

mod take_down;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use selkie_tpcc::units;
use signal_hook::iterator::Signals;

use super::error::ScenarioError;
use super::file::{FabricKind, FaultAction, NetworkKind};
use super::namespaces::{self, Namespaces};
use super::observed::{Observed, ObservedFault, ObservedVerification, ProcessEnd};
use super::options::{self, words};
use super::plan::{FaultTarget, Plan, PlannedFault};
use super::processes::{LOOK_EVERY, Launcher, OutputDirectory, Process};
use crate::support::progress::begins;
use crate::support::signals::{self, Interrupted};

/// How long a command, or the start of a memory node or driver, may take.
const START: Duration = Duration::from_secs(60);
/// How long the load may take.
const LOAD: Duration = Duration::from_secs(1800);
/// How long a memory node may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// What the system keeps for a scenario.
pub(crate) struct ScenarioRun<'a> {
    plan: &'a Plan,
    launcher: Launcher,
    signals: Signals,
    pool: String,
    url: String,
    // Drivers before memory nodes, and these before their network: so they are dropped.
    drivers: Vec<RunningDriver>,
    memory: Vec<Process>,
    /// In which drivers have noted what they committed.
    records: Vec<PathBuf>,
    addresses: Vec<String>,
    network: Option<Namespaces>,
    /// Of cuts between two that have not healed: which does not reach which, by place.
    ways: Vec<(usize, usize)>,
    created: bool,
    began: Option<(Instant, SystemTime)>,
}

/// A process of a driver.
struct RunningDriver {
    driver: usize,
    incarnation: usize,
    process: Process,
    /// It stands still.
    stopped: bool,
    hung: bool,
}

impl<'a> ScenarioRun<'a> {
    /// Runs a scenario.
    pub(crate) fn play(
        plan: &'a Plan,
        output: &OutputDirectory,
    ) -> Result<Observed, ScenarioError> {
        let mut stage = Self::new(plan, output)?;
        stage.set_up()?;
        stage.start_drivers()?;
        let faults = stage.run()?;
        say("all drivers have ended; looking at what they leave");
        let mut outcome = Observed { faults, ..Observed::default() };
        stage.see_drivers(&mut outcome)?;
        stage.end_faults()?;
        outcome.verified = stage.verify()?;
        stage.take_down(&mut outcome)?;
        Ok(outcome)
    }

    fn new(plan: &'a Plan, output: &OutputDirectory) -> Result<Self, ScenarioError> {
        let pool = output.name().to_owned();
        let signals = Signals::new(signals::asked_by())
            .map_err(|source| ScenarioError::io("signals", source))?;
        Ok(Self {
            plan,
            launcher: Launcher::new(output.directory())?,
            signals,
            url: format!("shm:{pool}"),
            pool,
            drivers: Vec::new(),
            memory: Vec::new(),
            records: Vec::new(),
            addresses: Vec::new(),
            network: None,
            ways: Vec::new(),
            created: false,
            began: None,
        })
    }

    fn is_mem(&self) -> bool {
        self.plan.file.fabric == FabricKind::Mem
    }

    /// Pool, memory nodes, database.
    fn set_up(&mut self) -> Result<(), ScenarioError> {
        if self.is_mem() {
            say("starting an embedded pool with all drivers; loading");
            return Ok(());
        }
        let file = &self.plan.file;
        if file.network == NetworkKind::Namespaces {
            self.network = Some(Namespaces::make(file.memory.nodes + file.drivers.len())?);
        }
        self.create()?;
        say(&format!("starting {}", units::plural(file.memory.nodes as u64, "memory node")));
        for position in 0..file.memory.nodes {
            self.start_memory(position)?;
        }
        if file.fabric == FabricKind::Tcp {
            self.url = format!("tcp:{}", self.addresses.join(","));
        }
        say("all memory nodes lend; loading");
        self.load()
    }

    /// Makes the pool; one that is there already is another's.
    fn create(&mut self) -> Result<(), ScenarioError> {
        let arguments = options::create(self.plan, &self.pool);
        let mut process = self.launcher.start("create", None, &arguments)?;
        // What is made in part is removed as well.
        self.created = true;
        let signals = &mut self.signals;
        process.wait(START, &mut || interrupted(signals))?;
        if process.code() == Some(0) {
            return Ok(());
        }
        self.created = process.code().is_none();
        Err(process.failed())
    }

    fn start_memory(&mut self, position: usize) -> Result<(), ScenarioError> {
        let name = self.plan.name_of(FaultTarget::Memory(position));
        let arguments = options::memory(self.plan, &self.pool, position);
        let process = self.launcher.start(&name, self.namespace(position), &arguments)?;
        self.memory.push(process);
        let line = self.until(START, &format!("{name} does not lend"), |stage| {
            let Some(process) = stage.memory.get_mut(position) else { return Ok(None) };
            if process.end()?.is_some() {
                return Err(process.failed());
            }
            let said = process.said()?;
            let line = said.lines().next().filter(|line| line.contains(", process "));
            Ok(line.map(str::to_owned))
        })?;
        if let Some((_, at)) = line.split_once(" at ") {
            self.addresses.extend(at.split_once(',').map(|(at, _)| at.to_owned()));
        }
        Ok(())
    }

    /// Where the process of this place among memory nodes and drivers is.
    fn namespace(&self, place: usize) -> Option<String> {
        self.network.as_ref().map(|_| namespaces::name(place))
    }

    fn load(&mut self) -> Result<(), ScenarioError> {
        let arguments = options::load(self.plan, &self.url);
        let namespace = self.namespace(self.plan.place(FaultTarget::Driver(0)));
        let mut loader = self.launcher.start("load", namespace, &arguments)?;
        let signals = &mut self.signals;
        loader.wait(LOAD, &mut || interrupted(signals))?;
        if loader.code() != Some(0) {
            return Err(loader.failed());
        }
        let said = loader.complained()?;
        if let Some(line) = said.lines().find(|line| line.starts_with("loaded ")) {
            // It is the only one.
            say(line.rsplit_once(" (process ").map_or(line, |(said, _)| said));
        }
        Ok(())
    }

    /// Starts the drivers without a delay, and waits until all run.
    fn start_drivers(&mut self) -> Result<(), ScenarioError> {
        let duration = self.plan.duration;
        if self.is_mem() {
            let arguments = options::in_one_process(self.plan);
            let process = self.launcher.start("drivers", None, &arguments)?;
            self.drivers.push(RunningDriver::new(0, 0, process));
        } else {
            for (driver, role) in self.plan.drivers.iter().enumerate() {
                if role.delay.is_zero() {
                    self.start_driver(driver, 0, duration)?;
                }
            }
        }
        let (patience, begins) = (if self.is_mem() { LOAD } else { START }, begins("run"));
        self.until(patience, "the drivers do not run", |stage| {
            for running in &mut stage.drivers {
                if running.process.end()?.is_some() {
                    return Err(running.process.failed());
                }
                if !running.process.complained()?.contains(&begins) {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })?;
        self.began = Some((Instant::now(), SystemTime::now()));
        say(&format!("all drivers run, for {duration:?}"));
        Ok(())
    }

    fn start_driver(
        &mut self,
        driver: usize,
        incarnation: usize,
        left: Duration,
    ) -> Result<(), ScenarioError> {
        let target = FaultTarget::Driver(driver);
        let name = incarnation_name(&self.plan.name_of(target), incarnation);
        let record = self.plan.may_lose_drivers().then(|| self.launcher.file(&name, "commits"));
        let how = (left, record.as_deref());
        let arguments = options::driver(self.plan, &self.url, driver, how);
        let namespace = self.namespace(self.plan.place(target));
        self.records.extend(record);
        let process = self.launcher.start(&name, namespace, &arguments)?;
        self.drivers.push(RunningDriver::new(driver, incarnation, process));
        Ok(())
    }

    /// Does the faults at their times, starts late drivers, and waits until all drivers have ended.
    fn run(&mut self) -> Result<Vec<ObservedFault>, ScenarioError> {
        let plan = self.plan;
        let mut faults = plan.faults.iter().peekable();
        let mut late: Vec<usize> = (0..plan.drivers.len())
            .filter(|driver| plan.drivers.get(*driver).is_some_and(|role| !role.delay.is_zero()))
            .collect();
        late.sort_by_key(|driver| plan.drivers.get(*driver).map(|role| role.delay));
        let mut late = late.into_iter().peekable();
        let mut done = Vec::new();
        let bound = plan.duration + plan.check;
        let mut told = 0;
        loop {
            interrupted(&mut self.signals)?;
            let now = self.now();
            tell_fifth(now, plan.duration, &mut told);
            let delay = |driver: &usize| plan.drivers.get(*driver).map(|role| role.delay);
            while let Some(driver) = late.next_if(|driver| delay(driver) <= Some(now)) {
                self.start_driver(driver, 0, plan.duration.saturating_sub(now))?;
            }
            while let Some(due) = faults.next_if(|due| due.at <= now) {
                let missed = !self.do_fault(due)?;
                done.push(ObservedFault { due: *due, done_at: self.now(), missed });
            }
            let mut all_ended = true;
            for running in &mut self.drivers {
                all_ended &= running.process.end()?.is_some() || running.stopped;
            }
            // Those that have not started yet run to the end.
            if all_ended && late.peek().is_none() && faults.peek().is_none() {
                break;
            }
            if now > bound {
                break;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        for running in &mut self.drivers {
            if running.process.end()?.is_none() {
                running.hung = !running.stopped;
                running.process.signal(Signal::KILL)?;
                let signals = &mut self.signals;
                running.process.wait(STOP, &mut || interrupted(signals))?;
            }
        }
        Ok(done)
    }

    /// Injects a fault; returns whether its target was still there.
    fn do_fault(&mut self, due: &PlannedFault) -> Result<bool, ScenarioError> {
        say(&format!("{:.1} s: {}", self.now().as_secs_f64(), self.plan.say(due)));
        if matches!(due.action, FaultAction::Cut | FaultAction::Heal) {
            return self.cut_or_heal(due);
        }
        let driver = match due.target {
            FaultTarget::Memory(position) => {
                let Some(process) = self.memory.get_mut(position) else { return Ok(false) };
                let is_over = due.action == FaultAction::Continue;
                return Ok(process.signal(signal_of(due.action))? || is_over);
            }
            FaultTarget::Driver(driver) => driver,
        };
        let left = self.plan.duration.saturating_sub(self.now());
        let Some(running) = self.last_of(driver) else { return Ok(false) };
        match due.action {
            FaultAction::Restart => {
                let incarnation = running.incarnation + 1;
                self.start_driver(driver, incarnation, left)?;
                Ok(true)
            }
            FaultAction::Stop => {
                running.stopped = running.process.signal(Signal::STOP)?;
                Ok(running.stopped)
            }
            // It may have been ended for good reason while it stood still.
            FaultAction::Continue => {
                running.stopped = false;
                running.process.signal(Signal::CONT)?;
                Ok(true)
            }
            action => running.process.signal(signal_of(action)),
        }
    }

    /// The process of a driver that was started last.
    fn last_of(&mut self, driver: usize) -> Option<&mut RunningDriver> {
        self.drivers.iter_mut().rfind(|running| running.driver == driver)
    }

    fn is_there(&mut self, target: FaultTarget) -> Result<bool, ScenarioError> {
        let process = match target {
            FaultTarget::Memory(position) => self.memory.get_mut(position),
            FaultTarget::Driver(driver) => self.last_of(driver).map(|running| &mut running.process),
        };
        Ok(match process {
            Some(process) => process.end()?.is_none(),
            None => false,
        })
    }

    /// It may have ended for good reason while it was cut off.
    fn cut_or_heal(&mut self, due: &PlannedFault) -> Result<bool, ScenarioError> {
        let heals = due.action == FaultAction::Heal;
        let mut is_there = true;
        for target in [Some(due.target), due.from].into_iter().flatten() {
            is_there &= self.is_there(target)?;
        }
        let Some(network) = &self.network else { return Ok(false) };
        let place = self.plan.place(due.target);
        match due.from.map(|from| self.plan.place(from)) {
            None => network.set_link(place, heals)?,
            Some(other) => {
                let back = (!due.one_way).then_some((other, place));
                for way in [Some((place, other)), back].into_iter().flatten() {
                    network.set_way(way, heals)?;
                    self.ways.retain(|cut| *cut != way);
                    if !heals {
                        self.ways.push(way);
                    }
                }
            }
        }
        Ok(is_there || heals)
    }

    /// Ends what was to last to the end, so that what is left can be looked at.
    fn end_faults(&mut self) -> Result<(), ScenarioError> {
        for process in &mut self.memory {
            process.signal(Signal::CONT)?;
        }
        let Some(network) = &self.network else { return Ok(()) };
        for place in 0..self.plan.names().len() {
            network.set_link(place, true)?;
        }
        for way in self.ways.drain(..) {
            network.set_way(way, true)?;
        }
        Ok(())
    }

    /// Looks for all that drivers have committed that may have died.
    fn verify(&mut self) -> Result<Option<ObservedVerification>, ScenarioError> {
        if self.records.is_empty() || self.plan.memory_is_lost().is_some() {
            return Ok(None);
        }
        self.records.retain(|record| record.exists());
        let arguments = options::verify(self.plan, &self.url, &self.records);
        let namespace = self.namespace(self.plan.place(FaultTarget::Driver(0)));
        let mut process = self.launcher.start("verify", namespace, &arguments)?;
        let signals = &mut self.signals;
        let ended = match process.wait(self.plan.check, &mut || interrupted(signals)) {
            Ok(_) => take_down::how(&process, false),
            Err(ScenarioError::Process { .. }) => ProcessEnd::Not,
            Err(error) => return Err(error),
        };
        let report = serde_json::from_str(&process.said()?).ok();
        let error = take_down::last_error(&process.complained()?);
        Ok(Some(ObservedVerification { ended, error, report }))
    }

    fn pool_directory(&self) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        PathBuf::from("/dev/shm").join(format!("selkie-{user}-{}", self.pool))
    }

    /// Since all drivers run.
    fn now(&self) -> Duration {
        self.began.map_or(Duration::ZERO, |(began, _)| began.elapsed())
    }

    /// Looks again and again, until something is there.
    fn until<T>(
        &mut self,
        patience: Duration,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, ScenarioError>,
    ) -> Result<T, ScenarioError> {
        let started = Instant::now();
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            interrupted(&mut self.signals)?;
            if started.elapsed() > patience {
                let (name, what) = (what.to_owned(), format!("not within {patience:?}"));
                return Err(ScenarioError::Process { name, what });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for ScenarioRun<'_> {
    fn drop(&mut self) {
        self.drivers.clear();
        self.memory.clear();
        if self.created {
            let destroy = words(&["pool", "destroy", &self.pool, "--force"]);
            // There may be none yet; and more than this cannot be done.
            let _ = self.launcher.run("destroy", &destroy, START, &mut || Ok(()));
        }
    }
}

impl RunningDriver {
    fn new(driver: usize, incarnation: usize, process: Process) -> Self {
        Self { driver, incarnation, process, stopped: false, hung: false }
    }
}

/// Says how much of the run is over, at each fifth of it, and that drivers check then.
fn tell_fifth(now: Duration, duration: Duration, told: &mut u32) {
    let fifth = (1..=5).rfind(|fifth| now >= duration * *fifth / 5).unwrap_or(0);
    if fifth > *told {
        *told = fifth;
        let checks = if fifth == 5 { "; the drivers check the database" } else { "" };
        say(&format!("run: {} %{checks}", 20 * fifth));
    }
}

/// The signal that does it to a process.
fn signal_of(action: FaultAction) -> Signal {
    match action {
        FaultAction::Stop => Signal::STOP,
        FaultAction::Continue => Signal::CONT,
        FaultAction::Kill | FaultAction::Cut | FaultAction::Heal | FaultAction::Restart => {
            Signal::KILL
        }
    }
}

/// Whether it is to stop.
fn interrupted(signals: &mut Signals) -> Result<(), ScenarioError> {
    match signals.pending().next() {
        Some(signal) => Err(Interrupted::by(signal).into()),
        None => Ok(()),
    }
}

/// Processes of one driver have different names.
fn incarnation_name(name: &str, incarnation: usize) -> String {
    match incarnation {
        0 => name.to_owned(),
        again => format!("{name}#{}", again + 1),
    }
}

/// Tells people how far it is.
pub(crate) fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
