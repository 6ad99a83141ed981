//! The redo log of a compute node: its changes are durable before another node relies on them
//! (docs/design.md, Log).
//!
//! ```text
//! guards released --> record, at the end of the log in memory --> sink, in batches --> durable
//!                                                                                       |
//!                     until then the page stays on this node: it is not granted,        |
//!                     it is not written home, and a commit waits                      <-+
//! ```
//! There are no undo records. A page under change is latched, and a changed page does not leave the
//! node before its record is durable. So every change that another node or home has of a page is in
//! some node's log, and the records of a page in all logs are ordered by its sequence number.
//!
//! If a sink fails, the same bytes are written again later. Until that succeeds no page is granted
//! for writing, and a caller that waits for a commit learns that its durability is not known.
//!
//! A page that is handed over dirty is written home at the same time ([`home_first`]). So home has
//! all changes of a page but those of its holder, which are in the holder's log. The log is kept
//! from the oldest such change on, and pages with old changes are written home so that it can be
//! truncated (`checkpoint`).
//!
//! Contents: `recording` (from changed pages to records), `state` (the log while the node runs),
//! `flush` (making records durable), `memory` (logs in memory nodes), `snapshot_barrier` (up to
//! where the logs are one state), `checkpoint` (how far a log is kept), `archive` (what was
//! truncated, for a restore into another pool), `reservation`
//! (room for changes that are not recorded yet), `turns` (callers that are refused wait in turn),
//! `room_waits` (callers that wait for room), `waits` (what is said of waits that last), `redo`
//! (the changes of a dead node), `restore` (putting pages into a new pool). The bytes of records,
//! files and merging are in `selkie_wal`.
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

mod archive;
mod checkpoint;
mod destination;
mod flush;
mod memory;
mod recording;
mod redo;
mod reservation;
mod restore;
mod room_waits;
mod snapshot_barrier;
pub(crate) mod state;
mod turns;
mod waits;

pub(crate) use archive::run_archive;
pub(crate) use checkpoint::run_checkpoints;
pub use destination::LogTo;
pub(crate) use flush::run_log;
pub(crate) use recording::ChangedPage;
pub use reservation::LogReservation;
pub use selkie_wal::{
    FIRST_LSN, Format, Joined, Labels, LogDamage, LogEnd, LogError, LogFiles, LogObjects, LogOwner,
    LogRange, LogStore, Lsn, MergeConflict, MergeError, MergedLog, NoRecord, Pages, Piece,
    ReadError, Record, Redo, Sink, Written, first_bytes, free_bytes, merge, open_store, read_log,
    scan,
};
pub(crate) use waits::LogWatch;
