//! The synchronisation primitives of the lock-free structures: the latch of a frame and the address
//! table. They are in one place so that the loom tests (`tests/loom`) can compile the same sources
//! against the primitives of loom.

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
