//! Clients of PostgreSQL at two `selkie server` processes of one pool: the drivers of Python, and
//! pgbench, one of whose servers is killed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::harness::{Pool, Process, Setup, ends, output, succeeds, text};
use crate::roles::start;

/// A pool with room for the transactions of `pgbench -i`, and two servers of it.
fn two_servers(test: &str) -> (Pool, [(Process, SocketAddr); 2]) {
    let create = &["--log-size", "64M", "--max-compute-nodes", "4"];
    let pool =
        Pool::start(&Setup { test, memory_nodes: 1, memory: "800M", create, ..Setup::default() });
    let servers = [start(&pool.url, &[]), start(&pool.url, &[])];
    (pool, servers)
}

/// Python with the drivers, kept beside what was built; why not, if it cannot be had.
fn python() -> Result<PathBuf, String> {
    let wanted = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/requirements.txt");
    let versions = std::fs::read_to_string(&wanted).unwrap();
    let name: Vec<&str> =
        versions.lines().filter_map(|line| line.split_once("==")).map(|own| own.1).collect();
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("clients-{}", name.join("-")));
    let python = place.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    // Tests that run at the same time may make it, too: the first one done puts it in its place.
    let new = place.with_extension(format!("new{}", std::process::id()));
    let ran = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null());
        let started = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = ends(started.map_err(|error| format!("{}: {error}", program.display()))?);
        let said = || format!("{}{}", text(&output.stdout), text(&output.stderr));
        if output.status.success() { Ok(()) } else { Err(said()) }
    };
    ran(Path::new("python3"), &["-m", "venv", new.to_str().unwrap()])?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    let bounded = ["--timeout", "20", "--retries", "1", "--only-binary", ":all:", "-r"];
    let arguments = [&install[..], &bounded, &[wanted.to_str().unwrap()]].concat();
    let installed = ran(&new.join("bin/python"), &arguments);
    if installed.is_ok() && std::fs::rename(&new, &place).is_ok() {
        return Ok(python);
    }
    let _ = std::fs::remove_dir_all(&new);
    installed.map(|()| python)
}

#[test]
fn drivers_of_python_share_a_database_of_two_servers() {
    let python = match python() {
        Ok(python) => python,
        Err(why) => {
            // The gate installs what it takes.
            assert!(std::env::var_os("SELKIE_GATE").is_none(), "no drivers of Python: {why}");
            eprintln!("not run: the drivers of Python cannot be had here: {why}");
            return;
        }
    };
    let (_pool, [(_first, one), (_second, two)]) = two_servers("clients");
    let ports = [one, two].map(|addr| addr.port().to_string());
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    for (script, end) in [
        ("with_psycopg.py", "psycopg: well\n"),
        ("with_sqlalchemy.py", "SQLAlchemy: well\n"),
        ("with_asyncpg.py", "asyncpg: well\n"),
    ] {
        let mut command = Command::new(&python);
        command.arg("-B").arg(scripts.join(script)).args(&ports).env("PGCONNECT_TIMEOUT", "120");
        for name in ["PGPASSWORD", "PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSSLMODE"] {
            command.env_remove(name);
        }
        let output = output(&mut command);
        let (said, error) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && said == end, "{script}: {said}{error}");
    }
}

/// pgbench at a server.
fn pgbench(addr: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new("pgbench");
    command.args(["-h", "127.0.0.1", "-p", &addr.port().to_string(), "-U", "me"]).args(arguments);
    command.env("PGDATABASE", "selkie").stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// What it says, which must have ended well.
#[track_caller]
fn says(child: Child) -> String {
    let output = ends(child);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success() && !said.contains("error:"), "{said}");
    said
}

/// The only cell of a query, by the shell at a server.
#[track_caller]
fn cell(addr: SocketAddr, sql: &str) -> i64 {
    let said = succeeds(&["sql", &addr.to_string(), "--format", "csv", "-c", sql]);
    said.lines().nth(1).and_then(|line| line.parse().ok()).unwrap_or_else(|| panic!("{said}"))
}

