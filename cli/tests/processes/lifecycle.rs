//! How commands end, and what the next one finds: signals, loads that were broken off, pools that
//! were destroyed or whose memory is gone, logs without a pool or without room.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::drivers::{running, setup};
use crate::harness::{
    Over, Pool, Process, Setup, TINY, fails, may_mount, prints, refused, selkie, soon, succeeds,
    until,
};
use crate::observation::{address, get};
use crate::reports::ungrouped;

/// Options of a database that takes long enough to load for a test to come in between.
const LARGE: [&str; 6] = ["--warehouses", "20", "--threads", "2", "--load-only", "--json"];

/// The lease of a pool whose driver is killed in a load, and a second more, until that is known.
const LEASE: Duration = Duration::from_secs(2);

/// What is said to a user that waits for memory nodes.
const ARRIVALS: &str =
    "has waited for 1 s, and goes on until none joins for 30 s, for memory nodes";

/// A driver that loads a large database, and has begun to.
#[track_caller]
fn loading(pool: &Pool, more: &[&str]) -> Process {
    let arguments = [&["tpcc", "--pool", &pool.url], &LARGE[..], more].concat();
    let driver = Process::start(&arguments);
    // It has changed pages that it has not written home.
    pool.works(0, "accesses");
    driver
}

/// Waits for a process to end by a signal that it minded, and said so last.
#[track_caller]
fn ends_by(mut process: Process, signal: Signal, code: i32, name: &str) {
    process.signal(signal);
    let (ended, said) = process.ends();
    assert_eq!(ended, Some(code), "{said}");
    assert_eq!(said.lines().last(), Some(&*format!("error: interrupted by {name}")), "{said}");
}

/// What is left of a load is not used, and replaced by a driver that is told to.
#[track_caller]
fn is_loaded_again(pool: &Pool) {
    let same = [&["tpcc", "--pool", &pool.url], &LARGE[..]].concat();
    let command =
        format!("load it again with --reload: `selkie tpcc --pool {} --reload`", pool.url);
    let asked = Instant::now();
    let said = fails(&same, 1, &command);
    assert!(said.contains("was broken off"), "{said}");
    // At most for the lease of a driver that was killed; it was 13 s once.
    let (took, bound) = (asked.elapsed(), LEASE + soon());
    assert!(took < bound, "it was waited for {took:?}, and for {bound:?} at most: {said}");
    let report = prints(&pool.tpcc(&["--reload", "--duration", "1", "--json"]));
    assert_eq!(report["consistency"], "ok", "{report}");
    assert!(report["load"]["rows"].as_u64() > Some(0), "{report}");
}

#[test]
fn a_load_that_a_signal_ends_is_done_again() {
    let pool = Pool::start(&setup(Over::Shm, "interrupted", 3));
    let driver = loading(&pool, &[]);
    // A driver with other options need not wait for the load to learn that it is refused.
    refused(&pool.tpcc(&[]), 2, "--warehouses 1: another driver loads a database of 20 warehouses");
    let reload = pool.tpcc(&["--load-only", "--reload"]);
    refused(&reload, 1, "another driver works on the database");
    let metrics = ["--metrics", "127.0.0.1:0"];
    let other = Process::start(&[&["tpcc", "--pool", &pool.url], &LARGE[..], &metrics].concat());
    let at = address(&other);
    let waits = other.says("has waited for 1 s, for ");
    let label = format!(" (process {})", other.id());
    assert_eq!(
        waits,
        format!(
            "another driver, which loads the database; if that hangs, end it, and load with --reload{label}"
        ),
        "whose line it is"
    );
    let (_, metrics) = get(&at, "/metrics");
    let waits = "selkie_waiting_seconds{for=\"another driver, which loads the database\"} ";
    assert!(metrics.contains(waits), "{metrics}");
    ends_by(other, Signal::INT, 130, "SIGINT");
    ends_by(driver, Signal::TERM, 143, "SIGTERM");
    assert_eq!(pool.compute_nodes(), [0; 0], "it has left");
    is_loaded_again(&pool);
}

