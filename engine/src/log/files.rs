//! Logs in directories: for each a directory of its own, with files of a fixed length, one after
//! the other, each named after the place where it begins.
//!
//! ```text
//! ROOT/<pool>/<node>-<incarnation>/<LSN>.slog           what may have to be redone
//! ROOT/<pool>/<node>-<incarnation>/archive/<LSN>.slog   what is home, for whoever makes another pool of all logs
//! ROOT/<pool>/<node>-<incarnation>/ended                a header: where the log of one who was taken for dead ends
//! ROOT/<pool>/labels.json                               the pool's labels, for the same
//! ```
//! A thread writes a log, as no file can be written without waiting. A file gets all of its length
//! when it is made, so that making bytes in it durable takes no more than these bytes
//! (`fdatasync`). Records do not go across files.

use std::collections::hash_map::RandomState;
use std::fs::{self, File, OpenOptions};
use std::hash::BuildHasher;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use selkie_fabric::{BoxFuture, Doorbell};

use super::record::Lsn;
use super::store::{
    FIRST_LSN, Labels, LogError, LogOwner, LogStore, Piece, ReadError, Sink, Written,
};
use selkie_pool::checksum;

const MAGIC: [u8; 8] = *b"SELKIElg";
/// Version of the files, and of the records in them.
const VERSION: u32 = 1;
/// Bytes of a file before its records: a sector, so that records begin with one.
pub(super) const HEADER_BYTES: u64 = 512;
/// Bytes of the header that its checksum covers, which stands after them.
const COVERED: usize = 48;
/// Of files that a log was cut off, in the directory of the log.
const ARCHIVE: &str = "archive";
pub(super) const SUFFIX: &str = "slog";
/// Says where a log ends.
pub(super) const ENDED: &str = "ended";
/// Of a file that is being made.
const UNNAMED: &str = "new";
/// Beside the logs of a pool.
pub(super) const LABELS: &str = "labels.json";
/// Least and most bytes of a file.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 32;
/// Least files that a log may take.
const LEAST_FILES: u64 = 4;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) owner: LogOwner,
    pub(super) start: Lsn,
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES as usize] {
        let Self { owner: LogOwner { pool, node, incarnation, line_bytes }, start } = self;
        let mut bytes = Vec::with_capacity(HEADER_BYTES as usize);
        bytes.extend_from_slice(&MAGIC);
        for word in [VERSION, line_bytes, u32::from(node), incarnation] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&pool.to_le_bytes());
        bytes.extend_from_slice(&start.to_le_bytes());
        bytes.resize(COVERED, 0);
        bytes.extend_from_slice(&checksum(&bytes).to_le_bytes());
        bytes.resize(HEADER_BYTES as usize, 0);
        bytes.try_into().unwrap_or([0; HEADER_BYTES as usize])
    }

    /// The place that a header of this log names, or what is wrong with it.
    pub(super) fn of(owner: LogOwner, bytes: &[u8]) -> Result<Lsn, String> {
        let header = Self::decode(bytes)?;
        if header.owner != owner {
            return Err(format!("it is of another log: {:?}, not {owner:?}", header.owner));
        }
        Ok(header.start)
    }

    /// The header, or what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let bytes: &[u8; HEADER_BYTES as usize] =
            bytes.first_chunk().ok_or("it is shorter than its header")?;
        let word = |at: usize| {
            bytes
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .map_or(0, |word| u32::from_le_bytes(*word))
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        if !bytes.starts_with(&MAGIC) {
            return Err("it is no file of a log");
        }
        if word(8) != VERSION {
            return Err("it is of another version");
        }
        if checksum(bytes.get(..COVERED).unwrap_or_default()) != word(COVERED) {
            return Err("its header is damaged");
        }
        let node = u16::try_from(word(16)).map_err(|_| "it is of no node that can be")?;
        let (line_bytes, incarnation) = (word(12), word(20));
        let owner = LogOwner { pool: long(24), node, incarnation, line_bytes };
        Ok(Self { owner, start: long(32) })
    }
}

/// A directory of logs.
#[derive(Clone, Debug)]
pub struct LogFiles {
    root: PathBuf,
    file_bytes: u64,
    capacity: u64,
    /// Pieces of a log are also those that it was cut off.
    reads_archives: bool,
}

