//! Logs in directories, as a store.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use selkie_fabric::BoxFuture;

use super::completion::Completion;
use super::names::{
    ARCHIVE, archived_in, directories_in, files_in, head_of, path_of, remove_if_there, unnamed_in,
};
use super::sink::FileSink;
use crate::error::{LogError, ReadError};
use crate::header::{HEADER_BYTES, Header};
use crate::lsn::Lsn;
use crate::names::{ENDED, LABELS};
use crate::owner::LogOwner;
use crate::sink::Sink;
use crate::store::{Labels, LogStore, Piece};

/// Least and most bytes of a file.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 32;
/// Least files that a log may take.
const LEAST_FILES: u64 = 4;

/// A directory of logs.
#[derive(Clone, Debug)]
pub struct LogFiles {
    root: PathBuf,
    file_bytes: u64,
    capacity: u64,
    /// The directory was not there before.
    is_made: bool,
    /// Pieces of a log include those in its archive.
    reads_archives: bool,
    /// Of the directory, as long as logs are written there.
    lock: Option<Arc<File>>,
}

impl LogFiles {
    /// Logs below a directory, which is created if it is not there, in files with `file_bytes`
    /// bytes of records (64 KiB to 4 GiB). Each log has a capacity of `capacity` bytes, at least
    /// four files.
    ///
    /// # Errors
    /// [`LogError`] if the directory cannot be created or written, or a size is out of range.
    pub fn new(root: &Path, file_bytes: u64, capacity: u64) -> Result<Self, LogError> {
        let failed = |what, error| LogError::new(what, root, error);
        let refused = |what: String| {
            failed("keep logs in", io::Error::new(io::ErrorKind::InvalidInput, what))
        };
        if !FILE_BYTES.contains(&file_bytes) {
            return Err(refused(format!(
                "files of {file_bytes} bytes: 64 KiB to 4 GiB are allowed"
            )));
        }
        if capacity < LEAST_FILES * file_bytes {
            let least = LEAST_FILES * file_bytes;
            return Err(refused(format!("{capacity} bytes a log: {least} or more are allowed")));
        }
        let is_made = !root.exists();
        fs::create_dir_all(root).map_err(|error| failed("make", error))?;
        // A test write, so that an error shows now rather than at the first commit.
        let thread = thread::current().id();
        let attempt = root.join(format!(".attempt-{}-{thread:?}", std::process::id()));
        File::create(&attempt).map_err(|error| failed("write in", error))?;
        fs::remove_file(&attempt).map_err(|error| failed("write in", error))?;
        let (root, reads_archives) = (root.into(), false);
        Ok(Self { root, file_bytes, capacity, is_made, reads_archives, lock: None })
    }

    /// The same, which keeps the file open until the last of its logs is written no more: for one
    /// that is locked.
    #[must_use]
    pub fn with_lock(self, lock: Arc<File>) -> Self {
        Self { lock: Some(lock), ..self }
    }

    /// Existing logs with their archives, for reading.
    #[must_use]
    pub fn existing(root: &Path) -> Self {
        let file_bytes = *FILE_BYTES.start();
        let (root, reads_archives) = (root.into(), true);
        Self { root, file_bytes, capacity: 0, is_made: false, reads_archives, lock: None }
    }

    fn pool_directory(&self, pool: u64) -> PathBuf {
        self.root.join(format!("{pool:016x}"))
    }

    pub(super) fn directory(&self, owner: LogOwner) -> PathBuf {
        let pool = self.pool_directory(owner.pool);
        pool.join(format!("{}-{}", owner.node, owner.incarnation))
    }

    fn create_now(&self, owner: LogOwner) -> Result<FileSink, LogError> {
        let directory = self.directory(owner);
        fs::create_dir_all(&directory).map_err(|error| LogError::new("make", &directory, error))?;
        if !files_in(&directory)?.is_empty() {
            let error = io::Error::new(io::ErrorKind::AlreadyExists, "a log is there");
            return Err(LogError::new("begin a log in", directory, error));
        }
        // Makes the names of the directories durable.
        for made in [directory.parent(), Some(&*self.root)].into_iter().flatten() {
            let synced = File::open(made).and_then(|directory| directory.sync_all());
            synced.map_err(|error| LogError::new("make durable", made, error))?;
        }
        let sizes = (self.file_bytes, self.capacity);
        let began = FileSink::begin(directory.clone(), owner, sizes, self.lock.clone());
        if began.is_err() {
            // Directories that are of no use; those that have something in them stay.
            let own = [Some(&*directory), directory.parent()];
            for empty in own.into_iter().flatten().chain(self.is_made.then_some(&*self.root)) {
                let _ = fs::remove_dir(empty);
            }
        }
        began
    }

