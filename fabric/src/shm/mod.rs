//! Backend `shm`: nodes are processes of one host, memory is shared by mapping it.
//!
//! Every node has a directory under the fabric's root, on a file system in memory (`/dev/shm`):
//!
//! ```text
//! root/lock            held while a node joins or leaves
//! root/mem0/control    whether the node lives, its regions, its doorbells; locked while it lives
//! root/mem0/region-0   the memory it lends, one file a region
//! root/cn1/...
//! ```
//! A peer maps what it uses; after that verbs are loads, stores and atomics of the calling thread,
//! done inside `post`, and the node that lent the memory does nothing. Doorbells ring in shared
//! words; a node with somebody waiting for one is told through a futex, on which its *attendant*
//! thread sleeps.
//!
//! # Life and death
//! A node lives while its `control` file is locked, which the kernel ends with the process, and not
//! marked dead. Who joins under the name of a dead node throws the old directory away: memory of
//! the dead is never used again. Attendants look after the peers of their node every 100 ms and
//! mark those whose process is gone.
//!
//! # Fencing
//! Before a verb a node announces it in its own control page and then looks whether it is marked
//! dead. [`ShmFabric::fence_patiently`] marks a node and waits until it announces nothing: from
//! then on it changes no byte, whenever its process gets to run again. A process that was stopped
//! in the middle of a verb cannot be fenced in this way; the fabric's `fence` then ends it.
//!
//! # Trust
//! Files belong to one user and are closed to all others. Whoever may open them could do what it
//! likes with the memory: within a user this backend guards against accidents, not against malice.
//!
//! Contents: `fabric` (who is there, verbs), `control` (the control page), `segment` (files and
//! locks), `attendant` (the thread that wakes), `mapping` (the memory).

mod attendant;
mod control;
mod fabric;
mod mapping;
mod segment;

pub(crate) use control::SharedWord;
pub use fabric::ShmFabric;
pub(crate) use mapping::Mapping;
