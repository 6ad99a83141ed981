//! What to run, and the check of it before anything starts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use selkie_engine::Coherence;
use selkie_pool::{Coding, PoolConfig};
use selkie_txn::Protocol;

use crate::cluster::bounds::{refused, within};
use crate::cluster::{ClusterShape, Durability, Network, Setup};
use crate::error::TpccError;
use crate::tpcc::affinity::{Affinity, owner_of};
use crate::tpcc::by_sql::Via;
use crate::tpcc::scale::{GROWTH_BYTES_PER_SECOND, Scale};
use crate::tpcc::schema::schemas;
use crate::tpcc::transaction_type::TransactionType;

/// Most warehouses: what 32-bit keys and any machine's memory leave room for.
pub const MAX_WAREHOUSES: u32 = 100_000;

/// What to run. [`Config::validate`] says what is allowed for each field.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Warehouses to load.
    pub warehouses: u32,
    /// How long to run after the load and the warm-up.
    pub duration: Duration,
    /// How long to run before anything counts.
    pub warmup: Duration,
    /// Compute nodes, each with its own cache.
    pub compute_nodes: usize,
    /// Memory nodes of the pool.
    pub memory_nodes: usize,
    /// Worker tasks of each compute node.
    pub workers: usize,
    /// Tasks of each compute node that take messages in; in virtual time each has a processor of
    /// its own.
    pub mail_tasks: usize,
    /// Where the network is, and which time is measured.
    pub network: Network,
    /// Cache of each compute node, MiB; `None`: half of the loaded database.
    pub cache_mib: Option<u64>,
    /// Most memory of each compute node beside the cache, MiB, for pages that large transactions
    /// have changed; `None`: as engines have it.
    pub overflow_mib: Option<u64>,
    /// Memory lent by each memory node, bytes; `None`: what data, growth and some headroom take.
    pub memory_bytes: Option<u64>,
    /// Bytes of a global cache line.
    pub gcl_bytes: usize,
    /// How nodes agree on who may use a page; all but [`Coherence::Rpc`].
    pub coherence: Coherence,
    /// How the pool keeps pages.
    pub coding: Coding,
    /// How transactions are kept apart.
    pub protocol: Protocol,
    /// How workers run them.
    pub via: Via,
    /// When a commit lasts.
    pub durability: Durability,
    /// How long an access may wait before it is an error.
    pub request_timeout: Duration,
    /// Which warehouses a compute node works on.
    pub affinity: Affinity,
    /// First and last of the warehouses to which the terminals belong, from 1; `None`: all.
    pub homes: Option<(u32, u32)>,
    /// Of a hundred NewOrder, and of as many Payment transactions, those that have to do with
    /// another node's warehouse, or where every node works on all, with another than their own; a
    /// NewOrder by one of its lines. `None`: as the standard has it, by lines, and with any other
    /// warehouse.
    pub remote_percent: Option<u32>,
    /// Seed of data and inputs.
    pub seed: u64,
    /// The only transaction type there is; `None`: all, in the shares of the standard.
    pub only: Option<TransactionType>,
    /// Whether workers wait like people at terminals (clause 5.2.5.7).
    pub think: bool,
    /// A file to which each NewOrder and Payment is added as soon as it has committed.
    pub record_commits: Option<PathBuf>,
    /// Such files of others, for whose transactions the check looks as well.
    pub verify_commits: Vec<PathBuf>,
    /// Rows to begin with.
    pub scale: Scale,
}

