//! The page header: field offsets, decoding with its constant-time check, and size limits.
#![expect(clippy::indexing_slicing, reason = "constant offsets into a fixed-size header array")]

use selkie_engine::PSN_BYTES;

use super::stamps::{STAMPS, Stamps};

/// Smallest and largest page, which are those of the GCL sizes the pool accepts.
pub(crate) const MIN_PAGE: usize = 512 - PSN_BYTES;
pub(crate) const MAX_PAGE: usize = 8192 - PSN_BYTES;

/// Marks a page of this tree; a zeroed or foreign page does not carry it.
const MAGIC: u16 = 0x4c42;
/// Header bytes of a page, before the slot array.
pub const HEADER: usize = 44;
/// Where in it the stamps are.
pub(crate) const STAMPS_AT: usize = 28;
/// Where the flags are.
pub(crate) const FLAGS_AT: usize = 3;
/// Bytes of one slot.
pub(crate) const SLOT: usize = 8;
/// Bytes of a cell before the key suffix: the value length.
pub(crate) const CELL_HEADER: usize = 2;
/// Key suffix bytes that live in the slot instead of the cell.
pub(crate) const HEAD: usize = 4;
/// Flag bit: the page was unlinked from the tree.
pub(crate) const DEAD: u8 = 1;
/// Flag bit of a leaf: rows of its range may be locked. The transaction layer's.
pub(crate) const LOCKED: u8 = 2;
/// Value bytes of an inner entry.
pub(crate) const CHILD: usize = 8;
/// Fence bytes (both together) that three maximal entries leave room for.
const FENCE_RESERVE: usize = 20;

/// Largest key plus value a leaf of `page_bytes` takes: three of them fit one page (while its two
/// fences take at most 20 bytes together; two of them always fit).
pub const fn max_entry(page_bytes: usize) -> usize {
    (page_bytes - HEADER - FENCE_RESERVE) / 3 - SLOT - CELL_HEADER + HEAD
}

/// Longest key, in bytes, for pages of `page_bytes`: an inner page then has at least three
/// children.
pub const fn max_key(page_bytes: usize) -> usize {
    page_bytes / 32 * 3
}

/// Bytes an entry takes: slot and cell.
pub(crate) const fn entry_bytes(suffix: usize, value: usize) -> usize {
    SLOT + CELL_HEADER + suffix.saturating_sub(HEAD) + value
}

/// The bounds other code relies on, for every page size.
const fn check(page: usize) {
    let key = max_key(page);
    let fences = 2 * key;
    // The head saves its bytes only for suffixes that are long enough to have one.
    let leaf_entry = max_entry(page) + SLOT + CELL_HEADER;
    assert!(HEADER + fences + 2 * leaf_entry <= page, "two maximal entries always fit a leaf");
    assert!(
        HEADER + FENCE_RESERVE + 3 * (leaf_entry - HEAD) <= page,
        "three maximal entries with short fences fit a leaf"
    );
    // Of a full page, with one more entry, the larger side of the best cut has at most half of the
    // bytes and half an entry; the separator comes on top, as the fence of either side.
    assert!(
        (page - HEADER) / 2 + leaf_entry + key + key / 2 + HEADER <= page,
        "both halves of a leaf fit their pages with their new fences"
    );
    // An inner page split in the middle by bytes has room for one more separator in either half.
    let inner_entry = entry_bytes(key, CHILD) + HEAD;
    assert!(
        (page - HEADER) / 2 + inner_entry + inner_entry / 2 + key + key / 2 + HEADER <= page,
        "a separator always fits a freshly split inner page"
    );
    assert!(max_entry(page) > max_key(page) + CHILD);
}
const _: () = {
    let mut gcl = MIN_PAGE + PSN_BYTES;
    while gcl <= MAX_PAGE + PSN_BYTES {
        check(gcl - PSN_BYTES);
        gcl *= 2;
    }
    assert!(max_entry(2048 - PSN_BYTES) >= 652, "as the TPC-C tables are cut for");
    assert!(HEADER == STAMPS_AT + STAMPS && SLOT == 8 && MAX_PAGE <= u16::MAX as usize);
};

