//! Memory nodes that join, leave, die, and give memory back, while drivers work.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::drivers::{ends_well, ends_with, running, setup};
use crate::harness::{Over, Pool, Process, Setup, fails, prints, refused, succeeds, until};

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
    let mut pool = Pool::start(&Setup { create: &["--range", "64M"], ..setup(over, "drain", 4) });
    // It works until the slab has moved, and longer.
    let (working, _) = running(&pool);
    let (code, told) = Process::start(&["pool", "drain", &pool.name, "mem2"]).ends();
    assert!(code == Some(0) && told.contains("to be moved"), "{code:?}: {told}");
    let node = pool.status()["memory_nodes"][2].clone();
    let left = (&node["left"], &node["slabs_used"], &node["lives"]);
    assert_eq!(left, (&Value::Bool(true), &Value::from(0), &Value::Bool(false)), "{node}");
    working.signal(Signal::TERM);
    ends_well(working);
    let status = until("the process of the node that left ends", || pool.memory[2].end());
    assert!(status.success(), "{status}");
    refused(
        &["pool", "drain", &pool.name, "0"],
        1,
        "2 memory nodes in 2 failure domains would stay",
    );
    // Nothing is missing without it, and without one more.
    pool.memory[1].kill();
    succeeds(&pool.tpcc(&["--duration", "2"]));
}

#[test]
fn a_driver_outlives_a_memory_node() {
    memory_is_lost(Over::Shm);
}

/// Over TCP a dead node looks like a slow one until its heartbeats are missed.
#[test]
fn a_driver_outlives_a_memory_node_over_tcp() {
    memory_is_lost(Over::Tcp);
}

