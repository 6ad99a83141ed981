//! A disk for the logs of a simulated cluster: slow, full for a while, and half written when the
//! node dies that writes.
//!
//! ```text
//! append given --> [its bytes may be there, sector by sector] -- latency --> durable --> reported
//!      ^ the owner may be killed here, ..................... here, ............... or here
//! ```
//! What was given and not reported when its owner died is drawn once, when the log is read: of each
//! sector the new bytes, the old ones, or garbage. What was reported stays. A log lies in pieces,
//! as in files; a new one may not be there yet.
//!
//! The disk outlives its world, so that logs can be read in another one.

mod log;
mod sim_disk;
mod sink;
mod state;

pub use sim_disk::SimDisk;
pub use state::{AppendStage, DiskConfig};
