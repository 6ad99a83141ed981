//! Rows of a cursor: kept in their order, and read forwards and backwards.
//!
//! The first rows are in memory, up to the limit of an operation and as far as the budget of the
//! session goes, and those behind them in a temporary file without a name. The file is a series of
//! blocks of rows as [`spill_value`](super::spill_value) writes them, and has no index in it: where
//! a block begins is kept in memory.
//!
//! Stores live longer than statements, and there may be thousands. So all of a session draw from
//! the budget together, and what an operation may have beyond the budget they have once.
//!
//! ```text
//! block:  row | row | ...
//! row:    u32 bytes of what follows, the columns
//! ```

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use parking_lot::Mutex;

use super::context::Row;
use super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::spill::{FileShare, damaged, failed, open};
use super::spill_value::{ValueReader, write_values};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// Bytes after which a block is written.
const BLOCK_BYTES: usize = 32 << 10;

/// What all stores of a session keep in memory.
#[derive(Debug, Default)]
pub(crate) struct StoreMemory(Mutex<MemoryUse>);

/// What one of them keeps there.
#[derive(Debug)]
struct StoreShare {
    memory: Arc<StoreMemory>,
    bytes: usize,
}

impl StoreShare {
    /// Counts bytes more, if the budget has so many.
    fn take(&mut self, bytes: usize, limits: &MemoryLimits) -> bool {
        let mut used = self.memory.0.lock();
        let is_taken = used.add_unbounded(bytes, limits).is_ok();
        if is_taken {
            self.bytes += bytes;
        } else {
            used.subtract(bytes);
        }
        is_taken
    }

    fn give_back(&mut self, bytes: usize) {
        self.bytes -= bytes;
        self.memory.0.lock().give_back(bytes);
    }
}

impl Drop for StoreShare {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

/// Rows that are being stored.
#[derive(Debug)]
pub(crate) struct RowWriter {
    limits: MemoryLimits,
    share: StoreShare,
    /// The first rows.
    memory: Vec<Row>,
    /// Those behind.
    file: Option<FileWriter>,
}

/// Rows that go to a temporary file.
#[derive(Debug)]
struct FileWriter {
    file: File,
    share: FileShare,
    blocks: Vec<Block>,
    written_bytes: u64,
    /// The block that is being filled, and the number of its first row.
    pending: Vec<u8>,
    pending_first: u64,
    /// The number of the next row.
    end: u64,
}

/// Rows in their order, which are numbered from 0.
#[derive(Debug)]
pub(crate) struct RowStore {
    limits: MemoryLimits,
    share: StoreShare,
    memory: Vec<Row>,
    file: Option<StoreFile>,
}

/// Rows in a temporary file.
#[derive(Debug)]
struct StoreFile {
    file: File,
    /// As long as the file is there.
    _share: FileShare,
    blocks: Vec<Block>,
    /// The number behind that of its last row.
    end: u64,
    /// The block that was read last.
    known: Option<Known>,
}

/// A block of a file.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The number of its first row.
    first: u64,
    offset: u64,
    bytes: usize,
}

/// The rows of a block.
#[derive(Debug)]
struct Known {
    first: u64,
    rows: Vec<Row>,
    /// What the store has taken for them.
    taken_bytes: usize,
}

impl RowWriter {
    pub(crate) fn new(memory: &Arc<StoreMemory>, limits: &MemoryLimits) -> Self {
        let share = StoreShare { memory: Arc::clone(memory), bytes: 0 };
        Self { limits: limits.clone(), share, memory: Vec::new(), file: None }
    }

    /// Adds a row behind the others.
    ///
    /// # Errors
    /// 53400 if temporary files are too large; 53100 or 58030 of the file.
    pub(crate) fn push(&mut self, row: Row) -> SqlResult<()> {
        let (bytes, limits) = (row_bytes(&row), &self.limits);
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let is_within = self.share.bytes.saturating_add(bytes) <= limits.operator_bytes;
                if is_within && self.share.take(bytes, limits) {
                    self.memory.push(row);
                    return Ok(());
                }
                none.insert(FileWriter::new(self.memory.len() as u64, limits)?)
            }
        };
        file.push(&row, limits)
    }

    /// The rows, complete.
    ///
    /// # Errors
    /// As of [`push`](Self::push).
    pub(crate) fn finish(self) -> SqlResult<RowStore> {
        let Self { limits, share, memory, file } = self;
        let file = file.map(|file| file.finish(&limits)).transpose()?;
        Ok(RowStore { limits, share, memory, file })
    }
}

