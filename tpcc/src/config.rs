//! What to run, and the check of it before anything starts.

use std::time::Duration;

use selkie_engine::{EngineConfig, MAX_COMPUTE_NODES};
use selkie_memnode::{Coding, PoolConfig, PoolError, layout};
use serde::Serialize;

use crate::error::TpccError;
use crate::scale::{GROWTH_BYTES_PER_SECOND, Scale};
use crate::schema::misfit;

/// Most warehouses: what 32-bit keys and any machine's memory leave room for.
pub const MAX_WAREHOUSES: u32 = 100_000;
/// Most worker tasks of a compute node.
pub const MAX_WORKERS: usize = 1_024;
/// Most threads.
pub const MAX_THREADS: usize = 1_024;
/// Most memory nodes.
pub const MAX_MEMORY_NODES: usize = selkie_memnode::MAX_MEMORY_NODES;
/// Longest run: a day.
pub const MAX_DURATION: Duration = Duration::from_secs(86_400);
/// Largest memory or cache, in MiB: a tebibyte.
const MAX_MEMORY_MIB: u64 = 1 << 20;

const MIB: u64 = 1 << 20;
/// Range of the pool's address space: small, so that little of a node's memory is left over, unless there is so much
/// memory that it takes larger ones.
const RANGE_BYTES: u64 = 4 * MIB;
/// Memory lent beyond the estimate of data and growth, in percent.
const HEADROOM_PERCENT: u64 = 30;
/// Memory of the pool that no estimate covers: extents leased ahead, catalogue, roots.
const FIXED_BYTES: u64 = 64 * MIB;

/// Which warehouses a compute node works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Every node on every warehouse.
    Shared,
    /// Each node on its own (warehouse number modulo nodes), remote accesses of the mix aside.
    Warehouse,
}

/// What to run. [`Config::validate`] says what is allowed for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Warehouses to load.
    pub warehouses: u32,
    /// How long to run after the load.
    pub duration: Duration,
    /// Compute nodes, each with its own cache.
    pub compute_nodes: usize,
    /// Memory nodes of the pool.
    pub memory_nodes: usize,
    /// Worker tasks of each compute node.
    pub workers: usize,
    /// Threads of the process, which run everything.
    pub threads: usize,
    /// Cache of each compute node, MiB; `None`: half of the loaded database.
    pub cache_mib: Option<u64>,
    /// Memory lent by each memory node, MiB; `None`: what data, growth and some headroom take.
    pub memory_mib: Option<u64>,
    /// Bytes of a global cache line.
    pub gcl_bytes: usize,
    /// How the pool keeps pages.
    pub coding: Coding,
    /// Which warehouses a compute node works on.
    pub affinity: Affinity,
    /// First and last of the warehouses to which the terminals belong, from 1; `None`: all.
    pub homes: Option<(u32, u32)>,
    /// Seed of data and inputs.
    pub seed: u64,
    /// Whether workers wait like people at terminals (clause 5.2.5.7).
    pub think: bool,
    /// Rows to begin with.
    pub scale: Scale,
}

impl Default for Config {
    /// Three memory nodes, two compute nodes, four warehouses of standard size, ten seconds.
    fn default() -> Self {
        Self {
            warehouses: 4,
            duration: Duration::from_secs(10),
            compute_nodes: 2,
            memory_nodes: 3,
            workers: 4,
            threads: std::thread::available_parallelism().map_or(2, |threads| threads.get()),
            cache_mib: None,
            memory_mib: None,
            gcl_bytes: 2048,
            coding: Coding::PLAIN,
            affinity: Affinity::Shared,
            homes: None,
            seed: 1,
            think: false,
            scale: Scale::STANDARD,
        }
    }
}

