//! What people see of a pool that works: `selkie top`, and metrics.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::process::Signal;
use rustix::termios::LocalModes;
use serde_json::Value;

use crate::harness::{
    PATIENCE, Pool, Process, Setup, TINY, refused_without_output as refused, run, succeeds, text,
    until,
};
use crate::terminal::OnTerminal;

/// A run that outlasts every test.
const TPCC: [&str; 9] =
    ["tpcc", "--warehouses", "1", "--scale", "100", "--threads", "2", "--duration", "600"];

/// A pool with so many memory nodes, which have these options.
#[track_caller]
fn start(test: &str, memory_nodes: usize, lend: &[&str]) -> Pool {
    Pool::start(&Setup { test, memory_nodes, memory: "200M", lend, ..Setup::default() })
}

#[test]
fn top_shows_once_what_nodes_do() {
    let pool = start("top", 2, &[]);
    let url = format!("shm:{}", pool.name);
    let arguments = [&TPCC[..], &["--pool", &url, "--compute-nodes", "2"]].concat();
    let _driver = Process::start(&arguments);
    let seen = until("both nodes work", || {
        let seen = pool.top();
        let nodes = seen["compute_nodes"].as_array().unwrap();
        let works = |node: &Value| node["rates"]["operations"].as_f64().is_some_and(|n| n > 0.0);
        (nodes.len() == 2 && nodes.iter().all(works)).then_some(seen)
    });
    for node in seen["compute_nodes"].as_array().unwrap() {
        let rates = &node["rates"];
        assert_eq!(node["state"], "lives", "{node}");
        assert!(rates["accesses"].as_f64().unwrap() > 0.0, "{node}");
        assert!((0.0..=1.0).contains(&rates["hit_ratio"].as_f64().unwrap()), "{node}");
        assert!(rates["round_trips"].as_f64().unwrap() > 0.0, "{node}");
        assert!(node["frames_used"].as_u64().unwrap() <= node["frames"].as_u64().unwrap());
        assert!(node["silent_s"].as_f64().unwrap() < seen["lease_s"].as_f64().unwrap());
        // They live, so that none was as long as a lease.
        let longest = node["longest_silence_s"].as_f64().unwrap();
        assert!((0.0..seen["lease_s"].as_f64().unwrap()).contains(&longest), "{node}");
    }
    let memory = seen["memory_nodes"].as_array().unwrap();
    assert_eq!(memory.len(), 2);
    for node in memory {
        assert_eq!(node["state"], "lives", "{node}");
        assert!(node["lent_bytes"].as_u64().unwrap() > 100 << 20, "{node}");
        assert!(node["cpu"].is_number(), "{node}");
    }
    let leased = |node: &Value| node["leased_bytes"].as_u64().unwrap();
    assert!(memory.iter().map(leased).sum::<u64>() > 0, "{seen}");
    let hottest = seen["hottest"].as_array().unwrap();
    assert!(!hottest.is_empty() && hottest.len() <= 10, "{seen}");
    assert!(hottest.iter().all(|hot| ["mem0", "mem1"].contains(&hot["home"].as_str().unwrap())));
    let total = seen["total"]["operations"].as_f64().unwrap();
    let nodes = seen["compute_nodes"].as_array().unwrap().iter();
    let sum: f64 = nodes.map(|node| node["rates"]["operations"].as_f64().unwrap()).sum();
    assert!((total - sum).abs() < 1e-6 * sum, "{seen}");

    let table = succeeds(&["top", &pool.name, "--once"]);
    for word in [&pool.name, "cn0", "cn1", "mem0", "mem1", "lives", "ops/s", "hottest page", "all"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    assert!(!table.contains('\u{1b}'), "{table}");
    let first = table.lines().nth(1).unwrap();
    let longest = first.split_once(", longest silence ").unwrap_or_else(|| panic!("{table}")).1;
    let (seconds, node) = longest.split_once(" s (").unwrap_or_else(|| panic!("{table}"));
    assert!(seconds.parse::<f64>().unwrap() < 60.0, "{first}");
    assert!(["cn0)", "cn1)", "mem0)", "mem1)"].iter().any(|own| node.starts_with(own)), "{first}");
}

#[test]
fn top_of_nothing_and_nowhere_is_refused() {
    let name = format!("test-none-{}", std::process::id());
    for rest in [&[][..], &["--once"]] {
        refused(&[&["top", &name], rest].concat(), 1, "no pool `");
    }
    refused(&["top", &name, "--json"], 2, "--json: goes with --once only");
    let pool = start("nowhere", 1, &[]);
    refused(&["top", &pool.name], 1, "no terminal to draw on: use --once");
    // A pool without memory nodes can be shown, too.
    let waiting = format!("test-waiting-{}", std::process::id());
    succeeds(&["pool", "create", &waiting, "--memory-nodes", "1"]);
    let table = succeeds(&["top", &waiting, "--once"]);
    succeeds(&["pool", "destroy", &waiting]);
    assert!(table.contains("not joined"), "{table}");
}

/// `selkie top` on a terminal.
fn live(pool: &str) -> OnTerminal {
    OnTerminal::run(&["top", pool])
}

/// Waits for its end, and looks whether the screen is as before; the exit code.
#[track_caller]
fn ends(top: &mut OnTerminal) -> Option<i32> {
    let code = top.ends();
    top.shows("\u{1b}[?1049l");
    code
}

#[test]
fn the_live_view_ends_by_keys_and_signals_and_gives_the_terminal_back() {
    let pool = start("keys", 1, &[]);
    for key in ["q", "\u{1b}", "\u{3}"] {
        let mut top = live(&pool.name);
        top.shows("mem0");
        let modes = top.modes();
        assert!(!modes.contains(LocalModes::ICANON), "it has the terminal: {modes:?}");
        top.types(key);
        assert_eq!(ends(&mut top), Some(0), "{key:?}: {}", top.screen());
    }
    let mut top = live(&pool.name);
    top.shows("mem0");
    top.signal(Signal::TERM);
    assert_eq!(ends(&mut top), Some(0), "{}", top.screen());
}

#[test]
fn the_live_view_of_a_pool_that_vanishes_ends_with_a_message() {
    let pool = start("vanishes", 1, &[]);
    let mut top = live(&pool.name);
    top.shows("mem0");
    let name = pool.name.clone();
    drop(pool);
    assert_eq!(ends(&mut top), Some(1), "{}", top.screen());
    // It has ended; what it wrote last may still be on its way through the terminal.
    let message = format!("error: pool {name} is gone");
    top.shows(&message);
    let screen = top.screen();
    let (_, after) = screen.rsplit_once("\u{1b}[?1049l").unwrap();
    assert!(after.contains(&message), "{after}");
}

/// One that changes, where it is seen; a few where it is kept.
#[test]
fn progress_is_one_line_on_a_terminal_and_a_few_lines_in_a_pipe() {
    let tpcc = [&["tpcc", "--duration", "1"], &TINY[..]].concat();
    let mut driver = OnTerminal::run(&tpcc);
    let status = until("it does not end", || driver.child.try_wait().unwrap());
    assert!(status.success(), "{}", driver.screen());
    driver.shows("consistency: ok");
    let screen = driver.screen();
    for stage in ["load", "run", "check"] {
        let bars: Vec<_> = screen.match_indices(&format!("{stage} [")).map(|(at, _)| at).collect();
        assert!(!bars.is_empty() && !screen.contains(&format!("{stage}: ")), "{stage}: {screen:?}");
        let (first, last) = (bars[0], bars[bars.len() - 1]);
        assert!(!screen[first..last].contains('\n'), "{stage} is one line: {screen:?}");
    }
    let said = text(&run(&tpcc).stderr);
    assert!((2..=6).contains(&said.matches("run: ").count()), "{said}");
    assert!(!said.contains('\u{1b}') && !said.contains('\r'), "{said:?}");
}

/// Samples by name and labels.
type Samples = BTreeMap<String, f64>;

/// Reads the metrics of a server; refuses whatever is not as the format wants it.
#[track_caller]
fn scrape(address: &str) -> Samples {
    let (head, body) = get(address, "/metrics");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    let mut lines: Vec<_> = body.lines().collect();
    assert!(body.ends_with('\n') && lines.pop() == Some("# EOF"), "{body}");
    let (mut samples, mut families) = (Samples::new(), BTreeMap::new());
    let (mut helped, mut family, mut kind) = (None, "", "");
    for line in lines {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", name, help] => {
                assert!(help.len() > 5, "{line}");
                helped = Some(name);
            }
            ["#", "TYPE", name, of] => {
                assert_eq!(helped, Some(name), "{line}");
                assert!(["counter", "gauge"].contains(&of), "{line}");
                assert!(families.insert(name, of).is_none(), "twice: {line}");
                (family, kind) = (name, of);
            }
            ["#", "UNIT", name, unit] => {
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            }
            [sample, value] => {
                let (name, labels) = sample.split_once('{').unwrap();
                let labels = labels.strip_suffix('}').unwrap();
                let node = labels.strip_prefix("node=\"").and_then(|rest| rest.strip_suffix('"'));
                assert!(node.unwrap().starts_with(['c', 'm']), "{line}");
                let suffix = if kind == "counter" { "_total" } else { "" };
                assert!(name.starts_with("selkie_"), "{line}");
                assert_eq!(name, format!("{family}{suffix}"), "a sample without a type: {line}");
                let value: f64 = value.parse().unwrap();
                assert!(value.is_finite() && value >= 0.0, "{line}");
                assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
            }
            _ => panic!("what is this? {line}"),
        }
    }
    samples
}

