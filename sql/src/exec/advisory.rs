//! Advisory locks of a session. How often it holds each of them is counted here, as PostgreSQL
//! counts: for itself alone or shared, to the end of the session or of the transaction. In the
//! pool it has each lock once.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_txn::{AdvisoryLocks, AdvisoryMode, AdvisoryName, Database, LockOutcome, LockWait};

use super::context::{ExecContext, Operator, Row};
use super::txn_error::from_txn;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::notice::Notice;
use crate::plan::{AdvisoryCall, AdvisoryFunction};
use crate::types::Datum;

/// How long a lock is waited for, unless a timeout is set: who is to lead waits for long.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

/// Most warnings of a statement: one that gives back locks of many rows has none of them.
const MOST_WARNINGS: usize = 1_000;

/// What a statement needs for advisory locks.
#[derive(Clone, Copy)]
pub(crate) struct AdvisoryContext<'x> {
    pub(crate) locks: &'x SessionLocks,
    /// `None` where nothing is locked.
    pub(crate) database: Option<&'x Database>,
    /// That of the session for locks.
    pub(crate) timeout: Option<Duration>,
    /// Whether the statement reads no table, so that it may see a later state after a wait.
    pub(crate) may_see_later: bool,
}

/// The advisory locks of a session.
#[derive(Default)]
pub(crate) struct SessionLocks {
    /// `None` while a call works with it.
    held: Mutex<Option<Box<HeldLocks>>>,
    /// What is to be said of the statement that runs.
    warnings: Mutex<Vec<Notice>>,
    /// Whether the statement that runs has changed what the session holds to its end, or could not
    /// wait for what others hold, and so is not to be run again.
    runs_once: AtomicBool,
}

#[derive(Default)]
struct HeldLocks {
    /// `None` until the first lock.
    locks: Option<AdvisoryLocks>,
    counts: BTreeMap<AdvisoryName, Counts>,
    /// Those of the transaction, with the number of savepoints that were set before.
    of_transaction: Vec<(u64, AdvisoryName, bool)>,
    /// How many savepoints were ever set.
    savepoints: u64,
}

/// How often a lock is held.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    of_session: Count,
    of_transaction: Count,
    /// Whether others are kept from sharing it.
    is_exclusive: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    exclusive: u32,
    shared: u32,
}

impl Count {
    fn of(&mut self, is_shared: bool) -> &mut u32 {
        if is_shared { &mut self.shared } else { &mut self.exclusive }
    }
}

impl Counts {
    fn exclusive(&self) -> u32 {
        self.of_session.exclusive.saturating_add(self.of_transaction.exclusive)
    }

    fn is_none(&self) -> bool {
        let shared = self.of_session.shared.saturating_add(self.of_transaction.shared);
        self.exclusive() == 0 && shared == 0
    }
}

/// The locks of a session, while a call works with them: a future that is dropped puts them back.
struct Taken<'s> {
    place: &'s SessionLocks,
    held: Box<HeldLocks>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.place.held.lock() = Some(std::mem::take(&mut self.held));
    }
}

