//! Records of the log. A record holds the pieces of pages that one change wrote, and is atomic.
//!
//! ```text
//!  0  u32  CRC-32C of all that follows in the record, xor the log's salt
//!  4  u32  length of the record, bytes, a multiple of 8
//!  8  u64  where it begins in the log of its node (LSN)
//! 16  u64  up to where that log was durable when the record was written (LSN)
//! 24  u32  pages
//! 28  u32  kind: 0 a change, 1 a full-page image, 2 a mark
//! 32  of a mark, which has no pages: u64, the number of the snapshot barrier; else for each page:
//!       u64  address
//!       u64  its sequence number before
//!       u64  its pieces that follow, one bit each
//!       the bytes of these pieces
//! ```
//! Little-endian throughout. Redo of a record copies its pieces to their pages and increments each
//! page's sequence number. Redo of all records, in the order of these numbers, restores a page.
//! A full-page image has its pages whole: records before it are not needed for them.
//!
//! Bytes beyond the last whole record are a torn write, which was never durable, or damage. They
//! are damage if a whole record follows that was written when the log was durable beyond the end of
//! the last whole record.

use selkie_pool::{GAddr, checksum};

use crate::dirty::{Dirty, PIECES};
use crate::lsn::Lsn;

/// Bytes before the first page.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Bytes of a mark.
const MARK_BYTES: usize = RECORD_HEADER_BYTES + 8;
/// The kinds of records.
const CHANGE: u32 = 0;
const FULL_PAGE_IMAGE: u32 = 1;
const MARK: u32 = 2;
/// Bytes of a page before its pieces.
const PAGE_BYTES: usize = 24;
/// Bytes of a record that its checksum does not cover.
const CHECKSUM_BYTES: usize = 4;
/// The least alignment of pieces and records.
const WORD: usize = 8;

/// The format of all records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Bytes of a line.
    pub line_bytes: usize,
    /// Makes checksums differ from those of earlier logs in the same place.
    pub salt: u32,
}

/// A change of one page.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The page's address.
    pub addr: GAddr,
    /// Its sequence number before.
    pub psn: u64,
    /// The pieces that were changed.
    pub pieces: Dirty,
    /// The whole line after the change.
    pub line: &'a [u8],
}

/// Bytes that the change of a page takes in a record, if lines have `line_bytes`.
#[must_use]
pub const fn change_bytes(pieces: Dirty, line_bytes: usize) -> usize {
    PAGE_BYTES + pieces.bits().count_ones() as usize * (line_bytes / PIECES as usize)
}

