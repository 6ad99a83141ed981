//! The memory of a pool of this process is populated before its run, so that no access of the run
//! pays for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selkie_fabric::Fabric;
use selkie_memnode::monitor::{FreeMemory, HostMemory};
use selkie_memnode::{EmbeddedPool, PopulationWatcher};
use selkie_pool::PoolConfig;

use super::setup::MIB;
use crate::error::TpccError;
use crate::figures::units::bytes;
use crate::run::Progress;

/// Memory that takes so long to populate that there is progress to see: half a second.
const MUCH: u64 = 1024 * MIB;

/// Starts the memory nodes of a pool of this process with their memory populated, in a stage of the
/// progress if that takes long. A pool that is larger than what is free on the host, beside
/// `cache_bytes` of caches, takes its memory when it is touched, and a note says so: a long run may
/// not need all of it. Blocks the calling thread, about half a second for each GiB.
///
/// # Errors
/// [`TpccError::Interrupted`], and as [`EmbeddedPool::start`].
pub(crate) fn start_populated(
    fabric: &Arc<dyn Fabric>,
    config: PoolConfig,
    cache_bytes: u64,
    progress: &Arc<dyn Progress>,
) -> Result<Arc<EmbeddedPool>, TpccError> {
    let of_pool = config.bytes_per_node.saturating_mul(config.memory_nodes as u64);
    let free = HostMemory::default().free_bytes().unwrap_or(u64::MAX);
    if of_pool.saturating_add(cache_bytes) > free {
        progress.note(&format!(
            "the pool takes its memory when it is touched: it may take {} beside {} of caches, and \
             {} are free on this host",
            bytes(of_pool),
            bytes(cache_bytes),
            bytes(free),
        ));
        return Ok(EmbeddedPool::start(fabric, config)?);
    }
    let is_much = of_pool >= MUCH;
    if is_much {
        progress.begin("taking memory", of_pool / MIB);
    }
    let memory = EmbeddedPool::start_populated(fabric, config, &watcher(is_much, progress));
    if is_much {
        progress.end();
    }
    match memory {
        Err(_) if progress.is_interrupted() => Err(TpccError::Interrupted),
        memory => Ok(memory?),
    }
}

/// Advances the stage, if there is one, by the memory that each node has populated.
fn watcher(has_stage: bool, progress: &Arc<dyn Progress>) -> PopulationWatcher {
    let progress = Arc::clone(progress);
    // Bytes of the node that populates now; the nodes do it one after the other.
    let told = AtomicU64::new(0);
    PopulationWatcher::new(move |done, _| {
        let before = told.swap(done, Ordering::Relaxed);
        if has_stage {
            progress.advance(done.saturating_sub(before) / MIB);
        }
        if progress.is_interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use parking_lot::Mutex;
    use selkie_fabric::mem::MemFabric;
    use selkie_pool::Coding;

    use super::*;

    const CONFIG: PoolConfig = PoolConfig {
        memory_nodes: 2,
        bytes_per_node: 4 << 20,
        gcl_bytes: 2048,
        range_bytes: 1 << 20,
        max_compute_nodes: 1,
        coding: Coding::PLAIN,
        log_bytes: 0,
    };

    /// Keeps what it is told.
    #[derive(Default)]
    struct Told {
        steps: AtomicU64,
        notes: Mutex<Vec<String>>,
        is_interrupted: AtomicBool,
    }

    impl Progress for Told {
        fn begin(&self, _: &'static str, _: u64) {}
        fn advance(&self, steps: u64) {
            self.steps.fetch_add(steps, Ordering::Relaxed);
        }
        fn end(&self) {}
        fn note(&self, line: &str) {
            self.notes.lock().push(line.to_owned());
        }
        fn is_interrupted(&self) -> bool {
            self.is_interrupted.load(Ordering::Relaxed)
        }
    }

    fn started(told: &Arc<Told>, cache_bytes: u64) -> Result<Arc<EmbeddedPool>, TpccError> {
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let progress = Arc::clone(told) as Arc<dyn Progress>;
        start_populated(&fabric, CONFIG, cache_bytes, &progress)
    }

    #[test]
    fn a_pool_is_populated_if_there_is_room_for_it_beside_the_caches() {
        let told = Arc::new(Told::default());
        assert_eq!(started(&told, 1 << 20).unwrap().memory_nodes().len(), 2);
        assert!(told.notes.lock().is_empty());
        assert!(started(&told, u64::MAX).is_ok());
        let notes = told.notes.lock().join("");
        assert!(notes.contains("it may take 8.0 MiB beside"), "{notes}");
    }

    #[test]
    fn population_is_broken_off_by_a_signal() {
        let told = Arc::new(Told { is_interrupted: true.into(), ..Told::default() });
        assert!(matches!(started(&told, 0), Err(TpccError::Interrupted)));
        // Nothing is populated that would have to be broken off.
        assert!(started(&told, u64::MAX).is_ok());
    }

    #[test]
    fn the_stage_advances_by_what_all_nodes_populate() {
        let told = Arc::new(Told::default());
        let progress = Arc::clone(&told) as Arc<dyn Progress>;
        let fabric: Arc<dyn Fabric> = MemFabric::new();
        let pool = EmbeddedPool::start_populated(&fabric, CONFIG, &watcher(true, &progress));
        let of_node = pool.unwrap().memory_nodes()[0].region().len() as u64 / MIB;
        assert_eq!((told.steps.load(Ordering::Relaxed), of_node), (6, 3));
    }
}
