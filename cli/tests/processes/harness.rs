//! Starts processes of the `selkie` binary, watches them, and ends them with the test.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::Value;

/// How long anything may take. It bounds a test that hangs; no test waits that long otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// How long a command may take that is run to its end. Some are simulations of many seeds.
const BOUND: Duration = Duration::from_secs(300);
/// Interval at which a test polls.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Options of a TPC-C database that loads fast.
pub(crate) const TINY: [&str; 6] = ["--warehouses", "1", "--scale", "100", "--threads", "2"];

/// The command line with these arguments.
pub(crate) fn selkie(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selkie"));
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Runs a command to its end, which must come.
#[track_caller]
pub(crate) fn run(arguments: &[&str]) -> Output {
    output(&mut selkie(arguments))
}

/// Runs any command to its end, which must come, without input.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    let started =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    ends(started.unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

/// Runs any command to its end, which must come, with this on its standard input.
#[track_caller]
pub(crate) fn given(command: &mut Command, input: impl AsRef<[u8]>) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (mut to, input) = (child.stdin.take().unwrap(), input.as_ref().to_vec());
    // It may end before it has read all of it.
    let writes = std::thread::spawn(move || drop(to.write_all(&input)));
    let output = ends(child);
    writes.join().unwrap();
    output
}

/// Waits for the end of a process, which must come; what it said where it has pipes.
#[track_caller]
pub(crate) fn ends(child: Child) -> Output {
    let id = Pid::from_child(&child);
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    let bound = std::thread::spawn(move || {
        let is_late = is_over.recv_timeout(BOUND) == Err(RecvTimeoutError::Timeout);
        if is_late {
            let _ = rustix::process::kill_process(id, Signal::KILL);
        }
        is_late
    });
    let output = child.wait_with_output().unwrap();
    drop(over);
    let said = || format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(!bound.join().unwrap(), "it does not end within {BOUND:?}: {}", said());
    output
}

/// Runs a command that must end well; its stdout.
#[track_caller]
pub(crate) fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Runs a command that must end well; the JSON that it prints.
#[track_caller]
pub(crate) fn prints(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(arguments)).unwrap()
}

/// Runs a command that must end with this code and say why in one line.
#[track_caller]
pub(crate) fn refused(arguments: &[&str], code: i32, expected: &str) {
    let error = fails(arguments, code, expected);
    // A wait that is told of is no part of the reason.
    let lines = error.lines().filter(|line| !line.contains("selkie_notice"));
    assert_eq!(lines.count(), 1, "{arguments:?}: {error}");
}

/// Runs a command that must end with this code, say why in one line, and print nothing.
#[track_caller]
pub(crate) fn refused_without_output(arguments: &[&str], code: i32, expected: &str) {
    let output = run(arguments);
    let error = error_of(&output, arguments, code, expected);
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
}

/// Runs a command that must end with this code and say why in its last line; its stderr.
#[track_caller]
pub(crate) fn fails(arguments: &[&str], code: i32, expected: &str) -> String {
    error_of(&run(arguments), arguments, code, expected)
}

/// The stderr of a command that must have ended with this code and said why in its last line.
#[track_caller]
fn error_of(output: &Output, arguments: &[&str], code: i32, expected: &str) -> String {
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains(expected), "{arguments:?}: {error}");
    error
}

/// Whether a file system can be mounted by `unshare -rm`; says so if it cannot.
pub(crate) fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["-rm", "true"]).stderr(Stdio::null()).status();
    let may = tried.is_ok_and(|status| status.success());
    if !may {
        eprintln!("not run: no file system can be mounted here, not even in a namespace");
    }
    may
}

/// What a process wrote.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// How long something may take that is to be done at once: seconds, and more where the machine is
/// so busy that a command that does nothing takes long.
#[track_caller]
pub(crate) fn soon() -> Duration {
    let began = Instant::now();
    succeeds(&["--version"]);
    Duration::from_secs(5) + 20 * began.elapsed()
}

/// Polls until `look` finds something.
#[track_caller]
pub(crate) fn until<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    until_or(|| what.to_owned(), look)
}

/// As [`until`]; `what` is asked when it was not seen.
#[track_caller]
pub(crate) fn until_or<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {}", what());
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The lines of a stream so far.
#[derive(Default)]
struct Lines {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    lines: Vec<String>,
    is_closed: bool,
}