#[test]
fn a_load_whose_driver_was_killed_is_done_again() {
    load_is_killed(Over::Shm, "killed-load", &[]);
}

#[test]
fn a_load_over_tcp_whose_driver_was_killed_is_done_again() {
    load_is_killed(Over::Tcp, "killed-load", &[]);
}

#[test]
fn a_load_without_a_log_whose_driver_was_killed_is_done_again() {
    // A coded pool gives up at most 20,000 pages at once: the cache has fewer.
    load_is_killed(Over::Shm, "killed-bare", &["--durability", "none", "--cache-mb", "32"]);
}

/// A load that ends by an error is broken off as well.
#[test]
fn a_load_for_which_the_pool_is_too_small_says_so_to_the_next_driver() {
    let small = Setup { memory: "60M", create: &["--log-size", "0"], ..Setup::default() };
    let pool = Pool::start(&Setup { test: "full", memory_nodes: 1, ..small });
    let bare = ["--durability", "none"];
    let load = [&["tpcc", "--pool", &pool.url], &LARGE[..], &bare].concat();
    fails(&load, 1, "pool full: ");
    let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
    assert!(label.contains("cut_short"), "{label}");
    let said = fails(&load, 1, "load it again with --reload");
    assert!(said.contains("was broken off") && !said.contains("has waited"), "{said}");
}

fn load_is_killed(over: Over, test: &str, more: &[&str]) {
    let create = &["--lease", "1s"];
    // A load may get far before it is killed, and its database is there beside the next.
    let pool = Pool::start(&Setup { create, memory: "300M", ..setup(over, test, 3) });
    let mut driver = loading(&pool, more);
    let mut waits = Process::start(&[&["tpcc", "--pool", &pool.url], &LARGE[..]].concat());
    waits.finds("has waited for 1 s, for another driver, which loads the database; ");
    driver.kill();
    // The wait ends with the driver that it was for.
    let (code, said) = waits.ends();
    assert!(code == Some(1) && said.contains("was broken off"), "{code:?}: {said}");
    is_loaded_again(&pool);
}

#[test]
fn a_driver_without_memory_nodes_says_what_it_waits_for_and_minds_signals() {
    let pool = Pool::without_memory(&setup(Over::Shm, "unborn", 2));
    let driver = Process::start(&pool.tpcc(&["--metrics", "127.0.0.1:0"]));
    let at = address(&driver);
    let said = driver.finds("0 of 2 have joined");
    let (_, metrics) = get(&at, "/metrics");
    let waits =
        format!("selkie_waiting_seconds{{for=\"pool {} and its memory nodes\"}} ", pool.url);
    let since = metrics.lines().find_map(|line| line.strip_prefix(&waits));
    assert!(since.unwrap().parse::<f64>().unwrap() >= 1.0, "{metrics}");
    assert!(said.contains(ARRIVALS), "{said}");
    assert!(said.contains(" INFO ") && !said.contains("WARN"), "it is how pools begin: {said}");
    assert!(said.contains("`selkie memnode --pool "), "{said}");
    ends_by(driver, Signal::TERM, 143, "SIGTERM");
    let (name, url) = (&*pool.name, &*pool.url);
    for command in [
        &["sql", "--pool", url, "-c", "select 1"][..],
        &["server", "--pool", url, "--listen", "127.0.0.1:0"],
        &["backup", name, "--to", "/nonexistent/backup"],
    ] {
        let waits = Process::start(command);
        waits.finds("0 of 2 have joined");
        let asked = Instant::now();
        ends_by(waits, Signal::TERM, 143, "SIGTERM");
        let (took, bound) = (asked.elapsed(), soon());
        assert!(took < bound, "{command:?} took {took:?}, and has {bound:?}");
    }
}

