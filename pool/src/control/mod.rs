//! The control plane: where the nodes of a pool agree on what the pool is and who is in it.
//!
//! It keeps a small document, [`PoolState`], that is replaced as a whole by compare-and-swap, and a
//! beat of every node, which says up to which version the node has acted upon the document, and
//! carries the node's report. None of this is on a data path: nodes work from the copy they have,
//! and only changes of membership wait for it.
//!
//! | plane | for |
//! | --- | --- |
//! | [`LocalPlane`] | a pool within one process |
//! | [`FilePlane`] | the processes of one host |
//! | `EtcdPlane` | hosts that share an etcd; needs the feature `etcd` |
//! | [`RemotePlane`] | other processes: they ask a [`Relay`] to one of the planes above |

mod beat_files;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(target_os = "linux")]
mod file;
mod identity;
mod local;
mod plane;
mod promise;
mod relay;
mod remote;
mod rights;
mod serve;
mod target;

pub use selkie_fabric::Stream;

pub use crate::document::{
    Card, Identity, Lost, MAX_LOST_PAGES, MAX_RANGES, Mailbox, Member, MemoryMember, PoolState,
    RangePlace, Slab, SnapshotBarrier, Timing, lateness,
};
pub use error::ControlError;
#[cfg(feature = "etcd")]
pub use etcd::EtcdPlane;
#[cfg(target_os = "linux")]
pub use file::{FilePlane, LOCK_FILE, STATE_FILE};
pub use identity::{host_number, is_host_of};
pub use local::LocalPlane;
pub use plane::{Beat, Change, ControlPlane, Version, Versioned};
pub use relay::{RELAY_MAGIC, RelayError};
pub use remote::{Expectation, FindToken, RemotePlane, plain_connect};
pub use rights::{Refused, may_beat, may_change};
pub use serve::Relay;
pub use target::Connect;

pub use crate::token::{Token, TokenError, TokenVerifier};
