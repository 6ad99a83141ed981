//! A process as a member of a pool: the state of the pool that it works by, and the signs of life
//! it gives.
//!
//! ```text
//! plane --load--> view --> fabric: meet new nodes, fence dead ones --> beat: "seen, and acted upon"
//! ```
//! A beat says that the process has acted upon all changes up to a version of the state. So whoever
//! waits for the others to see that a node died knows afterwards that none of them executes its
//! verbs any more.
//!
//! A process with memory nodes counts its looks at the plane in their control pages, and says that
//! it has acted upon what it found after it was away only when a while has passed since it counted
//! again ([`Timing::acts_after`]). So a node that reads a count which stands still knows that
//! nobody is told yet that this process has fenced it.
//!
//! ```text
//! process           what a process knows of its pool
//! following         looks at the control plane
//! acting            what a change of the document means to the fabric and to observers
//! beats             signs of life of this process
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

pub use change::{ATTEMPTS, change_state};
pub use observer::Observer;
pub use process::{Membership, SignsOfLife};
