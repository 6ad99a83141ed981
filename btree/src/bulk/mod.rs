//! Building a tree bottom-up from rows that come in order.
//!
//! The rows fill one leaf after the other. A leaf is written once, when the first key of the next
//! one is known: that gives its high fence, the page of the next one its right link, and the level
//! above a separator. So it goes on every level, and one unfinished page a level is in memory. The
//! pages are new and nothing leads to them.
//!
//! ```text
//! rows -> [leaf][leaf][leaf]..          written, logged as whole pages, evicted as any others
//!              separators -> [inner][inner]..
//!                                  .. the topmost level is one page: the root's content
//! ```
//!
//! # How they become the tree
//!
//! The tree that is loaded is empty: a root and one leaf. That leaf becomes the first one, as if it
//! had been split many times, and the root gets the content of the topmost page: two pages change,
//! in one record of the log ([`BuiltTree::attach`]). All other pages are in the log before them, so
//! after a failure of the node the tree is as it was before, or whole. Who is on the way to the
//! leaf, or has its address, finds it there, and rows further right by its right link. The leaf's
//! latch is the lock of all keys of an empty tree: to attach is a change of that leaf to others.
//!
//! Until then nobody notices, so nothing is locked. Rows that others insert meanwhile make
//! attaching fail ([`TreeError::NotEmpty`]).
//!
//! A load that is dropped or fails frees its pages in the background. Those of a node that dies in
//! a load are leaked, as pages of an unfinished split are: `selkie pool repair` finds them.

mod built;
mod level;
mod load;

pub use built::BuiltTree;
pub use load::{BulkLoad, DEFAULT_FILL};
