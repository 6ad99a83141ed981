//! What a run of the micro-benchmark does.

use std::time::Duration;

use selkie_engine::{Coherence, EngineConfig, MAX_COMPUTE_NODES, MAX_MAIL_TASKS};
use selkie_fabric::sim::CostModel;
use selkie_pool::{Coding, PoolConfig, layout};

use crate::cluster::Network;
use crate::error::TpccError;

pub(super) const MIB: u64 = 1 << 20;
/// Bytes of a range of the pool.
const RANGE_BYTES: u64 = 1 << 20;
/// Memory nodes, workers and pages a run may have.
const MAX_NODES: usize = 1024;
const MAX_WORKERS: usize = 1024;
const MAX_GCLS: u64 = 1 << 32;

/// Parts of the protocol that can be switched off to see what they are worth (SELCC §7.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolFeature {
    /// γ: other nodes get their turn although local accesses go on.
    Gamma,
    /// Requests that tried or waited longer go first.
    Ageing,
    /// Pages are evicted together.
    Batching,
    /// Frames are free before their write-back is done.
    SendRing,
    /// Only what was changed is written back.
    DirtyBounds,
    /// Evicted shared copies leave their bit in the word.
    StickyBits,
    /// A look at the word goes before a claim that would probably fail.
    Looks,
    /// A fetched page is held for a short time.
    Hold,
}

impl ProtocolFeature {
    /// All of them.
    pub const ALL: [ProtocolFeature; 8] = [
        ProtocolFeature::Gamma,
        ProtocolFeature::Ageing,
        ProtocolFeature::Batching,
        ProtocolFeature::SendRing,
        ProtocolFeature::DirtyBounds,
        ProtocolFeature::StickyBits,
        ProtocolFeature::Looks,
        ProtocolFeature::Hold,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ProtocolFeature::Gamma => "gamma",
            ProtocolFeature::Ageing => "ageing",
            ProtocolFeature::Batching => "batching",
            ProtocolFeature::SendRing => "send-ring",
            ProtocolFeature::DirtyBounds => "dirty-bounds",
            ProtocolFeature::StickyBits => "sticky-bits",
            ProtocolFeature::Looks => "looks",
            ProtocolFeature::Hold => "hold",
        }
    }

    fn switch_off(self, engine: &mut EngineConfig) {
        match self {
            ProtocolFeature::Gamma => engine.gamma = u32::MAX,
            ProtocolFeature::Ageing => engine.ageing = false,
            ProtocolFeature::Batching => engine.eviction_batch = 1,
            ProtocolFeature::SendRing => engine.send_ring = false,
            ProtocolFeature::DirtyBounds => engine.dirty_bounds = false,
            ProtocolFeature::StickyBits => engine.sticky_bits = false,
            ProtocolFeature::Looks => engine.looks = false,
            ProtocolFeature::Hold => engine.hold = Duration::ZERO,
        }
    }
}

/// Configuration of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Protocol.
    pub coherence: Coherence,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Workers of each compute node.
    pub workers: usize,
    /// Pages in all.
    pub gcls: u64,
    /// Bytes of a page.
    pub gcl_bytes: usize,
    /// Cache of each compute node, MiB.
    pub cache_mib: u64,
    /// Share of accesses that read, 0..=1.
    pub read_ratio: f64,
    /// Share of pages that all nodes use, and of accesses that go to them, 0..=1; the rest of the
    /// pages is divided among the nodes.
    pub sharing_ratio: f64,
    /// Chance that an access goes to the page of the access before, 0..=1.
    pub locality: f64,
    /// Skew of the choice of pages: 0 is uniform; else the exponent of a Zipf distribution, below
    /// 10.
    pub zipf: f64,
    /// The first so many nodes only write and the others only read, whatever the read ratio says.
    pub writer_nodes: Option<usize>,
    /// Tasks of each compute node that take messages in; in virtual time each has a processor of
    /// its own.
    pub mail_tasks: usize,
    /// Cores of each memory node that serve calls, for protocols that make any.
    pub memnode_cores: f64,
    /// The network.
    pub network: Network,
    /// How long it is measured.
    pub duration: Duration,
    /// How long it runs before.
    pub warmup: Duration,
    /// Seed of all choices.
    pub seed: u64,
    /// What is switched off.
    pub without: Vec<ProtocolFeature>,
}

impl Default for Config {
    /// The setup of SELCC §7.1 scaled to seconds: 8 compute and 8 memory nodes, pages of 2 KiB, and
    /// caches of an eighth of the data.
    fn default() -> Self {
        Self {
            coherence: Coherence::Selcc,
            compute_nodes: 8,
            memory_nodes: 8,
            workers: 16,
            gcls: 65_536,
            gcl_bytes: 2048,
            cache_mib: 16,
            read_ratio: 0.95,
            sharing_ratio: 1.0,
            locality: 0.0,
            zipf: 0.0,
            writer_nodes: None,
            mail_tasks: 4,
            memnode_cores: 1.0,
            network: Network::Simulated(CostModel::PAPER),
            duration: Duration::from_millis(20),
            warmup: Duration::from_millis(10),
            seed: 1,
            without: Vec::new(),
        }
    }
}

