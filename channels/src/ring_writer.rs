//! The sender's side of a ring: where the next record goes. Pure accounting, no I/O.
//!
//! A ring belongs to one sender and one receiver and lies in the receiver's memory (LOCO §5, ring
//! buffer). Positions count bytes since the ring was new and never wrap; `position % ring_bytes` is
//! the place in the ring. Between what the receiver has consumed (the *credit*) and the *tail* lie
//! committed records.
//!
//! ```text
//! one record     | header word | message ... padding | terminator |
//!                ^ tail        ^ first write, ends with           ^
//!                  second      the terminator: a zero word where the next header will be
//! ```
//! The message and the terminator are written first, the header word after them on the same queue
//! pair. So a receiver that sees a header word sees its message, and sees zero at the place of the
//! next header until that one is committed: bytes of an earlier lap are never taken for a record.
//! (The sequence number in the header word is a second, independent check.)
//!
//! A record and its terminator never reach across the end of the ring. If they would, the record
//! goes to the start of the ring, and a skip record is committed at the tail *after* it. There is
//! always room for the skip record's word, because a record stops short of the end of the ring.

use crate::record::{RECORD_ALIGN, Record, Sequence, record_bytes};

/// A place for a record, with the words that commit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlacement {
    /// Offset of the header word in the ring; message and terminator follow it.
    pub(crate) offset: u64,
    /// The header word.
    pub(crate) word: u64,
    /// Bytes to write behind the header word: message, padding, terminator.
    pub(crate) body_bytes: usize,
    /// Offset and word of the skip record to commit last, if the record starts a new lap.
    pub(crate) skip: Option<(u64, u64)>,
}

/// A credit that the receiver cannot have meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadCredit {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

/// The sender's state of its ring.
#[derive(Debug)]
pub(crate) struct RingWriter {
    ring_bytes: u64,
    tail: u64,
    credit: u64,
    sequence: Sequence,
}

impl RingWriter {
    /// The writer of a ring that was never used.
    pub(crate) fn new(ring_bytes: u64) -> Self {
        Self { ring_bytes, tail: 0, credit: 0, sequence: Sequence::FIRST }
    }

    /// Takes note of the bytes that the receiver says it has consumed.
    pub(crate) fn set_credit(&mut self, credit: u64) -> Result<(), BadCredit> {
        // Records end at multiples of the alignment, so a receiver never means anything else.
        let possible = credit.is_multiple_of(RECORD_ALIGN as u64);
        if !possible || !(self.credit..=self.tail).contains(&credit) {
            return Err(BadCredit { least: self.credit, most: self.tail });
        }
        self.credit = credit;
        Ok(())
    }

    /// Takes the place for the next message; `None` if the receiver has to consume some first.
    pub(crate) fn reserve(&mut self, message_bytes: usize) -> Option<RecordPlacement> {
        let body_bytes = record_bytes(message_bytes);
        let record = body_bytes as u64;
        let place = self.tail % self.ring_bytes;
        let lap_left = self.ring_bytes - place;
        // Strictly less, here and below: the terminator needs room as well.
        let skipped = if record < lap_left { 0 } else { lap_left };
        if self.tail - self.credit + skipped + record >= self.ring_bytes {
            return None;
        }
        let skip = (skipped > 0).then(|| (place, Record::Skip.encode(self.next_sequence())));
        let word = Record::Message { bytes: message_bytes }.encode(self.next_sequence());
        let offset = if skip.is_some() { 0 } else { place };
        self.tail += skipped + record;
        Some(RecordPlacement { offset, word, body_bytes, skip })
    }

    fn next_sequence(&mut self) -> Sequence {
        let sequence = self.sequence;
        self.sequence = sequence.next();
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MIN_RING_BYTES;
    use crate::record::{MAX_MESSAGE_BYTES, MAX_RECORD_BYTES};

    const RING: u64 = MIN_RING_BYTES as u64;

    #[test]
    fn records_and_terminators_stay_in_the_ring_and_off_unconsumed_bytes() {
        let mut random = 88_172_645_463_325_252_u64;
        let mut draw = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut ring = RingWriter::new(RING);
        let mut laps = 0;
        for _ in 0..200_000 {
            let before = ring.tail;
            let bytes = draw(MAX_MESSAGE_BYTES as u64 + 1) as usize;
            let Some(placed) = ring.reserve(bytes) else {
                let owed = ring.tail - ring.credit;
                assert!(owed > 0, "a record fits an empty ring");
                ring.set_credit(ring.credit + 64 * (1 + draw(owed / 64))).unwrap();
                continue;
            };
            let end = placed.offset + 8 + placed.body_bytes as u64;
            assert!(end <= RING, "terminator crosses the end of the ring");
            assert!(ring.tail + 8 <= ring.credit + RING, "terminator on unconsumed bytes");
            assert_eq!((placed.offset + placed.body_bytes as u64) % RING, ring.tail % RING);
            match placed.skip {
                None => assert_eq!(placed.offset, before % RING),
                Some((at, _)) => {
                    laps += 1;
                    assert_eq!((at, placed.offset), (before % RING, 0));
                }
            }
        }
        assert!(laps > 1000);
    }

    #[test]
    fn any_message_fits_once_all_but_the_idle_share_is_returned() {
        let idle = RING / crate::config::IDLE_CREDIT_SHARE;
        for place in (0..RING).step_by(64) {
            for unreturned in (0..=idle).step_by(64) {
                let tail = RING * 3 + place;
                let credit = tail - unreturned;
                let sequence = Sequence::FIRST;
                let mut ring = RingWriter { ring_bytes: RING, tail, credit, sequence };
                assert!(ring.reserve(MAX_MESSAGE_BYTES).is_some(), "{place} {unreturned}");
            }
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_credit_comes() {
        let mut ring = RingWriter::new(RING);
        let mut placed = 0;
        while ring.reserve(56).is_some() {
            placed += 1;
        }
        // The last 64 bytes stay free for the terminator.
        assert_eq!(placed, RING / 64 - 1);
        ring.set_credit(64).unwrap();
        // One record's room is not enough: the end of the lap has to be skipped as well.
        assert_eq!(ring.reserve(56), None);
        ring.set_credit(128).unwrap();
        let placed = ring.reserve(56).unwrap();
        assert_eq!(placed.offset, 0);
        assert_eq!(placed.skip.map(|(at, _)| at), Some(RING - 64));
    }

    #[test]
    fn impossible_credit_is_refused() {
        let mut ring = RingWriter::new(RING);
        ring.reserve(MAX_MESSAGE_BYTES).unwrap();
        let most = MAX_RECORD_BYTES as u64;
        assert_eq!(ring.set_credit(most + 1), Err(BadCredit { least: 0, most }));
        assert_eq!(ring.set_credit(most - 8), Err(BadCredit { least: 0, most }));
        ring.set_credit(most).unwrap();
        assert_eq!(ring.set_credit(most - 64), Err(BadCredit { least: most, most }));
    }
}
