//! Configuration of a pool, and its validation: a bad value is refused before anything starts.

use crate::coding::Coding;
use crate::document::MAX_RANGES;
use crate::error::PoolError;
use crate::layout::{
    LOG_BYTES, MAX_COMPUTE_NODES, MAX_GCL_BYTES, MAX_RANGE_BYTES, MIN_GCL_BYTES, SlabGeometry,
    min_range_bytes,
};
use crate::units;

/// Most memory nodes in a pool.
pub const MAX_MEMORY_NODES: usize = 1024;

/// Shape of a pool. [`PoolConfig::validate`] says what is allowed for each field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Memory nodes to start: 1 to [`MAX_MEMORY_NODES`].
    pub memory_nodes: usize,
    /// Capacity of each memory node, bytes, headers and control page included. Only whole ranges
    /// are used.
    pub bytes_per_node: u64,
    /// Bytes of a GCL: a power of two in 512..=8192.
    pub gcl_bytes: usize,
    /// Bytes of a range: a power of two, at least one extent (64 GCLs), at most 1 TiB.
    pub range_bytes: u64,
    /// Compute nodes that may register: 1 to 58.
    pub max_compute_nodes: usize,
    /// How pages are kept: K has to divide them into whole words, and K + R memory nodes are
    /// needed.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of each compute node that may register: 0, or
    /// a multiple of 4096 in [`LOG_BYTES`](crate::layout::LOG_BYTES).
    pub log_bytes: u64,
}

/// The sizes that follow from a valid configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Where things lie in the region of a memory node.
    pub geometry: SlabGeometry,
    /// Slabs in the region.
    pub ranges: u32,
    /// Bytes of the region.
    pub region_bytes: usize,
}

impl PoolConfig {
    /// Checks every field.
    ///
    /// # Errors
    /// [`PoolError::Config`] with the key, the value and what is allowed, for the first bad field.
    pub fn validate(&self) -> Result<(), PoolError> {
        self.plan().map(drop)
    }

    /// The same with larger ranges, if it takes those to make use of all the memory: a coded pool
    /// can have only [`MAX_RANGES`](crate::control::MAX_RANGES) of them.
    #[must_use]
    pub fn with_large_enough_ranges(self) -> Self {
        let ranges = |config: &Self| {
            let geometry = config.geometry();
            let slabs = geometry.ranges_that_fit(config.bytes_per_node);
            slabs.saturating_mul(config.memory_nodes as u64) / config.coding.splits() as u64
        };
        let mut config = self;
        while !config.coding.is_plain()
            && config.range_bytes < MAX_RANGE_BYTES
            && ranges(&config) > MAX_RANGES as u64
        {
            config.range_bytes *= 2;
        }
        config
    }

    /// Checks every field, and returns the sizes of a memory node.
    ///
    /// # Errors
    /// As [`PoolConfig::validate`].
    pub fn plan(&self) -> Result<PoolPlan, PoolError> {
        if !(1..=MAX_MEMORY_NODES).contains(&self.memory_nodes) {
            let allowed = format!("1 to {MAX_MEMORY_NODES}");
            return Err(refused("memory_nodes", self.memory_nodes, allowed));
        }
        if !(1..=MAX_COMPUTE_NODES).contains(&self.max_compute_nodes) {
            let allowed = format!("1 to {MAX_COMPUTE_NODES}");
            return Err(refused("max_compute_nodes", self.max_compute_nodes, allowed));
        }
        if !self.gcl_bytes.is_power_of_two()
            || !(MIN_GCL_BYTES..=MAX_GCL_BYTES).contains(&self.gcl_bytes)
        {
            let allowed = format!("a power of two in {MIN_GCL_BYTES} to {MAX_GCL_BYTES}");
            return Err(refused("gcl_bytes", self.gcl_bytes, allowed));
        }
        let least_range = min_range_bytes(self.gcl_bytes);
        if !self.range_bytes.is_power_of_two()
            || !(least_range..=MAX_RANGE_BYTES).contains(&self.range_bytes)
        {
            let allowed = format!(
                "a power of two in {least_range} (one extent of {} byte GCLs) to {MAX_RANGE_BYTES}",
                self.gcl_bytes
            );
            return Err(refused("range_bytes", self.range_bytes, allowed));
        }
        self.coding.validate_for(self.gcl_bytes, self.memory_nodes)?;
        let log_bytes = self.log_bytes;
        if log_bytes != 0 && (!LOG_BYTES.contains(&log_bytes) || !log_bytes.is_multiple_of(4096)) {
            let (least, most) = (LOG_BYTES.start(), LOG_BYTES.end());
            let allowed = format!("0, or a multiple of 4096 in {least} to {most}");
            return Err(refused("log_bytes", log_bytes, allowed));
        }
        self.fit(self.geometry())
    }

    fn geometry(&self) -> SlabGeometry {
        SlabGeometry::coded(self.gcl_bytes, self.range_bytes, self.coding)
            .with_logs(self.log_bytes, self.max_compute_nodes)
    }

