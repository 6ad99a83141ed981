//! What a caller learns of a backup.

use std::time::Duration;

/// What a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Pages in the image.
    pub pages: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Logs that were followed.
    pub logs: usize,
    /// Bytes of them.
    pub log_bytes: u64,
    /// From the first look at the logs to the manifest.
    pub took: Duration,
}

/// Receives the progress of a backup: lines of the pool that were looked at, of how many.
pub trait Watch: Send + Sync {
    /// So many of so many.
    fn at(&self, done: u64, total: u64);
}

impl<F: Fn(u64, u64) + Send + Sync> Watch for F {
    fn at(&self, done: u64, total: u64) {
        self(done, total);
    }
}
