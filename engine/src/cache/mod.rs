//! The buffer manager: frames and their latches, the table that finds them, the lines with an
//! operation open, eviction.

pub(crate) mod address_table;
pub(crate) mod eviction;
pub(crate) mod frames;
pub(crate) mod latch;
pub(crate) mod page_cache;
pub(crate) mod residual_readers;
pub(crate) mod shards;
