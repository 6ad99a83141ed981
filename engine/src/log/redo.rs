//! What a dead node had changed of pages that nobody else has: made again from its log, on top of
//! what home has.
//!
//! ```text
//! sweep: words that name the dead node --> its log, and those of others that died --> for each page:
//!    home's page, mended --> the changes since --> home, with its latch word free
//! ```
//! A page that is handed over dirty goes home before the one who gets it is confirmed
//! ([`home_first`]). So home has all of the page but what its last holder has changed, which is in
//! that one's log without a gap; unless the one who gave it died as well, whose log has the rest
//! then. The number of home's page may be that of a write-back that was cut short, so all changes
//! of that stretch are made again, from its beginning: what a later one changes as well is changed
//! last.
//!
//! Who died before it had acknowledged another's death may have had pages that this one granted,
//! with changes that are in the log of this one only. So logs count until no recovery is under way,
//! also when that of their node is over.
//!
//! A recovery that is cut short is begun anew by others: a page is home before its word is free,
//! and what was made once may be made again. All go by the same log: where it ends is said before a
//! page is made of it ([`LogStore::end_at`]).
//!
//! [`home_first`]: crate::coherence::machine::Rules::home_first

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
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
use crate::{EngineError, GAddr};

/// How often a log that cannot be read is tried.
const TRIES: u32 = 20;
/// Pages that are made again at the same time, of each part.
const AT_ONCE: usize = 64;
/// Parts of a log that are read at the same time, and of the pages: putting changes together takes
/// longer than reading them.
const PARTS: usize = 2;

/// Runs tasks at the same time; what came of each, in their order, but of one that did not come to
/// its end.
async fn side_by_side<T: Send + 'static>(
    env: &Env,
    tasks: impl Iterator<Item = impl Future<Output = T> + Send + 'static>,
) -> Vec<Option<T>> {
    let begin = |task| {
        let result = Arc::new(Mutex::new(None));
        let done = Arc::clone(&result);
        let run = async move { *done.lock() = Some(task.await) };
        (env.spawn("redo", run), result)
    };
    let begun: Vec<_> = tasks.map(begin).collect();
    let mut results = Vec::with_capacity(begun.len());
    for (task, result) in begun {
        // Whether it has ended its result says.
        let _ = task.join().await;
        results.push(result.lock().take());
    }
    results
}

/// What a log tells of pages, and where it ends; parts of it are read at the same time.
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
        let gone = || LogError::new("read", "a log", std::io::ErrorKind::BrokenPipe.into());
        let part: Result<_, ReadError> = part.ok_or_else(gone)?;
        let Some((changes, lsn)) = part?.filter(|(_, lsn)| to.is_none_or(|to| to == *lsn)) else {
            // It is not here, or ends there, and what was found behind is none of it.
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

/// What the log of a dead node tells of pages, which is all that it will ever tell anybody: it may
/// still be added to, as the node may only stand still.
async fn read_to_end(
    env: &Env,
    store: &Arc<dyn LogStore>,
    owner: LogOwner,
    none: impl Fn() -> Changes,
) -> Result<Option<Changes>, ReadError> {
    // Once more if another said meanwhile where it ends.
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
    /// Makes pages again that were lost with a dead node, as far as its log is to be had here;
    /// those that stay lost.
    ///
    /// # Errors
    /// If memory, a log or the control plane cannot be reached; it is to be begun anew then, a few
    /// times.
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
                // Where the log of another would be needed there is a gap.
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
            still.append(&mut part.ok_or(EngineError::Closed)??);
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

    /// Begins the recovery from nodes anew with which pages were lost, if their logs are here and
    /// nothing was made of them yet: whoever had recovered from them did not reach these.
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

    /// Whether a log is to be tried once more, which counts as such.
    fn may_try_again(&self, owner: LogOwner) -> bool {
        let mut redone = self.recovery.redo_attempts.lock();
        let tries = redone.entry(owner).or_insert(0);
        *tries += u32::from(*tries < TRIES);
        *tries < TRIES
    }

    /// The logs that changes of pages may be in that a dead node had: its own, and those of others
    /// that died with it, who may have granted it the page, or have been granted it.
    fn logs_with(&self, dead: ComputeId) -> Vec<LogOwner> {
        let state = self.pool.state();
        let line_bytes = self.cache.gcl_bytes() as u32;
        let of = |(node, incarnation)| LogOwner { pool: state.id, node, incarnation, line_bytes };
        state.crashed_with(dead.index() as u16).into_iter().map(of).collect()
    }

    /// Makes pages again; those that stay lost.
    async fn redo_pages(
        &self,
        pages: &[GAddr],
        dead: ComputeId,
        changes: &Changes,
        images: &[JournalImage],
    ) -> Result<Vec<u64>, EngineError> {
        let mut still = Vec::new();
        for some in pages.chunks(AT_ONCE) {
            let made = some.iter().map(|addr| self.redo_page(*addr, dead, changes, images));
            for (addr, made) in some.iter().zip(all_of(made).await) {
                if !made? {
                    still.push(addr.to_u64());
                }
            }
        }
        Ok(still)
    }

    /// `false`: the page stays lost.
    async fn redo_page(
        &self,
        addr: GAddr,
        dead: ComputeId,
        changes: &Changes,
        images: &[JournalImage],
    ) -> Result<bool, EngineError> {
        // What was on its way home is in the log still: of another page home has all.
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

    /// The line as home has it, which nobody changes meanwhile; `None` if too little is left of it.
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

    /// Writes a whole line home, which nobody reads or writes meanwhile; it is in place then.
    pub(super) async fn put_home(&self, addr: GAddr, line: &[u8]) -> Result<(), EngineError> {
        let home = self.memory.placement.home(addr).ok_or(EngineError::BadAddress { addr })?;
        let write = if self.memory.coded.is_some() {
            self.put_coded(addr, line).await?;
            // What was written last is the header, which is in place when it can be read.
            Chain::from(Verb::read(home.latch, Buf::zeroed(8)))
        } else {
            placed(home.page, Buf::copy_of(line))
        };
        let done = self.memory.queue_pair(home.node).post(write).await;
        done.map(drop).map_err(|error| error.error.into())
    }
}
