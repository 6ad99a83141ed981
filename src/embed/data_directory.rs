//! The directory that an embedded pool is kept in.
//!
//! ```text
//! DIR/lock      locked by the process that has the pool open, as long as it writes there
//! DIR/current   the number of the logs that are whole; 0 before there are some
//! DIR/7/        these logs: all changes of all pages, since the pool was opened
//! ```
//! Memory is gone with a process, so each opening makes a pool anew. Its pages are those that the
//! current logs make; they are recorded in logs with the next number, which are current from when
//! they are durable. Only then are the others removed. A crash on the way leaves the current logs
//! as they were, and what was begun beside them is removed by the next opening, once that has read
//! the current ones.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::options::DISK_LOG_BYTES;
use crate::engine::GAddr;
use crate::engine::log::{
    Labels, LogError, LogFiles, LogOwner, LogStore, MergeError, Pages, first_bytes, free_bytes,
    merge,
};
use crate::fabric::Env;
use crate::pool::units;

/// How long another may take to have its last writes done, and how often that is looked for.
const LOCK_PATIENCE: Duration = Duration::from_secs(3);
const LOOK_EVERY: Duration = Duration::from_millis(20);

const LOCK: &str = "lock";
const CURRENT: &str = "current";
/// What `CURRENT` is written to before it is renamed.
const COMING: &str = "current.new";

