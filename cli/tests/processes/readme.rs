//! The commands of the README's shared pool, as a person types them, and how commands are run.
//! Those of the guide are in `guide`.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::text;

const SMALL: &str = "--warehouses 1 --scale 100 --threads 2";

pub(crate) fn page(name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    std::fs::read_to_string(page).unwrap()
}

/// The commands of the README's shared pool, without those that build.
fn commands() -> String {
    block("selkie pool create")
}

/// The commands of the README's block that has one of them, without those that build.
fn block(one: &str) -> String {
    let readme = page("README.md");
    let blocks = readme.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let block = blocks.into_iter().find(|block| block.contains(one)).unwrap();
    let lines = block.lines().filter(|line| !line.starts_with("cargo "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// Runs commands of some pools in a directory, with the program of another; what they say. The
/// first that fails ends it, and whatever becomes of it, nothing is left running.
#[track_caller]
pub(crate) fn runs(commands: &str, pools: &[String], (binary, place): (&Path, &Path)) -> String {
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let destroy: String =
        pools.iter().map(|pool| format!("selkie pool destroy {pool} --force; ")).collect();
    let end = format!("({destroy}kill $(jobs -p)) 2> /dev/null || :");
    let script = format!("set -e\ntrap '{end}' EXIT\n{commands}\n");
    // Commands that wait for each other would do so for ever.
    let mut bash = Command::new("timeout");
    bash.args(["300", "bash", "-c", &script])
        .current_dir(place)
        .env("PATH", path)
        .stdin(Stdio::null());
    let output = bash.output().unwrap();
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{commands}: {said}");
    said
}

/// Replaces what must be there.
#[track_caller]
pub(crate) fn with(commands: String, from: &str, to: &str) -> String {
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
    let binary = Path::new(env!("CARGO_BIN_EXE_selkie")).parent().unwrap();
    let said = runs(&commands, &[pool], (binary, place.path()));
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

/// The first block: its databases and times are those of the commands, but that the demo works for
/// a shorter time, as it would last more than half a minute, and in a pool of its own, as other
/// tests may play it. What is built by `cargo run` is built here, and the last line is the gate.
#[test]
fn the_first_commands_of_the_readme_run_as_they_are_written() {
    let readme = page("README.md");
    let (_, block) = readme.split_once("## Run it").unwrap();
    let block = block.split("```sh\n").nth(1).unwrap().split("```").next().unwrap();
    let lines: Vec<_> = block.lines().collect();
    assert_eq!(lines.last(), Some(&"cargo test --workspace"), "{block}");
    let built = "cargo run --release -- ";
    let commands = lines[..lines.len() - 1].iter().map(|line| {
        let command = line.strip_prefix(built).unwrap_or_else(|| panic!("{line}"));
        format!("selkie {command}\n")
    });
    let pool = format!("test-readme-demo-{}", std::process::id());
    let shorter = format!("selkie demo --duration 3 --pool {pool}\n");
    let commands = with(commands.collect(), "selkie demo\n", &shorter);
    let place = tempfile::tempdir().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_selkie")).parent().unwrap();
    let said = runs(&commands, &[pool], (binary, place.path()));
    assert!(said.contains("consistency: ok"), "{said}");
    assert!(said.contains("ok: every one of "), "{said}");
}

#[test]
fn the_sql_server_of_the_readme_keeps_what_a_client_has_made() {
    let place = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let commands = block("selkie server").replace("5432", &port.to_string());
    // A person types slower than a server starts.
    let ready =
        format!("until (: < /dev/tcp/127.0.0.1/{port}) 2> /dev/null; do sleep 0.05; done\npsql");
    let commands = with(commands, "psql", &ready);
    let said = runs(
        &commands,
        &[],
        (Path::new(env!("CARGO_BIN_EXE_selkie")).parent().unwrap(), place.path()),
    );
    assert!(said.contains("CREATE TABLE"), "{said}");
    assert!(said.contains("1 | kept"), "{said}");
}
