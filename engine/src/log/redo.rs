//! Redo of the changes of a dead node: its log is applied to the pages as they are at home.
//!
//! ```text
//! sweep: words that name the dead node --> its log, and those of other dead nodes
//!    --> for each page: repair home's page --> apply the changes since
//!                       --> write it home, and free its latch word
//! ```
//! A page that is handed over dirty is written home before its new holder is confirmed
//! ([`home_first`]). So home has all changes of the page but those of its last holder, and these
//! are in the holder's log without a gap. If the node that handed the page over died as well, its
//! log has the rest. The sequence number of home's page may be that of an incomplete write-back, so
//! all changes of that interval are redone from its start: later changes overwrite earlier ones.
//!
//! A node that died before it acknowledged another death may have held pages that the other dead
//! node granted, with changes that are only in the other's log. It may have died as it wrote such a
//! page home. So the logs and journals of dead nodes are used until no recovery is in progress,
//! even if the recovery of their own node is over.
//!
//! If a recovery is interrupted, another node repeats it: a page is home before its word is free,
//! and redo is idempotent. All nodes use the same log: its end is fixed before a page is redone
//! from it ([`LogStore::end_at`]).
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures_util::FutureExt;
use parking_lot::Mutex;
use selkie_fabric::env::{Env, yield_now};
use selkie_fabric::{Buf, Chain, Verb};
use selkie_wal::{
    Changes, LogEnd, LogError, LogOwner, LogRange, LogStore, Lsn, ReadError, Record, read_log,
};

use crate::addressing::executed::read_at;
use crate::coding::journal::share::JournalImage;
use crate::coding::placed::placed;
use crate::coding::repair_torn::RepairedPage;
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::join::all_of;
use crate::tasks::message_of;
use crate::{EngineError, GAddr};

/// Attempts to read a log that cannot be read.
const TRIES: u32 = 20;
/// Said of a task that has not come to an end.
const ENDED: &str = "the environment has ended";
/// Pages of each part that are redone at the same time.
const AT_ONCE: usize = 64;
/// Parts of a log that are read at the same time, and parts of the pages: merging changes takes
/// longer than reading them.
const PARTS: usize = 2;

/// Runs tasks at the same time. Returns their results in order, or the message of a task's panic:
/// the caller turns that into an error and the recovery is repeated, so that damage in a dead
/// node's log does not end the nodes that read it.
async fn side_by_side<T, F>(env: &Env, tasks: impl Iterator<Item = F>) -> Vec<Result<T, String>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let begin = |task: F| {
        let result = Arc::new(Mutex::new(Err(ENDED.to_owned())));
        let done = Arc::clone(&result);
        let run = async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(result) => *done.lock() = Ok(result),
                Err(panic) => {
                    *done.lock() = Err(message_of(&*panic));
                    // The environment is told of it, too.
                    resume_unwind(panic);
                }
            }
        };
        (env.spawn("redo", run), result)
    };
    let begun: Vec<_> = tasks.map(begin).collect();
    let mut results = Vec::with_capacity(begun.len());
    for (task, result) in begun {
        // A task that the environment has ended leaves that message.
        let _ = task.join().await;
        results.push(std::mem::replace(&mut *result.lock(), Err(ENDED.to_owned())));
    }
    results
}

/// Reads the changes of pages in a log, several parts at the same time. Returns them with the end
/// of the log.
async fn read_in_parts(
    env: &Env,
    store: &Arc<dyn LogStore>,
    owner: LogOwner,
    none: impl Fn() -> Changes,
) -> Result<Option<(Changes, Lsn)>, ReadError> {
    let cuts = store.split_points(owner, PARTS).await?;
    let froms = [None].into_iter().chain(cuts.iter().copied().map(Some));
    let tos = cuts.iter().copied().map(Some).chain([None]);
    let read = |(from, to)| {
        let (store, mut changes) = (Arc::clone(store), none());
        async move {
            let mut add = |record: Record<'_>| changes.add(&record);
            let read = store.read(owner, LogRange { from, to }, &mut add).await?;
            Ok(read.map(|LogEnd { lsn, .. }| (changes, lsn)))
        }
    };
    let parts = side_by_side(env, froms.zip(tos.clone()).map(read)).await;
    let mut all: Option<(Changes, Lsn)> = None;
    for (part, to) in parts.into_iter().zip(tos) {
        let panicked = |message| {
            let source = std::io::Error::other(format!("redo panicked: {message}"));
            LogError::new("read", "a log", source)
        };
        let part: Result<_, ReadError> = part.map_err(panicked)?;
        let Some((changes, lsn)) = part?.filter(|(_, lsn)| to.is_none_or(|to| to == *lsn)) else {
            // The log is missing or ends within the part: records behind the end do not count.
            let mut changes = none();
            let read = read_log(&**store, owner, |record| changes.add(&record)).await?;
            return Ok(read.map(|LogEnd { lsn, .. }| (changes, lsn)));
        };
        match &mut all {
            Some((all, end)) => {
                all.join(changes);
                *end = lsn;
            }
            None => all = Some((changes, lsn)),
        }
    }
    Ok(all)
}