impl Config {
    /// Checks every field. Keys are named as the command line names them.
    ///
    /// # Errors
    /// [`TpccError::Config`] with the key, the value and what is allowed, for the first bad field.
    pub fn validate(&self) -> Result<(), TpccError> {
        within("warehouses", u64::from(self.warehouses), 1, u64::from(MAX_WAREHOUSES))?;
        if self.duration.is_zero() || self.duration > MAX_DURATION {
            let allowed = format!("must be 1 to {} seconds", MAX_DURATION.as_secs());
            return Err(refused("duration", self.duration.as_secs(), allowed));
        }
        within("compute-nodes", self.compute_nodes as u64, 1, MAX_COMPUTE_NODES as u64)?;
        within("memory-nodes", self.memory_nodes as u64, 1, MAX_MEMORY_NODES as u64)?;
        within("workers", self.workers as u64, 1, MAX_WORKERS as u64)?;
        within("threads", self.threads as u64, 1, MAX_THREADS as u64)?;
        self.validate_gcl()?;
        if let Err(PoolError::Config { key, value, allowed }) =
            self.coding.validate_for(self.gcl_bytes, self.memory_nodes)
        {
            return Err(refused(key, value, format!("must be {allowed}")));
        }
        if let Some(cache) = self.cache_mib {
            let least = EngineConfig::min_cache_bytes(self.gcl_bytes).div_ceil(MIB);
            within("cache-mb", cache, least, MAX_MEMORY_MIB)?;
        }
        if let Some(memory) = self.memory_mib {
            within("memory-mb", memory, self.least_memory_mib(), MAX_MEMORY_MIB)?;
        }
        let (first, last) = self.homes();
        if !(1..=last).contains(&first) || last > self.warehouses {
            let allowed = format!("must be a range within 1-{}", self.warehouses);
            return Err(refused("homes", format!("{first}-{last}"), allowed));
        }
        let homes = (last - first) as usize + 1;
        if self.affinity == Affinity::Warehouse && self.compute_nodes > homes {
            let allowed =
                format!("with --affinity warehouse must be 1 to the number of warehouses, {homes}");
            return Err(refused("compute-nodes", self.compute_nodes, allowed));
        }
        Ok(())
    }

    fn validate_gcl(&self) -> Result<(), TpccError> {
        let range = layout::MIN_GCL_BYTES..=layout::MAX_GCL_BYTES;
        if !self.gcl_bytes.is_power_of_two() || !range.contains(&self.gcl_bytes) {
            let allowed = format!("must be a power of two in {} to {}", range.start(), range.end());
            return Err(refused("gcl", self.gcl_bytes, allowed));
        }
        let Some(misfit) = misfit(self.gcl_bytes) else { return Ok(()) };
        let sizes = [512, 1024, 2048, 4096, 8192];
        let least = sizes.into_iter().find(|&bytes| crate::schema::misfit(bytes).is_none());
        let allowed = format!(
            "must be at least {} for TPC-C: an entry of table {} takes up to {} bytes, a page of this \
             size allows {}",
            least.unwrap_or(layout::MAX_GCL_BYTES),
            misfit.table,
            misfit.bytes,
            misfit.allowed,
        );
        Err(refused("gcl", self.gcl_bytes, allowed))
    }

    /// Bytes the loaded database takes, about.
    #[must_use]
    pub fn database_bytes(&self) -> u64 {
        self.scale.database_bytes(self.warehouses)
    }

    /// Bytes the pool is estimated to need for the load and the run.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let growth = if self.think {
            0
        } else {
            self.duration.as_secs().saturating_mul(GROWTH_BYTES_PER_SECOND)
        };
        with_headroom(self.database_bytes().saturating_add(growth))
    }

    /// Bytes the pool is estimated to need for the load.
    #[must_use]
    pub fn load_bytes(&self) -> u64 {
        with_headroom(self.database_bytes())
    }

    /// Bytes of cache of each compute node.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        let least = EngineConfig::min_cache_bytes(self.gcl_bytes);
        self.cache_mib.map_or_else(|| (self.database_bytes() / 2).max(least), |mib| mib * MIB)
    }

    /// The pool for this configuration.
    #[must_use]
    pub fn pool(&self) -> PoolConfig {
        let splits = self.coding.splits() as u64;
        let ranges = self.needed_bytes().div_ceil(RANGE_BYTES) * splits;
        let ranges = ranges.div_ceil(self.memory_nodes as u64).max(1);
        let derived = self.geometry().region_bytes(ranges).unwrap_or(u64::MAX);
        let config = PoolConfig {
            memory_nodes: self.memory_nodes,
            bytes_per_node: self.memory_mib.map_or(derived, |mib| mib * MIB),
            gcl_bytes: self.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes: self.compute_nodes,
            coding: self.coding,
        };
        config.with_large_enough_ranges()
    }

    /// First and last of the warehouses to which the terminals belong.
    fn homes(&self) -> (u32, u32) {
        self.homes.unwrap_or((1, self.warehouses))
    }

    /// The warehouses a compute node works on.
    #[must_use]
    pub fn homes_of(&self, node: usize) -> Vec<i32> {
        let (first, last) = self.homes();
        (first..=last)
            .filter(|warehouse| match self.affinity {
                Affinity::Shared => true,
                Affinity::Warehouse => {
                    (warehouse - first) as usize % self.compute_nodes == node % self.compute_nodes
                }
            })
            .map(u32::cast_signed)
            .collect()
    }

    fn geometry(&self) -> layout::SlabGeometry {
        layout::SlabGeometry::coded(self.gcl_bytes, RANGE_BYTES, self.coding)
    }

    /// A memory node with less has no room for a single range.
    fn least_memory_mib(&self) -> u64 {
        self.geometry().region_bytes(1).unwrap_or(u64::MAX).div_ceil(MIB)
    }
}

