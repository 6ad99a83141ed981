//! Rows of a cursor: kept in their order, and read forwards and backwards.
//!
//! The first rows are in memory, as far as the session has room for them, and those behind them in
//! a temporary file without a name. The file is a series of blocks of rows as
//! [`spill_value`](super::spill_value) writes them, and has no index in it: where a block begins is
//! kept in memory.
//!
//! ```text
//! block:  row | row | ...
//! row:    u32 bytes of what follows, the columns
//! ```

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::context::Row;
use super::memory::{MemoryLimits, row_bytes};
use super::spill::{damaged, failed, open};
use super::spill_value::{ValueReader, write_values};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// Bytes after which a block is written.
const BLOCK_BYTES: usize = 32 << 10;

/// Memory for the rows of all stores of a session.
const SESSION_BYTES: usize = 16 << 20;

/// What all stores of a session take together.
#[derive(Debug)]
pub(crate) struct StoreBudget {
    memory_left: AtomicUsize,
    file_left: AtomicU64,
}

impl Default for StoreBudget {
    fn default() -> Self {
        Self::new(SESSION_BYTES, MemoryLimits::default().spill_bytes)
    }
}

// Relaxed throughout: counters.
impl StoreBudget {
    fn new(memory_bytes: usize, file_bytes: u64) -> Self {
        let (memory_left, file_left) = (AtomicUsize::new(memory_bytes), AtomicU64::new(file_bytes));
        Self { memory_left, file_left }
    }

    /// Takes memory, if there is so much left.
    fn take_memory(&self, bytes: usize) -> bool {
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        self.memory_left.fetch_update(set, read, |left| left.checked_sub(bytes)).is_ok()
    }

