//! Records of the log: which pieces of which pages became what, all of it or nothing.
//!
//! ```text
//!  0  u32  CRC-32C of all that follows in the record, xor the log's salt
//!  4  u32  length of the record, bytes, a multiple of 8
//!  8  u64  where it begins in the log of its node (LSN)
//! 16  u64  up to where that log was durable when the record was made
//! 24  u32  pages
//! 28  u32  1 if it is a beginning: what comes before it of its pages, which it has whole, is not needed; 2 if it is a mark
//! 32  of a mark, which has no pages: u64, the number of the moment; else for each page:
//!       u64  address
//!       u64  its sequence number before
//!       u64  its pieces that follow, one bit each
//!       the bytes of these pieces
//! ```
//! Little-endian throughout. A record is redone by putting its pieces where they belong and
//! counting each page's sequence number up: in the order of these numbers the records of all nodes
//! make a page what it was.
//!
//! What lies beyond the last whole record is torn, and was never durable, or it is damaged: it is
//! damage if a whole record follows that was made when more was durable than is whole.

use selkie_pool::{GAddr, checksum};

use crate::dirty::{Dirty, PIECES};
use crate::lsn::Lsn;

/// Bytes before the first page.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Bytes of a mark.
const MARK_BYTES: usize = RECORD_HEADER_BYTES + 8;
/// What kinds of records there are.
const CHANGE: u32 = 0;
const FULL_PAGE_IMAGE: u32 = 1;
const MARK: u32 = 2;
/// Bytes of a page before its pieces.
const PAGE_BYTES: usize = 24;
/// Bytes of a record that its checksum does not cover.
const CHECKSUM_BYTES: usize = 4;
/// The least alignment of pieces and records.
const WORD: usize = 8;

/// What the records of a log have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a line.
    pub line_bytes: usize,
    /// Sets the records of this log apart from those of others that were in its place.
    pub salt: u32,
}

/// What one page became by a change.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The page's address.
    pub addr: GAddr,
    /// Its sequence number before.
    pub psn: u64,
    /// The pieces that were changed.
    pub pieces: Dirty,
    /// The whole line, as it is now.
    pub line: &'a [u8],
}