    fn fit(&self, geometry: SlabGeometry) -> Result<PoolPlan, PoolError> {
        let fitting = geometry.ranges_that_fit(self.bytes_per_node);
        if fitting == 0 {
            let least = geometry.region_bytes(1).unwrap_or(u64::MAX);
            let logs = match self.log_bytes.saturating_mul(self.max_compute_nodes as u64) {
                0 => String::new(),
                bytes => format!(
                    ", and {} for logs ({} for each of {} compute nodes: --log-size and --max-compute-nodes of `selkie pool \
                     create`)",
                    units::as_option(bytes),
                    units::as_option(self.log_bytes),
                    self.max_compute_nodes
                ),
            };
            let least = units::as_option(least);
            let allowed = format!("at least {least}, what one range of this size needs{logs}");
            return Err(refused("bytes_per_node", self.bytes_per_node, allowed));
        }
        let plan = u32::try_from(fitting).ok().and_then(|ranges| {
            // Signed, because no allocation may exceed it.
            let region_bytes = isize::try_from(geometry.region_bytes(fitting)?).ok()?;
            Some(PoolPlan { geometry, ranges, region_bytes: region_bytes.cast_unsigned() })
        });
        plan.ok_or_else(|| {
            let most = geometry.slab_bytes().saturating_mul(u64::from(u32::MAX));
            let allowed = format!("at most {}", most.min(isize::MAX.cast_unsigned() as u64));
            refused("bytes_per_node", self.bytes_per_node, allowed)
        })
    }
}

fn refused(key: &'static str, value: impl ToString, allowed: String) -> PoolError {
    PoolError::Config { key, value: value.to_string(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: PoolConfig = PoolConfig {
        memory_nodes: 3,
        bytes_per_node: 8 << 20,
        gcl_bytes: 2048,
        range_bytes: 1 << 20,
        max_compute_nodes: 58,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };

    #[track_caller]
    fn assert_refused(config: PoolConfig, expected: [&str; 3]) {
        let Err(PoolError::Config { key, value, allowed }) = config.validate() else {
            panic!("{config:?} was accepted");
        };
        assert_eq!([key, value.as_str(), allowed.as_str()], expected);
    }

    #[test]
    fn a_good_configuration_uses_the_whole_ranges_that_fit() {
        let plan = GOOD.plan().unwrap();
        // A slab is 1 MiB and 32 KiB, so the eighth range does not fit in 8 MiB.
        assert_eq!(plan.ranges, 7);
        assert_eq!(plan.region_bytes, 4096 + 7 * ((1 << 20) + 512 * 64));
    }

    #[test]
    fn limits_of_every_field_are_accepted() {
        for memory_nodes in [1, MAX_MEMORY_NODES] {
            PoolConfig { memory_nodes, ..GOOD }.validate().unwrap();
        }
        for max_compute_nodes in [1, 58] {
            PoolConfig { max_compute_nodes, ..GOOD }.validate().unwrap();
        }
        for gcl_bytes in [512, 1024, 2048, 4096, 8192] {
            PoolConfig { gcl_bytes, ..GOOD }.validate().unwrap();
        }
        let smallest = PoolConfig { range_bytes: 64 * 2048, ..GOOD };
        smallest.validate().unwrap();
        let exact = 4096 + 64 * (2048 + 64);
        PoolConfig { bytes_per_node: exact, ..smallest }.validate().unwrap();
    }

    #[test]
    fn bad_values_are_refused_by_key_value_and_what_is_allowed() {
        let nodes = "1 to 1024";
        assert_refused(PoolConfig { memory_nodes: 0, ..GOOD }, ["memory_nodes", "0", nodes]);
        assert_refused(PoolConfig { memory_nodes: 1025, ..GOOD }, ["memory_nodes", "1025", nodes]);
        let key = "max_compute_nodes";
        assert_refused(PoolConfig { max_compute_nodes: 0, ..GOOD }, [key, "0", "1 to 58"]);
        assert_refused(PoolConfig { max_compute_nodes: 59, ..GOOD }, [key, "59", "1 to 58"]);
        let sizes = "a power of two in 512 to 8192";
        for (gcl_bytes, text) in [(0, "0"), (256, "256"), (1000, "1000"), (16384, "16384")] {
            assert_refused(PoolConfig { gcl_bytes, ..GOOD }, ["gcl_bytes", text, sizes]);
        }
        let ranges =
            "a power of two in 131072 (one extent of 2048 byte GCLs) to 1099511627776".to_owned();
        for range_bytes in [0, 65536, (1 << 20) + 1, 3 << 20, 1 << 41] {
            let text = range_bytes.to_string();
            assert_refused(PoolConfig { range_bytes, ..GOOD }, ["range_bytes", &text, &ranges]);
        }
    }

    #[test]
    fn a_node_too_small_for_one_range_says_how_much_it_takes() {
        let least = 4096 + (1 << 20) + 512 * 64;
        let config = PoolConfig { bytes_per_node: least - 1, ..GOOD };
        let allowed = "at least 1060K, what one range of this size needs".to_owned();
        let value = (least - 1).to_string();
        assert_refused(config, ["bytes_per_node", &value, &allowed]);
        assert_eq!(PoolConfig { bytes_per_node: least, ..GOOD }.plan().unwrap().ranges, 1);
    }

    #[test]
    fn ranges_get_as_large_as_it_takes_to_use_all_memory() {
        let coding = "2+1".parse().unwrap();
        let small = PoolConfig { coding, ..GOOD };
        assert_eq!(small.with_large_enough_ranges(), small);
        let large = PoolConfig { bytes_per_node: 64 << 30, ..small };
        // 192 GiB are 128 GiB of pages, less some for headers, in at most 4,096 ranges.
        assert_eq!(large.with_large_enough_ranges().range_bytes, 32 << 20);
        let plain = PoolConfig { coding: Coding::PLAIN, ..large };
        assert_eq!(plain.with_large_enough_ranges(), plain);
    }

    #[test]
    fn a_node_larger_than_memory_can_be_is_refused() {
        let config = PoolConfig { bytes_per_node: u64::MAX, ..GOOD };
        assert!(matches!(config.validate(), Err(PoolError::Config { key: "bytes_per_node", .. })));
    }
}
