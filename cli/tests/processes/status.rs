//! What `pool status` and `pool list` say of pools that are whole, degraded and lost; and a drain
//! while slabs move.

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Pool, Process, Setup, TINY, fails, prints, refused, succeeds, until};

/// A pool whose memory nodes keep little beside pages, so that they start fast.
#[track_caller]
fn start(test: &str, memory_nodes: usize, create: &[&str]) -> Pool {
    let logs = ["--log-size", "1M", "--max-compute-nodes", "4"];
    let create = &[&logs[..], create].concat();
    Pool::start(&Setup { test, memory_nodes, memory: "100M", create, ..Setup::default() })
}

#[track_caller]
fn status(pool: &Pool) -> String {
    succeeds(&["pool", "status", &pool.name])
}

#[track_caller]
fn first_line(pool: &Pool) -> String {
    status(pool).lines().next().unwrap().to_owned()
}

#[track_caller]
fn starts(text: &str, start: &str) {
    assert!(text.starts_with(start), "{text:?} does not start with {start:?}");
}

#[test]
fn the_first_line_is_the_verdict_and_the_next_says_what_helps() {
    let mut pool = start("verdict", 3, &["--range", "1M"]);
    let name = pool.name.clone();
    starts(&first_line(&pool), &format!("pool {name}: healthy: 1 memory node can be lost"));
    succeeds(&pool.tpcc(&["--load-only"]));

    pool.memory[1].kill();
    let told = status(&pool);
    starts(&told, &format!("pool {name}: degraded: mem1 is gone; "));
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].contains("for which there is no place; no further memory node"), "{told}");
    assert!(lines[1].contains(&format!("`selkie memnode --pool {name} --memory SIZE`")), "{told}");
    assert!(told.contains("in use no more: mem1 (dead: its process is gone)"), "{told}");
    let seen = pool.status();
    assert_eq!((&seen["verdict"], &seen["spare_memory_nodes"]), (&"degraded".into(), &0.into()));
    assert!(seen["slabs_to_rebuild"].as_u64().unwrap() > 0, "{seen}");
    let help = seen["help"][0].as_str().unwrap();
    assert!(help.contains("selkie memnode"), "{seen}");

    // What it says helps.
    let (joined, _) = Process::lends(&["memnode", "--pool", &name, "--memory", "100M"]);
    pool.memory.push(joined);
    let told = status(&pool);
    assert!(told.contains("no compute node is in the pool to rebuild them"), "{told}");
    let people = ["--think", "--duration", "600"];
    let driver = Process::start(&pool.tpcc(&people));
    until("it is whole again", || first_line(&pool).contains(": healthy: ").then_some(()));
    driver.signal(Signal::TERM);
    driver.ends_well();

    for node in &mut pool.memory {
        node.kill();
    }
    let told = status(&pool);
    starts(&told, &format!("pool {name}: lost: all memory is gone"));
    assert!(told.contains("\nmemory: none, as all that was lent is gone\n"), "{told}");
    let seen = pool.status();
    assert_eq!((&seen["usable_bytes"], &seen["used_bytes"]), (&0.into(), &0.into()), "{seen}");
    assert!(
        told.contains("`selkie recover") && told.contains(&format!("destroy {name}`")),
        "{told}"
    );
}

#[test]
fn a_pool_whose_driver_was_killed_is_not_healthy() {
    let pool = start("crashed", 3, &[]);
    let name = pool.name.clone();
    let people = pool.tpcc(&["--think", "--duration", "600", "--workers", "1"]);
    let mut driver = Process::start(&people);
    driver.says("run: 0 %");
    starts(&first_line(&pool), &format!("pool {name}: healthy: "));
    driver.kill();
    let told = status(&pool);
    starts(&told, &format!("pool {name}: degraded: 1 memory node can be lost; cn0 is dead\n"));
    assert!(told.contains("the next compute node that comes in recovers what died"), "{told}");
    // It is in no row of the table.
    assert!(told.ends_with("in use no more: cn0 (dead: its process is gone)\n"), "{told}");
    assert!(!told.contains("│ cn0"), "{told}");
    succeeds(&pool.tpcc(&["--duration", "1"]));
    starts(&first_line(&pool), &format!("pool {name}: healthy: "));
}