/// What is wrong with a page. Becomes [`crate::TreeError::Corrupt`] once the address is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

/// The decoded header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) level: u8,
    pub(crate) flags: u8,
    pub(crate) count: u16,
    pub(crate) heap: u16,
    pub(crate) garbage: u16,
    pub(crate) prefix_len: u16,
    pub(crate) low_len: u16,
    pub(crate) high_len: u16,
    pub(crate) right: u64,
    pub(crate) extra: u32,
    pub(crate) stamps: Stamps,
}

impl Header {
    /// Decodes and checks the header of `page`: every region lies in the page and in order.
    #[inline]
    pub(crate) fn load(page: &[u8]) -> Result<Self, Damage> {
        let Some(b) = page.first_chunk::<HEADER>() else {
            return Err(Damage("page shorter than its header"));
        };
        let u16_at = |at: usize| u16::from_le_bytes([b[at], b[at + 1]]);
        if u16_at(0) != MAGIC {
            return Err(Damage("not a tree page"));
        }
        let header = Self {
            level: b[2],
            flags: b[3],
            count: u16_at(4),
            heap: u16_at(6),
            garbage: u16_at(8),
            prefix_len: u16_at(10),
            low_len: u16_at(12),
            high_len: u16_at(14),
            right: u64::from_le_bytes([b[16], b[17], b[18], b[19], b[20], b[21], b[22], b[23]]),
            extra: u32::from_le_bytes([b[24], b[25], b[26], b[27]]),
            stamps: Stamps::decode(std::array::from_fn(|at| b[STAMPS_AT + at])),
        };
        let fences = usize::from(header.low_len) + usize::from(header.high_len);
        let heap = usize::from(header.heap);
        if header.slots_end() > heap || heap + fences > page.len() {
            return Err(Damage("slots, heap or fences out of bounds"));
        }
        if header.prefix_len > header.low_len || header.prefix_len > header.high_len {
            return Err(Damage("prefix longer than a fence"));
        }
        if (header.high_len == 0) != (header.right == 0) {
            return Err(Damage("high fence and right link disagree"));
        }
        Ok(header)
    }

    /// Encodes the header into the first bytes of `page`, which must hold one.
    pub(crate) fn store(&self, page: &mut [u8]) {
        let b = &mut page[..HEADER];
        b[0..2].copy_from_slice(&MAGIC.to_le_bytes());
        b[2] = self.level;
        b[3] = self.flags;
        b[4..6].copy_from_slice(&self.count.to_le_bytes());
        b[6..8].copy_from_slice(&self.heap.to_le_bytes());
        b[8..10].copy_from_slice(&self.garbage.to_le_bytes());
        b[10..12].copy_from_slice(&self.prefix_len.to_le_bytes());
        b[12..14].copy_from_slice(&self.low_len.to_le_bytes());
        b[14..16].copy_from_slice(&self.high_len.to_le_bytes());
        b[16..24].copy_from_slice(&self.right.to_le_bytes());
        b[24..28].copy_from_slice(&self.extra.to_le_bytes());
        b[STAMPS_AT..].copy_from_slice(&self.stamps.encode());
    }

    /// End of the slot array.
    #[inline]
    pub(crate) fn slots_end(&self) -> usize {
        HEADER + SLOT * usize::from(self.count)
    }
}

/// One slot of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) head: u32,
    pub(crate) offset: u16,
    pub(crate) suffix_len: u16,
}

impl Slot {
    #[inline]
    pub(crate) fn decode(b: &[u8; SLOT]) -> Self {
        Self {
            head: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            offset: u16::from_le_bytes([b[4], b[5]]),
            suffix_len: u16::from_le_bytes([b[6], b[7]]),
        }
    }

    pub(crate) fn encode(self) -> [u8; SLOT] {
        let mut b = [0; SLOT];
        b[0..4].copy_from_slice(&self.head.to_le_bytes());
        b[4..6].copy_from_slice(&self.offset.to_le_bytes());
        b[6..8].copy_from_slice(&self.suffix_len.to_le_bytes());
        b
    }
}
