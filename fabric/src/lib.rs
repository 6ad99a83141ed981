//! One-sided verbs, clock, randomness and tasks: all that a node has of the world outside it.
//!
//! A node *registers* memory, which other nodes then read and write directly, without its
//! processor. To access the memory of another node, a node *posts* a chain of verbs to a queue pair
//! and gets a completion. There are five verbs ([`Verb`]): read, write, write with doorbell,
//! compare-and-swap, fetch-and-add. There are no messages: nodes communicate by writes into each
//! other's memory, and ring the [`Doorbell`].
//!
//! ```
//! use selkie_fabric::{Buf, Fabric, MemFabric, PeerId, RealRuntime, RemoteAddr, Verb};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fabric = MemFabric::new();
//!
//! // A memory node lends a page ...
//! let memory = fabric.join(PeerId::memory(0))?;
//! let region = memory.register(4096)?;
//!
//! // ... and a compute node counts in one word of it and reads 64 bytes, in one round trip.
//! let node = fabric.join(PeerId::compute(0))?;
//! let queue_pair = node.connect(memory.id())?;
//! let counter = RemoteAddr::new(region.key(), 0);
//! let runtime = RealRuntime::new(1)?;
//! let chain = runtime.block_on(queue_pair.post(
//!     [Verb::fetch_and_add(counter, 5), Verb::read(counter, Buf::zeroed(64))].into(),
//! ))?;
//!
//! assert_eq!(chain.old_value(0), 0);
//! assert_eq!(chain.buf(1).map(|buf| buf[0]), Some(5));
//! assert_eq!(region.load(0), 5);
//! # Ok(())
//! # }
//! ```
//!
//! # Contract
//! The same for every backend and decorator; [`conformance`] tests it.
//!
//! - *Units.* Addresses are byte offsets into a region, aligned to 8; payloads are multiples of 8
//!   bytes. The word of 8 bytes, little-endian, is the unit of atomicity: words never tear, longer
//!   payloads may tear against concurrent writers.
//! - *Order.* The verbs of one queue pair execute at the target in posting order, those of
//!   different queue pairs in any order. So a write is in place before a later atomic of its queue
//!   pair, and an atomic before a later read. A read or an atomic followed by a write needs the
//!   earlier completion first: `mem` keeps that order too, other backends need not. Completions of
//!   one queue pair come in posting order.
//! - *Publication.* A reader that sees a word of an atomic or of a write of 8 bytes, by a verb or
//!   by [`LocalRegion::load`], sees the earlier writes of the same queue pair. A doorbell rings
//!   after its payload is in place. The completion of a write alone does not prove to a *third*
//!   party that it is in place; a later read or atomic on the same queue pair does.
//! - *Buffers* are moved into the operation and come back with its completion, after errors too.
//!   Dropping a [`Completion`] cancels interest, never the operation.
//! - *Errors.* A chain stops at its first failing verb, which has no effect. Later chains are not
//!   affected. Every outstanding and later operation to a dead peer ends with
//!   [`FabricError::PeerDead`]. [`Fabric::fence`] declares a node dead: it then executes nothing
//!   more within the [`FenceScope`]. No operation hangs.
//! - *Execution.* Polling a completion drives its queue pair, so any executor works. `post` never
//!   blocks. On `mem` every completion is ready at once.
//! - Clock, sleep, tasks and random numbers come from an [`Env`] only.
//!
//! # Contents
//! Backends [`mem`], `shm` (processes of one host), `tcp` (machines without an RDMA NIC), `verbs`
//! (RDMA cards, with the feature of that name) and [`sim`] (virtual time); decorators [`meter`]
//! (counts round trips, verbs and bytes) and [`fault`] (delays, deaths, torn writes, corruption);
//! protection [`Domain`]s, which `tcp` and `verbs` enforce; [`env`](mod@env); [`conformance`].

mod access;
mod api;
mod buf;
mod completion;
pub mod conformance;
mod domain;
mod doorbell;
pub mod env;
mod error;
pub mod fault;
mod id;
pub mod mem;
pub mod meter;
mod populate;
mod role;
#[cfg(target_os = "linux")]
pub mod shm;
pub mod sim;
mod stream;
mod sync;
#[cfg(target_os = "linux")]
pub mod tcp;
mod tls_error;
mod verb;
#[cfg(all(target_os = "linux", feature = "verbs"))]
pub mod verbs;

pub use access::Access;
pub use api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
pub use buf::{Buf, LeaseOwner, WORD_BYTES};
pub use completion::{Completion, Outstanding};
pub use domain::{Domain, DomainError, MAX_GRANTS, Rights};
pub use doorbell::{Doorbell, WaitPast};
pub use env::{BoxFuture, Env, RealRuntime};
pub use error::{FabricError, RdmaFault, Refusal};
pub use id::{PeerId, RegionKey, RemoteAddr};
pub use mem::MemFabric;
pub use populate::want_huge_pages;
pub use role::{NodeCertificate, Role};
pub use stream::Stream;
pub use tls_error::{CertificateFault, CertificateOwner, TlsError};
pub use verb::{Chain, ChainError, ChainResult, INLINE_VERBS, Verb};
