//! Files and locks of the `shm` fabric: how nodes find each other, and tell living nodes from dead
//! ones.
//!
//! The directory of a node is complete before it gets its name, so peers never see half of one.
//! Names change under the lock of the root. The directory of a dead node is removed when another
//! node joins by its name. Directories of joins that were cut short are removed at the next join.

use std::fmt::Display;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, flock, openat};
use rustix::io::Errno;

use super::control_page::{BadControlPage, CONTROL_BYTES, ControlPage};
use super::mapping::Mapping;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::node::MAX_REGIONS;
use crate::populate::populate;

const CONTROL: &str = "control";
const LOCK: &str = "lock";
/// Time limit of the wait for other processes that join or leave.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);
/// Names of directories that are not nodes yet, or no longer.
const NEW: &str = ".new-";
const GONE: &str = ".gone-";

/// The directory of a node, held open, and its control file.
pub(super) struct Segment {
    path: PathBuf,
    directory: File,
    /// The owner keeps it locked as long as it is open. A peer tries the lock.
    control_file: File,
}

impl Segment {
    /// Makes the directory of a node under `root`, in place of that of a dead one.
    pub(super) fn create(root: &Path, id: PeerId) -> Result<(Self, ControlPage), FabricError> {
        let path = root.join(id.to_string());
        let _lock = lock_root(root)?;
        clear_unfinished(root)?;
        match Self::open(root, id) {
            Ok((segment, control)) => {
                if !control.is_dead() && !segment.owner_is_gone()? {
                    return Err(FabricError::AlreadyJoined { peer: id });
                }
                control.mark_dead();
                control.call();
                remove(root, &path, control.incarnation())?;
                tracing::info!(node = %id, process = control.process(), "reclaimed what a dead node left");
            }
            Err(FabricError::UnknownPeer { .. }) => {}
            // A file that is no control page, or one of another version, is not removed.
            Err(error) => return Err(error),
        }
        let incarnation = random()?;
        let unfinished = root.join(format!("{NEW}{id}-{incarnation:016x}"));
        DirBuilder::new().mode(0o700).create(&unfinished).map_err(|e| failed(&unfinished, e))?;
        let made = Self::fill(&unfinished, &path, incarnation);
        if made.is_err() {
            // The first error says more than an error of the clean-up.
            let _ = fs::remove_dir_all(&unfinished);
        }
        made
    }

    fn fill(new: &Path, path: &Path, incarnation: u64) -> Result<(Self, ControlPage), FabricError> {
        let directory = File::open(new).map_err(|e| failed(new, e))?;
        let control_file = create_file(&directory, new, CONTROL, CONTROL_BYTES)?;
        flock(&control_file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| failed(new, e))?;
        let mapping = Mapping::of(&control_file, CONTROL_BYTES).map_err(|e| failed(new, e))?;
        let control = ControlPage::new(mapping, incarnation);
        fs::rename(new, path).map_err(|e| failed(path, e))?;
        Ok((Self { path: path.to_path_buf(), directory, control_file }, control))
    }

