//! The gate for a node's work for the pool as a whole: recoveries, rebuilds, repairs. A node that
//! leaves closes it and waits for the work that has begun, so that none of it follows later.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use selkie_fabric::env::Env;

use crate::{EngineError, GAddr};

/// How often a closing gate looks whether all work has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The gate: work passes it while the node is in the pool.
#[derive(Default)]
pub(crate) struct RepairGate {
    under_way: AtomicUsize,
    retired: AtomicBool,
}

/// A permit to work for the pool; the work has ended when it is dropped.
#[must_use]
pub(crate) struct RepairPermit<'r>(&'r RepairGate);

impl Drop for RepairPermit<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl RepairGate {
    /// `None` if the node is about to leave.
    pub(crate) fn begin(&self) -> Option<RepairPermit<'_>> {
        // SeqCst with `retire`: either `retire` counts this permit, or this load sees that the node
        // retires.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let permit = RepairPermit(self);
        (!self.retired.load(Ordering::SeqCst)).then_some(permit)
    }

    /// Closes the gate, and waits for the work that has begun.
    ///
    /// # Errors
    /// `Timeout` after `timeout`; then the gate is open again.
    pub(crate) async fn retire(&self, env: &Env, timeout: Duration) -> Result<(), EngineError> {
        self.retired.store(true, Ordering::SeqCst);
        let started = env.now();
        while self.under_way.load(Ordering::SeqCst) > 0 {
            let waited = env.now() - started;
            if waited > timeout {
                self.reopen();
                return Err(EngineError::Timeout { addr: GAddr::NULL, waited });
            }
            env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Opens the gate again: the node stays.
    pub(crate) fn reopen(&self) {
        self.retired.store(false, Ordering::SeqCst);
    }
}
