//! A way to a control plane that a test can cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::{BoxFuture, Doorbell};
use selkie_pool::control::{
    Beat, Change, ControlError, ControlPlane, PoolState, Version, Versioned,
};

/// A process's way to the plane, which can be cut.
pub struct Way {
    plane: Arc<dyn ControlPlane>,
    is_cut: AtomicBool,
    is_late: AtomicBool,
    is_held: AtomicBool,
    released: Doorbell,
}

impl Way {
    pub fn to(plane: &Arc<dyn ControlPlane>) -> Arc<Self> {
        Arc::new(Self {
            plane: Arc::clone(plane),
            is_cut: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            is_held: AtomicBool::new(false),
            released: Doorbell::new(),
        })
    }

    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::SeqCst);
    }

    /// Answers to changes come 150 ms late.
    pub fn delay(&self, is_late: bool) {
        self.is_late.store(is_late, Ordering::SeqCst);
    }

    /// Answers to changes do not come, until they do all.
    pub fn hold(&self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
        self.released.ring();
    }

    fn pass(&self) -> Result<&dyn ControlPlane, ControlError> {
        if self.is_cut.load(Ordering::SeqCst) {
            let (place, what) = ("the plane".to_owned(), "the way is cut".to_owned());
            return Err(ControlError::Unavailable { place, what });
        }
        Ok(&*self.plane)
    }
}

impl ControlPlane for Way {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { self.pass()?.load().await })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        Box::pin(async { self.pass()?.create(state).await })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            let done = self.pass()?.replace_as(change, expected, state).await;
            if self.is_late.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(150));
            }
            let mut seen = 0;
            while self.is_held.load(Ordering::SeqCst) {
                seen = self.released.wait_past(seen).await;
            }
            done
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move { self.pass()?.beat(beat).await })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async { self.pass()?.beats().await })
    }

    fn pace(&self) -> Duration {
        self.plane.pace()
    }

    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        self.plane.destroy()
    }
}
