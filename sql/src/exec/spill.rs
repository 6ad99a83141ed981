//! Sorted runs of rows in temporary files, for sorts that need more memory than they may have.
//!
//! A file has no name once it is open, so that it goes with the process at the latest. Its rows are
//! written by one statement and read by the same: the form is not for others.
//!
//! ```text
//! row:    u32 bytes of what follows, u16 number of keys, the keys, the columns
//! value:  u8 tag, then by tag a number (little-endian), or u32 bytes and these
//! entry:  u32 bytes of what follows, u32 bytes of the key, the key, the value
//! ```
//! A run has either rows or entries.

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::memory::MemoryLimits;
use super::sort::KeyedRow;
use super::spill_value::{ValueReader, write_values};
use crate::error::{SqlError, SqlResult, SqlState};

/// Tells the files of this process apart.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// How large the temporary files of a session are together, and may be.
#[derive(Debug)]
pub(crate) struct TempFiles {
    used: AtomicU64,
    most: AtomicU64,
}

impl Default for TempFiles {
    fn default() -> Self {
        Self { used: AtomicU64::new(0), most: AtomicU64::new(u64::MAX) }
    }
}

// Relaxed throughout: it counts, and orders nothing else.
impl TempFiles {
    /// Bounds those that are written from now on.
    pub(crate) fn set_limit(&self, most_bytes: Option<u64>) {
        self.most.store(most_bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How large they are.
    #[cfg(test)]
    pub(super) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> SqlResult<()> {
        let most = self.most.load(Ordering::Relaxed);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|used| *used <= most)
        });
        taken.map(|_| ()).map_err(|_| {
            let most = most >> 10;
            let message = format!("temporary file size exceeds temp_file_limit ({most}kB)");
            SqlError::new(SqlState::CONFIGURATION_LIMIT, message)
        })
    }
}

/// What a file counts for among those of its session, until it is gone.
#[derive(Debug)]
pub(super) struct FileShare {
    files: Arc<TempFiles>,
    bytes: u64,
}

impl FileShare {
    pub(super) fn new(limits: &MemoryLimits) -> Self {
        Self { files: Arc::clone(&limits.files), bytes: 0 }
    }

