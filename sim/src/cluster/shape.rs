//! How many nodes of which size.

use std::collections::BTreeMap;
use std::time::Duration;

use selkie_engine::EngineConfig;
use selkie_pool::Coding;

use crate::disk::SimDisk;

/// The lease of a cluster whose nodes are processes of their own: cheap to wait for, and many times
/// what an operation takes.
pub(crate) const LEASE: Duration = Duration::from_millis(8);
/// How often such nodes show that they live.
pub(crate) const HEARTBEAT: Duration = Duration::from_micros(800);

/// How many nodes of which size.
#[derive(Clone, Debug)]
pub struct SimShape {
    /// Memory nodes.
    pub memory_nodes: usize,
    /// Compute nodes.
    pub compute_nodes: usize,
    /// Memory lent by each memory node, bytes.
    pub bytes_per_node: u64,
    /// Bytes of a page.
    pub gcl_bytes: usize,
    /// How the pool keeps pages.
    pub coding: Coding,
    /// Bytes that each memory node keeps for the log of a compute node.
    pub log_bytes: u64,
    /// Where engines keep their logs, unless their configuration says it.
    pub disk: Option<SimDisk>,
    /// Whether each node is a process of its own, with a lease that it has to show itself for, and
    /// the control plane is apart from all of them.
    pub processes: bool,
    /// The incarnations of the nodes of an earlier pool, whose pages this one gets.
    pub after: BTreeMap<u16, u32>,
    /// Configuration of every engine.
    pub engine: EngineConfig,
}

impl SimShape {
    /// Small pages, the smallest cache, short rings: most happens in little memory.
    pub fn small(memory_nodes: usize, compute_nodes: usize) -> Self {
        let gcl_bytes = 512;
        SimShape {
            memory_nodes,
            compute_nodes,
            bytes_per_node: 4 << 20,
            gcl_bytes,
            coding: Coding::PLAIN,
            log_bytes: 0,
            disk: None,
            processes: false,
            after: BTreeMap::new(),
            engine: EngineConfig {
                cache_bytes: EngineConfig::min_cache_bytes(gcl_bytes),
                request_timeout: Duration::from_millis(500),
                ring_bytes: 32 << 10,
                tick: Duration::from_millis(1),
                gamma: 16,
                ..EngineConfig::default()
            },
        }
    }
}
