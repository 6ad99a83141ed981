//! Scenarios of real processes, through the `selkie` binary: those of `docs/scenarios`, shortened.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::{PATIENCE, selkie, text};

fn file(name: &str) -> String {
    scenarios().join(format!("{name}.toml")).to_str().unwrap().to_owned()
}

/// What memory nodes lend in those files.
const USUAL_SIZE: &str = "size = \"1536M\"";

/// The folder of the documentation that they are in.
fn scenarios() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/scenarios")
}

/// Runs a scenario for so long; all that it checks must hold, but for those checks that begin like
/// this. Its memory nodes lend as much as a short run takes: to populate memory takes time.
#[track_caller]
fn runs(name: &str, duration: &str, but: &[&str]) -> Value {
    let place = tempfile::tempdir().unwrap();
    let smaller = place.path().join(format!("{name}.toml"));
    let given = std::fs::read_to_string(file(name)).unwrap();
    assert!(given.contains(USUAL_SIZE), "{given}");
    std::fs::write(&smaller, given.replace(USUAL_SIZE, "size = \"600M\"")).unwrap();
    let smaller = smaller.to_str().unwrap();
    let output =
        selkie(&["scenario", "run", smaller, "--duration", duration, "--json"]).output().unwrap();
    let said = text(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{name}: {error}: {said}");
    });
    for stage in ["starting ", "all drivers run, for", "run: 20 %", "all drivers have ended;"] {
        assert!(said.lines().any(|line| line.starts_with(stage)), "{stage:?}: {said}");
    }
    for check in report["checks"].as_array().unwrap() {
        let what = check["what"].as_str().unwrap();
        let excused = but.iter().any(|but| what.contains(but));
        assert!(excused || check["holds"] == true, "{name}: {check}\n{said}");
    }
    let holds = report["checks"].as_array().unwrap().iter().all(|check| check["holds"] == true);
    assert_eq!(report["holds"], holds, "{report}");
    assert_eq!(output.status.code(), Some(i32::from(!holds)), "{said}");
    // What the processes said is kept where something does not hold, and only there.
    let kept = said.lines().find_map(|line| line.split_once("output of all processes is in "));
    assert_eq!(kept.is_some(), !holds, "{said}");
    if let Some((_, directory)) = kept {
        std::fs::remove_dir_all(directory).unwrap();
    }
    report
}

/// Something was checked of which this is a part.
#[track_caller]
fn checks(report: &Value, what: &[&str]) {
    let checks = report["checks"].as_array().unwrap();
    for what in what {
        let is_it = |check: &Value| check["what"].as_str().unwrap().contains(what);
        assert!(checks.iter().any(is_it), "{what}: {checks:?}");
    }
}

/// A driver has worked, and all that it committed was found.
#[track_caller]
fn worked(report: &Value, name: &str) {
    let report = &driver(report, name)["report"];
    assert!(report["transactions"].as_u64().unwrap() > 0, "{report}");
    assert!(report["journal"]["found"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["journal"]["found"], report["journal"]["looked_for"], "{report}");
    assert_eq!(report["consistency"], "ok", "{report}");
    let seconds = report["per_second"].as_array().unwrap();
    let whole: u64 = seconds.iter().map(|second| second.as_u64().unwrap()).sum();
    assert_eq!(seconds.len() as u64, report["seconds"].as_f64().unwrap() as u64, "{report}");
    let sum = whole + report["partial_second"]["transactions"].as_u64().unwrap_or(0);
    assert_eq!(report["transactions"], sum, "{report}");
}

/// How fast the machine is while it runs other tests is nothing to judge here.
const SPEED: &str = "of the survivors' throughput";

fn driver<'a>(report: &'a Value, name: &str) -> &'a Value {
    let mut drivers = report["drivers"].as_array().unwrap().iter();
    drivers.find(|driver| driver["name"] == name).unwrap()
}

#[test]
fn nothing_happens_in_one_process() {
    let report = runs("steady-mem", "3s", &[]);
    worked(&report, "drivers");
    checks(&report, &["drivers ends well", "the conditions hold at drivers"]);
}

#[test]
fn nothing_happens_over_shm() {
    nothing_happens("steady-shm");
}

fn nothing_happens(name: &str) {
    let report = runs(name, "4s", &[]);
    for name in ["driver-1", "driver-2"] {
        worked(&report, name);
        let of = |what: &str| what.replace("NAME", name);
        let journal = of("nothing that NAME committed is missing");
        checks(&report, &[&of("NAME ends well"), &of("the conditions hold at NAME"), &journal]);
        checks(&report, &[&of("nothing is lost at NAME")]);
    }
    checks(&report, &["memory-3 ends well", "no compute node is left", "nothing is left behind"]);
}

#[test]
fn nothing_happens_over_tcp() {
    nothing_happens("steady-tcp");
}

#[test]
fn a_driver_is_killed_over_shm() {
    killed("kill-driver-shm");
}

#[test]
fn a_driver_is_killed_over_tcp() {
    killed("kill-driver-tcp");
}

