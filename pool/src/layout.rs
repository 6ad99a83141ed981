//! Byte layout of the region that a memory node lends, as pure functions.
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
//! lies at position i mod n, with the last split of parity, which is read least: so no data split
//! comes late for having been behind the header. When that was lost, the header lies at one of the
//! r next, its *understudies*; so each slab has r + 1 header tables, for the GCLs whose headers
//! belong to its own position, to the one before, and so on:
//!
//! ```text
//! slab     0                64                                       (multiple of 4096)
//!          | lead, zeros    | table 0       | ... | table r  | (zero) | splits                     | (zero)
//!                           | GCL p, p + n, ...                       | of GCL 0 | of GCL 1 | ...  |
//!                             64 bytes each                             gcl_bytes / k + 8 each
//!
//! lead     0  leased    u64  extents of the range that are leased, a bump counter; at positions 0 to r
//!          8  activity  u64  accesses to pages of the range that compute nodes tell of, if the memory node is watching
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
//! all before   u32  crc32c of the versions of all splits before the write-back, as they lie in a header
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
//! 8   (zero)
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
//! 64   extents_leased  u64      bump counter, taken by fetch-and-add; may run past the capacity; zero in a coded
//!                               pool, whose ranges have counters of their own
//! 72   clock           u64      of the pool, at memory node 0; zero in a coded pool, where range 0 has it
//! 80   (zero)
//! 96   plane_looks     u64      looks at the control plane, counted by the node's own process
//! 104  (zero)
//! 128  global_epoch    u64      at the memory node that has the epochs
//! 136  node_epoch      u64 x 58 there too, one word a compute node: what it has published plus one, or zero
//! 600  (zero) up to 4096
//! ```
//! Memory node 0 has the epochs, in a coded pool the lowest that lives and is to stay.

use std::mem::{offset_of, size_of};

use selkie_fabric::{Domain, Rights};

use crate::coding::Coding;

/// Bytes of the control page at the start of every memory node's region.
pub const CONTROL_PAGE_BYTES: u64 = 4096;
/// First word of a control page: "SELKIE\0\x01" read as a little-endian integer.
pub const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"SELKIE\0\x01");
/// Version of this layout, second word of a control page.
pub const LAYOUT_VERSION: u64 = 4;
/// Offset of the magic word in the control page.
pub const MAGIC_AT: u64 = 0;
/// Offset of the layout version in the control page.
pub const VERSION_AT: u64 = 8;
/// Offset of the GCL size, in bytes, in the control page.
pub const GCL_BYTES_AT: u64 = 16;
/// Offset of the range size, in bytes, in the control page.
pub const RANGE_BYTES_AT: u64 = 24;
/// Offset of the extent bump counter: extents leased so far, zero at start. A fetch-and-add that
/// returns [`SlabGeometry::extents_per_node`] or more leased nothing. Not used in a coded pool: see
/// [`SlabGeometry::leased_offset`].
pub const EXTENTS_LEASED_AT: u64 = 64;
/// Offset of the pool's logical clock at memory node 0; zero at start. Not used in a coded pool:
/// see [`SlabGeometry::clock_offset`].
pub const CLOCK_AT: u64 = 72;
/// Offset of the count of this node's looks at the control plane, in a pool of many processes; zero
/// at start. It stands still while the plane is away from the node.
pub const PLANE_LOOKS_AT: u64 = 96;
/// Offset of the global epoch; zero at start, and unused but at the memory node that has the
/// epochs.
pub const GLOBAL_EPOCH_AT: u64 = 128;
/// Offset of the first compute node's epoch word; zero at start, and unused as [`GLOBAL_EPOCH_AT`]
/// is.
pub const NODE_EPOCHS_AT: u64 = 136;

/// Bytes of one GCL header: one cache line.
pub const HEADER_BYTES: u64 = 64;
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

/// The header of a GCL as it lies in a slab; see the byte map in the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// SELCC latch word. Packed and unpacked by the engine's coherence module, nowhere else.
    pub latch: u64,
    /// Zero.
    pub reserved: u64,
    /// Versions of the coded splits.
    pub split_version: [u32; MAX_SPLITS],
}

