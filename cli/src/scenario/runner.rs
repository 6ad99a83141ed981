//! A scenario while it runs: its processes, in the order in which they are needed, and the faults
//! in between.
//!
//! ```text
//! pool create --> memory nodes --> load --> drivers --[all run: time 0]--> faults, late drivers --> all have ended
//!    --> pool status --> memory nodes stop --> pool destroy --> is anything left?
//! ```
//! All of it happens on the thread that called: processes are to end with it. Every wait has a
//! bound, looks for signals to stop, and leaves by an error; whatever was made is removed when the
//! stage is dropped.

mod take_down;

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::error::ScenarioError;
use super::file::{FabricKind, FaultAction, NetworkKind};
use super::namespaces::{self, Namespaces};
use super::observed::{Observed, ObservedFault};
use super::options::{self, words};
use super::plan::{FaultTarget, Plan, PlannedFault};
use super::processes::{LOOK_EVERY, Launcher, OutputDirectory, Process};
use crate::support::progress::begins;

/// How long a command, or the start of a memory node or driver, may take.
const START: Duration = Duration::from_secs(60);
/// How long the load may take.
const LOAD: Duration = Duration::from_secs(1800);
/// How long the drivers may take after their time is over, to check.
const CHECK: Duration = Duration::from_secs(600);
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
    addresses: Vec<String>,
    network: Option<Namespaces>,
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
        let mut outcome = Observed { faults, ..Observed::default() };
        stage.see_drivers(&mut outcome)?;
        stage.take_down(&mut outcome)?;
        Ok(outcome)
    }

    fn new(plan: &'a Plan, output: &OutputDirectory) -> Result<Self, ScenarioError> {
        let pool = output.name().to_owned();
        let signals = Signals::new([SIGHUP, SIGINT, SIGTERM])
            .map_err(|source| ScenarioError::io("signals", source))?;
        Ok(Self {
            plan,
            launcher: Launcher::new(output.directory())?,
            signals,
            url: format!("shm:{pool}"),
            pool,
            drivers: Vec::new(),
            memory: Vec::new(),
            addresses: Vec::new(),
            network: None,
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
            return Ok(());
        }
        let file = &self.plan.file;
        if file.network == NetworkKind::Namespaces {
            self.network = Some(Namespaces::make(file.memory.nodes + file.drivers.len())?);
        }
        self.create()?;
        for position in 0..file.memory.nodes {
            self.start_memory(position)?;
        }
        if file.fabric == FabricKind::Tcp {
            self.url = format!("tcp:{}", self.addresses.join(","));
        }
        say(&format!("{} memory nodes lend; loading", file.memory.nodes));
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
        let namespace = self.namespace(self.plan.place(0));
        let mut loader = self.launcher.start("load", namespace, &arguments)?;
        let signals = &mut self.signals;
        loader.wait(LOAD, &mut || interrupted(signals))?;
        if loader.code() != Some(0) {
            return Err(loader.failed());
        }
        let said = loader.complained()?;
        if let Some(line) = said.lines().find(|line| line.starts_with("loaded ")) {
            say(line);
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
        let arguments = options::driver(self.plan, &self.url, driver, left);
        let namespace = self.namespace(self.plan.place(driver));
        let name = incarnation_name(&self.plan.name_of(FaultTarget::Driver(driver)), incarnation);
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
        let bound = plan.duration + CHECK;
        loop {
            interrupted(&mut self.signals)?;
            let now = self.now();
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
        let name = self.plan.name_of(due.target);
        say(&format!("{:.1} s: {} {name}", self.now().as_secs_f64(), due.action.name()));
        let driver = match due.target {
            FaultTarget::Memory(position) => {
                let Some(process) = self.memory.get_mut(position) else { return Ok(false) };
                return process.signal(Signal::KILL);
            }
            FaultTarget::Driver(driver) => driver,
        };
        let mut own = self.drivers.iter_mut().filter(|running| running.driver == driver);
        let Some(running) = own.next_back() else { return Ok(false) };
        match due.action {
            FaultAction::Kill => running.process.signal(Signal::KILL),
            FaultAction::Stop => {
                running.stopped = running.process.signal(Signal::STOP)?;
                Ok(running.stopped)
            }
            // It may have been ended for good reason while it stood still or was cut off.
            FaultAction::Continue => {
                running.stopped = false;
                running.process.signal(Signal::CONT)?;
                Ok(true)
            }
            FaultAction::Cut | FaultAction::Heal => {
                let is_there = running.process.end()?.is_none();
                let (place, up) = (self.plan.place(driver), due.action == FaultAction::Heal);
                if let Some(network) = &self.network {
                    network.set_link(place, up)?;
                }
                Ok(is_there || up)
            }
            FaultAction::Restart => {
                let incarnation = running.incarnation + 1;
                let left = self.plan.duration.saturating_sub(self.now());
                self.start_driver(driver, incarnation, left)?;
                Ok(true)
            }
        }
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

/// Whether it is to stop.
fn interrupted(signals: &mut Signals) -> Result<(), ScenarioError> {
    match signals.pending().next() {
        Some(_) => Err(ScenarioError::Interrupted),
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
