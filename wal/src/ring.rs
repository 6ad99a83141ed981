//! The ring that holds a log in the memory of a memory node: its bytes.
//!
//! ```text
//!  0   u64  MAGIC
//!  8   u64  identifier of the pool
//! 16   u32  the compute node
//! 20   u32  its incarnation
//! 24   u32  bytes of a line
//! 28   u32  CRC-32C of the head, with 0 in its own place
//! 32   u64  start: from where the log is kept (LSN)
//! 40   u64  anew: where the log was restarted (LSN); 0: it was not
//! 64   a second head: the two are written in turn, so that one of them is whole
//! 4096 ring: the byte at an LSN lies at that offset, modulo the length of the ring
//! ```
//! A log is restarted when all its copies were lost. `anew` stays until all changes from before
//! are home.
//!
//! Little-endian throughout.

use std::path::PathBuf;

use selkie_pool::checksum;

use crate::error::ReadError;
use crate::lsn::Lsn;
use crate::owner::LogOwner;

const MAGIC: u64 = u64::from_le_bytes(*b"SELKIEm\x01");
/// Bytes before the ring.
pub const HEAD_BYTES: u64 = 4096;
/// Bytes of a head that are in use.
const SEALED_BYTES: usize = 48;
/// Bytes from one head to the other.
pub const HEAD_STRIDE: usize = 64;

/// The head of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RingHead {
    /// From where the log is kept.
    pub start: Lsn,
    /// Where it was restarted, as all copies had been lost; 0: it was not.
    pub anew: Lsn,
}

impl RingHead {
    /// The head as bytes, of the ring of this log.
    #[must_use]
    pub fn encode(self, owner: LogOwner) -> [u8; SEALED_BYTES] {
        let LogOwner { pool, node, incarnation, line_bytes } = owner;
        let mut bytes = [0; SEALED_BYTES];
        let words =
            [MAGIC, pool, u64::from(node) | u64::from(incarnation) << 32, u64::from(line_bytes)];
        for (to, word) in
            bytes.chunks_exact_mut(8).zip(words.into_iter().chain([self.start, self.anew]))
        {
            to.copy_from_slice(&word.to_le_bytes());
        }
        // With its own place taken as zero.
        let sum = checksum(&bytes);
        bytes[28..32].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The head that these bytes begin with, if it is whole and of the ring of this log.
    #[must_use]
    pub fn decode(owner: LogOwner, bytes: &[u8]) -> Option<Self> {
        let sealed = bytes.get(..SEALED_BYTES)?;
        let word = |at: usize| Some(Lsn::from_le_bytes(*sealed.get(at..)?.first_chunk()?));
        let head = Self { start: word(32)?, anew: word(40)? };
        (sealed == head.encode(owner)).then_some(head)
    }
}

/// How messages name the ring of a log at memory node `memory`.
#[must_use]
pub fn ring_place(owner: LogOwner, memory: usize) -> PathBuf {
    format!("the log of compute node {} at memory node {memory}", owner.node).into()
}

/// From where a log is kept, by the heads of its copies, each with its memory node; `None` if there
/// is no copy.
///
/// # Errors
/// [`ReadError::Place`] if all copies were lost, and changes from before are not home yet.
pub fn kept_from(owner: LogOwner, copies: &[(usize, RingHead)]) -> Result<Option<Lsn>, ReadError> {
    let Some((memory, head)) = copies.iter().max_by_key(|(_, head)| *head) else { return Ok(None) };
    if head.anew > 0 {
        let what = format!("all its copies were lost, and it was begun anew at {}", head.anew);
        return Err(ReadError::Place { place: ring_place(owner, *memory), what });
    }
    Ok(Some(head.start))
}

/// Refuses to read a log from a place that is not kept any more, or was lost.
///
/// # Errors
/// [`ReadError::Cut`].
pub fn check_kept(
    owner: LogOwner,
    from: Lsn,
    copies: &[(usize, RingHead)],
) -> Result<(), ReadError> {
    let kept = copies.iter().map(|(_, head)| head.start.max(head.anew)).max();
    if kept.is_some_and(|kept| kept <= from) {
        return Ok(());
    }
    let place = format!("the log of compute node {} in memory", owner.node).into();
    Err(ReadError::Cut { place, from, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_only_from_where_it_is_kept() {
        let owner = LogOwner { pool: 77, node: 3, incarnation: 2, line_bytes: 2048 };
        let head = |start, anew| RingHead { start, anew };
        let copies = [(1, head(100, 0)), (2, head(200, 0))];
        let cut = |from, copies: &[_]| match check_kept(owner, from, copies) {
            Err(ReadError::Cut { kept, .. }) => Some(kept),
            other => other.map(|()| None).unwrap(),
        };
        // The heads are written one after the other.
        assert_eq!(cut(199, &copies), Some(Some(200)));
        assert_eq!(cut(200, &copies), None);
        assert_eq!(cut(250, &[(1, head(100, 300))]), Some(Some(300)), "what was before is lost");
        assert_eq!(cut(200, &[]), Some(None));
    }

    #[test]
    fn a_head_is_of_one_log() {
        let owner = LogOwner { pool: 77, node: 3, incarnation: 2, line_bytes: 2048 };
        let head = RingHead { start: 4711, anew: 17 };
        let bytes = head.encode(owner);
        assert_eq!(RingHead::decode(owner, &bytes), Some(head));
        for other in [
            LogOwner { pool: 78, ..owner },
            LogOwner { node: 4, ..owner },
            LogOwner { incarnation: 3, ..owner },
            LogOwner { line_bytes: 4096, ..owner },
        ] {
            assert_eq!(RingHead::decode(other, &bytes), None);
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 4;
            assert_eq!(RingHead::decode(owner, &flipped), None, "byte {at}");
        }
        assert_eq!(RingHead::decode(owner, &[0; SEALED_BYTES]), None);
        assert_eq!(RingHead::decode(owner, &bytes[..20]), None);
    }

    /// Nodes of other versions read what this one has written.
    #[test]
    fn the_bytes_of_a_head_are_what_they_always_were() {
        let owner =
            LogOwner { pool: 0x0102_0304_0506_0708, node: 3, incarnation: 2, line_bytes: 2048 };
        let bytes = RingHead { start: 0x1112_1314, anew: 0x21 }.encode(owner);
        let expected = [
            b'S', b'E', b'L', b'K', b'I', b'E', b'm', 1, 8, 7, 6, 5, 4, 3, 2,
            1, // magic, pool
            3, 0, 0, 0, 2, 0, 0, 0, 0, 8, 0, 0, 0x5f, 0x36, 0xa6,
            0x06, // node, incarnation, line, sum
            0x14, 0x13, 0x12, 0x11, 0, 0, 0, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, // start, anew
        ];
        assert_eq!(bytes, expected);
    }
}