/// Images in the journal of a compute node at each memory node.
pub const JOURNAL_IMAGES: u64 = 16;
/// Bytes before the split in the share of an image.
pub const SHARE_HEADER_BYTES: u64 = 40;
/// Least and most bytes of a log at a memory node.
pub const LOG_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 40;
/// Bytes of a split's tag, behind its payload: one word, so that it is never torn.
pub const TAG_BYTES: u64 = 8;
/// Bytes before the header table in a slab of a coded range.
const LEAD_BYTES: u64 = 64;
/// Offset of the count of accesses in a slab of a coded range.
const ACTIVITY_AT: u64 = 8;
/// Offset of the pool's clock in a slab of the first coded range.
const CLOCK_IN_LEAD_AT: u64 = 16;
/// Slabs, and what lies in them, begin at multiples of this.
const ALIGNMENT: u64 = 4096;

/// Version of a split that was never written: it is zero, its tag included.
pub const VERSION_NEVER: u32 = 0;
/// Version of the copies of a counter, which is no page.
pub const VERSION_COUNTER: u32 = 1;
/// Version that a header has for a split whose tag is not known any more; no split has it.
pub const VERSION_LOST: u32 = (1 << MAX_SPLITS) - 1;

/// Offset of the latch word in a header.
pub const LATCH_AT: u64 = offset_of!(Header, latch) as u64;
/// Offset of the split versions in a header.
pub const SPLIT_VERSION_AT: u64 = offset_of!(Header, split_version) as u64;

const _: () = assert!(size_of::<Header>() as u64 == HEADER_BYTES);
const _: () = assert!(LATCH_AT == 0 && SPLIT_VERSION_AT == 16);
const _: () = assert!(ACTIVITY_AT + 8 <= CLOCK_IN_LEAD_AT && CLOCK_IN_LEAD_AT + 8 <= LEAD_BYTES);
const _: () = assert!(RANGE_BYTES_AT + 8 <= EXTENTS_LEASED_AT);
const _: () = assert!(EXTENTS_LEASED_AT + 8 <= CLOCK_AT && CLOCK_AT + 8 <= PLANE_LOOKS_AT);
const _: () = assert!(PLANE_LOOKS_AT + 8 <= GLOBAL_EPOCH_AT);
const _: () = assert!(GLOBAL_EPOCH_AT + 8 == NODE_EPOCHS_AT);
const _: () = assert!(NODE_EPOCHS_AT + 8 * MAX_COMPUTE_NODES as u64 <= CONTROL_PAGE_BYTES);
// The header table of a range fills whole 4 KiB pages, so data areas and slabs stay page aligned.
const _: () = assert!((EXTENT_GCLS * HEADER_BYTES).is_multiple_of(4096));
const _: () = assert!(MAX_RANGE_BYTES / MIN_GCL_BYTES as u64 <= 1 << 32);

impl Header {
    /// The header as it lies in memory.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        let words = [self.latch, self.reserved]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .chain(self.split_version.into_iter().flat_map(u32::to_le_bytes));
        for (into, byte) in bytes.iter_mut().zip(words) {
            *into = byte;
        }
        bytes
    }

    /// Reads a header back from its bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES as usize]) -> Self {
        let (latch, rest) = bytes.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let (reserved, rest) = rest.split_first_chunk().unwrap_or((&[0; 8], &[]));
        let mut header = Self {
            latch: u64::from_le_bytes(*latch),
            reserved: u64::from_le_bytes(*reserved),
            split_version: [0; MAX_SPLITS],
        };
        for (version, bytes) in header.split_version.iter_mut().zip(rest.as_chunks().0) {
            *version = u32::from_le_bytes(*bytes);
        }
        header
    }
}

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