fn with_headroom(data: u64) -> u64 {
    (data / 100).saturating_mul(100 + HEADROOM_PERCENT).saturating_add(FIXED_BYTES)
}

fn within(key: &'static str, value: u64, low: u64, high: u64) -> Result<(), TpccError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(refused(key, value, format!("must be {low} to {high}")))
}

fn refused(key: &'static str, value: impl ToString, allowed: String) -> TpccError {
    TpccError::Config { key, value: value.to_string(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_valid() {
        Config::default().validate().unwrap();
        Config::default().pool().validate().unwrap();
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        assert_eq!(refused(|c| c.warehouses = 0), "warehouses = 0: must be 1 to 100000");
        assert_eq!(refused(|c| c.compute_nodes = 59), "compute-nodes = 59: must be 1 to 58");
        assert_eq!(refused(|c| c.compute_nodes = 0), "compute-nodes = 0: must be 1 to 58");
        assert!(refused(|c| c.memory_nodes = 0).starts_with("memory-nodes = 0: must be 1 to"));
        assert!(refused(|c| c.workers = 0).starts_with("workers = 0"));
        assert!(refused(|c| c.threads = 0).starts_with("threads = 0"));
        let duration = refused(|c| c.duration = Duration::ZERO);
        assert_eq!(duration, "duration = 0: must be 1 to 86400 seconds");
        let gcl = "must be a power of two in 512 to 8192";
        assert_eq!(refused(|c| c.gcl_bytes = 1000), format!("gcl = 1000: {gcl}"));
        assert_eq!(refused(|c| c.gcl_bytes = 16384), format!("gcl = 16384: {gcl}"));
        assert!(refused(|c| c.cache_mib = Some(1)).starts_with("cache-mb = 1: must be 2 to"));
        assert!(refused(|c| c.memory_mib = Some(1)).starts_with("memory-mb = 1: must be 5 to"));
    }

    #[test]
    fn small_pages_are_refused_with_the_table() {
        let text = refused(|c| c.gcl_bytes = 1024);
        assert!(text.starts_with("gcl = 1024: must be at least 2048 for TPC-C"), "{text}");
        assert!(text.contains("table customer_data"), "{text}");
        let large = Config { gcl_bytes: 4096, ..Config::default() };
        large.validate().unwrap();
    }

    #[test]
    fn every_node_needs_a_warehouse_of_its_own() {
        let text = refused(|c| (c.affinity, c.warehouses) = (Affinity::Warehouse, 1));
        assert!(text.contains("compute-nodes = 2") && text.contains("warehouses, 1"), "{text}");
        let config = Config { affinity: Affinity::Warehouse, warehouses: 5, ..Config::default() };
        assert_eq!((config.homes_of(0), config.homes_of(1)), (vec![1, 3, 5], vec![2, 4]));
        let config = Config { warehouses: 3, ..Config::default() };
        assert_eq!((config.homes_of(0), config.homes_of(1)), (vec![1, 2, 3], vec![1, 2, 3]));
    }

    #[test]
    fn homes_are_within_the_warehouses() {
        let homes = |first, last| Config { homes: Some((first, last)), ..Config::default() };
        for (first, last) in [(0, 2), (2, 1), (3, 5), (5, 5)] {
            let text = homes(first, last).validate().unwrap_err().to_string();
            assert_eq!(text, format!("homes = {first}-{last}: must be a range within 1-4"));
        }
        homes(1, 4).validate().unwrap();
        let config = homes(3, 4);
        config.validate().unwrap();
        assert_eq!((config.homes_of(0), config.homes_of(1)), (vec![3, 4], vec![3, 4]));
        let config = Config { affinity: Affinity::Warehouse, ..homes(3, 4) };
        assert_eq!((config.homes_of(0), config.homes_of(1)), (vec![3], vec![4]));
        let config = Config { compute_nodes: 3, ..config };
        let text = config.validate().unwrap_err().to_string();
        assert!(text.contains("compute-nodes = 3") && text.contains("warehouses, 2"), "{text}");
    }

    #[test]
    fn derived_sizes_follow_the_data() {
        let small = Config { warehouses: 1, ..Config::default() };
        let large = Config { warehouses: 40, ..Config::default() };
        for config in [&small, &large] {
            assert_eq!(config.cache_bytes(), config.database_bytes() / 2);
            let pool = config.pool();
            pool.validate().unwrap();
            assert!(pool.bytes_per_node * 3 > config.needed_bytes());
        }
        assert!(large.needed_bytes() > 10 * small.database_bytes());
        let tiny = Config { scale: Scale::divided_by(100), warehouses: 1, ..Config::default() };
        assert_eq!(tiny.cache_bytes(), EngineConfig::min_cache_bytes(2048));
    }
}
