//! One-sided verbs, clock, randomness and task spawning: the only door to other machines.

mod api;
mod buf;
mod completion;
pub mod conformance;
mod doorbell;
pub mod env;
mod error;
pub mod fault;
mod id;
pub mod mem;
pub mod meter;
mod sync;
mod verb;

pub use api::{Endpoint, Fabric, LocalRegion, QueuePair};
pub use buf::{Buf, Keep, WORD_BYTES};
pub use completion::{Completion, Outstanding};
pub use doorbell::{Doorbell, WaitPast};
pub use env::{BoxFuture, Env, RealRuntime};
pub use error::FabricError;
pub use id::{PeerId, RegionKey, RemoteAddr};
pub use mem::MemFabric;
pub use verb::{Chain, ChainError, ChainResult, INLINE_VERBS, Verb};
