//! The changes of some pages, collected from logs: consecutive changes of a page are joined to one.
//!
//! A log has each page many times, and consecutive records name pages without locality. So the
//! entries that a record looks up are small and close together, the bytes of a page are in one
//! place, and all pages of a record are looked up before the first is changed: their cache misses
//! overlap.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use selkie_pool::{GAddr, LineHasher};
use smallvec::SmallVec;

use crate::conflict::MergeConflict;
use crate::dirty::Dirty;
use crate::psn::{PSN_BYTES, psn_of};
use crate::record::{Record, Redo};

/// Lines of a slab.
const LINES: usize = 256;

/// Consecutive changes of a page as one: each piece as the last of them wrote it.
#[derive(Clone, Copy)]
struct ChangeRun {
    /// The page's number before the first, and after the last.
    first: u64,
    end: u64,
    /// The pieces that are in the line.
    pieces: Dirty,
    /// The line.
    line: LineId,
    /// The first is a full-page image: it has the whole page, and repeats a change that may be in
    /// the log of another node.
    repeats: bool,
}

impl ChangeRun {
    /// Applies the changes to `line`. Their bytes are in `lines`.
    #[expect(clippy::indexing_slicing, reason = "all lines have the same length")]
    fn apply(&self, lines: &Lines, line: &mut [u8]) {
        let own = lines.get(self.line);
        for run in self.pieces.stretches(line.len(), 0) {
            line[run.clone()].copy_from_slice(&own[run]);
        }
        line[..PSN_BYTES].copy_from_slice(&self.end.to_le_bytes());
    }
}

#[derive(Clone, Copy)]
struct LineId(u32);

/// Lines, allocated in slabs.
struct Lines {
    line_bytes: usize,
    slabs: Vec<Box<[u8]>>,
    /// Lines in use.
    used: usize,
}

impl Lines {
    fn add(&mut self) -> LineId {
        if self.used.is_multiple_of(LINES) {
            self.slabs.push(vec![0; LINES * self.line_bytes].into_boxed_slice());
        }
        self.used += 1;
        LineId((self.used - 1) as u32)
    }

    fn place(&self, LineId(id): LineId) -> (usize, std::ops::Range<usize>) {
        let at = id as usize % LINES * self.line_bytes;
        (id as usize / LINES, at..at + self.line_bytes)
    }

    #[expect(clippy::indexing_slicing, reason = "an id is given out with its line")]
    fn get(&self, id: LineId) -> &[u8] {
        let (slab, bytes) = self.place(id);
        &self.slabs[slab][bytes]
    }

    #[expect(clippy::indexing_slicing, reason = "an id is given out with its line")]
    fn get_mut(&mut self, id: LineId) -> &mut [u8] {
        let (slab, bytes) = self.place(id);
        &mut self.slabs[slab][bytes]
    }
}

/// The changes of some pages in one log, or in a part of one.
struct PageChanges {
    /// No other log can have the changes that are missing in a gap: changes before a gap are
    /// dropped.
    alone: bool,
    /// The index of each page, by its address.
    numbers: HashMap<u64, u32, BuildHasherDefault<LineHasher>>,
    /// The last run of changes of each page, by the page's index.
    last: Vec<Option<ChangeRun>>,
    /// The earlier runs of changes, by the page's index.
    before: HashMap<u32, Vec<ChangeRun>>,
    lines: Lines,
    /// Pages with two changes of the same sequence number, and that number.
    forks: HashMap<GAddr, u64>,
}

impl PageChanges {
    fn add(&mut self, record: &Record<'_>) {
        let number = |redo: Redo<'_>| self.numbers.get(&redo.addr().to_u64()).copied();
        let numbers: SmallVec<[Option<u32>; 32]> = record.pages().map(number).collect();
        for (redo, number) in record.pages().zip(numbers) {
            if let Some(number) = number {
                self.add_page(number, &redo, record.is_full_page_image());
            }
        }
    }