impl LogFiles {
    /// Logs below a directory, which is made if it is not there, in files with `file_bytes` bytes
    /// of records (64 KiB to 4 GiB); each may keep `capacity` bytes, four files at least.
    ///
    /// # Errors
    /// [`LogError`] if it cannot be made, cannot be written in, or a size cannot be.
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
        fs::create_dir_all(root).map_err(|error| failed("make", error))?;
        // Known now rather than with the first commit.
        let thread = thread::current().id();
        let attempt = root.join(format!(".attempt-{}-{thread:?}", std::process::id()));
        File::create(&attempt).map_err(|error| failed("write in", error))?;
        fs::remove_file(&attempt).map_err(|error| failed("write in", error))?;
        Ok(Self { root: root.into(), file_bytes, capacity, reads_archives: false })
    }

    /// Logs that are there already, to be read, with what they were cut off.
    #[must_use]
    pub fn existing(root: &Path) -> Self {
        let file_bytes = *FILE_BYTES.start();
        Self { root: root.into(), file_bytes, capacity: 0, reads_archives: true }
    }

    fn pool_directory(&self, pool: u64) -> PathBuf {
        self.root.join(format!("{pool:016x}"))
    }

    fn directory(&self, owner: LogOwner) -> PathBuf {
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
        // The names of the directories last as well.
        for made in [directory.parent(), Some(&*self.root)].into_iter().flatten() {
            let synced = File::open(made).and_then(|directory| directory.sync_all());
            synced.map_err(|error| LogError::new("make durable", made, error))?;
        }
        let (jobs, queue) = mpsc::channel();
        let file_bytes = self.file_bytes;
        let mut writer = Writer { directory: directory.clone(), owner, file_bytes, open: None };
        // A log without a file would be none: what its node has is lost then, though it has changed
        // nothing yet.
        writer.open = Some(writer.next_file(FIRST_LSN, 0)?);
        let run = move || {
            while let Ok(job) = queue.recv() {
                writer.run(job);
            }
        };
        let spawned = thread::Builder::new().name("log".to_owned()).spawn(run);
        spawned
            .map_err(|error| LogError::new("start a thread for the log in", &directory, error))?;
        Ok(FileSink { jobs, directory, capacity: self.capacity })
    }

    fn pieces_now(&self, owner: LogOwner) -> Result<Vec<Lsn>, ReadError> {
        let directory = self.directory(owner);
        let mut files = if directory.exists() { files_in(&directory)? } else { Vec::new() };
        if self.reads_archives {
            // Last: one that is archived meanwhile is in both, rather than in none.
            files.extend(archived_in(&directory)?);
        }
        files.sort();
        files.dedup_by_key(|(start, _)| *start);
        Ok(files.into_iter().map(|(start, _)| start).collect())
    }

    fn archived_now(&self, owner: LogOwner) -> Result<Vec<(Lsn, u64)>, LogError> {
        let files = archived_in(&self.directory(owner))?.into_iter();
        // Another may have forgotten one meanwhile.
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

    fn stretch_now(&self, owner: LogOwner, from: Lsn, length: u64) -> Result<Piece, ReadError> {
        let starts = Self { reads_archives: true, ..self.clone() }.pieces_now(owner)?;
        let place = self.directory(owner);
        let Some(start) = starts.iter().rev().find(|start| **start <= from).copied() else {
            return Err(ReadError::Cut { place, from, kept: starts.first().copied() });
        };
        let next = starts.iter().find(|next| **next > start);
        // Of a file that another follows its records.
        let length = next.map_or(length, |next| length.min(next.saturating_sub(from)));
        let offset = HEADER_BYTES + from - start;
        let read = |path: &Path| {
            let file = File::open(path)?;
            let there = file.metadata()?.len().saturating_sub(offset).min(length);
            let mut bytes = vec![0; there as usize];
            file.read_exact_at(&mut bytes, offset).map(|()| bytes)
        };
        // The second is where the first goes.
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
            // Nobody reads it again.
            return Ok(end);
        }
        let (place, unnamed) = (directory.join(ENDED), unnamed_in(&directory, ENDED));
        let files = files_in(&directory)?;
        let say = || {
            // What comes before may have been read when it was written, and not durable yet.
            for (_, path) in files {
                File::open(path)?.sync_data()?;
            }
            let mut file = OpenOptions::new().write(true).create_new(true).open(&unnamed)?;
            file.write_all(&Header { owner, start: end }.encode())?;
            file.sync_all()?;
            // Whoever is first counts: a name is given once.
            match fs::hard_link(&unnamed, &place) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => File::open(&directory)?.sync_all(),
            }
        };
        let said = say();
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
        // From the front: whatever is left of it at any time is a log.
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

    /// Has a thread of its own do what waits for files.
    fn apart<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, ReadError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, ReadError>> {
        let done = Done::new();
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
                Err(ReadError::Log(error)) => Err(error),
                Err(error) => {
                    Err(LogError::new("begin a log in", &self.root, io::Error::other(error)))
                }
            }
        })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        self.apart(move |logs| logs.pieces_now(owner))
    }

    fn piece(&self, owner: LogOwner, start: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        self.apart(move |logs| logs.piece_now(owner, start))
    }

    fn stretch(
        &self,
        owner: LogOwner,
        from: Lsn,
        length: u64,
    ) -> BoxFuture<'_, Result<Piece, ReadError>> {
        self.apart(move |logs| logs.stretch_now(owner, from, length))
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        self.apart(move |logs| logs.end_now(owner, end))
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        self.apart(move |logs| logs.ended_now(owner))
    }

    fn remove(&self, owner: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            match self.apart(move |logs| Ok(logs.remove_now(owner)?)).await {
                Err(ReadError::Log(error)) => Err(error),
                _ => Ok(()),
            }
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
            match self.apart(move |logs| Ok(logs.forget_now(owner, lsn)?)).await {
                Err(ReadError::Log(error)) => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn keep_labels(&self, pool: u64, labels: Labels) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async move {
            match self.apart(move |logs| Ok(logs.keep_labels_now(pool, &labels)?)).await {
                Err(ReadError::Log(error)) => Err(error),
                _ => Ok(()),
            }
        })
    }

    fn labels(&self, pool: u64) -> BoxFuture<'_, Result<Labels, ReadError>> {
        self.apart(move |logs| logs.labels_now(pool))
    }
}

