//! A log in files while it is written, by a thread of its own.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use rustix::fs::FallocateFlags;
use selkie_fabric::BoxFuture;

use super::completion::Completion;
use super::names::{ARCHIVE, UNNAMED, files_in, path_of};
use crate::error::LogError;
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::{FIRST_LSN, Lsn};
use crate::owner::LogOwner;
use crate::sink::{Sink, Written};

/// A request to the thread.
enum FileRequest {
    Append { at: Lsn, bytes: Vec<u8>, done: Arc<Completion<Written>> },
    Truncate { below: Lsn, done: Arc<Completion<Result<Lsn, LogError>>> },
}

/// The file that records are added to.
struct OpenFile {
    file: File,
    path: PathBuf,
    start: Lsn,
    bytes: u64,
    /// Where the records in it end.
    end: Lsn,
}

/// A log in files.
pub(super) struct FileSink {
    requests: mpsc::Sender<FileRequest>,
    directory: PathBuf,
    capacity: u64,
}

impl FileSink {
    /// Begins the log of `owner` in a directory that has none: makes its first file, and starts the
    /// thread that writes. That keeps the file `lock` open.
    pub(super) fn begin(
        directory: PathBuf,
        owner: LogOwner,
        (file_bytes, capacity): (u64, u64),
        lock: Option<Arc<File>>,
    ) -> Result<Self, LogError> {
        let (requests, queue) = mpsc::channel();
        let mut writer = Writer { directory: directory.clone(), owner, file_bytes, open: None };
        // A log needs a file to exist: recovery of a node without a log reports its changes as
        // lost, though it has changed nothing yet.
        writer.open = Some(writer.next_file(FIRST_LSN, 0)?);
        let run = move || {
            while let Ok(request) = queue.recv() {
                writer.run(request);
            }
            drop(lock);
        };
        let spawned = thread::Builder::new().name("log".to_owned()).spawn(run);
        spawned
            .map_err(|error| LogError::new("start a thread for the log in", &directory, error))?;
        Ok(Self { requests, directory, capacity })
    }

    fn gone(&self) -> LogError {
        let error = io::Error::new(io::ErrorKind::BrokenPipe, "its thread has ended");
        LogError::new("write the log in", &self.directory, error)
    }
}

impl Sink for FileSink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let done = Completion::new();
            if let Err(mpsc::SendError(request)) =
                self.requests.send(FileRequest::Append { at, bytes, done: Arc::clone(&done) })
            {
                let bytes = if let FileRequest::Append { bytes, .. } = request {
                    bytes
                } else {
                    Vec::new()
                };
                return Written { bytes, result: Err(self.gone()) };
            }
            let gone = || Written { bytes: Vec::new(), result: Err(self.gone()) };
            done.wait(gone).await
        })
    }

    fn truncate(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let done = Completion::new();
            let request = FileRequest::Truncate { below, done: Arc::clone(&done) };
            self.requests.send(request).map_err(|_| self.gone())?;
            done.wait(|| Err(self.gone())).await
        })
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

/// The state of the thread.
struct Writer {
    directory: PathBuf,
    owner: LogOwner,
    file_bytes: u64,
    open: Option<OpenFile>,
}

impl Writer {
    fn run(&mut self, request: FileRequest) {
        match request {
            FileRequest::Append { at, bytes, done } => {
                let result = self.append(at, &bytes);
                if result.is_err() {
                    // The retry writes the same bytes to a new file: after a failed `fdatasync` the
                    // system may have dropped bytes that it could not write.
                    self.open = None;
                }
                done.finish(Written { bytes, result });
            }
            FileRequest::Truncate { below, done } => done.finish(self.truncate(below)),
        }
    }

    fn append(&mut self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let fits = |open: &&mut OpenFile| {
            at >= open.start && at + bytes.len() as u64 <= open.start + open.bytes
        };
        let open = match self.open.as_mut().filter(fits) {
            Some(open) => open,
            None => {
                let open = self.next_file(at, bytes.len() as u64)?;
                self.open.insert(open)
            }
        };
        let path = &open.path;
        let failed = |what| move |error| LogError::new(what, path, error);
        open.file.write_all_at(bytes, HEADER_BYTES + at - open.start).map_err(failed("write"))?;
        open.file.sync_data().map_err(failed("make durable"))?;
        open.end = at + bytes.len() as u64;
        Ok(())
    }

    /// Creates a file that begins at this place, for so many bytes at least. It replaces one that a
    /// failed attempt has left.
    fn next_file(&self, start: Lsn, least: u64) -> Result<OpenFile, LogError> {
        let path = path_of(&self.directory, start);
        let bytes = self.file_bytes.max(least);
        let header = Header { owner: self.owner, start };
        // It gets its name when it is complete: no reader finds the file of a process that dies
        // here.
        let unnamed = path.with_extension(UNNAMED);
        let make = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&unnamed)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HEADER_BYTES + bytes)?;
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            fs::rename(&unnamed, &path)?;
            File::open(&self.directory)?.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| {
            // The error of the creation counts. A file that stays is overwritten by the retry.
            let _ = fs::remove_file(&unnamed);
            LogError::new("make", &path, error)
        })?;
        Ok(OpenFile { file, path, start, bytes, end: start })
    }

    /// Moves a file with `length` bytes of records to the archive.
    fn archive(&self, path: &Path, length: u64) -> Result<(), LogError> {
        let archive = self.directory.join(ARCHIVE);
        let put = || {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
            fs::create_dir_all(&archive)?;
            // Frees the bytes that it was allocated with and does not need.
            OpenOptions::new().write(true).open(path)?.set_len(HEADER_BYTES + length)?;
            fs::rename(path, archive.join(name))
        };
        put().map_err(|error| LogError::new("archive", path, error))
    }

    fn truncate(&mut self, below: Lsn) -> Result<Lsn, LogError> {
        let is_all = |open: &OpenFile| open.end == below && open.start < below;
        if self.open.as_ref().is_some_and(is_all) {
            // The whole log is truncated: the next append begins a new file.
            self.open = Some(self.next_file(below, 0)?);
        }
        let files = files_in(&self.directory)?;
        let mut first = files.first().map_or(FIRST_LSN, |(start, _)| *start);
        let mut has_archived = false;
        for ((start, path), (next, _)) in files.iter().zip(files.iter().skip(1)) {
            if *next > below {
                break;
            }
            self.archive(path, next - start)?;
            first = *next;
            has_archived = true;
        }
        if has_archived {
            // Where no memory outlives the process the archive is the only copy.
            for moved in [self.directory.join(ARCHIVE), self.directory.clone()] {
                let synced = File::open(&moved).and_then(|directory| directory.sync_all());
                synced.map_err(|error| LogError::new("make durable", moved, error))?;
            }
        }
        Ok(first)
    }
}