    fn add_page(&mut self, number: u32, redo: &Redo<'_>, begins: bool) {
        let Some(last) = self.last.get_mut(number as usize) else { return };
        let psn = redo.psn();
        match last {
            Some(last) if psn == last.end && !begins => {
                redo.apply(self.lines.get_mut(last.line));
                last.pieces = last.pieces.union(redo.pieces());
                last.end = psn + 1;
            }
            // The run contains it.
            Some(last) if psn < last.end && begins => {}
            Some(last) if psn < last.end => drop(self.forks.insert(redo.addr(), psn)),
            _ => {
                let line = match last.take() {
                    Some(last) if psn == last.end || !self.alone => {
                        self.before.entry(number).or_default().push(last);
                        self.lines.add()
                    }
                    Some(ChangeRun { line, .. }) => line,
                    None => self.lines.add(),
                };
                redo.apply(self.lines.get_mut(line));
                let pieces = redo.pieces();
                *last = Some(ChangeRun { first: psn, end: psn + 1, pieces, line, repeats: begins });
            }
        }
    }

    fn runs_of(&self, addr: GAddr) -> impl Iterator<Item = (&ChangeRun, &Lines)> {
        let number = self.numbers.get(&addr.to_u64());
        let before = number.and_then(|number| self.before.get(number));
        let last = number.and_then(|number| self.last.get(*number as usize));
        let all = before.into_iter().flatten().chain(last.into_iter().flatten());
        all.map(|stretch| (stretch, &self.lines))
    }
}

/// Changes of some pages, from one log or several.
#[derive(Default)]
pub struct Changes(Vec<PageChanges>);

impl Changes {
    /// No changes yet. Collects those of these pages and skips others. `alone`: from one log.
    pub fn of(pages: impl IntoIterator<Item = GAddr>, line_bytes: usize, alone: bool) -> Self {
        let mut numbers: HashMap<u64, u32, _> = HashMap::default();
        for addr in pages {
            let next = numbers.len() as u32;
            numbers.entry(addr.to_u64()).or_insert(next);
        }
        let last = vec![None; numbers.len()];
        let lines = Lines { line_bytes, slabs: Vec::new(), used: 0 };
        let (before, forks) = (HashMap::new(), HashMap::new());
        Self(vec![PageChanges { alone, numbers, last, before, lines, forks }])
    }

    /// Adds the changes of the next record of the log.
    pub fn add(&mut self, record: &Record<'_>) {
        if let Some(changes) = self.0.last_mut() {
            changes.add(record);
        }
    }

