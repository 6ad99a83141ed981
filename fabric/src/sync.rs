//! The synchronisation primitives of `doorbell`. They are in one place so that the loom test can
//! compile the same source against the primitives of loom.

use std::ops::Deref;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use crate::shm::SharedDoorbellWord;

/// The word that a doorbell counts in.
pub(crate) enum Word {
    /// A word of this process.
    ShmNode(AtomicU64),
    /// A word in memory that other processes ring in, too.
    #[cfg(target_os = "linux")]
    Shared(SharedDoorbellWord),
}

impl Word {
    /// A word of this process, zero.
    pub(crate) fn own() -> Self {
        Self::ShmNode(AtomicU64::new(0))
    }
}

impl Deref for Word {
    type Target = AtomicU64;

    #[inline]
    fn deref(&self) -> &AtomicU64 {
        match self {
            Self::ShmNode(word) => word,
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
