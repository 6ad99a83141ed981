//! A scenario while it runs: its processes, in the order in which they are needed, and the faults in between.
//!
//! ```text
//! pool create --> memory nodes --> load --> drivers --[all run: time 0]--> faults, late drivers --> all have ended
//!    --> pool status --> memory nodes stop --> pool destroy --> is anything left?
//! ```
//! All of it happens on the thread that called: processes are to end with it. Every wait has a bound, looks for
//! signals to stop, and leaves by an error; whatever was made is removed when the stage is dropped.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::ScenarioError;
use super::file::{Action, Fabric, Homes, Network};
use super::namespaces::{self, Namespaces};
use super::outcome::{DriverSeen, Ended, FaultSeen, MemorySeen, Outcome};
use super::plan::{Due, Plan, Role, Target};
use super::processes::{LOOK_EVERY, Launcher, Process};
use super::series::Track;

/// How long a command, or the start of a memory node or driver, may take.
const START: Duration = Duration::from_secs(60);
/// How long the load may take.
const LOAD: Duration = Duration::from_secs(1800);
/// How long the drivers may take after their time is over, to check.
const CHECK: Duration = Duration::from_secs(600);
/// How long a memory node may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// What the system keeps for a scenario.
pub(crate) struct Stage<'a> {
    plan: &'a Plan,
    launcher: Launcher,
    signals: Signals,
    pool: String,
    url: String,
    // Drivers before memory nodes, and these before their network: so they are dropped.
    drivers: Vec<Running>,
    memory: Vec<Process>,
    addresses: Vec<String>,
    network: Option<Namespaces>,
    created: bool,
    directory: PathBuf,
    keep: bool,
    began: Option<(Instant, SystemTime)>,
}

/// A process of a driver.
struct Running {
    driver: usize,
    incarnation: usize,
    process: Process,
    /// It stands still.
    stopped: bool,
    hung: bool,
}

impl<'a> Stage<'a> {
    /// Runs a scenario.
    pub(crate) fn play(plan: &'a Plan, keep: bool) -> Result<Outcome, ScenarioError> {
        let mut stage = Self::new(plan, keep)?;
        if keep {
            say(&format!("output is in {}", stage.directory.display()));
        }
        stage.set_up()?;
        stage.start_drivers()?;
        let faults = stage.run()?;
        let mut outcome = Outcome { faults, ..Outcome::default() };
        stage.see_drivers(&mut outcome)?;
        stage.take_down(&mut outcome)?;
        Ok(outcome)
    }

    fn new(plan: &'a Plan, keep: bool) -> Result<Self, ScenarioError> {
        let pool = format!("scenario-{}-{}", plan.file.name, std::process::id());
        let directory = std::env::temp_dir().join(format!("selkie-{pool}"));
        std::fs::create_dir_all(&directory)
            .map_err(|source| ScenarioError::io(directory.display(), source))?;
        let signals = Signals::new([SIGINT, SIGTERM])
            .map_err(|source| ScenarioError::io("signals", source))?;
        Ok(Self {
            plan,
            launcher: Launcher::new(&directory)?,
            signals,
            url: format!("shm:{pool}"),
            pool,
            drivers: Vec::new(),
            memory: Vec::new(),
            addresses: Vec::new(),
            network: None,
            created: false,
            directory,
            keep,
            began: None,
        })
    }

    fn is_mem(&self) -> bool {
        self.plan.file.fabric == Fabric::Mem
    }

    /// Runs a command of this program to its end.
    fn command(
        &mut self,
        name: &str,
        arguments: &[&str],
        patience: Duration,
    ) -> Result<String, ScenarioError> {
        let arguments: Vec<String> = arguments.iter().map(|&text| text.to_owned()).collect();
        let signals = &mut self.signals;
        self.launcher.run(name, &arguments, patience, &mut || interrupted(signals))
    }

    /// Pool, memory nodes, database.
    fn set_up(&mut self) -> Result<(), ScenarioError> {
        if self.is_mem() {
            return Ok(());
        }
        let file = &self.plan.file;
        if file.network == Network::Namespaces {
            self.network = Some(Namespaces::make(file.memory.nodes + file.drivers.len())?);
        }
        let (nodes, gcl) = (file.memory.nodes.to_string(), file.pool.gcl.to_string());
        let time = |time: Duration| format!("{}ms", time.as_millis());
        let (lease, heartbeat) = (time(file.pool.lease.0.0), time(file.pool.heartbeat.0.0));
        let fabric = if file.fabric == Fabric::Tcp { "tcp" } else { "shm" };
        let pool = self.pool.clone();
        let shape = ["--fabric", fabric, "--memory-nodes", &nodes, "--gcl", &gcl];
        let timing = ["--lease", &lease, "--heartbeat", &heartbeat];
        let create = [&["pool", "create", &pool], &shape[..], &timing[..]].concat();
        // What is made in part is removed as well.
        self.created = true;
        self.command("create", &create, START)?;
        for position in 0..file.memory.nodes {
            self.start_memory(position)?;
        }
        if file.fabric == Fabric::Tcp {
            self.url = format!("tcp:{}", self.addresses.join(","));
        }
        say(&format!("{nodes} memory nodes lend; loading"));
        self.load()
    }

