//! The redo log of compute nodes: its bytes, the places that keep it, and how it makes pages.
//!
//! A log is a sequence of records ([`Record`]). Each record says how one change altered some pages,
//! all of it or nothing. [`scan`] reads records, and tells a torn end from damage. A log is written
//! to a [`Sink`] and read again from a [`LogStore`]. Two places are here: files of a directory
//! ([`LogFiles`]) and objects of an object store ([`LogObjects`]). The third place, rings in the
//! memory of memory nodes, belongs to the engine, because only the engine reaches them; their bytes
//! are in [`ring`].
//!
//! [`merge`] makes the pages of a pool from the logs of all its nodes. [`Changes`] applies the
//! changes of some pages to what their homes have.
//!
//! This crate knows no engine. The engine decides when to write, and what may be seen before it is
//! durable.
#![forbid(unsafe_code)]

mod changes;
mod conflict;
mod dirty;
mod error;
mod files;
mod header;
mod joined;
mod lsn;
mod merge;
mod names;
mod objects;
mod owner;
mod pages;
mod place;
mod psn;
mod record;
pub mod ring;
mod scan;
mod sink;
mod store;
#[cfg(test)]
mod test_log;

pub use changes::Changes;
pub use conflict::MergeConflict;
pub use dirty::{Dirty, PIECES};
pub use error::{LogError, ReadError};
pub use files::LogFiles;
pub use joined::Joined;
pub use lsn::{FIRST_LSN, Lsn};
pub use merge::{MergeError, MergedLog, merge};
pub use objects::LogObjects;
pub use owner::LogOwner;
pub use pages::Pages;
pub use place::{first_bytes, free_bytes, open_store};
pub use psn::{PSN_BYTES, psn_of};
pub use record::{
    Change, Format, NoRecord, RECORD_HEADER_BYTES, Record, Redo, change_bytes, encode_as,
    encode_mark,
};
pub use scan::{LogDamage, LogEnd, scan};
pub use sink::{Sink, Written};
pub use store::{Labels, LogRange, LogStore, Piece, read_log};
