//! The operations of a transaction on rows: from a key to its leaf, and from there to the row.
//!
//! [`leaf`] finds and latches the leaf of a key, [`cursor`] walks from leaf to leaf. [`read`] has
//! the reads, [`write`] the changes of rows with the entries of their indexes. A change reaches a
//! held leaf through [`leaf_write`], or the write set through [`deferred`]. [`snapshot_read`] reads
//! leaves as they were, and records what is read; [`validate`] compares that with what is there.

pub(crate) mod cursor;
pub(crate) mod deferred;
pub(crate) mod leaf;
pub(crate) mod leaf_write;
pub(crate) mod read;
pub(crate) mod snapshot_read;
pub(crate) mod table_use;
pub(crate) mod validate;
pub(crate) mod write;
