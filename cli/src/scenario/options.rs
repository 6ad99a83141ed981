//! How the processes of a scenario are started: arguments of this program.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::{DriverSection, DurabilityKind, FabricKind, Homes, NetworkKind};
use super::fit::{self, mib, whole_seconds};
use super::namespaces;
use super::plan::{FaultTarget, Plan, PlannedDriver};

/// What makes the pool.
pub(crate) fn create(plan: &Plan, pool: &str) -> Vec<String> {
    let file = &plan.file;
    let fabric = if file.fabric == FabricKind::Tcp { "tcp" } else { "shm" };
    let time = |time: Duration| format!("{}ms", time.as_millis());
    let mut arguments = words(&["pool", "create", pool, "--fabric", fabric]);
    arguments.extend(option("--memory-nodes", file.memory.nodes));
    arguments.extend(option("--gcl", file.pool.gcl));
    arguments.extend(option("--range", fit::shape(file).range_bytes));
    arguments.extend(option("--coding", file.pool.coding));
    arguments.extend(option("--lease", time(file.pool.lease.0.0)));
    arguments.extend(option("--heartbeat", time(file.pool.heartbeat.0.0)));
    if !file.pool.has_logs() {
        arguments.extend(option("--log-size", 0));
    }
    arguments
}

/// The memory node of this position.
pub(crate) fn memory(plan: &Plan, pool: &str, position: usize) -> Vec<String> {
    let mut arguments = words(&["memnode", "--pool", pool]);
    arguments.extend(option("--memory", plan.file.memory.size.0.0));
    arguments.extend(listen(plan, position));
    arguments
}

/// What loads the database. Its place in the network is that of the first driver, which has not
/// started yet.
pub(crate) fn load(plan: &Plan, url: &str) -> Vec<String> {
    let mut arguments = tpcc(plan);
    arguments.extend(words(&["--pool", url, "--load-only"]));
    arguments.extend(listen(plan, plan.place(FaultTarget::Driver(0))));
    arguments
}

/// What looks for all that drivers noted in these files, in the place of the first driver, which
/// has ended.
pub(crate) fn verify(plan: &Plan, url: &str, records: &[PathBuf]) -> Vec<String> {
    let mut arguments = tpcc(plan);
    arguments.extend(words(&["--pool", url, "--duration", "1", "--workers", "1", "--json"]));
    for record in records {
        arguments.extend(option("--verify-commits", record.display()));
    }
    arguments.extend(listen(plan, plan.place(FaultTarget::Driver(0))));
    arguments
}

/// A driver that runs for so long, and notes what it commits in a file.
pub(crate) fn driver(
    plan: &Plan,
    url: &str,
    position: usize,
    (left, record): (Duration, Option<&Path>),
) -> Vec<String> {
    let mut arguments = tpcc(plan);
    arguments.extend(option("--pool", url));
    arguments.extend(option("--duration", whole_seconds(left).as_secs()));
    if let Some(PlannedDriver { driver, .. }) = plan.drivers.get(position) {
        arguments.extend(option("--compute-nodes", driver.compute_nodes));
        arguments.extend(workload(driver));
        if let Some(homes) = driver.homes {
            let Homes(first, last) = homes.0;
            arguments.extend(option("--homes", format!("{first}-{last}")));
        }
    }
    if let Some(record) = record {
        arguments.extend(option("--record-commits", record.display()));
    }
    arguments.extend(listen(plan, plan.place(FaultTarget::Driver(position))));
    arguments.push("--json".to_owned());
    arguments
}

/// The same load in one process with a pool of its own.
pub(crate) fn in_one_process(plan: &Plan) -> Vec<String> {
    let file = &plan.file;
    let nodes: usize = file.drivers.iter().map(|driver| driver.compute_nodes).sum();
    let mut arguments = tpcc(plan);
    arguments.extend(option("--compute-nodes", nodes));
    arguments.extend(option("--duration", whole_seconds(plan.duration).as_secs()));
    arguments.extend(option("--memory-nodes", file.memory.nodes));
    arguments.extend(option("--memory-mb", mib(file.memory.size.0.0)));
    arguments.extend(option("--gcl", file.pool.gcl));
    arguments.extend(option("--coding", file.pool.coding));
    if file.drivers.iter().any(|driver| driver.homes.is_some()) {
        arguments.extend(option("--affinity", "warehouse"));
    }
    arguments.extend(file.drivers.first().into_iter().flat_map(workload));
    arguments.push("--json".to_owned());
    arguments
}

/// What all that load or run have in common.
fn tpcc(plan: &Plan) -> Vec<String> {
    let database = &plan.file.database;
    let mut arguments = words(&["tpcc"]);
    arguments.extend(option("--warehouses", database.warehouses));
    arguments.extend(option("--scale", database.scale));
    arguments.extend(option("--seed", database.seed));
    match plan.file.pool.durability {
        // As the program has it.
        None => {}
        Some(DurabilityKind::None) => arguments.extend(option("--durability", "none")),
        Some(DurabilityKind::Memory) => arguments.extend(option("--durability", "memory")),
    }
    arguments
}

fn workload(driver: &DriverSection) -> Vec<String> {
    let mut arguments = Vec::from(option("--workers", driver.workers));
    if driver.think {
        arguments.push("--think".to_owned());
    }
    if let Some(threads) = driver.threads {
        arguments.extend(option("--threads", threads));
    }
    if let Some(cache) = driver.cache {
        arguments.extend(option("--cache-mb", mib(cache.0.0)));
    }
    arguments
}

/// Where the process of this place listens.
fn listen(plan: &Plan, place: usize) -> Vec<String> {
    match plan.file.network {
        NetworkKind::Loopback => Vec::new(),
        NetworkKind::Namespaces => {
            let at = format!("{}:0", namespaces::address(place));
            words(&["--listen", &at, "--insecure"])
        }
    }
}

fn option(name: &str, value: impl ToString) -> [String; 2] {
    [name.to_owned(), value.to_string()]
}

pub(crate) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}
