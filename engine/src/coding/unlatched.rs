//! Accesses without a latch, which must not meet a rebuild: adds to counters, and reads of headers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The unlatched accesses that have begun at this node.
#[derive(Default)]
pub(crate) struct UnlatchedAccesses(AtomicUsize);

/// An unlatched access; it ends when this is dropped.
pub(crate) struct UnlatchedAccess<'a>(&'a UnlatchedAccesses);

impl UnlatchedAccesses {
    pub(crate) fn begin(&self) -> UnlatchedAccess<'_> {
        self.0.fetch_add(1, Ordering::SeqCst);
        UnlatchedAccess(self)
    }

    /// Whether none has begun.
    pub(crate) fn are_over(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

impl Drop for UnlatchedAccess<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}
