//! Entries of a tree in the order of their keys.
//!
//! The keys are bytes that have the order of the tree, so nothing is known of their columns. They
//! are sorted in memory. Beyond the limit, what is there is sorted and written as a run to a
//! temporary file, and in the end the runs are merged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::memory::{MemoryLimits, MemoryUse};
use super::spill::{RunReader, RunWriter};
use crate::error::SqlResult;

/// Most runs that are merged at a time: each is an open file.
const MAX_RUNS: usize = 64;

/// Where an entry lies.
#[derive(Clone, Copy)]
struct EntryPlace {
    /// The first bytes of its key, which order most entries: comparing those touches no other
    /// memory.
    head: u64,
    start: usize,
    key: u32,
    value: u32,
}

/// Entries in memory.
#[derive(Default)]
pub(crate) struct Entries {
    bytes: Vec<u8>,
    places: Vec<EntryPlace>,
}

impl Entries {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let mut head = [0; size_of::<u64>()];
        head.iter_mut().zip(key).for_each(|(head, byte)| *head = *byte);
        // Both fit pages.
        let (key, value) = (key.len() as u32, value.len() as u32);
        self.places.push(EntryPlace { head: u64::from_be_bytes(head), start, key, value });
    }

    fn entry(&self, place: EntryPlace) -> (&[u8], &[u8]) {
        let key = place.key as usize;
        let end = place.start + key + place.value as usize;
        let entry = self.bytes.get(place.start..end).unwrap_or_default();
        entry.split_at_checked(key).unwrap_or_default()
    }

    fn sort(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.sort_unstable_by(|a, b| {
            // Zeros behind a short key make it equal to longer ones at most.
            a.head.cmp(&b.head).then_with(|| self.entry(*a).0.cmp(self.entry(*b).0))
        });
        self.places = places;
    }
}

/// What an entry takes in memory.
fn memory(key: &[u8], value: &[u8]) -> usize {
    key.len() + value.len() + size_of::<EntryPlace>()
}

/// Sorts entries: in memory, and beyond the limit in temporary files.
pub(crate) struct EntrySorter {
    entries: Entries,
    used: MemoryUse,
    runs: Vec<RunReader>,
    limits: MemoryLimits,
}

impl EntrySorter {
    pub(crate) fn new(limits: &MemoryLimits) -> Self {
        let (entries, used) = (Entries::default(), MemoryUse::default());
        Self { entries, used, runs: Vec::new(), limits: limits.clone() }
    }

    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> SqlResult<()> {
        let (bytes, can_spill) = (memory(key, value), self.limits.spill_bytes > 0);
        let is_full = !self.used.has_room(bytes, &self.limits);
        if is_full && can_spill && !self.entries.places.is_empty() {
            self.spill()?;
        }
        match can_spill && self.entries.places.is_empty() {
            // One entry may be larger than what an operator keeps.
            true => self.used.add_unbounded(bytes, &self.limits)?,
            false => self.used.add(bytes, &self.limits)?,
        }
        self.entries.push(key, value);
        Ok(())
    }

    /// Writes what is in memory as a run. When there are too many, they become one before.
    fn spill(&mut self) -> SqlResult<()> {
        if self.runs.len() >= MAX_RUNS {
            let mut merge = Merge::new(std::mem::take(&mut self.runs))?;
            let mut writer = RunWriter::new(&self.limits)?;
            while let Some((key, value)) = merge.next()? {
                writer.write_entry(&key, &value)?;
                self.limits.check_spill(writer.bytes())?;
            }
            self.runs.push(writer.finish()?);
        }
        let before: u64 = self.runs.iter().map(RunReader::bytes).sum();
        let mut writer = RunWriter::new(&self.limits)?;
        self.entries.sort();
        for place in &self.entries.places {
            let (key, value) = self.entries.entry(*place);
            writer.write_entry(key, value)?;
            self.limits.check_spill(before + writer.bytes())?;
        }
        self.runs.push(writer.finish()?);
        self.entries.bytes.clear();
        self.entries.places.clear();
        self.used = MemoryUse::default();
        Ok(())
    }

