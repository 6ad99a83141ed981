//! Where COPY FROM STDIN of the shell reads: the lines behind the statement up to `\.`, or the file
//! of `\copy`.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use selkie_sql::{SqlError, SqlResult, SqlState};

use super::busy::Busy;
use super::input::{Input, Line, Prompt};
use crate::support::stdout::tell;

/// Bytes of a file that are read at a time.
const READ_BYTES: usize = 64 << 10;
/// Bytes of lines that are given at a time.
const GIVEN_BYTES: usize = 16 << 10;

/// Data of COPY.
pub(super) struct CopySource {
    from: From,
    has_begun: AtomicBool,
    has_ended: AtomicBool,
}

enum From {
    /// Lines up to `\.`.
    Lines(Input),
    File {
        file: Mutex<File>,
        busy: Arc<Busy>,
        name: String,
    },
}

impl CopySource {
    /// The lines that come behind the statement.
    pub(super) fn lines(input: &Input) -> Self {
        Self::new(From::Lines(input.clone()))
    }

    /// A file, and how much of it was read.
    pub(super) fn file(file: File, path: &Path, busy: &Arc<Busy>) -> Self {
        let (file, name) = (Mutex::new(file), path.display().to_string());
        Self::new(From::File { file, busy: Arc::clone(busy), name })
    }

    fn new(from: From) -> Self {
        Self { from, has_begun: AtomicBool::new(false), has_ended: AtomicBool::new(false) }
    }

    /// Whether data was asked for, which cannot be read again.
    pub(super) fn has_read(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// A statement wants the data.
    ///
    /// # Errors
    /// 0A000 for binary data in lines of text.
    pub(super) fn begin(&self, is_binary: bool) -> SqlResult<()> {
        if let From::Lines(input) = &self.from {
            if is_binary {
                let message = "lines of text are no binary data";
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    .hint("\\copy reads it from a file."));
            }
            if input.is_typed() {
                tell!("Enter data to be copied followed by a newline.");
                tell!("End with a backslash and a period on a line by itself, or an EOF signal.");
            }
        }
        self.has_begun.store(true, Ordering::Relaxed);
        // Another statement of the same text may have read its data to the end.
        self.has_ended.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The next data; `None` at its end.
    ///
    /// # Errors
    /// 58030 for what cannot be read; 57014 if the user wants no more.
    pub(super) fn next(&self) -> SqlResult<Option<Vec<u8>>> {
        if self.has_ended.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match &self.from {
            From::Lines(input) => self.next_lines(input),
            From::File { file, busy, name } => {
                let mut data = vec![0; READ_BYTES];
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let read = file.read(&mut data).map_err(|error| unread(name, &error))?;
                busy.advance(read);
                data.truncate(read);
                Ok((read > 0).then_some(data))
            }
        }
    }

    fn next_lines(&self, input: &Input) -> SqlResult<Option<Vec<u8>>> {
        let mut data = Vec::new();
        let prompt = Prompt { text: ">> ", before: "", is_data: true };
        // What is typed is taken line by line, so that an error is told of at once.
        while data.is_empty() || (data.len() < GIVEN_BYTES && !input.is_typed()) {
            match input.next(&prompt) {
                Ok(Line::Text(line)) if line.strip_suffix(b"\r").unwrap_or(&line) == b"\\." => {
                    self.has_ended.store(true, Ordering::Relaxed);
                    break;
                }
                Ok(Line::Text(line)) => {
                    data.extend_from_slice(&line);
                    data.push(b'\n');
                }
                Ok(Line::End) => {
                    self.has_ended.store(true, Ordering::Relaxed);
                    break;
                }
                Ok(Line::Cancelled) => {
                    self.has_ended.store(true, Ordering::Relaxed);
                    let message = "COPY from stdin failed: canceled by user";
                    return Err(SqlError::new(SqlState::QUERY_CANCELED, message));
                }
                Err(error) => {
                    self.has_ended.store(true, Ordering::Relaxed);
                    return Err(SqlError::new(SqlState::IO_ERROR, error.to_string()));
                }
            }
        }
        Ok((!data.is_empty()).then_some(data))
    }

    /// Reads over lines that a statement has left when it failed: they are no statements.
    pub(super) fn drain(&self) {
        let is_lines = matches!(self.from, From::Lines(_));
        while is_lines && self.has_read() && matches!(self.next(), Ok(Some(_))) {}
    }
}

fn unread(name: &str, error: &std::io::Error) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("{name}: {error}"))
}
