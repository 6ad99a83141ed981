//! Pools of several processes, through the `selkie` binary.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

fn selkie(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selkie"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    selkie(arguments).output().unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn refused(arguments: &[&str], code: i32, expected: &str) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    assert!(error.contains(expected), "{arguments:?}: {error}");
    assert_eq!(error.lines().count(), 1, "{arguments:?}: {error}");
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A process that is ended with the value.
struct Running(Child);

impl Running {
    /// Starts a process and waits for its first line.
    fn start(arguments: &[&str]) -> (Running, String) {
        let mut child = selkie(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (Running(child), line)
    }

    /// Waits for its end; the exit code, if it was not killed, and what it said on stderr.
    fn ends(&mut self) -> (Option<i32>, String) {
        let mut stderr = self.0.stderr.take().unwrap();
        let reader = std::thread::spawn(move || {
            let mut error = String::new();
            std::io::Read::read_to_string(&mut stderr, &mut error).map(|_| error)
        });
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "it hangs");
            std::thread::sleep(Duration::from_millis(20));
        };
        (status.code(), reader.join().unwrap().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A pool with memory nodes that run, removed with the value.
struct Pool {
    name: String,
    memory: Vec<Running>,
}

impl Pool {
    fn start(test: &str, memory_nodes: usize) -> Pool {
        let name = format!("test-{test}-{}", std::process::id());
        succeeds(&["pool", "create", &name, "--memory-nodes", &memory_nodes.to_string()]);
        let mut pool = Pool { name, memory: Vec::new() };
        for _ in 0..memory_nodes {
            let lend = ["memnode", "--pool", &pool.name, "--memory", "400M"];
            let (running, line) = Running::start(&lend);
            assert!(line.contains("lends"), "{line}");
            pool.memory.push(running);
        }
        pool
    }

    fn url(&self) -> String {
        format!("shm:{}", self.name)
    }

    fn status(&self) -> Value {
        serde_json::from_str(&succeeds(&["pool", "status", &self.name, "--json"])).unwrap()
    }

    fn compute_nodes(&self) -> Vec<u64> {
        let nodes = self.status()["compute_nodes"].clone();
        nodes.as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect()
    }

    /// Arguments of a short run in the pool.
    fn tpcc<'a>(&self, url: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
        let tiny = ["--warehouses", "1", "--scale", "100", "--threads", "2"];
        [&["tpcc", "--pool", url], &tiny[..], rest].concat()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.memory.clear();
        let _ = run(&["pool", "destroy", &self.name, "--force"]);
    }
}

#[test]
fn drivers_of_several_processes_share_one_database() {
    let pool = Pool::start("shared", 3);
    let url = pool.url();
    let arguments = pool.tpcc(&url, &["--duration", "2", "--json"]);
    let drivers: Vec<Child> = (0..3)
        .map(|_| {
            let mut command = selkie(&arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut loads = 0;
    for driver in drivers {
        let output = driver.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.success(), "{error}");
        loads += usize::from(error.contains("loaded "));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["consistency"], "ok");
        assert!(report["tps"].as_f64().unwrap() > 0.0);
        assert_eq!(report["config"]["memory_nodes"], 3);
    }
    assert_eq!(loads, 1, "one loads, the others wait");
    assert_eq!(pool.status()["compute_nodes"], Value::Array(Vec::new()), "all have left");

    // The database is still there for who comes later, and only for who wants this one.
    let later = succeeds(&pool.tpcc(&url, &["--duration", "1", "--json"]));
    let later: Value = serde_json::from_str(&later).unwrap();
    assert_eq!(later["consistency"], "ok");
    let seed = pool.tpcc(&url, &["--duration", "1", "--seed", "5"]);
    refused(&seed, 2, "--seed 5: the pool holds a database of seed 1");
}

#[test]
fn load_only_leaves_a_database_behind() {
    let pool = Pool::start("load", 1);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
    assert!(label.contains("complete"), "{label}");
    let again = run(&pool.tpcc(&url, &["--load-only"]));
    assert!(text(&again.stderr).contains("loaded already"));
    succeeds(&pool.tpcc(&url, &["--duration", "1"]));
}

#[test]
fn a_pool_that_lost_a_memory_node_is_refused() {
    let mut pool = Pool::start("lost", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    pool.memory[1].kill();
    let lives: Vec<_> = pool.status()["memory_nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["lives"].clone())
        .collect();
    assert_eq!(lives, [Value::Bool(true), Value::Bool(false)]);
    let run = pool.tpcc(&url, &["--duration", "1"]);
    refused(&run, 1, "memory node 1 of the pool is dead");
    let name = pool.name.clone();
    refused(&["pool", "destroy", &name], 1, "mem0 of the pool lives; stop it first");
}

#[test]
fn the_death_of_a_memory_node_ends_a_run_with_an_error() {
    let mut pool = Pool::start("death", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (driver, _) = running(&pool, &url);
    std::thread::sleep(Duration::from_millis(300));
    pool.memory[0].kill();
    ends_with(driver, &["peer mem0 is dead"]);
}

/// A driver that runs, and its node's index.
fn running(pool: &Pool, url: &str) -> (Running, u64) {
    let known = pool.compute_nodes();
    let mut command = selkie(&pool.tpcc(url, &["--duration", "60"]));
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut driver = Running(command.spawn().unwrap());
    let started = Instant::now();
    loop {
        let joined = pool.compute_nodes().into_iter().find(|node| !known.contains(node));
        if let Some(node) = joined {
            return (driver, node);
        }
        assert!(driver.0.try_wait().unwrap().is_none(), "it ended");
        assert!(started.elapsed() < PATIENCE, "it does not join");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a driver to end with an error that says one of these.
fn ends_with(mut driver: Running, expected: &[&str]) {
    let (code, error) = driver.ends();
    assert_eq!(code, Some(1), "{error}");
    assert!(expected.iter().any(|expected| error.contains(expected)), "{error}");
}

#[test]
fn a_driver_that_is_killed_is_recovered_from_and_what_it_held_is_reported() {
    let pool = Pool::start("killed", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (survivor, _) = running(&pool, &url);
    let (mut victim, node) = running(&pool, &url);
    std::thread::sleep(Duration::from_millis(500));
    victim.kill();
    let dead = [Value::from(node)];
    let started = Instant::now();
    while pool.status()["dead_compute_nodes"].as_array().unwrap() != &dead {
        assert!(started.elapsed() < PATIENCE, "{}", pool.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(pool.status()["recovering_from"], Value::Array(Vec::new()));
    // On a database as small as this the dead node held what everybody needs.
    assert!(!pool.status()["lost_pages"].as_array().unwrap().is_empty());
    ends_with(survivor, &["is lost: cn"]);
    let late = run(&pool.tpcc(&url, &["--duration", "5"]));
    assert_eq!(late.status.code(), Some(1));
    assert!(text(&late.stderr).contains("is lost: cn"), "{}", text(&late.stderr));
}

#[test]
fn a_driver_that_stood_still_finds_itself_declared_dead() {
    let pool = Pool::start("paused", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (survivor, _) = running(&pool, &url);
    let (mut victim, node) = running(&pool, &url);
    std::thread::sleep(Duration::from_millis(300));
    let process = rustix::process::Pid::from_child(&victim.0);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let started = Instant::now();
    while !pool.status()["dead_compute_nodes"].as_array().unwrap().contains(&Value::from(node)) {
        assert!(started.elapsed() < PATIENCE, "{}", pool.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    ends_with(survivor, &["is lost: cn"]);
    // It may have been ended, if it was stopped in the middle of a verb.
    let _ = rustix::process::kill_process(process, rustix::process::Signal::CONT);
    let (code, error) = victim.ends();
    if code.is_some() {
        assert_eq!(code, Some(1), "{error}");
        let own = format!("peer cn{node} is dead");
        assert!(error.contains("declared dead") || error.contains(&own), "{error}");
    }
}

#[test]
fn bad_pools_are_refused_and_nothing_is_left_behind() {
    let name = format!("test-bad-{}", std::process::id());
    let url = format!("shm:{name}");
    let lend = |memory: &str, code, expected: &str| {
        refused(&["memnode", "--pool", &name, "--memory", memory], code, expected);
    };
    lend("10M", 1, "has no pool");
    refused(&["pool", "status", &name], 1, "has no pool");
    refused(&["pool", "destroy", &name], 1, "has no pool");
    refused(&["tpcc", "--pool", &url], 1, "has no pool");
    refused(&["pool", "create", &name, "--memory-nodes", "0"], 1, "memory_nodes = 0");
    refused(&["pool", "create", &name, "--gcl", "1000"], 1, "gcl_bytes = 1000");
    let directories = || {
        let entries = std::fs::read_dir("/dev/shm").unwrap();
        entries
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(&name))
            .count()
    };
    assert_eq!(directories(), 0, "nothing is made by looking for it");

    succeeds(&["pool", "create", &name, "--memory-nodes", "1"]);
    refused(&["pool", "create", &name], 1, "has a pool already");
    lend("100K", 1, "bytes_per_node = 102400 is not allowed: at least");
    lend("64T", 1, "no memory for a region");
    refused(&["tpcc", "--pool", &url, "--gcl", "4096"], 2, "--gcl 4096: is that of the pool");
    refused(&["tpcc", "--pool", &url, "--memory-nodes", "2"], 2, "--memory-nodes 2: is that of");
    refused(&["tpcc", "--pool", &url, "--affinity", "warehouse"], 2, "--affinity warehouse");
    refused(&["tpcc", "--load-only"], 2, "--load-only");
    for bad in ["shm:a/b", "shm:", "mem:", "a b", "tcp:x"] {
        let output = run(&["tpcc", "--pool", bad]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--pool <URL>"), "{}", text(&output.stderr));
    }
    succeeds(&["pool", "destroy", &name]);
    assert_eq!(directories(), 0);
}
