//! Snapshots: states of the pool that transactions read while others change it.

mod active;
mod api;
mod link;
mod stamp;
pub(crate) mod state;

pub use active::ActiveSnapshots;
pub use link::ImageLink;
pub use stamp::Stamp;
pub use state::Snapshot;