    fn give_memory(&self, bytes: usize) {
        self.memory_left.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take_file(&self, bytes: u64) -> SqlResult<()> {
        let (set, read) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.file_left.fetch_update(set, read, |left| left.checked_sub(bytes));
        taken.map(|_| ()).map_err(|_| {
            let message = "temporary files of the cursors of a session exceed their limit";
            SqlError::new(SqlState::CONFIGURATION_LIMIT, message)
                .hint("Close cursors, or read fewer rows.")
        })
    }

    fn give_file(&self, bytes: u64) {
        self.file_left.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Rows in their order, which are numbered from 0.
#[derive(Debug)]
pub(crate) struct RowStore {
    budget: Arc<StoreBudget>,
    /// The first rows, and the bytes that they take.
    memory: Vec<Row>,
    memory_bytes: usize,
    /// Those behind.
    file: Option<StoreFile>,
}

/// Rows in a temporary file.
#[derive(Debug)]
struct StoreFile {
    file: File,
    /// The number of its first row.
    first: u64,
    /// Rows that it has, with those that are not written yet.
    rows: u64,
    blocks: Vec<Block>,
    written_bytes: u64,
    /// The block that is being filled.
    pending: Vec<u8>,
    pending_first: u64,
    /// The rows of the block that was read last, and the number of the first.
    known: Option<(u64, Vec<Row>)>,
}

/// A block of a file.
#[derive(Clone, Copy, Debug)]
struct Block {
    /// The number of its first row.
    first: u64,
    offset: u64,
    bytes: usize,
}

impl RowStore {
    pub(crate) fn new(budget: &Arc<StoreBudget>) -> Self {
        Self { budget: Arc::clone(budget), memory: Vec::new(), memory_bytes: 0, file: None }
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> u64 {
        self.file.as_ref().map_or(self.memory.len() as u64, StoreFile::end)
    }

    /// Adds a row behind the others.
    ///
    /// # Errors
    /// 53400 if the session has no room for it; 58030 of the file.
    pub(crate) fn push(&mut self, row: Row) -> SqlResult<()> {
        if self.file.is_none() {
            let bytes = row_bytes(&row);
            if self.budget.take_memory(bytes) {
                self.memory_bytes += bytes;
                self.memory.push(row);
                return Ok(());
            }
            self.file = Some(StoreFile::new(self.len())?);
        }
        match &mut self.file {
            Some(file) => file.push(&row, &self.budget),
            None => Err(SqlError::internal("a store of rows has no file")),
        }
    }

    /// A row; `None` if there is none of that number.
    pub(crate) fn get(&mut self, number: u64) -> SqlResult<Option<Row>> {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if let Some(row) = self.memory.get(at) {
            return Ok(Some(row.clone()));
        }
        match &mut self.file {
            Some(file) => file.get(number),
            None => Ok(None),
        }
    }
}

impl Drop for RowStore {
    fn drop(&mut self) {
        self.budget.give_memory(self.memory_bytes);
        if let Some(file) = &self.file {
            self.budget.give_file(file.written_bytes);
        }
    }
}

impl StoreFile {
    fn new(first: u64) -> SqlResult<Self> {
        let file = open().map_err(|error| failed(&error))?;
        Ok(Self {
            file,
            first,
            rows: 0,
            blocks: Vec::new(),
            written_bytes: 0,
            pending: Vec::new(),
            pending_first: first,
            known: None,
        })
    }

    fn end(&self) -> u64 {
        self.first + self.rows
    }

    fn push(&mut self, row: &[Datum], budget: &StoreBudget) -> SqlResult<()> {
        let begin = self.pending.len();
        self.pending.extend_from_slice(&[0; 4]);
        write_values(row, &mut self.pending)?;
        let bytes = u32::try_from(self.pending.len() - begin - 4).map_err(|_| {
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too large to be kept")
        })?;
        if let Some(length) = self.pending.get_mut(begin..begin + 4) {
            length.copy_from_slice(&bytes.to_le_bytes());
        }
        self.rows += 1;
        if self.pending.len() >= BLOCK_BYTES { self.write(budget) } else { Ok(()) }
    }

    fn write(&mut self, budget: &StoreBudget) -> SqlResult<()> {
        let bytes = self.pending.len();
        budget.take_file(bytes as u64)?;
        let (offset, first) = (self.written_bytes, self.pending_first);
        self.written_bytes += bytes as u64;
        let written = self.file.seek(SeekFrom::Start(offset));
        let written = written.and_then(|_| self.file.write_all(&self.pending));
        written.map_err(|error| failed(&error))?;
        self.blocks.push(Block { first, offset, bytes });
        self.pending.clear();
        self.pending_first = self.end();
        Ok(())
    }

    fn get(&mut self, number: u64) -> SqlResult<Option<Row>> {
        if number < self.first || number >= self.end() {
            return Ok(None);
        }
        let block = match number < self.pending_first {
            true => self.blocks.partition_point(|block| block.first <= number).checked_sub(1),
            false => None,
        };
        let first = block.and_then(|at| self.blocks.get(at)).map(|block| block.first);
        let first = first.unwrap_or(self.pending_first);
        let at = usize::try_from(number - first).unwrap_or(usize::MAX);
        // Of a block that has grown since, too few may be known.
        let is_known = |(known, rows): &(u64, Vec<Row>)| *known == first && at < rows.len();
        if !self.known.as_ref().is_some_and(is_known) {
            let rows = match block {
                Some(block) => self.read(block)?,
                None => rows_of(&self.pending)?,
            };
            self.known = Some((first, rows));
        }
        let row = self.known.as_ref().and_then(|(_, rows)| rows.get(at));
        row.cloned().map(Some).ok_or_else(damaged)
    }

    fn read(&mut self, block: usize) -> SqlResult<Vec<Row>> {
        let Block { offset, bytes, .. } = *self.blocks.get(block).ok_or_else(damaged)?;
        let mut buffer = vec![0; bytes];
        let read = self.file.seek(SeekFrom::Start(offset));
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

    fn check(store: &mut RowStore, number: u64) {
        let found = store.get(number).unwrap().unwrap();
        assert_eq!(shown(&found), shown(&row(number)), "{number}");
    }

    #[test]
    fn rows_are_read_in_any_order_from_memory_and_from_the_file() {
        for memory_bytes in [0, 100 << 10, 64 << 20] {
            let budget = Arc::new(StoreBudget::new(memory_bytes, 1 << 30));
            let mut store = RowStore::new(&budget);
            for number in 0..3_000 {
                store.push(row(number)).unwrap();
                // Also while it grows.
                check(&mut store, number / 2);
                check(&mut store, number);
            }
            (0..3_000).for_each(|number| check(&mut store, number));
            (0..3_000).rev().for_each(|number| check(&mut store, number));
            assert!(store.get(3_000).unwrap().is_none());
            assert_eq!((store.len(), store.file.is_none()), (3_000, memory_bytes == 64 << 20));
            drop(store);
            let file_left = budget.file_left.load(Ordering::Relaxed);
            let left = (budget.memory_left.load(Ordering::Relaxed), file_left);
            assert_eq!(left, (memory_bytes, 1 << 30));
        }
    }

    #[test]
    fn files_that_are_too_large_are_refused() {
        let budget = Arc::new(StoreBudget::new(0, 100 << 10));
        let (mut store, mut other) = (RowStore::new(&budget), RowStore::new(&budget));
        let refused = (0..).find_map(|number| store.push(row(number)).err()).unwrap();
        assert_eq!(refused.state(), SqlState::CONFIGURATION_LIMIT);
        assert!((0..1_000).any(|number| other.push(row(number)).is_err()));
        // What the others have had is there again.
        drop((store, other));
        let mut third = RowStore::new(&budget);
        assert!((0..100).all(|number| third.push(row(number)).is_ok()));
    }
}