/// Reads the changes in the log of a dead node, and fixes its end for all readers: the node may
/// only be stalled, and may still append.
async fn read_to_end(
    env: &Env,
    store: &Arc<dyn LogStore>,
    owner: LogOwner,
    none: impl Fn() -> Changes,
) -> Result<Option<Changes>, ReadError> {
    // A second time if another node has fixed the end meanwhile.
    for _ in 0..2 {
        let Some((changes, lsn)) = read_in_parts(env, store, owner, &none).await? else {
            return Ok(None);
        };
        if store.end_at(owner, lsn).await? == lsn {
            return Ok(Some(changes));
        }
    }
    let place = format!("the log of compute node {}-{}", owner.node, owner.incarnation).into();
    let what = "where it ends is said in two ways".to_owned();
    Err(ReadError::Place { place, what })
}

impl Core {
    /// Redoes pages that were lost with a dead node, if this node reaches its log. Returns the
    /// pages that stay lost.
    ///
    /// # Errors
    /// If memory, a log or the control plane cannot be reached. The caller repeats it a few times.
    pub(crate) async fn redo(
        &self,
        dead: ComputeId,
        lost: Vec<u64>,
        images: &Arc<[JournalImage]>,
    ) -> Result<Vec<u64>, EngineError> {
        let Some(store) = self.log_store() else { return Ok(lost) };
        if lost.is_empty() {
            return Ok(lost);
        }
        let started = self.env.now();
        let pages: Vec<GAddr> = lost.iter().copied().map(GAddr::from_u64).collect();
        let logs = self.logs_with(dead);
        let none = || Changes::of(pages.iter().copied(), self.cache.gcl_bytes(), logs.len() == 1);
        let (mut changes, mut has_own) = (Changes::default(), false);
        for owner in logs.iter().copied() {
            let is_own = usize::from(owner.node) == dead.index();
            match read_to_end(&self.env, &store, owner, none).await {
                Ok(None) => continue,
                Ok(Some(own)) => changes.join(own),
                Err(ReadError::Log(error)) if self.may_try_again(owner) => {
                    return Err(EngineError::Log(error));
                }
                // A page that needs this log has a gap in its changes, and stays lost.
                Err(error) => {
                    tracing::error!(node = owner.node, %error, "the log of a dead node cannot be relied on");
                    continue;
                }
            }
            has_own |= is_own;
        }
        self.recovery.redo_attempts.lock().insert(self.log_of(dead.index() as u16), TRIES);
        if !has_own {
            tracing::warn!(
                dead = dead.index(),
                pages = pages.len(),
                "without its log, pages stay lost"
            );
            return Ok(lost);
        }
        #[cfg(feature = "planted")]
        if self.config.planted == crate::Planted::ShortRedo {
            changes.forget_last();
        }
        let changes = Arc::new(changes);
        let core = self.this.upgrade().ok_or(EngineError::Closed)?;
        let make = |some: &[GAddr]| {
            let (core, some) = (Arc::clone(&core), some.to_vec());
            let (changes, images) = (Arc::clone(&changes), Arc::clone(images));
            async move { core.redo_pages(&some, dead, &changes, &images).await }
        };
        let parts = pages.chunks(pages.len().div_ceil(PARTS)).map(make);
        let mut still = Vec::new();
        for part in side_by_side(&self.env, parts).await {
            still.append(&mut part.map_err(|_| EngineError::Closed)??);
        }
        let took = self.env.now() - started;
        tracing::info!(
            dead = dead.index(),
            pages = pages.len(),
            lost = still.len(),
            ?took,
            "made pages again from the log"
        );
        Ok(still)
    }

    /// Repeats the recovery from dead nodes whose pages stayed lost, if this node reaches their
    /// logs and has not used them: the node that recovered did not reach them.
    ///
    /// # Errors
    /// If the control plane cannot be reached.
    pub(crate) async fn recover_again(&self) -> Result<(), EngineError> {
        let Some(store) = self.log_store() else { return Ok(()) };
        for node in self.pool.dead() {
            let owner = self.log_of(node.get());
            if !self.may_try_again(owner) {
                continue;
            }
            match store.pieces(owner).await {
                Ok(pieces) if pieces.is_empty() => {}
                Ok(_) => self.pool.recover_again(node).await?,
                Err(error) => {
                    tracing::warn!(node = node.get(), %error, "the log of a dead node cannot be read");
                    continue;
                }
            }
            self.recovery.redo_attempts.lock().insert(owner, TRIES);
        }
        Ok(())
    }

