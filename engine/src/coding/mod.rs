//! Coded slabs: pages that outlive memory nodes without being copied (Hydra, FAST'22).
//!
//! A page of a coded range is cut into k *data splits* of equal length, and r *parity splits* are
//! computed from them; each lies on a memory node of its own, and any k of the k + r give the page
//! back. Each page is coded by itself, so that a page remains what is fetched, latched and written.
//!
//! Computed from bytes alone: splits by [`selkie_erasure`], the checksum that says whether a split is as it was
//! written, and what a page is whose write-back was cut short (`torn`). Latch operations are in
//! `access` and `reading`; what follows the loss of a memory node in `rebuild` and `regenerate`.

mod access;
mod checksum;
mod counter;
mod errors;
mod journal;
mod mend;
mod migrate;
pub(crate) mod placed;
mod reading;
mod rebuild;
mod regenerate;
mod repairs;
mod tag;
mod torn;

pub(crate) use access::{Coded, VERSIONS_BYTES, unknown_versions, versions_bytes, versions_from};
pub use checksum::checksum;
pub(crate) use counter::Change as CounterChange;
pub(crate) use journal::Image;
pub(crate) use mend::Mended;
pub(crate) use rebuild::Halted;
pub(crate) use regenerate::run_regeneration;
pub(crate) use repairs::Repairs;
#[cfg(test)]
pub(crate) use tag::{SplitSet, Version, Versions};
#[cfg(test)]
pub(crate) use torn::{Found, Page, page_of};