/// `memnode`, `pool status`, `pool list` and `top` say the same of one pool.
#[test]
fn sizes_are_the_same_wherever_they_are_shown() {
    let mut pool = Pool::without_memory(&Setup { test: "sizes", ..Setup::default() });
    let name = pool.name.clone();
    starts(
        &first_line(&pool),
        &format!("pool {name}: incomplete: 0 of 3 memory nodes have joined"),
    );
    let more = format!("`selkie memnode --pool {name} --memory SIZE` adds a memory node: 3 more");
    assert!(status(&pool).contains(&more), "{}", status(&pool));
    let lend = ["memnode", "--pool", &name, "--memory", "300M"];
    let lent: Vec<_> = (0..3)
        .map(|_| {
            let (process, line) = Process::lends(&lend);
            pool.memory.push(process);
            line.split_once(" lends ").unwrap().1.split(',').next().unwrap().to_owned()
        })
        .collect();
    succeeds(&pool.tpcc(&["--load-only"]));
    let (told, seen) = (status(&pool), pool.status());
    let rows = |text: &str| text.matches(&format!(" {} ", lent[0])).count();
    assert_eq!((lent.len(), rows(&told)), (3, 3), "{lent:?}: {told}");
    let nodes = seen["memory_nodes"].as_array().unwrap();
    let of = |node: &Value, key: &str| node[key].as_u64().unwrap();
    assert_eq!(seen["lent_bytes"], nodes.iter().map(|node| of(node, "lent_bytes")).sum::<u64>());
    let (lent, usable, used) =
        (of(&seen, "lent_bytes"), of(&seen, "usable_bytes"), of(&seen, "used_bytes"));
    assert!(0 < used && used < usable && usable < lent, "{seen}");
    // Each row is rounded, and by less than a byte.
    let rows_used = nodes.iter().map(|node| of(node, "used_bytes")).sum::<u64>();
    assert!(used - rows_used < 3, "{seen}");
    let line = told.lines().find(|line| line.starts_with("memory: ")).unwrap();
    let parts: Vec<_> = line.trim_start_matches("memory: ").split(", ").collect();
    assert!(parts.len() == 3 && parts[0].ends_with("iB lent"), "{line}");
    assert!(parts[1].ends_with("iB of it usable for pages"), "{line}");
    assert!(parts[2].contains("iB (") && parts[2].ends_with(" %) used"), "{line}");
    let run = pool.tpcc(&["--duration", "1"]);
    let report = succeeds(&run);
    assert!(report.starts_with("process "), "drivers may share a terminal: {report}");
    let each = format!("3, {} each ", units_of(&told, "mem0"));
    assert!(report.contains(&each), "{each:?}: {report}");
    let (told, seen) = (status(&pool), pool.status());
    let nodes = seen["memory_nodes"].as_array().unwrap();
    let top = until("they have reported, since the load", || {
        let top = pool.top();
        let rows = top["memory_nodes"].as_array().unwrap().clone();
        let both = || rows.iter().zip(nodes);
        both().all(|(top, seen)| top["leased_bytes"] == seen["used_bytes"]).then_some(rows)
    });
    for (of_top, of_status) in top.iter().zip(nodes) {
        assert_eq!(of_top["lent_bytes"], of_status["lent_bytes"], "{of_top}");
    }
    let listed = prints(&["pool", "list", "--json"]);
    let own = listed.as_array().unwrap().iter().find(|pool| pool["pool"] == name).unwrap();
    for key in ["id", "verdict", "lent_bytes", "usable_bytes", "used_bytes", "made_unix_s"] {
        assert_eq!(own[key], seen[key], "{key}: {own}");
    }
    // By the name and the date, a person knows it.
    let id = seen["id"].as_str().unwrap();
    assert!(told.contains(&format!("UTC, id {id}, fabric shm")), "{told}");
    let table = succeeds(&["pool", "list"]);
    let row = table.lines().find(|line| line.contains(&format!(" {name} "))).unwrap();
    for word in ["healthy", "UTC", "shm", "2+1"] {
        assert!(row.contains(word), "{word}: {row}");
    }
}

/// What the row of a memory node says that it lends.
#[track_caller]
fn units_of(told: &str, node: &str) -> String {
    let row = told.lines().find(|line| line.contains(&format!(" {node} "))).unwrap();
    row.split('┆').nth(2).unwrap().trim().to_owned()
}