/// What every transaction adds to all of them is the same, at each server.
#[track_caller]
fn sums_are_right(servers: &[SocketAddr]) {
    for addr in servers {
        let branches = cell(*addr, "select sum(bbalance) from pgbench_branches");
        assert_eq!(branches, cell(*addr, "select sum(tbalance) from pgbench_tellers"));
        let accounts = cell(*addr, "select sum(abalance) from pgbench_accounts");
        assert_eq!(accounts, cell(*addr, "select sum(delta) from pgbench_history"));
    }
}

const HISTORY: &str = "select count(*) from pgbench_history";

/// When each transaction of a run was acknowledged, by the logs of pgbench: seconds and
/// microseconds are their fifth and sixth words.
fn acknowledged(place: &Path, prefix: &str) -> Vec<Duration> {
    let mut all = Vec::new();
    for file in std::fs::read_dir(place).unwrap().map(|file| file.unwrap()) {
        if !file.file_name().to_str().unwrap().starts_with(prefix) {
            continue;
        }
        for line in std::fs::read_to_string(file.path()).unwrap().lines() {
            let words: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
            all.push(Duration::from_secs(words[4]) + Duration::from_micros(words[5]));
        }
    }
    all.sort_unstable();
    all
}

#[test]
fn pgbench_runs_at_two_servers_at_once_and_goes_on_at_one_when_the_other_is_killed() {
    let (_pool, [(mut victim, doomed), (_survivor, other)]) = two_servers("pgbench");
    says(pgbench(doomed, &["-i", "-s", "1", "-q"]).spawn().unwrap());
    assert_eq!(cell(other, "select count(*) from pgbench_accounts"), 100_000);
    for mode in ["simple", "extended", "prepared"] {
        for script in ["tpcb-like", "simple-update", "select-only"] {
            let arguments = ["-n", "-c", "2", "-t", "15", "-M", mode, "-b", script];
            let both = [doomed, other].map(|addr| pgbench(addr, &arguments).spawn().unwrap());
            for said in both.map(says) {
                let all = "number of transactions actually processed: 30/30";
                assert!(said.contains(all), "{mode} {script}: {said}");
                assert!(said.contains("number of failed transactions: 0 "), "{said}");
            }
        }
    }
    // Two of the three scripts write it.
    assert_eq!(cell(other, HISTORY), 3 * 2 * 2 * 30);
    // One of them leaves out branches and tellers, which are as far apart as its deltas.
    sums_are_right(&[doomed, other]);

    let place = tempfile::tempdir().unwrap();
    let before = cell(other, HISTORY);
    let run = |addr: SocketAddr, prefix: &str, seconds: &str| {
        let prefix = format!("--log-prefix={}", place.path().join(prefix).display());
        let arguments = ["-n", "-c", "4", "-M", "prepared", "-T", seconds, "-l", &prefix];
        pgbench(addr, &arguments).spawn().unwrap()
    };
    let (of_victim, of_survivor) = (run(doomed, "victim", "60"), run(other, "survivor", "7"));
    std::thread::sleep(Duration::from_secs(2));
    victim.kill();
    assert!(!ends(of_victim).status.success());
    let said = says(of_survivor);
    assert!(said.contains("number of failed transactions: 0 "), "{said}");
    let (lost, kept) =
        (acknowledged(place.path(), "victim"), acknowledged(place.path(), "survivor"));
    // All clients of the survivor have ended by themselves, so none waits for who is gone.
    assert!(!lost.is_empty() && !kept.is_empty(), "{said}");
    let gaps = kept.windows(2).map(|pair| pair[1] - pair[0]);
    eprintln!("no commit for {:?} at most", gaps.max().unwrap_or_default());
    // And what was under way there is in the way of nobody.
    let again = ["-n", "-c", "4", "-M", "prepared", "-t", "25"];
    let said = says(pgbench(other, &again).spawn().unwrap());
    assert!(said.contains("number of transactions actually processed: 100/100"), "{said}");
    assert!(said.contains("number of failed transactions: 0 "), "{said}");
    // What was under way when it was killed may have been committed.
    let all = i64::try_from(lost.len() + kept.len() + 100).unwrap();
    let found = cell(other, HISTORY) - before;
    assert!((all..=all + 4).contains(&found), "{found} of {all} that were acknowledged");
    sums_are_right(&[other]);
}