impl Config {
    /// Checks every field. Keys are named as the command line names them.
    ///
    /// # Errors
    /// [`TpccError::Config`] with the key, the value and what is allowed, for the first bad field.
    pub fn validate(&self) -> Result<(), TpccError> {
        let count = |key, value: u64, low: u64, high: u64| {
            check((low..=high).contains(&value), key, &value, || format!("must be {low} to {high}"))
        };
        count("compute-nodes", self.compute_nodes as u64, 1, MAX_COMPUTE_NODES as u64)?;
        count("memory-nodes", self.memory_nodes as u64, 1, MAX_NODES as u64)?;
        count("workers", self.workers as u64, 1, MAX_WORKERS as u64)?;
        let pages = layout::MIN_GCL_BYTES..=layout::MAX_GCL_BYTES;
        let gcl_is_good = self.gcl_bytes.is_power_of_two() && pages.contains(&self.gcl_bytes);
        check(gcl_is_good, "gcl", &self.gcl_bytes, || {
            format!("must be a power of two in {} to {}", pages.start(), pages.end())
        })?;
        count("gcls", self.gcls, self.compute_nodes as u64, MAX_GCLS)?;
        let least = EngineConfig::min_cache_bytes(self.gcl_bytes).div_ceil(MIB);
        count("cache-mb", self.cache_mib, least, 1 << 24)?;
        for (key, ratio) in [
            ("read-ratio", self.read_ratio),
            ("sharing-ratio", self.sharing_ratio),
            ("locality", self.locality),
        ] {
            check((0.0..=1.0).contains(&ratio), key, &ratio, || "must be 0 to 1".into())?;
        }
        count("mail-tasks", self.mail_tasks as u64, 1, MAX_MAIL_TASKS as u64)?;
        let cores = self.memnode_cores;
        check((0.01..=64.0).contains(&cores), "memnode-cores", &cores, || {
            "must be 0.01 to 64; below 1 is a share of a stranded core, above it a whole number"
                .into()
        })?;
        check(cores < 1.0 || cores.fract() == 0.0, "memnode-cores", &cores, || {
            "must be a whole number above 1".into()
        })?;
        check((0.0..10.0).contains(&self.zipf), "zipf", &self.zipf, || {
            "must be 0 (uniform) to less than 10".into()
        })?;
        if let Some(writers) = self.writer_nodes {
            count("writer-nodes", writers as u64, 0, self.compute_nodes as u64)?;
        }
        let hour = Duration::from_secs(3600);
        let duration_is_good = !self.duration.is_zero() && self.duration <= hour;
        check(duration_is_good, "duration-ms", &self.duration.as_millis(), || {
            format!("must be 1 to {}", hour.as_millis())
        })?;
        if let Network::Real { threads } = self.network {
            count("threads", threads as u64, 1, 1024)?;
        }
        Ok(())
    }

    /// The pool for it: the pages, and room for what each node has leased and not used.
    pub(super) fn pool(&self) -> PoolConfig {
        let slab = layout::SlabGeometry::new(self.gcl_bytes, RANGE_BYTES).slab_bytes();
        let slack = (self.compute_nodes * self.memory_nodes) as u64 * 2 * layout::EXTENT_GCLS;
        let bytes = (self.gcls + slack + 2) * self.gcl_bytes as u64;
        let ranges = (bytes / self.memory_nodes as u64).div_ceil(RANGE_BYTES) + 1;
        PoolConfig {
            memory_nodes: self.memory_nodes,
            bytes_per_node: ranges * slab + layout::CONTROL_PAGE_BYTES,
            gcl_bytes: self.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes: self.compute_nodes,
            coding: Coding::PLAIN,
            log_bytes: 0,
        }
    }

    pub(super) fn engine(&self) -> EngineConfig {
        let mut engine = EngineConfig {
            coherence: self.coherence,
            cache_bytes: self.cache_mib * MIB,
            threads: u32::try_from(self.workers).unwrap_or(u32::MAX),
            request_timeout: Duration::from_secs(30),
            mail_tasks: self.mail_tasks,
            ..EngineConfig::default()
        };
        self.without.iter().for_each(|part| part.switch_off(&mut engine));
        engine
    }
}

fn check(
    holds: bool,
    key: &'static str,
    value: &impl ToString,
    allowed: impl FnOnce() -> String,
) -> Result<(), TpccError> {
    if holds {
        return Ok(());
    }
    Err(TpccError::Config { key, value: value.to_string(), allowed: allowed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        Config::default().validate().unwrap();
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.read_ratio = 1.5), "read-ratio = 1.5: must be 0 to 1");
        assert_eq!(refused(|c| c.locality = -0.1), "locality = -0.1: must be 0 to 1");
        assert!(refused(|c| c.sharing_ratio = f64::NAN).starts_with("sharing-ratio = NaN"));
        assert!(refused(|c| c.zipf = 10.0).contains("must be 0 (uniform) to less than 10"));
        assert_eq!(refused(|c| c.compute_nodes = 59), "compute-nodes = 59: must be 1 to 58");
        assert!(refused(|c| c.gcl_bytes = 3000).contains("power of two in 512 to 8192"));
        assert!(refused(|c| c.cache_mib = 1).starts_with("cache-mb = 1: must be 2 to"));
        assert!(refused(|c| c.gcls = 3).starts_with("gcls = 3: must be 8 to"));
        assert!(refused(|c| c.memnode_cores = 1.5).contains("whole number"));
        assert!(refused(|c| c.writer_nodes = Some(9)).contains("must be 0 to 8"));
        assert!(refused(|c| c.duration = Duration::ZERO).starts_with("duration-ms = 0"));
    }
}
