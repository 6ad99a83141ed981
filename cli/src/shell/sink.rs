//! Where results go: the standard output, or a file that `\o` names.

use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::support::stdout;

/// Where results go.
#[derive(Clone, Default)]
pub(super) struct Sink(Arc<Mutex<Option<BufWriter<File>>>>);

impl Sink {
    /// The file, or nothing for the standard output.
    fn file(&self) -> MutexGuard<'_, Option<BufWriter<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on results go to a new file, or to the standard output.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn go_to(&self, path: Option<&Path>) -> std::io::Result<()> {
        let file = path.map(File::create).transpose()?.map(BufWriter::new);
        let before = std::mem::replace(&mut *self.file(), file);
        before.map_or(Ok(()), |mut before| before.flush())
    }

    /// Writes what a file has not got yet.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn flush(&self) -> std::io::Result<()> {
        self.file().as_mut().map_or(Ok(()), Write::flush)
    }

    /// Whether people see it on a terminal.
    pub(super) fn is_terminal(&self) -> bool {
        self.file().is_none() && std::io::stdout().is_terminal()
    }

    /// Writes text.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn text(&self, text: &str) -> std::io::Result<()> {
        match &mut *self.file() {
            Some(file) => file.write_all(text.as_bytes()),
            None => stdout::text_of(format_args!("{text}")),
        }
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        match &mut *self.file() {
            Some(file) => file.write_all(bytes),
            None => stdout::bytes(bytes),
        }
    }
}
