//! What one transaction has locked, and how it waits.
//!
//! *Nothing is left behind.* A name is noted here before it is entered in the lock tree, and taken
//! out when it has left. [`RowLocks`] and [`QueuePlace`], when they are dropped, hand what is noted
//! to a task of the node, which goes on until it has left or the node has failed: so a transaction
//! may be dropped, and so may each future of it, at any await.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_btree::Stamp;

use crate::error::TxnError;
use crate::locks::entry::{LockName, LockRequest, Owner, Wait};
use crate::locks::lock_table::{LockTable, Patience};
use crate::locks::queue::Standing;
use crate::locks::wanted::WantedLocks;

/// First time after which a waiter looks again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_micros(20);
/// Longest time after which a waiter looks again.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);
/// When a waiter looks for a deadlock first; it doubles up to [`LONGEST_SEARCH`].
const FIRST_SEARCH: Duration = Duration::from_millis(20);
/// Longest time between two searches for a deadlock.
const LONGEST_SEARCH: Duration = Duration::from_millis(100);
const _: () = assert!(LONGEST_PAUSE.as_nanos() < FIRST_SEARCH.as_nanos());
/// How long a transaction waits for a lock, unless set.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(60);

/// What to do if a row is locked by another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LockWait {
    /// Wait, in the order in which transactions came.
    #[default]
    Wait,
    /// Fail at once.
    NoWait,
    /// Leave the row out.
    SkipLocked,
}

/// What became of a wish to lock a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum LockOutcome {
    /// The transaction holds the lock to its end.
    Held,
    /// Another transaction holds it, or waits for it, and this one was not to wait.
    NotAvailable,
}

/// The locks of a transaction.
pub(crate) struct RowLocks {
    table: Option<Arc<LockTable>>,
    owner: Option<Owner>,
    held: BTreeSet<LockName>,
    /// How long it waits for a lock.
    pub(crate) timeout: Duration,
    /// It locks all that it reads or changes.
    pub(crate) insists: bool,
    /// But not what it reads: it locks rows itself.
    pub(crate) leaves_reads: bool,
    /// What it wants to lock as one that insists.
    pub(crate) wanted: WantedLocks,
    /// The trees that it has locked as a whole.
    pub(crate) whole_tables: BTreeSet<usize>,
    /// Its age, if that is not the time of its first lock.
    pub(crate) age: Option<Stamp>,
    /// A task gives them back, which is dropped with its node only.
    is_task: bool,
}

impl Default for RowLocks {
    fn default() -> Self {
        let held = BTreeSet::new();
        Self {
            table: None,
            owner: None,
            held,
            timeout: LOCK_TIMEOUT,
            insists: false,
            leaves_reads: false,
            wanted: WantedLocks::default(),
            whole_tables: BTreeSet::new(),
            age: None,
            is_task: false,
        }
    }
}

impl Drop for RowLocks {
    fn drop(&mut self) {
        if self.held.is_empty() || self.is_task {
            return;
        }
        let mut held = self.take();
        held.is_task = true;
        if let Some(table) = held.table.clone() {
            #[cfg(feature = "planted")]
            if table.engine.planted() == selkie_engine::Planted::KeptLocks {
                return;
            }
            table.engine.env().spawn("row_locks_release", held.released());
        }
    }
}

impl RowLocks {
    /// The number of the transaction, if it has locked something.
    pub(crate) fn number(&self) -> u64 {
        self.owner.map_or(0, |owner| owner.txn)
    }

    /// How many it holds.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it locks what it reads.
    #[inline]
    pub(crate) fn insists_to_read(&self) -> bool {
        self.insists && !self.leaves_reads
    }

    /// Whether it holds none.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The locks, which this one has no more.
    pub(crate) fn take(&mut self) -> Self {
        let held = std::mem::take(&mut self.held);
        let (table, owner) = (self.table.clone(), self.owner);
        self.whole_tables.clear();
        let mut taken = Self::default();
        (taken.table, taken.owner, taken.held, taken.timeout) = (table, owner, held, self.timeout);
        taken
    }

    /// Gives all locks back. A future that is dropped leaves the rest to a task, and so does one
    /// that cannot reach the lock tree: who ends a transaction waits for that once only.
    pub(crate) async fn released(mut self) {
        let (Some(table), Some(owner)) = (self.table.clone(), self.owner) else { return };
        while let Some(name) = self.held.first().copied() {
            if !table.leave(name, owner.txn, None, patience_of(self.is_task)).await {
                return;
            }
            self.held.remove(&name);
        }
    }

    /// Locks a row or a tree, for a transaction that is `new` to locks if it has none yet. Calls
    /// `before_wait` if it has to wait.
    ///
    /// # Errors
    /// [`TxnError::Deadlock`], [`TxnError::LockTimeout`], both without names, as what is locked is
    /// not known here; and what the lock tree reports. It has no place in the queue afterwards.
    pub(crate) async fn acquire(
        &mut self,
        table: &Arc<LockTable>,
        new: impl FnOnce() -> Owner,
        name: LockName,
        wait: LockWait,
        before_wait: impl FnOnce() + Send,
    ) -> Result<LockOutcome, TxnError> {
        if self.held.contains(&name) {
            return Ok(LockOutcome::Held);
        }
        let owner = *self.owner.get_or_insert_with(new);
        self.table.get_or_insert_with(|| Arc::clone(table));
        let request = LockRequest::exclusive(owner, table.next_number());
        let mut place = QueuePlace::new(table, name, request);
        let outcome = place.taken(wait, self.timeout, before_wait).await;
        if matches!(outcome, Ok(LockOutcome::Held)) {
            // No await between: it is noted here or there.
            place.is_in = false;
            self.held.insert(name);
        }
        place.left().await;
        outcome
    }
}