impl FileWriter {
    fn new(first: u64, limits: &MemoryLimits) -> SqlResult<Self> {
        let file = open().map_err(|error| failed(&error))?;
        Ok(Self {
            file,
            share: FileShare::new(limits),
            blocks: Vec::new(),
            written_bytes: 0,
            pending: Vec::new(),
            pending_first: first,
            end: first,
        })
    }

    fn push(&mut self, row: &[Datum], limits: &MemoryLimits) -> SqlResult<()> {
        let begin = self.pending.len();
        self.pending.extend_from_slice(&[0; 4]);
        write_values(row, &mut self.pending)?;
        let bytes = u32::try_from(self.pending.len() - begin - 4).map_err(|_| {
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too large to be kept")
        })?;
        if let Some(length) = self.pending.get_mut(begin..begin + 4) {
            length.copy_from_slice(&bytes.to_le_bytes());
        }
        self.end += 1;
        if self.pending.len() >= BLOCK_BYTES { self.write(limits) } else { Ok(()) }
    }

    fn write(&mut self, limits: &MemoryLimits) -> SqlResult<()> {
        let bytes = self.pending.len();
        let end = self.written_bytes + bytes as u64;
        limits.check_spill(end)?;
        self.share.grow_to(end)?;
        self.file.write_all(&self.pending).map_err(|error| failed(&error))?;
        let (first, offset) = (self.pending_first, self.written_bytes);
        self.blocks.push(Block { first, offset, bytes });
        (self.written_bytes, self.pending_first) = (end, self.end);
        self.pending.clear();
        Ok(())
    }

    fn finish(mut self, limits: &MemoryLimits) -> SqlResult<StoreFile> {
        if !self.pending.is_empty() {
            self.write(limits)?;
        }
        let Self { file, share, blocks, end, .. } = self;
        Ok(StoreFile { file, _share: share, blocks, end, known: None })
    }
}

impl RowStore {
    /// How many rows there are.
    pub(crate) fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.memory.len() as u64, |file| file.end)
    }

    /// A row; `None` if there is none of that number.
    ///
    /// # Errors
    /// 58030 of the file.
    pub(crate) fn get(&mut self, number: u64) -> SqlResult<Option<Row>> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(row) = self.memory.get(at) {
            return Ok(Some(row.clone()));
        }
        match &mut self.file {
            Some(file) if number < file.end => file.get(number, &mut self.share).map(Some),
            _ => Ok(None),
        }
    }

    /// A statement has read what it wanted. The block that it has read last stays for the next if
    /// the budget has room for it.
    pub(crate) fn rest(&mut self) {
        let known = self.file.as_mut().and_then(|file| file.known.as_mut());
        let Some(known) = known.filter(|known| known.taken_bytes == 0) else { return };
        let bytes = known.rows.iter().map(|row| row_bytes(row)).sum();
        if self.share.take(bytes, &self.limits) {
            known.taken_bytes = bytes;
        } else {
            self.file.iter_mut().for_each(|file| file.known = None);
        }
    }
}

impl StoreFile {
    /// A row that it has.
    fn get(&mut self, number: u64, share: &mut StoreShare) -> SqlResult<Row> {
        let at = self.blocks.partition_point(|block| block.first <= number);
        let block = at.checked_sub(1).and_then(|at| self.blocks.get(at));
        let block = *block.ok_or_else(damaged)?;
        if self.known.as_ref().is_none_or(|known| known.first != block.first) {
            if let Some(other) = self.known.take() {
                share.give_back(other.taken_bytes);
            }
            let rows = self.read(block)?;
            self.known = Some(Known { first: block.first, rows, taken_bytes: 0 });
        }
        let at = usize::try_from(number - block.first).unwrap_or(usize::MAX);
        let row = self.known.as_ref().and_then(|known| known.rows.get(at));
        row.cloned().ok_or_else(damaged)
    }

    fn read(&mut self, block: Block) -> SqlResult<Vec<Row>> {
        let mut buffer = vec![0; block.bytes];
        let read = self.file.seek(SeekFrom::Start(block.offset));
        let read = read.and_then(|_| self.file.read_exact(&mut buffer));
        read.map_err(|error| failed(&error))?;
        rows_of(&buffer)
    }
}

