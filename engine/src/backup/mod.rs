//! Backups of a pool in use, in an object store, and pools made of them.
//!
//! A backup is an *image*, every page in use as it was at some moment of its own, and what was
//! added to the logs of all compute nodes from then on until a moment that they all mark:
//!
//! ```text
//! ends of all logs noted     each page read once, under a shared latch     all nodes mark a moment in their logs
//!   |                          |                                             |
//!   +--------------------------+---------------------------------------------+---> labels, manifest
//!   |<---------------- what is added to the logs is read as well ----------->|
//! ```
//! Nobody waits for it but as for any other reader of a page, and at the end, for as long as it
//! takes to tell all of the moment and that it is over, who wants a page that another has changed
//! in that time. The node that makes it is one more compute node of the pool.
//!
//! # Why that is one state
//!
//! A page is granted, and goes home, only after the record of its last change is durable (see
//! [`crate::log`]). So
//!
//! 1. *the image is never ahead of the logs*: whatever change it has of a page, the record of that
//!    was durable when the page was read, and is before the moment that is announced afterwards;
//! 2. *nothing is missing between them*: a change that the image does not have of a page was made
//!    after the page was read, hence after the ends of the logs were noted, and is recorded behind
//!    them;
//! 3. *logs are closed up to their marks*: nothing that was changed behind one was seen by another
//!    node before that had marked ([`crate::log`], `moment`).
//!
//! Records are of several pages that were changed together. Applied whole, to the image, they make
//! a state that was there for all who wrote: a set of transactions with all that they have read and
//! overwritten, in their order. All that was acknowledged before the backup began is in it, as that
//! was durable. Of two transactions that had nothing to do with each other, on two nodes, the later
//! one may be in it and the earlier not.
//!
//! *Beginnings*, whole pages that a node repeats in its log for other reasons, are passed over:
//! what they have is in the records of the changes. So records are written to the backup with
//! places of their own.
//!
//! Nodes may join, leave and die meanwhile. A log that begins before the moment is followed from
//! its beginning, that of a node that has gone is read to its end. If one marks and dies before all
//! have marked, they mark another moment. A log that was cut off, or has gone, before it was read
//! makes the backup fail.
//!
//! # What is there
//!
//! ```text
//! PLACE/<pool>/65535-1/<LSN>.slog                the image: a log of beginnings, as crate::log::objects has it
//! PLACE/<pool>/<node>-<incarnation>/<LSN>.slog   what was added to the logs
//! PLACE/manifest.json                            what belongs to the backup, and the pool's labels, written last: without it
//!                                                there is none
//! ```
//! Contents: `image` (reading the pages), `follow` (reading the logs), `manifest`, `open` (the
//! pages of a backup).
//!
//! Not done: counters (`Engine::allocate_counter`) are no pages, and the pool's logical clock is
//! none, so a pool that is made of a backup has its own. A record at the very end of a log in
//! memory, not durable yet, that is lost with its node and all memory that has it after the backup
//! has read it, may contradict what others do to its pages afterwards: opening the backup then says
//! so. Backups are whole, never what changed since another one.

mod follow;
mod image;
mod manifest;
mod open;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::env::Env;

use crate::EngineError;
use crate::access::engine::Engine;
use crate::core::Core;
use crate::join::all_of;
use follow::Logs;
use manifest::Manifest;
pub use open::Backup;
use selkie_wal::{LogError, LogObjects, LogOwner, MergeError, ReadError};

/// The owner of the image: no compute node has such a number.
const IMAGE_NODE: u16 = u16::MAX;
/// How often logs are read while pages are.
const FOLLOW_EVERY: Duration = Duration::from_millis(50);

/// Why a pool cannot be backed up, or a backup not be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The place has something.
    #[error("{}: something is there already: a backup takes a place of its own", place.display())]
    Occupied {
        /// The place.
        place: PathBuf,
    },
    /// A node changes pages, and what it changes is not recorded where that could be read.
    #[error(
        "compute node {node} has no log here: while it is in the pool, all nodes need logs that the backup can read \
         (--durability memory, or disk and the same --log-dir)"
    )]
    NoLog {
        /// The compute node.
        node: u16,
    },
    /// A log was cut off before it was read.
    #[error(
        "compute node {node} has given up a part of its log before it was read: {source}. Try again when less is written, or \
         with longer logs (--log-mb, `pool create --log-size`)"
    )]
    Cut {
        /// The compute node.
        node: u16,
        /// What was to be read.
        source: ReadError,
    },
    /// Pages were lost with nodes.
    #[error("{pages} pages of the pool are lost: a backup would lack them")]
    Lost {
        /// How many.
        pages: usize,
    },
    /// Nodes that died are not recovered from.
    #[error("compute nodes that died are not recovered from after {waited:?}")]
    Recovering {
        /// How long it was waited.
        waited: Duration,
    },
    /// The nodes did not mark a moment in their logs, up to which these are one state.
    #[error(
        "{} after {waited:?}",
        node.map_or_else(
            || "compute nodes die or come, or another backup is made, and no moment is marked in all logs".to_owned(),
            |node| format!("compute node {node} has marked no moment in its log")
        )
    )]
    NoMoment {
        /// A node that has marked none, if it is that.
        node: Option<u16>,
        /// How long it was tried.
        waited: Duration,
    },
    /// There is no backup.
    #[error("{}: there is no backup: it has no manifest", place.display())]
    None {
        /// Where it was looked for.
        place: PathBuf,
    },
    /// A part of the backup is not what it should be.
    #[error("{}: {what}", place.display())]
    Damaged {
        /// The object.
        place: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The pool does not fit.
    #[error(
        "the backup has pages of {backup} bytes, and the pool of {pool}: make one with --gcl {backup}"
    )]
    LineBytes {
        /// Bytes of a line in the backup.
        backup: usize,
        /// And in the pool.
        pool: usize,
    },
    /// The pool cannot be read.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The backup cannot be written or read.
    #[error(transparent)]
    Place(#[from] LogError),
    /// A log cannot be read, or an object of a backup.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Image and logs do not go together.
    #[error(transparent)]
    Merge(#[from] MergeError),
}

impl BackupError {
    /// Whether the same may succeed later, at another place where something is written.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Cut { .. } | Self::Recovering { .. } | Self::NoMoment { .. } | Self::Place(_) => {
                true
            }
            Self::Engine(error) => error.is_retryable(),
            _ => false,
        }
    }
}

