//! The header word of a record, and how long records are.
//!
//! ```text
//! bit   0          2             16                                            64
//!       | kind : 2 | length : 14 | sequence : 48                                |
//! ```
//! Kind 1 is a message of `length` bytes, kind 2 skips the rest of the lap. No header word is zero:
//! a zero word is a record that has not been committed yet. The sequence counts the records of a
//! ring, from 1, modulo 2^48.

use selkie_fabric::WORD_BYTES;

/// Longest message, header and payload together: an 8 KiB page and 64 bytes about it.
pub const MAX_MESSAGE_BYTES: usize = 8192 + 64;

/// Records start at multiples of this, so that a small one touches one cache line.
pub(crate) const RECORD_ALIGN: usize = 64;
/// Longest record, with its header word and padding.
pub(crate) const MAX_RECORD_BYTES: usize = record_bytes(MAX_MESSAGE_BYTES);

const KIND_BITS: u32 = 2;
const LENGTH_BITS: u32 = 14;
const SEQUENCE_SHIFT: u32 = KIND_BITS + LENGTH_BITS;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;
const LENGTH_MASK: u64 = (1 << LENGTH_BITS) - 1;
const SEQUENCE_MASK: u64 = u64::MAX >> SEQUENCE_SHIFT;
const MESSAGE: u64 = 1;
const SKIP: u64 = 2;

const _: () = assert!(MAX_MESSAGE_BYTES as u64 <= LENGTH_MASK);

/// Bytes a message of `message_bytes` takes in a ring: header word, payload, padding.
pub(crate) const fn record_bytes(message_bytes: usize) -> usize {
    (WORD_BYTES + message_bytes).next_multiple_of(RECORD_ALIGN)
}

/// Number of a record in its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// Number of the first record.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1) & SEQUENCE_MASK)
    }
}

/// What a header word announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// A message of so many bytes follows.
    Message { bytes: usize },
    /// The next record is at the start of the ring.
    Skip,
}

/// A word that no sender writes at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotARecord;

impl Record {
    pub(crate) fn encode(self, sequence: Sequence) -> u64 {
        let (kind, length) = match self {
            Self::Message { bytes } => (MESSAGE, bytes as u64),
            Self::Skip => (SKIP, 0),
        };
        debug_assert!(length <= LENGTH_MASK);
        kind | length << KIND_BITS | sequence.0 << SEQUENCE_SHIFT
    }

    /// The record a header word announces; `None` if it is not committed yet.
    pub(crate) fn decode(word: u64, expected: Sequence) -> Result<Option<Self>, NotARecord> {
        if word == 0 {
            return Ok(None);
        }
        let length = word >> KIND_BITS & LENGTH_MASK;
        if word >> SEQUENCE_SHIFT != expected.0 {
            return Err(NotARecord);
        }
        match (word & KIND_MASK, length) {
            (MESSAGE, 0..=MAX_LENGTH) => Ok(Some(Self::Message { bytes: length as usize })),
            (SKIP, 0) => Ok(Some(Self::Skip)),
            _ => Err(NotARecord),
        }
    }
}

const MAX_LENGTH: u64 = MAX_MESSAGE_BYTES as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Sequence = Sequence(SEQUENCE_MASK);

    #[test]
    fn every_length_survives_with_every_boundary_sequence() {
        for sequence in [Sequence(0), Sequence::FIRST, Sequence(1 << 47), LAST] {
            for bytes in 0..=MAX_MESSAGE_BYTES {
                let record = Record::Message { bytes };
                let word = record.encode(sequence);
                assert_ne!(word, 0);
                assert_eq!(Record::decode(word, sequence), Ok(Some(record)));
                assert_eq!(Record::decode(word, sequence.next()), Err(NotARecord));
            }
            let word = Record::Skip.encode(sequence);
            assert_eq!(Record::decode(word, sequence), Ok(Some(Record::Skip)));
            assert_eq!(Record::decode(word, sequence.next()), Err(NotARecord));
        }
    }

    #[test]
    fn every_other_combination_of_kind_and_length_is_refused() {
        let sequence = Sequence(77);
        let mut accepted = 0;
        for low in 0..1_u64 << SEQUENCE_SHIFT {
            let word = low | sequence.0 << SEQUENCE_SHIFT;
            if let Ok(Some(record)) = Record::decode(word, sequence) {
                assert_eq!(record.encode(sequence), word);
                accepted += 1;
            }
        }
        assert_eq!(accepted, MAX_MESSAGE_BYTES + 1 + 1);
    }

    #[test]
    fn zero_is_not_committed_whatever_the_sequence() {
        for sequence in [Sequence(0), Sequence::FIRST, LAST] {
            assert_eq!(Record::decode(0, sequence), Ok(None));
        }
    }

    #[test]
    fn the_sequence_wraps_at_48_bits() {
        assert_eq!(LAST.next(), Sequence(0));
    }

    #[test]
    fn a_record_holds_its_header_word_and_its_message() {
        for message in 0..=MAX_MESSAGE_BYTES {
            let record = record_bytes(message);
            assert!(record >= message + 8 && record < message + 8 + RECORD_ALIGN);
            assert_eq!(record % RECORD_ALIGN, 0);
        }
    }
}
