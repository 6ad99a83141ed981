//! Sessions: one client's transactions, one after the other, of any length.

use std::future::{Future, pending};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use selkie_btree::Stamp;
use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;

use crate::access::cursor::{Cursor, Rows};
use crate::error::{AbortCause, TxnError};
use crate::locks::wanted::WantedLocks;
use crate::protocol::choice::{Isolation, WriteRule};
use crate::transaction::commit_bound::{CommitBound, before};
use crate::transaction::database::Database;
use crate::transaction::idle::{IdleBounds, IdlePlace};
use crate::transaction::parked::ParkedTxn;
use crate::transaction::txn::Txn;

/// How long what a session does may take; `None` for as long as it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SessionLimits {
    /// An operation: one call of [`Session::run`], or the wait of a commit for locks of others.
    pub operation: Option<Duration>,
    /// A transaction, from its beginning until its commit has all locks that it waits for, with the
    /// time for which it idles. So a snapshot of the session gets no older than that, and keeps
    /// images and dropped tables from being given back for no longer.
    pub transaction: Option<Duration>,
    /// The time between two operations of a transaction. One that idles for longer is rolled back,
    /// without its client doing anything: its row locks are given back, and its snapshot ends.
    pub idle: Option<Duration>,
    /// A wait for a row lock; `None` for 60 seconds. See [`Txn::set_lock_timeout`].
    pub lock: Option<Duration>,
}

/// A client's way into a database, which owns all it needs: it may be kept in a connection, and
/// moved between tasks and threads. At most one transaction is in progress in it.
///
/// Between two operations nothing is latched: a client that thinks for minutes in a transaction
/// delays no other, no truncation of the log and no backup. So a session is of a protocol that
/// defers changes to commit; under [`Protocol::Snapshot`](crate::Protocol::Snapshot) others
/// conflict with it by rows and ranges only.
///
/// An error that rolls the transaction back leaves the session in it, and so does the end of the
/// time that [`SessionLimits`] leave to a client: each operation fails, after the first with
/// [`TxnError::RolledBack`], until [`rollback`](Self::rollback) or [`commit`](Self::commit) ends
/// it.
/// A session that is dropped rolls its transaction back.
///
/// ```
/// # use selkie_txn::{Database, Isolation, RowRef, Table, TxnError, key};
/// # async fn example(db: &Database, table: Table) -> Result<(), TxnError> {
/// let mut session = db.session()?;
/// session.begin(Isolation::Serializable)?;
/// let balance = session.run(|txn| Box::pin(async move {
///     let row = txn.get(table, &key![1]).await?;
///     Ok(row.map(|row| row.i64(2)).transpose()?)
/// })).await?;
/// // Minutes later.
/// session.run(|txn| Box::pin(async move {
///     txn.update(table, &key![1], |row| Ok(row.set_i64(2, 0)?)).await
/// })).await?;
/// session.commit().await?;
/// # Ok(())
/// # }
/// ```
pub struct Session {
    /// The database, and the transaction between two operations.
    place: Arc<IdlePlace>,
    limits: SessionLimits,
    /// When the transaction has to be over, and how long it may take.
    deadline: Option<(Duration, Duration)>,
    /// Transactions in a row that others have made fail.
    losses: u32,
    /// When the first of them began, or else the transaction.
    first_begun: Stamp,
    /// What the one before has locked, if it insisted.
    wanted: WantedLocks,
    /// Transactions that have ended.
    ended: u32,
}

/// Ends of transactions, of which one lets other tasks of the thread run.
pub(super) const ENDS_AT_ONCE: u32 = 16;

/// Losses in a row after which a session [insists](Txn::insist).
pub(crate) const LOSSES_BEFORE_INSISTING: u32 = 4;

/// A transaction for the time of one operation: set aside again however that ends.
struct ResumedTxn<'s> {
    /// `None` while it is being dropped.
    txn: Option<Txn<'s>>,
    place: &'s Arc<IdlePlace>,
    bounds: IdleBounds,
}

