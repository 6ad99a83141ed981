//! The engine's lock-free structures under the interleavings of a few threads with few preemptions,
//! searched by loom.
//!
//! The tests compile the structures' own sources against loom's primitives: inside this crate,
//! `crate::sync` is the module of these tests. What the sources take from the rest of the engine
//! has small stand-ins here. loom knows which accesses to a cell are ordered, so a page that is
//! read while it is written, or before it is visible, fails a test, though no bytes are torn.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail like tests"
)]
#![expect(clippy::arc_with_non_send_sync, reason = "loom runs one thread at a time")]

#[path = "../../src/cache/address_table.rs"]
#[expect(dead_code, reason = "the engine uses more of it")]
mod address_table;
mod epoch;
mod frame;
mod frames;
mod hits;
#[path = "../../src/cache/latch.rs"]
#[expect(dead_code, reason = "the engine uses more of it")]
mod latch;
mod latches;
mod lookups;
mod sync;
#[path = "../../src/addressing/versioned.rs"]
mod versioned;
mod versions;

use selkie_pool::GAddr;

/// Stands in for the engine's module of the same name.
mod coherence {
    pub(crate) mod machine {
        /// What the latch says of its holders.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum LocalUse {
            Idle,
            Readers,
            Writer,
        }
    }
}

/// Searches the interleavings with at most so many preemptions each. A search without a bound takes
/// minutes.
fn model(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(body);
}

/// What these threads return.
fn joined<T, const N: usize>(threads: [loom::thread::JoinHandle<T>; N]) -> [T; N] {
    threads.map(|thread| thread.join().unwrap())
}
