//! The directory that an embedded pool is kept in.
//!
//! ```text
//! DIR/lock      locked by the process that has the pool open
//! DIR/current   the number of the logs that are whole
//! DIR/7/        these logs: all changes of all pages, since the pool was opened
//! ```
//! Memory is gone with a process, so each opening makes a pool anew. Its pages are those that the
//! current logs make; they are recorded in logs with the next number, which are current from when
//! they are durable. Only then are the others removed. A crash on the way leaves the current logs
//! as they were, and what was begun beside them is removed by the next opening.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::engine::GAddr;
use crate::engine::log::{
    Labels, LogError, LogFiles, LogOwner, LogStore, MergeError, Pages, ReadError, merge,
};

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
    _lock: File,
    /// Of the logs that are whole.
    current: Option<u64>,
}

/// What logs make.
pub(super) struct Kept {
    pub(super) lines: BTreeMap<GAddr, Box<[u8]>>,
    pub(super) labels: Labels,
    pub(super) line_bytes: usize,
    /// The last of each compute node.
    pub(super) incarnations: BTreeMap<u16, u32>,
}

impl Kept {
    /// Where the last page ends.
    pub(super) fn end(&self) -> u64 {
        self.lines.last_key_value().map_or(0, |(last, line)| last.to_u64() + line.len() as u64)
    }
}

impl DataDirectory {
    /// Makes the directory if it is not there, and locks it until the value is dropped.
    pub(super) fn open(place: &Path) -> Result<Self, DataDirectoryError> {
        make(place)?;
        if let Some(entry) = foreign(place)? {
            return Err(DataDirectoryError::Foreign { place: place.to_owned(), entry });
        }
        let at = place.join(LOCK);
        let lock = File::options().create(true).truncate(false).write(true).open(&at);
        let lock = lock.map_err(|source| system("open", &at, source))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataDirectoryError::InUse { place: place.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(system("lock", &at, source)),
        }
        let current = current(&place.join(CURRENT))?;
        let directory = Self { place: place.to_owned(), _lock: lock, current };
        // What an opening has begun that did not end.
        directory.remove_others()?;
        Ok(directory)
    }

    /// Whether a database is kept there.
    pub(super) fn check_unused(&self) -> Result<(), DataDirectoryError> {
        match self.current {
            Some(_) => Err(DataDirectoryError::Used { place: self.place.clone() }),
            None => Ok(()),
        }
    }

    /// Where the logs of this opening are.
    pub(super) fn logs(&self) -> PathBuf {
        self.of(self.current.map_or(1, |current| current + 1))
    }

    /// What the logs make that are there.
    pub(super) async fn read(&self) -> Result<Option<Kept>, DataDirectoryError> {
        let Some(current) = self.current else { return Ok(None) };
        let place = self.of(current);
        let damaged = |what: &str| DataDirectoryError::Damaged {
            place: place.clone(),
            what: what.to_owned(),
        };
        if !place.is_dir() {
            return Err(damaged("the logs of the database are gone"));
        }
        let store = LogFiles::existing(&place);
        let unread = |source: ReadError| DataDirectoryError::Logs {
            place: place.clone(),
            source: source.into(),
        };
        let owners: Vec<LogOwner> = store.owners().await.map_err(unread)?;
        let Some(first) = owners.first() else {
            return Err(damaged("the logs of the database are gone"));
        };
        let is_other =
            |owner: &&LogOwner| (owner.pool, owner.line_bytes) != (first.pool, first.line_bytes);
        if owners.iter().any(|owner| is_other(&owner)) {
            return Err(damaged("there are logs of several pools"));
        }
        let line_bytes = first.line_bytes as usize;
        let mut pages = Pages::new(line_bytes);
        let merged = merge(&store, &owners, &mut pages, false).await;
        merged.map_err(|source| DataDirectoryError::Logs { place: place.clone(), source })?;
        pages.retain(|page| !selkie_txn::is_unlinked(page));
        let labels = store.labels(first.pool).await.map_err(unread)?;
        let mut incarnations = BTreeMap::new();
        for owner in &owners {
            let last = incarnations.entry(owner.node).or_insert(owner.incarnation);
            *last = owner.incarnation.max(*last);
        }
        Ok(Some(Kept { lines: pages.into_lines(), labels, line_bytes, incarnations }))
    }

    /// Makes the logs of this opening the current ones: all that was there is in them, and durable.
    pub(super) fn commit(&self) -> Result<(), DataDirectoryError> {
        let next = self.current.map_or(1, |current| current + 1);
        // The logs are there before they are current, whatever of the two reaches the disk first.
        sync(&self.place)?;
        let coming = self.place.join(COMING);
        let written = File::create(&coming).and_then(|mut file| {
            file.write_all(format!("{next}\n").as_bytes())?;
            file.sync_all()
        });
        written.map_err(|source| system("write", &coming, source))?;
        let at = self.place.join(CURRENT);
        fs::rename(&coming, &at).map_err(|source| system("write", &at, source))?;
        sync(&self.place)?;
        match self.current {
            Some(before) => remove(&self.of(before)),
            None => Ok(()),
        }
    }

    fn of(&self, number: u64) -> PathBuf {
        self.place.join(number.to_string())
    }

    /// Removes all logs but the current ones.
    fn remove_others(&self) -> Result<(), DataDirectoryError> {
        for name in entries(&self.place)? {
            let number = name.parse().ok();
            if number.is_some() && number != self.current {
                remove(&self.place.join(name))?;
            }
        }
        Ok(())
    }
}

fn system(what: &'static str, place: &Path, source: io::Error) -> DataDirectoryError {
    DataDirectoryError::System { what, place: place.to_owned(), source }
}

/// Makes a directory that only its owner can read, unless it is there.
fn make(place: &Path) -> Result<(), DataDirectoryError> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(place).map_err(|source| system("make", place, source))
}

/// Makes durable which files and directories a directory has.
fn sync(place: &Path) -> Result<(), DataDirectoryError> {
    let synced = File::open(place).and_then(|directory| directory.sync_all());
    synced.map_err(|source| system("sync", place, source))
}

fn remove(place: &Path) -> Result<(), DataDirectoryError> {
    fs::remove_dir_all(place).map_err(|source| system("remove", place, source))
}

/// The number of the logs that are whole.
fn current(at: &Path) -> Result<Option<u64>, DataDirectoryError> {
    match fs::read_to_string(at) {
        Ok(text) => match text.strip_suffix('\n').and_then(|number| number.parse().ok()) {
            Some(number) => Ok(Some(number)),
            None => Err(DataDirectoryError::Damaged {
                place: at.to_owned(),
                what: format!("{text:?} is not the number of logs"),
            }),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(system("read", at, source)),
    }
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