impl Drop for ResumedTxn<'_> {
    fn drop(&mut self) {
        if let Some(txn) = self.txn.take() {
            self.place.put(txn.park(), self.bounds);
        }
    }
}

impl Database {
    /// A client's transactions, one after the other, which own all they need: they delay no other
    /// while the client thinks. No round trip, no waiting.
    ///
    /// # Errors
    /// [`TxnError::NoSessions`] under [`Protocol::TwoPhase`](crate::Protocol::TwoPhase), which
    /// keeps leaves latched between operations.
    pub fn session(&self) -> Result<Session, TxnError> {
        let protocol = self.protocol();
        if protocol.rules().writes() != WriteRule::Deferred {
            return Err(TxnError::NoSessions { protocol });
        }
        let limits = SessionLimits::default();
        let place = IdlePlace::new(self.clone());
        let (first_begun, wanted) = (Stamp::default(), WantedLocks::default());
        let (deadline, losses, ended) = (None, 0, 0);
        Ok(Session { place, limits, deadline, losses, first_begun, wanted, ended })
    }
}

impl Session {
    /// The database.
    #[must_use]
    pub fn database(&self) -> &Database {
        &self.place.db
    }

    /// What operations and transactions may take.
    #[must_use]
    pub fn limits(&self) -> SessionLimits {
        self.limits
    }

    /// Sets what operations may take from now on, and transactions that begin from now on.
    pub fn set_limits(&mut self, limits: SessionLimits) {
        self.limits = limits;
    }

