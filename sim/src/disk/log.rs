//! The log of one node on a simulated disk: pieces, and what of an append survives its writer.

use std::collections::BTreeMap;

use selkie_engine::log::{FIRST_LSN, Lsn};
use selkie_fabric::env::SplitMix;

/// Bytes that are written whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;
/// Bytes of a piece, unless an append takes more.
pub(super) const PIECE_BYTES: usize = 12 << 10;

/// The log of one node.
#[derive(Default)]
pub(super) struct DiskLog {
    pub(super) pieces: BTreeMap<Lsn, Vec<u8>>,
    /// From where it is kept, as far as its owner knows.
    pub(super) start: Lsn,
    /// Where what is durable ends.
    pub(super) end: Lsn,
    /// What was given and not reported yet.
    pub(super) given: Option<(Lsn, Vec<u8>)>,
    /// Where others said that it ends.
    pub(super) ended: Option<Lsn>,
}

/// What became of a sector.
#[derive(Clone, Copy)]
pub(super) enum SectorFate {
    Written,
    Old,
    Garbage,
}

impl DiskLog {
    pub(super) fn begun() -> Self {
        let pieces = BTreeMap::from([(FIRST_LSN, vec![0; PIECE_BYTES])]);
        Self { pieces, start: FIRST_LSN, end: FIRST_LSN, given: None, ended: None }
    }

    /// Writes a part of what was given, or all of it, or nothing, and forgets that it was given.
    pub(super) fn tear(&mut self, random: &SplitMix) {
        let Some((at, bytes)) = self.given.take() else { return };
        match random.below(6) {
            0 => {}
            1 => self.write(at, &bytes, random, || SectorFate::Written),
            // Not even its piece.
            2 if !self.has_room(at, bytes.len()) => {}
            _ => self.write(at, &bytes, random, || match random.below(4) {
                0 => SectorFate::Old,
                1 => SectorFate::Garbage,
                _ => SectorFate::Written,
            }),
        }
    }

    /// Whether the last piece has room for so many bytes there.
    fn has_room(&self, at: Lsn, length: usize) -> bool {
        let last = self.pieces.last_key_value();
        last.is_some_and(|(start, piece)| {
            at >= *start && at - start + length as u64 <= piece.len() as u64
        })
    }

    /// Writes bytes in their place, but for the sectors of which `fate` says otherwise.
    pub(super) fn write(
        &mut self,
        at: Lsn,
        bytes: &[u8],
        random: &SplitMix,
        fate: impl Fn() -> SectorFate,
    ) {
        if !self.has_room(at, bytes.len()) {
            self.pieces.insert(at, vec![0; PIECE_BYTES.max(bytes.len())]);
        }
        let Some((start, piece)) = self.pieces.iter_mut().next_back() else { return };
        let (mut from, mut rest) = ((at - start) as usize, bytes);
        while !rest.is_empty() {
            let in_sector = (SECTOR_BYTES - from % SECTOR_BYTES).min(rest.len());
            let (new, after) = rest.split_at(in_sector);
            if let Some(place) = piece.get_mut(from..from + in_sector) {
                match fate() {
                    SectorFate::Written => place.copy_from_slice(new),
                    SectorFate::Old => {}
                    SectorFate::Garbage => place.fill_with(|| random.next_u64() as u8),
                }
            }
            (from, rest) = (from + in_sector, after);
        }
    }

    /// What lies before `lsn` is not needed; whole pieces of it go.
    pub(super) fn cut(&mut self, lsn: Lsn, is_archive: bool) -> Lsn {
        if lsn == self.end {
            self.pieces.entry(lsn).or_insert_with(|| vec![0; PIECE_BYTES]);
        }
        let starts = self.pieces.keys().copied().filter(|start| *start <= lsn);
        self.start = starts.max().unwrap_or(self.start).max(self.start);
        if !is_archive {
            let start = self.start;
            self.pieces.retain(|own, _| *own >= start);
        }
        self.start
    }
}
