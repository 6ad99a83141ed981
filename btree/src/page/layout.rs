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
/// What an inner entry takes beside the bytes of its key.
const INNER_ENTRY: usize = SLOT + CELL_HEADER + CHILD;
/// Bit of the length of a suffix in an inner page's slot 0: the bytes behind the head are those of
/// the low fence, and not in the cell.
const IN_LOW_FENCE: u16 = 1 << 15;

/// Longest value, in bytes, that a leaf of `page_bytes` takes with a key of `key_bytes`; 0 also for
/// a key that is too long.
///
/// A leaf that has no other entry takes it once its fences are as short as this key allows, which
/// they are after at most two splits beside the key (see `page/cut.rs`). The
/// low fence is the beginning of the key then, and the high fence has one byte that the key does
/// not have at most. What they and the suffix take together is longest if the low fence is the
/// whole key: `2 * key_bytes + 1`.
pub const fn max_value(page_bytes: usize, key_bytes: usize) -> usize {
    (page_bytes - HEADER - SLOT - CELL_HEADER - 1).saturating_sub(2 * key_bytes)
}

/// Longest key, in bytes, for pages of `page_bytes`: a quarter of what an inner page has beside its
/// header and its slots, so that it has at least three children. Two keys more are its fences, of
/// which the low one is the key of its first child, too.
pub const fn max_key(page_bytes: usize) -> usize {
    (page_bytes - HEADER - INNER_ENTRY - 2 * (INNER_ENTRY - HEAD)) / 4
}

/// Bytes an entry takes: slot and cell.
pub(crate) const fn entry_bytes(suffix: usize, value: usize) -> usize {
    SLOT + CELL_HEADER + suffix.saturating_sub(HEAD) + value
}

/// The bounds other code relies on, for every page size.
const fn check(page: usize) {
    let key = max_key(page);
    let fences = 2 * key;
    let inner_entry = INNER_ENTRY + key - HEAD;
    assert!(
        HEADER + fences + INNER_ENTRY + 2 * inner_entry <= page,
        "an inner page has room for three children, whatever their separators are"
    );
    // Of a full inner page, with one more entry, the larger side of the best cut has at most half
    // of the bytes and half an entry. The separator is a fence of either side. That is most if both
    // fences are as long as can be, or if there are none.
    let with_fences = (page - HEADER - fences + inner_entry) / 2 + inner_entry / 2;
    assert!(HEADER + fences + with_fences <= page, "a separator fits a page that was split");
    let without = (page - HEADER + inner_entry) / 2 + inner_entry / 2;
    assert!(HEADER + key + without <= page, "a separator fits an outermost page that was split");
    // Where nothing is stored with the longest key.
    assert!(HEADER + fences + 1 + SLOT + CELL_HEADER <= page && max_value(page, key) > 3 * CHILD);
}
const _: () = {
    let mut gcl = MIN_PAGE + PSN_BYTES;
    while gcl <= MAX_PAGE + PSN_BYTES {
        check(gcl - PSN_BYTES);
        gcl *= 2;
    }
    assert!(max_value(2048 - PSN_BYTES, 64) >= 1024 + 512, "as the largest rows are cut for");
    assert!(HEADER == STAMPS_AT + STAMPS && SLOT == 8 && MAX_PAGE < IN_LOW_FENCE as usize);
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
    /// The bytes of the suffix behind the head are those of the low fence, and not in the cell.
    pub(crate) is_low_fence: bool,
}

impl Slot {
    #[inline]
    pub(crate) fn decode(b: &[u8; SLOT]) -> Self {
        let length = u16::from_le_bytes([b[6], b[7]]);
        Self {
            head: u32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            offset: u16::from_le_bytes([b[4], b[5]]),
            suffix_len: length & !IN_LOW_FENCE,
            is_low_fence: length & IN_LOW_FENCE != 0,
        }
    }

    pub(crate) fn encode(self) -> [u8; SLOT] {
        let flag = if self.is_low_fence { IN_LOW_FENCE } else { 0 };
        let mut b = [0; SLOT];
        b[0..4].copy_from_slice(&self.head.to_le_bytes());
        b[4..6].copy_from_slice(&self.offset.to_le_bytes());
        b[6..8].copy_from_slice(&(self.suffix_len | flag).to_le_bytes());
        b
    }
}
