//! The buffer pool: frames, their local latches, and the table that finds them.

pub(crate) mod dirty;
pub(crate) mod frames;
pub(crate) mod latch;
pub(crate) mod table;
