//! Pools that processes share: one database for all, and what is refused.

use rustix::process::Signal;
use serde_json::Value;

use crate::drivers::{ends_well, running, setup};
use crate::harness::{Over, Pool, Process, Setup, prints, refused, run, succeeds, text};

#[test]
fn drivers_of_several_processes_share_one_database() {
    drivers_share(Over::Shm);
}

#[test]
fn drivers_of_several_processes_share_one_database_over_tcp() {
    drivers_share(Over::Tcp);
}

fn drivers_share(over: Over) {
    let pool = Pool::start(&setup(over, "shared", 3));
    let arguments = pool.tpcc(&["--duration", "2", "--json"]);
    let drivers = [0; 3].map(|_| Process::start(&arguments));
    let mut loads = 0;
    for mut driver in drivers {
        let (code, error) = driver.ends();
        assert_eq!(code, Some(0), "{error}");
        loads += usize::from(error.contains("loaded "));
        let report = driver.reports();
        assert_eq!(report["consistency"], "ok");
        assert!(report["tps"].as_f64().unwrap() > 0.0);
        assert_eq!(report["config"]["memory_nodes"], 3);
    }
    assert_eq!(loads, 1, "one loads, the others wait");
    assert_eq!(pool.status()["compute_nodes"], Value::Array(Vec::new()), "all have left");

    // The database is still there for drivers that come later, and only for those that want this
    // one.
    let later = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(later["consistency"], "ok");
    let seed = pool.tpcc(&["--duration", "1", "--seed", "5"]);
    refused(&seed, 2, "--seed 5: the pool holds a database of seed 1");
}

#[test]
fn load_only_leaves_a_database_behind() {
    let pool = Pool::start(&setup(Over::Shm, "load", 1));
    succeeds(&pool.tpcc(&["--load-only"]));
    let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
    assert!(label.contains("complete"), "{label}");
    let again = run(&pool.tpcc(&["--load-only"]));
    assert!(text(&again.stderr).contains("loaded already"));
    succeeds(&pool.tpcc(&["--duration", "1"]));
}

#[test]
fn without_room_for_logs_a_driver_must_ask_to_run_without() {
    let create = &["--log-size", "0"];
    let pool = Pool::start(&Setup { create, ..setup(Over::Shm, "no-logs", 1) });
    let why = "must be none, or disk with --log-dir: the pool was made without room for logs";
    refused(&pool.tpcc(&["--load-only"]), 2, why);
    refused(&pool.tpcc(&["--load-only", "--durability", "memory"]), 2, why);
    let asked = ["--durability", "none", "--duration", "1", "--json"];
    let report = prints(&pool.tpcc(&asked));
    assert_eq!(report["config"]["durability"], "none");
    assert_eq!(report["config"]["log_bytes"], 0);
    assert_eq!(pool.compute_nodes(), [0; 0]);
}

#[test]
fn with_room_for_logs_drivers_use_them_and_memory_nodes_are_larger() {
    let pool = Pool::start(&setup(Over::Shm, "logs", 1));
    let report = prints(&pool.tpcc(&["--duration", "1", "--json"]));
    assert_eq!(report["config"]["durability"], "memory");
    assert_eq!(report["config"]["log_bytes"], 8 << 20);
    let small = Pool::without_memory(&setup(Over::Shm, "small", 1));
    let lend = ["memnode", "--pool", &small.name, "--memory", "100M"];
    refused(
        &lend,
        2,
        "--memory 100.0 MiB is not allowed: at least 133M, what one range of this size needs, and 128M for logs \
         (8M for each of 16 compute nodes: --log-size and --max-compute-nodes of `selkie pool create`)",
    );
}

#[test]
fn a_database_is_replaced_unless_others_work_on_it() {
    let pool = Pool::start(&setup(Over::Shm, "reload", 2));
    // The first of a pool needs nothing to replace.
    succeeds(&pool.tpcc(&["--load-only", "--reload"]));
    let database = || -> Value {
        let label = pool.status()["labels"]["tpcc.database"].as_str().unwrap().to_owned();
        serde_json::from_str::<Value>(&label).unwrap()["complete"].clone()
    };
    assert_eq!((&database()["generation"], &database()["abandoned_bytes"]), (&1.into(), &0.into()));
    let (driver, _) = running(&pool);
    let before = database();
    refused(
        &pool.tpcc(&["--load-only", "--reload"]),
        1,
        "another driver works on the database: it cannot be replaced now",
    );
    assert_eq!(database(), before, "the refused one leaves no trace");
    driver.signal(Signal::TERM);
    ends_well(driver);

    // Who says no number of warehouses means those that are there.
    let unsaid = ["tpcc", "--pool", &pool.url, "--scale", "100", "--duration", "1", "--json"];
    let report = prints(&unsaid);
    assert_eq!(
        (&report["consistency"], &report["config"]["warehouses"]),
        (&"ok".into(), &1.into())
    );
    let said = "--warehouses 2: the pool holds a database of 1 warehouse";
    refused(&[&unsaid[..], &["--warehouses", "2"]].concat(), 2, said);
    let home = "--homes 1-2: must be a range within 1-1";
    refused(&[&unsaid[..], &["--homes", "1-2"]].concat(), 2, home);

    // Neither is there room for one like this, of some gigabytes.
    let large = ["--warehouses", "40", "--load-only", "--reload"];
    refused(&[&["tpcc", "--pool", &pool.url], &large[..]].concat(), 1, "no room for a new");
    assert_eq!(database(), before, "what is there stays as it is");
    succeeds(&pool.tpcc(&["--duration", "1"]));

    let seed = ["--load-only", "--reload", "--seed", "5"];
    let output = run(&pool.tpcc(&seed));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("a new database takes the place"));
    assert_eq!((&database()["generation"], &database()["shape"]["seed"]), (&2.into(), &5.into()));
    assert!(database()["abandoned_bytes"].as_u64().unwrap() > 1 << 20, "{}", database());
    refused(&pool.tpcc(&["--duration", "1"]), 2, "--seed 1: the pool holds");
    let report = prints(&pool.tpcc(&["--duration", "1", "--seed", "5", "--json"]));
    assert_eq!(report["consistency"], "ok");
    // What it takes is told without what the old one takes, on which a driver has worked.
    let own = report["database_bytes"].as_u64().unwrap();
    let abandoned = database()["abandoned_bytes"].as_u64().unwrap();
    assert!(own > 1 << 19 && own < abandoned / 2, "{own} and {abandoned}");
}

