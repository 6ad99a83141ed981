//! Backend `verbs`: RDMA cards, by libibverbs. Feature `verbs`.
//!
//! A queue pair is a reliable connection. Reads, writes, compare-and-swap and fetch-and-add are
//! those of the card; a write with doorbell is a write with immediate, whose number names the
//! region. A chain is posted with one doorbell of the card, and only its last request completes.
//! The node that serves memory runs nothing on the data path.
//!
//! ```text
//! compute node                                          memory node
//! connect -> session of `tcp` ===== set-up =====> queue pair, registrations of the guest
//! post -> check -> stage -> card ------- RC ------> card -> memory
//! cell <- copy out <- completion queue <-----------
//! ```
//!
//! # Set-up
//! Every queue pair has a session of [`tcp`](crate::tcp) of its own, over which both sides tell
//! each other how to reach them (`setup`). So the rules of `tcp` hold: who is let in, by which
//! certificate and role, within which domain. The session stays: it tells of the death of the peer
//! and of its silence, and its end is the end of the queue pair, on both sides.
//!
//! # Order
//! The order of reliable connections is that of the contract of the crate, but for a write behind a
//! read or an atomic, which may overtake it. Within a chain a write of bytes that a request before
//! it reads is fenced; others need not wait.
//!
//! # Errors
//! A card that refuses an access ends the queue pair, and does not say why. So the poster knows the
//! regions of its peer (`remote`), and refuses what its target would; the later chains are not
//! affected. Error completions and events of the card end the queue pair with
//! [`FabricError::Rdma`](crate::FabricError::Rdma), or with `PeerDead` if the peer does not answer.
//! A card may complete nothing for a long time after a link went down. So there are deadlines of
//! our own: those of the session, and one for parts that do not complete.
//!
//! # Fencing
//! Each guest has a protection domain and registrations of its own (`targets`). A fence closes its
//! sessions, which destroys its queue pairs, before it returns.
//!
//! Contents: `fabric` (the traits), `device` (the choice of the card), `hub` (what the queue pairs
//! of a node share), `connection`, `parts`, `staging`, `remote` (posting), `queue_pair`
//! (completions), `handshake`, `setup`, `targets` (the set-up), `region`, `ffi` (the library),
//! `direct` (the library alone, to compare with), `config`, `error`.

mod config;
mod connection;
mod device;
mod direct;
mod error;
mod fabric;
mod ffi;
mod handshake;
mod hub;
mod parts;
mod queue_pair;
mod region;
mod remote;
mod setup;
mod staging;
mod targets;

pub use config::{DeviceChoice, VerbsConfig};
pub use device::DeviceInfo;
pub use direct::DirectPair;
pub use error::{PortState, VerbsError};
pub use fabric::VerbsFabric;
pub use hub::VerbsCounters;
