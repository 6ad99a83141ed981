//! Where things lie in the region of a memory node, by the sizes of its pool.

use selkie_fabric::{Domain, Rights};

use super::control_page::{
    CONTROL_PAGE_BYTES, NODE_EPOCHS_AT, SNAPSHOT_MASK_AT, SNAPSHOT_SLOT_WORDS, snapshot_slot_offset,
};
use super::header::{HEADER_BYTES, LATCH_AT};
use super::limits::{
    EXTENT_GCLS, JOURNAL_IMAGES, MAX_COMPUTE_NODES, MAX_GCL_BYTES, MAX_RANGE_BYTES, MIN_GCL_BYTES,
    SHARE_HEADER_BYTES, TAG_BYTES, min_range_bytes,
};
use crate::coding::Coding;

/// Bytes before the header table in a slab of a coded range.
pub(super) const LEAD_BYTES: u64 = 64;

/// Offset of the count of accesses in a slab of a coded range.
const ACTIVITY_AT: u64 = 8;

/// Offset of the pool's clock in a slab of the first coded range.
const CLOCK_IN_LEAD_AT: u64 = 16;

/// Slabs, and what lies in them, begin at multiples of this.
const ALIGNMENT: u64 = 4096;

const _: () = assert!(ACTIVITY_AT + 8 <= CLOCK_IN_LEAD_AT && CLOCK_IN_LEAD_AT + 8 <= LEAD_BYTES);
// The header table of a range fills whole 4 KiB pages, so data areas and slabs stay page aligned.
const _: () = assert!((EXTENT_GCLS * HEADER_BYTES).is_multiple_of(4096));

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

    /// Bytes of pages for which there is room in so many slabs. A slab of a coded range has a part
    /// of its extents, so this is not a number of whole ones.
    #[must_use]
    pub const fn page_bytes_in_slabs(&self, slabs: u64) -> u64 {
        self.range_bytes.saturating_mul(slabs) / self.positions
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

    /// The GCL whose header has this number among those that belong to `position`; none beyond the
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
    /// publish epochs and snapshots. No byte of a page is among what it may change.
    #[must_use]
    pub fn reading(&self, ranges: u32) -> Domain {
        let readers = Rights { atomic: true, ..Rights::READ };
        // Snapshot slots follow the epochs.
        let last = snapshot_slot_offset(MAX_COMPUTE_NODES - 1);
        let published = NODE_EPOCHS_AT..last + 8 * SNAPSHOT_SLOT_WORDS as u64;
        let mask = SNAPSHOT_MASK_AT..SNAPSHOT_MASK_AT + 8;
        let headers = (0..ranges).map(|range| {
            let first = self.header_offset(range, 0);
            let headers = self.tables * self.headers_per_table();
            (first..first + headers * HEADER_BYTES, readers)
        });
        let all = [
            (0..u64::MAX, Rights::READ),
            (published, Rights { write: true, ..Rights::READ }),
            (mask, readers),
        ];
        // A domain cannot have more ranges than its limit. The node may then only read.
        let domain = Domain::new(all.into_iter().chain(headers));
        #[expect(clippy::expect_used, reason = "one range is within the limit of a domain")]
        domain.unwrap_or_else(|_| {
            Domain::new([(0..u64::MAX, Rights::READ)]).expect("a domain of one range")
        })
    }
}