    /// Opens the directory of a node that may live or not.
    pub(super) fn open(root: &Path, id: PeerId) -> Result<(Self, ControlPage), FabricError> {
        let path = root.join(id.to_string());
        let directory = match File::open(&path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(FabricError::UnknownPeer { peer: id });
            }
            Err(error) => return Err(failed(&path, error)),
        };
        let control_file = match open_file(&directory, CONTROL) {
            Ok(file) => file,
            // The directory is being removed.
            Err(Errno::NOENT) => return Err(FabricError::UnknownPeer { peer: id }),
            Err(error) => return Err(failed(&path, error)),
        };
        let bytes = control_file.metadata().map_err(|e| failed(&path, e))?.len();
        if bytes != CONTROL_BYTES as u64 {
            return Err(failed(
                &path,
                format!("control page of {bytes} bytes, not {CONTROL_BYTES}"),
            ));
        }
        let mapping = Mapping::of(&control_file, CONTROL_BYTES).map_err(|e| failed(&path, e))?;
        let control = ControlPage::open(mapping).map_err(|bad| {
            failed(
                &path,
                match bad {
                    BadControlPage::NoMagic { found } => {
                        format!("no control page: begins with {found:#x}")
                    }
                    BadControlPage::OtherVersion { found } => {
                        format!("control page of version {found}")
                    }
                },
            )
        })?;
        Ok((Self { path, directory, control_file }, control))
    }

    /// Whether the control file is unlocked, that is whether the process of the owner is gone.
    pub(super) fn owner_is_gone(&self) -> Result<bool, FabricError> {
        // A shared lock, so that several peers that try do not take each other for the owner.
        match flock(&self.control_file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => {
                flock(&self.control_file, FlockOperation::Unlock)
                    .map_err(|e| failed(&self.path, e))?;
                Ok(true)
            }
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(failed(&self.path, error)),
        }
    }

    /// Makes and maps the memory of a region, all of it committed: a lack of memory is an error
    /// here, and not a signal to the process that touches it first.
    pub(super) fn create_region(&self, slot: usize, bytes: usize) -> Result<Mapping, FabricError> {
        let file = create_file(&self.directory, &self.path, &region_name(slot), bytes)?;
        Mapping::of_own(file, bytes).map_err(|e| failed(&self.path, e))
    }

    /// As [`Segment::create_region`], but all of it is populated through the mapping, which gets
    /// huge pages where the file system has them. Memory that was committed before would not.
    pub(super) fn create_populated_region(
        &self,
        slot: usize,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Mapping, FabricError> {
        let name = region_name(slot);
        let path = self.path.join(&name);
        let mut populated = || {
            let file = new_file(&self.directory, &name).map_err(|e| failed(&path, e))?;
            let found = rustix::fs::fstatvfs(&file).map_err(|e| failed(&path, e))?;
            let free = found.f_bavail.saturating_mul(found.f_frsize);
            // A file system without a limit says that it has no blocks.
            if found.f_blocks > 0 && free < bytes as u64 {
                let (path, bytes) = (path.display().to_string(), bytes as u64);
                return Err(FabricError::NoRoom { path, bytes, free });
            }
            rustix::fs::ftruncate(&file, bytes as u64).map_err(|e| failed(&path, e))?;
            let mapping = Mapping::of_own(file, bytes).map_err(|e| failed(&path, e))?;
            if !populate(mapping.start(), bytes, told)? {
                mapping.allocate(0..bytes)?;
            }
            Ok(mapping)
        };
        let made = populated();
        if made.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, &name, rustix::fs::AtFlags::empty());
        }
        made
    }

    /// Maps the memory of a peer's region.
    pub(super) fn open_region(&self, slot: usize, bytes: usize) -> Result<Mapping, FabricError> {
        let name = region_name(slot);
        let file =
            open_file(&self.directory, &name).map_err(|e| failed(&self.path.join(&name), e))?;
        let found = file.metadata().map_err(|e| failed(&self.path, e))?.len();
        if found < bytes as u64 {
            let what = format!("{found} bytes, not the {bytes} that the control page says");
            return Err(failed(&self.path.join(&name), what));
        }
        Mapping::of(&file, bytes).map_err(|e| failed(&self.path, e))
    }

    /// The files of the regions, open. One that the owner gives up meanwhile is not among them.
    pub(super) fn region_files(&self) -> Result<Vec<File>, FabricError> {
        let mut files = Vec::new();
        for slot in 0..MAX_REGIONS as usize {
            match open_file(&self.directory, &region_name(slot)) {
                Ok(file) => files.push(file),
                Err(Errno::NOENT) => {}
                Err(error) => return Err(failed(&self.path, error)),
            }
        }
        Ok(files)
    }

    /// Removes the directory, if it is still that of this incarnation.
    pub(super) fn leave(&self, incarnation: u64) -> Result<(), FabricError> {
        let Some(root) = self.path.parent() else { return Ok(()) };
        let _lock = lock_root(root)?;
        remove(root, &self.path, incarnation)
    }

    /// As [`Segment::leave`], without waiting: `false` if another process joins or leaves.
    pub(super) fn try_leave(&self, incarnation: u64) -> Result<bool, FabricError> {
        let Some(root) = self.path.parent() else { return Ok(true) };
        let Some(_lock) = try_lock_root(root)? else { return Ok(false) };
        remove(root, &self.path, incarnation).map(|()| true)
    }
}

