//! The synchronisation primitives of `doorbell`, in one place so that its loom test can compile the
//! same source against loom's.

use std::ops::Deref;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use crate::shm::SharedWord;

/// The word that a doorbell counts in.
pub(crate) enum Word {
    /// Of this process alone.
    Own(AtomicU64),
    /// In memory that other processes ring in as well.
    #[cfg(target_os = "linux")]
    Shared(SharedWord),
}

impl Word {
    /// A word of this process, zero.
    pub(crate) fn own() -> Self {
        Self::Own(AtomicU64::new(0))
    }
}

impl Deref for Word {
    type Target = AtomicU64;

    #[inline]
    fn deref(&self) -> &AtomicU64 {
        match self {
            Self::Own(word) => word,
            #[cfg(target_os = "linux")]
            Self::Shared(word) => word,
        }
    }
}

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