/// Head and body of an answer.
pub(crate) fn get(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("chunked"), "{head}");
    (head.to_owned(), body.to_owned())
}

/// Where a process serves metrics.
#[track_caller]
pub(crate) fn address(running: &Process) -> String {
    let rest = running.says("metrics at http://");
    rest.strip_suffix("/metrics").unwrap().to_owned()
}

/// Waits until a counter is there, and then until it has grown.
#[track_caller]
fn grows(address: &str, counter: &str) {
    let value = || scrape(address).get(counter).copied();
    let first = until(&format!("{counter} is not there"), value);
    until(&format!("{counter} stays {first}"), || value().filter(|now| *now > first));
}

#[test]
fn metrics_of_a_driver_grow_while_it_runs() {
    let arguments = [&TPCC[..], &["--metrics", "127.0.0.1:0"]].concat();
    let driver = Process::start(&arguments);
    let address = address(&driver);
    for node in ["cn0", "cn1"] {
        for counter in ["operations", "hits", "misses", "round_trips", "atomics", "written_bytes"] {
            grows(&address, &format!("selkie_{counter}_total{{node=\"{node}\"}}"));
        }
    }
    let before = scrape(&address);
    let after = scrape(&address);
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    for (name, before) in before.iter().filter(|(name, _)| name.contains("_total{")) {
        assert!(after[name] >= *before, "{name}: {before}, then {}", after[name]);
    }
    let (head, _) = get(&address, "/");
    assert!(head.starts_with("HTTP/1.1 404"), "{head}");

    // A second process that wants the address fails before anything starts.
    let second = [&TPCC[..], &["--metrics", &address]].concat();
    refused(&second, 1, "Address already in use");
}