/// Of a plain pool it is waited for: each access for half a minute, and four times each.
#[test]
fn a_load_ends_by_a_signal_while_memory_stands_still() {
    let pool = Pool::start(&setup(Over::Tcp, "still", 2));
    let mut driver = loading(&pool, &[]);
    pool.memory[1].signal(Signal::STOP);
    let said = driver.finds("a memory node is silent");
    assert!(said.contains(&format!("`selkie pool forgive {} mem", pool.name)), "{said}");
    let asked = std::time::Instant::now();
    driver.signal(Signal::INT);
    driver.finds("has waited for 1 s to leave, for ");
    let (code, said) = driver.ends();
    let last = said.lines().last();
    assert_eq!((code, last), (Some(130), Some("error: interrupted by SIGINT")), "{said}");
    // What it has changed there cannot go home.
    assert!(asked.elapsed().as_secs() < 75, "{:?}", asked.elapsed());
    pool.memory[1].signal(Signal::CONT);
}

/// To send so many pages takes seconds: that was taken for memory nodes that do not answer.
#[test]
fn a_driver_that_leaves_with_many_changed_pages_says_that_they_go_home() {
    let create = ["--gcl", "1024", "--coding", "plain", "--log-size", "0"];
    let wide = Setup { memory_nodes: 2, memory: "300M", create: &create, ..Setup::default() };
    let pool = Pool::start(&Setup { test: "many", over: Over::Tcp, ..wide });
    // A fifth of it is some 100,000 pages.
    let load = ["--warehouses", "5", "--threads", "2", "--load-only", "--durability", "none"];
    let arguments = [&["tpcc", "--pool", &pool.url, "--cache-mb", "400"], &load[..]].concat();
    let mut driver = Process::start(&arguments);
    driver.finds("load: 20 %");
    let asked = std::time::Instant::now();
    driver.signal(Signal::TERM);
    let (code, said) = driver.ends();
    assert_eq!(code, Some(143), "{said}");
    assert!(!said.contains("do not answer"), "{said}");
    let has_said = said.contains("has sent pages home for ");
    assert!(has_said || asked.elapsed().as_secs() < 5, "{:?}: {said}", asked.elapsed());
}

#[test]
fn a_second_signal_ends_a_driver_at_once() {
    let pool = Pool::start(&setup(Over::Tcp, "twice", 2));
    let mut driver = loading(&pool, &[]);
    pool.memory[1].signal(Signal::STOP);
    driver.finds("a memory node is silent");
    let asked = std::time::Instant::now();
    driver.signal(Signal::INT);
    driver.finds("has waited for 1 s to leave, for ");
    driver.signal(Signal::INT);
    let (code, said) = driver.ends();
    assert_eq!(code, None, "the signal has ended it: {said}");
    assert!(asked.elapsed().as_secs() < 20, "{:?}", asked.elapsed());
    pool.memory[1].signal(Signal::CONT);
}

#[test]
fn a_command_that_has_nothing_to_leave_says_which_signal_ended_it() {
    let mut micro =
        Process::start(&["micro", "--duration-ms", "3600000", "--metrics", "127.0.0.1:0"]);
    micro.says("metrics at ");
    micro.signal(Signal::INT);
    let (code, said) = micro.ends();
    assert_eq!((code, said.lines().last()), (None, Some("error: interrupted by SIGINT")), "{said}");
}

#[test]
fn who_is_in_a_pool_that_is_destroyed_says_so() {
    pool_is_destroyed(Over::Shm);
}

#[test]
fn who_is_in_a_pool_over_tcp_that_is_destroyed_says_so() {
    pool_is_destroyed(Over::Tcp);
}

