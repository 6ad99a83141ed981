//! The buffer manager: frames and their latches, the table that finds them, the lines with an
//! operation open, eviction.

pub(crate) mod address_table;
#[cfg(test)]
mod address_table_tests;
pub(crate) mod eviction;
pub(crate) mod frame;
pub(crate) mod frames;
pub(crate) mod latch;
#[cfg(test)]
mod latch_tests;
pub(crate) mod leaving;
pub(crate) mod overflow;
pub(crate) mod page_cache;
mod page_memory;
pub(crate) mod residual_readers;
pub(crate) mod shards;
