//! Opening a log store by its place: a directory, or the URL of an object store.

use std::path::Path;
use std::sync::Arc;

use crate::error::LogError;
use crate::files::LogFiles;
use crate::objects::LogObjects;
use crate::store::LogStore;

/// Largest file of a log, in bytes of records.
const FILE_BYTES: u64 = 64 << 20;
/// Least number of files of a log.
const FILES: u64 = 4;

/// Bytes that a log takes in a directory from its beginning, if it may keep `capacity` bytes.
#[must_use]
pub fn first_bytes(capacity: u64) -> u64 {
    FILE_BYTES.min(capacity / FILES)
}

/// Bytes that are free for logs at `place`, which need not be there yet; `None` for an object
/// store, which does not say, and a file system without a limit. Blocks for a call of the system.
///
/// # Errors
/// [`LogError`] if the system does not say.
pub fn free_bytes(place: &Path) -> Result<Option<u64>, LogError> {
    if place.to_str().is_some_and(LogObjects::is_url) {
        return Ok(None);
    }
    // As it will be made below one that is there.
    let there = place.ancestors().find(|path| path.exists());
    let there = there.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: rustix::io::Errno| LogError::new("look for room in", there, error.into());
    let found = rustix::fs::statvfs(there).map_err(failed)?;
    // A file system without a limit says that it has no blocks.
    Ok((found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize)))
}

/// Opens the log store at `place`, where each log may keep `capacity` bytes. A place with `://` in
/// it is the URL of an object store. Creates a directory, or probes the object store. Blocks
/// meanwhile.
///
/// # Errors
/// [`LogError`] if the store takes no writes, or the URL names no store.
pub fn open_store(place: &Path, capacity: u64) -> Result<Arc<dyn LogStore>, LogError> {
    match place.to_str().filter(|place| LogObjects::is_url(place)) {
        Some(url) => {
            let objects = LogObjects::at(url, capacity)?;
            objects.probe()?;
            Ok(Arc::new(objects))
        }
        None => Ok(Arc::new(LogFiles::new(place, first_bytes(capacity), capacity)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_looked_for_where_the_directory_will_be() {
        let place = tempfile::tempdir().unwrap();
        let there = free_bytes(place.path()).unwrap().unwrap();
        assert!(there > 0);
        let missing = place.path().join("not/there/yet");
        assert!(free_bytes(&missing).unwrap().is_some());
        assert!(!missing.exists(), "nothing is made");
        assert!(free_bytes(Path::new("logs-that-are-not-there")).unwrap().is_some());
        assert_eq!(free_bytes(Path::new("file:///tmp/logs")).unwrap(), None);
    }
}
