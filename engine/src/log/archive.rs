//! Shortening of archives. The truncated part of a log is home, so the pool does not need it. But a
//! restore of the pool from all logs needs it, when the pool's memory is lost.
//!
//! ```text
//! archived files ---> their pages, as they are now ---> full-page images at the log's end, durable
//!                                                                          |
//!                                          the archived files are removed <-+
//! ```
//! A page with a full-page image needs no earlier record of any log. Archives are shortened when
//! they have grown to twice the size of the pages of the last time, so that the cost stays in
//! proportion. Logs of nodes that have left or were recovered from are shortened by the node that
//! finds them.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_wal::{
    Change, Dirty, Labels, LogError, LogOwner, LogStore, Lsn, ReadError, Record, scan,
};

use super::state::Log;
use crate::access::acquire::Access;
use crate::access::guard::SharedGuard;
use crate::access::waiters::WaitPolicy;
use crate::core::Core;
use crate::join::all_of;
use crate::{EngineError, GAddr};

/// The interval of checks of the archives and the labels.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The interval of checks for logs of other nodes, unless this node's log was truncated: an object
/// store may charge for a listing.
const OTHERS_EVERY: Duration = Duration::from_secs(30);
/// The size of an archive at which it is shortened, in sizes of its pages the last time.
const GROWN: u64 = 2;
/// The first and the longest wait after a failure, which may last and has recorded pages in vain.
const BACKOFF: Duration = Duration::from_secs(1);
const MOST_BACKOFF: Duration = Duration::from_secs(600);
/// Pages that are latched at the same time.
const AT_ONCE: usize = 64;

/// Keeps archives short, and the labels beside the logs, until the engine is gone.
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
        // A node without changes, such as one that makes a backup, leaves that to others.
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

    /// Shortens archives if they have grown beyond the limit and beyond the log's capacity. Returns
    /// the bytes of their pages.
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
                // In this order a piece that is archived meanwhile is in both lists, not in none.
                starts = store.pieces(owner).await.map_err(unread)?;
                let archived = store.archived(owner).await.map_err(unread)?;
                starts.extend(archived.into_iter().map(|(start, _)| start));
                starts.sort_unstable();
                starts.dedup();
            }
            let addrs = pages_of(store, owner, &starts).await?;
            self.record_full_page_images(log, &addrs).await?;
            // A node that has closed removes nothing.
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

    /// Whether the writer of a log has left or was recovered from.
    fn is_over(&self, owner: LogOwner) -> bool {
        let state = self.pool.state();
        let is_in = state.compute_nodes.contains_key(&owner.node)
            && state.incarnations.get(&owner.node) == Some(&owner.incarnation);
        owner.pool == state.id && !is_in && !state.may_be_redone(owner.node, owner.incarnation)
    }

    /// Records full-page images of the pages as they are now, and waits until they are durable.
    async fn record_full_page_images(
        &self,
        log: &Arc<Log>,
        addrs: &BTreeSet<GAddr>,
    ) -> Result<(), EngineError> {
        let addrs: Vec<GAddr> = addrs.iter().copied().collect();
        for some in addrs.chunks(AT_ONCE) {
            log.until_room(&self.lifecycle, &self.env, self.config.request_timeout).await?;
            let taken =
                all_of(some.iter().map(|addr| self.record_full_page_image(log, *addr))).await;
            taken.into_iter().collect::<Result<(), _>>()?;
        }
        self.until_durable(log, log.end()).await
    }

    async fn record_full_page_image(&self, log: &Log, addr: GAddr) -> Result<(), EngineError> {
        let frame = self.acquire(addr, Access::Shared, WaitPolicy::AllHolders).await?;
        let page = SharedGuard::new(self, frame);
        // In the log the image is the change that led to this sequence number.
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

/// The pages that have records in these pieces of a log.
async fn pages_of(
    store: &dyn LogStore,
    owner: LogOwner,
    starts: &[Lsn],
) -> Result<BTreeSet<GAddr>, EngineError> {
    let mut addrs = BTreeSet::new();
    // Records behind the fixed end do not count.
    let end = store.ended(owner).await.map_err(unread)?;
    for start in starts.iter().filter(|start| end.is_none_or(|end| **start < end)) {
        let piece = store.piece(owner, *start).await.map_err(unread)?.up_to(end, *start);
        let note = |record: Record<'_>| addrs.extend(record.pages().map(|page| page.addr()));
        // A damaged archive is kept.
        scan(&piece.bytes, *start, owner.format(), note)
            .map_err(|damage| ReadError::Damaged { place: piece.place, at: piece.offset, damage })
            .map_err(unread)?;
    }
    Ok(addrs)
}
