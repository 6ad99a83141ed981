//! The processes of a scenario: started with their output in files, watched, signalled, and never
//! left behind.
//!
//! A process ends when the value that stands for it is dropped, and with the harness, however that
//! ends: each is told by `--parent` to have itself killed with it.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::error::ScenarioError;

/// How often it is looked at what processes do.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a process that was killed may take to be gone.
const DEATH: Duration = Duration::from_secs(10);

/// The directory with what the processes say, removed with the value unless it is to be kept. Its
/// name is that of no other run, nor was it one before.
pub(crate) struct OutputDirectory {
    name: String,
    directory: PathBuf,
    keep: bool,
}

impl OutputDirectory {
    pub(crate) fn make(scenario: &str) -> Result<Self, ScenarioError> {
        let chance = RandomState::new().hash_one(scenario) as u32;
        let name = format!("scenario-{scenario}-{}-{chance:08x}", std::process::id());
        let directory = std::env::temp_dir().join(format!("selkie-{name}"));
        std::fs::create_dir(&directory)
            .map_err(|source| ScenarioError::io(directory.display(), source))?;
        Ok(Self { name, directory, keep: false })
    }

    /// The name of the run.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn keep(&mut self) {
        self.keep = true;
    }
}

impl Drop for OutputDirectory {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.directory);
        }
    }
}

/// Starts processes of this program in the scenario's directory.
pub(crate) struct Launcher {
    directory: PathBuf,
    executable: PathBuf,
}

impl Launcher {
    pub(crate) fn new(directory: &Path) -> Result<Self, ScenarioError> {
        let executable = std::env::current_exe()
            .map_err(|source| ScenarioError::io("the own executable", source))?;
        Ok(Self { directory: directory.to_owned(), executable })
    }

    /// A file of a process in the scenario's directory.
    pub(crate) fn file(&self, name: &str, kind: &str) -> PathBuf {
        self.directory.join(format!("{name}.{kind}"))
    }

    /// Starts one under a name that no other has, in a network namespace or none.
    pub(crate) fn start(
        &self,
        name: &str,
        namespace: Option<String>,
        arguments: &[String],
    ) -> Result<Process, ScenarioError> {
        let mut command = match namespace {
            None => Command::new(&self.executable),
            // It replaces itself by what it runs: the process is the child all the same.
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &namespace]).arg(&self.executable);
                command
            }
        };
        let (stdout, stderr) = (self.file(name, "stdout"), self.file(name, "stderr"));
        let create = |path: &Path| {
            File::create(path).map_err(|source| ScenarioError::io(path.display(), source))
        };
        command
            .arg(format!("--parent={}", std::process::id()))
            .args(arguments)
            // Ctrl-C is for the harness, which then ends them in their order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(create(&stdout)?)
            .stderr(create(&stderr)?);
        let child = command.spawn().map_err(|source| ScenarioError::io(name, source))?;
        Ok(Process { name: name.to_owned(), child, stdout, stderr, end: None })
    }

    /// Starts one, waits for its end, and returns what it said; an exit code other than 0 is an
    /// error.
    pub(crate) fn run(
        &self,
        name: &str,
        arguments: &[String],
        patience: Duration,
        interrupted: &mut dyn FnMut() -> Result<(), ScenarioError>,
    ) -> Result<String, ScenarioError> {
        let mut process = self.start(name, None, arguments)?;
        process.wait(patience, interrupted)?;
        if process.code() == Some(0) {
            return process.said();
        }
        Err(process.failed())
    }
}

/// How a process ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExitRecord {
    pub(crate) at: Instant,
    status: ExitStatus,
}

/// A process.
pub(crate) struct Process {
    pub(crate) name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    end: Option<ExitRecord>,
}

impl Process {
    /// How it ended, if it has.
    pub(crate) fn end(&mut self) -> Result<Option<ExitRecord>, ScenarioError> {
        if self.end.is_none() {
            let status = self.child.try_wait();
            let status = status.map_err(|source| ScenarioError::io(&self.name, source))?;
            self.end = status.map(|status| ExitRecord { at: Instant::now(), status });
        }
        Ok(self.end)
    }

    /// Its exit code, if it ended with one.
    pub(crate) fn code(&self) -> Option<i32> {
        self.end.and_then(|end| end.status.code())
    }

    /// The signal that ended it.
    pub(crate) fn signal_of_end(&self) -> Option<i32> {
        self.end.and_then(|end| end.status.signal())
    }

    /// What it has written to stdout so far.
    pub(crate) fn said(&self) -> Result<String, ScenarioError> {
        read(&self.stdout)
    }

    /// What it has written to stderr so far.
    pub(crate) fn complained(&self) -> Result<String, ScenarioError> {
        read(&self.stderr)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The error for one that should not have ended, or not so.
    pub(crate) fn failed(&self) -> ScenarioError {
        let last = self.complained().unwrap_or_default();
        let last = last.lines().last().unwrap_or("it said nothing").to_owned();
        ScenarioError::Process { name: self.name.clone(), what: last }
    }

    /// Sends it a signal, unless it has ended; whether it was sent.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<bool, ScenarioError> {
        if self.end()?.is_some() {
            return Ok(false);
        }
        kill_process(Pid::from_child(&self.child), signal)
            .map_err(|error| ScenarioError::io(&self.name, error.into()))?;
        Ok(true)
    }

    /// Waits for its end.
    pub(crate) fn wait(
        &mut self,
        patience: Duration,
        interrupted: &mut dyn FnMut() -> Result<(), ScenarioError>,
    ) -> Result<ExitRecord, ScenarioError> {
        let started = Instant::now();
        loop {
            if let Some(end) = self.end()? {
                return Ok(end);
            }
            interrupted()?;
            if started.elapsed() > patience {
                let what = format!("it has not ended after {patience:?}");
                return Err(ScenarioError::Process { name: self.name.clone(), what });
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !matches!(self.end(), Ok(None)) {
            return;
        }
        // Nothing more can be done if that fails.
        let _ = self.child.kill();
        let _ = self.wait(DEATH, &mut || Ok(()));
    }
}

fn read(path: &Path) -> Result<String, ScenarioError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|source| ScenarioError::io(path.display(), source))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