    /// Whether a transaction is in progress, be it one that was rolled back by an error.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.place.has_txn()
    }

    /// Begins a transaction as [`Database::begin_with`] does. No round trip, no waiting. One that
    /// is run again counts as old as the first attempt where transactions wait for each other.
    /// After four in a row that had to be run again it [insists](Txn::insist), where rows can be
    /// locked.
    ///
    /// # Errors
    /// [`TxnError::InTransaction`].
    pub fn begin(&mut self, isolation: Isolation) -> Result<(), TxnError> {
        self.check_idle()?;
        let mut begun = self.place.db.begin_with(isolation);
        if self.losses == 0 {
            self.first_begun = begun.db.latest_stamp();
        } else {
            // Of those that wait in a circle the youngest gives up: it gets older with each loss.
            begun.row_locks.age = Some(self.first_begun);
        }
        if self.losses >= LOSSES_BEFORE_INSISTING && begun.check_locks_rows().is_ok() {
            begun.insist()?;
            begun.row_locks.wanted = std::mem::take(&mut self.wanted).ahead();
        }
        if let Some(timeout) = self.limits.lock {
            begun.set_lock_timeout(timeout);
        }
        let begun = begun.park();
        self.take_up(begun);
        Ok(())
    }

    /// Begins a transaction that only reads, as [`Database::begin_to_read`] does.
    ///
    /// # Errors
    /// [`TxnError::InTransaction`].
    pub fn begin_to_read(&mut self) -> Result<(), TxnError> {
        self.check_idle()?;
        self.take_up(self.place.db.begin_to_read().park());
        Ok(())
    }

    /// Begins a transaction that only reads, as [`Database::begin_to_read_committed`] does.
    ///
    /// # Errors
    /// [`TxnError::InTransaction`].
    pub fn begin_to_read_committed(&mut self) -> Result<(), TxnError> {
        self.check_idle()?;
        self.take_up(self.place.db.begin_to_read_committed().park());
        Ok(())
    }

    fn check_idle(&self) -> Result<(), TxnError> {
        if self.is_in_transaction() { Err(TxnError::InTransaction) } else { Ok(()) }
    }

    fn take_up(&mut self, begun: ParkedTxn) {
        let now = self.place.db.engine().env().now();
        self.deadline = self.limits.transaction.map(|limit| (now.saturating_add(limit), limit));
        self.place.put(begun, IdleBounds { idle: self.limits.idle, deadline: self.deadline });
    }

    /// Does something in the transaction: any operations of [`Txn`]. If the future is dropped in
    /// the middle of a change, the next operation finds the transaction rolled back.
    ///
    /// # Errors
    /// Those of `operation`; [`TxnError::NoTransaction`]; [`TxnError::DeadlineExceeded`], which
    /// rolls the transaction back, and [`TxnError::IdleTooLong`] if it was rolled back before.
    pub async fn run<R, F>(&mut self, operation: F) -> Result<R, TxnError>
    where
        F: for<'t> FnOnce(&'t mut Txn<'_>) -> BoxFuture<'t, Result<R, TxnError>>,
    {
        let (mut resumed, bound) = self.resume()?;
        let Some(txn) = resumed.txn.as_mut() else { return Err(TxnError::NoTransaction) };
        let outcome = {
            let txn = &mut *txn;
            let whole = async move {
                if txn.has_locks_ahead() {
                    Box::pin(txn.lock_ahead()).await?;
                }
                operation(txn).await
            };
            bound.apply(whole).await
        };
        outcome.unwrap_or_else(|exceeded| {
            txn.abort(AbortCause::Interrupted);
            Err(exceeded)
        })
    }

    /// The next rows of a cursor that was opened in the transaction, as [`Cursor::fetch`] gives
    /// them. The cursor may be kept beside the session.
    ///
    /// # Errors
    /// As [`run`](Self::run), and those of [`Cursor::fetch`].
    pub async fn fetch<'c>(
        &mut self,
        cursor: &'c mut Cursor,
        most: usize,
    ) -> Result<Rows<'c>, TxnError> {
        let (mut resumed, bound) = self.resume()?;
        let Some(txn) = resumed.txn.as_mut() else { return Err(TxnError::NoTransaction) };
        let outcome = bound.apply(cursor.fetch(txn, most)).await;
        outcome.unwrap_or_else(|exceeded| {
            txn.abort(AbortCause::Interrupted);
            Err(exceeded)
        })
    }

    /// Goes on with the transaction, for an operation within a bound.
    fn resume(&mut self) -> Result<(ResumedTxn<'_>, OperationBound<'_>), TxnError> {
        let (ends, what) = self.end_of_operation();
        let Self { place, limits, deadline, .. } = self;
        let (txn, db) = (place.take()?.resume(place.db.state()), &place.db);
        let env = db.engine().env();
        // One that was rolled back says why.
        let ends = ends.filter(|_| txn.is_active());
        let bounds = IdleBounds { idle: limits.idle, deadline: *deadline };
        Ok((ResumedTxn { txn: Some(txn), place, bounds }, OperationBound { env, ends, what }))
    }

    /// When an operation that begins now has to be over, and how long what says so may take.
    fn end_of_operation(&self) -> (Option<(Duration, Duration)>, &'static str) {
        let now = self.place.db.engine().env().now();
        let operation_ends = self.limits.operation.map(|limit| (now.saturating_add(limit), limit));
        match (operation_ends, self.deadline) {
            (Some(operation), Some(whole)) if whole.0 < operation.0 => (Some(whole), "transaction"),
            (Some(operation), _) => (Some(operation), "operation"),
            (None, whole) => (whole, "transaction"),
        }
    }

    /// Commits as [`Txn::commit`] does. No transaction is in progress afterwards, whatever the
    /// outcome, also if the future is dropped once it was polled.
    ///
    /// # Errors
    /// Those of [`Txn::commit`]; [`TxnError::NoTransaction`]; [`TxnError::DeadlineExceeded`] or
    /// [`TxnError::IdleTooLong`] if the transaction took too long before, or would by waiting for
    /// rows that others have locked: it is rolled back. The rest of a commit has no deadline; the
    /// engine's request timeout bounds each of its waits.
    pub async fn commit(&mut self) -> Result<(), TxnError> {
        self.commit_until(pending()).await
    }

    /// As [`commit`](Self::commit), and gives up when `stop` is ready while it waits for rows that
    /// others have locked. `stop` is not polled before, nor once it has the locks.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); [`TxnError::CommitStopped`], which rolls back.
    pub async fn commit_until(
        &mut self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), TxnError> {
        let (ends, what) = self.end_of_operation();
        let mut stop = pin!(stop);
        let mut txn = self.place.end()?.resume(self.place.db.state());
        // A commit that is dropped, or comes too late, is no loss to others.
        let losses = std::mem::take(&mut self.losses);
        let now = self.place.db.engine().env().now();
        if let Some((_, limit)) = self.deadline.filter(|(end, _)| now >= *end)
            && txn.is_active()
        {
            txn.abort(AbortCause::Interrupted);
            return Err(TxnError::DeadlineExceeded { what: "transaction", limit });
        }
        let lost = txn.was_lost();
        let wanted = std::mem::take(&mut txn.row_locks.wanted);
        txn.yields_at_end = yields_at_end(&mut self.ended);
        let stop = Some(stop.as_mut() as _);
        let mut bound = CommitBound { ends, what, stop, since: None };
        let ended = txn.commit_within(&mut bound).await;
        let lost = matches!(&ended, Err(error) if lost || error.is_retryable());
        (self.losses, self.wanted) = after(losses, lost, wanted);
        ended
    }

    /// Rolls back as [`Txn::rollback`] does. No transaction is in progress afterwards, as after
    /// [`commit`](Self::commit).
    ///
    /// # Errors
    /// [`TxnError::NoTransaction`].
    pub async fn rollback(&mut self) -> Result<(), TxnError> {
        let mut txn = match self.place.end() {
            Ok(parked) => parked.resume(self.place.db.state()),
            Err(TxnError::NoTransaction) => return Err(TxnError::NoTransaction),
            // It was rolled back while the client did nothing.
            Err(_) => return Ok(()),
        };
        let wanted = std::mem::take(&mut txn.row_locks.wanted);
        (self.losses, self.wanted) = after(self.losses, txn.was_lost(), wanted);
        txn.yields_at_end = yields_at_end(&mut self.ended);
        txn.rollback().await;
        Ok(())
    }

    /// Rolls back without waiting, as the drop of the session does. No transaction is in progress
    /// afterwards. What is given up, and not lost to others, is not counted as run again by the
    /// next transaction; so it is after [`rollback`](Self::rollback).
    pub fn abandon(&mut self) {
        if let Ok(parked) = self.place.end() {
            let mut txn = parked.resume(self.place.db.state());
            let wanted = std::mem::take(&mut txn.row_locks.wanted);
            (self.losses, self.wanted) = after(self.losses, txn.was_lost(), wanted);
        }
    }
}

/// The losses in a row, and what the next attempt is to lock, after a transaction that was lost to
/// others or not.
fn after(losses: u32, lost: bool, wanted: WantedLocks) -> (u32, WantedLocks) {
    if lost { (losses.saturating_add(1), wanted) } else { (0, WantedLocks::default()) }
}

/// Counts a transaction that ends. Whether it lets other tasks run.
fn yields_at_end(ended: &mut u32) -> bool {
    *ended = ended.wrapping_add(1);
    ended.is_multiple_of(ENDS_AT_ONCE)
}

impl Drop for Session {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// When an operation has to be over.
struct OperationBound<'s> {
    env: &'s Env,
    /// When, and how long it may take.
    ends: Option<(Duration, Duration)>,
    what: &'static str,
}

impl OperationBound<'_> {
    /// What an operation gives; `DeadlineExceeded` if it does not end in time.
    async fn apply<T>(self, operation: impl Future<Output = T>) -> Result<T, TxnError> {
        let Some((end, limit)) = self.ends else { return Ok(operation.await) };
        let exceeded = TxnError::DeadlineExceeded { what: self.what, limit };
        before(self.env, end, operation).await.ok_or(exceeded)
    }
}
