//! The redo log of a compute node: what it has changed, durable before anybody can rely on it
//! (DESIGN §9).
//!
//! ```text
//! guards let go --> record, at the end of the log in memory --> sink, many at once --> durable
//!                                                                                       |
//!                     until then the page stays here: nobody is granted it,             |
//!                     it does not go home, and who commits waits                      <-+
//! ```
//! There are no undo records: a page that is being changed is latched, and one that was changed
//! does not leave before its record is durable. So whatever others have of a page, or home has, is
//! in somebody's log, and the records of a page in all logs are in the order of its sequence
//! numbers.
//!
//! A sink that fails is tried again with the same bytes. Until it succeeds nobody gets a page to
//! change, and who has committed is told that it is not known whether that lasts.
//!
//! A page that is handed over dirty goes home at the same time ([`home_first`]), so of each page
//! home has all but what its holder has changed, which is in that one's log: from the oldest of
//! these changes on the log is kept, and pages whose changes are old are written home so that it
//! need not be (`checkpoint`).
//!
//! Contents: `record` (the bytes), `store` (where they go, and how they are read again), `files` (a
//! directory as such), `objects` (an object store as such), `memory` (memory nodes as such), `scan`
//! (what is a log's end, and what damage), `moment` (up to where logs are one state), `checkpoint`
//! (how far a log is kept), `archive` (what was cut off, for whoever makes another pool), `redo`
//! (what a dead node has left), `changes` (that, put together), `merge` (what several logs make of
//! pages), `restore` (putting these into a new pool).
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

mod archive;
mod checkpoint;
mod destination;
mod flush;
mod memory;
mod recording;
mod redo;
mod restore;
mod snapshot_barrier;
pub(crate) mod state;

pub(crate) use archive::run_archive;
pub(crate) use checkpoint::run_checkpoints;
pub use destination::LogTo;
pub(crate) use flush::run_log;
pub(crate) use recording::ChangedPage;
pub use selkie_wal::{
    FIRST_LSN, Format, Joined, Labels, LogDamage, LogEnd, LogError, LogFiles, LogObjects, LogOwner,
    LogRange, LogStore, Lsn, MergeConflict, MergeError, MergedLog, NoRecord, Pages, Piece,
    ReadError, Record, Redo, Sink, Written, merge, open_store, read_log, scan,
};
