//! The lock tree on one node: entering a queue, looking at it, leaving it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use selkie_btree::{Tree, TreeError, ValueChange, max_value};
use selkie_engine::{ComputeId, Engine, EngineError};

use crate::locks::entry::{
    LockName, LockRequest, MOST_REQUESTS, NAME, Owner, REQUEST, Wait, decode_queue,
};
use crate::locks::lock_bell::LockBell;
use crate::locks::queue::{self, Standing};
use crate::locks::wait_counts::WaitCounts;
use crate::stats::TxnStats;

/// Between two attempts at leaving a queue.
const LEAVE_AGAIN: Duration = Duration::from_millis(5);

/// The locks of a database, as one node sees them.
pub(crate) struct LockTable {
    pub(crate) engine: Engine,
    pub(crate) tree: Tree,
    pub(crate) bell: LockBell,
    pub(crate) counts: LockCounts,
    /// The next number of a request.
    next: AtomicU64,
}

/// What became of wishes for locks.
#[derive(Default)]
pub(crate) struct LockCounts {
    /// Locks that were waited for.
    pub(crate) waits: WaitCounts,
    /// Locks that were not had, by those who were not to wait.
    refusals: AtomicU64,
}

// Relaxed throughout: counters.
impl LockCounts {
    pub(crate) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn add_to(&self, stats: &mut TxnStats) {
        stats.lock_waits += self.waits.waits();
        stats.lock_wait_time += self.waits.waited();
        stats.lock_refusals += self.refusals.load(Ordering::Relaxed);
    }
}

/// How often a change of the lock tree is tried that others hold up, or memory that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Once, for a caller that waits: a task does the rest.
    Once,
    /// Until it is done, in a task.
    Endless,
}

impl LockTable {
    pub(crate) fn new(engine: &Engine, tree: Tree) -> Self {
        let (counts, next) = (LockCounts::default(), AtomicU64::new(0));
        Self { engine: engine.clone(), tree, bell: LockBell::default(), counts, next }
    }

