//! Backups of pools that processes share, through the `selkie` binary.
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
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

fn selkie(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selkie"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    selkie(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
fn succeeds(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[track_caller]
fn prints(arguments: &[&str]) -> Value {
    serde_json::from_str(&succeeds(arguments)).unwrap()
}

/// Fails, and the last line on stderr says why.
#[track_caller]
fn refused(arguments: &[&str], code: i32, expected: &str) {
    let output = run(arguments);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(last.starts_with("error: ") && last.contains(expected), "{arguments:?}: {error}");
}

/// A process that is ended with the value.
struct Running(Child);

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
    fn start(test: &str, memory_nodes: usize, shape: &[&str]) -> Pool {
        let name = format!("test-backup-{test}-{}", std::process::id());
        let nodes = memory_nodes.to_string();
        succeeds(&[&["pool", "create", &name, "--memory-nodes", &nodes], shape].concat());
        let mut pool = Pool { name, memory: Vec::new() };
        for _ in 0..memory_nodes {
            let lend = ["memnode", "--pool", &pool.name, "--memory", "300M"];
            let mut child = selkie(&lend).stdout(Stdio::piped()).spawn().unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
            pool.memory.push(Running(child));
            assert!(line.contains("lends"), "{line}");
        }
        pool
    }

    /// A driver that works.
    fn driver(&self, how: &[&str]) -> Running {
        let arguments = [&["tpcc", "--pool", &self.name][..], &TINY, how].concat();
        let child = selkie(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let driver = Running(child.unwrap());
        let started = Instant::now();
        loop {
            let seen = prints(&["top", &self.name, "--once", "--json"]);
            let nodes = seen["compute_nodes"].as_array().unwrap();
            if nodes.iter().any(|node| node["rates"]["operations"].as_f64() > Some(0.0)) {
                return driver;
            }
            assert!(started.elapsed() < PATIENCE, "the driver does nothing: {seen}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.memory.clear();
        let _ = run(&["pool", "destroy", &self.name, "--force"]);
    }
}

const TINY: [&str; 6] = ["--warehouses", "1", "--scale", "100", "--threads", "2"];

/// Tells a driver to end; what it reports.
fn ends_well(mut driver: Running) -> Value {
    rustix::process::kill_process(Pid::from_child(&driver.0), Signal::TERM).unwrap();
    let (mut out, mut error) = (String::new(), String::new());
    let (stdout, stderr) = (driver.0.stdout.take(), driver.0.stderr.take());
    std::io::Read::read_to_string(&mut stdout.unwrap(), &mut out).unwrap();
    std::io::Read::read_to_string(&mut stderr.unwrap(), &mut error).unwrap();
    assert!(driver.0.wait().unwrap().success(), "{error}");
    serde_json::from_str(&out).unwrap()
}

/// The pool goes with all it held, and another one, of other memory nodes and another coding, has
/// what the backup has.
#[test]
fn a_database_in_use_outlives_its_pool() {
    let place = TempDir::new().unwrap();
    let logs = place.path().join("logs");
    let logs = format!("file://{}", logs.display());
    for (level, how, more) in [
        ("memory", &["--durability", "memory"][..], &[][..]),
        ("disk", &["--durability", "disk", "--log-dir", &logs], &["--log-dir", &logs]),
    ] {
        let to = place.path().join(level);
        let to = to.to_str().unwrap();
        let pool = Pool::start(level, 3, &["--log-size", "8M", "--max-compute-nodes", "4"]);
        let driver = pool.driver(&[&["--duration", "600", "--json"], how].concat());
        let report = prints(&[&["backup", &pool.name, "--to", to, "--json"], more].concat());
        assert!(report["pages"].as_u64() > Some(100), "{report}");
        assert!(report["logs"] == 1 && report["log_mib"].as_f64() > Some(0.0), "{report}");
        assert!(report["mib_per_second"].as_f64() > Some(0.0), "{report}");
        let ran = ends_well(driver);
        assert!(ran["tpmc"].as_f64() > Some(0.0), "{ran}");
        refused(&["backup", &pool.name, "--to", to], 1, "something is there already");
        drop(pool);

        let small = Pool::start("small", 2, &["--gcl", "4096"]);
        refused(&["restore", "--from", to, "--into", &small.name], 1, "--gcl 2048");
        drop(small);
        let other = Pool::start("other", 2, &["--coding", "plain"]);
        let restored = prints(&["restore", "--from", to, "--into", &other.name, "--json"]);
        assert!(restored["pages"].as_u64() >= report["pages"].as_u64(), "{restored}");
        let status = prints(&["pool", "status", &other.name, "--json"]);
        let label = status["labels"]["tpcc.database"].as_str().unwrap().to_owned();
        assert!(label.contains("complete"), "{label}");
        refused(&["restore", "--from", to, "--into", &other.name], 1, "one that nobody has used");
        // Its conditions are checked after the run.
        let run = ["tpcc", "--pool", &other.name, "--duration", "1", "--json"];
        succeeds(&[&run, &TINY[..]].concat());
        let labels = prints(&["pool", "status", &other.name, "--json"])["labels"].clone();
        assert_eq!(labels["tpcc.database"].as_str(), Some(&*label), "it was loaded anew");
    }
}

#[test]
fn what_makes_no_backup_is_refused_with_the_reason() {
    let place = TempDir::new().unwrap();
    let to = place.path().join("to");
    let to = to.to_str().unwrap();
    let pool = Pool::start("refused", 2, &["--coding", "plain"]);
    let driver = pool.driver(&["--duration", "600", "--json"]);
    refused(&["backup", &pool.name, "--to", to], 1, "compute node 0 has no log here");
    ends_well(driver);
    refused(&["backup", &pool.name, "--to", "nfs://a/b"], 2, "nfs is no scheme of object stores");
    #[cfg(not(feature = "cloud"))]
    refused(&["backup", &pool.name, "--to", "s3://a/b"], 2, "s3:// needs a build with the feature");
    refused(&["restore", "--from", to, "--into", &pool.name], 1, "there is no backup");
    let file = place.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    let below = file.join("below");
    refused(&["backup", &pool.name, "--to", below.to_str().unwrap()], 1, "file/below");
    // Nobody else is there: nothing changes meanwhile.
    let alone = succeeds(&["backup", &pool.name, "--to", place.path().join("b").to_str().unwrap()]);
    assert!(alone.starts_with("backup of pool") && alone.contains("MiB/s"), "{alone}");
}