impl Lines {
    /// Reads a stream in a thread of its own, so that the process never waits for its reader.
    fn of(stream: impl Read + Send + 'static) -> Arc<Self> {
        let lines = Arc::new(Self::default());
        let own = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                own.heard.lock().unwrap().lines.push(line);
                own.changed.notify_all();
            }
            own.heard.lock().unwrap().is_closed = true;
            own.changed.notify_all();
        });
        lines
    }

    /// Waits for the first line in which something is found; all lines, if the stream ends first.
    fn find<T>(&self, look: impl Fn(&str) -> Option<T>) -> Result<T, String> {
        let done = |heard: &Heard| heard.is_closed || heard.lines.iter().any(|l| look(l).is_some());
        let (heard, timeout) = self
            .changed
            .wait_timeout_while(self.heard.lock().unwrap(), PATIENCE, |heard| !done(heard))
            .unwrap();
        assert!(!timeout.timed_out(), "not within {PATIENCE:?}: {}", heard.lines.join("\n"));
        heard.lines.iter().find_map(|line| look(line)).ok_or_else(|| heard.lines.join("\n"))
    }

    /// All of it, when the stream has ended.
    fn all(&self) -> String {
        let never = self.find(|_| None::<()>);
        never.err().map_or_else(String::new, |lines| format!("{lines}\n"))
    }
}

/// A process that is killed with the value.
pub(crate) struct Process {
    child: Child,
    stdout: Arc<Lines>,
    stderr: Arc<Lines>,
}

impl Process {
    /// Starts the command line with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(selkie(arguments))
    }

    /// Starts it by another program, such as `nohup`, which becomes it.
    pub(crate) fn start_by(program: &[&str], arguments: &[&str]) -> Self {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(env!("CARGO_BIN_EXE_selkie")).args(arguments);
        command.stdin(Stdio::null());
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Lines::of(child.stdout.take().unwrap());
        let stderr = Lines::of(child.stderr.take().unwrap());
        Self { child, stdout, stderr }
    }

    /// Starts a memory node, and waits until it lends; the line that says so.
    #[track_caller]
    pub(crate) fn lends(arguments: &[&str]) -> (Self, String) {
        let process = Self::start(arguments);
        let line = process.stdout.find(|line| line.contains(" lends ").then(|| line.to_owned()));
        let line = line.unwrap_or_else(|_| panic!("{arguments:?}: {}", process.stderr.all()));
        (process, line)
    }

    /// Waits for the first line on stderr that begins so; the rest of it.
    #[track_caller]
    pub(crate) fn says(&self, start: &str) -> String {
        let rest = self.stderr.find(|line| line.strip_prefix(start).map(str::to_owned));
        rest.unwrap_or_else(|said| panic!("it never says {start:?}: {said}"))
    }

    /// Waits for the first line on stderr that has this in it.
    #[track_caller]
    pub(crate) fn finds(&self, what: &str) -> String {
        let line = self.stderr.find(|line| line.contains(what).then(|| line.to_owned()));
        line.unwrap_or_else(|said| panic!("it never says {what:?}: {said}"))
    }

    /// Waits for the first line on stdout that has this in it.
    #[track_caller]
    pub(crate) fn tells(&self, what: &str) -> String {
        let line = self.stdout.find(|line| line.contains(what).then(|| line.to_owned()));
        line.unwrap_or_else(|told| panic!("it never tells {what:?}: {told}; {}", self.stderr.all()))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    pub(crate) fn end(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits for its end; the exit code, if no signal ended it, and what it said on stderr.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> (Option<i32>, String) {
        let status = until("a process ends", || self.end());
        (status.code(), self.stderr.all())
    }

    /// Waits for its end, which is to come at once, measured from then.
    #[track_caller]
    pub(crate) fn ends_soon(&mut self, since: Instant) -> (Option<i32>, String) {
        let ended = self.ends();
        let (took, bound) = (since.elapsed(), soon());
        assert!(took < bound, "it took {took:?}, and has {bound:?}: {}", ended.1);
        ended
    }

    /// Waits until it ends well; what it printed.
    #[track_caller]
    pub(crate) fn ends_well(mut self) -> String {
        let (code, error) = self.ends();
        assert_eq!(code, Some(0), "{error}");
        self.stdout.all()
    }

    /// Waits until it ends well; the JSON that it printed.
    #[track_caller]
    pub(crate) fn reports(self) -> Value {
        serde_json::from_str(&self.ends_well()).unwrap()
    }

    /// Kills it and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How the processes of a pool reach its memory.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Over {
    Shm,
    Tcp,
}

/// How a pool is made.
pub(crate) struct Setup<'a> {
    /// Name of the test, which is in the name of the pool.
    pub(crate) test: &'a str,
    pub(crate) over: Over,
    pub(crate) memory_nodes: usize,
    /// What each memory node lends.
    pub(crate) memory: &'a str,
    /// More options of `selkie pool create`, and of `selkie memnode`.
    pub(crate) create: &'a [&'a str],
    pub(crate) lend: &'a [&'a str],
}

