//! What a node does for the pool as a whole: made whole before it leaves, so that nothing of it
//! comes after others have taken its place.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::core::Core;
use crate::{EngineError, GAddr};

/// How often it is looked whether all has ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The steps under way.
#[derive(Default)]
pub(crate) struct Repairs {
    under_way: AtomicUsize,
    retired: AtomicBool,
}

/// A step; over when it is dropped.
#[must_use]
pub(crate) struct Step<'r>(&'r Repairs);

impl Drop for Step<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Repairs {
    /// `None` if the node is about to leave.
    pub(crate) fn begin(&self) -> Option<Step<'_>> {
        // SeqCst with `retire`: either that finds this step under way, or the load here finds that
        // the node retires.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let step = Step(self);
        (!self.retired.load(Ordering::SeqCst)).then_some(step)
    }

    /// Has no more begin, and waits for those under way.
    ///
    /// # Errors
    /// `Timeout` after the request timeout; then more may begin.
    pub(crate) async fn retire(&self, core: &Core) -> Result<(), EngineError> {
        self.retired.store(true, Ordering::SeqCst);
        let started = core.env.now();
        while self.under_way.load(Ordering::SeqCst) > 0 {
            let waited = core.env.now() - started;
            if waited > core.config.request_timeout {
                self.go_on();
                return Err(EngineError::Timeout { addr: GAddr::NULL, waited });
            }
            core.env.sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// The node stays after all.
    pub(crate) fn go_on(&self) {
        self.retired.store(false, Ordering::SeqCst);
    }
}
