//! The sizes of pool and caches, derived from a setup and the size of its data.

use std::sync::Arc;

use selkie_engine::EngineConfig;
use selkie_fabric::Fabric;
use selkie_memnode::EmbeddedPool;
use selkie_pool::PoolConfig;
use selkie_txn::TableSchema;

use super::population::start_populated;
use super::setup::{MIB, RANGE_BYTES, Setup};
use crate::error::TpccError;
use crate::figures::units::{bytes, plural};
use crate::run::Progress;

/// Memory of the pool that no estimate covers: extents leased ahead, catalogue, roots.
const FIXED_BYTES: u64 = 64 * MIB;
/// Memory lent beyond the estimate of data and growth, in percent.
const HEADROOM_PERCENT: u64 = 30;
/// A setup with the data it is for: what pool and caches take.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterShape {
    /// The setup.
    pub setup: Setup,
    /// Bytes the loaded database takes, about.
    pub database_bytes: u64,
    /// Bytes the run may add, about.
    pub growth_bytes: u64,
    /// Whether each compute node has tables of its own.
    pub divided: bool,
    /// The tables, if they are not the same in every run of the driver.
    pub tables: Option<Vec<TableSchema>>,
}

impl ClusterShape {
    /// Bytes the pool is estimated to need for the load and the run.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        with_headroom(self.database_bytes.saturating_add(self.growth_bytes))
    }

    /// Bytes the pool is estimated to need for the load.
    #[must_use]
    pub fn load_bytes(&self) -> u64 {
        with_headroom(self.database_bytes)
    }

    /// Refuses a directory without room for the logs that it is to have.
    pub(crate) fn check_log_room(&self, loads: bool) -> Result<(), TpccError> {
        let load_bytes = if loads { self.load_bytes() } else { 0 };
        self.setup.durability.check_room(self.setup.compute_nodes, load_bytes)
    }

    /// Bytes of cache of each compute node.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        let least = EngineConfig::min_cache_bytes(self.setup.gcl_bytes);
        self.setup.cache_mib.map_or_else(|| (self.database_bytes / 2).max(least), |mib| mib * MIB)
    }

    /// Starts the memory nodes, all in this process. If there is somewhere to tell it, their memory
    /// is populated first.
    pub(super) fn start_pool(
        &self,
        fabric: &Arc<dyn Fabric>,
        told: Option<&Arc<dyn Progress>>,
    ) -> Result<Arc<EmbeddedPool>, TpccError> {
        let Some(progress) = told else { return Ok(EmbeddedPool::start(fabric, self.pool())?) };
        progress.note(&format!(
            "starting {} of {} and {} in this process",
            plural(self.setup.memory_nodes as u64, "memory node"),
            bytes(self.pool().bytes_per_node),
            plural(self.setup.compute_nodes as u64, "compute node"),
        ));
        let caches = self.cache_bytes().saturating_mul(self.setup.compute_nodes as u64);
        start_populated(fabric, self.pool(), caches, progress)
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> PoolConfig {
        let setup = &self.setup;
        let splits = setup.coding.splits() as u64;
        let ranges = self.needed_bytes().div_ceil(RANGE_BYTES) * splits;
        let ranges = ranges.div_ceil(setup.memory_nodes as u64).max(1);
        let derived = setup.geometry().region_bytes(ranges).unwrap_or(u64::MAX);
        let config = PoolConfig {
            memory_nodes: setup.memory_nodes,
            bytes_per_node: setup.memory_bytes.unwrap_or(derived),
            gcl_bytes: setup.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes: setup.compute_nodes,
            coding: setup.coding,
            log_bytes: setup.durability.log_bytes(),
        };
        config.with_large_enough_ranges()
    }
}

fn with_headroom(data: u64) -> u64 {
    (data / 100).saturating_mul(100 + HEADROOM_PERCENT).saturating_add(FIXED_BYTES)
}