    /// Adds the changes from another log, or from another part of this one.
    pub fn join(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Loses the last run of changes of each page: a planted bug, for tests that must find it.
    #[cfg(feature = "planted")]
    pub fn forget_last(&mut self) {
        self.0.iter_mut().for_each(|changes| changes.last.fill(None));
    }

    /// Whether there are changes of a page.
    pub fn has_changes_of(&self, addr: GAddr) -> bool {
        self.0.iter().any(|changes| changes.runs_of(addr).next().is_some())
    }

    /// Redoes the changes of a page on its state at home. Returns whether the page has changed.
    ///
    /// # Errors
    /// [`MergeConflict`] if changes are missing or contradict each other.
    pub fn redo(&self, addr: GAddr, line: &mut [u8]) -> Result<bool, MergeConflict> {
        if let Some(psn) = self.0.iter().find_map(|changes| changes.forks.get(&addr)) {
            return Err(MergeConflict::Fork { addr, psn: *psn });
        }
        let all = self.0.iter().flat_map(|changes| changes.runs_of(addr));
        let mut all: SmallVec<[(&ChangeRun, &Lines); 4]> = all.collect();
        // A full-page image comes after the change that it repeats.
        all.sort_by_key(|(stretch, _)| (stretch.first, stretch.repeats));
        // The last consecutive runs, and the sequence number after them.
        let (mut run, mut end) = (SmallVec::<[(&ChangeRun, &Lines); 4]>::new(), 0);
        for changes in all {
            let ChangeRun { first, repeats, .. } = *changes.0;
            if run.is_empty() || first > end {
                run.clear();
                run.push(changes);
            } else if first == end || repeats && first + 1 == end {
                run.push(changes);
            } else if !(repeats && changes.0.end == first + 1) {
                return Err(MergeConflict::Fork { addr, psn: first });
            }
            end = end.max(changes.0.end);
        }
        let Some((ChangeRun { first, .. }, _)) = run.first() else { return Ok(false) };
        let has = psn_of(line);
        if end < has {
            // Another node has changed the page since and written it home.
            return Ok(false);
        }
        if *first > has {
            return Err(MergeConflict::Gap { addr, has, next: *first });
        }
        run.iter().for_each(|(stretch, lines)| stretch.apply(lines, line));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Change, Format, encode, encode_as};

    /// Its pieces are longer than the number at its front.
    const LINE: usize = 1024;
    const FORMAT: Format = Format { line_bytes: LINE, salt: 0 };
    const ADDR: GAddr = GAddr::from_u64(4 * LINE as u64);

    /// The page after each of its changes, and the change as a record.
    fn history(changes: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut line = vec![0xAB; LINE];
        let all = (0..changes).map(|psn| {
            line[..8].copy_from_slice(&(psn + 1).to_le_bytes());
            let from = 8 + 8 * (psn as usize * 5 % 50);
            line[from..from + 24].fill(psn as u8 + 1);
            let pieces = Dirty::of(&(from..from + 24), LINE);
            let mut bytes = Vec::new();
            encode(&mut bytes, 0, (0, 0), &[Change { addr: ADDR, psn, pieces, line: &line }]);
            (line.clone(), bytes)
        });
        all.collect()
    }

    /// A record of the page as it was after that change, as a beginning.
    fn beginning(all: &[(Vec<u8>, Vec<u8>)], number: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut bytes, line) = (Vec::new(), &all[number].0);
        let change = Change { addr: ADDR, psn: number as u64, pieces: Dirty::ALL, line };
        encode_as(&mut bytes, 0, (0, 0), (&[change], true));
        (line.clone(), bytes)
    }

    fn changes(records: &[(Vec<u8>, Vec<u8>)]) -> Changes {
        let mut changes = Changes::of([ADDR], LINE, false);
        for (_, bytes) in records {
            changes.add(&Record::decode(bytes, 0, FORMAT).unwrap());
        }
        changes
    }

    #[test]
    fn whatever_of_it_had_got_home_the_page_becomes_what_it_was() {
        let all = history(30);
        let last = &all[29].0;
        // The dead node had it from the tenth change on, and at some time before.
        let mut own = all[2..5].to_vec();
        own.extend_from_slice(&all[10..]);
        let changes = changes(&own);
        for home in 9..30 {
            let mut line = all[home].0.clone();
            assert!(changes.redo(ADDR, &mut line).unwrap());
            assert_eq!(&line, last, "home had {home}");
            // A write-back was cut short anywhere.
            for cut in (0..LINE).step_by(8) {
                for (front, back) in [(home, 9), (9, home)] {
                    let mut torn = all[back].0.clone();
                    torn[..cut].copy_from_slice(&all[front].0[..cut]);
                    changes.redo(ADDR, &mut torn).unwrap();
                    assert_eq!(&torn, last, "home had {front} up to byte {cut}, then {back}");
                }
            }
        }
    }

    /// Of one log only the last changes that follow each other are kept.
    #[test]
    fn what_lies_before_a_gap_is_of_no_use_alone() {
        let all = history(30);
        let mut changes = Changes::of([ADDR], LINE, true);
        for (_, bytes) in all[2..5].iter().chain(&all[7..9]).chain(&all[20..]) {
            changes.add(&Record::decode(bytes, 0, FORMAT).unwrap());
        }
        assert!(changes.0[0].before.is_empty());
        let mut line = all[22].0.clone();
        assert_eq!(changes.redo(ADDR, &mut line), Ok(true));
        assert_eq!(line, all[29].0);
    }