fn pool_is_destroyed(over: Over) {
    let mut pool = Pool::start(&setup(over, "destroyed", 3));
    succeeds(&pool.tpcc(&["--load-only"]));
    let (driver, _) = running(&pool);
    let server = Process::start(&["server", "--pool", &pool.url, "--listen", "127.0.0.1:0"]);
    server.finds("serving ");
    refused(&["pool", "destroy", &pool.name], 1, "of the pool lives");
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let asked = Instant::now();
    let said = ends_by_destruction(driver, asked);
    ends_by_destruction(server, asked);
    // The first words are the reason, and nothing that comes of it, such as a log without memory.
    let first = said.lines().find(|line| line.contains(" WARN "));
    assert!(first.is_none_or(|line| line.ends_with("error=the pool was destroyed")), "{said}");
    assert!(!said.contains("log"), "{said}");
    for memory in &mut pool.memory {
        let (code, said) = memory.ends();
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(" was destroyed\n"), "{said}");
    }
}

#[test]
fn who_is_about_to_join_a_pool_that_is_destroyed_says_so() {
    join_is_cut_short(Over::Shm);
}

#[test]
fn who_is_about_to_join_a_pool_over_tcp_that_is_destroyed_says_so() {
    join_is_cut_short(Over::Tcp);
}

fn join_is_cut_short(over: Over) {
    let mut pool = Pool::without_memory(&setup(over, "joining", 2));
    let lend = ["memnode", "--pool", &pool.name, "--memory"];
    let (first, line) = Process::lends(&[&lend[..], &["300M"]].concat());
    if over == Over::Tcp {
        let at = line.split_once(" at ").unwrap().1.split_once(',').unwrap().0;
        pool.url = format!("tcp:{at}");
    }
    let driver = Process::start(&pool.tpcc(&[]));
    driver.finds("1 of 2 have joined");
    let second = Process::start(&[&lend[..], &["2G"]].concat());
    // While it takes its memory, all of which it would take within a second or two.
    let status = format!("/proc/{}/status", second.id());
    until("it takes memory", || {
        let status = std::fs::read_to_string(&status).ok()?;
        let taken = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let taken: u64 = taken.trim().strip_suffix(" kB")?.parse().ok()?;
        (taken > 64 << 10).then_some(())
    });
    second.signal(Signal::STOP);
    if over == Over::Shm {
        // One at a time takes the memory of a memory node; the next waits, and minds signals.
        let third = Process::start(&[&lend[..], &["300M"]].concat());
        let said = third.finds("for the process that joins as memory node 1");
        assert!(said.contains("if it hangs, end it"), "{said}");
        ends_by(third, Signal::TERM, 143, "SIGTERM");
    }
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let asked = Instant::now();
    second.signal(Signal::CONT);
    for mut memory in [first, second] {
        let (code, said) = memory.ends();
        assert_eq!(code, Some(0), "it ends as it was asked to: {said}");
        assert!(said.contains(&format!("pool {} was destroyed\n", pool.name)), "{said}");
    }
    ends_by_destruction(driver, asked);
}

#[test]
fn who_waits_for_a_load_in_a_pool_that_is_destroyed_says_so() {
    let pool = Pool::start(&setup(Over::Shm, "unloaded", 3));
    let loads = loading(&pool, &[]);
    let waits = Process::start(&[&["tpcc", "--pool", &pool.url], &LARGE[..]].concat());
    waits.says("has waited for 1 s, for another driver, which loads the database; ");
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let asked = Instant::now();
    ends_by_destruction(loads, asked);
    ends_by_destruction(waits, asked);
}

#[test]
fn a_drain_whose_pool_is_destroyed_says_so() {
    let create = &["--range", "1M", "--log-size", "1M", "--max-compute-nodes", "4"];
    let small = Setup { memory: "100M", create, ..setup(Over::Shm, "drain-destroyed", 4) };
    let pool = Pool::start(&small);
    succeeds(&pool.tpcc(&["--load-only"]));
    let drain = Process::start(&["pool", "drain", &pool.name, "mem2"]);
    drain.finds("this takes a compute node, and none is in the pool");
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    ends_by_destruction(drain, Instant::now());
}

