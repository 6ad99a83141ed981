//! Snapshots: states of the pool that transactions read while others change it.

mod active;
mod api;
mod arena;
mod clock;
mod drawing;
mod images;
mod link;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, reason = "a model")]
mod model;
mod publishing;
mod reading;
mod registry;
mod slot;
mod stamp;
pub(crate) mod state;

pub use active::ActiveSnapshots;
pub use link::ImageLink;
pub use stamp::Stamp;
pub use state::Snapshot;

pub(crate) use arena::least_image_bytes;
