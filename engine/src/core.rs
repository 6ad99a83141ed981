//! The parts of one engine, each with its own state and locks.
//!
//! A part's methods stand beside its state. What needs several parts is an `impl Core` in the
//! folder of its duty; files of state do not name `Core`.

use std::sync::{Arc, Weak};

use selkie_fabric::Endpoint;
use selkie_fabric::env::Env;
use selkie_pool::{ComputeIndex, Pool};

use crate::addressing::allocator::Allocator;
use crate::addressing::epochs::Epochs;
use crate::addressing::memory_access::MemoryAccess;
use crate::addressing::reclamation::Reclamation;
use crate::cache::page_cache::PageCache;
use crate::coherence::machine::Rules;
use crate::coherence::messenger::Messenger;
use crate::coherence::word::ComputeId;
use crate::config::EngineConfig;
use crate::lifecycle::Lifecycle;
use crate::log::state::Log;
use crate::recovery::state::RecoveryState;
use crate::snapshots::state::SnapshotState;
use crate::telemetry::counting::Telemetry;

/// One engine.
pub(crate) struct Core {
    /// Itself, for tasks that outlive a call.
    pub(crate) this: Weak<Core>,
    pub(crate) me: ComputeId,
    pub(crate) config: EngineConfig,
    pub(crate) rules: Rules,
    pub(crate) env: Env,
    pub(crate) endpoint: Arc<dyn Endpoint>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) cache: PageCache,
    pub(crate) memory: MemoryAccess,
    pub(crate) messenger: Messenger,
    pub(crate) recovery: RecoveryState,
    pub(crate) allocator: Allocator,
    pub(crate) epochs: Epochs,
    pub(crate) reclamation: Reclamation,
    /// Where changes are recorded, if they are to outlive the node.
    pub(crate) log: Option<Arc<Log>>,
    /// Snapshots that are active here, and images of pages for snapshots anywhere.
    pub(crate) snapshots: SnapshotState,
    pub(crate) telemetry: Telemetry,
    /// Where a test has this node panic.
    #[cfg(test)]
    pub(crate) planted_panic: parking_lot::Mutex<Option<&'static str>>,
}

impl Core {
    /// This node's index in the pool.
    pub(crate) fn index(&self) -> ComputeIndex {
        ComputeIndex::new(self.me.index() as u16)
    }

    /// Ends all waits if the engine has failed.
    pub(crate) fn fail_all_waits(&self) {
        if let Some(error) = self.lifecycle.failure() {
            self.cache.fail_all_waits(error);
        }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.lifecycle.stop_bell().ring();
        let (Some(incarnation), false) =
            (self.lifecycle.incarnation(), self.lifecycle.is_leaving())
        else {
            return;
        };
        // Latch words still name this node: the other nodes recover from this as from a death. The
        // task has no engine to end if it panics, so it does not run through `Core::spawn`.
        let (pool, node) = (Arc::clone(&self.pool), self.index());
        drop(self.env.spawn("give up", async move {
            if let Err(error) = pool.give_up(node, incarnation).await {
                tracing::debug!(%error, "an engine is gone that has not left");
            }
        }));
    }
}
