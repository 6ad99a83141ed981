//! The receiver's side of a ring: takes records out, in order, and counts the credit it owes.
//!
//! It reads the receiver's own memory with atomic loads while the sender may be writing further on.
//! A header word is read with Acquire, which pairs with the fabric's commit of that word, so the
//! message behind it is complete. The layout and why stale bytes are harmless:
//! [`crate::ring_writer`].

use crate::config::{BUSY_CREDIT_SHARE, IDLE_CREDIT_SHARE};
use crate::record::{Record, Sequence, record_bytes};
use selkie_fabric::{LocalRegion, WORD_BYTES};

/// A header word that no sender writes: the ring cannot be trusted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Offset of the word in the ring.
    pub(crate) offset: u64,
    /// The word.
    pub(crate) word: u64,
}

/// The receiver's state of one sender's ring.
#[derive(Debug)]
pub(crate) struct RingReader {
    /// Offset of the ring in the region.
    base: usize,
    ring_bytes: u64,
    /// Bytes consumed.
    head: u64,
    /// Bytes consumed that the sender has been told of.
    returned: u64,
    sequence: Sequence,
}

impl RingReader {
    /// The reader of a ring that was never used.
    pub(crate) fn new(base: u64, ring_bytes: u64) -> Self {
        let base = base as usize;
        Self { base, ring_bytes, head: 0, returned: 0, sequence: Sequence::FIRST }
    }

    /// Takes the next message out, into `message`; `false` if there is none.
    ///
    /// `message` is resized to the message and keeps its capacity.
    pub(crate) fn next(
        &mut self,
        region: &dyn LocalRegion,
        message: &mut Vec<u8>,
    ) -> Result<bool, Damage> {
        loop {
            let place = self.head % self.ring_bytes;
            let at = self.base + place as usize;
            let word = region.load(at);
            let damage = Damage { offset: place, word };
            let lap_left = self.ring_bytes - place;
            match Record::decode(word, self.sequence).map_err(|_| damage)? {
                None => return Ok(false),
                Some(Record::Skip) => self.advance(lap_left),
                Some(Record::Message { bytes }) => {
                    let record = record_bytes(bytes) as u64;
                    if record >= lap_left {
                        return Err(damage);
                    }
                    message.resize(bytes.next_multiple_of(WORD_BYTES), 0);
                    region.read(at + WORD_BYTES, message);
                    message.truncate(bytes);
                    self.advance(record);
                    return Ok(true);
                }
            }
        }
    }

    /// Whether there is nothing to take out.
    pub(crate) fn is_empty(&self, region: &dyn LocalRegion) -> bool {
        let word = region.load(self.base + (self.head % self.ring_bytes) as usize);
        matches!(Record::decode(word, self.sequence), Ok(None))
    }

    /// The credit to return now, if any. `idle` says that the ring was just found empty.
    pub(crate) fn credit_due(&self, idle: bool) -> Option<u64> {
        let owed = self.head - self.returned;
        let busy_due = owed >= self.ring_bytes / BUSY_CREDIT_SHARE;
        let idle_due = idle && owed > self.ring_bytes / IDLE_CREDIT_SHARE;
        (busy_due || idle_due).then_some(self.head)
    }

    /// The sender has been told of `credit` bytes.
    pub(crate) fn credit_returned(&mut self, credit: u64) {
        self.returned = credit;
    }

    fn advance(&mut self, bytes: u64) {
        self.head += bytes;
        self.sequence = self.sequence.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::MIN_RING_BYTES;
    use selkie_fabric::{Fabric, MemFabric, PeerId};
    use std::sync::Arc;

    const RING: u64 = MIN_RING_BYTES as u64;
    const BASE: u64 = 512;

    fn ring() -> (Arc<dyn LocalRegion>, RingReader) {
        let endpoint = MemFabric::new().join(PeerId::compute(0)).unwrap();
        let region = endpoint.register((BASE + RING) as usize).unwrap();
        (region, RingReader::new(BASE, RING))
    }

    #[test]
    fn a_message_is_taken_once_and_with_its_own_length() {
        let (region, mut reader) = ring();
        let mut message = vec![9; 100];
        assert_eq!(reader.next(&*region, &mut message), Ok(false));
        region.write(BASE as usize + 8, b"thirteen byte...");
        region.store(BASE as usize, Record::Message { bytes: 13 }.encode(Sequence::FIRST));
        assert!(!reader.is_empty(&*region));
        assert_eq!(reader.next(&*region, &mut message), Ok(true));
        assert_eq!(message, b"thirteen byte");
        assert!(reader.is_empty(&*region));
        assert_eq!(reader.next(&*region, &mut message), Ok(false));
        assert_eq!(reader.head, 64);
    }

    #[test]
    fn a_record_that_reaches_the_end_of_the_ring_is_damage() {
        let (region, mut reader) = ring();
        for (bytes, fits) in [(56, true), (57, false), (120, false)] {
            reader.head = RING - 128;
            reader.sequence = Sequence::FIRST;
            let word = Record::Message { bytes }.encode(Sequence::FIRST);
            region.store((BASE + RING) as usize - 128, word);
            let expected = if fits { Ok(true) } else { Err(Damage { offset: RING - 128, word }) };
            assert_eq!(reader.next(&*region, &mut Vec::new()), expected, "{bytes}");
        }
    }

    #[test]
    fn a_skip_leads_to_the_start_of_the_next_lap() {
        let (region, mut reader) = ring();
        reader.head = RING - 64;
        let second = Sequence::FIRST.next();
        region.store((BASE + RING) as usize - 64, Record::Skip.encode(Sequence::FIRST));
        assert_eq!(reader.next(&*region, &mut Vec::new()), Ok(false));
        assert_eq!(reader.head, RING);
        region.store(BASE as usize, Record::Message { bytes: 0 }.encode(second));
        assert_eq!(reader.next(&*region, &mut Vec::new()), Ok(true));
        assert_eq!(reader.head, RING + 64);
    }

    #[test]
    fn credit_is_due_at_a_quarter_and_when_idle_above_a_sixteenth() {
        let (_, mut reader) = ring();
        for (owed, busy, idle) in [
            (0, false, false),
            (RING / 16, false, false),
            (RING / 16 + 64, false, true),
            (RING / 4 - 64, false, true),
            (RING / 4, true, true),
        ] {
            reader.head = RING + owed;
            reader.credit_returned(RING);
            assert_eq!(reader.credit_due(false).is_some(), busy, "{owed}");
            assert_eq!(reader.credit_due(true), idle.then_some(RING + owed), "{owed}");
        }
    }
}