    fn pieces_now(&self, owner: LogOwner) -> Result<Vec<Lsn>, ReadError> {
        let directory = self.directory(owner);
        let mut files = if directory.exists() { files_in(&directory)? } else { Vec::new() };
        if self.reads_archives {
            // The archive comes last: a file that is archived meanwhile is in both lists, not in
            // none.
            files.extend(archived_in(&directory)?);
        }
        files.sort();
        files.dedup_by_key(|(start, _)| *start);
        Ok(files.into_iter().map(|(start, _)| start).collect())
    }

    fn archived_now(&self, owner: LogOwner) -> Result<Vec<(Lsn, u64)>, LogError> {
        let files = archived_in(&self.directory(owner))?.into_iter();
        // Another node may have deleted one meanwhile.
        let sized = files.filter_map(|(start, path)| match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(LogError::new("look at", path, error))),
            Ok(found) => Some(Ok((start, found.len()))),
        });
        sized.collect()
    }

    fn forget_now(&self, owner: LogOwner, lsn: Lsn) -> Result<(), LogError> {
        let files = archived_in(&self.directory(owner))?.into_iter();
        for (_, path) in files.filter(|(start, _)| *start < lsn) {
            remove_if_there(&path)?;
        }
        Ok(())
    }

    fn piece_now(&self, owner: LogOwner, start: Lsn) -> Result<Piece, ReadError> {
        let mut place = path_of(&self.directory(owner), start);
        let mut read = fs::read(&place);
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            place = path_of(&self.directory(owner).join(ARCHIVE), start);
            read = fs::read(&place);
        }
        let refused = |what: String| ReadError::Place { place: place.clone(), what };
        let bytes = read.map_err(|error| LogError::new("read", &place, error))?;
        let own = Header::of(owner, &bytes).map_err(refused)?;
        if own != start {
            return Err(refused(format!("it says that it begins at {own}")));
        }
        let mut bytes = bytes;
        bytes.drain(..HEADER_BYTES as usize);
        Ok(Piece { place, offset: HEADER_BYTES, bytes })
    }

    fn read_range_now(&self, owner: LogOwner, from: Lsn, length: u64) -> Result<Piece, ReadError> {
        let starts = Self { reads_archives: true, ..self.clone() }.pieces_now(owner)?;
        let place = self.directory(owner);
        let Some(start) = starts.iter().rev().find(|start| **start <= from).copied() else {
            return Err(ReadError::Cut { place, from, kept: starts.first().copied() });
        };
        let next = starts.iter().find(|next| **next > start);
        // Stops at the records of the next file, if there is one.
        let length = next.map_or(length, |next| length.min(next.saturating_sub(from)));
        let offset = HEADER_BYTES + from - start;
        let read = |path: &Path| {
            let file = File::open(path)?;
            let there = file.metadata()?.len().saturating_sub(offset).min(length);
            let mut bytes = vec![0; there as usize];
            file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        // A file may be archived meanwhile, so the archive is second.
        for path in [path_of(&place, start), path_of(&place.join(ARCHIVE), start)] {
            match read(&path) {
                Ok(bytes) => return Ok(Piece { place: path, offset, bytes }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(LogError::new("read", path, error).into()),
            }
        }
        Err(ReadError::Cut { place, from, kept: next.copied() })
    }

    fn owners_now(&self) -> Result<Vec<LogOwner>, ReadError> {
        let mut owners = Vec::new();
        for pool in directories_in(&self.root)? {
            for directory in directories_in(&pool)? {
                let Some((start, place)) = files_in(&directory)?.into_iter().next() else {
                    continue;
                };
                let bytes =
                    head_of(&place).map_err(|error| LogError::new("read", &place, error))?;
                let header = Header::decode(&bytes);
                let refused =
                    |what: &str| ReadError::Place { place: place.clone(), what: what.into() };
                let Header { owner, start: own } = header.map_err(refused)?;
                if own != start || self.directory(owner) != directory {
                    return Err(refused("it is of another log"));
                }
                owners.push(owner);
            }
        }
        owners.sort();
        Ok(owners)
    }

    fn ended_now(&self, owner: LogOwner) -> Result<Option<Lsn>, ReadError> {
        let place = self.directory(owner).join(ENDED);
        let bytes = match fs::read(&place) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::new("read", place, error).into()),
        };
        match Header::of(owner, &bytes) {
            Ok(end) => Ok(Some(end)),
            Err(what) => Err(ReadError::Place { place, what }),
        }
    }

    fn end_now(&self, owner: LogOwner, end: Lsn) -> Result<Lsn, ReadError> {
        if let Some(end) = self.ended_now(owner)? {
            return Ok(end);
        }
        let directory = self.directory(owner);
        if !directory.exists() {
            // No node reads a removed log again.
            return Ok(end);
        }
        let (place, unnamed) = (directory.join(ENDED), unnamed_in(&directory, ENDED));
        let files = files_in(&directory)?;
        let say = || {
            // Recovery may have read records that were written, but not durable yet.
            for (_, path) in files {
                File::open(path)?.sync_data()?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
            file.write_all(&Header { owner, start: end }.encode())?;
            file.sync_all()?;
            // The first end counts: a link does not replace a file.
            match fs::hard_link(&unnamed, &place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => File::open(&directory)?.sync_all(),
            }
        };
        let said = say();
        // A file that stays does no harm.
        let _ = fs::remove_file(&unnamed);
        said.map_err(|error| LogError::new("write", &place, error))?;
        let gone = || LogError::new("read", &place, io::ErrorKind::NotFound.into());
        Ok(self.ended_now(owner)?.ok_or_else(gone)?)
    }

    fn remove_now(&self, owner: LogOwner) -> Result<(), LogError> {
        let directory = self.directory(owner);
        let mut files = archived_in(&directory)?;
        if directory.exists() {
            files.extend(files_in(&directory)?);
        }
        // From the front: the rest is a valid log at any time.
        files.sort();
        for (_, path) in files {
            remove_if_there(&path)?;
        }
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::new("remove", directory, error))
            }
            _ => Ok(()),
        }
    }

    fn keep_labels_now(&self, pool: u64, labels: &Labels) -> Result<(), LogError> {
        let directory = self.pool_directory(pool);
        let place = directory.join(LABELS);
        let unnamed = unnamed_in(&directory, LABELS);
        let keep = || {
            fs::create_dir_all(&directory)?;
            let mut file = File::create(&unnamed)?;
            serde_json::to_writer_pretty(&mut file, labels)?;
            file.sync_all()?;
            fs::rename(&unnamed, &place)?;
            File::open(&directory)?.sync_all()
        };
        keep().map_err(|error: io::Error| LogError::new("write", &place, error))
    }

    fn labels_now(&self, pool: u64) -> Result<Labels, ReadError> {
        let place = self.pool_directory(pool).join(LABELS);
        let bytes = match fs::read(&place) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Labels::new()),
            Err(error) => return Err(LogError::new("read", place, error).into()),
        };
        serde_json::from_slice(&bytes)
            .map_err(|error| ReadError::Place { place, what: error.to_string() })
    }

    /// The error of a task that only writes.
    fn log_error(&self, what: &'static str, error: ReadError) -> LogError {
        match error {
            ReadError::Log(error) => error,
            error => LogError::new(what, &self.root, io::Error::other(error)),
        }
    }

    /// Runs blocking work on a thread of its own.
    fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ReadError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, ReadError>> {
        let done = Completion::new();
        let (own, finish) = (self.clone(), Arc::clone(&done));
        let spawned = thread::Builder::new().name("log".to_owned()).spawn(move || {
            finish.finish(work(&own));
        });
        let failed =
            |error| ReadError::from(LogError::new("start a thread for", &self.root, error));
        match spawned {
            Ok(_) => Box::pin(async move {
                let gone = io::Error::new(io::ErrorKind::BrokenPipe, "its thread has ended");
                done.wait(|| Err(failed(gone))).await
            }),
            Err(error) => Box::pin(async move { Err(failed(error)) }),
        }
    }
}

