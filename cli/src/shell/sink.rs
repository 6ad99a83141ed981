//! Where results go: the standard output, or a file that `\o` names.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where results go. Clones go to the same place.
#[derive(Clone, Default)]
pub(super) struct Sink {
    file: Arc<Mutex<Option<BufWriter<File>>>>,
    is_unread: Arc<AtomicBool>,
}

/// Says something on stderr. Where nobody reads that any more, nothing is said.
pub(super) fn mention(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

impl Sink {
    /// The file, or nothing for the standard output.
    fn file(&self) -> MutexGuard<'_, Option<BufWriter<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Whether its reader has seen enough, as `head` has. Nothing more is written then.
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed)
    }

    /// Writes what is not written yet.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn flush(&self) -> std::io::Result<()> {
        self.write(|to| to.flush())
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
        self.bytes(text.as_bytes())
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// What the system reports.
    pub(super) fn bytes(&self, bytes: &[u8]) -> std::io::Result<()> {
        self.write(|to| to.write_all(bytes))
    }

    fn write(
        &self,
        write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        if self.is_unread() {
            return Ok(());
        }
        let written = match &mut *self.file() {
            Some(file) => write(file),
            None => write(&mut std::io::stdout()),
        };
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_unread.store(true, Ordering::Relaxed);
                Ok(())
            }
            written => written,
        }
    }
}
