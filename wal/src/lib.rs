//! The redo log of compute nodes: the bytes of it, where they are kept, and what they make of
//! pages.
//!
//! A log is a sequence of records ([`Record`]), each of which says what some pages became by a
//! change, all or nothing. [`scan`] reads them, and tells a torn end from damage. A log is written
//! to a [`Sink`] and read again from a [`LogStore`]: files of a directory ([`LogFiles`]) or objects
//! of an object store ([`LogObjects`]); rings in memory of memory nodes (the bytes are in [`ring`])
//! belong to the engine, which alone can reach them. [`merge`] makes pages of all logs of a pool,
//! [`Changes`] makes some pages again on top of what home has.
//!
//! Nothing here knows an engine: whoever writes a log decides when, and what may be seen before it
//! is durable.
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
mod psn;
mod record;
pub mod ring;
mod scan;
mod sink;
mod store;

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
pub use psn::{PSN_BYTES, psn_of};
pub use record::{
    Change, Format, NoRecord, RECORD_HEADER_BYTES, Record, Redo, encode_as, encode_mark,
};
pub use scan::{LogDamage, LogEnd, scan};
pub use sink::{Sink, Written};
pub use store::{Labels, LogRange, LogStore, Piece, read_log};