    fn start_memory(&mut self, position: usize) -> Result<(), ScenarioError> {
        let name = self.plan.name_of(Target::Memory(position));
        let size = self.plan.file.memory.size.0.0.to_string();
        let mut arguments = words(&["memnode", "--pool", &self.pool, "--memory", &size]);
        arguments.extend(self.listen(position));
        let namespace = self.network.as_ref().map(|_| namespaces::name(position));
        let process = self.launcher.start(&name, namespace.as_deref(), &arguments)?;
        self.memory.push(process);
        let line = self.until(START, &format!("{name} does not lend"), |stage| {
            let Some(process) = stage.memory.get_mut(position) else { return Ok(None) };
            if process.end()?.is_some() {
                return Err(process.failed());
            }
            Ok(process
                .said()?
                .lines()
                .next()
                .map(str::to_owned)
                .filter(|line| line.contains(", process ")))
        })?;
        if let Some((_, at)) = line.split_once(" at ") {
            self.addresses.extend(at.split_once(',').map(|(at, _)| at.to_owned()));
        }
        Ok(())
    }

    /// Where the process of this position among memory nodes and drivers listens.
    fn listen(&self, position: usize) -> Vec<String> {
        match &self.network {
            None => Vec::new(),
            Some(_) => {
                let at = format!("{}:0", namespaces::address(position));
                words(&["--listen", &at, "--insecure"])
            }
        }
    }

