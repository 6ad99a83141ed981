//! Log sequence numbers.

/// A log sequence number: a place in the log of one node, in bytes from its beginning.
pub type Lsn = u64;

/// Where every log begins; 0 is no place.
pub const FIRST_LSN: Lsn = 64;
