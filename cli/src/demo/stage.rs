//! The processes of the demo, which end with it, and the pool, which is removed with it.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use selkie::shared::{Place, PoolName};

use super::view::{LOOK_EVERY, Look, View};
use crate::scenario::error::ScenarioError;
use crate::scenario::options::words;
use crate::scenario::processes::{Launcher, Process};
use crate::support::progress::begins;
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;

/// How long a command, or the start of a process, may take.
const START: Duration = Duration::from_secs(60);
/// How long the load may take, and the check of a driver.
const WORK: Duration = Duration::from_secs(300);
/// How long a driver may work at most: it is told to end before.
const DRIVE: &str = "7200";

/// How the pool is made. Small, so that it fits where there is little shared memory.
const POOL: [&str; 8] =
    ["--memory-nodes", "3", "--coding", "2+1", "--max-compute-nodes", "4", "--log-size", "16M"];
/// What a memory node lends.
const MEMORY: &str = "200M";
const DATABASE: [&str; 6] = ["--warehouses", "2", "--scale", "20", "--threads", "1"];

/// What the demo has started and made.
pub(super) struct Stage<'a> {
    pool: String,
    place: Place,
    launcher: Launcher,
    interrupt: &'a Interrupt,
    view: View,
    began: Instant,
    pub(super) memory: Vec<Process>,
    pub(super) drivers: Vec<Process>,
    is_made: bool,
}

impl<'a> Stage<'a> {
    pub(super) fn new(
        pool: &PoolName,
        output: &Path,
        interrupt: &'a Interrupt,
    ) -> Result<Self, ScenarioError> {
        let named = |what: String| ScenarioError::Process { name: pool.to_string(), what };
        let place: Place = pool.as_str().parse().map_err(|error| named(format!("{error}")))?;
        Ok(Self {
            pool: pool.to_string(),
            view: View::of(&place)?,
            place,
            launcher: Launcher::new(output)?,
            interrupt,
            began: Instant::now(),
            memory: Vec::new(),
            drivers: Vec::new(),
            is_made: false,
        })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Tells people what happens.
    pub(super) fn say(&self, what: &str) -> Result<(), ScenarioError> {
        self.show(&format!("{:5.1} s  {what}\n", self.began.elapsed().as_secs_f64()))
    }

    /// Shows people lines as they are.
    pub(super) fn show(&self, lines: &str) -> Result<(), ScenarioError> {
        let mut stdout = std::io::stdout();
        let told = stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush());
        told.map_err(|source| ScenarioError::io("stdout", source))
    }

    /// Makes the pool; one that is there already is another's.
    pub(super) fn make_pool(&mut self) -> Result<(), ScenarioError> {
        let mut arguments = words(&["pool", "create", &self.pool]);
        arguments.extend(words(&POOL));
        // A signal must not come between the two: then it would stay behind.
        let made = self.launcher.run("create", &arguments, START, &mut || Ok(()));
        self.is_made = made.is_ok();
        made.map(drop).map_err(|error| match error {
            ScenarioError::Process { what, .. } if what.contains(" already") => {
                let name = what.trim_start_matches("error: ").to_owned();
                let what = "--pool NAME gives the demo another".to_owned();
                ScenarioError::Process { name, what }
            }
            error => error,
        })
    }

    /// Starts another memory node and waits until it lends; its process id.
    pub(super) fn lend(&mut self) -> Result<u32, ScenarioError> {
        let name = format!("mem{}", self.memory.len());
        let arguments = words(&["memnode", "--pool", &self.pool, "--memory", MEMORY]);
        let mut process = self.launcher.start(&name, None, &arguments)?;
        self.until_says(&mut process, |process| Ok(process.said()?.contains(" lends ")))?;
        let id = process.id();
        self.memory.push(process);
        Ok(id)
    }

    /// Loads the database.
    pub(super) fn load(&mut self) -> Result<(), ScenarioError> {
        let mut arguments = self.tpcc();
        arguments.push("--load-only".to_owned());
        let interrupt = self.interrupt;
        self.launcher.run("load", &arguments, WORK, &mut || look(interrupt)).map(drop)
    }

    /// Starts a driver, which notes what it commits; its process id.
    pub(super) fn drive(&mut self) -> Result<u32, ScenarioError> {
        let name = format!("driver-{}", self.drivers.len() + 1);
        let mut arguments = self.tpcc();
        arguments.extend(words(&["--duration", DRIVE, "--workers", "4", "--json"]));
        let mut process = self.launcher.start(&name, None, &arguments)?;
        let begins = begins("run");
        self.until_says(&mut process, |process| Ok(process.complained()?.contains(&begins)))?;
        let id = process.id();
        self.drivers.push(process);
        Ok(id)
    }

    fn tpcc(&self) -> Vec<String> {
        let mut arguments = words(&["tpcc", "--pool", &format!("shm:{}", self.pool)]);
        arguments.extend(words(&DATABASE));
        arguments
    }

    /// Waits until a process says something; it must not end before.
    fn until_says(
        &self,
        process: &mut Process,
        says: impl Fn(&Process) -> Result<bool, ScenarioError>,
    ) -> Result<(), ScenarioError> {
        let started = Instant::now();
        loop {
            if process.end()?.is_some() {
                return Err(process.failed());
            }
            if says(process)? {
                return Ok(());
            }
            self.pause(&process.name, "it does not begin", started, START)?;
        }
    }

    /// Looks at the pool.
    pub(super) fn look(&mut self) -> Result<Look, ScenarioError> {
        look(self.interrupt)?;
        for driver in &mut self.drivers {
            if driver.end()?.is_some() {
                return Err(driver.failed());
            }
        }
        self.view.look()
    }

    /// Waits a little; an error if a wait has lasted too long, or a signal ends the demo.
    pub(super) fn pause(
        &self,
        name: &str,
        what: &str,
        since: Instant,
        patience: Duration,
    ) -> Result<(), ScenarioError> {
        look(self.interrupt)?;
        if since.elapsed() > patience {
            let what = format!("{what}, after {} s", patience.as_secs());
            return Err(ScenarioError::Process { name: name.to_owned(), what });
        }
        std::thread::sleep(LOOK_EVERY);
        Ok(())
    }

    /// Tells the drivers to end and waits until they have checked what they did; their reports.
    pub(super) fn end_drivers(&mut self) -> Result<Vec<String>, ScenarioError> {
        for driver in &mut self.drivers {
            driver.signal(Signal::TERM)?;
        }
        let interrupt = self.interrupt;
        let end = |mut driver: Process| {
            driver.wait(WORK, &mut || look(interrupt))?;
            driver.said()
        };
        self.drivers.drain(..).map(end).collect()
    }

    /// Ends all processes and removes the pool.
    pub(super) fn clear(&mut self) {
        self.drivers.clear();
        self.memory.clear();
        if std::mem::take(&mut self.is_made) {
            let destroy = words(&["pool", "destroy", &self.pool, "--force"]);
            if let Err(error) = self.launcher.run("destroy", &destroy, START, &mut || Ok(())) {
                complain!("error: pool {} is left: {error}", self.pool);
            }
        }
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Whether a signal ends the demo.
fn look(interrupt: &Interrupt) -> Result<(), ScenarioError> {
    interrupt.signal().map_or(Ok(()), |interrupted| Err(interrupted.into()))
}