/// Nothing is lost, neither with the driver that is killed nor at the other.
fn killed(name: &str) {
    let report = runs(name, "13s", &[SPEED]);
    checks(&report, &["every fault meets its target", "driver-2 is killed", SPEED]);
    checks(&report, &["nothing is lost at driver-1", "driver-1 is not stuck for more than 6.0 s"]);
    checks(&report, &["nothing that a driver has committed is missing, whatever became of it"]);
    assert_eq!(driver(&report, "driver-2")["ended"], "signal 9");
    worked(&report, "driver-1");
    assert_eq!(driver(&report, "driver-1")["report"]["config"]["durability"], "memory");
    assert_eq!(report["lost_pages"], 0);
    let verified = &report["verified"]["report"]["journal"];
    assert!(verified["looked_for"].as_u64().unwrap() > 0, "{verified}");
    assert_eq!(verified["found"], verified["looked_for"], "{verified}");
}

#[test]
fn without_a_log_what_a_killed_driver_held_is_lost_and_said_to_be() {
    let report = runs("kill-driver-shm-without-log", "10s", &[SPEED]);
    checks(&report, &["what is lost at driver-1 is lost in the pool", "driver-2 is killed"]);
    assert_eq!(driver(&report, "driver-2")["ended"], "signal 9");
    assert!(driver(&report, "driver-2")["report"].is_null());
    let survivor = &driver(&report, "driver-1")["report"];
    assert_eq!(survivor["consistency"], "partial", "{survivor}");
    assert!(report["lost_pages"].as_u64().unwrap() > 0);
    assert!(survivor["journal"]["found"].as_u64().unwrap() > 0, "{survivor}");
    assert_eq!(survivor["config"]["durability"], "none", "{survivor}");
}

/// Rounds drawn at random; their seeds.
#[track_caller]
fn random(arguments: &[&str]) -> Vec<u64> {
    let command = [&["scenario", "random", "--json"], arguments].concat();
    let output = selkie(&command).output().unwrap();
    let said = text(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"));
    let rounds = report["rounds"].as_array().unwrap();
    for round in rounds {
        assert_eq!(
            (&round["wrong"], &round["holds"]),
            (&Value::Array(vec![]), &true.into()),
            "{said}"
        );
        assert!(round["scenario"].as_str().unwrap().contains("[[fault]]"), "{round}");
        let kept = round["output"].as_str().map(PathBuf::from);
        assert_eq!(kept.is_some(), arguments.contains(&"--keep"), "{round}");
        if let Some(kept) = kept {
            assert!(std::fs::read_dir(&kept).unwrap().count() > 0, "{round}");
            std::fs::remove_dir_all(kept).unwrap();
        }
    }
    assert_eq!((&report["held"], &report["failed"]), (&rounds.len().into(), &0.into()));
    assert_eq!(output.status.code(), Some(0), "{said}");
    rounds.iter().map(|round| round["seed"].as_u64().unwrap()).collect()
}

#[test]
fn rounds_that_were_drawn_at_random_go_as_they_must() {
    // A driver is killed; a memory node and a driver are, which is started again.
    assert_eq!(random(&["--fabric", "shm", "--rounds", "1", "--seed", "103"]), [103]);
    let kept = ["--fabric", "shm", "--rounds", "1", "--seed", "116", "--keep"];
    assert_eq!(random(&kept), [116]);
}

#[test]
#[ignore = "takes half an hour, and the rights of root"]
fn a_hundred_rounds_that_were_drawn_at_random_go_as_they_must() {
    assert_eq!(random(&["--rounds", "100", "--seed", "1000"]).len(), 100);
}

#[test]
fn memory_is_killed_over_shm() {
    let report = runs("kill-memory-shm", "8s", &[]);
    // The dead node held pages and copies of the logs. Which of them is missed first is chance.
    for name in ["driver-1", "driver-2"] {
        let error = driver(&report, name)["error"].as_str().unwrap();
        assert!(error.starts_with("error: ") && error.ends_with("peer mem1 is dead"), "{error}");
    }
}

/// Pages are coded: the drivers go on, and nothing is lost.
#[test]
fn memory_of_a_coded_pool_is_killed_over_shm() {
    let report = runs("lose-memory-shm", "8s", &[SPEED]);
    checks(&report, &["memory-2 ends by signal 9", "nothing is lost at driver-1"]);
    for name in ["driver-1", "driver-2"] {
        worked(&report, name);
    }
    assert_eq!(report["lost_pages"], 0);
}

#[test]
fn a_harness_that_is_told_to_stop_leaves_nothing_behind() {
    let mut command = selkie(&["scenario", "run", &file("steady-shm")]);
    let mut harness = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let process = harness.id();
    let stderr = std::io::BufReader::new(harness.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(stderr).map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("all drivers run")), "it ended");
    let id = rustix::process::Pid::from_child(&harness);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    assert_eq!(lines.last().unwrap(), "error: interrupted by SIGINT");
    assert_eq!(harness.wait().unwrap().code(), Some(130));
    gone(process);
}

