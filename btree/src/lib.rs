//! A B-link tree whose pages are global cache lines.

mod error;
mod latch;
mod leaf;
mod ops;
mod page;
mod post;
mod reclaim;
mod scan;
mod split;
mod tree;
mod verify;

pub use error::{NoRoom, TreeError};
pub use leaf::{LeafView, Whereabouts, leaf_insert, leaf_remove, leaf_replace};
pub use page::{max_entry, max_key};
pub use scan::Direction;
pub use split::PendingPost;
pub use tree::Tree;
pub use verify::TreeStats;
