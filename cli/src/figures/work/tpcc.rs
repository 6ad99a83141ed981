//! Runs of TPC-C for figures.

use std::sync::Arc;
use std::time::Duration;

use selkie::engine::Coherence;
use selkie::fabric::PeerId;
use selkie::fabric::sim::{World, WorldConfig};
use selkie_tpcc::{Config, Network, Progress, Report, Scale, Silent};

use super::cluster::{BOUND, GCL_BYTES, MEMORY_NODES, NETWORK, RunError};
use super::latency::COMPUTE_NODES;

/// Transactions take so much longer without a cache that they are measured for so many times as
/// long.
pub(in crate::figures) const LONGER: u32 = 4;

/// A run; it fails if what it leaves is not consistent.
pub(in crate::figures) fn run(
    config: &Config,
    duration: Duration,
    seed: u64,
) -> Result<Report, RunError> {
    let duration = if config.coherence == Coherence::Sel { LONGER * duration } else { duration };
    let config = Config { duration, warmup: duration, seed, ..config.clone() };
    let progress: Arc<dyn Progress> = Arc::new(Silent);
    let report = selkie_tpcc::run(&config, &progress)?;
    if report.holds() {
        return Ok(report);
    }
    let broken: Vec<_> = report.broken().iter().map(ToString::to_string).collect();
    let missing = report.commits().missing;
    Err(format!("TPC-C is not consistent: {}; {missing} missing", broken.join("; ")).into())
}

/// A point of TPC-C.
pub(in crate::figures) struct TpccMix {
    pub(in crate::figures) coding: &'static str,
}

/// What TPC-C came to.
pub(in crate::figures) struct TpccRate {
    pub(in crate::figures) transactions_per_second: f64,
}

impl TpccMix {
    pub(in crate::figures) fn run(
        &self,
        duration: Duration,
        seed: u64,
    ) -> Result<TpccRate, RunError> {
        let world = World::new(WorldConfig { cost: NETWORK, ..WorldConfig::new(seed) });
        let config = Config {
            warehouses: 8,
            duration,
            compute_nodes: COMPUTE_NODES,
            memory_nodes: MEMORY_NODES,
            workers: 8,
            network: Network::Real { threads: 1 },
            // The least: much is not cached.
            cache_mib: Some((1024 * GCL_BYTES as u64) >> 20),
            gcl_bytes: GCL_BYTES,
            coding: self.coding.parse()?,
            seed,
            scale: Scale::divided_by(Scale::MAX_DIVISOR),
            ..Config::default()
        };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        let env_of = |index: usize| world.env_of(PeerId::compute(index as u16));
        let driver = world.env();
        let start = selkie_tpcc::TpccCluster::start_on(world.fabric(), &driver, &env_of, &config);
        let cluster = world.run(BOUND, start)??;
        world.run(BOUND, selkie_tpcc::load(&cluster, &config, &progress))??;
        let interval = world.run(BOUND, selkie_tpcc::measure(&cluster, &config, &progress))??;
        let completed = interval.measurements.completed() as f64;
        Ok(TpccRate { transactions_per_second: completed / interval.elapsed.as_secs_f64() })
    }
}