    fn load(&mut self) -> Result<(), ScenarioError> {
        let mut arguments = self.tpcc();
        arguments.extend(words(&["--pool", &self.url, "--load-only"]));
        // Its place in the network is that of a driver, which has not started yet.
        let position = self.plan.file.memory.nodes;
        arguments.extend(self.listen(position));
        let namespace = self.network.as_ref().map(|_| namespaces::name(position));
        let mut loader = self.launcher.start("load", namespace.as_deref(), &arguments)?;
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

    /// What all drivers have in common.
    fn tpcc(&self) -> Vec<String> {
        let database = &self.plan.file.database;
        let (warehouses, scale) = (database.warehouses.to_string(), database.scale.to_string());
        let seed = database.seed.to_string();
        words(&["tpcc", "--warehouses", &warehouses, "--scale", &scale, "--seed", &seed])
    }

    /// Starts the drivers without a delay, and waits until all run.
    fn start_drivers(&mut self) -> Result<(), ScenarioError> {
        let duration = self.plan.duration;
        if self.is_mem() {
            let arguments = self.in_one_process();
            let process = self.launcher.start("drivers", None, &arguments)?;
            let (driver, incarnation) = (0, 0);
            self.drivers.push(Running {
                driver,
                incarnation,
                process,
                stopped: false,
                hung: false,
            });
        } else {
            for driver in 0..self.plan.drivers.len() {
                if self.plan.drivers.get(driver).is_some_and(|role| role.delay.is_zero()) {
                    self.start_driver(driver, 0, duration)?;
                }
            }
        }
        let patience = if self.is_mem() { LOAD } else { START };
        self.until(patience, "the drivers do not run", |stage| {
            for running in &mut stage.drivers {
                if running.process.end()?.is_some() {
                    return Err(running.process.failed());
                }
                if !running.process.complained()?.contains("run: 0 %") {
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
        let Some(Role { name, driver: options, .. }) = self.plan.drivers.get(driver) else {
            return Ok(());
        };
        let mut arguments = self.tpcc();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--pool", self.url.clone());
        option("--duration", left.as_secs().max(1).to_string());
        option("--compute-nodes", options.compute_nodes.to_string());
        option("--workers", options.workers.to_string());
        if let Some(threads) = options.threads {
            option("--threads", threads.to_string());
        }
        if let Some(cache) = options.cache {
            option("--cache-mb", (cache.0.0 >> 20).to_string());
        }
        if let Some(homes) = options.homes {
            let Homes(first, last) = homes.0;
            option("--homes", format!("{first}-{last}"));
        }
        arguments.push("--json".to_owned());
        let position = self.plan.file.memory.nodes + driver;
        arguments.extend(self.listen(position));
        let namespace = self.network.as_ref().map(|_| namespaces::name(position));
        let name = incarnation_name(name, incarnation);
        let process = self.launcher.start(&name, namespace.as_deref(), &arguments)?;
        self.drivers.push(Running { driver, incarnation, process, stopped: false, hung: false });
        Ok(())
    }

    /// The same load in one process with a pool of its own.
    fn in_one_process(&self) -> Vec<String> {
        let file = &self.plan.file;
        let mut arguments = self.tpcc();
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        let nodes: usize = file.drivers.iter().map(|driver| driver.compute_nodes).sum();
        option("--compute-nodes", nodes.to_string());
        option("--duration", self.plan.duration.as_secs().max(1).to_string());
        option("--memory-nodes", file.memory.nodes.to_string());
        option("--memory-mb", (file.memory.size.0.0 >> 20).to_string());
        option("--gcl", file.pool.gcl.to_string());
        if file.drivers.iter().any(|driver| driver.homes.is_some()) {
            option("--affinity", "warehouse".to_owned());
        }
        if let Some(first) = file.drivers.first() {
            option("--workers", first.workers.to_string());
            if let Some(threads) = first.threads {
                option("--threads", threads.to_string());
            }
            if let Some(cache) = first.cache {
                option("--cache-mb", (cache.0.0 >> 20).to_string());
            }
        }
        arguments.push("--json".to_owned());
        arguments
    }

    /// Does the faults at their times, starts late drivers, and waits until all drivers have ended.
    fn run(&mut self) -> Result<Vec<FaultSeen>, ScenarioError> {
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
                self.do_fault(due)?;
                done.push(FaultSeen { due: *due, done_at: self.now() });
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

    fn do_fault(&mut self, due: &Due) -> Result<(), ScenarioError> {
        let name = self.plan.name_of(due.target);
        say(&format!("{:.1} s: {} {name}", self.now().as_secs_f64(), due.action.name()));
        let driver = match due.target {
            Target::Memory(position) => {
                let Some(process) = self.memory.get_mut(position) else { return Ok(()) };
                return process.signal(Signal::KILL);
            }
            Target::Driver(driver) => driver,
        };
        if matches!(due.action, Action::Cut | Action::Heal) {
            let position = self.plan.file.memory.nodes + driver;
            let up = due.action == Action::Heal;
            return self.network.as_ref().map_or(Ok(()), |network| network.set_link(position, up));
        }
        let mut own = self.drivers.iter_mut().filter(|running| running.driver == driver);
        let Some(running) = own.next_back() else { return Ok(()) };
        match due.action {
            Action::Kill => running.process.signal(Signal::KILL),
            Action::Stop => {
                running.stopped = true;
                running.process.signal(Signal::STOP)
            }
            Action::Continue => {
                running.stopped = false;
                running.process.signal(Signal::CONT)
            }
            Action::Restart | Action::Cut | Action::Heal => {
                let incarnation = running.incarnation + 1;
                let left = self.plan.duration.saturating_sub(self.now());
                self.start_driver(driver, incarnation, left)
            }
        }
    }

    /// What became of the drivers.
    fn see_drivers(&mut self, outcome: &mut Outcome) -> Result<(), ScenarioError> {
        let Some((began, began_at)) = self.began else { return Ok(()) };
        let began_ms = began_at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as f64;
        for running in &mut self.drivers {
            let process = &mut running.process;
            let ended_at = process.end()?.map(|end| end.at);
            let said = process.said()?;
            let complained = process.complained()?;
            let report: Option<Value> = serde_json::from_str(&said).ok();
            let mut errors = complained.lines().filter(|line| line.starts_with("error: "));
            let track = report.as_ref().and_then(|report| track(report, began_ms));
            outcome.drivers.push(DriverSeen {
                driver: running.driver,
                name: process.name.clone(),
                expected: self.plan.end_of(running.driver, running.incarnation),
                ended: how(process, running.hung),
                ended_at: ended_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(began)),
                error: errors.next_back().map(str::to_owned),
                panicked: complained.contains("panicked at"),
                report,
                track,
            });
        }
        Ok(())
    }

    /// Stops the memory nodes, removes all that was made, and looks for what is left.
    fn take_down(&mut self, outcome: &mut Outcome) -> Result<(), ScenarioError> {
        if !self.is_mem() {
            let pool = self.pool.clone();
            let status = self.command("status", &["pool", "status", &pool, "--json"], START)?;
            let status: Value = serde_json::from_str(&status).unwrap_or_default();
            let list = |key: &str| status.get(key).and_then(Value::as_array);
            let nodes = list("compute_nodes");
            let index = |node: &Value| node.get("node").and_then(Value::as_u64);
            outcome.left_in_pool = nodes.into_iter().flatten().filter_map(index).collect();
            outcome.lost_pages = list("lost_pages").map_or(0, Vec::len);
            // Of dead nodes they stay, as the mark that they are dead, until their names are used again.
            let is_dead = |driver: &&DriverSeen| driver.ended != Ended::Code(0);
            let dead = outcome.drivers.iter().filter(is_dead);
            let dead = dead.filter_map(|driver| self.plan.drivers.get(driver.driver));
            let dead: usize = dead.map(|role| role.driver.compute_nodes).sum();
            let segments = self.segments_of_drivers();
            if segments.len() > dead {
                outcome.leftovers.extend(segments);
            }
        }
        let signals = &mut self.signals;
        for process in &mut self.memory {
            let was_killed = process.end()?.is_some();
            process.signal(Signal::TERM)?;
            let hung = process.wait(STOP, &mut || interrupted(signals)).is_err();
            if hung {
                process.signal(Signal::KILL)?;
                let _ = process.wait(STOP, &mut || Ok(()));
            }
            let ended = how(process, hung);
            outcome.memory.push(MemorySeen { name: process.name.clone(), ended, was_killed });
        }
        if !self.is_mem() {
            let pool = self.pool.clone();
            self.command("destroy", &["pool", "destroy", &pool, "--force"], START)?;
            self.created = false;
        }
        if let Some(mut network) = self.network.take() {
            let left = network.remove().into_iter();
            outcome.leftovers.extend(left.map(|name| format!("namespace {name}")));
        }
        outcome.leftovers.extend(self.leftovers());
        Ok(())
    }

    /// What drivers that have all ended left in the pool's directory.
    fn segments_of_drivers(&self) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.pool_directory()) else { return Vec::new() };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_drivers = names.filter(|name| name.contains("cn"));
        of_drivers.map(|name| format!("segment {name}")).collect()
    }

    fn pool_directory(&self) -> PathBuf {
        PathBuf::from("/dev/shm").join(format!(
            "selkie-{}-{}",
            rustix::process::getuid().as_raw(),
            self.pool
        ))
    }

    /// The pool's files, children, and whoever still listens.
    fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        let directory = self.pool_directory();
        if directory.exists() {
            left.push(format!("directory {}", directory.display()));
        }
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        left.extend(children.split_whitespace().map(|child| format!("process {child}")));
        for address in &self.addresses {
            let Ok(address) = address.parse() else { continue };
            let patience = Duration::from_millis(200);
            if std::net::TcpStream::connect_timeout(&address, patience).is_ok() {
                left.push(format!("socket {address}"));
            }
        }
        left
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

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.drivers.clear();
        self.memory.clear();
        if self.created {
            let pool = self.pool.clone();
            let destroy = words(&["pool", "destroy", &pool, "--force"]);
            // There may be none yet; and more than this cannot be done.
            let _ = self.launcher.run("destroy", &destroy, START, &mut || Ok(()));
        }
        self.network = None;
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Whether it is to stop.
fn interrupted(signals: &mut Signals) -> Result<(), ScenarioError> {
    match signals.pending().next() {
        Some(_) => Err(ScenarioError::Interrupted),
        None => Ok(()),
    }
}

fn how(process: &Process, hung: bool) -> Ended {
    match (hung, process.code(), process.signal_of_end()) {
        (false, Some(code), _) => Ended::Code(code),
        (false, None, Some(signal)) => Ended::Signal(signal),
        _ => Ended::Not,
    }
}

/// When a report's seconds were, by the scenario's time.
fn track(report: &Value, began_ms: f64) -> Option<Track> {
    let began = (report["began_unix_ms"].as_f64()? - began_ms) / 1000.0;
    let counts = report["per_second"].as_array()?.iter().filter_map(Value::as_u64).collect();
    Some(Track { began, counts, ended: began + report["seconds"].as_f64()? })
}

/// Processes of one driver have different names.
fn incarnation_name(name: &str, incarnation: usize) -> String {
    match incarnation {
        0 => name.to_owned(),
        again => format!("{name}#{}", again + 1),
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Tells people how far it is.
fn say(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{line}");
}
