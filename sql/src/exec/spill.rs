//! Sorted runs of rows in temporary files, for sorts that need more memory than they may have.
//!
//! A file has no name once it is open, so that it goes with the process at the latest. Its rows are
//! written by one statement and read by the same: the form is not for others.
//!
//! ```text
//! row:    u32 bytes of what follows, u16 number of keys, the keys, the columns
//! value:  u8 tag, then by tag a number (little-endian), or u32 bytes and these
//! ```

use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::sort::KeyedRow;
use super::spill_value::{ValueReader, write_values};
use crate::error::{SqlError, SqlResult, SqlState};

/// Tells the files of this process apart.
static NEXT_FILE: AtomicU64 = AtomicU64::new(0);

/// Bytes that are read or written at a time.
const BUFFER_BYTES: usize = 32 << 10;

/// A run that is being written.
pub(crate) struct RunWriter {
    file: BufWriter<File>,
    bytes: u64,
    /// Of one row, reused.
    row: Vec<u8>,
}

/// A run that is read from its beginning.
pub(crate) struct RunReader {
    file: BufReader<File>,
    left: u64,
    row: Vec<u8>,
}

/// That a file cannot be used.
pub(super) fn failed(error: &io::Error) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("a temporary file cannot be used: {error}"))
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
    pub(crate) fn new() -> SqlResult<Self> {
        let file = open().map_err(|error| failed(&error))?;
        Ok(Self { file: BufWriter::with_capacity(BUFFER_BYTES, file), bytes: 0, row: Vec::new() })
    }

    pub(crate) fn write(&mut self, row: &KeyedRow) -> SqlResult<()> {
        let too_large =
            |_| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a row is too large to be sorted");
        self.row.clear();
        let keys = u16::try_from(row.keys.len()).map_err(too_large)?;
        self.row.extend_from_slice(&keys.to_le_bytes());
        write_values(&row.keys, &mut self.row)?;
        write_values(&row.row, &mut self.row)?;
        let bytes = u32::try_from(self.row.len()).map_err(too_large)?;
        self.bytes += u64::from(bytes) + 4;
        let written = self.file.write_all(&bytes.to_le_bytes());
        written.and_then(|()| self.file.write_all(&self.row)).map_err(|error| failed(&error))
    }

    /// Bytes that the run has.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The run, to be read.
    pub(crate) fn finish(self) -> SqlResult<RunReader> {
        let file = self.file.into_inner().map_err(|error| failed(error.error()));
        let mut file = file?;
        file.rewind().map_err(|error| failed(&error))?;
        let file = BufReader::with_capacity(BUFFER_BYTES, file);
        Ok(RunReader { file, left: self.bytes, row: Vec::new() })
    }
}

impl RunReader {
    /// Bytes that have not been read yet.
    pub(crate) fn bytes(&self) -> u64 {
        self.left
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> SqlResult<Option<KeyedRow>> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.file.read_exact(&mut length).map_err(|error| failed(&error))?;
        let length = u32::from_le_bytes(length);
        self.left = self.left.saturating_sub(u64::from(length) + 4);
        self.row.resize(length as usize, 0);
        self.file.read_exact(&mut self.row).map_err(|error| failed(&error))?;
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
}

/// What was read is not what was written.
pub(crate) fn damaged() -> SqlError {
    SqlError::new(SqlState::IO_ERROR, "a temporary file is damaged")
}