impl SessionLocks {
    fn take(&self) -> Taken<'_> {
        let held = self.held.lock().take().unwrap_or_default();
        Taken { place: self, held }
    }

    /// Whether nothing was ever locked.
    fn is_unused(&self) -> bool {
        self.held.lock().as_ref().is_none_or(|held| held.locks.is_none())
    }

    /// What is to be said of the statement that has run.
    pub(crate) fn take_warnings(&self) -> Vec<Notice> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// A statement is run.
    // Relaxed, as all that is done with the flag: it is of one task.
    pub(crate) fn begin_run(&self) {
        self.runs_once.store(false, Ordering::Relaxed);
    }

    /// Whether the statement cannot be run again if it has failed: what it has locked for the
    /// session it would lock twice.
    pub(crate) fn keeps_from_another_run(&self) -> bool {
        self.runs_once.load(Ordering::Relaxed)
    }

    fn run_once(&self) {
        self.runs_once.store(true, Ordering::Relaxed);
    }

    /// So many savepoints have been set.
    pub(crate) fn note_savepoint(&self, number: u64) {
        self.take().held.savepoints = number;
    }

    /// Gives back what the transaction has locked behind a savepoint.
    pub(crate) async fn return_to(&self, savepoint: u64) {
        if self.is_unused() {
            return;
        }
        let mut taken = self.take();
        let own = &mut taken.held.of_transaction;
        let kept = own.partition_point(|(set, ..)| *set < savepoint);
        let undone = own.split_off(kept);
        taken.held.give_back(undone).await;
    }

    /// Gives back what the transaction has locked, which is over.
    pub(crate) async fn end_transaction(&self) {
        if self.is_unused() {
            return;
        }
        let mut taken = self.take();
        let own = std::mem::take(&mut taken.held.of_transaction);
        taken.held.give_back(own).await;
    }

    /// The same without waiting, by a task.
    pub(crate) fn end_transaction_later(&self) {
        if self.is_unused() {
            return;
        }
        let mut taken = self.take();
        let own = std::mem::take(&mut taken.held.of_transaction);
        let gone = taken.held.uncount(&own);
        if let Some(locks) = &mut taken.held.locks {
            locks.unlock_later(gone);
        }
    }

    async fn lock(
        &self,
        context: &AdvisoryContext<'_>,
        name: AdvisoryName,
        is_shared: bool,
        is_of_transaction: bool,
        wait: LockWait,
    ) -> SqlResult<bool> {
        let mut taken = self.take();
        let held = &mut *taken.held;
        let counts = held.counts.get(&name).copied().unwrap_or_default();
        let is_covered = counts.exclusive() > 0 || is_shared && !counts.is_none();
        if !is_covered {
            if !counts.is_none() {
                return Err(SqlError::unsupported(
                    "an exclusive advisory lock of what the session has locked shared",
                ));
            }
            let locks = match &mut held.locks {
                Some(locks) => locks,
                none => {
                    let no_database = || SqlError::internal("a lock of no database");
                    let new = context.database.ok_or_else(no_database)?.advisory_locks();
                    none.insert(new.map_err(|error| from_txn(error, None))?)
                }
            };
            let mode = if is_shared { AdvisoryMode::Shared } else { AdvisoryMode::Exclusive };
            let timeout = context.timeout.unwrap_or(LONGEST_WAIT);
            let outcome = locks.lock(name, mode, wait, timeout).await.map_err(|error| {
                self.run_once();
                from_txn(error, None)
            })?;
            if outcome == LockOutcome::NotAvailable {
                return Ok(false);
            }
            held.counts.entry(name).or_default().is_exclusive = !is_shared;
        }
        let counts = held.counts.entry(name).or_default();
        let count = match is_of_transaction {
            true => counts.of_transaction.of(is_shared),
            false => counts.of_session.of(is_shared),
        };
        *count = count.saturating_add(1);
        match is_of_transaction {
            true => held.of_transaction.push((held.savepoints, name, is_shared)),
            false => self.run_once(),
        }
        Ok(true)
    }

    /// Gives a lock of the session back. Whether it had it.
    async fn unlock(&self, name: AdvisoryName, is_shared: bool) -> SqlResult<bool> {
        let mut taken = self.take();
        let held = &mut *taken.held;
        let count = held.counts.get_mut(&name).map(|counts| counts.of_session.of(is_shared));
        match count {
            Some(count) if *count > 0 => *count -= 1,
            _ => {
                let mode = if is_shared { "ShareLock" } else { "ExclusiveLock" };
                let message = format!("you don't own a lock of type {mode}");
                let mut warnings = self.warnings.lock();
                if warnings.len() < MOST_WARNINGS {
                    warnings.push(Notice::warning(SqlState::WARNING, message));
                }
                return Ok(false);
            }
        }
        self.run_once();
        held.settle(name).await;
        Ok(true)
    }

    /// Gives all locks of the session back, but for those of its transaction.
    pub(crate) async fn unlock_all(&self) {
        if self.is_unused() {
            return;
        }
        self.run_once();
        let mut taken = self.take();
        let names: Vec<AdvisoryName> = taken.held.counts.keys().copied().collect();
        for name in names {
            if let Some(counts) = taken.held.counts.get_mut(&name) {
                counts.of_session = Count::default();
            }
            taken.held.settle(name).await;
        }
    }
}