/// A file that is being written.
struct Open {
    file: File,
    path: PathBuf,
    start: Lsn,
    bytes: u64,
    /// Where the records in it end.
    end: Lsn,
}

/// What the thread is asked to do.
enum Job {
    Append { at: Lsn, bytes: Vec<u8>, done: Arc<Done<Written>> },
    Truncate { below: Lsn, done: Arc<Done<Result<Lsn, LogError>>> },
}

/// The result of a job, when it is there.
struct Done<T> {
    result: Mutex<Option<T>>,
    bell: Doorbell,
}

impl<T> Done<T> {
    fn new() -> Arc<Self> {
        Arc::new(Self { result: Mutex::new(None), bell: Doorbell::default() })
    }

    fn finish(&self, result: T) {
        *self.result.lock() = Some(result);
        self.bell.ring();
    }

    async fn wait(&self, or: impl FnOnce() -> T) -> T {
        self.bell.wait_past(0).await;
        self.result.lock().take().unwrap_or_else(or)
    }
}

/// A log in files.
struct FileSink {
    jobs: mpsc::Sender<Job>,
    directory: PathBuf,
    capacity: u64,
}

impl FileSink {
    fn gone(&self) -> LogError {
        let error = io::Error::new(io::ErrorKind::BrokenPipe, "its thread has ended");
        LogError::new("write the log in", &self.directory, error)
    }
}

impl Sink for FileSink {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let done = Done::new();
            if let Err(mpsc::SendError(job)) =
                self.jobs.send(Job::Append { at, bytes, done: Arc::clone(&done) })
            {
                let bytes = if let Job::Append { bytes, .. } = job { bytes } else { Vec::new() };
                return Written { bytes, result: Err(self.gone()) };
            }
            let gone = || Written { bytes: Vec::new(), result: Err(self.gone()) };
            done.wait(gone).await
        })
    }

    fn truncate(&self, below: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let done = Done::new();
            let job = Job::Truncate { below, done: Arc::clone(&done) };
            self.jobs.send(job).map_err(|_| self.gone())?;
            done.wait(|| Err(self.gone())).await
        })
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }
}

