//! The control plane of a pool whose processes share a host: files in one directory.
//!
//! ```text
//! directory/state.json     {"version": n, "change": m, "state": {...}}, replaced as a whole by
//!                          renaming
//! directory/state.lock     held by the process that replaces it
//! directory/beats/         the newest beats of all nodes
//! ```
//! A crash at any time leaves the old state or the new one. A beat carries the time since the host
//! started, without the time it was suspended. All processes of the host share that clock, and it
//! cannot be set.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use selkie_fabric::BoxFuture;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::beat_files::{BeatFiles, StoredBeat};
use super::error::{ControlError, unavailable};
use super::plane::{Beat, Change, ControlPlane, Version, Versioned};
use crate::document::{FORMAT, PoolState};
use crate::wait_notice::{NOTICE, WaitNotice};

/// The file with the state, in the directory of a pool.
pub const STATE_FILE: &str = "state.json";
/// The file that is locked while the state is replaced, in the directory of a pool.
pub const LOCK_FILE: &str = "state.lock";
/// Bound of the wait for processes that replace the state.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Times that the directory is removed, at most: while it is, others add files to it.
const REMOVALS: u32 = 1_000;

/// Keeps the state in a directory. Calls block for a few small files.
pub struct FilePlane {
    directory: PathBuf,
    beats: BeatFiles,
    /// The text that was read last, and what it says.
    latest: Mutex<Option<(Vec<u8>, Found)>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: Version,
    /// What wrote this; files of earlier versions do not say.
    change: Option<Change>,
    state: PoolState,
}

/// A state, and the change that wrote it.
#[derive(Clone)]
struct Found {
    now: Versioned,
    change: Option<Change>,
}

impl FilePlane {
    /// The plane in `directory`, which is made when a pool is created in it, closed to other users.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        let directory = directory.into();
        let beats = BeatFiles::at(directory.join("beats"));
        Self { directory, beats, latest: Mutex::default() }
    }

    fn state_path(&self) -> PathBuf {
        self.directory.join(STATE_FILE)
    }

    fn read_state(&self) -> Result<Found, ControlError> {
        let path = self.state_path();
        let no_pool = || ControlError::NoPool { place: self.directory.display().to_string() };
        let text = read_text(&path)?.ok_or_else(no_pool)?;
        let mut latest = self.latest.lock();
        if let Some((of, latest)) = &*latest
            && *of == text
        {
            return Ok(latest.clone());
        }
        let Stored { version, change, state } = decode(&path, &text)?;
        if state.format != FORMAT {
            let what = format!("format {}, this software writes {FORMAT}", state.format);
            return Err(ControlError::Damaged { place: path.display().to_string(), what });
        }
        let found = Found { now: Versioned { version, state: Arc::new(state) }, change };
        *latest = Some((text, found.clone()));
        Ok(found)
    }

    /// Held until dropped. Who waits for it is told for whom.
    fn lock(&self) -> Result<File, ControlError> {
        let path = self.directory.join(LOCK_FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(|error| unavailable(&path, &error))?;
        let (began, mut notice) = (Instant::now(), WaitNotice::new(Duration::ZERO));
        let most = LOCK_PATIENCE.as_secs();
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::WOULDBLOCK) if began.elapsed() < LOCK_PATIENCE => {
                    if let Some(waited) = notice.due(began.elapsed()) {
                        tracing::info!(
                            target: NOTICE,
                            "has waited for {} s, and for {most} s at most, for {}, which replaces the state of the pool \
                             ({}); if it hangs, end it",
                            waited.as_secs(),
                            holder(&file),
                            path.display()
                        );
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                Err(Errno::WOULDBLOCK) => {
                    let who = holder(&file);
                    let what =
                        format!("{who} has been replacing the state of the pool for {most} s");
                    let error = format!("{what}; if it hangs, end it");
                    return Err(unavailable(&path, &std::io::Error::other(error)));
                }
                Err(error) => return Err(unavailable(&path, &error.into())),
            }
        }
    }

    fn write_state(&self, stored: &Stored) -> Result<(), ControlError> {
        write(&self.state_path(), stored)
    }
}

