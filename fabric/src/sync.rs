//! The synchronisation primitives of `doorbell`, in one place so that its loom test can compile the
//! same source against loom's.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

/// A mutex whose lock cannot be poisoned.
#[derive(Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    /// A mutex around `value`.
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    /// Runs `action` with the lock held.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
        action(&mut self.0.lock())
    }
}
