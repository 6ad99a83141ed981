//! Whether pool and drivers can be as a file says: what would be refused when they start.

use std::time::Duration;

use selkie::engine::MAX_COMPUTE_NODES;
use selkie::pool::PoolConfig;
use selkie::pool::control::Timing;
use selkie_tpcc::{Affinity, Config, Durability, Network, Scale, units};

use super::file::{DriverSection, DurabilityKind, FabricKind, FaultAction, ScenarioFile};
use super::plan::{Death, FaultTarget, Plan, PlannedFault};
use crate::commands::pool::{COMPUTE_NODES, usual_log_bytes};
use crate::options::values::RANGE_BYTES;

/// Refuses a file with the first thing in it that cannot be.
pub(crate) fn check(plan: &Plan) -> Result<(), String> {
    let ScenarioFile { fabric, memory, pool, database, drivers, .. } = &plan.file;
    if !(1..=Scale::MAX_DIVISOR).contains(&database.scale) {
        return Err(format!(
            "database: scale = {}: must be 1 to {}",
            database.scale,
            Scale::MAX_DIVISOR
        ));
    }
    for role in &plan.drivers {
        let config = config(plan, &role.driver);
        config.validate().map_err(|error| format!("{}: {error}", role.name))?;
    }
    if *fabric == FabricKind::Mem {
        return Ok(());
    }
    let timing = Timing { lease: pool.lease.0.0, heartbeat: pool.heartbeat.0.0 };
    timing.validate().map_err(|error| format!("pool: {error}"))?;
    let shape = shape(&plan.file);
    shape.validate().map_err(|error| format!("memory: {error}"))?;
    let lent = memory.size.0.0.saturating_mul(memory.nodes as u64);
    let lent = lent / pool.coding.splits() as u64 * pool.coding.data() as u64;
    let least = Scale::divided_by(database.scale).database_bytes(database.warehouses);
    if lent < least {
        let (lent, least) = (units::bytes(lent), units::bytes(least));
        return Err(format!("memory: {lent} in all: the database takes about {least}"));
    }
    let of = |driver: usize| drivers.get(driver).map_or(0, |driver| driver.compute_nodes);
    let deaths = plan.faults.iter().filter_map(|due| match due.target {
        FaultTarget::Driver(driver) if due.death != Death::Never => Some(of(driver)),
        _ => None,
    });
    let nodes = drivers.iter().map(|driver| driver.compute_nodes);
    let (nodes, with) = match pool.has_logs() {
        true => (nodes.sum::<usize>(), ""),
        false => (nodes.chain(deaths).sum::<usize>(), ", with those that die"),
    };
    let most = shape.max_compute_nodes;
    if nodes > most {
        return Err(format!("{nodes} compute nodes{with}: must be at most {most}"));
    }
    Ok(())
}

/// The pool: its ranges are so large that all memory can be used.
pub(crate) fn shape(file: &ScenarioFile) -> PoolConfig {
    let has_logs = file.fabric != FabricKind::Mem && file.pool.has_logs();
    // The indices of nodes without logs that died are not used again while pages are lost with
    // them.
    let max_compute_nodes = if has_logs { COMPUTE_NODES } else { MAX_COMPUTE_NODES };
    let shape = PoolConfig {
        memory_nodes: file.memory.nodes,
        bytes_per_node: file.memory.size.0.0,
        gcl_bytes: file.pool.gcl,
        range_bytes: RANGE_BYTES,
        max_compute_nodes,
        coding: file.pool.coding,
        log_bytes: if has_logs { usual_log_bytes(max_compute_nodes) } else { 0 },
    };
    // What is wrong with them is said of the sizes that were asked for.
    if shape.validate().is_err() { shape } else { shape.with_large_enough_ranges() }
}

/// What a driver is started with.
fn config(plan: &Plan, driver: &DriverSection) -> Config {
    let ScenarioFile { fabric, memory, pool, database, drivers, .. } = &plan.file;
    let config = Config {
        warehouses: database.warehouses,
        duration: whole_seconds(plan.duration),
        memory_nodes: memory.nodes,
        workers: driver.workers,
        network: Network::in_process(driver.threads),
        think: driver.think,
        cache_mib: driver.cache.map(|cache| mib(cache.0.0)),
        memory_bytes: Some(memory.size.0.0),
        gcl_bytes: pool.gcl,
        coding: pool.coding,
        durability: match pool.durability {
            Some(DurabilityKind::Memory) if *fabric == FabricKind::Mem => {
                Durability::Memory { log_mib: Durability::MEMORY_LOG_MIB }
            }
            _ => Durability::None,
        },
        seed: database.seed,
        scale: Scale::divided_by(database.scale),
        ..Config::default()
    };
    if *fabric == FabricKind::Mem {
        let divided = drivers.iter().any(|driver| driver.homes.is_some());
        let affinity = if divided { Affinity::Warehouse } else { Affinity::Shared };
        let compute_nodes = drivers.iter().map(|driver| driver.compute_nodes).sum();
        return Config { compute_nodes, affinity, ..config };
    }
    let homes = driver.homes.map(|homes| (homes.0.0, homes.0.1));
    Config { compute_nodes: driver.compute_nodes, homes, ..config }
}

/// Drivers take seconds: rather one that runs on a little than one that is gone too soon.
pub(crate) fn whole_seconds(time: Duration) -> Duration {
    let more = u64::from(time.subsec_nanos() > 0);
    Duration::from_secs((time.as_secs() + more).max(1))
}

/// As the options say it.
pub(crate) fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// Refuses what chance would decide: whatever is done to a driver while a memory node that died
/// ends all, or so late that the drivers may be over before it shows.
pub(crate) fn check_chances(plan: &Plan) -> Result<(), String> {
    let lease = plan.file.pool.lease.0.0;
    let end = plan.memory_is_lost();
    let is_late = |at: Duration| end.is_some_and(|end| at >= end);
    for due in &plan.faults {
        let said = format!("{} {} at {:?}", due.action.name(), plan.name_of(due.target), due.at);
        if matches!(due.target, FaultTarget::Driver(_)) && is_late(due.at) {
            return Err(format!("{said}: a memory node is dead by then, which ends all drivers"));
        }
        if due.action == FaultAction::Kill && plan.duration - due.at <= lease * 3 / 2 {
            return Err(format!(
                "{said}: must be one and a half leases before the end, for the others to notice"
            ));
        }
    }
    if let Some(role) =
        plan.drivers.iter().find(|role| !role.delay.is_zero() && is_late(role.delay))
    {
        return Err(format!("{}: start-delay: a memory node is dead by then", role.name));
    }
    let is_touched =
        |driver: usize| plan.faults.iter().any(|due| due.touches(FaultTarget::Driver(driver)));
    let kills = plan.faults.iter().any(PlannedFault::kills_a_driver);
    let none_goes_on = end.is_some() || (0..plan.drivers.len()).all(is_touched);
    if plan.file.expect.recovers.0.0 > 0.0 && kills && none_goes_on {
        return Err(
            "expect: recovers: something happens to every driver, so that no throughput can come back: say 0"
                .to_owned(),
        );
    }
    Ok(())
}
