//! Processes whose terminal is closed: they are told so by SIGHUP, and nobody reads what they say.

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::drivers::setup;
use crate::harness::{Over, Pool, Process, Setup, refused, selkie, succeeds, until};

/// Starts a process with the signal as programs have it, whatever that of the tests is.
const MINDFUL: [&str; 2] = ["env", "--default-signal=HUP"];

#[test]
fn a_driver_whose_terminal_is_closed_leaves_and_says_so() {
    let pool = Pool::without_memory(&setup(Over::Shm, "hung-up", 2));
    let mut driver = Process::start_by(&MINDFUL, &pool.tpcc(&[]));
    driver.finds("0 of 2 have joined");
    driver.signal(Signal::HUP);
    let (code, said) = driver.ends();
    let last = said.lines().last();
    assert_eq!((code, last), (Some(129), Some("error: interrupted by SIGHUP")), "{said}");
}

#[test]
fn a_command_that_has_nothing_to_leave_says_that_its_terminal_was_closed() {
    let micro = ["micro", "--duration-ms", "3600000", "--metrics", "127.0.0.1:0"];
    let mut micro = Process::start_by(&MINDFUL, &micro);
    micro.says("metrics at ");
    micro.signal(Signal::HUP);
    let (code, said) = micro.ends();
    assert_eq!((code, said.lines().last()), (None, Some("error: interrupted by SIGHUP")), "{said}");
}

/// A pool of their own ends with them.
#[test]
fn a_benchmark_that_a_signal_ends_in_its_load_says_so() {
    for benchmark in [
        ["tpcc", "--warehouses", "20"],
        ["smallbank", "--accounts", "3000000"],
        ["tatp", "--subscribers", "1000000"],
    ] {
        let mut loads = Process::start(&[&benchmark[..], &["--threads", "2"]].concat());
        loads.says("load: 0 %");
        loads.signal(Signal::TERM);
        let (code, said) = loads.ends();
        let last = said.lines().last();
        assert_eq!((code, last), (Some(143), Some("error: interrupted by SIGTERM")), "{said}");
        assert!(!said.contains("run: "), "{said}");
    }
}

/// The system sends one, and the shell another.
#[test]
fn a_memory_node_whose_terminal_is_closed_stops_in_good_order() {
    let pool = Pool::without_memory(&small("hung-up-memory"));
    let mut memory = Process::start_by(&MINDFUL, &lend(&pool));
    memory.tells(" lends ");
    memory.signal(Signal::HUP);
    memory.signal(Signal::HUP);
    let (code, said) = memory.ends();
    assert_eq!(code, Some(0), "{said}");
    let took = said.split_once("mem0 stops after ").unwrap().1;
    let (seconds, rest) = took.split_once(' ').unwrap();
    assert!(seconds.parse::<f64>().is_ok() && rest == "s of processor time\n", "{said}");
}

#[test]
fn what_was_started_by_nohup_outlives_its_terminal() {
    let pool = Pool::without_memory(&small("nohup"));
    let mut memory = Process::start_by(&["nohup"], &lend(&pool));
    memory.tells(" lends ");
    memory.signal(Signal::HUP);
    succeeds(&pool.tpcc(&["--load-only"]));
    memory.signal(Signal::TERM);
    let (code, said) = memory.ends();
    assert_eq!(code, Some(0), "{said}");
}

/// A memory node in a pipe whose reader is gone: it ends as it would, whatever it would have said.
#[test]
fn a_memory_node_whose_stderr_nobody_reads_ends_as_it_was_asked_to() {
    let pool = Pool::without_memory(&small("unread"));
    let mut memory = unread(&pool);
    kill_process(Pid::from_child(&memory), Signal::TERM).unwrap();
    let status = end(&mut memory);
    assert_eq!(status.code(), Some(0), "stopped: {status}");
    drop(pool);

    let pool = Pool::without_memory(&small("unread-gone"));
    let mut memory = unread(&pool);
    succeeds(&["pool", "destroy", &pool.name, "--force"]);
    let status = end(&mut memory);
    assert_eq!(status.code(), Some(0), "its pool was destroyed: {status}");
}

/// A command whose error nobody reads still ends with the code of that error.
#[test]
fn a_command_whose_error_nobody_reads_ends_with_its_code() {
    let wrong = ["pool", "status", "test-unread-nowhere"];
    refused(&wrong, 1, "no pool `test-unread-nowhere` on this host");
    let mut command = selkie(&wrong);
    let mut command = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    drop(command.stderr.take());
    let status = end(&mut command);
    assert_eq!(status.code(), Some(1), "{status}");
}

/// A pool of one memory node that lends little.
fn small(test: &str) -> Setup<'_> {
    let create = &["--log-size", "1M", "--max-compute-nodes", "4"];
    Setup { test, memory_nodes: 1, create, ..Setup::default() }
}

fn lend(pool: &Pool) -> [&str; 5] {
    ["memnode", "--pool", &pool.name, "--memory", "100M"]
}

/// A memory node that lends, and whose stderr nobody reads any more.
#[track_caller]
fn unread(pool: &Pool) -> Child {
    let mut memory = selkie(&lend(pool));
    let mut memory = memory.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(memory.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains(" lends "), "{line:?}");
    drop(memory.stderr.take());
    memory
}

#[track_caller]
fn end(process: &mut Child) -> ExitStatus {
    until("the process ends", || process.try_wait().unwrap())
}
