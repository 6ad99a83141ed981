//! The control page at the start of a memory node's region.

use super::limits::MAX_COMPUTE_NODES;

/// Bytes of the control page at the start of every memory node's region.
pub const CONTROL_PAGE_BYTES: u64 = 4096;

/// First word of a control page: "SELKIE\0\x01" read as a little-endian integer.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"SELKIE\0\x01");

/// Version of this layout, second word of a control page.
pub const LAYOUT_VERSION: u64 = 6;

/// Offset of the magic word in the control page.
pub const MAGIC_AT: u64 = 0;

/// Offset of the layout version in the control page.
pub const VERSION_AT: u64 = 8;

/// Offset of the GCL size, in bytes, in the control page.
pub const GCL_BYTES_AT: u64 = 16;

/// Offset of the range size, in bytes, in the control page.
pub const RANGE_BYTES_AT: u64 = 24;

/// Offset of the extent bump counter: extents leased so far, zero at start. A fetch-and-add that
/// returns `SlabGeometry::extents_per_node` or more leased nothing. Not used in a coded pool: see
/// `SlabGeometry::leased_offset`.
pub const EXTENTS_LEASED_AT: u64 = 64;

/// Offset of the pool's logical clock at memory node 0; zero at start. Not used in a coded pool:
/// see `SlabGeometry::clock_offset`.
pub const CLOCK_AT: u64 = 72;

/// Offset of the snapshot mask, at the memory node that has the epochs; zero at start. Bit `i` says
/// that compute node `i` has published snapshots in its slot ([`snapshot_slot_offset`]).
pub const SNAPSHOT_MASK_AT: u64 = 80;

/// Offset of the count of this node's looks at the control plane, in a pool of many processes; zero
/// at start. It stands still while the plane is away from the node.
pub const PLANE_LOOKS_AT: u64 = 96;

/// Offset of the count of requests for free lines, at the memory node that has the epochs; zero at
/// start. A compute node that could have no line adds one, and the others give theirs to all.
pub const SHORT_OF_LINES_AT: u64 = 112;

/// Offset of the count of gifts of free lines to all, at the memory node that has the epochs; zero
/// at start. While it stands still, a node that has looked for such lines in vain need not look
/// again.
pub const LINES_GIVEN_AT: u64 = 120;

/// Offset of the global epoch; zero at start, and unused but at the memory node that has the
/// epochs.
pub const GLOBAL_EPOCH_AT: u64 = 128;

/// Offset of the first compute node's epoch word; zero at start, and unused as [`GLOBAL_EPOCH_AT`]
/// is.
pub const NODE_EPOCHS_AT: u64 = 136;

/// Offset of the first compute node's snapshot slot; zero at start, and unused but at the memory
/// node that has the epochs.
pub const SNAPSHOT_SLOTS_AT: u64 = NODE_EPOCHS_AT + 8 * MAX_COMPUTE_NODES as u64;

/// Words of a snapshot slot.
pub const SNAPSHOT_SLOT_WORDS: usize = 7;

const _: () = assert!(RANGE_BYTES_AT + 8 <= EXTENTS_LEASED_AT);
const _: () = assert!(EXTENTS_LEASED_AT + 8 <= CLOCK_AT && CLOCK_AT + 8 <= SNAPSHOT_MASK_AT);
const _: () = assert!(SNAPSHOT_MASK_AT + 8 <= PLANE_LOOKS_AT);
const _: () = assert!(PLANE_LOOKS_AT + 8 <= SHORT_OF_LINES_AT);
// Nodes read these with the epochs.
const _: () = assert!(SHORT_OF_LINES_AT + 8 == LINES_GIVEN_AT);
const _: () = assert!(LINES_GIVEN_AT + 8 == GLOBAL_EPOCH_AT);
const _: () = assert!(GLOBAL_EPOCH_AT + 8 == NODE_EPOCHS_AT);
const _: () = assert!(
    SNAPSHOT_SLOTS_AT + (8 * SNAPSHOT_SLOT_WORDS * MAX_COMPUTE_NODES) as u64 <= CONTROL_PAGE_BYTES
);

/// Offset of the epoch word of compute node `index` in the control page of the memory node that has
/// the epochs.
///
/// # Panics
/// If `index` is not below [`MAX_COMPUTE_NODES`].
#[must_use]
pub const fn node_epoch_offset(index: usize) -> u64 {
    assert!(index < MAX_COMPUTE_NODES, "compute node index beyond the epoch table");
    NODE_EPOCHS_AT + 8 * index as u64
}

/// Offset of the snapshot slot of compute node `index` in the control page of the memory node that
/// has the epochs.
///
/// # Panics
/// If `index` is not below [`MAX_COMPUTE_NODES`].
#[must_use]
pub const fn snapshot_slot_offset(index: usize) -> u64 {
    assert!(index < MAX_COMPUTE_NODES, "compute node index beyond the snapshot slots");
    SNAPSHOT_SLOTS_AT + (8 * SNAPSHOT_SLOT_WORDS * index) as u64
}