impl Default for Config {
    /// That of [`Setup`], with four warehouses of standard size.
    fn default() -> Self {
        let setup = Setup::default();
        Self {
            warehouses: 4,
            duration: setup.duration,
            warmup: setup.warmup,
            compute_nodes: setup.compute_nodes,
            memory_nodes: setup.memory_nodes,
            workers: setup.workers,
            mail_tasks: setup.mail_tasks,
            network: setup.network,
            cache_mib: setup.cache_mib,
            overflow_mib: setup.overflow_mib,
            memory_bytes: setup.memory_bytes,
            gcl_bytes: setup.gcl_bytes,
            coherence: setup.coherence,
            coding: setup.coding,
            protocol: setup.protocol,
            via: Via::Native,
            durability: setup.durability,
            request_timeout: setup.request_timeout,
            affinity: Affinity::Shared,
            homes: None,
            remote_percent: None,
            seed: setup.seed,
            only: None,
            think: false,
            record_commits: None,
            verify_commits: Vec::new(),
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
        if self.coherence == Coherence::Rpc {
            return Err(refused("coherence", "rpc", "must be selcc or sel".to_owned()));
        }
        self.setup().validate("TPC-C", &schemas())?;
        if let Some(path) = self.verify_commits.iter().find(|path| !path.is_file()) {
            return Err(refused(
                "verify-commits",
                path.display().to_string(),
                "must be a file".to_owned(),
            ));
        }
        let directory = |path: &Path| match path.parent() {
            Some(parent) if parent != Path::new("") => parent.is_dir(),
            _ => true,
        };
        // Else the load would have been in vain.
        if let Some(path) = self.record_commits.as_ref().filter(|path| !directory(path)) {
            let allowed = "must be a file in a directory that is there".to_owned();
            return Err(refused("record-commits", path.display().to_string(), allowed));
        }
        let (first, last) = self.homes();
        if !(1..=last).contains(&first) || last > self.warehouses {
            let allowed = format!("must be a range within 1-{}", self.warehouses);
            return Err(refused("homes", format!("{first}-{last}"), allowed));
        }
        let homes = (last - first) as usize + 1;
        let affinity = match self.affinity {
            Affinity::Shared => None,
            Affinity::Warehouse => Some("warehouse"),
            Affinity::Partitioned => Some("partitioned"),
        };
        if let Some(affinity) = affinity.filter(|_| self.compute_nodes > homes) {
            let allowed = format!(
                "with --affinity {affinity} must be 1 to the number of warehouses, {homes}"
            );
            return Err(refused("compute-nodes", self.compute_nodes, allowed));
        }
        if self.affinity == Affinity::Partitioned {
            self.validate_partitioned()?;
        }
        self.validate_via()?;
        self.validate_remote_percent()
    }

    fn validate_via(&self) -> Result<(), TpccError> {
        let Via::Sql(connector) = &self.via else { return Ok(()) };
        if self.protocol != Protocol::Snapshot {
            let allowed = format!("with --via {} must be snapshot", connector.name());
            return Err(refused("protocol", self.protocol, allowed));
        }
        if let Network::Simulated(_) = &self.network {
            let allowed = "must be native where time is virtual".to_owned();
            return Err(refused("via", connector.name(), allowed));
        }
        Ok(())
    }

    fn validate_partitioned(&self) -> Result<(), TpccError> {
        if self.protocol != Protocol::TwoPhase {
            let allowed = "with --affinity partitioned must be 2pl".to_owned();
            return Err(refused("protocol", self.protocol, allowed));
        }
        if let Some((first, last)) = self.homes {
            let allowed = "is not to be given with --affinity partitioned, which has terminals at \
                           all warehouses";
            return Err(refused("homes", format!("{first}-{last}"), allowed.to_owned()));
        }
        Ok(())
    }

    fn validate_remote_percent(&self) -> Result<(), TpccError> {
        let Some(percent) = self.remote_percent else { return Ok(()) };
        within("remote-percent", percent.into(), 0, 100)?;
        let alone = self.affinity != Affinity::Shared && self.compute_nodes == 1;
        if percent > 0 && (self.warehouses == 1 || alone) {
            let allowed = "must be 0 where there is no warehouse, or no node, but one".to_owned();
            return Err(refused("remote-percent", percent, allowed));
        }
        Ok(())
    }

    /// Nodes, workers and sizes.
    #[must_use]
    pub fn setup(&self) -> Setup {
        Setup {
            duration: self.duration,
            warmup: self.warmup,
            compute_nodes: self.compute_nodes,
            memory_nodes: self.memory_nodes,
            workers: self.workers,
            mail_tasks: self.mail_tasks,
            network: self.network.clone(),
            cache_mib: self.cache_mib,
            overflow_mib: self.overflow_mib,
            memory_bytes: self.memory_bytes,
            gcl_bytes: self.gcl_bytes,
            coherence: self.coherence,
            coding: self.coding,
            protocol: self.protocol,
            durability: self.durability.clone(),
            request_timeout: self.request_timeout,
            seed: self.seed,
            transactions: None,
        }
    }

    /// What pool and caches take.
    #[must_use]
    pub fn shape(&self) -> ClusterShape {
        let growth_bytes = if self.think {
            0
        } else {
            self.duration.as_secs().saturating_mul(GROWTH_BYTES_PER_SECOND)
        };
        let divided = self.affinity == Affinity::Partitioned;
        ClusterShape {
            setup: self.setup(),
            database_bytes: self.database_bytes(),
            growth_bytes,
            divided,
            tables: None,
        }
    }

    /// Bytes the loaded database takes, about.
    #[must_use]
    pub fn database_bytes(&self) -> u64 {
        self.scale.database_bytes(self.warehouses)
    }

    /// Bytes the pool is estimated to need for the load and the run.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.shape().needed_bytes()
    }

    /// Bytes of cache of each compute node.
    #[must_use]
    pub fn cache_bytes(&self) -> u64 {
        self.shape().cache_bytes()
    }

    /// The pool for this configuration.
    #[must_use]
    pub fn pool(&self) -> PoolConfig {
        self.shape().pool()
    }

