//! The destination of a log.

use selkie_fabric::BoxFuture;

use crate::error::LogError;
use crate::lsn::Lsn;

/// Bytes that may become durable.
#[derive(Debug)]
pub struct Written {
    /// The bytes, to retry them or to reuse their memory.
    pub bytes: Vec<u8>,
    /// Whether they are durable.
    pub result: Result<(), LogError>,
}

/// The destination of a log. Appends come one after the other.
pub trait Sink: Send + Sync {
    /// Makes whole records durable. They begin at `at`, where the previous append ended, the first
    /// at [`FIRST_LSN`](crate::FIRST_LSN). After a failure the caller retries with the same bytes,
    /// and the sink overwrites what it has of them.
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written>;

    /// Says that the node's pages no longer need the log before `lsn`, the beginning of a record or
    /// the end. Returns from where the log is kept then.
    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>>;

    /// Capacity, bytes.
    fn capacity(&self) -> u64;

    /// Restores the copies of the log, up to `end`, after places were added or lost. The caller
    /// appends nothing meanwhile.
    fn maintain(&self, _end: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }
}