/// The statements come one by one, as of a user who types.
#[test]
fn a_shell_whose_pool_is_destroyed_says_so_at_its_next_statement() {
    let pool = Pool::start(&setup(Over::Shm, "shell-destroyed", 1));
    let mut shell = selkie(&["sql", "--pool", &pool.url]);
    let mut shell =
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut typed = shell.stdin.take().unwrap();
    typed.write_all(b"create table t (id int primary key);\nselect 6 * 7 as answer;\n").unwrap();
    let mut told = BufReader::new(shell.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(told.any(|line| line.contains("42")));
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let asked = Instant::now();
    // It may end before it has read that.
    let _ = typed.write_all(b"insert into t values (1);\n");
    drop(typed);
    let status = until("the shell ends", || shell.try_wait().unwrap());
    let (took, bound) = (asked.elapsed(), soon());
    let mut said = String::new();
    shell.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the pool was destroyed"), "{said}");
    assert!(took < bound, "it took {took:?}, and has {bound:?}: {said}");
}

/// It is stopped in the middle of what it does, at whatever that is.
#[test]
fn a_backup_whose_pool_is_destroyed_says_so() {
    // While it stands still no node takes it for dead.
    let create = ["--lease", "5min", "--log-size", "1M", "--max-compute-nodes", "4"];
    let pool = Pool::start(&Setup { create: &create, ..setup(Over::Shm, "backup-destroyed", 1) });
    succeeds(&pool.tpcc(&["--load-only"]));
    let place = tempfile::tempdir().unwrap();
    let mut backup = (0..100)
        .find_map(|attempt| {
            let to = place.path().join(attempt.to_string());
            let mut backup = Process::start(&["backup", &pool.name, "--to", to.to_str().unwrap()]);
            loop {
                backup.signal(Signal::STOP);
                if !pool.compute_nodes().is_empty() {
                    return Some(backup);
                }
                backup.signal(Signal::CONT);
                if backup.end().is_some() {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        })
        .unwrap_or_else(|| panic!("no backup was caught in the pool"));
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let asked = Instant::now();
    backup.signal(Signal::CONT);
    let (code, said) = backup.ends_soon(asked);
    assert!(code == Some(1) && said.contains("the pool was destroyed"), "{code:?}: {said}");
}

#[track_caller]
pub(crate) fn ends_by_destruction(mut process: Process, since: Instant) -> String {
    let (code, said) = process.ends_soon(since);
    let last = said.lines().last();
    assert_eq!((code, last), (Some(1), Some("error: the pool was destroyed")), "{said}");
    assert!(!said.contains("the others"), "{said}");
    said
}

#[test]
fn a_pool_whose_memory_is_gone_takes_no_one_in() {
    memory_is_gone(Over::Shm);
}

#[test]
fn a_pool_over_tcp_whose_memory_is_gone_takes_no_one_in() {
    memory_is_gone(Over::Tcp);
}

fn memory_is_gone(over: Over) {
    let create = &["--lease", "500ms", "--heartbeat", "100ms"];
    let mut pool = Pool::start(&Setup { create, ..setup(over, "bare", 3) });
    succeeds(&pool.tpcc(&["--load-only"]));
    pool.memory.iter_mut().for_each(Process::kill);
    // Over TCP only this host knows of the pool: the relays were its memory nodes.
    let gone = format!("all memory of pool {} is gone: none of its 3 memory nodes ", pool.name);
    for arguments in [
        &["memnode", "--pool", &pool.name, "--memory", "300M"][..],
        &[&["tpcc", "--pool", &pool.name], &TINY[..]].concat(),
        &["backup", &pool.name, "--to", "/nonexistent/backup"],
    ] {
        let said = fails(arguments, 1, &gone);
        for remedy in ["selkie recover --log-dir", "selkie pool destroy"] {
            assert!(said.contains(remedy), "{said}");
        }
    }
    // By now all are missed. What helps is the same, and not to lend more, which is refused.
    let told = succeeds(&["pool", "status", &pool.name]);
    let verdict = if over == Over::Shm { "lost: " } else { "degraded: mem0, mem1 and mem2 are" };
    assert!(told.starts_with(&format!("pool {}: {verdict}", pool.name)), "{told}");
    for remedy in ["`selkie recover --log-dir", &format!("`selkie pool destroy {}`", pool.name)] {
        assert!(told.contains(remedy), "{told}");
    }
    assert!(!told.contains("selkie memnode") && !told.contains("pool forgive"), "{told}");
    succeeds(&["pool", "destroy", &pool.name]);
}

#[test]
fn a_database_of_an_embedded_pool_is_recovered_into_one_that_drivers_share() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    let logs = logs.to_str().unwrap();
    let durable = ["--durability", "disk", "--log-dir", logs, "--log-mb", "64"];
    let embedded = [&["tpcc", "--duration", "1", "--json"], &TINY[..], &durable[..]].concat();
    assert_eq!(prints(&embedded)["consistency"], "ok");
    let small = ["--range", "1M", "--log-size", "0"];
    let small = Setup { memory: "1600K", create: &small, ..setup(Over::Shm, "small", 3) };
    let small = Pool::start(&small);
    let said = fails(&["recover", "--log-dir", logs, "--into", &small.name], 1, " has no room: ");
    assert!(said.contains(" are free; pages keep their addresses"), "{said}");
    drop(small);
    let unborn = Pool::without_memory(&setup(Over::Shm, "unborn-recovered", 3));
    let waits = Process::start(&["recover", "--log-dir", logs, "--into", &unborn.name]);
    let said = waits.finds("0 of 3 have joined");
    assert!(said.contains(ARRIVALS), "{said}");
    assert!(said.contains(" INFO ") && !said.contains("WARN"), "it is how pools begin: {said}");
    ends_by(waits, Signal::TERM, 143, "SIGTERM");
    let pool = Pool::start(&setup(Over::Shm, "recovered", 3));
    let told = succeeds(&["recover", "--log-dir", logs, "--into", &pool.name]);
    let (heading, table) = told.split_once('\n').unwrap();
    assert!(heading.starts_with("Logs of pool ") && heading.contains(" (written 20"), "{told}");
    assert_eq!(ungrouped(table.replace(&pool.name, "").as_str()), Vec::<&str>::new(), "{told}");
    let report = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!((&report["consistency"], &report["load"]["rows"]), (&"ok".into(), &0.into()));
}

#[test]
fn a_log_directory_without_room_is_refused_before_anything_starts() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    // More than any disk has.
    let most = ["tpcc", "--warehouses", "100000", "--durability", "disk", "--log-dir"];
    let said = fails(&[&most[..], &[logs.to_str().unwrap()]].concat(), 2, " are needed: ");
    assert!(said.contains(" free, and ") && said.contains("--log-mb"), "{said}");
    assert!(!logs.exists(), "it leaves nothing behind");
    // Room to begin, but not for all that was asked for: no disk has a pebibyte.
    let least = ["--log-mb", "1048576", "--compute-nodes", "58", "--duration", "1"];
    let arguments = [&["tpcc"], &TINY[..], &least[..], &["--durability", "disk", "--log-dir"]];
    let arguments = [&arguments.concat()[..], &[logs.to_str().unwrap()]].concat();
    let driver = Process::start(&arguments);
    let said = driver.finds("may take 58.0 TiB (--log-mb 1048576)");
    assert!(said.contains(" free, ") && said.contains("with a lower --log-mb"), "{said}");
    for benchmark in [&["smallbank", "--accounts", "1000"][..], &["tatp", "--subscribers", "1000"]]
    {
        let durable = ["--threads", "2", "--durability", "disk", "--log-dir"];
        let arguments = [benchmark, &least[..], &durable, &[logs.to_str().unwrap()]].concat();
        Process::start(&arguments).finds("may take 58.0 TiB (--log-mb 1048576)");
    }
}

/// Transactions wait for the log, each for as long as the engine allows: they are dropped when the
/// run is to end, and the log is waited for once.
#[test]
fn a_driver_ends_by_a_signal_while_its_log_cannot_be_written() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    let durable = ["--durability", "disk", "--log-dir", logs.to_str().unwrap(), "--log-mb", "16"];
    let long = ["--duration", "100", "--compute-nodes", "1"];
    let mut driver = Process::start(&[&["tpcc"], &TINY[..], &durable[..], &long[..]].concat());
    driver.finds("run: 0 %");
    // No file can be made in a directory that is somewhere else.
    std::fs::rename(&logs, place.path().join("elsewhere")).unwrap();
    let said = driver.finds("the log cannot be written");
    let fails =
        "a change fails that has waited for 30 s; it is tried again all the time: make room";
    assert!(said.contains(fails), "{said}");
    let asked = std::time::Instant::now();
    driver.signal(Signal::INT);
    let (code, said) = driver.ends();
    assert!(code == Some(1) && said.contains("No such file"), "{code:?}: {said}");
    // Half a minute is the bound of the engine; it was ten times that.
    assert!(asked.elapsed().as_secs() < 120, "{:?}", asked.elapsed());
}

