//! The header of a GCL, and versions of splits.

use std::mem::{offset_of, size_of};

use super::limits::MAX_SPLITS;

/// Bytes of one GCL header: one cache line.
pub const HEADER_BYTES: u64 = 64;

/// The header of a GCL as it lies in a slab; see the byte map in the module documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// SELCC latch word. Packed and unpacked by the engine's coherence module, nowhere else.
    pub latch: u64,
    /// As whose the line was last free, and how often it had been changed then: see
    /// [`FreeMark`](super::FreeMark). Zero: never, or unknown.
    pub free_mark: u64,
    /// Versions of the coded splits.
    pub split_version: [u32; MAX_SPLITS],
}

/// Version of a split that was never written: it is zero, its tag included.
pub const VERSION_NEVER: u32 = 0;

/// Version of the copies of a counter, which is no page.
pub const VERSION_COUNTER: u32 = 1;

/// Version that a header has for a split whose tag is not known any more; no split has it.
pub const VERSION_LOST: u32 = (1 << MAX_SPLITS) - 1;

/// Offset of the latch word in a header.
pub const LATCH_AT: u64 = offset_of!(Header, latch) as u64;

/// Offset of the mark of a free line in a header.
pub const FREE_MARK_AT: u64 = offset_of!(Header, free_mark) as u64;

/// Offset of the split versions in a header.
pub const SPLIT_VERSION_AT: u64 = offset_of!(Header, split_version) as u64;

const _: () = assert!(size_of::<Header>() as u64 == HEADER_BYTES);
const _: () = assert!(LATCH_AT == 0 && FREE_MARK_AT == 8 && SPLIT_VERSION_AT == 16);

impl Header {
    /// The header as it lies in memory.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        let words = [self.latch, self.free_mark]
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
        #[expect(clippy::expect_used, reason = "a header is longer than two words")]
        let (latch, rest) = bytes.split_first_chunk().expect("a header begins with its latch");
        #[expect(clippy::expect_used, reason = "as above")]
        let (free_mark, rest) = rest.split_first_chunk().expect("a word follows the latch");
        let mut header = Self {
            latch: u64::from_le_bytes(*latch),
            free_mark: u64::from_le_bytes(*free_mark),
            split_version: [0; MAX_SPLITS],
        };
        for (version, bytes) in header.split_version.iter_mut().zip(rest.as_chunks().0) {
            *version = u32::from_le_bytes(*bytes);
        }
        header
    }
}