    /// First and last of the warehouses to which the terminals belong.
    fn homes(&self) -> (u32, u32) {
        self.homes.unwrap_or((1, self.warehouses))
    }

    /// The warehouses a compute node works on.
    #[must_use]
    pub fn homes_of(&self, node: usize) -> Vec<i32> {
        let (first, last) = self.homes();
        let (first, last) = (first.cast_signed(), last.cast_signed());
        (first..=last)
            .filter(|warehouse| match self.affinity {
                Affinity::Shared => true,
                Affinity::Warehouse | Affinity::Partitioned => {
                    let (position, homes) = (warehouse - first + 1, last - first + 1);
                    let owner = owner_of(position, homes, self.compute_nodes);
                    owner == node % self.compute_nodes
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use selkie_engine::EngineConfig;

    use super::*;
    use crate::cluster::MAX_DURATION;

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
        assert!(refused(|c| c.network = Network::Real { threads: 0 }).starts_with("threads = 0"));
        let duration = refused(|c| c.duration = Duration::ZERO);
        assert_eq!(duration, "duration = 0: must be above 0 and at most 86400 seconds");
        let duration = refused(|c| c.duration = MAX_DURATION + Duration::from_millis(500));
        assert_eq!(duration, "duration = 86400.5: must be above 0 and at most 86400 seconds");
        let warmup = refused(|c| c.warmup = MAX_DURATION + Duration::from_secs(1));
        assert_eq!(warmup, "warmup = 86401: must be at most 86400 seconds");
        let allowed = "request-timeout = 0: must be 1 to";
        assert!(refused(|c| c.request_timeout = Duration::ZERO).starts_with(allowed));
        assert!(refused(|c| c.mail_tasks = 0).starts_with("mail-tasks = 0: must be 1 to"));
        let coherence = refused(|c| c.coherence = Coherence::Rpc);
        assert_eq!(coherence, "coherence = rpc: must be selcc or sel");
        let gcl = "must be a power of two in 1024 to 8192";
        assert_eq!(refused(|c| c.gcl_bytes = 1000), format!("gcl = 1000: {gcl}"));
        assert_eq!(refused(|c| c.gcl_bytes = 16384), format!("gcl = 16384: {gcl}"));
        assert!(refused(|c| c.cache_mib = Some(1)).starts_with("cache-mb = 1: must be 2 to"));
        let overflow = refused(|c| c.overflow_mib = Some(u64::MAX));
        assert!(overflow.contains("must be 0 to 1048576"), "{overflow}");
        assert!(
            refused(|c| c.memory_bytes = Some(1 << 20)).starts_with("memory-mb = 1: must be 5 to")
        );
    }

    #[test]
    fn small_pages_are_refused_with_the_table() {
        let text = refused(|c| c.gcl_bytes = 512);
        assert!(text.starts_with("gcl = 512: must be at least 1024 for TPC-C"), "{text}");
        assert!(text.contains("table customer_data"), "{text}");
        let large = Config { gcl_bytes: 4096, ..Config::default() };
        large.validate().unwrap();
    }

    #[test]
    fn every_node_needs_a_warehouse_of_its_own() {
        let text = refused(|c| (c.affinity, c.warehouses) = (Affinity::Warehouse, 1));
        assert!(text.contains("compute-nodes = 2") && text.contains("warehouses, 1"), "{text}");
        let config = Config { affinity: Affinity::Warehouse, warehouses: 5, ..Config::default() };
        assert_eq!((config.homes_of(0), config.homes_of(1)), (vec![1, 2, 3], vec![4, 5]));
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
    fn partitions_are_two_phase_locked_and_have_terminals_everywhere() {
        let partitioned = Config { affinity: Affinity::Partitioned, ..Config::default() };
        partitioned.validate().unwrap();
        let refused = |change: fn(&mut Config)| {
            let mut config = partitioned.clone();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        let text = refused(|c| c.protocol = Protocol::Optimistic);
        assert_eq!(text, "protocol = occ: with --affinity partitioned must be 2pl");
        assert!(refused(|c| c.homes = Some((1, 4))).starts_with("homes = 1-4: is not to be given"));
        assert!(refused(|c| c.warehouses = 1).contains("with --affinity partitioned must be 1"));
        let text = refused(|c| c.remote_percent = Some(101));
        assert_eq!(text, "remote-percent = 101: must be 0 to 100");
        let text = refused(|c| (c.remote_percent, c.compute_nodes) = (Some(1), 1));
        assert!(text.starts_with("remote-percent = 1: must be 0 where"), "{text}");
        // The node that has a warehouse's terminals owns it.
        for node in 0..2 {
            let homes = partitioned.homes_of(node);
            assert!(homes.len() == 2 && homes.iter().all(|home| owner_of(*home, 4, 2) == node));
        }
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