    #[test]
    fn a_page_that_came_back_as_it_is_stays_so() {
        let all = history(30);
        let changes = changes(&all[2..5]);
        let mut line = all[12].0.clone();
        assert!(!changes.redo(ADDR, &mut line).unwrap());
        assert_eq!(line, all[12].0);
        assert!(!Changes::of([ADDR], LINE, false).redo(ADDR, &mut line).unwrap());
    }

    #[test]
    fn what_others_changed_and_did_not_get_home_is_missed_but_for_their_logs() {
        let all = history(30);
        let mut line = all[6].0.clone();
        let gap = MergeConflict::Gap { addr: ADDR, has: 7, next: 10 };
        assert_eq!(changes(&all[10..20]).redo(ADDR, &mut line), Err(gap));
        assert_eq!(line, all[6].0, "nothing is guessed at");
        let both = changes(&all[5..20]);
        assert!(both.redo(ADDR, &mut line).unwrap());
        assert_eq!(line, all[19].0);
        let fork = MergeConflict::Fork { addr: ADDR, psn: 7 };
        let mut both = both;
        both.join(changes(&all[7..8]));
        assert_eq!(both.redo(ADDR, &mut line), Err(fork));
    }

    /// A dead node may have recorded a page that another had changed, for the maker of another
    /// pool.
    #[test]
    fn a_beginning_repeats_a_change_and_is_no_other() {
        let all = history(30);
        let begins = |number| beginning(&all, number);
        let repeated = [begins(12), begins(17)];
        for own_first in [true, false] {
            let mut both = changes(if own_first { &all[10..20] } else { &repeated });
            both.join(changes(if own_first { &repeated } else { &all[10..20] }));
            let mut line = all[11].0.clone();
            assert!(both.redo(ADDR, &mut line).unwrap());
            assert_eq!(line, all[19].0);
        }
    }

    /// Which log says what of it, in whatever order the logs are read.
    #[test]
    fn logs_go_together_in_any_order() {
        let all = history(40);
        let begins = |number| beginning(&all, number);
        let log = |parts: &[(Option<usize>, std::ops::Range<usize>)]| {
            let mut records = Vec::new();
            for (begun, range) in parts {
                records.extend(begun.map(begins));
                records.extend_from_slice(&all[range.clone()]);
            }
            records
        };
        let logs = [
            log(&[(None, 5..10), (None, 20..25), (Some(24), 33..36)]),
            log(&[(Some(9), 10..15), (Some(24), 25..30), (Some(35), 36..40)]),
            log(&[(None, 15..20), (Some(24), 0..0), (Some(29), 30..33), (Some(39), 0..0)]),
        ];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut joined = Changes::of([ADDR], LINE, false);
            for log in order {
                joined.join(changes(&logs[log]));
            }
            for home in [4, 5, 17, 38, 39] {
                let mut line = all[home].0.clone();
                assert_eq!(joined.redo(ADDR, &mut line), Ok(true), "{order:?}, home had {home}");
                assert_eq!(line, all[39].0, "{order:?}, home had {home}");
            }
            let gap = MergeConflict::Gap { addr: ADDR, has: 4, next: 5 };
            assert_eq!(joined.redo(ADDR, &mut all[3].0.clone()), Err(gap));
            // Of a change by another in between there is a beginning, and that one's log as well.
            let between = log(&[(None, 5..10), (Some(10), 11..13)]);
            for with in [false, true] {
                let mut joined = changes(&between);
                if with {
                    joined.join(changes(&all[10..11]));
                }
                let mut line = all[7].0.clone();
                assert_eq!(joined.redo(ADDR, &mut line), Ok(true));
                assert_eq!(line, all[12].0);
            }
            // Another change of a number that one of them has.
            for psn in [5, 12, 39] {
                let mut forked = changes(&logs[0]);
                forked.join(changes(&logs[1]));
                forked.join(changes(&logs[2]));
                forked.join(changes(&all[psn..=psn]));
                let fork = Err(MergeConflict::Fork { addr: ADDR, psn: psn as u64 });
                assert_eq!(forked.redo(ADDR, &mut all[39].0.clone()), fork);
            }
        }
    }
}
