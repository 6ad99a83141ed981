//! Backend `sim`: any number of nodes on one thread, in virtual time, from one seed.
//!
//! A [`World`] holds a network and the tasks of its nodes. The operations of the network take the
//! time of a [`CostModel`] and fail by [`Faults`]. [`World::run`] polls the ready tasks; when there
//! are none, it moves the clock to the next event. Nothing depends on real time, addresses or
//! threads, so two runs of one seed are the same to the last event: [`World::trace_hash`] tells.
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
//! Differences from a real network: processors take time only to post and to take in messages
//! ([`CostModel`]). A task that yields loses 100 ns. Wires delay packets but do not drop them.
//!
//! Contents: `world` (runs), `controls` (faults on command), `simulation` (what the parts share),
//! `task` (ready tasks), `env` (the environment of a node), `network`, `execution`, `late_writes`,
//! `node`, `adapter`, `queue_pair` (the simulated network), `events`, `cost` (cost model, random
//! faults), `fabric` (the traits), `outcome` (outcomes of chains), `trace` (hash and event log).

mod adapter;
mod controls;
mod cost;
mod env;
mod events;
mod execution;
mod fabric;
mod late_writes;
mod network;
mod node;
mod outcome;
mod queue_pair;
mod simulation;
mod task;
mod trace;
mod world;

pub use adapter::AdapterBusy;
pub use controls::Controls;
pub use cost::{CostModel, Faults};
pub use simulation::Schedule;
pub use trace::TraceSink;
pub use world::{RunError, World, WorldConfig};
