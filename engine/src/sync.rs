//! The synchronisation primitives of the lock-free structures: the latch of a frame, the address
//! table, the versions of the placement map. They are in one place so that the loom tests
//! (`tests/loom`) can compile the same sources against the primitives of loom.

pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) use crossbeam_epoch as epoch;
pub(crate) use parking_lot::Mutex;