impl Default for Setup<'_> {
    fn default() -> Self {
        Self { test: "", over: Over::Shm, memory_nodes: 3, memory: "150M", create: &[], lend: &[] }
    }
}

/// A pool with memory nodes that run, removed with the value.
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) memory: Vec<Process>,
    /// By which drivers find it.
    pub(crate) url: String,
}

impl Pool {
    /// Makes a pool and starts its memory nodes. Over TCP only the first of them shares files with
    /// the pool; the others ask those before them.
    #[track_caller]
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        let mut pool = Self::without_memory(setup);
        let mut known = pool.name.clone();
        for _ in 0..setup.memory_nodes {
            let lend = ["memnode", "--pool", &known, "--memory", setup.memory];
            let (process, line) = Process::lends(&[&lend[..], setup.lend].concat());
            pool.memory.push(process);
            if setup.over == Over::Tcp {
                let at = line.split_once(" at ").unwrap().1.split_once(',').unwrap().0;
                let before = pool.url.strip_prefix("tcp:").map(|all| format!(",{all}"));
                pool.url = format!("tcp:{at}{}", before.unwrap_or_default());
                known.clone_from(&pool.url);
            }
        }
        pool
    }

    /// Makes a pool that waits for its memory nodes.
    #[track_caller]
    pub(crate) fn without_memory(setup: &Setup<'_>) -> Self {
        let fabric = if setup.over == Over::Shm { "shm" } else { "tcp" };
        let name = format!("test-{}-{fabric}-{}", setup.test, std::process::id());
        let nodes = setup.memory_nodes.to_string();
        let create = ["pool", "create", &name, "--memory-nodes", &nodes, "--fabric", fabric];
        succeeds(&[&create[..], setup.create].concat());
        Self { url: format!("shm:{name}"), name, memory: Vec::new() }
    }

    /// What `selkie pool status` says.
    #[track_caller]
    pub(crate) fn status(&self) -> Value {
        prints(&["pool", "status", &self.name, "--json"])
    }

    /// What `selkie top --once` says.
    #[track_caller]
    pub(crate) fn top(&self) -> Value {
        prints(&["top", &self.name, "--once", "--json"])
    }

    /// Indices of the compute nodes in the pool.
    #[track_caller]
    pub(crate) fn compute_nodes(&self) -> Vec<u64> {
        let nodes = self.status()["compute_nodes"].clone();
        nodes.as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect()
    }

    /// Waits until a compute node does something that is counted under this name.
    #[track_caller]
    pub(crate) fn works(&self, node: u64, what: &str) {
        let name = format!("cn{node}");
        until(&format!("{name} works: {what}"), || {
            let seen = self.top();
            let mut nodes = seen["compute_nodes"].as_array().unwrap().iter();
            let found = nodes.find(|node| node["node"] == *name);
            found.filter(|node| node["rates"][what].as_f64() > Some(0.0)).map(drop)
        });
    }

    /// Arguments of a short run in the pool.
    pub(crate) fn tpcc<'a>(&'a self, rest: &[&'a str]) -> Vec<&'a str> {
        [&["tpcc", "--pool", &self.url], &TINY[..], rest].concat()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.memory.clear();
        let _ = run(&["pool", "destroy", &self.name, "--force"]);
    }
}