impl ControlPlane for FilePlane {
    fn load(&self) -> BoxFuture<'_, Result<Versioned, ControlError>> {
        Box::pin(async { Ok(self.read_state()?.now) })
    }

    fn create(&self, state: PoolState) -> BoxFuture<'_, Result<Version, ControlError>> {
        Box::pin(async {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(self.beats.directory());
            made.map_err(|error| unavailable(&self.directory, &error))?;
            let _lock = self.lock()?;
            match self.read_state() {
                Err(ControlError::NoPool { .. }) => {}
                Ok(_) => {
                    let place = self.directory.display().to_string();
                    return Err(ControlError::PoolExists { place });
                }
                Err(error) => return Err(error),
            }
            self.write_state(&Stored { version: 1, change: Some(Change::random()), state })?;
            Ok(1)
        })
    }

    fn replace_as(
        &self,
        change: Change,
        expected: Version,
        state: PoolState,
    ) -> BoxFuture<'_, Result<Option<Version>, ControlError>> {
        Box::pin(async move {
            let _lock = self.lock()?;
            let found = self.read_state()?;
            if found.now.version != expected {
                return Ok((found.change == Some(change)).then_some(found.now.version));
            }
            let version = expected + 1;
            self.write_state(&Stored { version, change: Some(change), state })?;
            Ok(Some(version))
        })
    }

    fn beat(&self, beat: Beat) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async move { self.beats.write(&beat, since_start()) })
    }

    fn beats(&self) -> BoxFuture<'_, Result<Vec<(Beat, Duration)>, ControlError>> {
        Box::pin(async {
            let now = since_start();
            let age = |at: u64| Duration::from_nanos(now.saturating_sub(at));
            let stored = self.beats.read()?;
            Ok(stored.into_iter().map(|StoredBeat { beat, at }| (beat, age(at))).collect())
        })
    }

    fn pace(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// The directory goes with all that is in it.
    fn destroy(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(async {
            let mut removals = 1;
            loop {
                match fs::remove_dir_all(&self.directory) {
                    // A node that does not know yet has shown meanwhile that it lives.
                    Err(error)
                        if error.kind() == io::ErrorKind::DirectoryNotEmpty
                            && removals < REMOVALS =>
                    {
                        removals += 1;
                    }
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(unavailable(&self.directory, &error));
                    }
                    _ => return Ok(()),
                }
            }
        })
    }
}

/// The process that has a file locked, by its number where the system says that.
fn holder(file: &File) -> String {
    let number = || {
        let metadata = file.metadata().ok()?;
        let (major, minor) = (rustix::fs::major(metadata.dev()), rustix::fs::minor(metadata.dev()));
        let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
        holder_in(&fs::read_to_string("/proc/locks").ok()?, &place)
    };
    number().map_or("another process".to_owned(), |number| format!("process {number}"))
}

/// The number of the process that has a file locked, in the system's table of locks. One of another
/// namespace has none there.
fn holder_in(locks: &str, place: &str) -> Option<u32> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, process, at, ..] = words[..] else { return None };
        process.parse().ok().filter(|number| at == place && *number > 0)
    })
}

/// Nanoseconds since the host started, without the time it was suspended: that stops all of these
/// processes. A node judges its own lease by a clock that goes on.
fn since_start() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// `None` if there is no such file.
fn read_text(path: &Path) -> Result<Option<Vec<u8>>, ControlError> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unavailable(path, &error)),
    }
}

fn decode<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, ControlError> {
    let damaged = |error: serde_json::Error| {
        let (place, what) = (path.display().to_string(), error.to_string());
        ControlError::Damaged { place, what }
    };
    serde_json::from_slice(text).map_err(damaged)
}

/// Replaces a file as a whole; it is safe from a crash when this returns.
fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), ControlError> {
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    let new = path.with_extension(format!("new-{}-{number}", std::process::id()));
    let text = serde_json::to_vec(value).map_err(|error| unavailable(path, &error.into()))?;
    let written = || -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        match path.parent() {
            Some(directory) => File::open(directory)?.sync_all(),
            None => Ok(()),
        }
    };
    written().map_err(|error| {
        // A full file system would be fuller by it.
        let _ = fs::remove_file(&new);
        unavailable(path, &error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_has_a_file_locked_is_found_among_all_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 00:1b:611 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 8 00:1c:611 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 9 00:1b:611 0 EOF\n\
                     3: -> FLOCK  ADVISORY  WRITE 10 00:1b:611 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE -1 00:1b:612 0 EOF\n";
        assert_eq!(holder_in(locks, "00:1b:611"), Some(9));
        assert_eq!(holder_in(locks, "00:1b:612"), None, "of another namespace");
        assert_eq!(holder_in(locks, "00:1b:613"), None);
    }
}