/// What the thread works with.
struct Writer {
    directory: PathBuf,
    owner: LogOwner,
    file_bytes: u64,
    open: Option<Open>,
}

impl Writer {
    fn run(&mut self, job: Job) {
        match job {
            Job::Append { at, bytes, done } => {
                let result = self.append(at, &bytes);
                if result.is_err() {
                    // Begun anew with the same bytes: the system may have forgotten what it could
                    // not write.
                    self.open = None;
                }
                done.finish(Written { bytes, result });
            }
            Job::Truncate { below, done } => done.finish(self.truncate(below)),
        }
    }

    fn append(&mut self, at: Lsn, bytes: &[u8]) -> Result<(), LogError> {
        let fits = |open: &&mut Open| {
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

    /// A file that begins at this place, for so many bytes at least. One that an earlier try has
    /// left is made anew.
    fn next_file(&self, start: Lsn, least: u64) -> Result<Open, LogError> {
        let path = path_of(&self.directory, start);
        let bytes = self.file_bytes.max(least);
        let header = Header { owner: self.owner, start };
        // Under its own name only when it is one: who dies here leaves nothing that would be read.
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
            let _ = fs::remove_file(&unnamed);
            LogError::new("make", &path, error)
        })?;
        Ok(Open { file, path, start, bytes, end: start })
    }

    /// Puts a file with so many bytes of records to those that are kept for another pool.
    fn archive(&self, path: &Path, length: u64) -> Result<(), LogError> {
        let archive = self.directory.join(ARCHIVE);
        let name = path.file_name().unwrap_or_default();
        let put = || {
            fs::create_dir_all(&archive)?;
            // What it was made for and does not need.
            OpenOptions::new().write(true).open(path)?.set_len(HEADER_BYTES + length)?;
            fs::rename(path, archive.join(name))
        };
        put().map_err(|error| LogError::new("archive", path, error))
    }

    fn truncate(&mut self, below: Lsn) -> Result<Lsn, LogError> {
        let is_all = |open: &Open| open.end == below && open.start < below;
        if self.open.as_ref().is_some_and(is_all) {
            // All that is kept may be in one file, which nothing more would be added to.
            self.open = Some(self.next_file(below, 0)?);
        }
        let files = files_in(&self.directory)?;
        let mut first = files.first().map_or(FIRST_LSN, |(start, _)| *start);
        for ((start, path), (next, _)) in files.iter().zip(files.iter().skip(1)) {
            if *next > below {
                break;
            }
            self.archive(path, next - start)?;
            first = *next;
        }
        Ok(first)
    }
}

fn remove_if_there(path: &Path) -> Result<(), LogError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(LogError::new("remove", path, error))
        }
        _ => Ok(()),
    }
}

/// The archived files of a log, in order, each with the place where it begins.
fn archived_in(directory: &Path) -> Result<Vec<(Lsn, PathBuf)>, LogError> {
    let archive = directory.join(ARCHIVE);
    if archive.exists() { files_in(&archive) } else { Ok(Vec::new()) }
}

/// The name of a file that is being made, and nobody else's: others may make the same one now, also
/// of other hosts.
fn unnamed_in(directory: &Path, name: &str) -> PathBuf {
    let unique = RandomState::new().hash_one(std::process::id());
    directory.join(format!("{name}-{unique:016x}.{UNNAMED}"))
}

fn path_of(directory: &Path, start: Lsn) -> PathBuf {
    directory.join(format!("{start:016x}.{SUFFIX}"))
}

/// The first bytes of a file.
fn head_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, HEADER_BYTES), &mut bytes)?;
    Ok(bytes)
}

fn directories_in(directory: &Path) -> Result<Vec<PathBuf>, LogError> {
    let failed = |error| LogError::new("list", directory, error);
    let mut all = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            all.push(path);
        }
    }
    Ok(all)
}

