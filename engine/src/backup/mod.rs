//! Backups of a pool in use, in an object store, and pools made of them.
//!
//! A backup is an *image*, every page in use as it was at some time of its own, and what was
//! added to the logs of all compute nodes from then on until a snapshot barrier:
//!
//! ```text
//! ends of all logs   each page read once,   all nodes mark a barrier
//! noted              under a shared latch   in their logs
//!   |                  |                      |
//!   +------------------+----------------------+---> labels, manifest
//!   |<-- what is added to the logs is read -->|
//! ```
//! Nodes wait for it as for any other reader of a page. At the end, from the announcement of the
//! barrier until all know that it is over, a node also waits if it wants a page that another
//! changed in that time. The node that makes it is one more compute node of the pool.
//!
//! # Why that is one state
//!
//! A page is granted, and goes home, only after the record of its last change is durable (see
//! [`crate::log`]). So
//!
//! 1. *the image is never ahead of the logs*: whatever change it has of a page, the record of that
//!    was durable when the page was read, and is before the barrier that is announced afterwards;
//! 2. *nothing is missing between them*: a change that the image does not have of a page was made
//!    after the page was read, hence after the ends of the logs were noted, and is recorded behind
//!    them;
//! 3. *logs are closed up to their marks*: nothing that was changed behind one was seen by another
//!    node before that had marked ([`crate::log`], `snapshot_barrier`).
//!
//! Records are of several pages that were changed together. Applied whole, to the image, they make
//! a state that was there for all writers: a set of transactions with all that they have read and
//! overwritten, in their order. All that was acknowledged before the backup began is in it, as that
//! was durable. Of two transactions that had nothing to do with each other, on two nodes, the later
//! one may be in it and the earlier not.
//!
//! *Full-page images*, which a node repeats in its log for other reasons, are passed over:
//! what they have is in the records of the changes. So records are written to the backup with
//! places of their own.
//!
//! Nodes may join, leave and die meanwhile. A log that begins before the barrier is followed from
//! its beginning, that of a node that has gone is read to its end. If one marks and dies before all
//! have marked, they mark another barrier. A log that was cut off, or has gone, before it was read
//! makes the backup fail.
//!
//! # What is there
//!
//! ```text
//! PLACE/<pool>/65535-1/<LSN>.slog                the image: a log of full-page images
//! PLACE/<pool>/<node>-<incarnation>/<LSN>.slog   what was added to the logs
//! PLACE/manifest.json                            the parts and the pool's labels, written
//!                                                last: without it there is no backup
//! ```
//! Contents: `run` (making a backup), `image` (reading the pages), `followed_logs`, `followed_log`
//! and `copy_map` (reading the logs), `barrier` (announcing a snapshot barrier), `append` (writing
//! objects), `manifest`, `open` (the pages of a backup).
//!
//! Not done: counters (`Engine::allocate_counter`) are no pages, and the pool's logical clock is
//! none, so a pool that is made of a backup has its own. A record at the very end of a log in
//! memory, not durable yet, that is lost with its node and all memory that has it after the backup
//! has read it, may contradict what others do to its pages afterwards: opening the backup then says
//! so. Backups are whole, never what changed since another one.

mod append;
mod barrier;
mod copy_map;
mod error;
mod followed_log;
mod followed_logs;
mod image;
mod manifest;
mod open;
mod progress;
mod run;

pub use error::BackupError;
pub use open::Backup;
pub use progress::{BackupReport, Watch};
