//! Bounds of the document.

/// Version of the format that this software writes; other versions are refused.
pub(crate) const FORMAT: u32 = 7;

/// Ranges of a coded pool, at most: with 12 slabs each, [`MAX_LOST_PAGES`]
/// and as many nodes as there can be, what says where they lie is within what every control plane
/// takes, of which etcd takes least, 1.5 MiB.
pub const MAX_RANGES: usize = 4096;

/// Lost pages that are remembered by address; more are only lost.
pub const MAX_LOST_PAGES: usize = 20_000;