/// The sizes that fix every offset in a region.
///
/// ```
/// use selkie_pool::layout::SlabGeometry;
/// let geometry = SlabGeometry::new(2048, 1 << 20);
/// assert_eq!(geometry.gcls_per_range(), 512);
/// assert_eq!(geometry.extents_per_range(), 8);
/// assert_eq!(geometry.latch_offset(0, 0), 4096);
/// assert_eq!(geometry.data_offset(0, 0), 4096 + 512 * 64);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabGeometry {
    gcl_bytes: u64,
    range_bytes: u64,
    /// Slabs that a range lies in.
    positions: u64,
    /// Header tables in a slab.
    tables: u64,
    /// Bytes before the first of them.
    lead_bytes: u64,
    /// Bytes of the journals of all compute nodes.
    journal_bytes: u64,
    /// Bytes of the log of a compute node.
    log_bytes: u64,
    /// Compute nodes that have one.
    logs: u64,
    /// Bytes from the data of a GCL to that of the next.
    stride: u64,
}

impl SlabGeometry {
    /// Geometry of a pool without redundancy whose sizes were validated already (see
    /// [`crate::PoolConfig`]).
    ///
    /// # Panics
    /// If a size is not a power of two within its bounds, or if a range holds less than one extent.
    #[must_use]
    pub const fn new(gcl_bytes: usize, range_bytes: u64) -> Self {
        assert!(
            gcl_bytes.is_power_of_two() && gcl_bytes >= MIN_GCL_BYTES && gcl_bytes <= MAX_GCL_BYTES,
            "gcl_bytes must be a power of two in 512..=8192"
        );
        assert!(
            range_bytes.is_power_of_two()
                && range_bytes >= min_range_bytes(gcl_bytes)
                && range_bytes <= MAX_RANGE_BYTES,
            "range_bytes must be a power of two of at least one extent and at most 1 TiB"
        );
        let gcl_bytes = gcl_bytes as u64;
        Self {
            gcl_bytes,
            range_bytes,
            positions: 1,
            tables: 1,
            lead_bytes: 0,
            journal_bytes: 0,
            log_bytes: 0,
            logs: 0,
            stride: gcl_bytes,
        }
    }

    /// As it is, with room for the logs of so many compute nodes.
    #[must_use]
    pub const fn with_logs(self, log_bytes: u64, compute_nodes: usize) -> Self {
        Self { log_bytes, logs: compute_nodes as u64, ..self }
    }

    /// As [`SlabGeometry::new`], for pages that are kept as `coding` says, which was validated for
    /// them.
    ///
    /// # Panics
    /// As [`SlabGeometry::new`].
    #[must_use]
    pub const fn coded(gcl_bytes: usize, range_bytes: u64, coding: Coding) -> Self {
        let plain = Self::new(gcl_bytes, range_bytes);
        if coding.is_plain() {
            return plain;
        }
        let split = gcl_bytes as u64 / coding.data() as u64;
        Self {
            positions: coding.splits() as u64,
            tables: coding.parity() as u64 + 1,
            lead_bytes: LEAD_BYTES,
            journal_bytes: (MAX_COMPUTE_NODES as u64
                * JOURNAL_IMAGES
                * (SHARE_HEADER_BYTES + split))
                .next_multiple_of(ALIGNMENT),
            stride: split + TAG_BYTES,
            ..plain
        }
    }

    /// Bytes of a GCL.
    #[must_use]
    pub const fn gcl_bytes(&self) -> usize {
        self.gcl_bytes as usize
    }

    /// Bytes of a range of the global address space (data only, headers not counted).
    #[must_use]
    pub const fn range_bytes(&self) -> u64 {
        self.range_bytes
    }

    /// GCLs in a range.
    #[must_use]
    pub const fn gcls_per_range(&self) -> u64 {
        self.range_bytes / self.gcl_bytes
    }

    /// Extents in a range; at least one.
    #[must_use]
    pub const fn extents_per_range(&self) -> u64 {
        self.gcls_per_range() / EXTENT_GCLS
    }

    /// Extents that a memory node with `ranges` ranges has to lease, where each lies in one slab.
    #[must_use]
    pub const fn extents_per_node(&self, ranges: u32) -> u64 {
        self.extents_per_range() * ranges as u64
    }

    /// Extents for which there is a place in so many slabs, of which a coded range takes several.
    #[must_use]
    pub const fn extents_in_slabs(&self, slabs: u64) -> u64 {
        self.extents_per_range() * slabs / self.positions
    }

