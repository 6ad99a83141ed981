//! Logs in directories: for each a directory of its own, with files of a fixed length, one after the other, each named after
//! the place where it begins.
//!
//! ```text
//! ROOT/<pool>/<node>-<incarnation>/<LSN>.slog
//! ```
//! A thread writes a log, as no file can be written without waiting. A file gets all of its length when it is made, so that
//! making bytes in it durable takes no more than these bytes (`fdatasync`). Records do not go across files.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use selkie_fabric::{BoxFuture, Doorbell};

use super::record::Lsn;
use super::store::{FIRST_LSN, LogError, LogOwner, LogStore, Piece, ReadError, Sink, Written};
use crate::coding::checksum;

const MAGIC: [u8; 8] = *b"SELKIElg";
/// Version of the files, and of the records in them.
const VERSION: u32 = 1;
/// Bytes of a file before its records: a sector, so that records begin with one.
const HEADER_BYTES: u64 = 512;
/// Bytes of the header that its checksum covers, which stands after them.
const COVERED: usize = 48;
const SUFFIX: &str = "slog";
/// Least and most bytes of a file.
const FILE_BYTES: std::ops::RangeInclusive<u64> = 1 << 16..=1 << 32;
/// Least files that a log may take.
const LEAST_FILES: u64 = 4;

/// The header of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    owner: LogOwner,
    start: Lsn,
}

impl Header {
    fn encode(self) -> [u8; HEADER_BYTES as usize] {
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

    /// The header, or what is wrong with it.
    fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
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
}

impl LogFiles {
    /// Logs below a directory, which is made if it is not there, in files with `file_bytes` bytes of records (64 KiB to
    /// 4 GiB); each may keep `capacity` bytes, four files at least.
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
        let attempt = root.join(format!(".attempt-{}", std::process::id()));
        File::create(&attempt).map_err(|error| failed("write in", error))?;
        fs::remove_file(&attempt).map_err(|error| failed("write in", error))?;
        Ok(Self { root: root.into(), file_bytes, capacity })
    }

    /// Logs that are there already, to be read.
    #[must_use]
    pub fn existing(root: &Path) -> Self {
        Self { root: root.into(), file_bytes: *FILE_BYTES.start(), capacity: 0 }
    }

    fn directory(&self, owner: LogOwner) -> PathBuf {
        let pool = self.root.join(format!("{:016x}", owner.pool));
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
        if !directory.exists() {
            return Ok(Vec::new());
        }
        Ok(files_in(&directory)?.into_iter().map(|(start, _)| start).collect())
    }

    fn piece_now(&self, owner: LogOwner, start: Lsn) -> Result<Piece, ReadError> {
        let place = path_of(&self.directory(owner), start);
        let refused = |what: String| ReadError::Place { place: place.clone(), what };
        let bytes = fs::read(&place).map_err(|error| LogError::new("read", &place, error))?;
        let own = Header::decode(&bytes).map_err(|what| refused(what.to_owned()))?;
        if own.start != start {
            return Err(refused(format!("it says that it begins at {}", own.start)));
        }
        if own.owner != owner {
            return Err(refused(format!("it is of another log: {:?}, not {owner:?}", own.owner)));
        }
        let mut bytes = bytes;
        bytes.drain(..HEADER_BYTES as usize);
        Ok(Piece { place, offset: HEADER_BYTES, bytes })
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

    fn remove_now(&self, owner: LogOwner) -> Result<(), LogError> {
        let directory = self.directory(owner);
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LogError::new("remove", directory, error))
            }
            _ => Ok(()),
        }
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
}

/// A file that is being written.
struct Open {
    file: File,
    path: PathBuf,
    start: Lsn,
    bytes: u64,
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
                    // Begun anew with the same bytes: the system may have forgotten what it could not write.
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
        open.file.sync_data().map_err(failed("make durable"))
    }

    /// A file that begins at this place, for so many bytes at least. One that an earlier try has left is made anew.
    fn next_file(&self, start: Lsn, least: u64) -> Result<Open, LogError> {
        let path = path_of(&self.directory, start);
        let bytes = self.file_bytes.max(least);
        let header = Header { owner: self.owner, start };
        let make = || {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
            rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, HEADER_BYTES + bytes)?;
            file.write_all_at(&header.encode(), 0)?;
            file.sync_all()?;
            // Its name, too.
            File::open(&self.directory)?.sync_all()?;
            Ok(file)
        };
        let file = make().map_err(|error: io::Error| {
            let _ = fs::remove_file(&path);
            LogError::new("make", &path, error)
        })?;
        Ok(Open { file, path, start, bytes })
    }

    fn truncate(&self, below: Lsn) -> Result<Lsn, LogError> {
        let files = files_in(&self.directory)?;
        let mut first = files.first().map_or(FIRST_LSN, |(start, _)| *start);
        for ((_, path), (next, _)) in files.iter().zip(files.iter().skip(1)) {
            if *next > below {
                break;
            }
            fs::remove_file(path).map_err(|error| LogError::new("remove", path, error))?;
            first = *next;
        }
        Ok(first)
    }
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
    use crate::buffer::dirty::Dirty;
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
