//! The journal: a copy of the splits that a write-back is about to write, where a page would not
//! outlive its writer otherwise.
//!
//! ```text
//! [a share of each split that will be written, at its memory node]
//!    -> [the splits] -> versions in the header, latch
//! ```
//! Together the shares are the *image* of a write-back. They are in place before the first split
//! changes, and stay until another image takes their slot. After the writer's death a repair tells
//! by the versions whether they belong to the write-back that was cut short. Together with the
//! unchanged data splits they are a coded page: it survives the writer and as many memory nodes as
//! there are parity splits, except the home, whose header has the versions of the page before. The
//! place and the format of shares are in [`selkie_pool::layout`].
//!
//! Contents: `slots` (the slots for images in a node's journal), `share` (format of shares, and the
//! choice among images), `write` (writes and reads of journals).

pub(crate) mod share;
pub(crate) mod slots;
mod write;
