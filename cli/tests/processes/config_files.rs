//! Configuration files: what they may say, which source overrides which, and how mistakes are
//! told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::harness::{run, text};

/// A file that goes with the value.
struct File {
    _directory: TempDir,
    path: PathBuf,
}

impl File {
    fn of(text: &str) -> File {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("selkie.toml");
        std::fs::write(&path, text).unwrap();
        File { _directory: directory, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    #[track_caller]
    fn succeeds(&self, arguments: &[&str]) -> String {
        let output = run(&[&["--config", self.path()], arguments].concat());
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }
}

/// Is refused by a command that would use it, and by the check, with the same line.
#[track_caller]
fn is_refused(file: &str, expected: &str) {
    let file = File::of(file);
    let expected = format!("error: {}:{expected}", file.path());
    let uses = run(&["--config", file.path(), "sim", "--seed", "1"]);
    let check = run(&["config", "check", file.path()]);
    for (output, code) in [(uses, 2), (check, 1)] {
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert_eq!(error.lines().count(), 1, "something was started: {error}");
        assert!(error.starts_with(&expected), "{error}expected: {expected}");
        assert!(output.stdout.is_empty());
    }
}

/// Is refused by the check only, because arguments could mend it.
#[track_caller]
fn check_refuses(file: &str, expected: &str) {
    let file = File::of(file);
    let output = run(&["config", "check", file.path()]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert_eq!(error.trim_end(), format!("error: {}:{expected}", file.path()));
}

/// The commands a help page lists.
fn commands(help: &str) -> Vec<String> {
    let section = help.split("Commands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| line.starts_with("  "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| !["help", "config", "completions", "man"].contains(name))
        .map(str::to_owned)
        .collect()
}

/// Name, value name (none for switches) and default or first possible value of the options on a
/// help page.
type HelpOption = (String, Option<String>, Option<String>);

fn options(help: &str) -> Vec<HelpOption> {
    let mut options: Vec<HelpOption> = Vec::new();
    for line in help.lines().map(str::trim) {
        // Some pages have the description in the same line.
        let option = line.strip_prefix("--").and_then(|line| line.split("  ").next());
        if let Some(option) = option {
            let (name, value) = option.split_once(' ').unwrap_or((option, ""));
            let value = value.trim_matches(['<', '>']);
            options.push((name.into(), (!value.is_empty()).then(|| value.into()), None));
        }
        let default = line.split_once("[default: ").and_then(|(_, rest)| rest.split_once(']'));
        if let (Some((_, _, sample)), Some((default, _))) = (options.last_mut(), default) {
            // Others are sentences.
            *sample = Some(default.to_owned()).filter(|default| !default.contains(' '));
        }
    }
    options.retain(|(name, ..)| !["config", "log"].contains(&name.as_str()));
    options
}

/// TOML of a value that the option takes.
fn sample((name, value_name, default): &HelpOption) -> String {
    let Some(value_name) = value_name else { return "true".to_owned() };
    match (default, value_name.as_str()) {
        (Some(default), _) if default.parse::<f64>().is_ok() => default.clone(),
        (Some(default), _) => format!("{default:?}"),
        (None, "N") => "6".to_owned(),
        (None, "KIND") => "\"latest\"".to_owned(),
        (None, "F") => "0.5".to_owned(),
        (None, "BYTES") => "4096".to_owned(),
        (None, "SIZE") => "\"1G\"".to_owned(),
        (None, "NAME") if name == "protocol" => "\"occ\"".to_owned(),
        (None, "NAME") if name == "envelope" => "\"gentle\"".to_owned(),
        (None, "NAME") if name == "rdma-device" => "\"rxe0\"".to_owned(),
        (None, "NAME") => "\"counter\"".to_owned(),
        (None, "PORT" | "INDEX") => "1".to_owned(),
        (None, "ADDR:PORT/KEY") => "\"127.0.0.1:7000/1f\"".to_owned(),
        (None, "POOL") => "\"demo\"".to_owned(),
        (None, "FABRIC") => "\"tcp\"".to_owned(),
        (None, "ADDR:PORT") => "\"127.0.0.1:7000\"".to_owned(),
        (None, "HOST") => "\"127.0.0.1\"".to_owned(),
        (None, "A..B") => "\"0..3\"".to_owned(),
        (None, "LEVEL") => "\"memory\"".to_owned(),
        (None, "CODING" | "K+R") => "\"2+1\"".to_owned(),
        (None, "TIME") => "\"6s\"".to_owned(),
        (None, "SECONDS") => "0.5".to_owned(),
        (None, "FIRST-LAST") => "\"1-2\"".to_owned(),
        (None, "DIR") => "\"figures\"".to_owned(),
        (None, "FILE") => "\"Cargo.toml\"".to_owned(),
        (None, "ID") => "\"1f\"".to_owned(),
        (None, "URL") => "\"file:///backups/monday\"".to_owned(),
        (None, "ADDR") => "\"127.0.0.1:0\"".to_owned(),
        (None, "PRESET") => "\"paper\"".to_owned(),
        (None, "TEXT") => "\"-\"".to_owned(),
        (None, "PART,...") => "[\"hold\", \"looks\"]".to_owned(),
        (None, other) => panic!("what does --{name} <{other}> take?"),
    }
}

/// The options of every command, by the name of its section.
fn all_options() -> BTreeMap<String, Vec<HelpOption>> {
    let help = |names: &[&str]| text(&run(&[names, &["--help"]].concat()).stdout);
    let mut all = BTreeMap::new();
    for outer in commands(&help(&[])) {
        let inner = commands(&help(&[&outer]));
        for inner in &inner {
            all.insert(format!("{outer}.{inner}"), options(&help(&[&outer, inner])));
        }
        if inner.is_empty() {
            all.insert(outer.clone(), options(&help(&[&outer])));
        }
    }
    all
}

#[test]
fn every_option_of_every_command_is_a_key_and_takes_what_the_option_takes() {
    let all = all_options();
    assert_eq!(all.keys().filter(|name| name.starts_with("pool.")).count(), 7);
    let mut checked = 0;
    for (section, options) in &all {
        for option in options {
            let (name, value_name, _) = option;
            // Some need another, or do not go with its default.
            let with = match (section.as_str(), name.as_str()) {
                ("tpcc", "load-only" | "reload") => "pool = \"shm:a\"\n",
                ("tpcc", "listen" | "advertise" | "insecure" | "tls" | "token")
                | ("tpcc", "rdma-device" | "rdma-port" | "rdma-gid") => "pool = \"tcp:a:1\"\n",
                ("pool.forgive", "pages") => "name = \"a\"\n",
                ("pool.forgive", _) => "name = \"a\"\npages = true\n",
                ("pool.create", "trust-network") => "fabric = \"tcp\"\n",
                ("server", "tls-cert") => "tls-key = \"Cargo.toml\"\n",
                ("server", "tls-key") => "tls-cert = \"Cargo.toml\"\n",
                ("server", "require-tls") => {
                    "tls-cert = \"Cargo.toml\"\ntls-key = \"Cargo.toml\"\n"
                }
                ("micro" | "smallbank" | "tatp" | "ycsb" | "server", "insecure") => {
                    "metrics = \"127.0.0.1:0\"\n"
                }
                ("tpcc" | "smallbank" | "tatp" | "ycsb", "log-dir") => "durability = \"disk\"\n",
                ("tpcc" | "smallbank" | "tatp" | "ycsb", "log-mb") => "durability = \"memory\"\n",
                ("recover", "into") => "log-dir = \"logs\"\n",
                ("recover", "log-dir") => "dry-run = true\n",
                ("recover", "dry-run") => "log-dir = \"logs\"\n",
                ("recover", _) => "log-dir = \"logs\"\ndry-run = true\n",
                ("sim", "coding") => "scenario = \"counter\"\n",
                ("sim", "protocol") => "scenario = \"history\"\n",
                ("top", "json") => "once = true\nname = \"a\"\n",
                _ => "",
            };
            let good = File::of(&format!("[{section}]\n{with}{name} = {}\n", sample(option)));
            let output = run(&["config", "check", good.path()]);
            assert_eq!(text(&output.stdout), "ok\n", "{section} {name}: {}", text(&output.stderr));
            assert!(output.status.success());
            let (bad, what) = match value_name {
                Some(_) => ("true", "must be a number or a string ("),
                None => ("1", "must be true or false ("),
            };
            let expected = format!("1: [{section}] {name} = {bad}: {what}");
            is_refused(&format!("{section}.{name} = {bad}"), &expected);
            checked += 1;
        }
    }
    assert!(checked > 45, "only {checked} options were found");
    // What has no dashes has its name.
    let rest = "[figures]\nnames = [\"locality\", \"skew\"]\n[pool.status]\nname = \"a\"\n";
    assert_eq!(File::of(rest).succeeds(&["config", "check", File::of(rest).path()]), "ok\n");
}

#[test]
fn sections_and_keys_that_do_not_exist_are_refused_with_those_that_do() {
    let commands = "demo, tpcc, smallbank, tatp, ycsb, sql, server, pool, backup, restore, recover, memnode, cert, top, micro, bench, figures, sim, scenario, doctor";
    let no_command = format!("there is no such command; there are {commands}\n");
    let meant = format!("there is no such command, did you mean `tpcc`? there are {commands}\n");
    is_refused("\n[tpc]\na = 1", &format!("2: [tpc]: {meant}"));
    is_refused("[config]\n", &format!("1: [config]: {no_command}"));
    is_refused("x = 1", &format!("1: [x]: {no_command}"));
    is_refused(
        "[pool]\nmemory-nodes = 3",
        "2: [pool.memory-nodes]: there is no such command; there are create, list, status, drain, forgive, repair, destroy\n",
    );
    is_refused(
        "[sim]\nseed = 1\n[pool.create]\nx = 1",
        "4: [pool.create] x = 1: there is no such key; there are name, fabric, memory-nodes, max-compute-nodes, gcl, range, coding, log-size, lease, trust-network, heartbeat\n",
    );
    for key in ["config", "log", "help", "version"] {
        let expected = format!("2: [tpcc] {key} = 1: there is no such key");
        is_refused(&format!("[tpcc]\n{key} = 1"), &expected);
    }
    for (key, meant) in [("memory_nodes", "memory-nodes"), ("warehouse", "warehouses")] {
        let expected = format!(
            "2: [tpcc] {key} = 1: there is no such key, did you mean `{meant}`? there are pool, "
        );
        is_refused(&format!("[tpcc]\n{key} = 1"), &expected);
    }
    is_refused("tpcc = 1", "1: [tpcc]: is a section, not a value");
    is_refused("[[tpcc]]\nseed = 1", "1: [tpcc]: is a section, not a value");
}

#[test]
fn values_are_refused_with_what_is_allowed_from_the_top_down() {
    is_refused(
        "[sim]\nthreads = 0\n[memnode]\nmemory = \"lots\"",
        "2: [sim] threads = 0: 0 is not in 1..=1024 (Threads of a sweep, 1 to 1024",
    );
    is_refused(
        "[memnode]\nmemory = \"lots\"\n[sim]\nthreads = 0",
        "2: [memnode] memory = \"lots\": a size is a number with K, M, G or T, as 512M (Memory to",
    );
    is_refused("[tpcc]\nwarehouses = -1", "2: [tpcc] warehouses = -1: ");
    is_refused("[tpcc]\nwarehouses = 1.0", "2: [tpcc] warehouses = 1.0: ");
    is_refused("[tpcc]\nwarehouses = [1]", "2: [tpcc] warehouses = [1]: must be a number or");
    is_refused("[tpcc]\nseed = 2020-01-01", "2: [tpcc] seed = 2020-01-01: must be a number or");
    is_refused(
        "[tpcc]\naffinity = \"none\"",
        "2: [tpcc] affinity = \"none\": must be one of shared, warehouse, partitioned (Which warehouses",
    );
    is_refused(
        "[micro]\nwithout = [\"hold\", true]",
        "2: [micro] without = [\"hold\", true]: must be",
    );
    is_refused("[micro]\nwithout = \"x\"", "2: [micro] without = \"x\": there is no such part; ");
    is_refused("[tpcc]\nseed = 1\nseed = 2", "3: duplicate key");
    is_refused("[tpcc]\n[micro", "2: ");
}

#[test]
fn the_check_also_looks_at_values_that_commands_refuse() {
    check_refuses(
        "[tpcc]\nseed = 1\nwarehouses = 0",
        "3: [tpcc] warehouses = 0: must be 1 to 100000",
    );
    check_refuses(
        "[tpcc]\nload-only = true",
        "2: [tpcc] load-only: needs a --pool that outlives the process",
    );
    check_refuses(
        "[smallbank]\naccounts = 10\nhot-accounts = 11",
        "3: [smallbank] hot-accounts = 11: must be 1 to 10",
    );
    check_refuses("[tatp]\nworkers = 0", "2: [tatp] workers = 0: must be 1 to 1024");
    check_refuses("[micro]\nread-ratio = -0.5", "2: [micro] read-ratio = -0.5: must be 0 to 1");
    check_refuses(
        "[pool.create]\nname = \"a\"\ngcl = 1000",
        "3: [pool.create] gcl = 1000: a power of two in 512 to 8192",
    );
    check_refuses(
        "\n[micro]\nsim = \"paper\"\nthreads = 2",
        "3: [micro] the argument '--sim <PRESET>' cannot be used with '--threads <N>'",
    );
    let ok = "[tpcc]\n[pool.create]\ngcl = 1000 # the name is not known, so it is not looked at\n";
    let ok = File::of(ok);
    assert_eq!(ok.succeeds(&["config", "check", ok.path()]), "ok\n");
}

#[test]
fn files_that_are_not_there_are_refused() {
    let file = File::of("");
    let missing = file.path.with_extension("none");
    let missing = missing.to_str().unwrap();
    for (arguments, code) in
        [([missing, "sim", "--seed", "1"], 2), (["", "config", "check", missing], 1)]
    {
        let mut arguments = arguments.to_vec();
        if arguments[0].is_empty() {
            arguments.remove(0);
        } else {
            arguments.insert(0, "--config");
        }
        let output = run(&arguments);
        assert_eq!(output.status.code(), Some(code));
        let error = text(&output.stderr);
        assert_eq!(error, format!("error: {missing}: No such file or directory (os error 2)\n"));
    }
}

#[test]
fn a_run_is_as_the_file_says_but_for_what_the_arguments_say() {
    let file = File::of(
        "[tpcc]\nwarehouses = 1\nscale = 100\nduration = 1\nthreads = 2\nseed = 0x10\njson = true\n\
         affinity = \"shared\"\n[micro]\nseed = 77\n",
    );
    let config = |arguments: &[&str]| {
        let json: serde_json::Value = serde_json::from_str(&file.succeeds(arguments)).unwrap();
        (json["config"]["seed"].clone(), json["config"]["workers"].clone())
    };
    assert_eq!(config(&["tpcc", "--workers", "3"]), (16.into(), 3.into()));
    assert_eq!(config(&["tpcc", "--seed=5", "--workers", "3"]), (5.into(), 3.into()));
}

#[test]
fn arguments_override_entries_that_exclude_them() {
    let runs = |file: &str, arguments: &[&str]| {
        let output = File::of(file).succeeds(&[&["sim"], arguments].concat());
        output.split(':').next().unwrap().to_owned()
    };
    let file = "[sim]\nseeds = \"0..2\"\nthreads = 1\nscenario = \"counter\"\n";
    assert_eq!(runs(file, &[]), "2 runs ok, seeds 0..2");
    assert_eq!(runs(file, &["--seeds", "4..5"]), "1 run ok, seeds 4..5");
    // Of one group: a replay prints its events instead.
    assert!(!runs(file, &["--seed", "4"]).contains(" ok, seeds "));
    let seed = "[sim]\nseed = 4\nscenario = \"counter\"\n";
    assert_eq!(runs(seed, &["--seeds", "4..5"]), "1 run ok, seeds 4..5");

    // In conflict, from both sides.
    for (entry, argument) in [("sim = \"paper\"", "--threads=2"), ("threads = 2", "--sim=paper")] {
        let file = format!("[micro]\n{entry}\ngcls = 100\nduration-ms = 1\njson = true");
        File::of(&file).succeeds(&["micro", "--workers", "1", argument]);
    }
}

#[test]
fn what_is_missing_in_both_is_told_with_what_the_file_gives() {
    let file = File::of("[memnode]\nmemory = \"1M\"\n");
    let output = run(&["memnode", "--config", file.path()]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    let entries = format!("(with the entries of {}: --memory=1M)", file.path());
    assert_eq!(
        error,
        format!(
            "error: the following required arguments were not provided: --pool <POOL> {entries}\n"
        )
    );
    let output = run(&["memnode", "--config", file.path(), "--pool", "config-test-no-pool"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("no pool `"), "{error}");
}

#[test]
fn entries_are_options_also_where_the_arguments_end_with_names() {
    let file = File::of("[pool.status]\njson = true\n");
    for arguments in [&["config-test-no-pool"][..], &["--", "config-test-no-pool"]] {
        let output = run(&[&["--config", file.path(), "pool", "status"], arguments].concat());
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("no pool `"), "{error}");
    }
}

#[test]
fn mistakes_in_arguments_are_told_as_without_a_file() {
    let file = File::of("[memnode]\nmemory = \"1M\"\n");
    for arguments in [&["memnode", "--memroy", "1"][..], &["memnode", "--memory", "x"], &[]] {
        let without = run(arguments);
        let with = run(&[&["--config", file.path()], arguments].concat());
        assert_eq!((with.status.code(), without.status.code()), (Some(2), Some(2)));
        if !arguments.is_empty() {
            assert_eq!(text(&with.stderr), text(&without.stderr));
        }
    }
}
