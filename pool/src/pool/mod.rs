//! The pool as a process sees it: how to reach its memory, who is in it, and the way to change
//! that.
//!
//! What the nodes of a pool agree on is kept by a [`ControlPlane`]; a `Pool` holds a copy of it,
//! the *view*, that all compute nodes of the process work by. None of this is on a data path: a
//! compute node changes the pool when it starts, when it leaves, and when it runs out of memory.
//!
//! # Joining and leaving
//! Before a node that joins sends its first message, every other node has to know where to answer;
//! and a node that leaves has to receive requests that others sent before they knew that it leaves.
//! So both wait until the nodes of all other processes have seen the change, which their beats say.
//! Processes follow the changes of a pool that is shared with [`Pool::follow`].
//!
//! ```text
//! view             a process's copy of the document
//! compute_nodes    compute nodes come and leave
//! deaths           nodes die, and are recovered from
//! ranges           ranges
//! rebuild, regeneration, migration    memory of a coded pool that was lost or is to move
//! snapshot_barrier, labels, directories    what users of the pool agree on beyond that
//! ```

mod compute_nodes;
mod deaths;
mod descriptor;
mod directories;
mod labels;
mod migration;
mod ranges;
mod rebuild;
mod regeneration;
mod snapshot_barrier;
mod view;

pub use descriptor::{PoolDescriptor, PoolUsage};
pub use view::Pool;
