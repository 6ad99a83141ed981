//! Pages that many clients increment and read, and the checks of what they saw and what is left.

use std::ops::RangeInclusive;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::PeerId;

use super::clients::Clients;
use super::page_bytes::{FIRST, fill, part_of, value};
use super::page_client::{HOT_PAGES, PageClient, PageLoad};
use super::page_record::{PageRecord, WriteAttempt};
use super::random::client_random;
use crate::check::linear::{Action, Operation, linearizable};
use crate::cluster::SimCluster;
use crate::error::{SimError, ensure};

/// Clients of a node.
const WORKERS: usize = 3;
/// Pages of a run: some more than caches have frames, and of several ranges, or few.
pub(super) const MANY_PAGES: usize = 1200;
pub(super) const FEW_PAGES: usize = 20 * HOT_PAGES;

/// The pages of a run.
pub(super) struct CounterPages {
    addrs: Arc<Vec<GAddr>>,
    logs: Arc<Vec<Mutex<PageRecord>>>,
}

impl CounterPages {
    /// Allocates pages at the first node.
    pub(super) async fn allocate(cluster: &SimCluster, count: usize) -> Result<Self, SimError> {
        let mut addrs = Vec::new();
        for _ in 0..count {
            let mut page = cluster.engine(0)?.allocate().await?;
            let addr = page.addr();
            let first = part_of(page.len(), 0);
            fill(page.bytes_mut(first), addr, 0, FIRST);
            addrs.push(addr);
        }
        // The node that allocated them holds them.
        let ended = Some(cluster.world.now().as_nanos() as u64);
        let log = || PageRecord {
            attempts: vec![WriteAttempt { node: 0, ended }],
            ..PageRecord::default()
        };
        let logs = addrs.iter().map(|_| Mutex::new(log())).collect();
        Ok(Self { addrs: Arc::new(addrs), logs: Arc::new(logs) })
    }

    pub(super) fn addrs(&self) -> &[GAddr] {
        &self.addrs
    }

    /// Starts the clients of a node.
    pub(super) fn spawn(
        &self,
        clients: &mut Clients<'_>,
        node: usize,
        load: PageLoad,
    ) -> Result<(), SimError> {
        for worker in 0..WORKERS {
            let client = node * WORKERS + worker;
            let stream = load.round * 10_000 + client;
            let worker = PageClient {
                client,
                node,
                engine: clients.cluster.engine(node)?.clone(),
                clock: clients.cluster.world.env(),
                unacknowledged: Mutex::default(),
                env: clients.cluster.env_of(node),
                addrs: Arc::clone(&self.addrs),
                logs: Arc::clone(&self.logs),
                random: client_random(load.seed, stream),
                load,
            };
            clients.spawn(node, "counter", worker.run());
        }
        Ok(())
    }

    /// Checks that the history of every page is linearizable.
    pub(super) fn check_histories(&self) -> Result<(), SimError> {
        for (addr, log) in self.addrs.iter().zip(self.logs.iter()) {
            let checked = linearizable(FIRST, &log.lock().operations);
            checked.map_err(|error| SimError::Broken(format!("page {addr}: {error}")))?;
        }
        Ok(())
    }

    /// The value that a page must have.
    fn expected(&self, page: usize) -> RangeInclusive<u64> {
        let Some(log) = self.logs.get(page) else { return 0..=0 };
        let log = log.lock();
        let adds = log.operations.iter().filter(|o| matches!(o.action, Action::FetchAdd { .. }));
        let known = adds.clone().filter(|add| add.returned.is_some()).count() as u64;
        FIRST + known..=FIRST + adds.count() as u64
    }

    /// Reads all pages at `engine` and compares them with what was done to them; how many are lost.
    /// `may_be_lost` says which may be.
    pub(super) async fn check_pages(
        &self,
        engine: &Engine,
        may_be_lost: impl Fn(&Self, usize) -> bool,
    ) -> Result<u64, SimError> {
        let mut lost = 0;
        for (page, addr) in self.addrs.iter().copied().enumerate() {
            let expected = self.expected(page);
            let guard = match engine.shared(addr).await {
                Err(EngineError::PageLost { .. }) if may_be_lost(self, page) => {
                    lost += 1;
                    continue;
                }
                got => got?,
            };
            let was_lost = self.logs.get(page).is_some_and(|log| log.lock().lost);
            ensure(!was_lost, || format!("page {page} ({addr}) was lost and is there again"))?;
            let found = value(&guard, addr)?;
            ensure(expected.contains(&found), || {
                format!("page {page} ({addr}) holds {found} and not {expected:?}")
            })?;
        }
        Ok(lost)
    }

    /// Whether compute nodes may have held a modified page when they died: one of them asked for
    /// the exclusive latch, and no node that lives has accessed the page since. One of them may
    /// have had a copy that another granted it and had not written home yet.
    pub(super) fn may_be_lost_with(&self, page: usize, died: &[PeerId]) -> bool {
        let Some(log) = self.logs.get(page) else { return false };
        let log = log.lock();
        let has_died = |node: usize| died.contains(&PeerId::compute(node as u16));
        let since = |attempt: &WriteAttempt| {
            let Some(ended) = attempt.ended else { return false };
            let others = |o: &&Operation| !has_died(o.process / WORKERS) && o.invoked >= ended;
            log.operations.iter().any(|operation| others(&operation))
        };
        let theirs = |attempt: &&WriteAttempt| has_died(attempt.node);
        log.attempts.iter().filter(theirs).any(|attempt| !since(attempt))
    }

    /// How many pages clients found damaged.
    pub(super) fn damaged(&self) -> usize {
        self.logs.iter().filter(|log| log.lock().damaged).count()
    }
}
