//! The header of a file, or object, of a log.
//!
//! ```text
//!  0  "SELKIElg"
//!  8  u32  version of the files, and of the records in them
//! 12  u32  bytes of a line
//! 16  u32  the compute node
//! 20  u32  its incarnation
//! 24  u64  identifier of the pool
//! 32  u64  LSN: where the records begin; in other files, the place that they name
//! 40  u64  0
//! 48  u32  CRC-32C of the bytes before
//! 512 records
//! ```
//! Little-endian throughout.

use selkie_pool::checksum;

use crate::lsn::Lsn;
use crate::owner::LogOwner;

const MAGIC: [u8; 8] = *b"SELKIElg";
/// Version of the files, and of the records in them.
const VERSION: u32 = 1;
/// Bytes of a file before its records: a sector, so that records begin with one.
pub(crate) const HEADER_BYTES: u64 = 512;
/// Bytes of the header before its checksum, which covers them.
const COVERED: usize = 48;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) owner: LogOwner,
    pub(crate) start: Lsn,
}

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES as usize] {
        let Self { owner: LogOwner { pool, node, incarnation, line_bytes }, start } = self;
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, line_bytes, u32::from(node), incarnation] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&pool.to_le_bytes());
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.resize(COVERED, 0);
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        bytes.resize(HEADER_BYTES as usize, 0);
        #[expect(clippy::expect_used, reason = "the bytes were resized to this length")]
        let header = bytes.try_into().expect("a header of this length");
        header
    }

    /// The LSN in a header of this log, or what is wrong with the header.
    pub(crate) fn of(owner: LogOwner, bytes: &[u8]) -> Result<Lsn, String> {
        let header = Self::decode(bytes)?;
        if header.owner != owner {
            return Err(format!("it is of another log: {:?}, not {owner:?}", header.owner));
        }
        Ok(header.start)
    }

    /// The header, or what is wrong with it.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; HEADER_BYTES as usize] =
            bytes.first_chunk().ok_or("it is shorter than its header")?;
        let word = |at: usize| word(bytes, at);
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if !bytes.starts_with(&MAGIC) {
            return Err("it is no file of a log");
        }
        if word(8) != VERSION {
            return Err("it is of another version");
        }
        if checksum(bytes.split_at(COVERED).0) != word(COVERED) {
            return Err("its header is damaged");
        }
        let node = u16::try_from(word(16)).map_err(|_| "it is of no node that can be")?;
        let (line_bytes, incarnation) = (word(12), word(20));
        let owner = LogOwner { pool: long(24), node, incarnation, line_bytes };
        Ok(Self { owner, start: long(32) })
    }
}

/// The word at a constant offset of a header.
#[expect(clippy::indexing_slicing, reason = "all offsets lie within the header")]
fn word(bytes: &[u8; HEADER_BYTES as usize], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files outlive the programs that wrote them.
    #[test]
    fn the_bytes_of_a_header_are_what_they_always_were() {
        let owner =
            LogOwner { pool: 0x0102_0304_0506_0708, node: 3, incarnation: 2, line_bytes: 2048 };
        let header = Header { owner, start: 0x1112_1314 };
        let bytes = header.encode();
        let expected = [
            83, 69, 76, 75, 73, 69, 108, 103, 1, 0, 0, 0, 0, 8, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 8, 7,
            6, 5, 4, 3, 2, 1, 20, 19, 18, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 39, 95, 209, 99,
        ];
        assert_eq!(bytes[..52], expected);
        assert!(bytes[52..].iter().all(|byte| *byte == 0) && bytes.len() == 512);
        assert_eq!(Header::decode(&bytes), Ok(header));
    }
}