impl LogStore for LogFiles {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        Box::pin(async move {
            let made = self.apart(move |logs| Ok(logs.create_now(owner)?)).await;
            match made {
                Ok(sink) => Ok(Arc::new(sink) as Arc<dyn Sink>),
                Err(error) => Err(self.log_error("begin a log in", error)),
            }
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        self.apart(move |logs| logs.pieces_now(owner))
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        self.apart(move |logs| logs.piece_now(owner, start))
    }

    fn read_range(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        self.apart(move |logs| logs.read_range_now(owner, from, length))
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        self.apart(move |logs| logs.end_now(owner, end))
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        self.apart(move |logs| logs.ended_now(owner))
    }

    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let removed = self.apart(move |logs| Ok(logs.remove_now(owner)?)).await;
            removed.map_err(|error| self.log_error("remove a log in", error))
        })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        self.apart(Self::owners_now)
    }

    fn archived(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<(Lsn, u64)>, ReadError>> {
        self.apart(move |logs| Ok(logs.archived_now(owner)?))
    }

    fn forget(&self, owner: LogOwner, lsn: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let forgotten = self.apart(move |logs| Ok(logs.forget_now(owner, lsn)?)).await;
            forgotten.map_err(|error| self.log_error("shorten an archive in", error))
        })
    }

    fn keep_labels(&self, pool: u64, labels: Labels) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            let kept = self.apart(move |logs| Ok(logs.keep_labels_now(pool, &labels)?)).await;
            kept.map_err(|error| self.log_error("keep labels in", error))
        })
    }

    fn labels(&self, pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        self.apart(move |logs| logs.labels_now(pool))
    }
}