/// A second signal, of whatever kind, ends a benchmark that waits for its log.
#[test]
fn a_second_signal_ends_a_benchmark_at_once() {
    let place = tempfile::tempdir().unwrap();
    let logs = place.path().join("logs");
    let durable = ["--durability", "disk", "--log-dir", logs.to_str().unwrap(), "--log-mb", "16"];
    let long = ["--accounts", "1000", "--threads", "2", "--duration", "600"];
    let arguments = [&["smallbank"], &long[..], &durable, &["--compute-nodes", "1"]].concat();
    let mut benchmark = Process::start(&arguments);
    benchmark.finds("run: 0 %");
    std::fs::rename(&logs, place.path().join("elsewhere")).unwrap();
    benchmark.finds("the log cannot be written");
    let asked = Instant::now();
    // Those that come together are taken for one.
    until("it ends", || {
        let end = benchmark.end();
        if end.is_none() {
            benchmark.signal(Signal::INT);
        }
        end
    });
    let (code, said) = benchmark.ends_soon(asked);
    assert_eq!(code, None, "the second has ended it: {said}");
}

/// Another fills the disk. A benchmark tells of it again and again, and ends when a change has
/// waited for as long as it may.
#[test]
fn a_benchmark_whose_log_directory_is_full_warns_again_and_ends_with_an_error() {
    if !may_mount() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("logs")).unwrap();
    let script = "mount -t tmpfs -o size=96M tmpfs logs
        $selkie smallbank --accounts 1000 --threads 2 --duration 600 --compute-nodes 1 --durability disk \
          --log-dir logs/own --log-mb 16 2> said > told & driver=$!
        until grep -q 'run: 0 %' said; do kill -0 $driver || exit 99; sleep 0.1; done
        while kill -0 $driver 2> /dev/null; do
          cat /dev/zero >> logs/other 2> /dev/null; sleep 0.1
        done
        wait $driver";
    let mut bash = std::process::Command::new("timeout");
    let bash = bash.args(["240", "unshare", "-rm", "bash", "-c", script]);
    let bash = bash.env("selkie", env!("CARGO_BIN_EXE_selkie")).current_dir(place.path());
    let status = bash.stdin(Stdio::null()).status().unwrap();
    let said = std::fs::read_to_string(place.path().join("said")).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("the log cannot be written: nothing is changed until it can"), "{said}");
    assert!(said.matches("the log has not been written for ").count() >= 2, "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("error: ") && last.contains("No space left on device"), "{said}");
}

/// A sweep in a pipe whose reader is gone: what it says of the signal goes nowhere, and it ends.
#[test]
fn a_signal_ends_a_command_whose_stderr_nobody_reads() {
    let mut sweep = selkie(&["sim", "--seeds", "0..1000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(sweep.stderr.take().unwrap());
    // It minds signals by now.
    said.read_line(&mut String::new()).unwrap();
    drop(said);
    kill_process(Pid::from_child(&sweep), Signal::TERM).unwrap();
    let status = until("the sweep ends", || sweep.try_wait().unwrap());
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
}
