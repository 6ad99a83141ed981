//! The result of a task of another thread.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;

/// The result of a task of another thread, once it is there.
pub(super) struct Completion<T> {
    result: Mutex<Option<T>>,
    bell: Doorbell,
}

impl<T> Completion<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { result: Mutex::new(None), bell: Doorbell::default() })
    }

    pub(super) fn finish(&self, result: T) {
        *self.result.lock() = Some(result);
        self.bell.ring();
    }

    /// Waits for the result. Returns that of `or` if it was taken before.
    pub(super) async fn wait(&self, or: impl FnOnce() -> T) -> T {
        self.bell.wait_past(0).await;
        self.result.lock().take().unwrap_or_else(or)
    }
}