/// A caller's task ends some time; one of the node has all the time that the node has.
fn patience_of(is_task: bool) -> Patience {
    if is_task { Patience::Endless } else { Patience::Once }
}

/// A place in a queue, which is left when it is dropped: of a transaction that does not know yet
/// whether it has the lock, or of the owner of an advisory lock.
pub(crate) struct QueuePlace {
    table: Arc<LockTable>,
    name: LockName,
    request: LockRequest,
    /// The number of the wait that was made known.
    wait: Option<u64>,
    /// Whether it may be in the queue.
    is_in: bool,
    /// A task leaves the queue, which is dropped with its node only.
    is_task: bool,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        if self.is_task || (!self.is_in && self.wait.is_none()) {
            return;
        }
        let (table, name, request) = (Arc::clone(&self.table), self.name, self.request);
        let place = Self {
            table: Arc::clone(&table),
            name,
            request,
            wait: self.wait.take(),
            is_in: std::mem::take(&mut self.is_in),
            is_task: true,
        };
        table.engine.env().spawn("row_lock_leave", place.left());
    }
}

impl QueuePlace {
    /// A place that is about to be taken.
    pub(crate) fn new(table: &Arc<LockTable>, name: LockName, request: LockRequest) -> Self {
        let table = Arc::clone(table);
        Self { table, name, request, wait: None, is_in: true, is_task: false }
    }

    /// Enters the queue, and waits for the lock. Calls `before_wait` if it has to wait.
    pub(crate) async fn taken(
        &mut self,
        wait: LockWait,
        timeout: Duration,
        before_wait: impl FnOnce() + Send,
    ) -> Result<LockOutcome, TxnError> {
        let waits = wait == LockWait::Wait;
        match self.table.enter(self.name, self.request, waits).await? {
            Standing::Holds => Ok(LockOutcome::Held),
            _ if !waits => {
                if wait == LockWait::NoWait {
                    self.table.counts.refused();
                }
                Ok(LockOutcome::NotAvailable)
            }
            standing => {
                before_wait();
                self.wait(standing, timeout).await.map(|()| LockOutcome::Held)
            }
        }
    }

    /// The place of one that has the lock: that it waits is known no more.
    pub(crate) async fn withdrawn(mut self) -> Self {
        if let Some(number) = self.wait {
            let txn = self.request.owner.txn;
            if self.table.withdraw(txn, number, patience_of(self.is_task)).await {
                self.wait = None;
            }
        }
        self
    }

    /// Whether it lets others share the lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.request.is_shared()
    }

    /// Lets others share the lock.
    pub(crate) async fn share(&mut self) -> Result<(), TxnError> {
        self.table.share(self.name, self.request.owner.txn).await?;
        self.request = self.request.to_shared();
        Ok(())
    }

    /// Takes back what is not the transaction's: its wait, and its place unless it holds the lock.
    pub(crate) async fn left(mut self) {
        let (txn, patience) = (self.request.owner.txn, patience_of(self.is_task));
        // First: one that says that it waits, and is in no queue, counts as one without room.
        if let Some(number) = self.wait {
            if !self.table.withdraw(txn, number, patience).await {
                return;
            }
            self.wait = None;
        }
        if self.is_in && self.table.leave(self.name, txn, Some(self.request.ticket), patience).await
        {
            self.is_in = false;
        }
    }

    /// Waits until it is the first.
    async fn wait(&mut self, entered: Standing, timeout: Duration) -> Result<(), TxnError> {
        let table = Arc::clone(&self.table);
        let env = table.engine.env();
        let _counted = table.counts.waits.begin(env);
        let (begun, number) = (env.now(), table.next_number());
        let (ends, mut search_at) = (begun.saturating_add(timeout), begun + FIRST_SEARCH);
        let (mut pause, mut search, mut standing) = (FIRST_PAUSE, FIRST_SEARCH, entered);
        loop {
            standing = match standing {
                Standing::Holds => return Ok(()),
                Standing::Waits => table.look(self.name, self.request.owner.txn).await?,
                Standing::Absent | Standing::BehindTheDead => {
                    table.enter(self.name, self.request, true).await?
                }
            };
            if standing == Standing::Holds {
                return Ok(());
            }
            let now = env.now();
            if now >= ends {
                let waited = now.saturating_sub(begun);
                let (table, key) = (String::new(), String::new());
                return Err(TxnError::LockTimeout { waited, table, key });
            }
            if now >= search_at {
                if self.is_victim(number).await? {
                    let (table, key) = (String::new(), String::new());
                    return Err(TxnError::Deadlock { table, key });
                }
                search = (search * 2).min(LONGEST_SEARCH);
                search_at = env.now() + search;
            }
            let most = pause.min(ends.saturating_sub(now));
            table.bell.wait(env, self.name, number, most).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes its wait known, and looks whether it is to give up.
    async fn is_victim(&mut self, number: u64) -> Result<bool, TxnError> {
        let Owner { node, incarnation, txn, .. } = self.request.owner;
        if self.wait.is_none() {
            self.wait = Some(number);
            let wait = Wait { node, incarnation, number, name: self.name };
            self.table.publish(txn, wait).await?;
        }
        Ok(self.table.is_victim(self.request, number, self.name).await?)
    }
}