impl HeldLocks {
    async fn give_back(&mut self, locks: Vec<(u64, AdvisoryName, bool)>) {
        // No await between: what is not counted is not held, also where this future is dropped.
        let gone = self.uncount(&locks);
        if let Some(own) = &mut self.locks {
            own.unlock(gone).await;
        }
        self.share_again().await;
    }

    /// The transaction has these locks once less. Those that are held no more.
    fn uncount(&mut self, locks: &[(u64, AdvisoryName, bool)]) -> Vec<AdvisoryName> {
        let mut gone = Vec::new();
        for (_, name, is_shared) in locks {
            let Some(counts) = self.counts.get_mut(name) else { continue };
            let count = counts.of_transaction.of(*is_shared);
            *count = count.saturating_sub(1);
            if counts.is_none() {
                self.counts.remove(name);
                gone.push(*name);
            }
        }
        gone
    }

    /// Shares what is only held shared: also what could not be shared when it was settled.
    async fn share_again(&mut self) {
        let is_left = |counts: &Counts| counts.is_exclusive && counts.exclusive() == 0;
        let left = self.counts.iter().filter(|(_, counts)| is_left(counts));
        let left: Vec<AdvisoryName> = left.map(|(name, _)| *name).collect();
        for name in left {
            self.settle(name).await;
        }
    }

    /// Gives a lock back that is held no more, and shares one that is only held shared. One that
    /// cannot be shared now, as the tree of locks is not reached, is when a transaction ends next.
    async fn settle(&mut self, name: AdvisoryName) {
        let Some(counts) = self.counts.get_mut(&name) else { return };
        let Some(locks) = &mut self.locks else { return };
        if counts.is_none() {
            self.counts.remove(&name);
            locks.unlock([name]).await;
        } else if counts.is_exclusive && counts.exclusive() == 0 {
            counts.is_exclusive = locks.share(name).await.is_err();
        }
    }
}

/// A call of a function of advisory locks, as a row.
pub(crate) struct Advisory {
    call: Option<Box<AdvisoryCall>>,
}

impl Advisory {
    pub(crate) fn new(call: &AdvisoryCall) -> Self {
        Self { call: Some(Box::new(call.clone())) }
    }
}

impl Operator for Advisory {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            let Some(call) = self.call.take() else { return Ok(None) };
            Ok(Some(vec![vec![called(&call, context).await?]]))
        })
    }
}

async fn called(call: &AdvisoryCall, context: &mut ExecContext<'_, '_>) -> SqlResult<Datum> {
    let arguments = context.eval_all(&call.arguments, &[])?;
    let name = match &*arguments {
        [Datum::I64(number)] => Some(AdvisoryName::Number(*number)),
        [Datum::I32(first), Datum::I32(second)] => Some(AdvisoryName::Pair(*first, *second)),
        _ => None,
    };
    let own = context.advisory;
    match (call.function, name) {
        (AdvisoryFunction::UnlockAll, _) => {
            own.locks.unlock_all().await;
            Ok(Datum::text(""))
        }
        // An argument is NULL.
        (_, None) => Ok(Datum::Null),
        (AdvisoryFunction::Unlock { is_shared }, Some(name)) => {
            own.locks.unlock(name, is_shared).await.map(Datum::Bool)
        }
        (AdvisoryFunction::Lock { is_shared, waits, is_of_transaction }, Some(name)) => {
            let lock = |wait| own.locks.lock(&own, name, is_shared, is_of_transaction, wait);
            let mut has_locked = lock(LockWait::SkipLocked).await?;
            if !has_locked && waits {
                if own.may_see_later {
                    // No earlier state is kept for a statement that waits for long.
                    context.txn.begin_statement().map_err(|error| from_txn(error, None))?;
                }
                has_locked = lock(LockWait::Wait).await?;
            }
            Ok(if waits { Datum::text("") } else { Datum::Bool(has_locked) })
        }
    }
}
