//! What a node does for the pool as a whole: made whole before it leaves, so that nothing of it
//! comes after others have taken its place.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use selkie_fabric::env::Env;

use crate::{EngineError, GAddr};

/// How often it is looked whether all has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The steps under way.
#[derive(Default)]
pub(crate) struct RepairGate {
    under_way: AtomicUsize,
    retired: AtomicBool,
}

/// A step; over when it is dropped.
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
        // SeqCst with `retire`: either that finds this step under way, or the load here finds that
        // the node retires.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let step = RepairPermit(self);
        (!self.retired.load(Ordering::SeqCst)).then_some(step)
    }

    /// Has no more begin, and waits for those under way.
    ///
    /// # Errors
    /// `Timeout` after the request timeout; then more may begin.
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

    /// The node stays after all.
    pub(crate) fn reopen(&self) {
        self.retired.store(false, Ordering::SeqCst);
    }
}