    pub(super) fn grow_to(&mut self, bytes: u64) -> SqlResult<()> {
        self.files.take(bytes.saturating_sub(self.bytes))?;
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

impl Drop for FileShare {
    fn drop(&mut self) {
        self.files.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A run that is being written.
pub(crate) struct RunWriter {
    file: BufWriter<File>,
    share: FileShare,
    bytes: u64,
    /// Of one row, reused.
    row: Vec<u8>,
}

/// A run that was written, to be read by any number of readers.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    file: Arc<Mutex<File>>,
    _share: Arc<FileShare>,
    bytes: u64,
}

/// A run that is read from its beginning.
pub(crate) struct RunReader {
    file: BufReader<RunFile>,
    left: u64,
    row: Vec<u8>,
}

/// Reads a file from a place of its own.
struct RunFile {
    run: Run,
    at: u64,
}

impl Read for RunFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut file = self.run.file.lock();
        file.seek(SeekFrom::Start(self.at))?;
        let read = file.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}

fn too_large(_: std::num::TryFromIntError) -> SqlError {
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too large to be sorted")
}

/// That a file cannot be used.
pub(super) fn failed(error: &io::Error) -> SqlError {
    let state = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => SqlState::DISK_FULL,
        // Too many are open, in the process or on the machine.
        _ if matches!(error.raw_os_error(), Some(23 | 24)) => SqlState::INSUFFICIENT_RESOURCES,
        _ => SqlState::IO_ERROR,
    };
    SqlError::new(state, format!("a temporary file cannot be used: {error}"))
}

/// A file without a name.
pub(super) fn open() -> io::Result<File> {
    let number = NEXT_FILE.fetch_add(1, Ordering::Relaxed);
    let name = format!("selkie-sort-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

impl RunWriter {
    pub(crate) fn new(limits: &MemoryLimits) -> SqlResult<Self> {
        let file = open().map_err(|error| failed(&error))?;
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        let share = FileShare::new(limits);
        Ok(Self { file, share, bytes: 0, row: Vec::new() })
    }

    pub(crate) fn write(&mut self, row: &KeyedRow) -> SqlResult<()> {
        self.row.clear();
        let keys = u16::try_from(row.keys.len()).map_err(too_large)?;
        self.row.extend_from_slice(&keys.to_le_bytes());
        write_values(&row.keys, &mut self.row)?;
        write_values(&row.row, &mut self.row)?;
        self.append()
    }

    /// Writes an entry of a tree.
    pub(crate) fn write_entry(&mut self, key: &[u8], value: &[u8]) -> SqlResult<()> {
        let bytes = u32::try_from(key.len()).map_err(too_large)?;
        self.row.clear();
        self.row.extend_from_slice(&bytes.to_le_bytes());
        self.row.extend_from_slice(key);
        self.row.extend_from_slice(value);
        self.append()
    }

    fn append(&mut self) -> SqlResult<()> {
        let bytes = u32::try_from(self.row.len()).map_err(too_large)?;
        self.bytes += u64::from(bytes) + 4;
        if self.bytes - self.share.bytes >= BUFFER_BYTES as u64 {
            self.share.grow_to(self.bytes)?;
        }
        let written = self.file.write_all(&bytes.to_le_bytes());
        written.and_then(|()| self.file.write_all(&self.row)).map_err(|error| failed(&error))
    }

    /// Bytes that the run has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The run, to be read once.
    pub(crate) fn finish(self) -> SqlResult<RunReader> {
        Ok(self.finish_run()?.reader())
    }

    /// The run.
    pub(crate) fn finish_run(mut self) -> SqlResult<Run> {
        self.share.grow_to(self.bytes)?;
        let file = self.file.into_inner().map_err(|error| failed(error.error()))?;
        Ok(Run {
            file: Arc::new(Mutex::new(file)),
            _share: Arc::new(self.share),
            bytes: self.bytes,
        })
    }
}

impl Run {
    pub(crate) fn reader(&self) -> RunReader {
        let file = RunFile { run: self.clone(), at: 0 };
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        RunReader { file, left: self.bytes, row: Vec::new() }
    }
}

impl RunReader {
    /// Bytes that have not been read yet.
    pub(crate) fn bytes(&self) -> u64 {
        self.left
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> SqlResult<Option<KeyedRow>> {
        if !self.read()? {
            return Ok(None);
        }
        let (count, rest) = self.row.split_first_chunk().ok_or_else(damaged)?;
        let mut values = ValueReader::new(rest);
        let mut keys = Vec::new();
        for _ in 0..u16::from_le_bytes(*count) {
            keys.push(values.next()?);
        }
        let mut row = Vec::new();
        while !values.is_at_end() {
            row.push(values.next()?);
        }
        Ok(Some(KeyedRow { keys, row }))
    }

    /// The next entry: its key and its value.
    pub(crate) fn next_entry(&mut self) -> SqlResult<Option<(Vec<u8>, Vec<u8>)>> {
        if !self.read()? {
            return Ok(None);
        }
        let (length, entry) = self.row.split_first_chunk().ok_or_else(damaged)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (key, value) = entry.split_at_checked(length).ok_or_else(damaged)?;
        Ok(Some((key.to_vec(), value.to_vec())))
    }

    /// Reads what was written next; whether there was something.
    fn read(&mut self) -> SqlResult<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        let mut length = [0; 4];
        self.file.read_exact(&mut length).map_err(|error| failed(&error))?;
        let length = u32::from_le_bytes(length);
        self.left = self.left.saturating_sub(u64::from(length) + 4);
        self.row.resize(length as usize, 0);
        self.file.read_exact(&mut self.row).map_err(|error| failed(&error))?;
        Ok(true)
    }
}

/// What was read is not what was written.
pub(crate) fn damaged() -> SqlError {
    SqlError::new(SqlState::IO_ERROR, "a temporary file is damaged")
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;
    use crate::exec::Row;
    use crate::types::Datum;

    fn row(number: i32) -> KeyedRow {
        KeyedRow { keys: Row::new(), row: vec![Datum::I32(number), Datum::text("x".repeat(100))] }
    }

    fn number(keyed: Option<KeyedRow>) -> Option<i32> {
        match keyed?.row.first() {
            Some(Datum::I32(number)) => Some(*number),
            _ => None,
        }
    }

    #[test]
    fn readers_of_a_run_do_not_disturb_each_other() {
        let limits = MemoryLimits::default();
        let mut writer = RunWriter::new(&limits).unwrap();
        (0..2000).for_each(|at| writer.write(&row(at)).unwrap());
        let run = writer.finish_run().unwrap();
        let (mut one, mut other) = (run.reader(), run.reader());
        for at in 0..1000 {
            assert_eq!(number(one.next().unwrap()), Some(at));
        }
        for at in 0..2000 {
            assert_eq!(number(other.next().unwrap()), Some(at));
            assert_eq!(number(one.next().unwrap()), (at < 1000).then_some(at + 1000));
        }
        assert_eq!(number(other.next().unwrap()), None);
    }

    #[test]
    fn files_of_a_session_are_bounded_together() {
        let limits = MemoryLimits::default();
        limits.files.set_limit(Some(200 << 10));
        let fill = |writer: &mut RunWriter| (0..1000).try_for_each(|at| writer.write(&row(at)));
        let mut first = RunWriter::new(&limits).unwrap();
        fill(&mut first).unwrap();
        let kept = first.finish().unwrap();
        let mut second = RunWriter::new(&limits).unwrap();
        let error = fill(&mut second).and_then(|()| second.finish().map(|_| ())).unwrap_err();
        assert_eq!(error.state().code(), "53400");
        assert_eq!(error.message(), "temporary file size exceeds temp_file_limit (200kB)");
        drop(kept);
        assert_eq!(limits.files.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_disk_is_told_from_one_that_fails() {
        let state = |number| failed(&io::Error::from_raw_os_error(number)).state().code();
        // ENOSPC, EDQUOT, EMFILE and EIO of Linux.
        assert_eq!([28, 122, 24, 5].map(state), ["53100", "53100", "53000", "58030"]);
    }
}
