//! Coded slabs: pages that outlive memory nodes without being copied (Hydra, FAST'22).
//!
//! A page of a coded range is cut into k *data splits* of equal length, and r *parity splits* are
//! computed from them; each lies on a memory node of its own, and any k of the k + r give the page
//! back. Each page is coded by itself, so that a page remains what is fetched, latched and written.
//!
//! Here is what is computed from bytes alone: the [`codec`], and the checksum that says whether a
//! split is as it was written. Where splits lie, how they are fetched while a page is latched, in
//! which order they are written and how a lost slab is rebuilt will stand beside it and use it.

mod access;
mod checksum;
pub mod codec;
mod counter;
mod errors;
mod journal;
mod mend;
mod migrate;
mod placed;
mod reading;
mod rebuild;
mod regenerate;
mod tag;
mod torn;

pub(crate) use access::{Coded, VERSIONS_BYTES, versions_bytes, versions_from};
pub use checksum::checksum;
pub(crate) use journal::Image;
pub(crate) use rebuild::Halted;
pub(crate) use regenerate::run_regeneration;
#[cfg(test)]
pub(crate) use tag::{SplitSet, Version, Versions};
#[cfg(test)]
pub(crate) use torn::{Found, Page, page_of};