#[test]
fn metrics_of_a_memory_node_and_of_the_micro_benchmark() {
    let pool = start("metrics", 1, &["--metrics", "localhost:0"]);
    let address_of_memory = address(&pool.memory[0]);
    let lent = "selkie_memory_lent_bytes{node=\"mem0\"}";
    let lent = until("it has not joined", || scrape(&address_of_memory).get(lent).copied());
    assert!(lent > f64::from(100 << 20), "{lent}");
    grows(&address_of_memory, "selkie_cpu_seconds_total{node=\"mem0\"}");

    let micro = ["micro", "--gcls", "1000", "--duration-ms", "600000", "--metrics", "[::1]:0"];
    let has_ipv6 = std::net::TcpListener::bind("[::1]:0").is_ok();
    let micro = if has_ipv6 {
        micro
    } else {
        micro.map(|a| if a == "[::1]:0" { "127.0.0.1:0" } else { a })
    };
    let micro = Process::start(&micro);
    grows(&address(&micro), "selkie_operations_total{node=\"cn1\"}");
}

#[test]
fn metrics_that_others_could_read_or_that_mean_nothing_are_refused() {
    let open = [&TPCC[..], &["--metrics", "0.0.0.0:0"]].concat();
    refused(&open, 2, "that takes --insecure");
    let driver = Process::start(&[&open[..], &["--insecure"]].concat());
    let port = address(&driver).rsplit_once(':').unwrap().1.to_owned();
    scrape(&format!("127.0.0.1:{port}"));
    let virtual_time = run(&["micro", "--sim", "paper", "--metrics", "127.0.0.1:0"]);
    assert_eq!(virtual_time.status.code(), Some(2));
    assert!(text(&virtual_time.stderr).contains("cannot be used with"));
}
