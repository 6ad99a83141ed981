//! Keeping archives short: what a log was cut off of its front is home, so that nobody has to redo
//! it while the pool lives, but it may be needed to make another pool of all logs when the memory
//! of this one is lost.
//!
//! ```text
//! archived files ---> the pages that they tell of, as these are now ---> beginnings at the log's end, durable
//!                                                                          |
//!                                              the archived files go     <-+
//! ```
//! A page that a beginning has as a whole needs nothing that comes before, in whichever log. That
//! is done when the archive has become larger than what the pages took last time, twice, so that
//! what is written for it stays in proportion. The node that finds logs of others, who have left or
//! were recovered from, does the same with these.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_wal::{
    Change, Dirty, Labels, LogError, LogOwner, LogStore, Lsn, ReadError, Record, scan,
};

use super::state::Log;
use crate::access::acquire::Access;
use crate::access::guard::SharedGuard;
use crate::core::Core;
use crate::join::all_of;
use crate::{EngineError, GAddr};

/// How often it is looked what is archived, and whether labels have changed.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Unless the own log was cut off, what others left is looked for only so often: places may want
/// money to be looked at.
const OTHERS_EVERY: Duration = Duration::from_secs(30);
/// An archive may be so many times what its pages took when it was last made short.
const GROWN: u64 = 2;
/// How long it is waited after a failure, which may last and has recorded pages for nothing; at
/// first, and at most.
const BACKOFF: Duration = Duration::from_secs(1);
const MOST_BACKOFF: Duration = Duration::from_secs(600);
/// Pages that are taken at the same time.
const AT_ONCE: usize = 64;

/// Keeps what is archived short, and the labels beside the logs, until the engine is gone.
pub(crate) async fn run_archive(core: Weak<Core>) {
    let Some(env) = core.upgrade().map(|core| core.env.clone()) else { return };
    let (mut pages_took, mut labels, mut backoff) = (0, Labels::new(), BACKOFF);
    let (mut cut, mut others_at) = (None, env.now());
    loop {
        env.sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        let (Some(log), Some(store)) = (&core.log, core.log_store()) else { return };
        if core.lifecycle.check_alive().is_err() {
            return;
        }
        let state = core.pool.state();
        if state.labels != labels {
            match store.keep_labels(state.id, state.labels.clone()).await {
                Ok(()) => labels.clone_from(&state.labels),
                Err(error) => tracing::warn!(%error, "labels cannot be kept beside the logs"),
            }
        }
        let start = log.start();
        // Who has changed nothing, as who makes a backup, leaves that to others.
        if !log.has_changes() || cut == Some(start) && env.now() < others_at {
            continue;
        }
        (cut, others_at) = (Some(start), env.now() + OTHERS_EVERY);
        match core.shorten_archives(log, &*store, pages_took).await {
            Ok(Some(bytes)) => (pages_took, backoff) = (bytes, BACKOFF),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "an archive cannot be made shorter");
                cut = None;
                env.sleep(backoff).await;
                backoff = (2 * backoff).min(MOST_BACKOFF);
            }
        }
    }
}

impl Core {
    /// Keeps the pool's labels beside the logs, if there are any.
    pub(crate) async fn keep_labels(&self) {
        let state = self.pool.state();
        let Some(store) = self.log_store().filter(|_| !state.labels.is_empty()) else { return };
        if let Err(error) = store.keep_labels(state.id, state.labels.clone()).await {
            tracing::warn!(%error, "labels cannot be kept beside the logs");
        }
    }

