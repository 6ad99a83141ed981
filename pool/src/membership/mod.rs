//! A process as a member of a pool: the state of the pool that it works by, and the signs of life
//! it gives.
//!
//! ```text
//! plane --load--> view --> fabric: meet new nodes, fence dead ones --> beat: seen, and acted upon
//! ```
//! A beat says that the process has acted upon all changes up to a version of the state. So a node
//! that waits until the others have seen a death knows that none of them executes verbs of the dead
//! node any more.
//!
//! A process with memory nodes counts its looks at the plane in their control pages. After an
//! absence it counts again for a while ([`Timing::acts_after`]) before it says that it has acted
//! upon the changes it found. So a node that reads a count which stands still knows that no other
//! node has been told yet that this process has fenced it.
//!
//! ```text
//! process           what a process knows of its pool
//! following         looks at the control plane
//! acting            what a change of the document means to the fabric and to observers
//! beats             signs of life of this process
//! silence           for how long it could give none
//! notice            waits until other processes have seen a change
//! failure_detector  declares silent nodes dead
//! ```

mod acting;
mod beats;
mod change;
mod failure_detector;
mod following;
mod notice;
mod observer;
mod process;
mod silence;

pub use change::{ATTEMPTS, change_state};
pub use observer::Observer;
pub use process::{Membership, SignsOfLife};
