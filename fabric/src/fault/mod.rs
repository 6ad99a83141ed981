//! Decorator `fault`: makes a fabric misbehave, by a seeded plan, within what the contract allows.
//!
//! - *Delay*: a chain executes later, and its completion arrives later still. Chains of one queue
//!   pair still execute and complete in order; those of different queue pairs overtake each other.
//! - *Death*: a peer is gone from a given chain on, or by command. Outstanding and later chains to
//!   it and from it fail with `PeerDead`; those outstanding may or may not have executed.
//! - *Tear*: a write above 8 bytes lands in two parts with time between them.
//! - *Corruption*: one bit of the payload of a read above 8 bytes is flipped on its way.
//!
//! Chains that the plan leaves alone pass through at once, unless an earlier chain of their queue
//! pair is still held up. Others wait in their queue pair's lane (`lane`) for a background task
//! that executes them in order; `tear` takes a write apart and puts it together again.
//!
//! Fates are drawn per queue pair, in the order of its posts, from a sequence that depends on the
//! plan's seed and on how many queue pairs were connected before. Where those orders are
//! deterministic, so are the faults.
//!
//! Not done: the death of a peer does not cut the delays of its outstanding chains short, they fail
//! when their delay is over; and a peer dropped here cannot join again under its name.

mod fabric;
mod lane;
mod plan;
mod queue_pair;
mod tear;

pub use fabric::FaultFabric;
pub use plan::{Delay, FaultPlan, FaultReport, PeerDeath, Tear};