/// As [`encode_as`], of changes that are no full-page image.
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
/// `durable`, to `to`; with `is_image` as a full-page image.
#[expect(clippy::indexing_slicing, reason = "pieces lie within their line")]
pub fn encode_as(
    to: &mut Vec<u8>,
    salt: u32,
    (lsn, durable): (Lsn, Lsn),
    (changes, is_image): (&[Change<'_>], bool),
) {
    let start = to.len();
    let kind = if is_image { FULL_PAGE_IMAGE } else { CHANGE };
    begin(to, (lsn, durable), (changes.len() as u32, kind));
    for Change { addr, psn, pieces, line } in changes {
        to.extend_from_slice(&addr.to_u64().to_le_bytes());
        to.extend_from_slice(&psn.to_le_bytes());
        to.extend_from_slice(&pieces.bits().to_le_bytes());
        for run in pieces.stretches(line.len(), 0) {
            to.extend_from_slice(&line[run]);
        }
    }
    finish(to, salt, start);
}

/// Appends the mark of a snapshot barrier. The parameters are those of [`encode_as`].
pub fn encode_mark(to: &mut Vec<u8>, salt: u32, (lsn, durable): (Lsn, Lsn), number: u64) {
    let start = to.len();
    begin(to, (lsn, durable), (0, MARK));
    to.extend_from_slice(&number.to_le_bytes());
    finish(to, salt, start);
}

/// Appends the header of a record, without checksum and length.
fn begin(to: &mut Vec<u8>, (lsn, durable): (Lsn, Lsn), (pages, kind): (u32, u32)) {
    to.extend_from_slice(&[0; 8]);
    to.extend_from_slice(&lsn.to_le_bytes());
    to.extend_from_slice(&durable.to_le_bytes());
    to.extend_from_slice(&pages.to_le_bytes());
    to.extend_from_slice(&kind.to_le_bytes());
}

/// Fills in the length and the checksum of the record that begins at `start`.
fn finish(to: &mut [u8], salt: u32, start: usize) {
    let length = to.len() - start;
    debug_assert!(length.is_multiple_of(WORD), "pieces are whole words");
    let (_, record) = to.split_at_mut(start);
    put(record, 4, &(length as u32).to_le_bytes());
    let sum = checksum_of(record, salt);
    put(record, 0, &sum.to_le_bytes());
}

/// The checksum of a record.
fn checksum_of(record: &[u8], salt: u32) -> u32 {
    checksum(record.split_at(CHECKSUM_BYTES).1) ^ salt
}

#[expect(clippy::indexing_slicing, reason = "constant places of headers that are there")]
fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRecord {
    /// There are no bytes left.
    #[error("the log ends")]
    End,
    /// There are fewer bytes than the record has.
    #[error("a record is cut off")]
    CutOff,
    /// Its length is invalid.
    #[error("a record of {0} bytes cannot be")]
    Length(u32),
    /// It has another LSN.
    #[error("a record of another place, {0}")]
    Misplaced(Lsn),
    /// Its checksum is wrong.
    #[error("a record's checksum is wrong")]
    Checksum,
    /// Its checksum is right, but its content is invalid.
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

/// The change of one page in a record.
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
        let sum = checksum_of(bytes, format.salt);
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
        let (mut count, mut rest) = (0_u32, self.bytes.split_at(RECORD_HEADER_BYTES).1);
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

    /// Appends a copy of the record for another place, `lsn`, of a log that is durable up to
    /// `durable`.
    pub fn copy_to(&self, to: &mut Vec<u8>, salt: u32, (lsn, durable): (Lsn, Lsn)) {
        let start = to.len();
        to.extend_from_slice(self.bytes);
        let (_, record) = to.split_at_mut(start);
        put(record, 8, &lsn.to_le_bytes());
        put(record, 16, &durable.to_le_bytes());
        let sum = checksum_of(record, salt);
        put(record, 0, &sum.to_le_bytes());
    }

    /// All bytes of it.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Whether it has its pages whole, so that earlier records are not needed for them.
    pub fn is_full_page_image(&self) -> bool {
        self.kind() == FULL_PAGE_IMAGE
    }

    /// The number of the snapshot barrier that it marks, if it is a mark. A mark has no pages.
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

    /// Up to where the log was durable when it was written.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Its changes, page by page.
    pub fn pages(&self) -> impl Iterator<Item = Redo<'a>> + use<'a> {
        let line_bytes = self.line_bytes;
        let (_, pages) = self.bytes.split_at(RECORD_HEADER_BYTES);
        let mut rest = if self.mark().is_some() { &[] } else { pages };
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

    /// Applies the change to the line, which is in the state before the change or in a later one
    /// that the log covers.
    ///
    /// # Panics
    /// If the line is of another size than the log's.
    #[expect(clippy::indexing_slicing, reason = "pieces lie within a line of this size")]
    pub fn apply(&self, line: &mut [u8]) {
        assert!(line.len() == self.line_bytes, "a line of another size");
        let mut rest = self.bytes;
        for run in self.pieces.stretches(self.line_bytes, 0) {
            let (bytes, after) = rest.split_at(run.len());
            line[run].copy_from_slice(bytes);
            rest = after;
        }
        put(line, 0, &(self.psn + 1).to_le_bytes());
    }
}

/// The word at a constant offset of a header that is there.
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(word(bytes, at))
}

/// As [`word32`].
fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(word(bytes, at))
}

#[expect(clippy::expect_used, reason = "the length was checked when the record was decoded")]
fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes.split_at(at).1.first_chunk().expect("a word of a header")
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