    /// Counts an attempt to read a log. Returns whether more attempts are allowed.
    fn may_try_again(&self, owner: LogOwner) -> bool {
        let mut redone = self.recovery.redo_attempts.lock();
        let tries = redone.entry(owner).or_insert(0);
        *tries += u32::from(*tries < TRIES);
        *tries < TRIES
    }

    /// The logs that may have changes of pages that a dead node held: its own, and those of nodes
    /// that died with it, which may have granted it the page or received it.
    fn logs_with(&self, dead: ComputeId) -> Vec<LogOwner> {
        let state = self.pool.state();
        let line_bytes = self.cache.gcl_bytes() as u32;
        let of = |(node, incarnation)| LogOwner { pool: state.id, node, incarnation, line_bytes };
        let crashed = state.crashed_with(dead.index() as u16).into_iter();
        crashed.filter(|(node, _)| !state.only_recovers(*node)).map(of).collect()
    }

    /// Redoes pages. Returns those that stay lost.
    async fn redo_pages(
        &self,
        pages: &[GAddr],
        dead: ComputeId,
        changes: &Changes,
        images: &[JournalImage],
    ) -> Result<Vec<u64>, EngineError> {
        let mut still = Vec::new();
        for some in pages.chunks(AT_ONCE) {
            let make = |addr: &GAddr| {
                AssertUnwindSafe(self.redo_page(*addr, dead, changes, images)).catch_unwind()
            };
            for (addr, made) in some.iter().zip(all_of(some.iter().map(make)).await) {
                let is_made = made.unwrap_or_else(|panic| {
                    let message = message_of(&*panic);
                    tracing::error!(%addr, message, "redo panicked: a page stays lost");
                    self.report("redo", panic);
                    Ok(false)
                });
                if !is_made? {
                    still.push(addr.to_u64());
                }
            }
            // The lease is renewed meanwhile, also on the only thread of a process.
            yield_now().await;
        }
        Ok(still)
    }

    /// Redoes a page. Returns `false` if the page stays lost.
    async fn redo_page(
        &self,
        addr: GAddr,
        dead: ComputeId,
        changes: &Changes,
        images: &[JournalImage],
    ) -> Result<bool, EngineError> {
        self.panic_if_planted("redo of a page");
        // The log still has changes that were being written home. Without such, home is complete.
        if changes.has_changes_of(addr) || images.iter().any(|image| image.attempt.addr == addr) {
            let Some(mut line) = self.home_line(addr, images).await? else { return Ok(false) };
            match changes.redo(addr, &mut line) {
                Ok(true) => self.put_home(addr, &line).await?,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(%error, "a page stays lost");
                    return Ok(false);
                }
            }
        }
        let Some(home) = self.memory.placement.home(addr) else { return Ok(false) };
        self.free_word(home.node, home.latch, dead).await?;
        Ok(true)
    }

    /// The line at home, which no node changes meanwhile. `None` if too few of its splits are left.
    async fn home_line(
        &self,
        addr: GAddr,
        images: &[JournalImage],
    ) -> Result<Option<Vec<u8>>, EngineError> {
        if self.memory.coded.is_some() {
            return Ok(match self.repair_torn_page(addr, images).await? {
                RepairedPage::Whole(line) => Some(line),
                RepairedPage::Lost | RepairedPage::NotCoded => None,
            });
        }
        let Some(home) = self.memory.placement.home(addr) else { return Ok(None) };
        let read = Verb::read(home.page, Buf::zeroed(self.cache.gcl_bytes()));
        let done = self.memory.queue_pair(home.node).post(Chain::from(read)).await;
        let done = done.map_err(|error| error.error)?;
        Ok(Some(read_at(&done, 0).to_vec()))
    }

    /// Writes a whole line home, which no node reads or writes meanwhile. It is in place on return.
    pub(super) async fn put_home(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        let home = self.memory.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let write = if self.memory.coded.is_some() {
            self.put_coded(addr, line).await?;
            // The header was written last: when it can be read, all is in place.
            Chain::from(Verb::read(home.latch, Buf::zeroed(8)))
        } else {
            placed(home.page, Buf::copy_of(line))
        };
        let done = self.memory.queue_pair(home.node).post(write).await;
        done.map(drop).map_err(|error| error.error.into())
    }
}