/// Opens the root of a fabric, and makes it if it does not exist.
pub(super) fn open_root(root: &Path) -> Result<(), FabricError> {
    match DirBuilder::new().mode(0o700).create(root) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(root, error)),
    }
}

/// Locks the root until the file is dropped.
fn lock_root(root: &Path) -> Result<File, FabricError> {
    let until = Instant::now() + LOCK_PATIENCE;
    loop {
        match try_lock_root(root)? {
            Some(lock) => return Ok(lock),
            None if Instant::now() < until => thread::sleep(Duration::from_millis(1)),
            None => return Err(failed(&root.join(LOCK), Errno::WOULDBLOCK)),
        }
    }
}

/// As [`lock_root`], without waiting: `None` if it is locked.
fn try_lock_root(root: &Path) -> Result<Option<File>, FabricError> {
    let path = root.join(LOCK);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(|e| failed(&path, e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed(&path, error)),
    }
}

/// Removes a directory. Renames it first, so that peers never see half of it. The root is locked.
fn remove(root: &Path, path: &Path, incarnation: u64) -> Result<(), FabricError> {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let gone = root.join(format!("{GONE}{name}-{incarnation:016x}"));
    let file = OpenOptions::new().read(true).write(true).open(path.join(CONTROL));
    let is_ours = match file {
        Ok(file) => Mapping::of(&file, CONTROL_BYTES)
            .is_ok_and(|m| ControlPage::open(m).is_ok_and(|c| c.incarnation() == incarnation)),
        Err(_) => false,
    };
    if !is_ours {
        return Ok(());
    }
    fs::rename(path, &gone).map_err(|e| failed(path, e))?;
    fs::remove_dir_all(&gone).map_err(|e| failed(&gone, e))
}

/// Removes the directories of joins and leaves that were cut short. The root is locked, so none is
/// in progress.
fn clear_unfinished(root: &Path) -> Result<(), FabricError> {
    for entry in fs::read_dir(root).map_err(|e| failed(root, e))? {
        let entry = entry.map_err(|e| failed(root, e))?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(NEW) || name.starts_with(GONE) {
            fs::remove_dir_all(entry.path()).map_err(|e| failed(&entry.path(), e))?;
        }
    }
    Ok(())
}

fn region_name(slot: usize) -> String {
    format!("region-{slot}")
}

fn create_file(
    directory: &File,
    path: &Path,
    name: &str,
    bytes: usize,
) -> Result<File, FabricError> {
    let file = new_file(directory, name).map_err(|e| failed(&path.join(name), e))?;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes as u64) {
        Ok(()) => Ok(file),
        Err(error) => {
            let _ = rustix::fs::unlinkat(directory, name, rustix::fs::AtFlags::empty());
            Err(match error {
                Errno::NOSPC | Errno::NOMEM | Errno::FBIG => {
                    FabricError::OutOfMemory { bytes: bytes as u64 }
                }
                error => failed(&path.join(name), error),
            })
        }
    }
}

fn new_file(directory: &File, name: &str) -> Result<File, Errno> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

fn open_file(directory: &File, name: &str) -> Result<File, Errno> {
    openat(directory, name, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

/// A random number, never 0.
pub(super) fn random() -> Result<u64, FabricError> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; 8];
    let file = File::open(path).map_err(|e| failed(path, e))?;
    io::Read::read_exact(&mut &file, &mut bytes).map_err(|e| failed(path, e))?;
    Ok(u64::from_le_bytes(bytes).max(1))
}

fn failed(path: &Path, what: impl Display) -> FabricError {
    FabricError::Segment { path: path.display().to_string(), what: what.to_string() }
}
