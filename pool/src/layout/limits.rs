//! Sizes that are the same in every pool, and bounds of those that are not.

/// Splits that a header has a version for: the largest k + r of a coded range.
pub const MAX_SPLITS: usize = 12;

/// Most compute nodes a pool can have: the reader bits of a latch word.
pub const MAX_COMPUTE_NODES: usize = 58;

/// GCLs in an extent, the unit in which memory is leased to a compute node.
pub const EXTENT_GCLS: u64 = 64;

/// Smallest GCL, in bytes.
pub const MIN_GCL_BYTES: usize = 512;

/// Largest GCL, in bytes.
pub const MAX_GCL_BYTES: usize = 8192;

/// Largest range, in bytes; keeps the index of a GCL within its range in 32 bits.
pub const MAX_RANGE_BYTES: u64 = 1 << 40;

/// Images in the journal of a compute node at each memory node.
pub const JOURNAL_IMAGES: u64 = 16;

/// Bytes before the split in the share of an image.
pub const SHARE_HEADER_BYTES: u64 = 40;

/// Least and most bytes of a log at a memory node.
pub const LOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 40;

/// Bytes of a split's tag, behind its payload: one word, so that it is never torn.
pub const TAG_BYTES: u64 = 8;

const _: () = assert!(MAX_RANGE_BYTES / MIN_GCL_BYTES as u64 <= 1 << 32);

/// Smallest range, in bytes, that holds an extent of GCLs of `gcl_bytes`.
#[must_use]
pub const fn min_range_bytes(gcl_bytes: usize) -> u64 {
    EXTENT_GCLS * gcl_bytes as u64
}
