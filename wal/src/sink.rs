//! What a log is written to.

use selkie_fabric::BoxFuture;

use crate::error::LogError;
use crate::lsn::Lsn;

/// Bytes that may become durable.
#[derive(Debug)]
pub struct Written {
    /// The bytes, for another try or others.
    pub bytes: Vec<u8>,
    /// Whether they are durable.
    pub result: Result<(), LogError>,
}

/// What a log is written to, one append after the other.
pub trait Sink: Send + Sync {
    /// Makes whole records durable that begin at `at`, where those before ended, the first at
    /// [`FIRST_LSN`](crate::FIRST_LSN). After a failure the very same bytes are given again: what
    /// is there of them is overwritten.
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written>;

    /// What lies before `lsn`, the beginning of a record or the end, is not needed for the node's
    /// pages any more; from where the log is kept then.
    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>>;

    /// Bytes that it can keep.
    fn capacity(&self) -> u64;

    /// Sees to it that what is kept, up to `end`, is kept where it should be, as places come and
    /// go. Nothing is appended meanwhile.
    fn maintain(&self, _end: Lsn) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }
}