/// As [`encode_as`], of changes that are no beginning.
#[cfg(test)]
pub(crate) fn encode(
    to: &mut Vec<u8>,
    salt: u32,
    (lsn, durable): (Lsn, Lsn),
    changes: &[Change<'_>],
) {
    encode_as(to, salt, (lsn, durable), (changes, false));
}

/// Appends a record of these changes, which begins at `lsn` of its log while that is durable up to
/// `durable`, to `to`; perhaps as a beginning.
pub fn encode_as(
    to: &mut Vec<u8>,
    salt: u32,
    (lsn, durable): (Lsn, Lsn),
    (changes, begins): (&[Change<'_>], bool),
) {
    let start = to.len();
    let kind = if begins { FULL_PAGE_IMAGE } else { CHANGE };
    begin(to, (lsn, durable), (changes.len() as u32, kind));
    for Change { addr, psn, pieces, line } in changes {
        to.extend_from_slice(&addr.to_u64().to_le_bytes());
        to.extend_from_slice(&psn.to_le_bytes());
        to.extend_from_slice(&pieces.bits().to_le_bytes());
        for run in pieces.stretches(line.len(), 0) {
            to.extend_from_slice(line.get(run).unwrap_or_default());
        }
    }
    finish(to, salt, start);
}

/// Appends a record that marks a moment, as [`encode_as`] does those of changes.
pub fn encode_mark(to: &mut Vec<u8>, salt: u32, (lsn, durable): (Lsn, Lsn), number: u64) {
    let start = to.len();
    begin(to, (lsn, durable), (0, MARK));
    to.extend_from_slice(&number.to_le_bytes());
    finish(to, salt, start);
}

/// Appends what all records begin with.
fn begin(to: &mut Vec<u8>, (lsn, durable): (Lsn, Lsn), (pages, kind): (u32, u32)) {
    to.extend_from_slice(&[0; 8]);
    to.extend_from_slice(&lsn.to_le_bytes());
    to.extend_from_slice(&durable.to_le_bytes());
    to.extend_from_slice(&pages.to_le_bytes());
    to.extend_from_slice(&kind.to_le_bytes());
}

/// Says how long the record is that begins there, and of what checksum.
fn finish(to: &mut [u8], salt: u32, start: usize) {
    let length = to.len() - start;
    debug_assert!(length.is_multiple_of(WORD), "pieces are whole words");
    let Some(record) = to.get_mut(start..) else { return };
    put(record, 4, &(length as u32).to_le_bytes());
    let sum = checksum(record.get(CHECKSUM_BYTES..).unwrap_or_default()) ^ salt;
    put(record, 0, &sum.to_le_bytes());
}

fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(place) = record.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecord {
    /// There are none left.
    #[error("the log ends")]
    End,
    /// There are fewer than a record takes.
    #[error("a record is cut off")]
    CutOff,
    /// Its length cannot be one.
    #[error("a record of {0} bytes cannot be")]
    Length(u32),
    /// It says that it begins elsewhere.
    #[error("a record of another place, {0}")]
    Misplaced(Lsn),
    /// Its checksum is another.
    #[error("a record's checksum is wrong")]
    Checksum,
    /// Its checksum is right, and what it says cannot be.
    #[error("a record that cannot be: {0}")]
    Malformed(&'static str),
}

/// A record that is whole.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    lsn: Lsn,
    durable: Lsn,
    bytes: &'a [u8],
    line_bytes: usize,
}

/// What a record says of one page.
#[derive(Clone, Copy, Debug)]
pub struct Redo<'a> {
    addr: GAddr,
    psn: u64,
    pieces: Dirty,
    bytes: &'a [u8],
    line_bytes: usize,
}

impl<'a> Record<'a> {
    /// The record that begins at `lsn` of a log, whose bytes from there on are these.
    ///
    /// # Errors
    /// [`NoRecord`]: why they are none.
    pub fn decode(bytes: &'a [u8], lsn: Lsn, format: Format) -> Result<Self, NoRecord> {
        if bytes.is_empty() {
            return Err(NoRecord::End);
        }
        let header: &[u8; RECORD_HEADER_BYTES] = bytes.first_chunk().ok_or(NoRecord::CutOff)?;
        let (length, own) = (word32(header, 4), word64(header, 8));
        if (length as usize) < RECORD_HEADER_BYTES || !(length as usize).is_multiple_of(WORD) {
            return Err(NoRecord::Length(length));
        }
        if own != lsn {
            return Err(NoRecord::Misplaced(own));
        }
        let bytes = bytes.get(..length as usize).ok_or(NoRecord::CutOff)?;
        let sum = checksum(bytes.get(CHECKSUM_BYTES..).unwrap_or_default()) ^ format.salt;
        if sum != word32(header, 0) {
            return Err(NoRecord::Checksum);
        }
        let line_bytes = format.line_bytes;
        let record = Record { lsn, durable: word64(header, 16), bytes, line_bytes };
        record.check(word32(header, 24))?;
        Ok(record)
    }

    /// The length of the record that begins at `lsn` of a log, if what is there says that it is
    /// one.
    #[must_use]
    pub fn length_at(bytes: &[u8], lsn: Lsn) -> Option<u64> {
        let header: &[u8; RECORD_HEADER_BYTES] = bytes.first_chunk()?;
        let length = word32(header, 4);
        let is_one = word64(header, 8) == lsn && length as usize >= RECORD_HEADER_BYTES;
        is_one.then_some(u64::from(length))
    }

    fn check(&self, pages: u32) -> Result<(), NoRecord> {
        if self.durable > self.lsn {
            return Err(NoRecord::Malformed("more is durable than was written"));
        }
        match self.kind() {
            MARK if pages != 0 || self.bytes.len() != MARK_BYTES => {
                return Err(NoRecord::Malformed("a mark that has more than its number"));
            }
            MARK => return Ok(()),
            CHANGE | FULL_PAGE_IMAGE => {}
            _ => return Err(NoRecord::Malformed("another kind of record")),
        }
        let (mut count, mut rest) =
            (0_u32, self.bytes.get(RECORD_HEADER_BYTES..).unwrap_or_default());
        while !rest.is_empty() {
            let (redo, after) = Redo::split(rest, self.line_bytes)
                .ok_or(NoRecord::Malformed("a page is cut off"))?;
            if redo.pieces.is_empty() {
                return Err(NoRecord::Malformed("a page of which nothing was changed"));
            }
            if self.is_full_page_image() && !redo.is_whole() {
                return Err(NoRecord::Malformed("a beginning without the whole page"));
            }
            if redo.psn == u64::MAX {
                return Err(NoRecord::Malformed("a sequence number that has no next"));
            }
            (count, rest) = (count + 1, after);
        }
        if count != pages {
            return Err(NoRecord::Malformed("another number of pages"));
        }
        Ok(())
    }

    /// Appends the same record as one of another place, `lsn`, of a log that is durable up to
    /// `durable`.
    pub fn copy_to(&self, to: &mut Vec<u8>, salt: u32, (lsn, durable): (Lsn, Lsn)) {
        let start = to.len();
        to.extend_from_slice(self.bytes);
        let Some(record) = to.get_mut(start..) else { return };
        put(record, 8, &lsn.to_le_bytes());
        put(record, 16, &durable.to_le_bytes());
        let sum = checksum(record.get(CHECKSUM_BYTES..).unwrap_or_default()) ^ salt;
        put(record, 0, &sum.to_le_bytes());
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether nothing that comes before it is needed for its pages, which it has whole.
    pub fn is_full_page_image(&self) -> bool {
        self.kind() == FULL_PAGE_IMAGE
    }

    /// The number of the moment that it marks, if it is a mark: it has no pages.
    pub fn mark(&self) -> Option<u64> {
        (self.kind() == MARK).then(|| word64(self.bytes, RECORD_HEADER_BYTES))
    }

    fn kind(&self) -> u32 {
        word32(self.bytes, 28)
    }

    /// Where it begins.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// Where the next one begins.
    pub fn end(&self) -> Lsn {
        self.lsn + self.bytes.len() as u64
    }

    /// Up to where the log was durable when it was made.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// What it says of each page.
    pub fn pages(&self) -> impl Iterator<Item = Redo<'a>> + use<'a> {
        let line_bytes = self.line_bytes;
        let pages =
            if self.mark().is_some() { None } else { self.bytes.get(RECORD_HEADER_BYTES..) };
        let mut rest = pages.unwrap_or_default();
        std::iter::from_fn(move || {
            let (redo, after) = Redo::split(rest, line_bytes)?;
            rest = after;
            Some(redo)
        })
    }
}

impl<'a> Redo<'a> {
    fn split(bytes: &'a [u8], line_bytes: usize) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<PAGE_BYTES>()?;
        let pieces = Dirty::from_bits(word64(header, 16));
        let length = pieces.bits().count_ones() as usize * (line_bytes / PIECES as usize);
        let (bytes, after) = rest.split_at_checked(length)?;
        let addr = GAddr::from_u64(word64(header, 0));
        Some((Self { addr, psn: word64(header, 8), pieces, bytes, line_bytes }, after))
    }

    /// The page's address.
    pub fn addr(&self) -> GAddr {
        self.addr
    }

    /// Its sequence number before; afterwards it is one more.
    pub fn psn(&self) -> u64 {
        self.psn
    }

    /// Whether the whole line follows, whatever it was before.
    pub fn is_whole(&self) -> bool {
        self.pieces == Dirty::ALL
    }

    /// Its pieces.
    pub(crate) fn pieces(&self) -> Dirty {
        self.pieces
    }

    /// Makes the line what it was after the change, if it is what it was before, or of any age
    /// since that the log covers.
    ///
    /// # Panics
    /// If the line is of another size than the log's.
    pub fn apply(&self, line: &mut [u8]) {
        assert!(line.len() == self.line_bytes, "a line of another size");
        let mut rest = self.bytes;
        for run in self.pieces.stretches(self.line_bytes, 0) {
            let Some((bytes, after)) = rest.split_at_checked(run.len()) else { return };
            if let Some(place) = line.get_mut(run) {
                place.copy_from_slice(bytes);
            }
            rest = after;
        }
        put(line, 0, &(self.psn + 1).to_le_bytes());
    }
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..).and_then(<[u8]>::first_chunk);
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: usize = 512;
    const FORMAT: Format = Format { line_bytes: LINE, salt: 5 };

    fn line(seed: u8, psn: u64) -> Vec<u8> {
        let mut line: Vec<u8> = (0..LINE).map(|at| seed.wrapping_add((at / 7) as u8)).collect();
        put(&mut line, 0, &psn.to_le_bytes());
        line
    }

    fn one(lsn: Lsn, changes: &[Change<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(&mut bytes, 5, (lsn, lsn / 2), changes);
        bytes
    }

    #[test]
    fn a_record_makes_each_page_what_it_became() {
        let (old, mut new) = (line(1, 6), line(1, 7));
        new[8..16].fill(9);
        new[100..300].fill(8);
        let pieces = Dirty::of(&(8..16), LINE).union(Dirty::of(&(100..300), LINE));
        let fresh = line(5, 1);
        let (a, b) = (GAddr::from_u64(LINE as u64), GAddr::from_u64(7 * LINE as u64));
        let changes = [
            Change { addr: a, psn: 6, pieces, line: &new },
            Change { addr: b, psn: 0, pieces: Dirty::ALL, line: &fresh },
        ];
        let bytes = one(640, &changes);
        let record = Record::decode(&bytes, 640, FORMAT).unwrap();
        assert_eq!((record.lsn(), record.durable()), (640, 320));
        assert_eq!(record.end(), 640 + bytes.len() as u64);
        let pages: Vec<_> = record.pages().collect();
        assert_eq!(pages.iter().map(Redo::addr).collect::<Vec<_>>(), [a, b]);
        assert_eq!(pages.iter().map(Redo::psn).collect::<Vec<_>>(), [6, 0]);
        assert_eq!(pages.iter().map(Redo::is_whole).collect::<Vec<_>>(), [false, true]);
        let mut redone = old.clone();
        pages[0].apply(&mut redone);
        assert_eq!(redone, new);
        // Of what was half written home, too.
        let mut torn = old;
        torn[128..].copy_from_slice(&new[128..]);
        pages[0].apply(&mut torn);
        assert_eq!(torn, new);
        let mut zero = vec![0; LINE];
        pages[1].apply(&mut zero);
        assert_eq!(zero, fresh);
    }

    #[test]
    fn what_is_no_record_is_said_to_be_none() {
        let (addr, line) = (GAddr::from_u64(LINE as u64), line(1, 4));
        let change = Change { addr, psn: 3, pieces: Dirty::of(&(0..8), LINE), line: &line };
        let bytes = one(64, &[change]);
        let of = |bytes: &[u8], lsn| Record::decode(bytes, lsn, FORMAT).map(drop).unwrap_err();
        assert_eq!(of(&[], 64), NoRecord::End);
        assert_eq!(of(&bytes[..RECORD_HEADER_BYTES - 1], 64), NoRecord::CutOff);
        assert_eq!(of(&bytes[..bytes.len() - 1], 64), NoRecord::CutOff);
        assert_eq!(of(&bytes, 72), NoRecord::Misplaced(64));
        assert_eq!(of(&[0; 64], 64), NoRecord::Length(0));
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut flipped = bytes.clone();
                flipped[at] ^= 1 << bit;
                assert!(Record::decode(&flipped, 64, FORMAT).is_err(), "bit {bit} of byte {at}");
            }
        }
        // Of lines of another size.
        let large = Format { line_bytes: 2 * LINE, ..FORMAT };
        assert!(matches!(Record::decode(&bytes, 64, large), Err(NoRecord::Malformed(_))));
        let other = Format { salt: 6, ..FORMAT };
        assert_eq!(Record::decode(&bytes, 64, other).map(drop), Err(NoRecord::Checksum));
        let nothing = Change { pieces: Dirty::NONE, ..change };
        let malformed = |bytes: &[u8]| matches!(of(bytes, 64), NoRecord::Malformed(_));
        assert!(malformed(&one(64, &[nothing])));
        assert!(malformed(&one(64, &[Change { psn: u64::MAX, ..change }])));
        let mut later = Vec::new();
        encode(&mut later, 5, (64, 72), &[change]);
        assert!(malformed(&later));
    }

    /// Logs outlive the programs that wrote them.
    #[test]
    fn the_bytes_of_a_record_are_what_they_always_were() {
        let line: Vec<u8> = (0..LINE).map(|at| at as u8).collect();
        let pieces = Dirty::of(&(8..16), LINE);
        let change = Change { addr: GAddr::from_u64(0x1234_5600), psn: 7, pieces, line: &line };
        let mut bytes = Vec::new();
        encode(&mut bytes, 5, (640, 320), &[change]);
        assert_eq!(
            bytes,
            [
                29, 231, 58, 97, 64, 0, 0, 0, 128, 2, 0, 0, 0, 0, 0, 0, 64, 1, 0, 0, 0, 0, 0, 0, 1,
                0, 0, 0, 0, 0, 0, 0, 0, 86, 52, 18, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0,
                0, 0, 0, 0, 8, 9, 10, 11, 12, 13, 14, 15,
            ]
        );
        bytes.clear();
        encode_mark(&mut bytes, 5, (704, 640), 77);
        assert_eq!(
            bytes,
            [
                117, 195, 95, 151, 40, 0, 0, 0, 192, 2, 0, 0, 0, 0, 0, 0, 128, 2, 0, 0, 0, 0, 0, 0,
                0, 0, 0, 0, 2, 0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0,
            ]
        );
        bytes.clear();
        encode_as(&mut bytes, 5, (744, 704), (&[Change { pieces: Dirty::ALL, ..change }], true));
        let header = [
            131, 93, 237, 180, 56, 2, 0, 0, 232, 2, 0, 0, 0, 0, 0, 0, 192, 2, 0, 0, 0, 0, 0, 0, 1,
            0, 0, 0, 1, 0, 0, 0, 0, 86, 52, 18, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255,
            255, 255, 255, 255, 255,
        ];
        assert_eq!(bytes[..56], header);
        assert_eq!(bytes[56..], line);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(bytes in prop::collection::vec(any::<u8>(), 0..400), lsn: u64) {
            let _ = Record::decode(&bytes, lsn, FORMAT);
        }

        #[test]
        fn any_pieces_come_back(bits in 1..=u64::MAX, psn in 0..u64::MAX) {
            let (old, new) = (line(3, psn), line(77, psn + 1));
            let pieces = Dirty::from_bits(bits);
            let bytes = one(8, &[Change { addr: GAddr::from_u64(LINE as u64), psn, pieces, line: &new }]);
            let record = Record::decode(&bytes, 8, FORMAT).unwrap();
            let mut redone = old.clone();
            record.pages().for_each(|redo| redo.apply(&mut redone));
            for (at, (redone, (old, new))) in redone.iter().zip(old.iter().zip(&new)).enumerate() {
                let is_new = at < 8 || bits >> (at / (LINE / 64)) & 1 != 0;
                prop_assert_eq!(redone, if is_new { new } else { old });
            }
        }
    }
}
