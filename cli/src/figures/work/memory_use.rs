//! How much memory the pages of a pool take, by coding and the size of a page.

use std::sync::Arc;

use selkie::engine::{ComputeId, Engine, EngineConfig, EngineError};
use selkie::fabric::sim::{World, WorldConfig};
use selkie::fabric::{Fabric, PeerId};
use selkie::memnode::EmbeddedPool;
use selkie::pool::{Coding, PoolConfig};

use super::cluster::{BOUND, NETWORK, RunError};

/// What each memory node lends, bytes: little, so that what a node has but once, as its journal,
/// counts rather too much.
pub(in crate::figures) const LENT: u64 = 128 << 20;
const RANGE_BYTES: u64 = 4 << 20;
/// Of a pool for as many as there can be.
pub(in crate::figures) const COMPUTE_NODES: usize = 58;
/// A pool that is filled with pages, on as many memory nodes as the coding has splits.
pub(in crate::figures) struct MemoryUse {
    pub(in crate::figures) coding: &'static str,
    pub(in crate::figures) gcl_bytes: usize,
}

/// What there was when the pool was full, bytes.
pub(in crate::figures) struct FilledPool {
    /// All that memory nodes lent: whole slabs, and what each node has but once.
    pub(in crate::figures) lent: u64,
    /// In pages.
    pub(in crate::figures) data: u64,
}

impl FilledPool {
    pub(in crate::figures) fn ratio(&self) -> f64 {
        self.lent as f64 / self.data as f64
    }
}

impl MemoryUse {
    pub(in crate::figures) fn run(&self, seed: u64) -> Result<FilledPool, RunError> {
        let world = World::new(WorldConfig { cost: NETWORK, ..WorldConfig::new(seed) });
        let fabric: Arc<dyn Fabric> = world.fabric();
        let coding: Coding = self.coding.parse()?;
        let config = PoolConfig {
            memory_nodes: coding.splits(),
            bytes_per_node: LENT,
            gcl_bytes: self.gcl_bytes,
            range_bytes: RANGE_BYTES,
            max_compute_nodes: COMPUTE_NODES,
            coding,
            log_bytes: 0,
        };
        let memory = EmbeddedPool::start(&fabric, config)?;
        let id = ComputeId::new(0).ok_or("no compute node")?;
        let env = world.env_of(PeerId::compute(0));
        let engine = world.run(
            BOUND,
            Engine::start(memory.pool(), &fabric, &env, id, EngineConfig::default()),
        )??;
        let pages = world.run(BOUND, fill(&engine))??;
        let regions = memory.memory_nodes();
        let lent = regions.iter().map(|node| node.region().len() as u64).sum();
        Ok(FilledPool { lent, data: pages * engine.page_bytes() as u64 })
    }
}

/// Allocates pages until there are no more; how many.
async fn fill(engine: &Engine) -> Result<u64, EngineError> {
    let mut pages = 0;
    loop {
        match engine.allocate().await {
            Ok(page) => drop(page),
            Err(EngineError::PoolFull { .. }) => return Ok(pages),
            Err(error) => return Err(error),
        }
        pages += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pages_take_is_their_splits_and_little_more() {
        for (coding, splits) in [("replicate=2", 2.0), ("4+2", 1.5)] {
            let filled = MemoryUse { coding, gcl_bytes: 4096 }.run(1).unwrap();
            let all = coding.parse::<Coding>().unwrap().splits() as u64 * LENT;
            assert!((all * 9 / 10..=all).contains(&filled.lent), "{coding}: {}", filled.lent);
            let beyond = filled.ratio() / splits;
            assert!((1.02..1.08).contains(&beyond), "{coding}: {}", filled.ratio());
        }
    }
}