#[test]
fn bad_pools_are_refused_and_nothing_is_left_behind() {
    let name = format!("test-bad-{}", std::process::id());
    let url = format!("shm:{name}");
    let lend = |memory: &str, code, expected: &str| {
        refused(&["memnode", "--pool", &name, "--memory", memory], code, expected);
    };
    lend("10M", 1, "no pool `");
    refused(&["pool", "status", &name], 1, "no pool `");
    refused(&["pool", "destroy", &name], 1, "no pool `");
    refused(&["tpcc", "--pool", &url], 1, "no pool `");
    refused(&["pool", "create", &name, "--memory-nodes", "0"], 2, "--memory-nodes 0 is");
    refused(&["pool", "create", &name, "--gcl", "1000"], 2, "--gcl 1000 is not");
    let splits = ["pool", "create", &name, "--memory-nodes", "2", "--coding", "2+1"];
    refused(
        &splits,
        2,
        "--coding 2+1 is not allowed: at most as many splits as there are memory nodes, 2; this has 3",
    );
    let directories = || {
        let entries = std::fs::read_dir("/dev/shm").unwrap();
        entries
            .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().contains(&name))
            .count()
    };
    assert_eq!(directories(), 0, "nothing is made by looking for it");

    succeeds(&["pool", "create", &name, "--memory-nodes", "1", "--log-size", "0"]);
    refused(&["pool", "create", &name], 1, "on this host already");
    lend("100K", 2, "--memory 100.0 KiB is not allowed: at least");
    lend("64T", 1, "64.0 TiB of memory are to be lent, and ");
    let domain = ["memnode", "--pool", &name, "--memory", "40M", "--domain", "rack 7"];
    let output = run(&domain);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("1 to 64 letters, digits"), "{}", text(&output.stderr));
    refused(&["tpcc", "--pool", &url, "--gcl", "4096"], 2, "--gcl 4096: is that of the pool");
    refused(&["tpcc", "--pool", &url, "--memory-nodes", "2"], 2, "--memory-nodes 2: is that of");
    refused(&["tpcc", "--pool", &url, "--affinity", "warehouse"], 2, "--affinity warehouse");
    refused(&["tpcc", "--load-only"], 2, "--load-only");
    refused(&["tpcc", "--reload"], 2, "--reload");
    for bad in ["shm:a/b", "shm:", "mem:", "a b", "tcp:x"] {
        let output = run(&["tpcc", "--pool", bad]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("--pool <URL>"), "{}", text(&output.stderr));
    }
    refused(
        &["memnode", "--pool", &name, "--memory", "40M", "--fabric", "tcp"],
        1,
        "uses fabric shm, not tcp",
    );
    let listen = ["memnode", "--pool", &name, "--memory", "40M", "--listen", "127.0.0.1:0"];
    refused(&listen, 1, "are for pools over TCP");
    let unserved = "tcp:127.0.0.1:1";
    refused(&["tpcc", "--pool", unserved], 1, "127.0.0.1:1");
    refused(&["tpcc", "--pool", "etcd:127.0.0.1:1/x"], 1, "etcd");
    refused(&["tpcc", "--listen", "127.0.0.1:0"], 2, "are for pools over TCP");
    let open = ["memnode", "--pool", &name, "--memory", "40M", "--listen", "0.0.0.0:7000"];
    refused(&open, 2, "is not a loopback address");
    succeeds(&["pool", "destroy", &name]);

    succeeds(&["pool", "create", &name, "--fabric", "tcp", "--log-size", "0"]);
    refused(&["tpcc", "--pool", &url], 1, "uses fabric tcp, not shm");
    lend("64T", 1, "64.0 TiB of memory are to be lent, and ");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let listen = ["memnode", "--pool", &name, "--memory", "40M", "--listen", &taken];
    refused(&listen, 1, "cannot listen at");
    let timing = ["pool", "create", "x", "--lease", "100ms", "--heartbeat", "50ms"];
    refused(&timing, 2, "--lease 100ms is not allowed: 200ms (4 heartbeats) to");
    succeeds(&["pool", "destroy", &name]);
    assert_eq!(directories(), 0);
}
