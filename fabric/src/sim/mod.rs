//! Backend `sim`: any number of nodes on one thread, in virtual time, from one seed.
//!
//! A [`World`] holds a network, whose operations take the time a [`CostModel`] says and go wrong as
//! [`Faults`] say, and the tasks of its nodes. [`World::run`] polls whatever is ready; when nothing
//! is, it moves the clock to the next event. Nothing depends on real time, addresses or threads, so
//! two runs of one seed are the same to the last event: [`World::trace_hash`] tells.
//!
//! ```
//! use std::time::Duration;
//! use selkie_fabric::sim::{World, WorldConfig};
//! use selkie_fabric::{PeerId, RemoteAddr, Verb};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let world = World::new(WorldConfig::new(7));
//! let fabric = world.fabric();
//! let memory = fabric.join(PeerId::memory(0))?;
//! let counter = RemoteAddr::new(memory.register(4096)?.key(), 0);
//! let queue_pair = fabric.join(PeerId::compute(0))?.connect(memory.id())?;
//! let old = world.run(Duration::from_secs(1), async {
//!     queue_pair.post(Verb::fetch_and_add(counter, 5).into()).await.map(|chain| chain.old(0))
//! })?;
//! assert_eq!(old?, Some(0));
//! assert!(world.now() > Duration::from_micros(2) && world.now() < Duration::from_micros(3));
//! # Ok(())
//! # }
//! ```
//!
//! Differences from a real network: processors take no time but for the work of posting and of
//! taking in messages ([`CostModel`]); a task that yields loses 100 ns; wires do not drop packets,
//! they delay them.
//!
//! Contents: `world` (runs, controls), `task` (tasks that are ready), `env` (a node's environment),
//! `network` (adapters, queue pairs, events), `cost` (cost model, faults), `fabric` (the traits),
//! `slot` (outcomes on their way), `trace` (hash and event log).

mod cost;
mod env;
mod events;
mod fabric;
mod network;
mod parts;
mod slot;
mod task;
mod trace;
mod world;

pub use cost::{CostModel, Faults};
pub use parts::Busy;
pub use trace::TraceSink;
pub use world::{Controls, RunError, Schedule, World, WorldConfig};
