//! Rows that an operator with a hash table has no room for.
//!
//! They are divided by the hashes of their keys into temporary files, which are read one after the
//! other when the table is done with: all rows of a key are in one. Those of a file that is too
//! large are divided again, by other hashes.

use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use super::memory::MemoryLimits;
use super::row_key::hash_values;
use super::sort::KeyedRow;
use super::spill::{RunReader, RunWriter};
use crate::error::SqlResult;

/// Files that rows are divided into at a time.
const FILES: usize = 16;

/// How often rows are divided at most. Those that no hash tells apart have one key.
const MOST_DIVISIONS: u32 = 6;

/// Rows that are being divided.
pub(crate) struct Partitions {
    division: u32,
    files: Vec<Option<RunWriter>>,
    /// In all of them.
    bytes: u64,
}

/// Rows that were divided so often.
pub(crate) struct Partition {
    pub(crate) division: u32,
    pub(crate) rows: RunReader,
}

/// Whether rows that were divided so often can be divided again.
pub(crate) fn can_divide(division: u32, limits: &MemoryLimits) -> bool {
    limits.spill_bytes > 0 && division < MOST_DIVISIONS
}

impl Partitions {
    /// None yet, of rows that were divided so often.
    pub(crate) fn new(division: u32) -> Self {
        Self { division, files: (0..FILES).map(|_| None).collect(), bytes: 0 }
    }

    /// Puts a row aside, by its keys.
    pub(crate) fn push(&mut self, row: &KeyedRow, limits: &MemoryLimits) -> SqlResult<()> {
        let mut hasher = FixedState::with_seed(self.division.into()).build_hasher();
        hash_values(&row.keys, &mut hasher);
        let at = (std::hash::Hasher::finish(&hasher) % FILES as u64) as usize;
        let Some(file) = self.files.get_mut(at) else { return Ok(()) };
        let file = match file {
            Some(file) => file,
            none => none.insert(RunWriter::new(limits)?),
        };
        let before = file.bytes();
        file.write(row)?;
        self.bytes += file.bytes() - before;
        limits.check_spill(self.bytes)
    }

    /// The rows of each file: `None` of one without.
    pub(crate) fn finish(self) -> SqlResult<Vec<Option<Partition>>> {
        let division = self.division + 1;
        let files = self.files.into_iter().map(|file| {
            let rows = file.map(RunWriter::finish).transpose()?;
            Ok(rows.map(|rows| Partition { division, rows }))
        });
        files.collect()
    }
}