#[test]
fn the_processes_of_a_harness_that_is_killed_end_with_it() {
    let mut command = selkie(&["scenario", "run", &file("steady-shm")]);
    let mut harness = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let process = harness.id();
    let stderr = std::io::BufReader::new(harness.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(stderr).map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("all drivers run")), "it ended");
    harness.kill().unwrap();
    harness.wait().unwrap();
    no_processes(process);
    // No process could remove the files.
    let [directory] = &left(process, &std::env::temp_dir())[..] else { panic!("no directory") };
    let pool = directory.file_name().unwrap().to_str().unwrap().strip_prefix("selkie-").unwrap();
    assert!(selkie(&["pool", "destroy", pool, "--force"]).status().unwrap().success());
    std::fs::remove_dir_all(directory).unwrap();
    gone(process);
}

/// Neither processes nor files of a harness are there, or not for long.
fn gone(process: u32) {
    no_processes(process);
    for directory in [PathBuf::from("/dev/shm"), std::env::temp_dir()] {
        let left = left(process, &directory);
        assert!(left.is_empty(), "{left:?}");
    }
}

/// What a harness of this process has left in a directory.
fn left(process: u32, directory: &Path) -> Vec<PathBuf> {
    let name = format!("steady-shm-{process}-");
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let left = entries.filter(|entry| entry.file_name().to_string_lossy().contains(&name));
    left.map(|entry| entry.path()).collect()
}

fn no_processes(parent: u32) {
    let option = format!("--parent={parent}");
    let started = Instant::now();
    let lives = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|p| std::fs::read(p.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&option)).count()
    };
    while lives() > 0 {
        assert!(started.elapsed() < PATIENCE, "{} processes live on", lives());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn wrong_files_are_refused_before_anything_starts() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("x.toml");
    let refused = |text: &str, expected: &str| {
        std::fs::write(&path, text).unwrap();
        for command in ["run", "check"] {
            let Output { status, stdout, stderr } =
                selkie(&["scenario", command, path.to_str().unwrap()]).output().unwrap();
            let error = String::from_utf8(stderr).unwrap();
            assert_eq!(status.code(), Some(2), "{error}");
            assert!(error.contains(expected) && error.lines().count() == 1, "{error}");
            assert!(stdout.is_empty());
        }
    };
    refused("name = \"x\"\nfabric = \"ether\"", "x.toml:2: unknown variant `ether`");
    let good = std::fs::read_to_string(file("kill-driver-shm")).unwrap();
    refused(
        &good.replace("target = \"driver-2\"", "target = \"driver-3\""),
        "there is no driver-3",
    );
    refused(&good.replace("\"shm\"", "\"mem\""), "there are no faults in it");
    // No round would go as it must not.
    let output = selkie(&["scenario", "random", "--rounds", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("0 is not in 1..=1000000"), "{}", text(&output.stderr));
    let output = selkie(&["scenario", "check", "no-such-file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn all_files_of_the_documentation_are_right() {
    let mut checked = 0;
    for entry in std::fs::read_dir(scenarios()).unwrap().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "toml") {
            let path = entry.path().to_str().unwrap().to_owned();
            let output = selkie(&["scenario", "check", &path]).output().unwrap();
            assert_eq!(text(&output.stdout), "ok\n", "{}", text(&output.stderr));
            let name = format!("name = {:?}", entry.path().file_stem().unwrap().to_str().unwrap());
            assert!(std::fs::read_to_string(&path).unwrap().contains(&name), "{path}");
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked}");
}

#[test]
#[ignore = "takes half a minute each"]
fn a_driver_stands_still() {
    for name in ["pause-driver-shm", "pause-driver-tcp"] {
        let report = runs(name, "24s", &[SPEED]);
        let paused = driver(&report, "driver-2");
        let ended = paused["ended"].as_str().unwrap();
        assert!(["exit code 1", "signal 9"].contains(&ended), "{paused}");
        checks(&report, &["driver-2 ends with the error `declared dead by the others`", SPEED]);
        checks(&report, &["nothing is lost at driver-1"]);
        assert_eq!(report["lost_pages"], 0);
    }
}

#[test]
#[ignore = "with those above"]
fn memory_is_killed_over_tcp() {
    runs("kill-memory-tcp", "8s", &[]);
}

#[test]
#[ignore = "needs the rights of root"]
fn a_driver_is_cut_off() {
    runs("cut-driver-tcp", "24s", &[SPEED]);
}

#[test]
#[ignore = "needs the rights of root"]
fn a_driver_and_a_memory_node_do_not_reach_each_other() {
    runs("cut-between-tcp", "30s", &[]);
}

#[test]
#[ignore = "takes half a minute"]
fn a_memory_node_stands_still() {
    runs("pause-memory-tcp", "30s", &[]);
}

#[test]
#[ignore = "takes minutes"]
fn a_driver_dies_again_and_again() {
    let report = runs("mixed-faults", "200s", &[SPEED]);
    checks(&report, &["nothing is lost at driver-1"]);
    assert_eq!(report["lost_pages"], 0);
}
