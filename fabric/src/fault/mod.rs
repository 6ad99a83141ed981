//! Decorator `fault`: makes a fabric misbehave, by a seeded plan, within what the contract allows.
//!
//! - *Delay*: a chain executes later, and its completion arrives later still. Chains of one queue
//!   pair still execute and complete in order; those of different queue pairs overtake each other.
//! - *Death*: a peer dies at a given chain, or by command. Outstanding and later chains to it and
//!   from it fail with `PeerDead`; the outstanding ones may or may not have executed.
//! - *Tear*: a write above 8 bytes lands in two parts with time between them.
//! - *Corruption*: one bit of the payload of a read above 8 bytes is flipped on its way.
//!
//! Chains without a fault pass at once, unless an earlier chain of their queue pair is delayed. The
//! others wait in the delay queue of their queue pair (`delay_queue`) for a background task that
//! executes them in order. `tear` splits a write and joins it again.
//!
//! Fates are drawn per queue pair, in the order of its posts, from a sequence that depends on the
//! plan's seed and on how many queue pairs were connected before. Where those orders are
//! deterministic, so are the faults.
//!
//! Not done: after the death of a peer its outstanding chains fail only when their delay is over. A
//! peer that was dropped here cannot join again by its name.

mod delay_queue;
mod fabric;
mod plan;
mod queue_pair;
mod state;
mod tear;

pub use fabric::FaultFabric;
pub use plan::{Delay, FaultPlan, FaultReport, PeerDeath, Tear};
