//! The commands of README and guide, as a person types them. That each of them is one that the
//! program takes, the tests of its command line say.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::text;

const SMALL: &str = "--warehouses 1 --scale 100 --threads 2";

fn page(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(page).unwrap()
}

/// The commands of the README's shared pool, without those that build.
fn commands() -> String {
    let readme = page("README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.into_iter().find(|block| block.contains("selkie pool create")).unwrap();
    let lines = block.lines().filter(|line| !line.starts_with("cargo "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The indented lines of a page from the first that begins so.
fn indented(page: &str, start: &str) -> String {
    let lines = page.lines().skip_while(|line| !line.trim_start().starts_with(start));
    let block = lines.map_while(|line| line.strip_prefix("    "));
    block.map(|line| format!("{line}\n")).collect()
}

/// Runs commands of the pool `pool` in a directory; what they say. The first that fails ends it,
/// and whatever becomes of it, nothing is left running.
#[track_caller]
fn runs(commands: &str, pool: &str, place: &Path) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_selkie")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let script = format!(
        "set -e\ntrap 'selkie pool destroy {pool} --force 2> /dev/null || :; kill $(jobs -p) 2> /dev/null || :' EXIT\n{commands}"
    );
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir(place).env("PATH", path).stdin(Stdio::null());
    let output = bash.output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{commands}: {said}");
    said
}

/// Replaces what must be there.
#[track_caller]
fn with(commands: String, from: &str, to: &str) -> String {
    assert!(commands.contains(from), "no {from:?} in {commands}");
    commands.replace(from, to)
}

#[test]
fn the_first_shared_pool_survives_the_death_of_a_driver_with_every_commit() {
    let place = tempfile::tempdir().unwrap();
    let pool = format!("test-readme-{}", std::process::id());
    let commands = with(commands(), "demo", &pool);
    let commands = with(commands, "selkie tpcc", &format!("selkie tpcc {SMALL}"));
    let commands = with(commands, "--duration 30", "--duration 6");
    // When it has committed something, and not later than the other ends.
    let commands = with(commands, "sleep 10;", "until [ -s killed.commits ]; do sleep 0.1; done;");
    let commands = with(
        commands,
        "--verify-commits killed.commits",
        "--verify-commits killed.commits --json > report",
    );
    let commands = with(
        commands,
        &format!("pool status {pool}"),
        &format!("pool status {pool} --json > status"),
    );
    let commands = with(commands, "--duration 5", "--duration 1");
    let said = runs(&commands, &pool, place.path());
    let read = |file: &str| -> Value {
        let text = std::fs::read_to_string(place.path().join(file)).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}: {said}"))
    };
    let (report, status) = (read("report"), read("status"));
    let journal = &report["journal"];
    let noted = std::fs::read_to_string(place.path().join("killed.commits")).unwrap();
    let noted = noted.matches('\n').count() as u64;
    assert!(noted > 0 && journal["looked_for"].as_u64() > Some(noted), "{noted}: {journal}");
    assert_eq!(
        (&journal["missing"], &journal["on_lost_pages"]),
        (&0.into(), &0.into()),
        "{journal}"
    );
    assert_eq!(journal["found"], journal["looked_for"], "{journal}");
    assert_eq!(report["consistency"], "ok", "{report}");
    assert_eq!(report["config"]["durability"], "memory", "{report}");
    assert_eq!(status["lost_pages"], Value::Array(Vec::new()), "{status}");
    assert_eq!(status["dead_compute_nodes"], Value::Array(Vec::new()), "{status}");
}

/// The driver that runs in the background is waited for, and not the memory nodes with it.
#[test]
fn the_first_shared_pool_of_the_guide_is_worked_on_shown_and_removed() {
    let place = tempfile::tempdir().unwrap();
    let pool = format!("test-guide-{}", std::process::id());
    let block = indented(&page("docs/guide/shared-pools.md"), "selkie pool create demo");
    let commands = with(block, "demo", &pool);
    let commands = with(commands, "--memory 1G", "--memory 300M");
    let commands = with(commands, "selkie tpcc", &format!("selkie tpcc {SMALL}"));
    let commands = with(commands, "--duration 30", "--duration 1");
    let said = runs(&commands, &pool, place.path());
    assert_eq!(said.matches("consistency: ok").count(), 2, "{said}");
    assert!(said.contains(&format!("pool {pool}: healthy: 1 memory node can be lost")), "{said}");
}