    /// Bytes of data in an extent.
    #[must_use]
    pub const fn extent_bytes(&self) -> u64 {
        EXTENT_GCLS * self.gcl_bytes
    }

    /// Bytes of a slab: header table and data area of one range, or of a coded one's share.
    #[must_use]
    pub const fn slab_bytes(&self) -> u64 {
        let data = self.gcls_per_range() * self.stride;
        self.table_bytes() + data.next_multiple_of(ALIGNMENT)
    }

    /// Headers in a header table, at most.
    #[must_use]
    pub const fn headers_per_table(&self) -> u64 {
        self.gcls_per_range().div_ceil(self.positions)
    }

    /// Bytes before the data area.
    const fn table_bytes(&self) -> u64 {
        let tables = self.tables * self.headers_per_table() * HEADER_BYTES;
        (self.lead_bytes + tables).next_multiple_of(ALIGNMENT)
    }

    /// Bytes of a region with `ranges` slabs, control page included.
    ///
    /// `None` if that does not fit in 64 bits.
    #[must_use]
    pub const fn region_bytes(&self, ranges: u64) -> Option<u64> {
        match self.slab_bytes().checked_mul(ranges) {
            Some(slabs) => slabs.checked_add(self.slabs_at()),
            None => None,
        }
    }

    /// Whole ranges that fit in a region of `bytes`, control page included; possibly none.
    #[must_use]
    pub const fn ranges_that_fit(&self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.slabs_at()) / self.slab_bytes()
    }

    /// Offset, in the region, of the slab of range `range` (counted within the memory node).
    #[must_use]
    pub const fn slab_offset(&self, range: u32) -> u64 {
        self.slabs_at() + range as u64 * self.slab_bytes()
    }

    /// Offset, in the region, of the first slab.
    const fn slabs_at(&self) -> u64 {
        CONTROL_PAGE_BYTES + self.journal_bytes + self.logs * self.log_bytes
    }

    /// Bytes of the log of a compute node at a memory node; 0 if there are none.
    #[must_use]
    pub const fn log_bytes(&self) -> u64 {
        self.log_bytes
    }

    /// Offset, in the region, of the log of compute node `node`.
    #[must_use]
    pub const fn log_offset(&self, node: usize) -> u64 {
        debug_assert!((node as u64) < self.logs, "compute node index beyond the logs");
        CONTROL_PAGE_BYTES + self.journal_bytes + node as u64 * self.log_bytes
    }

    /// Bytes of the share that a memory node has of an image in a journal.
    #[must_use]
    pub const fn share_bytes(&self) -> u64 {
        SHARE_HEADER_BYTES + self.payload_bytes() as u64
    }

    /// Offset, in the region, of the share of an image in the journal of compute node `node`.
    #[must_use]
    pub const fn share_offset(&self, node: usize, image: u64) -> u64 {
        debug_assert!(node < MAX_COMPUTE_NODES && image < JOURNAL_IMAGES);
        let before = node as u64 * JOURNAL_IMAGES + image;
        CONTROL_PAGE_BYTES + before * self.share_bytes()
    }

    /// Offset, in the region, of the count of leased extents in the slab of a coded range.
    #[must_use]
    pub const fn leased_offset(&self, range: u32) -> u64 {
        self.slab_offset(range)
    }

    /// Offset, in the region, of the count of accesses to a coded range in its slab, as compute
    /// nodes tell it. It only grows, until the slab is free.
    #[must_use]
    pub const fn activity_offset(&self, range: u32) -> u64 {
        self.slab_offset(range) + ACTIVITY_AT
    }

    /// Offset, in the region, of the pool's logical clock in the slab of a coded range, which is
    /// the first.
    #[must_use]
    pub const fn clock_offset(&self, range: u32) -> u64 {
        self.slab_offset(range) + CLOCK_IN_LEAD_AT
    }

    /// The position to which the header of GCL `gcl` of a coded range belongs.
    #[must_use]
    pub const fn home_position(&self, gcl: u32) -> usize {
        (gcl as u64 % self.positions) as usize
    }

    /// The position at which split `split` of GCL `gcl` lies.
    #[must_use]
    pub const fn split_position(&self, gcl: u32, split: usize) -> usize {
        ((gcl as u64 + 1 + split as u64) % self.positions) as usize
    }

    /// Offset, in the region, of the header of GCL `gcl` of range `range`; of a coded range in the
    /// slab to whose position it belongs.
    #[must_use]
    pub const fn header_offset(&self, range: u32, gcl: u32) -> u64 {
        self.header_offset_in(range, gcl, 0)
    }

    /// As [`SlabGeometry::header_offset`], in the header table `table` of the slab that many
    /// positions on.
    #[must_use]
    pub const fn header_offset_in(&self, range: u32, gcl: u32, table: usize) -> u64 {
        debug_assert!((gcl as u64) < self.gcls_per_range() && (table as u64) < self.tables);
        self.table_offset(range, table) + gcl as u64 / self.positions * HEADER_BYTES
    }

    /// Offset, in the region, of a header table of a slab.
    #[must_use]
    pub const fn table_offset(&self, range: u32, table: usize) -> u64 {
        let before = table as u64 * self.headers_per_table() * HEADER_BYTES;
        self.slab_offset(range) + self.lead_bytes + before
    }

    /// Headers that belong to a position.
    #[must_use]
    pub const fn headers_at(&self, position: usize) -> u64 {
        (self.gcls_per_range() + self.positions - 1 - position as u64) / self.positions
    }

    /// The GCL whose header is the so-manieth of those that belong to `position`; none beyond the
    /// last.
    #[must_use]
    pub const fn gcl_of_header(&self, position: usize, header: u64) -> Option<u32> {
        let gcl = header * self.positions + position as u64;
        if gcl < self.gcls_per_range() { Some(gcl as u32) } else { None }
    }

    /// Offset, in the region, of the latch word of GCL `gcl` of range `range`.
    #[must_use]
    pub const fn latch_offset(&self, range: u32, gcl: u32) -> u64 {
        self.header_offset(range, gcl) + LATCH_AT
    }

    /// Offset, in the region, of the first data byte of GCL `gcl` of range `range`; of a coded
    /// range, that of the GCL's split in this slab.
    #[must_use]
    pub const fn data_offset(&self, range: u32, gcl: u32) -> u64 {
        debug_assert!((gcl as u64) < self.gcls_per_range());
        self.slab_offset(range) + self.table_bytes() + gcl as u64 * self.stride
    }

    /// Bytes of the payload of a split of a coded range; behind them lies the tag.
    #[must_use]
    pub const fn payload_bytes(&self) -> usize {
        (self.stride - TAG_BYTES) as usize
    }

    /// What a compute node that reads only may do in a memory node's region of so many ranges: read
    /// everything, change headers by atomics, as readers enter themselves in latch words, and
    /// publish epochs. No byte of a page is among what it may change.
    #[must_use]
    pub fn reading(&self, ranges: u32) -> Domain {
        let readers = Rights { atomic: true, ..Rights::READ };
        let epochs = NODE_EPOCHS_AT..NODE_EPOCHS_AT + 8 * MAX_COMPUTE_NODES as u64;
        let headers = (0..ranges).map(|range| {
            let first = self.header_offset(range, 0);
            let headers = self.tables * self.headers_per_table();
            (first..first + headers * HEADER_BYTES, readers)
        });
        let all = [(0..u64::MAX, Rights::READ), (epochs, Rights { write: true, ..Rights::READ })];
        // One with too many ranges is one that may read, which is not too much.
        let domain = Domain::new(all.into_iter().chain(headers));
        domain.or_else(|_| Domain::new([(0..u64::MAX, Rights::READ)])).unwrap_or_default()
    }
}