/// Why the directory of an embedded pool cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataDirectoryError {
    /// The system refuses.
    #[error("cannot {what} {}: {source}", place.display())]
    System {
        /// What was tried.
        what: &'static str,
        /// With which file or directory.
        place: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Another process has it open.
    #[error("{}: another process has this database open", place.display())]
    InUse {
        /// The directory.
        place: PathBuf,
    },
    /// Something else is kept there.
    #[error(
        "{}: is not empty, and `{entry}` is of no database: give a directory that is new or empty, or one that a \
         database was kept in", place.display()
    )]
    Foreign {
        /// The directory.
        place: PathBuf,
        /// A file or directory in it.
        entry: String,
    },
    /// A database is there, where there must be none.
    #[error("{}: there is a database in this directory already", place.display())]
    Used {
        /// The directory.
        place: PathBuf,
    },
    /// There is too little room.
    #[error(
        "{}: opening the database takes {}, and {} are free there: make room, or give a directory on another file system",
        place.display(), units::bytes(*needed), units::bytes(*free)
    )]
    NoRoom {
        /// The directory.
        place: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// What is there is not whole.
    #[error("{}: {what}", place.display())]
    Damaged {
        /// The file or directory.
        place: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The logs cannot be read.
    #[error("{0}: {source}; `selkie recover --log-dir {0} --dry-run` says more", place.display())]
    Logs {
        /// Their directory.
        place: PathBuf,
        /// The reason.
        source: MergeError,
    },
    /// The logs cannot be listed, or written.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The directory of a pool that is open, locked.
#[derive(Debug)]
pub(super) struct DataDirectory {
    place: PathBuf,
    lock: Arc<File>,
    /// Of the logs that are whole; zero if there are none.
    current: u64,
    /// Of the logs of this opening.
    next: u64,
}

/// What logs make.
pub(super) struct Kept {
    pub(super) lines: BTreeMap<GAddr, Box<[u8]>>,
    pub(super) labels: Labels,
    pub(super) line_bytes: usize,
    /// The latest of all compute nodes. There are later ones of none: the first node of each
    /// opening goes on behind it.
    pub(super) incarnation: u32,
}

impl Kept {
    /// Where the last page ends.
    pub(super) fn end(&self) -> u64 {
        self.lines.last_key_value().map_or(0, |(last, line)| last.to_u64() + line.len() as u64)
    }
}

impl DataDirectory {
    /// Makes the directory if it is not there and there is room, and locks it. Waits for a moment
    /// for another that has it open: one that has ended may have writes under way.
    pub(super) async fn open(place: &Path, env: &Env) -> Result<Self, DataDirectoryError> {
        if !place.exists() {
            // What is refused leaves no directory behind.
            check_room(place, 0)?;
        }
        make(place)?;
        // Whatever the working directory is later on.
        let place = fs::canonicalize(place).map_err(|source| system("find", place, source))?;
        if let Some(entry) = foreign(&place)? {
            return Err(DataDirectoryError::Foreign { place, entry });
        }
        let at = place.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&at);
        let lock = lock.map_err(|source| system("open", &at, source))?;
        let started = env.now();
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if env.now() - started < LOCK_PATIENCE => {
                    env.sleep(LOOK_EVERY).await;
                }
                Err(TryLockError::WouldBlock) => return Err(DataDirectoryError::InUse { place }),
                Err(TryLockError::Error(source)) => return Err(system("lock", &at, source)),
            }
        }
        // A rename that is seen need not have reached the disk.
        sync(&place)?;
        let current = current(&place)?;
        let next = current.checked_add(1).ok_or_else(|| damaged(&place, "too large a number"))?;
        Ok(Self { place, lock: Arc::new(lock), current, next })
    }

    /// Refuses a directory that a database is kept in.
    pub(super) fn check_unused(&self) -> Result<(), DataDirectoryError> {
        match self.current {
            0 => Ok(()),
            _ => Err(DataDirectoryError::Used { place: self.place.clone() }),
        }
    }

    /// The logs of this opening.
    pub(super) fn logs(&self) -> Result<LogFiles, LogError> {
        let files =
            LogFiles::new(&self.of(self.next), first_bytes(DISK_LOG_BYTES), DISK_LOG_BYTES)?;
        Ok(files.with_lock(Arc::clone(&self.lock)))
    }

    /// What the logs make that are there. What an opening has begun that did not end is removed
    /// then.
    pub(super) async fn read(&self) -> Result<Option<Kept>, DataDirectoryError> {
        let kept = match self.current {
            0 => None,
            current => Some(read(&self.of(current)).await?),
        };
        for name in entries(&self.place)? {
            if name.parse::<u64>().is_ok_and(|number| number != self.current) {
                remove(&self.place.join(name))?;
            }
        }
        let pages = kept.as_ref().map_or(0, |kept| kept.lines.len() * kept.line_bytes);
        check_room(&self.place, pages as u64)?;
        Ok(kept)
    }

    /// Makes the logs of this opening the current ones: all that was there is in them, and durable;
    /// so are the labels of the pool with them.
    pub(super) async fn commit(&self, pool: u64, labels: Labels) -> Result<(), DataDirectoryError> {
        self.logs()?.keep_labels(pool, labels).await?;
        // The logs are there before they are current, whatever of the two reaches the disk first.
        sync(&self.place)?;
        set_current(&self.place, self.next)?;
        if self.current > 0
            && let Err(error) = remove(&self.of(self.current))
        {
            // The next opening tries again.
            tracing::warn!(%error, "earlier logs of a database stay");
        }
        Ok(())
    }

    /// Removes the logs of this opening, which has failed, unless they are current.
    pub(super) fn give_up(&self) {
        if current(&self.place).is_ok_and(|current| current == self.current)
            && let Err(error) = remove(&self.of(self.next))
        {
            // The next opening tries again.
            tracing::warn!(%error, "logs of an opening that failed stay");
        }
    }

    fn of(&self, number: u64) -> PathBuf {
        self.place.join(number.to_string())
    }
}

/// Refuses a directory, which may not be there yet, without room for the first log and the pages.
fn check_room(place: &Path, pages: u64) -> Result<(), DataDirectoryError> {
    let needed = pages.saturating_add(first_bytes(DISK_LOG_BYTES));
    match free_bytes(place)? {
        Some(free) if free < needed => {
            Err(DataDirectoryError::NoRoom { place: place.to_owned(), needed, free })
        }
        _ => Ok(()),
    }
}

