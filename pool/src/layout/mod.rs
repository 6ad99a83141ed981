//! Byte layout of the region of a memory node, as pure functions.
//!
//! Every party (memory nodes, engines, recovery) computes the same offsets from the same two
//! numbers, so no offset ever travels over the fabric. Nothing here touches memory.
//!
//! ```text
//! region   0        4096                4096 + slab            4096 + 2 slab
//!          | control | slab of range 0    | slab of range 1      | ...
//!
//! slab     0                            gcls_per_range * 64
//!          | header table                 | data area                          |
//!          | header of GCL 0, 1, 2, ...   | GCL 0 | GCL 1 | ...               |
//!            64 bytes each                  gcl_bytes each
//! ```
//!
//! A coded range lies in n = k + r slabs, at their *positions* 0 to n - 1. Split j of its GCL i
//! lies at position (i + 1 + j) mod n, so each slab has a split of every GCL. The header of GCL i
//! lies at its home, position i mod n, with the last split of parity. That split is read least, so
//! no data split waits behind the header. When the home was lost, the header lies at one of the r
//! next positions, its *successors*. So each slab has r + 1 header tables, for the GCLs whose
//! headers belong to its own position, to the one before, and so on:
//!
//! ```text
//! slab     0             64                                    (multiple of 4096)
//!          | lead, zeros | table 0     | ... | table r | (zero) | splits              | (zero)
//!                        | GCL p, p + n, ...                    | of GCL 0, 1, 2, ... |
//!                          64 bytes each                          gcl_bytes / k + 8 each
//!
//! lead     0  leased    u64  extents of the range that are leased, a bump counter; at positions
//!                            0 to r
//!          8  activity  u64  accesses to pages of the range that compute nodes report, if the
//!                            memory node monitors its host's memory
//!         16  clock     u64  of the pool; in range 0, at positions 0 to r
//! split    gcl_bytes / k bytes of the page or of parity, then
//!          tag  u64  version u32, crc32c u32 of the bytes
//! ```
//!
//! Between control page and slabs of a coded pool each compute node has a *journal*,
//! [`JOURNAL_IMAGES`] places for images of pages that are being written back, spread over the
//! memory nodes as the page's splits are; each has the share of its split:
//!
//! ```text
//! share    0                        40
//!          | addr, versions, ...    | gcl_bytes / k bytes |
//!
//! addr         u64  global address of the page; 0: none
//! version      u32  of its splits after the write-back
//! before       u32  of its first parity split before it
//! count        u64  images of the compute node before
//! incarnation  u32  of the compute node
//! split        u32  which one
//! checksum     u32  crc32c of all of the share, this word taken as zero
//! all before   u32  crc32c of the versions of all splits before the write-back, as in a header
//! ```
//!
//! Behind the journals lie the *logs*, one for each compute node that may register, if the pool has
//! any: see the engine's `log::memory`. Those of r + 1 memory nodes are used.
//!
//! A GCL is a page with its sequence number, little-endian, before it:
//!
//! ```text
//! 0    psn   u64   how often the page was changed
//! 8    page
//! ```
//!
//! Header of a GCL, one cache line, little-endian:
//!
//! ```text
//! 0   latch          u64       SELCC latch word; only compute nodes read or change it
//! 8   free_mark      u64       as whose the line was last free: see `FreeMark`; or zero
//! 16  split_version  [u32; 12] versions of the coded splits
//! 64
//! ```
//!
//! Control page, little-endian:
//!
//! ```text
//! 0    magic           u64      CONTROL_MAGIC
//! 8    version         u64      LAYOUT_VERSION
//! 16   gcl_bytes       u64
//! 24   range_bytes     u64
//! 32   (zero)
//! 64   extents_leased  u64      bump counter, taken by fetch-and-add; may run past the capacity;
//!                               zero in a coded pool, whose ranges have counters of their own
//! 72   clock           u64      of the pool, at memory node 0; zero in a coded pool, where range 0
//!                               has it
//! 80   snapshot_mask   u64      at the memory node that has the epochs: bit i says that compute
//!                               node i has published snapshots in its slot
//! 88   (zero)
//! 96   plane_looks     u64      looks at the control plane, counted by the node's own process
//! 104  (zero)
//! 112  short_of_lines  u64      at the memory node that has the epochs: how often a compute node
//!                               has asked the others for free lines
//! 120  lines_given     u64      there too: how often free lines were given to all
//! 128  global_epoch    u64      at the memory node that has the epochs
//! 136  node_epoch      u64 x 58 there too, one word a compute node: its published epoch plus one,
//!                               or zero
//! 600  snapshot_slot   [u64; 7] x 58 there too, one slot a compute node
//! 3848 (zero) up to 4096
//! ```
//!
//! Snapshot slot, little-endian; zero says nothing:
//!
//! ```text
//! 0    arena           u64      key of the region with the node's page images, plus one
//! 8    open_from       u64      every snapshot at this stamp minus one or later may be active
//! 16   active          u64 x 4  stamps plus one of snapshots that are active
//! 48   incarnation     u64      of the node that has published the words before, plus one; zero in
//!                               a plain pool
//! ```
//! Memory node 0 has the epochs, in a coded pool the lowest that lives and is to stay.

mod control_page;
mod free_mark;
mod geometry;
mod header;
mod limits;
#[cfg(test)]
mod tests;

pub use control_page::{
    CLOCK_AT, CONTROL_MAGIC, CONTROL_PAGE_BYTES, EXTENTS_LEASED_AT, GCL_BYTES_AT, GLOBAL_EPOCH_AT,
    LAYOUT_VERSION, LINES_GIVEN_AT, MAGIC_AT, NODE_EPOCHS_AT, PLANE_LOOKS_AT, RANGE_BYTES_AT,
    SHORT_OF_LINES_AT, SNAPSHOT_MASK_AT, SNAPSHOT_SLOT_WORDS, SNAPSHOT_SLOTS_AT, VERSION_AT,
    node_epoch_offset, snapshot_slot_offset,
};
pub use free_mark::{FreeMark, LineOwner};
pub use geometry::SlabGeometry;
pub use header::{
    FREE_MARK_AT, HEADER_BYTES, Header, LATCH_AT, SPLIT_VERSION_AT, VERSION_COUNTER, VERSION_LOST,
    VERSION_NEVER,
};
pub use limits::{
    EXTENT_GCLS, JOURNAL_IMAGES, LOG_BYTES, MAX_COMPUTE_NODES, MAX_GCL_BYTES, MAX_RANGE_BYTES,
    MAX_SPLITS, MIN_GCL_BYTES, SHARE_HEADER_BYTES, TAG_BYTES, min_range_bytes,
};
