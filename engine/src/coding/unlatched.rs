//! Accesses without a latch, which must not meet a rebuild: adds to counters, and reads of headers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What has begun at this node that must not meet a rebuild: adds, and what looks at headers
/// without a latch.
#[derive(Default)]
pub(crate) struct UnlatchedAccesses(AtomicUsize);

pub(crate) struct UnlatchedAccess<'a>(&'a UnlatchedAccesses);

impl UnlatchedAccesses {
    pub(crate) fn begin(&self) -> UnlatchedAccess<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        UnlatchedAccess(self)
    }

    /// Whether none is under way.
    pub(crate) fn are_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Drop for UnlatchedAccess<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