/// What the logs in a directory make.
async fn read(place: &Path) -> Result<Kept, DataDirectoryError> {
    if !place.is_dir() {
        return Err(damaged(place, "the logs of the database are gone"));
    }
    let store = LogFiles::existing(place);
    let unread = |source: MergeError| DataDirectoryError::Logs { place: place.to_owned(), source };
    let owners = store.owners().await.map_err(|error| unread(error.into()))?;
    let Some(first) = owners.first().copied() else {
        return Err(damaged(place, "the logs of the database are gone"));
    };
    let is_own =
        |owner: &LogOwner| (owner.pool, owner.line_bytes) == (first.pool, first.line_bytes);
    if !owners.iter().all(is_own) {
        return Err(damaged(place, "there are logs of several pools"));
    }
    let line_bytes = first.line_bytes as usize;
    let mut pages = Pages::new(line_bytes);
    merge(&store, &owners, &mut pages, false).await.map_err(unread)?;
    pages.retain(|page| !selkie_txn::is_unlinked(page));
    let labels = store.labels(first.pool).await.map_err(|error| unread(error.into()))?;
    let incarnation = owners.iter().map(|owner| owner.incarnation).max().unwrap_or_default();
    Ok(Kept { lines: pages.into_lines(), labels, line_bytes, incarnation })
}

fn system(what: &'static str, place: &Path, source: io::Error) -> DataDirectoryError {
    DataDirectoryError::System { what, place: place.to_owned(), source }
}

fn damaged(place: &Path, what: &str) -> DataDirectoryError {
    DataDirectoryError::Damaged { place: place.to_owned(), what: what.to_owned() }
}

/// Makes a directory that only its owner can read, unless it is there, and those above it.
fn make(place: &Path) -> Result<(), DataDirectoryError> {
    if place.is_dir() {
        return Ok(());
    }
    let above = match place.parent() {
        Some(above) if above.as_os_str().is_empty() => Path::new("."),
        Some(above) => above,
        None => Path::new("/"),
    };
    make(above)?;
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700);
    match builder.create(place) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && place.is_dir() => {}
        made => made.map_err(|source| system("make", place, source))?,
    }
    sync(above)
}

/// Makes durable which files and directories a directory has.
fn sync(place: &Path) -> Result<(), DataDirectoryError> {
    let synced = File::open(place).and_then(|directory| directory.sync_all());
    synced.map_err(|source| system("sync", place, source))
}

fn remove(place: &Path) -> Result<(), DataDirectoryError> {
    fs::remove_dir_all(place).map_err(|source| system("remove", place, source))
}

/// The number of the logs that are whole. Says durably that there are none in a new directory: so
/// logs are never taken for those of an opening that did not end because the number is gone.
fn current(place: &Path) -> Result<u64, DataDirectoryError> {
    let at = place.join(CURRENT);
    match fs::read_to_string(&at) {
        Ok(text) => text
            .strip_suffix('\n')
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| damaged(&at, &format!("{text:?} is not the number of logs"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if entries(place)?.iter().any(|name| name.parse::<u64>().is_ok()) {
                return Err(damaged(&at, "is gone, which says which logs are whole"));
            }
            set_current(place, 0)?;
            Ok(0)
        }
        Err(source) => Err(system("read", &at, source)),
    }
}

/// Says durably which logs are whole.
fn set_current(place: &Path, number: u64) -> Result<(), DataDirectoryError> {
    let (coming, at) = (place.join(COMING), place.join(CURRENT));
    let written = File::create(&coming).and_then(|mut file| {
        file.write_all(format!("{number}\n").as_bytes())?;
        file.sync_all()
    });
    written.map_err(|source| system("write", &coming, source))?;
    fs::rename(&coming, &at).map_err(|source| system("write", &at, source))?;
    sync(place)
}

fn entries(place: &Path) -> Result<Vec<String>, DataDirectoryError> {
    let read = || -> io::Result<Vec<String>> {
        let name =
            |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().to_string_lossy().into_owned());
        fs::read_dir(place)?.map(name).collect()
    };
    read().map_err(|source| system("read", place, source))
}

/// A file or directory that is of no database.
fn foreign(place: &Path) -> Result<Option<String>, DataDirectoryError> {
    let names = entries(place)?;
    // A directory that is empty but for what others put there may still be a database's.
    let is_database = names.iter().any(|name| name == LOCK);
    let is_own = |name: &str| {
        [LOCK, CURRENT, COMING].contains(&name) || is_database && name.parse::<u64>().is_ok()
    };
    Ok(names.into_iter().find(|name| !is_own(name)))
}
