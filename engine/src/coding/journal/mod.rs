//! The journal: what a write-back is about to write, where it would not outlive its writer
//! otherwise.
//!
//! ```text
//! [a share of each split that will be written, at its memory node] -> [the splits] -> versions in the header, latch
//! ```
//! Together the shares are the *image* of a write-back. They are there before the first split
//! changes, and stand until others take their place; whoever looks after the writer's death tells
//! by the versions whether they are of the write-back that was cut short. With the data splits that
//! did not change they are a coded page: it survives the writer together with as many memory nodes
//! as there are parity splits, but for the home, without which nobody knows what the page was
//! before. Where shares lie, and how they look, is in [`selkie_memnode::layout`].

pub(crate) mod share;
pub(crate) mod slots;
mod write;