#[test]
fn a_drain_that_waits_for_a_compute_node_is_seen_and_told_what_helps() {
    let pool = start("drained", 4, &["--range", "1M"]);
    let name = pool.name.clone();
    succeeds(&pool.tpcc(&["--load-only"]));
    succeeds(&["pool", "drain", &name, "mem2", "--no-wait"]);
    let told = status(&pool);
    let lines: Vec<_> = told.lines().collect();
    assert!(lines[0].ends_with("; mem2 is not being emptied"), "{told}");
    assert!(lines[1].contains("slabs wait for a compute node that moves them"), "{told}");
    assert!(lines[1].contains(&format!("`selkie tpcc --pool {name}`")), "{told}");
    // It helps, and then there is nothing to be said.
    let driver = Process::start(&pool.tpcc(&["--think", "--duration", "600"]));
    until("it has left", || status(&pool).contains("mem2 (has left)").then_some(()));
    assert!(first_line(&pool).ends_with("1 memory node can be lost"), "{}", status(&pool));
    driver.signal(Signal::TERM);
    driver.ends_well();
}

#[test]
fn who_waits_for_a_process_that_changes_the_pool_is_told_which_and_not_for_ever() {
    let pool = start("locked", 4, &["--range", "1M"]);
    let lock = lock_of(&pool.name);
    lock.lock().unwrap();
    let why =
        format!("process {} has been replacing the state of the pool for 5 s", std::process::id());
    let said = fails(&["pool", "drain", &pool.name, "mem2", "--no-wait"], 1, &why);
    assert!(said.lines().last().unwrap().ends_with("; if it hangs, end it"), "{said}");
    let notice = format!(
        "has waited for 1 s, and for 5 s at most, for process {}, which replaces the state of the pool (",
        std::process::id()
    );
    assert!(said.contains(&notice), "{said}");
    lock.unlock().unwrap();
    succeeds(&["pool", "drain", &pool.name, "mem2", "--no-wait"]);
}

/// What processes lock while they change the state of a pool in shared memory.
fn lock_of(pool: &str) -> std::fs::File {
    let directories = std::fs::read_dir("/dev/shm").unwrap();
    let directories = directories.map(|own| own.unwrap().path());
    let own = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(&format!("-{pool}"));
    let lock = directories.filter(own).map(|path| path.join("state.lock"));
    std::fs::File::open(lock.into_iter().find(|path| path.exists()).unwrap()).unwrap()
}

/// Whether a process is changing the state of a pool in shared memory.
fn holds_state(pool: &str) -> bool {
    lock_of(pool).try_lock().is_err()
}

/// The slab on its way had two places, and the drain was refused for lack of room for one.
#[test]
fn a_drain_while_slabs_move_to_a_node_that_has_just_joined_is_accepted() {
    // While the driver stands still no node takes it for dead.
    let mut pool = start("drains", 3, &["--range", "1M", "--lease", "5min"]);
    let name = pool.name.clone();
    succeeds(&pool.tpcc(&["--load-only"]));
    let people = ["--think", "--duration", "600", "--workers", "1"];
    let driver = Process::start(&[&["tpcc", "--pool", &pool.url], &TINY[..], &people].concat());
    driver.says("run: 0 %");
    // As many slabs as each of the others has: room for those of one of them, and for no more.
    let seen = pool.status();
    let of = |key: &str| seen["memory_nodes"][0][key].as_u64().unwrap();
    let spare = of("slabs") - of("slabs_used");
    let slab = seen["slab_bytes"].as_u64().unwrap();
    let memory = (of("lent_bytes") - spare * slab).to_string();
    let (joined, _) = Process::lends(&["memnode", "--pool", &name, "--memory", &memory]);
    pool.memory.push(joined);
    // While a slab is on its way nothing moves but by the driver.
    until("a slab is on its way", || {
        driver.signal(Signal::STOP);
        // It may stand still while it changes the state, which no other process can change then.
        let is_stuck = holds_state(&name);
        let is_moving = !is_stuck && pool.status()["moving"] == true;
        if !is_moving {
            driver.signal(Signal::CONT);
        }
        is_moving.then_some(())
    });
    let told = status(&pool);
    assert!(told.contains("moves from mem") && told.contains(" to mem3"), "{told}");
    succeeds(&["pool", "drain", &name, "mem0", "--no-wait"]);
    assert_eq!(pool.status()["memory_nodes"][0]["leaves"], true);
    // There is no room for another.
    refused(&["pool", "drain", &name, "mem1"], 1, "2 memory nodes in 2 failure domains would stay");
    driver.signal(Signal::CONT);
    until("it leaves", || (pool.status()["memory_nodes"][0]["left"] == true).then_some(()));
    driver.signal(Signal::TERM);
    driver.ends_well();
    assert!(status(&pool).contains("in use no more: mem0 (has left)"));
}