    /// A number of no other request or wait on this node.
    pub(crate) fn next_number(&self) -> u64 {
        // Relaxed: only that no number is given twice.
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Most requests in a queue.
    fn most_requests(&self) -> usize {
        let fits = max_value(self.engine.page_bytes(), NAME) / REQUEST;
        fits.min(MOST_REQUESTS)
    }

    pub(crate) fn lives(&self, owner: &Owner) -> bool {
        self.is_member(owner.node, owner.incarnation)
    }

    fn is_member(&self, node: u8, incarnation: u32) -> bool {
        let node = ComputeId::new(usize::from(node));
        node.is_some_and(|node| self.engine.is_member(node, incarnation))
    }

    /// Takes those out who are of nodes that are gone.
    fn bury(&self, queue: &mut Vec<LockRequest>) {
        #[cfg(feature = "planted")]
        if self.engine.planted() == selkie_engine::Planted::LostLocks
            && queue.iter().any(|request| !self.lives(&request.owner))
        {
            queue.clear();
        }
        queue.retain(|request| self.lives(&request.owner));
    }

    /// Enters a request at the end of the queue, or takes it for the same if its transaction is in
    /// it already. One that is not to wait enters only a queue in which it has the lock at once.
    pub(crate) async fn enter(
        &self,
        name: LockName,
        request: LockRequest,
        waits: bool,
    ) -> Result<Standing, TreeError> {
        let most = self.most_requests();
        let change = |value: Option<&[u8]>| {
            queue::enter(value, request, waits, most, |queue| self.bury(queue))
        };
        self.tree.modify(&self.engine, &name.key(), change).await
    }

    /// Where a transaction stands in a queue.
    pub(crate) async fn look(&self, name: LockName, txn: u64) -> Result<Standing, TreeError> {
        let queue = self.queue(name).await?;
        Ok(queue::standing(&queue, txn, |owner| self.lives(owner)))
    }

    /// Who holds a lock or waits for it, in order.
    pub(crate) async fn queue(&self, name: LockName) -> Result<Vec<LockRequest>, TreeError> {
        let queue = self.tree.get_with(&self.engine, &name.key(), decode_queue).await?;
        Ok(queue.unwrap_or_default())
    }

    /// Takes a transaction out of a queue: this request of it only, if one is given. Whether that
    /// is done, or will never be: the node has failed or is closed, whose entries are nobody's.
    pub(crate) async fn leave(
        &self,
        name: LockName,
        txn: u64,
        ticket: Option<u32>,
        patience: Patience,
    ) -> bool {
        let is_done =
            self.until_done(name.key(), patience, |value| queue::leave(value, txn, ticket));
        let is_done = is_done.await;
        self.bell.ring(name);
        is_done
    }

    /// Lets others share the lock of a transaction.
    pub(crate) async fn share(&self, name: LockName, txn: u64) -> Result<(), TreeError> {
        let change = |value: Option<&[u8]>| (queue::share(value, txn), ());
        let shared = self.tree.modify(&self.engine, &name.key(), change).await;
        self.bell.ring(name);
        shared
    }

    /// Makes it known that a transaction waits.
    pub(crate) async fn publish(&self, txn: u64, wait: Wait) -> Result<(), TreeError> {
        let change = |_: Option<&[u8]>| (ValueChange::Set(wait.encode()), ());
        self.tree.modify(&self.engine, &Wait::key(txn), change).await
    }

    /// It waits no more: nothing is known but a later wait. Whether that is done, as for
    /// [`leave`](Self::leave).
    pub(crate) async fn withdraw(&self, txn: u64, number: u64, patience: Patience) -> bool {
        self.until_done(Wait::key(txn), patience, |value| {
            match value.and_then(Wait::decode).filter(|wait| wait.number == number) {
                Some(_) => ValueChange::Remove,
                None => ValueChange::Keep,
            }
        })
        .await
    }

    /// What a transaction waits for, if that is known.
    pub(crate) async fn wait_of(&self, txn: u64) -> Result<Option<Wait>, TreeError> {
        let found = self.tree.get_with(&self.engine, &Wait::key(txn), Wait::decode).await?;
        let Some(wait) = found.flatten() else { return Ok(None) };
        if self.is_member(wait.node, wait.incarnation) {
            return Ok(Some(wait));
        }
        self.withdraw(txn, wait.number, Patience::Once).await;
        Ok(None)
    }

    async fn until_done(
        &self,
        key: [u8; NAME],
        patience: Patience,
        change: impl Fn(Option<&[u8]>) -> ValueChange,
    ) -> bool {
        loop {
            let change = |value: Option<&[u8]>| (change(value), ());
            match self.tree.modify(&self.engine, &key, change).await {
                Err(TreeError::Contended { .. }) => {}
                Err(error) if error.is_retryable() => {}
                Err(TreeError::Engine(EngineError::FreedInUse)) => {}
                result => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a row lock is not given back");
                    }
                    return true;
                }
            }
            if patience == Patience::Once {
                return false;
            }
            self.engine.env().sleep(LEAVE_AGAIN).await;
        }
    }

    /// Whether a transaction other than this one holds a lock or waits for it, unless this one
    /// holds it. For a caller that holds leaves, as [`Tree::first_in_order`].
    pub(crate) async fn is_kept_from(&self, name: LockName, txn: u64) -> Result<bool, TreeError> {
        let key = name.key();
        let read = |entry: Option<(&[u8], &[u8])>| match entry {
            Some((found, value)) if found == key => decode_queue(value),
            _ => Vec::new(),
        };
        let queue = self.tree.first_in_order(&self.engine, &key, read).await?;
        Ok(queue::keeps_from(&queue, txn, |owner| self.lives(owner)))
    }

    /// Whether any row of a tree is locked. As [`is_kept_from`](Self::is_kept_from).
    pub(crate) async fn has_locks(&self, whole: LockName) -> Result<bool, TreeError> {
        let read = |entry: Option<(&[u8], &[u8])>| {
            entry.is_some_and(|(key, _)| whole.is_of_same_tree(key))
        };
        self.tree.first_in_order(&self.engine, &whole.key(), read).await
    }
}