/// What a backup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupReport {
    /// Pages in the image.
    pub pages: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Logs that were followed.
    pub logs: usize,
    /// Bytes of them.
    pub log_bytes: u64,
    /// From the first look at the logs to the manifest.
    pub took: Duration,
}

/// Who is told how far a backup is: lines of the pool that were looked at, of how many.
pub trait Watch: Send + Sync {
    /// So many of so many.
    fn at(&self, done: u64, total: u64);
}

impl<F: Fn(u64, u64) + Send + Sync> Watch for F {
    fn at(&self, done: u64, total: u64) {
        self(done, total);
    }
}

fn image_of(pool: u64, line_bytes: usize) -> LogOwner {
    LogOwner { pool, node: IMAGE_NODE, incarnation: 1, line_bytes: line_bytes as u32 }
}

/// As one that others can read: each page as it was at some moment, and what was recorded
/// meanwhile.
struct Task<'t> {
    engine: &'t Engine,
    to: &'t LogObjects,
    /// Nothing more is to be read, or it is of no use.
    is_over: AtomicBool,
}

impl Engine {
    /// Writes all pages of the pool, as they are together at a moment between the call and the
    /// return, to a place in an object store that has nothing yet. Others go on. This node needs a
    /// log of the kind that the others have, unless it is alone in the pool, and must not change
    /// pages meanwhile.
    ///
    /// As many round trips as the pool has pages in use, 64 of them at a time, and for each node
    /// that has a log some every 50 ms. Takes memory for 16 MiB of pages, and 4 MiB for each log.
    ///
    /// # Errors
    /// [`BackupError`]: the place holds what was written until then, and no manifest.
    pub async fn backup(
        &self,
        to: &LogObjects,
        watch: &dyn Watch,
    ) -> Result<BackupReport, BackupError> {
        let core = self.core();
        if !to.is_empty().await? {
            return Err(BackupError::Occupied { place: to.name().into() });
        }
        check_whole(core).await?;
        let started = core.env.now();
        let mut logs = Logs::begin(core, to).await?;
        let task = Task { engine: self, to, is_over: AtomicBool::new(false) };
        let (image, followed) = task.read_both(&mut logs, watch).await;
        followed?;
        let image = image?;
        // Before the logs are read for the last time: what labels speak of is in them.
        let state = core.pool.state();
        logs.end(core).await?;
        let known = (core.pool.state().incarnations.clone(), state.labels.clone());
        let of = (state.id, core.cache.gcl_bytes());
        let manifest = Manifest::of(of, known, image, logs.parts());
        manifest.write(to).await?;
        let log_bytes = logs.parts().iter().map(|log| log.end - log.start).sum();
        Ok(BackupReport {
            pages: image.pages,
            image_bytes: image.bytes,
            logs: logs.parts().len(),
            log_bytes,
            took: core.env.now() - started,
        })
    }
}

/// Waits until all who died are recovered from.
async fn check_whole(core: &Core) -> Result<(), BackupError> {
    let started = core.env.now();
    while !core.pool.lost().is_empty() {
        let waited = core.env.now() - started;
        if waited > core.config.request_timeout {
            return Err(BackupError::Recovering { waited });
        }
        core.env.sleep(core.config.tick).await;
    }
    match core.pool.lost_pages().len() {
        0 => Ok(()),
        pages => Err(BackupError::Lost { pages }),
    }
}

/// Sleeps, but not for long when it is over.
async fn sleep_unless(is_over: &AtomicBool, env: &Env, bound: Duration) {
    let until = env.now() + bound;
    while env.now() < until && !is_over.load(Ordering::Relaxed) {
        env.sleep(bound / 10).await;
    }
}

impl Task<'_> {
    /// Reads pages and logs at the same time; whichever fails ends the other.
    async fn read_both(
        &self,
        logs: &mut Logs,
        watch: &dyn Watch,
    ) -> (Result<image::Image, BackupError>, Result<(), BackupError>) {
        let core = self.engine.core();
        let (mut image, mut followed) = (None, Ok(()));
        {
            let read: selkie_fabric::BoxFuture<'_, ()> = Box::pin(async {
                image = Some(self.read_image(watch).await);
                self.is_over.store(true, Ordering::Relaxed);
            });
            let follow: selkie_fabric::BoxFuture<'_, ()> = Box::pin(async {
                while followed.is_ok() && !self.is_over.load(Ordering::Relaxed) {
                    followed = logs.follow(core).await;
                    if followed.is_err() {
                        self.is_over.store(true, Ordering::Relaxed);
                    }
                    sleep_unless(&self.is_over, &core.env, FOLLOW_EVERY).await;
                }
            });
            all_of([read, follow].into_iter()).await;
        }
        (image.unwrap_or(Err(BackupError::Engine(EngineError::Closed))), followed)
    }
}