/// Smallest range, in bytes, that holds an extent of GCLs of `gcl_bytes`.
#[must_use]
pub const fn min_range_bytes(gcl_bytes: usize) -> u64 {
    EXTENT_GCLS * gcl_bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every legal GCL size with the smallest range and some larger ones.
    fn geometries() -> impl Iterator<Item = SlabGeometry> {
        (9..=13).flat_map(|shift| {
            let gcl_bytes = 1_usize << shift;
            [1, 2, 16, 1024]
                .map(|extents| SlabGeometry::new(gcl_bytes, extents * min_range_bytes(gcl_bytes)))
        })
    }

    #[test]
    fn pieces_of_a_region_follow_each_other_without_gap_or_overlap() {
        for geometry in geometries() {
            let gcls = geometry.gcls_per_range() as u32;
            let mut next = CONTROL_PAGE_BYTES;
            for range in 0..3 {
                for gcl in 0..gcls {
                    assert_eq!(geometry.header_offset(range, gcl), next, "{geometry:?}");
                    next += HEADER_BYTES;
                }
                for gcl in 0..gcls {
                    assert_eq!(geometry.data_offset(range, gcl), next, "{geometry:?}");
                    next += geometry.gcl_bytes() as u64;
                }
            }
            assert_eq!(geometry.region_bytes(3), Some(next));
        }
    }

    #[test]
    fn logs_lie_before_the_slabs_each_in_a_place_of_its_own() {
        let coding: Coding = "2+1".parse().unwrap();
        for without in
            [SlabGeometry::new(2048, 1 << 20), SlabGeometry::coded(2048, 1 << 20, coding)]
        {
            let with = without.with_logs(1 << 20, 3);
            assert_eq!(with.log_offset(0), without.slab_offset(0));
            assert_eq!(with.log_offset(2) + (1 << 20), with.slab_offset(0));
            assert_eq!(
                with.region_bytes(5),
                without.region_bytes(5).map(|bytes| bytes + (3 << 20))
            );
            assert_eq!(with.ranges_that_fit(with.region_bytes(5).unwrap()), 5);
        }
    }

    #[test]
    fn offsets_are_aligned() {
        for geometry in geometries() {
            for range in [0, 1, 7] {
                assert_eq!(geometry.slab_offset(range) % 4096, 0);
                assert_eq!(geometry.data_offset(range, 0) % 4096, 0);
                for gcl in [0, 1, geometry.gcls_per_range() as u32 - 1] {
                    assert_eq!(geometry.latch_offset(range, gcl) % HEADER_BYTES, 0);
                    let data = geometry.data_offset(range, gcl);
                    assert_eq!(data % (geometry.gcl_bytes() as u64).min(4096), 0);
                }
            }
        }
    }

    #[test]
    fn ranges_that_fit_is_the_floor_at_every_boundary() {
        for geometry in geometries() {
            assert_eq!(geometry.ranges_that_fit(0), 0);
            assert_eq!(geometry.ranges_that_fit(CONTROL_PAGE_BYTES), 0);
            for ranges in 1..5 {
                let exact = geometry.region_bytes(ranges).unwrap();
                assert_eq!(geometry.ranges_that_fit(exact - 1), ranges - 1);
                assert_eq!(geometry.ranges_that_fit(exact), ranges);
                assert_eq!(geometry.ranges_that_fit(exact + 1), ranges);
            }
        }
    }

    #[test]
    fn pieces_of_a_coded_slab_do_not_overlap_and_every_gcl_has_one_header() {
        for (gcl_bytes, coding) in
            [(512, "2+1"), (2048, "4+2"), (4096, "8+2"), (8192, "replicate=3")]
        {
            let coding: Coding = coding.parse().unwrap();
            let range_bytes = 4 * min_range_bytes(gcl_bytes);
            let geometry = SlabGeometry::coded(gcl_bytes, range_bytes, coding);
            let gcls = geometry.gcls_per_range() as u32;
            let mut headers = std::collections::BTreeSet::new();
            for position in 0..coding.splits() {
                let own = (0..geometry.headers_per_table())
                    .filter_map(|header| geometry.gcl_of_header(position, header));
                for gcl in own {
                    assert_eq!(geometry.home_position(gcl), position);
                    assert!(headers.insert(gcl), "{gcl} has two headers");
                }
            }
            assert_eq!(headers.len() as u32, gcls);
            let mut ends = geometry.leased_offset(1) + LEAD_BYTES;
            for gcl in (0..gcls).step_by(coding.splits()) {
                assert_eq!(geometry.header_offset(1, gcl), ends);
                ends += HEADER_BYTES;
            }
            for table in 1..=coding.parity() {
                assert!(ends <= geometry.header_offset_in(1, 0, table));
                let last = (gcls - 1) / coding.splits() as u32 * coding.splits() as u32;
                ends = geometry.header_offset_in(1, last, table) + HEADER_BYTES;
            }
            assert!(ends <= geometry.data_offset(1, 0));
            let split = (gcl_bytes / coding.data()) as u64 + TAG_BYTES;
            assert_eq!(geometry.payload_bytes() as u64, split - TAG_BYTES);
            for gcl in 1..gcls {
                let before = geometry.data_offset(1, gcl - 1);
                assert_eq!(geometry.data_offset(1, gcl), before + split);
            }
            assert!(geometry.data_offset(1, gcls - 1) + split <= geometry.slab_offset(2));
            let positions: std::collections::BTreeSet<_> =
                (0..coding.splits()).map(|split| geometry.split_position(7, split)).collect();
            assert_eq!(positions.len(), coding.splits(), "no two splits on one node");
        }
    }

    #[test]
    fn coded_memory_takes_what_splits_and_headers_take() {
        let taken = |gcl_bytes, coding: &str| {
            let coding: Coding = coding.parse().unwrap();
            let geometry = SlabGeometry::coded(gcl_bytes, 4 << 20, coding);
            (coding.splits() as u64 * geometry.slab_bytes()) as f64 / (4 << 20) as f64
        };
        assert!((1.31..1.33).contains(&taken(4096, "8+2")), "{}", taken(4096, "8+2"));
        assert!((1.37..1.39).contains(&taken(2048, "8+2")), "{}", taken(2048, "8+2"));
        assert!((2.02..2.05).contains(&taken(4096, "replicate=2")));
    }

    #[test]
    fn largest_geometry_does_not_overflow() {
        let geometry = SlabGeometry::new(MIN_GCL_BYTES, MAX_RANGE_BYTES);
        assert_eq!(geometry.gcls_per_range(), 1 << 31);
        let last = geometry.data_offset(3, u32::MAX >> 1);
        assert_eq!(Some(last + MIN_GCL_BYTES as u64), geometry.region_bytes(4));
        assert_eq!(geometry.region_bytes(u64::MAX), None);
        assert!(geometry.ranges_that_fit(u64::MAX) > 0);
    }

    #[test]
    fn extents_tile_a_range() {
        for geometry in geometries() {
            assert!(geometry.extents_per_range() >= 1);
            assert_eq!(
                geometry.extents_per_range() * geometry.extent_bytes(),
                geometry.range_bytes()
            );
            assert_eq!(geometry.extents_per_node(5), 5 * geometry.extents_per_range());
        }
    }

    #[test]
    fn header_bytes_match_the_byte_map() {
        let header = Header {
            latch: 0x0102_0304_0506_0708,
            reserved: 0x1112_1314_1516_1718,
            split_version: std::array::from_fn(|i| 0xA000_0000 + i as u32),
        };
        let bytes = header.to_bytes();
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8..16], 0x1112_1314_1516_1718_u64.to_le_bytes());
        assert_eq!(bytes[16..20], 0xA000_0000_u32.to_le_bytes());
        assert_eq!(bytes[60..], 0xA000_000B_u32.to_le_bytes());
        assert_eq!(Header::from_bytes(&bytes), header);
    }

    #[test]
    fn epoch_table_lies_between_its_word_and_the_end_of_the_page() {
        assert_eq!(node_epoch_offset(0), GLOBAL_EPOCH_AT + 8);
        assert_eq!(node_epoch_offset(57), 592);
    }

    #[test]
    #[should_panic(expected = "beyond the epoch table")]
    fn epoch_of_a_node_beyond_the_table_is_refused() {
        let _ = node_epoch_offset(MAX_COMPUTE_NODES);
    }

    #[test]
    #[should_panic(expected = "at least one extent")]
    fn range_smaller_than_an_extent_is_refused() {
        let _ = SlabGeometry::new(1024, 32 * 1024);
    }
}
