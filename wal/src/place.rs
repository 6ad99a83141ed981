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
        None => {
            let file_bytes = FILE_BYTES.min(capacity / FILES);
            Ok(Arc::new(LogFiles::new(place, file_bytes, capacity)?))
        }
    }
}