    /// Makes archives short if they have grown beyond what the pages took before, and what the log
    /// may keep; what they took now, bytes.
    async fn shorten_archives(
        &self,
        log: &Arc<Log>,
        store: &dyn LogStore,
        pages_took: u64,
    ) -> Result<Option<u64>, EngineError> {
        let own = self.log_of(self.index().get());
        let mut logs = vec![(own, store.archived(own).await.map_err(unread)?)];
        for owner in store.owners().await.map_err(unread)? {
            if owner != own && self.is_over(owner) {
                logs.push((owner, store.archived(owner).await.map_err(unread)?));
            }
        }
        let size: u64 = logs.iter().flat_map(|(_, pieces)| pieces).map(|(_, bytes)| bytes).sum();
        let (_, capacity) = log.kept();
        if size <= capacity.max(GROWN * pages_took) {
            return Ok(None);
        }
        let mut took = 0;
        for (owner, archived) in logs {
            let mut starts: Vec<Lsn> = archived.into_iter().map(|(start, _)| start).collect();
            if owner != own {
                // What is archived meanwhile is in both, rather than in none.
                starts = store.pieces(owner).await.map_err(unread)?;
                let archived = store.archived(owner).await.map_err(unread)?;
                starts.extend(archived.into_iter().map(|(start, _)| start));
                starts.sort_unstable();
                starts.dedup();
            }
            let addrs = pages_of(store, owner, &starts).await?;
            self.record_full_page_images(log, &addrs).await?;
            // Who has closed leaves what there is.
            self.lifecycle.check_alive()?;
            let done = match starts.last() {
                Some(last) if owner == own => store.forget(owner, last + 1).await,
                Some(_) => store.remove(owner).await,
                None => Ok(()),
            };
            done.map_err(EngineError::Log)?;
            took += addrs.len() as u64 * self.cache.gcl_bytes() as u64;
        }
        tracing::info!(archived_mib = size >> 20, pages_mib = took >> 20, "made archives short");
        Ok(Some(took))
    }

    /// Whether the node that has written a log has left, or was recovered from.
    fn is_over(&self, owner: LogOwner) -> bool {
        let state = self.pool.state();
        let is_in = state.compute_nodes.contains_key(&owner.node)
            && state.incarnations.get(&owner.node) == Some(&owner.incarnation);
        owner.pool == state.id && !is_in && !state.may_be_redone(owner.node, owner.incarnation)
    }

    /// Records pages as they are now, as beginnings, and waits until that is durable.
    async fn record_full_page_images(
        &self,
        log: &Arc<Log>,
        addrs: &BTreeSet<GAddr>,
    ) -> Result<(), EngineError> {
        let addrs: Vec<GAddr> = addrs.iter().copied().collect();
        for some in addrs.chunks(AT_ONCE) {
            log.until_room(&self.env, self.config.request_timeout).await?;
            let taken =
                all_of(some.iter().map(|addr| self.record_full_page_image(log, *addr))).await;
            taken.into_iter().collect::<Result<(), _>>()?;
        }
        self.until_durable(log, log.end()).await
    }

    async fn record_full_page_image(&self, log: &Log, addr: GAddr) -> Result<(), EngineError> {
        let frame = self.acquire(addr, Access::Shared, false).await?;
        let page = SharedGuard::new(self, frame);
        // To the log it is the change that made the page what it is.
        let Some(psn) = page.psn().checked_sub(1) else {
            let unchanged = std::io::Error::other("a page that a log tells of was never changed");
            return Err(EngineError::Log(LogError::new("begin anew", addr.to_string(), unchanged)));
        };
        log.append_full_page_images(&[Change { addr, psn, pieces: Dirty::ALL, line: page.line() }]);
        Ok(())
    }
}

fn unread(error: ReadError) -> EngineError {
    match error {
        ReadError::Log(error) => EngineError::Log(error),
        error => EngineError::Log(LogError::new("read", "a log", std::io::Error::other(error))),
    }
}

/// The pages that pieces of a log tell of.
async fn pages_of(
    store: &dyn LogStore,
    owner: LogOwner,
    starts: &[Lsn],
) -> Result<BTreeSet<GAddr>, EngineError> {
    let mut addrs = BTreeSet::new();
    // What was added too late was never a change of anything.
    let end = store.ended(owner).await.map_err(unread)?;
    for start in starts.iter().filter(|start| end.is_none_or(|end| **start < end)) {
        let piece = store.piece(owner, *start).await.map_err(unread)?.up_to(end, *start);
        let note = |record: Record<'_>| addrs.extend(record.pages().map(|page| page.addr()));
        // What is damaged stays.
        scan(&piece.bytes, *start, owner.format(), note)
            .map_err(|damage| ReadError::Damaged { place: piece.place, at: piece.offset, damage })
            .map_err(unread)?;
    }
    Ok(addrs)
}
