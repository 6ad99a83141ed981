//! Backend `shm`: nodes are processes of one host, memory is shared by mapping it.
//!
//! Every node has a directory under the fabric's root, on a file system in memory (`/dev/shm`):
//!
//! ```text
//! root/lock            held while a node joins or leaves
//! root/mem0/control    whether the node lives, its regions, its doorbells; locked while it lives
//! root/mem0/region-0   the memory of the node, one file a region
//! root/cn1/...
//! ```
//! A peer maps the regions that it uses. After that verbs are loads, stores and atomics of the
//! calling thread, done inside `post`, and the owner of the memory does nothing. Doorbells
//! ring in shared words. If a doorbell has a waiter, a futex wakes the *attendant* thread of its
//! node.
//!
//! # Life and death
//! A node lives while its `control` file is locked and not marked dead; the kernel unlocks the file
//! when the process ends. A node that joins by the name of a dead node removes the old directory:
//! memory of dead nodes is never used again. Attendants check the peers of their node every 100 ms
//! and mark those whose process is gone.
//!
//! # Fencing
//! Before a verb a node announces it in its own control page and then looks whether it is marked
//! dead. [`ShmFabric::fence_patiently`] marks a node and waits until it has no announced verbs:
//! from then on it changes no byte, even if its process was stopped and resumes. A process that was
//! stopped in the middle of a verb cannot be fenced in this way; the fabric's `fence` then kills
//! it.
//!
//! # Trust
//! Files belong to one user and are closed to all others. A process that can open them can change
//! the memory at will: within a user this backend guards against accidents, not against malice.
//!
//! Contents: `fabric` (the traits, verbs), `node` (a node of this process), `peer` (a node of any
//! process), `control_page`, `segment` (files and locks), `held` (a node by its files), `attendant`
//! (the thread that wakes), `mapping` (the memory).

mod attendant;
mod control_page;
mod fabric;
mod held;
mod mapping;
mod node;
mod peer;
mod segment;

pub(crate) use control_page::SharedDoorbellWord;
pub use fabric::ShmFabric;
pub use held::HeldNode;
pub(crate) use mapping::Mapping;