/// The files of a log, in order, each with the place where it begins.
fn files_in(directory: &Path) -> Result<Vec<(Lsn, PathBuf)>, LogError> {
    let failed = |error| LogError::new("list", directory, error);
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_none_or(|extension| extension != SUFFIX) {
            continue;
        }
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let start = stem.and_then(|stem| Lsn::from_str_radix(stem, 16).ok());
        let Some(start) = start else {
            let error = io::Error::new(io::ErrorKind::InvalidData, "its name is no place in a log");
            return Err(LogError::new("read", path, error));
        };
        files.push((start, path));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use selkie_fabric::env::RealRuntime;

    use super::*;
    use crate::GAddr;
    use crate::cache::dirty::Dirty;
    use crate::log::record::{Change, Record, encode};
    use crate::log::scan::LogEnd;
    use crate::log::store::read_log;

    const LINE: usize = 512;

    const OWNER: LogOwner = LogOwner { pool: 9, node: 3, incarnation: 1, line_bytes: LINE as u32 };

    fn logs(place: &Path) -> LogFiles {
        LogFiles::new(&place.join("logs"), 1 << 16, 1 << 20).unwrap()
    }

    /// A log, and where it ends.
    struct Writing {
        sink: Arc<dyn Sink>,
        end: Lsn,
    }

    async fn begin(logs: &LogFiles) -> Writing {
        Writing { sink: logs.create(OWNER).await.unwrap(), end: FIRST_LSN }
    }

    /// A record of a whole line.
    fn record(lsn: Lsn, durable: Lsn, number: u64) -> Vec<u8> {
        let line = vec![number as u8; LINE];
        let change = Change {
            addr: GAddr::from_u64(LINE as u64),
            psn: number,
            pieces: Dirty::ALL,
            line: &line,
        };
        let mut bytes = Vec::new();
        encode(&mut bytes, OWNER.format().salt, (lsn, durable), &[change]);
        bytes
    }

    /// Writes so many records, each an append of its own.
    async fn write(log: &mut Writing, records: std::ops::Range<u64>) {
        for number in records {
            let bytes = record(log.end, log.end, number);
            let length = bytes.len() as u64;
            log.sink.append(log.end, bytes).await.result.unwrap();
            log.end += length;
        }
    }

    async fn numbers(logs: &LogFiles) -> (Vec<u64>, Result<Option<LogEnd>, ReadError>) {
        let mut numbers = Vec::new();
        let visit = |record: Record<'_>| numbers.extend(record.pages().map(|redo| redo.psn()));
        let end = read_log(logs, OWNER, visit).await;
        (numbers, end)
    }

    #[test]
    fn what_was_written_is_read_file_by_file() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            write(&mut log, 0..500).await;
            let files = files_in(&logs.directory(OWNER)).unwrap();
            assert!(files.len() > 3, "{files:?}");
            let (read, ended) = numbers(&logs).await;
            assert_eq!(read, (0..500).collect::<Vec<_>>());
            assert_eq!(ended.unwrap().unwrap().lsn, log.end);
            assert_eq!(logs.owners().await.unwrap(), [OWNER]);
            // Nobody needs what comes before the third file.
            assert_eq!(log.sink.truncate(files[2].0 + 8).await.unwrap(), files[2].0);
            let (read, _) = numbers(&logs).await;
            assert_eq!(files_in(&logs.directory(OWNER)).unwrap(), files[2..]);
            assert_eq!(*read.last().unwrap(), 499);
            let again = logs.create(OWNER).await.map(drop).unwrap_err().to_string();
            assert!(again.contains("a log is there"), "{again}");
            let other = LogOwner { incarnation: 2, ..OWNER };
            assert!(read_log(&logs, other, |_| ()).await.unwrap().is_none());
            logs.create(other)
                .await
                .unwrap()
                .append(FIRST_LSN, record(FIRST_LSN, 0, 0))
                .await
                .result
                .unwrap();
            assert_eq!(logs.owners().await.unwrap(), [OWNER, other]);
            logs.remove(OWNER).await.unwrap();
            logs.remove(OWNER).await.unwrap();
            assert_eq!(logs.owners().await.unwrap(), [other]);
        });
    }

    #[test]
    fn a_log_ends_where_it_was_first_said_to() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            write(&mut log, 0..20).await;
            assert_eq!(logs.ended(OWNER).await.unwrap(), None);
            let end = log.end;
            assert_eq!(logs.end_at(OWNER, end).await.unwrap(), end);
            // Enough for more files.
            write(&mut log, 20..500).await;
            assert_eq!(logs.end_at(OWNER, log.end).await.unwrap(), end, "it was said");
            assert_eq!(logs.ended(OWNER).await.unwrap(), Some(end));
            let read = numbers(&logs).await;
            assert_eq!((read.0.len(), read.1.unwrap().unwrap().lsn), (20, end));
            // A record that others have read is not there any more.
            let first = path_of(&logs.directory(OWNER), FIRST_LSN);
            let file = OpenOptions::new().write(true).open(&first).unwrap();
            file.write_all_at(&[0xEE; 8], HEADER_BYTES + end - FIRST_LSN - 16).unwrap();
            let (read, short) = numbers(&logs).await;
            assert!(matches!(short, Err(ReadError::Damaged { .. })), "{short:?}");
            assert_eq!(read.len(), 19);
            fs::write(logs.directory(OWNER).join(ENDED), [7; 600]).unwrap();
            let (_, wrong) = numbers(&logs).await;
            assert!(wrong.unwrap_err().to_string().contains("no file of a log"));
            logs.remove(OWNER).await.unwrap();
            assert_eq!(logs.end_at(OWNER, 4711).await.unwrap(), 4711, "nobody reads it");
            assert!(!logs.directory(OWNER).exists());
        });
    }

    #[test]
    fn a_log_that_is_written_is_followed_file_by_file() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            let (mut at, mut numbers) = (FIRST_LSN, Vec::new());
            for part in 0..10 {
                write(&mut log, part * 50..part * 50 + 50).await;
                while at < log.end {
                    let Piece { bytes, .. } = logs.stretch(OWNER, at, 5000).await.unwrap();
                    assert!(bytes.len() <= 5000);
                    let visit = |record: Record<'_>| {
                        numbers.extend(record.pages().map(|redo| redo.psn()));
                    };
                    let end = crate::log::scan(&bytes, at, OWNER.format(), visit).unwrap().lsn;
                    assert!(end > at, "it goes on");
                    at = end;
                }
            }
            assert_eq!(numbers, (0..500).collect::<Vec<_>>());
            let kept = log.sink.truncate(log.end).await.unwrap();
            let behind = logs.stretch(OWNER, FIRST_LSN, 5000).await.unwrap();
            assert_eq!(behind.bytes.len(), 5000, "it is there for those who are behind");
            logs.forget(OWNER, kept).await.unwrap();
            let error = logs.stretch(OWNER, FIRST_LSN, 5000).await.unwrap_err();
            assert!(
                matches!(error, ReadError::Cut { kept: Some(at), .. } if at == kept),
                "{error}"
            );
        });
    }

    /// One that dies at once has left what it was given, and that was nothing.
    #[test]
    fn a_log_that_was_only_begun_is_there() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            drop(begin(&logs).await);
            let (read, ended) = numbers(&logs).await;
            assert_eq!((read.len(), ended.unwrap().unwrap().lsn), (0, FIRST_LSN));
            assert_eq!(logs.owners().await.unwrap(), [OWNER]);
        });
    }

    #[test]
    fn a_file_that_was_only_begun_is_none() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            write(&mut log, 0..500).await;
            let files = files_in(&logs.directory(OWNER)).unwrap();
            let next = path_of(&logs.directory(OWNER), log.end);
            fs::write(next.with_extension(UNNAMED), "half a hea").unwrap();
            let (read, ended) = numbers(&logs).await;
            assert_eq!(read, (0..500).collect::<Vec<_>>());
            assert_eq!(ended.unwrap().unwrap().lsn, log.end);
            assert_eq!(files_in(&logs.directory(OWNER)).unwrap(), files);
        });
    }

    #[test]
    fn a_log_of_which_nothing_is_needed_keeps_no_records() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            // More in one file than the log should keep.
            let large: Vec<u8> = (0..900).flat_map(|number| record(0, 0, number)).collect();
            let end = log.end + large.len() as u64;
            log.sink.append(log.end, large).await.result.unwrap();
            assert_eq!(log.sink.truncate(end).await.unwrap(), end);
            assert_eq!(log.sink.truncate(end).await.unwrap(), end);
            log.end = end;
            write(&mut log, 900..950).await;
            let (read, ended) = numbers(&logs).await;
            assert_eq!(read, (900..950).collect::<Vec<_>>());
            assert_eq!(ended.unwrap().unwrap().lsn, log.end);
        });
    }

    #[test]
    fn a_log_that_lacks_something_is_refused_with_file_and_place() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            write(&mut begin(&logs).await, 0..500).await;
            let files = files_in(&logs.directory(OWNER)).unwrap();
            let (_, second) = &files[1];
            let whole = fs::read(second).unwrap();
            let length = record(0, 0, 0).len();
            // A bit of a record in the middle.
            let mut bytes = whole.clone();
            bytes[HEADER_BYTES as usize + 2 * length + 40] ^= 1;
            fs::write(second, &bytes).unwrap();
            let at = HEADER_BYTES + 2 * length as u64;
            match numbers(&logs).await.1 {
                Err(ReadError::Damaged { place, at: found, .. }) => {
                    assert_eq!((&place, found), (second, at))
                }
                other => panic!("{other:?}"),
            }
            // The end of a file that another one follows.
            fs::write(second, &whole[..whole.len() - 3 * length]).unwrap();
            assert!(matches!(numbers(&logs).await.1, Err(ReadError::Damaged { .. })));
            // A whole file.
            fs::remove_file(second).unwrap();
            assert!(matches!(numbers(&logs).await.1, Err(ReadError::Damaged { .. })));
            // Headers.
            let refused = async |bytes: &[u8], what: &str| {
                fs::write(second, bytes).unwrap();
                let error = numbers(&logs).await.1.unwrap_err().to_string();
                assert!(error.contains(what) && error.contains("slog"), "{error}");
            };
            refused(&whole[..100], "shorter than its header").await;
            refused(&[0; 1024], "no file of a log").await;
            for (byte, what) in
                [(8, "another version"), (12, "header is damaged"), (33, "header is damaged")]
            {
                let mut bytes = whole.clone();
                bytes[byte] ^= 1;
                refused(&bytes, what).await;
            }
            let rest = &whole[HEADER_BYTES as usize..];
            let owner = LogOwner { pool: 8, ..OWNER };
            let header = Header { owner, start: files[1].0 };
            refused(&[&header.encode()[..], rest].concat(), "another log").await;
            let header = Header { owner: OWNER, start: 7 };
            refused(&[&header.encode()[..], rest].concat(), "begins at 7").await;
        });
    }

    #[test]
    fn what_cannot_be_written_is_tried_again() {
        let place = tempfile::tempdir().unwrap();
        let logs = logs(place.path());
        RealRuntime::new(1).unwrap().block_on(async {
            let mut log = begin(&logs).await;
            write(&mut log, 0..100).await;
            // No file can be made in its place.
            let directory = logs.directory(OWNER);
            let next = path_of(&directory, log.end);
            let aside = place.path().join("aside");
            fs::rename(&directory, &aside).unwrap();
            let length = record(0, 0, 0).len() as u64;
            let large: Vec<u8> = (0..200)
                .flat_map(|number| record(log.end + number * length, log.end, 100 + number))
                .collect();
            let written = log.sink.append(log.end, large.clone()).await;
            let error = written.result.unwrap_err();
            assert!(error.to_string().contains(next.to_str().unwrap()), "{error}");
            fs::rename(&aside, &directory).unwrap();
            log.sink.append(log.end, written.bytes).await.result.unwrap();
            let (read, ended) = numbers(&logs).await;
            assert_eq!(read, (0..300).collect::<Vec<_>>());
            assert_eq!(ended.unwrap().unwrap().lsn, log.end + 200 * length);
        });
    }

    #[test]
    fn a_place_where_no_log_can_be_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let refused = |root: &Path, file_bytes, capacity, what: &str| {
            let error = LogFiles::new(root, file_bytes, capacity).unwrap_err().to_string();
            assert!(error.contains(what) && error.contains(root.to_str().unwrap()), "{error}");
        };
        refused(place.path(), 1 << 10, 1 << 30, "64 KiB to 4 GiB");
        refused(place.path(), 1 << 16, 1 << 17, "262144 or more");
        let file = place.path().join("file");
        fs::write(&file, "no directory").unwrap();
        refused(&file, 1 << 16, 1 << 20, "cannot make");
        refused(&file.join("below"), 1 << 16, 1 << 20, "cannot make");
    }
}
