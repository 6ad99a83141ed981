//! Pools of several processes, through the `selkie` binary.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
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

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Running {
    /// How many files of a compute node's segment the process holds open.
    fn files_of(&self, node: u64) -> usize {
        let of = format!("/cn{node}");
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap();
        let targets = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        targets.filter(|target| target.to_string_lossy().contains(&of)).count()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How the processes of a pool reach its memory.
#[derive(Clone, Copy, PartialEq)]
enum Over {
    Shm,
    Tcp,
}

/// A pool with memory nodes that run, removed with the value.
struct Pool {
    name: String,
    memory: Vec<Running>,
    url: String,
}

impl Pool {
    /// Of the memory nodes over TCP only the first shares files with the pool.
    fn start(over: Over, test: &str, memory_nodes: usize) -> Pool {
        Self::start_with(over, test, memory_nodes, "4M")
    }

    fn start_with(over: Over, test: &str, memory_nodes: usize, range: &str) -> Pool {
        Self::start_made(over, test, memory_nodes, &["--range", range])
    }

    fn start_made(over: Over, test: &str, memory_nodes: usize, rest: &[&str]) -> Pool {
        let fabric = if over == Over::Shm { "shm" } else { "tcp" };
        let name = format!("test-{test}-{fabric}-{}", std::process::id());
        let nodes = memory_nodes.to_string();
        let shape = ["--memory-nodes", &nodes, "--fabric", fabric];
        succeeds(&[&["pool", "create", &name], &shape[..], rest].concat());
        let url = format!("shm:{name}");
        let mut pool = Pool { name: name.clone(), memory: Vec::new(), url };
        let mut known = name;
        for _ in 0..memory_nodes {
            let lend = ["memnode", "--pool", &known, "--memory", "400M", "--fabric", fabric];
            let (running, line) = Running::start(&lend);
            assert!(line.contains("lends"), "{line}");
            if over == Over::Tcp {
                let at = line.split_once(" at ").unwrap().1.split_once(',').unwrap().0;
                let before =
                    pool.url.strip_prefix("tcp:").map_or_else(String::new, |all| format!(",{all}"));
                pool.url = format!("tcp:{at}{before}");
                // By all of them, as any may leave.
                known.clone_from(&pool.url);
            }
            pool.memory.push(running);
        }
        pool
    }

    fn url(&self) -> String {
        self.url.clone()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&succeeds(&["pool", "status", &self.name, "--json"])).unwrap()
    }

    fn compute_nodes(&self) -> Vec<u64> {
        let nodes = self.status()["compute_nodes"].clone();
        nodes.as_array().unwrap().iter().map(|node| node["node"].as_u64().unwrap()).collect()
    }

    /// Waits until a node does something that is counted under this name.
    fn works(&self, node: u64, what: &str) {
        let started = Instant::now();
        let name = format!("cn{node}");
        loop {
            let seen = succeeds(&["top", &self.name, "--once", "--json"]);
            let seen: Value = serde_json::from_str(&seen).unwrap();
            let mut nodes = seen["compute_nodes"].as_array().unwrap().iter();
            let found = nodes.find(|node| node["node"] == *name);
            if found.is_some_and(|node| node["rates"][what].as_f64() > Some(0.0)) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{name} does nothing: {seen}");
        }
    }

    /// Waits until a node is dead and has been recovered from, and the survivor has worked on what
    /// is left.
    fn recovers(&self, dead: u64, survivor: u64) {
        let started = Instant::now();
        loop {
            let status = self.status();
            let is_over = status["recovering_from"] == Value::Array(Vec::new());
            if is_over && status["dead_compute_nodes"] == Value::Array(vec![dead.into()]) {
                break;
            }
            assert!(started.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
        self.works(survivor, "accesses");
    }

    /// Waits until a node is dead and has been recovered from, with all its pages.
    fn is_over(&self, dead: u64) {
        let started = Instant::now();
        loop {
            let status = self.status();
            let none = Value::Array(Vec::new());
            let is_over = [&status["recovering_from"], &status["dead_compute_nodes"]] == [&none; 2];
            if is_over && !self.compute_nodes().contains(&dead) {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether a compute node's memory is among what the pool has.
    fn has_segment_of(&self, node: u64) -> bool {
        let pools = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
        let mut own = pools.filter(|e| e.file_name().to_string_lossy().contains(&self.name));
        own.any(|pool| pool.path().join(format!("cn{node}")).exists())
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
fn a_memory_node_leaves_while_a_driver_works() {
    memory_leaves(Over::Shm);
}

#[test]
fn a_memory_node_leaves_while_a_driver_works_over_tcp() {
    memory_leaves(Over::Tcp);
}

fn memory_leaves(over: Over) {
    // One range, so that there is no need for another when there are too few memory nodes for that.
    let mut pool = Pool::start_with(over, "drain", 4, "256M");
    let url = pool.url();
    let driver = |seconds: &str| {
        let tiny = ["--warehouses", "1", "--scale", "100", "--threads", "2"];
        let how = [&["tpcc", "--pool", &url, "--duration", seconds, "--json"], &tiny[..]].concat();
        let mut command = selkie(&how);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let succeeds_to_end = |driver: Child| {
        let output = driver.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    };
    // Somebody has to be there until the slab has moved.
    let working = driver(if over == Over::Shm { "15" } else { "40" });
    let started = Instant::now();
    while pool.compute_nodes().is_empty() {
        assert!(started.elapsed() < PATIENCE, "no driver comes");
    }
    pool.works(0, "accesses");
    let drain = selkie(&["pool", "drain", &pool.name, "mem2"]).stderr(Stdio::piped()).spawn();
    let (code, told) = Running(drain.unwrap()).ends();
    assert!(code == Some(0) && told.contains("slabs to be moved"), "{code:?}: {told}");
    let node = pool.status()["memory_nodes"][2].clone();
    let left = (&node["left"], &node["slabs_used"], &node["lives"]);
    assert_eq!(left, (&Value::Bool(true), &Value::from(0), &Value::Bool(false)), "{node}");
    succeeds_to_end(working);
    let started = Instant::now();
    let status = loop {
        if let Some(status) = pool.memory[2].0.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < PATIENCE, "its process goes on");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{status}");
    refused(
        &["pool", "drain", &pool.name, "0"],
        1,
        "2 memory nodes in 2 failure domains would stay",
    );
    // Nothing is missing without it, and without one more.
    pool.memory[1].kill();
    succeeds_to_end(driver("2"));
}

#[test]
fn a_driver_outlives_a_memory_node() {
    memory_is_lost(Over::Shm);
}

/// Over TCP nobody can tell a dead node from one that is far, until it is missed.
#[test]
fn a_driver_outlives_a_memory_node_over_tcp() {
    memory_is_lost(Over::Tcp);
}

fn memory_is_lost(over: Over) {
    let mut pool = Pool::start_with(over, "loss", 4, "256M");
    let (driver, node) = running(&pool, &pool.url());
    let used = |pool: &Pool| {
        let nodes = pool.status()["memory_nodes"].clone();
        (0..4).map(|node| nodes[node]["slabs_used"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    // Over TCP the first is the way to the pool's files.
    let victim = (1..4).find(|node| used(&pool)[*node] > 0).unwrap();
    pool.memory[victim].kill();
    let started = Instant::now();
    while used(&pool)[victim] != 0 {
        assert!(started.elapsed() < PATIENCE, "what was lost is not made again: {}", pool.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    pool.works(node, "operations");
    driver.signal(Signal::TERM);
    ends_well(driver);
}

#[test]
fn a_memory_node_joins_while_a_driver_works() {
    memory_joins(Over::Shm);
}

#[test]
fn a_memory_node_joins_while_a_driver_works_over_tcp() {
    memory_joins(Over::Tcp);
}

fn memory_joins(over: Over) {
    let mut pool = Pool::start(over, "join", 3);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (driver, _) = running(&pool, &url);
    let known = if over == Over::Shm { pool.name.clone() } else { url.clone() };
    // More than the others lend.
    let (joined, line) = Running::start(&["memnode", "--pool", &known, "--memory", "600M"]);
    assert!(line.starts_with("mem3 of pool"), "{line}");
    pool.memory.push(joined);
    let started = Instant::now();
    while pool.status()["memory_nodes"][3]["slabs_used"] == 0 {
        assert!(started.elapsed() < PATIENCE, "nothing is moved there: {}", pool.status());
        std::thread::sleep(Duration::from_millis(20));
    }
    driver.signal(Signal::TERM);
    ends_well(driver);
    // Its room is needed without one of the first.
    pool.memory[1].kill();
    let late = succeeds(&pool.tpcc(&url, &["--duration", "1", "--json"]));
    let late: Value = serde_json::from_str(&late).unwrap();
    assert_eq!(late["consistency"], "ok", "{late}");
}

#[test]
fn a_memory_node_whose_host_is_short_of_memory_gives_it_back_while_a_driver_works() {
    let name = format!("test-evict-{}", std::process::id());
    // One range, so that there is no need for another when there are too few memory nodes for that.
    let shape = ["--memory-nodes", "4", "--range", "256M", "--coding", "2+1"];
    succeeds(&[&["pool", "create", &name], &shape[..]].concat());
    let mut pool = Pool { name: name.clone(), memory: Vec::new(), url: format!("shm:{name}") };
    // More than any host has: it gives back what it can. It stands still until there is something,
    // and is the first choice of new ranges until then.
    let short = ["--memory", "500M", "--headroom", "999T"];
    for more in [&["--memory", "400M"][..], &["--memory", "400M"], &["--memory", "400M"], &short] {
        let (running, _) = Running::start(&[&["memnode", "--pool", &name], more].concat());
        pool.memory.push(running);
    }
    pool.memory[3].signal(Signal::STOP);
    let url = pool.url();
    let (driver, _) = running(&pool, &url);
    let node = || pool.status()["memory_nodes"][3].clone();
    let file = || {
        let pools = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap());
        let mut own = pools.filter(|e| e.file_name().to_string_lossy().contains(&name));
        own.find_map(|pool| pool.path().join("mem3/region-0").metadata().ok()).unwrap()
    };
    let taken = || std::os::unix::fs::MetadataExt::blocks(&file()) * 512;
    let before = node();
    assert!(before["slabs_used"].as_u64().unwrap() > 0, "{before}");
    assert!(taken() > 400 << 20, "{} bytes are lent", taken());
    pool.memory[3].signal(Signal::CONT);
    let started = Instant::now();
    loop {
        let now = node();
        if now["slabs_withdrawn"] == now["slabs"] && taken() < 8 << 20 {
            assert_eq!((&now["slabs_used"], &now["slabs_evicting"]), (&0.into(), &0.into()));
            break;
        }
        assert!(started.elapsed() < PATIENCE, "{now}, {} bytes", taken());
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = succeeds(&["pool", "status", &name]);
    assert!(told.contains("not lent"), "{told}");
    driver.signal(Signal::TERM);
    ends_well(driver);
    // It is not needed, and one of the others is not either.
    pool.memory[3].kill();
    pool.memory[0].kill();
    let later = succeeds(&pool.tpcc(&url, &["--duration", "1", "--json"]));
    let later: Value = serde_json::from_str(&later).unwrap();
    assert_eq!(later["consistency"], "ok", "{later}");
}

#[test]
fn a_memory_node_that_is_to_give_memory_back_is_refused_by_a_plain_pool() {
    let name = format!("test-headroom-{}", std::process::id());
    succeeds(&["pool", "create", &name, "--memory-nodes", "1"]);
    let lend = ["memnode", "--pool", &name, "--memory", "40M", "--headroom", "1G"];
    refused(&lend, 1, "headroom = 1073741824 is not allowed: in a pool of coding plain");
    succeeds(&["pool", "destroy", &name]);
}

#[test]
fn drivers_of_several_processes_share_one_database() {
    drivers_share(Over::Shm);
}

#[test]
fn drivers_of_several_processes_share_one_database_over_tcp() {
    drivers_share(Over::Tcp);
}

fn drivers_share(over: Over) {
    let pool = Pool::start(over, "shared", 3);
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
    let pool = Pool::start(Over::Shm, "load", 1);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
    assert!(label.contains("complete"), "{label}");
    let again = run(&pool.tpcc(&url, &["--load-only"]));
    assert!(text(&again.stderr).contains("loaded already"));
    succeeds(&pool.tpcc(&url, &["--duration", "1"]));
}

#[test]
fn a_database_is_replaced_unless_others_work_on_it() {
    let pool = Pool::start(Over::Shm, "reload", 2);
    let url = pool.url();
    // The first of a pool needs nothing to replace.
    succeeds(&pool.tpcc(&url, &["--load-only", "--reload"]));
    let database = || -> Value {
        let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
        serde_json::from_str::<Value>(&label).unwrap()["complete"].clone()
    };
    assert_eq!((&database()["generation"], &database()["abandoned_bytes"]), (&1.into(), &0.into()));
    let (driver, _) = running(&pool, &url);
    let before = database();
    refused(
        &pool.tpcc(&url, &["--load-only", "--reload"]),
        1,
        "another driver works on the database: it cannot be replaced now",
    );
    assert_eq!(database(), before, "the refused one leaves no trace");
    driver.signal(Signal::TERM);
    ends_well(driver);

    // Neither is there room for one like this, of some gigabytes.
    let large = ["--warehouses", "40", "--load-only", "--reload"];
    refused(&[&["tpcc", "--pool", &url], &large[..]].concat(), 1, "pool full: used ");
    assert_eq!(database(), before, "what is there stays as it is");
    succeeds(&pool.tpcc(&url, &["--duration", "1"]));

    let seed = ["--load-only", "--reload", "--seed", "5"];
    let output = run(&pool.tpcc(&url, &seed));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("a new database takes the place"));
    assert_eq!((&database()["generation"], &database()["shape"]["seed"]), (&2.into(), &5.into()));
    assert!(database()["abandoned_bytes"].as_u64().unwrap() > 1 << 20, "{}", database());
    refused(&pool.tpcc(&url, &["--duration", "1"]), 2, "--seed 1: the pool holds");
    let report = succeeds(&pool.tpcc(&url, &["--duration", "1", "--seed", "5", "--json"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["consistency"], "ok");
    // What it takes is told without what the old one takes, on which a driver has worked.
    let own = report["database_bytes"].as_u64().unwrap();
    let abandoned = database()["abandoned_bytes"].as_u64().unwrap();
    assert!(own > 1 << 19 && own < abandoned / 2, "{own} and {abandoned}");
}

#[test]
fn a_load_that_was_cut_short_is_done_anew() {
    let pool = Pool::start(Over::Shm, "cut-short", 1);
    let url = pool.url();
    // Far more than is loaded before it is killed. That there are two nodes saves the page that
    // says what is in the pool: it would be gone with a node that had it alone.
    let slow = ["--warehouses", "20", "--load-only", "--threads", "2", "--compute-nodes", "2"];
    let mut command = selkie(&[&["tpcc", "--pool", &url], &slow[..]].concat());
    let mut loader = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(loader.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("load: 0 %") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let reload = pool.tpcc(&url, &["--load-only", "--reload"]);
    refused(&reload, 1, "another driver works on the database");
    loader.kill();
    let output = run(&pool.tpcc(&url, &["--load-only"]));
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cut short"), "{}", text(&output.stderr));
    succeeds(&reload);
    succeeds(&pool.tpcc(&url, &["--duration", "1"]));
}

#[test]
fn a_pool_that_lost_a_memory_node_is_refused() {
    let mut pool = Pool::start(Over::Shm, "lost", 2);
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
    memory_dies(Over::Shm);
}

#[test]
fn the_death_of_a_memory_node_over_tcp_ends_a_run_with_an_error() {
    memory_dies(Over::Tcp);
}

fn memory_dies(over: Over) {
    let mut pool = Pool::start(over, "death", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (driver, _) = running(&pool, &url);
    pool.memory[0].kill();
    ends_with(driver, &["peer mem0 is dead"]);
}

/// A driver that commits transactions, until it is told to end, and its node's index.
fn running(pool: &Pool, url: &str) -> (Running, u64) {
    running_with(pool, url, &[])
}

fn running_with(pool: &Pool, url: &str, rest: &[&str]) -> (Running, u64) {
    let known = pool.compute_nodes();
    let mut command = selkie(&pool.tpcc(url, &[&["--duration", "3600", "--json"], rest].concat()));
    command.stderr(Stdio::piped()).stdout(Stdio::piped());
    let mut driver = Running(command.spawn().unwrap());
    let started = Instant::now();
    loop {
        let joined = pool.compute_nodes().into_iter().find(|node| !known.contains(node));
        if let Some(node) = joined {
            pool.works(node, "operations");
            return (driver, node);
        }
        assert!(driver.0.try_wait().unwrap().is_none(), "it ended");
        assert!(started.elapsed() < PATIENCE, "it does not join");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for a driver to end whose run was consistent.
fn ends_well(mut driver: Running) {
    let stdout = driver.0.stdout.take().unwrap();
    let (code, error) = driver.ends();
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_reader(stdout).unwrap();
    assert_eq!(report["consistency"], "ok", "{report}");
}

/// Waits for a driver to end that has met lost pages: it has gone on, says what it gave up, and
/// misses nothing that it committed.
fn ends_with_losses(mut driver: Running) {
    let stdout = driver.0.stdout.take().unwrap();
    let (code, error) = driver.ends();
    assert_eq!(code, Some(0), "{error}");
    let report: Value = serde_json::from_reader(stdout).unwrap();
    assert_eq!(report["consistency"], "partial", "{report}");
    assert!(report["transactions"].as_u64().unwrap() > 0, "{report}");
    assert!(report["lost"]["transactions"].as_u64().unwrap() > 0, "{report}");
    assert!(report["lost"]["pages"].as_u64().unwrap() > 0, "{report}");
    let journal = &report["journal"];
    assert_eq!(journal["missing"], 0, "{journal}");
    let found = journal["found"].as_u64().unwrap() + journal["on_lost_pages"].as_u64().unwrap();
    assert_eq!(journal["looked_for"], found, "{journal}");
}

/// Waits for a driver to end with an error that says one of these.
fn ends_with(mut driver: Running, expected: &[&str]) {
    let (code, error) = driver.ends();
    assert_eq!(code, Some(1), "{error}");
    assert!(expected.iter().any(|expected| error.contains(expected)), "{error}");
}

#[test]
fn a_driver_that_is_killed_is_recovered_from_and_what_it_held_is_reported() {
    driver_is_killed(Over::Shm);
}

#[test]
fn a_driver_that_is_killed_over_tcp_is_recovered_from_and_what_it_held_is_reported() {
    driver_is_killed(Over::Tcp);
}

fn driver_is_killed(over: Over) {
    let pool = Pool::start(over, "killed", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (survivor, own) = running(&pool, &url);
    let (mut victim, node) = running(&pool, &url);
    victim.kill();
    pool.recovers(node, own);
    if over == Over::Shm {
        let started = Instant::now();
        while pool.has_segment_of(node) || survivor.files_of(node) > 0 {
            let files = survivor.files_of(node);
            assert!(started.elapsed() < PATIENCE, "the dead node's, and {files} held open");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    // On a database as small as this the dead node held what everybody needs.
    assert!(!pool.status()["lost_pages"].as_array().unwrap().is_empty());
    survivor.signal(Signal::TERM);
    ends_with_losses(survivor);
    let late = succeeds(&pool.tpcc(&url, &["--duration", "1", "--json"]));
    let late: Value = serde_json::from_str(&late).unwrap();
    assert_eq!(late["consistency"], "partial", "{late}");
}

#[test]
fn drivers_that_are_killed_leave_all_that_they_have_committed() {
    drivers_are_killed(2);
}

#[test]
#[ignore = "takes minutes"]
fn fifty_drivers_that_are_killed_leave_all_that_they_have_committed() {
    drivers_are_killed(50);
}

/// One after the other, while another works; those who commit say so in files, which are looked
/// through at the end.
fn drivers_are_killed(kills: u32) {
    let place = tempfile::tempdir().unwrap();
    let made = ["--range", "4M", "--log-size", "8M", "--max-compute-nodes", "6"];
    let pool = Pool::start_made(Over::Shm, "kills", 3, &made);
    let (url, durable) = (pool.url(), ["--durability", "memory"]);
    succeeds(&pool.tpcc(&url, &[&["--load-only"], &durable[..]].concat()));
    let (survivor, _) = running_with(&pool, &url, &durable);
    let mut files = Vec::new();
    for kill in 0..kills {
        let file = place.path().join(kill.to_string());
        let file = file.to_str().unwrap().to_owned();
        let noted = [&["--note-commits", &file], &durable[..]].concat();
        let (mut victim, node) = running_with(&pool, &url, &noted);
        // At any time in what it does.
        std::thread::sleep(Duration::from_micros(u64::from(kill) * 7_919 % 300_000));
        victim.kill();
        pool.is_over(node);
        files.push(file);
    }
    survivor.signal(Signal::TERM);
    ends_well(survivor);
    let mut last = vec!["--duration", "1", "--json"];
    for file in &files {
        assert!(std::fs::metadata(file).unwrap().len() > 0, "it has committed nothing");
        last.extend(["--look-for", file]);
    }
    let report = succeeds(&pool.tpcc(&url, &[&last[..], &durable].concat()));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["consistency"], &report["journal"]["missing"]), (&"ok".into(), &0.into()));
    assert_eq!(report["journal"]["looked_for"], report["journal"]["found"], "{report}");
    assert_eq!(pool.status()["lost_pages"], Value::Array(Vec::new()));
    println!("{kills} drivers killed: {}", report["journal"]);
}

#[test]
fn what_was_committed_is_there_again_when_all_memory_is_gone() {
    let place = tempfile::tempdir().unwrap();
    all_memory_is_gone("lost", place.path(), place.path().to_str().unwrap(), "64");
}

/// Logs so short that they go round, and their archives are made short, too.
#[test]
fn what_was_committed_is_there_again_from_an_object_store() {
    let place = tempfile::tempdir().unwrap();
    let url = format!("file://{}", place.path().display());
    all_memory_is_gone("objects", place.path(), &url, "4");
}

/// All memory and the driver are gone at once; the logs are left.
fn all_memory_is_gone(test: &str, place: &std::path::Path, logs: &str, log_mib: &str) {
    let durable = ["--durability", "disk", "--log-dir", logs, "--log-mb", log_mib];
    let mut lost = Pool::start(Over::Shm, test, 3);
    let url = lost.url();
    succeeds(&lost.tpcc(&url, &[&["--load-only"], &durable[..]].concat()));
    let noted = tempfile::NamedTempFile::new().unwrap();
    let file = noted.path().to_str().unwrap();
    let before = [&["--duration", "3600", "--json", "--note-commits", file], &durable[..]].concat();
    let mut victim = selkie(&lost.tpcc(&url, &before));
    let mut victim = Running(victim.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    let started = Instant::now();
    while lost.compute_nodes() != [1] {
        assert!(started.elapsed() < PATIENCE, "it does not join");
    }
    while noted.as_file().metadata().unwrap().len() == 0 {
        assert!(started.elapsed() < PATIENCE, "it commits nothing");
        std::thread::sleep(Duration::from_millis(20));
    }
    lost.memory.iter_mut().for_each(Running::kill);
    victim.kill();
    drop(lost);
    let looked = succeeds(&["recover", "--log-dir", logs, "--dry-run", "--json"]);
    let looked: Value = serde_json::from_str(&looked).unwrap();
    assert_eq!((looked["logs"].as_array().unwrap().len(), &looked["refused"]), (2, &Value::Null));
    let pool = Pool::start(Over::Shm, &format!("{test}-found"), 4);
    let put = succeeds(&["recover", "--log-dir", logs, "--into", &pool.url(), "--json"]);
    let put: Value = serde_json::from_str(&put).unwrap();
    assert_eq!(put["pages"], looked["pages"], "{put}");
    // The database is there, with its label: nothing is loaded.
    let late = ["--duration", "1", "--json", "--look-for", file];
    let late: Value = serde_json::from_str(&succeeds(&pool.tpcc(&pool.url(), &late))).unwrap();
    assert_eq!((&late["consistency"], &late["load"]["rows"]), (&"ok".into(), &0.into()), "{late}");
    assert_eq!(late["journal"]["missing"], 0, "{late}");
    assert!(late["journal"]["found"].as_u64() > Some(0), "{late}");
    // The second pool's logs have all that the first had, as both have some in the directory.
    refused(&["recover", "--log-dir", logs, "--dry-run"], 1, "give --pool-id");
    let id = put["pool"].as_str().unwrap();
    let pools = std::fs::read_dir(place).unwrap().map(|entry| entry.unwrap().file_name());
    let mut pools = pools.map(|name| name.to_str().unwrap().to_owned());
    let second = pools.find(|name| name != id && name.len() == 16).unwrap();
    let again = ["recover", "--log-dir", logs, "--pool-id", &second, "--dry-run", "--json"];
    let again: Value = serde_json::from_str(&succeeds(&again)).unwrap();
    assert_eq!((&again["pages"], &again["refused"]), (&put["pages"], &Value::Null), "{again}");
    damage_last(place, id);
    let output = run(&["recover", "--log-dir", logs, "--pool-id", id, "--dry-run"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for said in [".slog, from byte", "the record at", "--accept-loss"] {
        assert!(error.contains(said), "{said}: {error}");
    }
}

/// Changes a byte in the middle of a log of the pool.
fn damage_last(logs: &std::path::Path, pool: &str) {
    let log = logs.join(pool).join("0-1");
    let files = std::fs::read_dir(&log).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|e| e == "slog")).collect();
    files.sort();
    // Behind the first records, which the load has left.
    let long = files.iter().find(|path| path.metadata().unwrap().len() > 20_001).unwrap();
    let mut bytes = std::fs::read(long).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(long, bytes).unwrap();
}

#[test]
fn a_driver_that_stood_still_finds_itself_declared_dead() {
    driver_stands_still(Over::Shm);
}

#[test]
fn a_driver_that_stood_still_over_tcp_finds_itself_declared_dead() {
    driver_stands_still(Over::Tcp);
}

fn driver_stands_still(over: Over) {
    let pool = Pool::start(over, "paused", 2);
    let url = pool.url();
    succeeds(&pool.tpcc(&url, &["--load-only"]));
    let (survivor, own) = running(&pool, &url);
    let (mut victim, node) = running(&pool, &url);
    victim.signal(Signal::STOP);
    pool.recovers(node, own);
    survivor.signal(Signal::TERM);
    ends_with_losses(survivor);
    // It may have been ended, if it was stopped in the middle of a verb.
    victim.signal(Signal::CONT);
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
    let splits = ["pool", "create", &name, "--memory-nodes", "2", "--coding", "2+1"];
    refused(&splits, 1, "at most as many splits as there are memory nodes, 2; this has 3");
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
    let domain = ["memnode", "--pool", &name, "--memory", "40M", "--domain", "rack 7"];
    let output = run(&domain);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1 to 64 letters, digits"), "{}", text(&output.stderr));
    refused(&["tpcc", "--pool", &url, "--gcl", "4096"], 2, "--gcl 4096: is that of the pool");
    refused(&["tpcc", "--pool", &url, "--memory-nodes", "2"], 2, "--memory-nodes 2: is that of");
    refused(&["tpcc", "--pool", &url, "--affinity", "warehouse"], 2, "--affinity warehouse");
    refused(&["tpcc", "--load-only"], 2, "--load-only");
    refused(&["tpcc", "--reload"], 2, "--reload");
    for bad in ["shm:a/b", "shm:", "mem:", "a b", "tcp:x"] {
        let output = run(&["tpcc", "--pool", bad]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--pool <URL>"), "{}", text(&output.stderr));
    }
    refused(
        &["memnode", "--pool", &name, "--memory", "40M", "--fabric", "tcp"],
        1,
        "uses fabric shm, not tcp",
    );
    let listen = ["memnode", "--pool", &name, "--memory", "40M", "--listen", "127.0.0.1:0"];
    refused(&listen, 1, "are for pools over TCP");
    let nobody = "tcp:127.0.0.1:1";
    refused(&["tpcc", "--pool", nobody], 1, "127.0.0.1:1");
    refused(&["tpcc", "--pool", "etcd:127.0.0.1:1/x"], 1, "etcd");
    refused(&["tpcc", "--listen", "127.0.0.1:0"], 2, "are for pools over TCP");
    let open = ["memnode", "--pool", &name, "--memory", "40M", "--listen", "0.0.0.0:7000"];
    refused(&open, 2, "is not a loopback address");
    succeeds(&["pool", "destroy", &name]);

    succeeds(&["pool", "create", &name, "--fabric", "tcp"]);
    refused(&["tpcc", "--pool", &url], 1, "uses fabric tcp, not shm");
    lend("64T", 1, "but this host has");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listen = ["memnode", "--pool", &name, "--memory", "40M", "--listen", &taken];
    refused(&listen, 1, "cannot listen at");
    let timing = ["pool", "create", "x", "--lease", "100ms", "--heartbeat", "50ms"];
    refused(&timing, 1, "lease = 100ms is not allowed: 200ms (4 heartbeats) to");
    succeeds(&["pool", "destroy", &name]);
    assert_eq!(directories(), 0);
}