    pub(crate) fn finish(mut self) -> SqlResult<SortedEntries> {
        if self.runs.is_empty() {
            self.entries.sort();
            let Self { entries, used, .. } = self;
            return Ok(SortedEntries::InMemory { entries, next: 0, _used: used });
        }
        if !self.entries.places.is_empty() {
            self.spill()?;
        }
        Ok(SortedEntries::Runs(Merge::new(self.runs)?, (Vec::new(), Vec::new())))
    }
}

/// Entries in the order of their keys.
pub(crate) enum SortedEntries {
    /// With the memory that they take.
    InMemory { entries: Entries, next: usize, _used: MemoryUse },
    /// With the entry that was given last.
    Runs(Merge, Entry),
}

type Entry = (Vec<u8>, Vec<u8>);

impl SortedEntries {
    pub(crate) fn next(&mut self) -> SqlResult<Option<(&[u8], &[u8])>> {
        match self {
            Self::InMemory { entries, next, .. } => {
                let place = entries.places.get(*next).copied();
                *next += 1;
                Ok(place.map(|place| entries.entry(place)))
            }
            Self::Runs(merge, last) => {
                let Some(entry) = merge.next()? else { return Ok(None) };
                *last = entry;
                Ok(Some((&last.0, &last.1)))
            }
        }
    }
}

/// The key of an entry, its run, and its value.
type Head = (Vec<u8>, usize, Vec<u8>);

/// The entries of sorted runs in order. Each has one entry in memory, which fits a page.
pub(crate) struct Merge {
    runs: Vec<RunReader>,
    /// The next entry of each run that has one, the first of them on top.
    heads: BinaryHeap<Reverse<Head>>,
}

impl Merge {
    fn new(runs: Vec<RunReader>) -> SqlResult<Self> {
        let mut merge = Self { runs, heads: BinaryHeap::new() };
        for run in 0..merge.runs.len() {
            merge.refill(run)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, run: usize) -> SqlResult<()> {
        let Some(reader) = self.runs.get_mut(run) else { return Ok(()) };
        if let Some((key, value)) = reader.next_entry()? {
            self.heads.push(Reverse((key, run, value)));
        }
        Ok(())
    }

    fn next(&mut self) -> SqlResult<Option<Entry>> {
        let Some(Reverse((key, run, value))) = self.heads.pop() else { return Ok(None) };
        self.refill(run)?;
        Ok(Some((key, value)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn sorted(limits: &MemoryLimits, count: u32) -> SqlResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut sorter = EntrySorter::new(limits);
        for at in 0..count {
            // Any order; keys of several lengths, of which some begin with others.
            let number = at.wrapping_mul(2_654_435_761);
            let key = format!("{:0width$}", number % 1000, width = (number % 7) as usize);
            sorter.push(format!("{key}/{at}").as_bytes(), &at.to_le_bytes())?;
        }
        let (mut sorted, mut all) = (sorter.finish()?, Vec::new());
        while let Some((key, value)) = sorted.next()? {
            all.push((key.to_vec(), value.to_vec()));
        }
        Ok(all)
    }

    #[test]
    fn entries_come_in_order_with_their_values_from_memory_and_from_files() {
        let in_memory = sorted(&MemoryLimits::default(), 5000).unwrap();
        assert_eq!(in_memory.len(), 5000);
        assert!(in_memory.is_sorted());
        for (key, value) in &in_memory {
            let number = String::from_utf8(key.clone()).unwrap();
            let number: u32 = number.split_once('/').unwrap().1.parse().unwrap();
            assert_eq!(*value, number.to_le_bytes());
        }
        // So many runs that they are merged on the way.
        let small = MemoryLimits { operator_bytes: 1 << 10, ..MemoryLimits::default() };
        assert_eq!(sorted(&small, 5000).unwrap(), in_memory);
    }

    #[test]
    fn without_files_memory_is_the_bound() {
        let limits =
            MemoryLimits { operator_bytes: 1 << 10, spill_bytes: 0, ..MemoryLimits::default() };
        assert_eq!(sorted(&limits, 1000).unwrap_err().state().code(), "53200");
        assert_eq!(sorted(&limits, 10).unwrap().len(), 10);
    }
}