/// The rows of a block.
fn rows_of(block: &[u8]) -> SqlResult<Vec<Row>> {
    let (mut rows, mut rest) = (Vec::new(), block);
    while !rest.is_empty() {
        let (length, behind) = rest.split_first_chunk().ok_or_else(damaged)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (row, behind) = behind.split_at_checked(length).ok_or_else(damaged)?;
        let (mut values, mut reader) = (Row::new(), ValueReader::new(row));
        while !reader.is_at_end() {
            values.push(reader.next()?);
        }
        rows.push(values);
        rest = behind;
    }
    Ok(rows)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::memory_budget::MemoryBudget;

    fn row(number: u64) -> Row {
        let bytes = usize::try_from(number % 500).unwrap();
        vec![
            Datum::I64(i64::try_from(number).unwrap()),
            Datum::text("x".repeat(bytes)),
            Datum::Null,
        ]
    }

    fn shown(row: &Row) -> String {
        format!("{row:?}")
    }

    fn filled(memory: &Arc<StoreMemory>, limits: &MemoryLimits, rows: u64) -> SqlResult<RowStore> {
        let mut writer = RowWriter::new(memory, limits);
        (0..rows).try_for_each(|number| writer.push(row(number)))?;
        writer.finish()
    }

    fn check(store: &mut RowStore, number: u64) {
        let found = store.get(number).unwrap().unwrap();
        assert_eq!(shown(&found), shown(&row(number)), "{number}");
    }

    /// Limits of an operation and of all, with all else as it is.
    fn limits(operator_bytes: usize, budget_bytes: usize) -> MemoryLimits {
        let budget = Arc::new(MemoryBudget::new(budget_bytes));
        MemoryLimits { operator_bytes, budget, ..MemoryLimits::default() }
    }

    #[test]
    fn rows_are_read_in_any_order_from_memory_and_from_the_file() {
        const ALL: usize = 64 << 20;
        for (operator_bytes, budget_bytes) in [(0, ALL), (100 << 10, ALL), (ALL, 0), (ALL, ALL)] {
            let (memory, limits) = (Arc::default(), limits(operator_bytes, budget_bytes));
            let mut store = filled(&memory, &limits, 3_000).unwrap();
            (0..3_000).for_each(|number| check(&mut store, number));
            store.rest();
            (0..3_000).rev().for_each(|number| check(&mut store, number));
            for number in [0, 2_999, 1, 2_998] {
                check(&mut store, number);
                store.rest();
            }
            assert!(store.get(3_000).unwrap().is_none());
            let has_file = store.file.is_some();
            assert_eq!((store.len(), has_file), (3_000, operator_bytes.min(budget_bytes) < ALL));
            drop(store);
            assert_eq!((limits.budget.used(), limits.files.used()), (0, 0));
            assert_eq!(memory.0.lock().bytes(), 0);
        }
    }

    #[test]
    fn stores_of_a_session_have_together_what_is_beyond_the_budget() {
        let (memory, limits) = (Arc::default(), limits(64 << 20, 0));
        let mut stores: Vec<_> = (0..20).map(|_| filled(&memory, &limits, 200).unwrap()).collect();
        // Their rows take some 800 KiB, of 256 KiB that there are.
        let in_memory = stores.iter().filter(|store| store.file.is_none()).count();
        assert!((1..15).contains(&in_memory), "{in_memory}");
        // A block that was read is kept for the next statement where there is room.
        let last = stores.last_mut().unwrap();
        check(last, 199);
        last.rest();
        assert!(last.file.as_ref().unwrap().known.is_none());
        let mut last = stores.pop().unwrap();
        drop(stores);
        check(&mut last, 199);
        last.rest();
        assert!(last.file.as_ref().unwrap().known.is_some());
        assert!(filled(&memory, &limits, 200).unwrap().file.is_none());
    }

    #[test]
    fn what_is_closed_is_in_the_budget_again() {
        let (memory, limits) = (Arc::default(), limits(64 << 20, 8 << 20));
        let (first, second) = (filled(&memory, &limits, 10_000), filled(&memory, &limits, 10));
        let used = limits.budget.used();
        assert!(used > 2 << 20, "{used}");
        drop(first);
        assert_eq!(limits.budget.used(), 0);
        drop(second);
    }

    #[test]
    fn files_that_are_too_large_are_refused() {
        let (memory, limits) = (Arc::default(), limits(0, 0));
        limits.files.set_limit(Some(80 << 10));
        let store = filled(&memory, &limits, 300).unwrap();
        let refused = filled(&memory, &limits, 300).unwrap_err();
        assert_eq!(refused.state(), SqlState::CONFIGURATION_LIMIT);
        // What the others have had is there again.
        drop(store);
        assert!(filled(&memory, &limits, 300).is_ok());
        let limits = MemoryLimits { spill_bytes: 10 << 10, ..limits };
        assert!(filled(&memory, &limits, 300).is_err());
    }
}