fn memory_is_lost(over: Over) {
    let mut pool = Pool::start(&Setup { create: &["--range", "64M"], ..setup(over, "loss", 4) });
    let (driver, node) = running(&pool);
    let used = |pool: &Pool| {
        let nodes = pool.status()["memory_nodes"].clone();
        (0..4).map(|node| nodes[node]["slabs_used"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    // Over TCP the first is the way to the pool's files.
    let victim = (1..4).find(|node| used(&pool)[*node] > 0).unwrap();
    pool.memory[victim].kill();
    until("what was lost is made again", || (used(&pool)[victim] == 0).then_some(()));
    pool.works(node, "operations");
    driver.signal(Signal::TERM);
    ends_well(driver);
}

/// Stopped for about as long as a lease, a memory node is taken for dead or is not, and links to it
/// end or do not: no driver may end.
#[test]
fn a_driver_outlives_memory_nodes_that_stand_still_over_tcp() {
    let pool = Pool::start(&Setup { create: &["--range", "64M"], ..setup(Over::Tcp, "still", 5) });
    let (driver, node) = running(&pool);
    for (victim, millis) in [(3, 2_100), (2, 2_300)] {
        pool.memory[victim].signal(Signal::STOP);
        std::thread::sleep(Duration::from_millis(millis));
        pool.memory[victim].signal(Signal::CONT);
        pool.works(node, "operations");
        // One at a time is what the coding can spare.
        until("all is whole", || {
            let status = pool.status();
            let nodes = status["memory_nodes"].as_array().unwrap();
            let is_in_use = |node: &&Value| node["lives"] == false && node["slabs_used"] != 0;
            (!nodes.iter().any(|node| is_in_use(&node))).then_some(())
        });
    }
    driver.signal(Signal::TERM);
    ends_well(driver);
    let late = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(late["consistency"], "ok", "{late}");
}

/// It is told of by the others, of whom no silence condemns more than the coding can spare.
#[test]
fn a_memory_node_that_stood_still_over_tcp_says_for_how_long_and_what_helps() {
    let create = &["--lease", "1s", "--log-size", "1M", "--max-compute-nodes", "4"];
    let setup = Setup { test: "late", over: Over::Tcp, memory_nodes: 4, ..Setup::default() };
    let mut pool = Pool::start(&Setup { memory: "100M", create, ..setup });
    pool.memory[3].signal(Signal::STOP);
    until("it is taken for dead", || {
        (pool.status()["memory_nodes"][3]["dead"] == true).then_some(())
    });
    pool.memory[3].signal(Signal::CONT);
    let (code, said) = pool.memory[3].ends();
    let last = said.lines().last().unwrap();
    assert_eq!(code, Some(1), "{said}");
    assert!(last.starts_with("error: the pool has declared mem3 dead: for "), "{said}");
    let cause = " s it could not show that it lives, and the lease of the pool is 1 s; ";
    assert!(last.contains(cause) && last.contains("`selkie pool create --lease`"), "{said}");
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
    let mut pool = Pool::start(&setup(over, "join", 3));
    succeeds(&pool.tpcc(&["--load-only"]));
    let (driver, _) = running(&pool);
    let known = if over == Over::Shm { pool.name.clone() } else { pool.url.clone() };
    // More than the others lend.
    let (joined, line) = Process::lends(&["memnode", "--pool", &known, "--memory", "600M"]);
    assert!(line.starts_with("mem3 of pool"), "{line}");
    pool.memory.push(joined);
    until("a slab moves there", || {
        (pool.status()["memory_nodes"][3]["slabs_used"] != 0).then_some(())
    });
    driver.signal(Signal::TERM);
    ends_well(driver);
    // Its room is needed without one of the first.
    pool.memory[1].kill();
    let late = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(late["consistency"], "ok", "{late}");
}

#[test]
fn a_memory_node_whose_host_is_short_of_memory_gives_it_back_while_a_driver_works() {
    // One range, so that there is no need for another when there are too few memory nodes for that.
    // Logs stay where they are.
    let logs = ["--log-size", "1M", "--max-compute-nodes", "4"];
    let create = &[&["--range", "64M", "--coding", "2+1"], &logs[..]].concat();
    let mut pool = Pool::without_memory(&Setup { create, ..setup(Over::Shm, "evict", 4) });
    let name = pool.name.clone();
    // More than any host has: it gives back what it can. It stands still until there is something,
    // and is the first choice of new ranges until then.
    let short = ["--memory", "500M", "--headroom", "999T"];
    for more in [&["--memory", "400M"][..], &["--memory", "400M"], &["--memory", "400M"], &short] {
        let (running, _) = Process::lends(&[&["memnode", "--pool", &name], more].concat());
        pool.memory.push(running);
    }
    let warned = pool.memory[3].finds("WARN");
    assert!(warned.contains("--headroom 999.0 TiB: this host has "), "{warned}");
    pool.memory[3].signal(Signal::STOP);
    let (driver, _) = running(&pool);
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
    let now = until("the memory is given back", || {
        let now = node();
        (now["slabs_withdrawn"] == now["slabs"] && taken() < 8 << 20).then_some(now)
    });
    assert_eq!((&now["slabs_used"], &now["slabs_evicting"]), (&0.into(), &0.into()));
    let told = succeeds(&["pool", "status", &name]);
    assert!(told.contains("not lent"), "{told}");
    driver.signal(Signal::TERM);
    ends_well(driver);
    // It is not needed, and one of the others is not either.
    pool.memory[3].kill();
    pool.memory[0].kill();
    let later = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(later["consistency"], "ok", "{later}");
}

#[test]
fn a_pool_whose_memory_nodes_keep_all_back_is_not_called_healthy() {
    let create = &["--range", "16M", "--coding", "2+1", "--log-size", "0"];
    let mut pool = Pool::without_memory(&Setup { create, ..setup(Over::Shm, "withheld", 3) });
    let name = pool.name.clone();
    // Without one of them there are too few for a page.
    for headroom in [&[][..], &[], &["--headroom", "999T"]] {
        let lend = [&["memnode", "--pool", &name, "--memory", "40M"], headroom].concat();
        pool.memory.push(Process::lends(&lend).0);
    }
    until("all is kept back", || (pool.status()["usable_bytes"] == 0).then_some(()));
    let status = pool.status();
    assert_eq!(status["verdict"], "degraded", "{status}");
    let told = succeeds(&["pool", "status", &name]);
    assert!(told.contains(": degraded: no memory is usable, as memory nodes keep"), "{told}");
    assert!(told.contains("than the nodes' --headroom"), "{told}");
}

#[test]
fn a_memory_node_that_is_to_give_memory_back_is_refused_by_a_plain_pool() {
    let name = format!("test-headroom-{}", std::process::id());
    succeeds(&["pool", "create", &name, "--memory-nodes", "1"]);
    let lend = ["memnode", "--pool", &name, "--memory", "40M", "--headroom", "1G"];
    refused(&lend, 2, "--headroom 1.0 GiB is not allowed: in a pool of coding plain");
    succeeds(&["pool", "destroy", &name]);
}

#[test]
fn a_pool_that_lost_a_memory_node_is_refused() {
    let mut pool = Pool::start(&setup(Over::Shm, "lost", 2));
    succeeds(&pool.tpcc(&["--load-only"]));
    pool.memory[1].kill();
    let lives: Vec<_> = pool.status()["memory_nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["lives"].clone())
        .collect();
    assert_eq!(lives, [Value::Bool(true), Value::Bool(false)]);
    refused(&pool.tpcc(&["--duration", "1"]), 1, "memory node 1 of the pool is dead");
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
    let mut pool = Pool::start(&setup(over, "death", 2));
    succeeds(&pool.tpcc(&["--load-only"]));
    let (driver, _) = running(&pool);
    pool.memory[0].kill();
    ends_with(driver, &["peer mem0 is dead"]);
}

/// The memory that a process lends is advised to have huge pages, where the kernel has them.
fn has_advice(process: u32) {
    let maps = std::fs::read_to_string(format!("/proc/{process}/smaps")).unwrap_or_default();
    let has_huge_pages = std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists();
    if !has_huge_pages || !maps.contains("VmFlags:") {
        eprintln!("not looked at: this kernel has no transparent huge pages, or does not tell");
        return;
    }
    let mut kib = 0;
    let advised = maps.lines().any(|line| {
        if let Some(size) = line.strip_prefix("Size:") {
            kib = size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
        }
        let flags = line.strip_prefix("VmFlags:").unwrap_or_default();
        kib >= 290 << 10 && flags.split_whitespace().any(|flag| flag == "hg")
    });
    assert!(advised, "{maps}");
}

#[test]
fn memory_is_taken_before_it_is_lent_or_refused_with_what_is_free() {
    for (over, kind) in [(Over::Shm, "RssShmem:"), (Over::Tcp, "RssAnon:")] {
        let setup = Setup { memory_nodes: 1, memory: "300M", ..setup(over, "taken", 1) };
        let pool = Pool::start(&setup);
        let status = format!("/proc/{}/status", pool.memory[0].id());
        let status = std::fs::read_to_string(status).unwrap();
        let taken = status.lines().find_map(|line| line.strip_prefix(kind)).unwrap();
        let taken: u64 = taken.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        assert!(taken >= 290 << 10, "{taken} KiB of {kind} when it says that it lends");
        has_advice(pool.memory[0].id());
        drop(pool);
        let pool = Pool::without_memory(&Setup { test: "too-much", ..setup });
        let lend = ["memnode", "--pool", &pool.name, "--memory", "64T"];
        let said = fails(&lend, 1, " free");
        assert!(said.contains(": 64.0 TiB of memory are to be lent, and "), "{said}");
        assert!(pool.status()["memory_nodes"][0]["domain"].is_null(), "it has not joined");
    }
}
