//! Transactions of sessions whose clients do nothing: ended after a time, without their doing.
//!
//! Between two operations the transaction of a session is in an [`IdlePlace`]. Where it may not
//! stay there for ever, a task of the node, the *watcher*, looks there when the time is over. A
//! transaction that is there still is rolled back: its row locks are given back, and its snapshot
//! ends. What comes next of the session is told why.
//!
//! ```text
//!             put()                     its time is over
//!   Nothing --------> Waiting(txn) -----------------------> Ended(why)
//!      ^                 |                                     |
//!      +-----------------+ take(), for an operation or the end |  end()
//!      +-------------------------------------------------------+
//! ```
//! A place has one watcher at most that counts, and none while no transaction is in it for long: an
//! operation starts a task only if none is there. A watcher that finds nothing to watch ends, so
//! one that outlives its session does so by [`LONGEST_SLEEP`] at most.

use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;

use crate::error::{AbortCause, TxnError};
use crate::transaction::database::Database;
use crate::transaction::parked::ParkedTxn;

/// After which a watcher looks again, although no time is over.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// For how long a transaction may idle.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct IdleBounds {
    /// Between two operations.
    pub(super) idle: Option<Duration>,
    /// When all of it has to be over, and how long it may take.
    pub(super) deadline: Option<(Duration, Duration)>,
}

impl IdleBounds {
    /// When a transaction has idled enough that does nothing since a time.
    fn end(&self, since: Duration) -> Option<Duration> {
        let idle = self.idle.map(|limit| since.saturating_add(limit));
        let deadline = self.deadline.map(|(end, _)| end);
        [idle, deadline].into_iter().flatten().min()
    }

    /// What the client is told.
    fn error(&self, since: Duration, now: Duration) -> TxnError {
        match (self.deadline, self.idle) {
            (Some((end, limit)), _) if now >= end => {
                TxnError::DeadlineExceeded { what: "transaction", limit }
            }
            (_, limit) => TxnError::IdleTooLong {
                limit: limit.unwrap_or_default(),
                idled: now.saturating_sub(since),
            },
        }
    }
}

/// Where the transaction of a session is between two operations.
pub(super) struct IdlePlace {
    pub(super) db: Database,
    idle: Mutex<Idle>,
}

#[derive(Default)]
struct Idle {
    txn: IdleTxn,
    bounds: IdleBounds,
    /// When the transaction was put here.
    since: Duration,
    /// When the watcher that counts looks next.
    looks_at: Option<Duration>,
    /// Its number.
    watcher: u64,
}

#[derive(Default)]
#[expect(clippy::large_enum_variant, reason = "a box would be allocated for each operation")]
enum IdleTxn {
    /// There is none, or an operation has it.
    #[default]
    Nothing,
    Waiting(ParkedTxn),
    /// It was rolled back here; why, if the client does not know yet.
    Ended(Option<TxnError>, AbortCause),
}

impl Idle {
    /// Takes the transaction if its time is over: the caller rolls it back, for that cause.
    fn take_overdue(&mut self, now: Duration) -> Option<(ParkedTxn, AbortCause)> {
        let IdleTxn::Waiting(txn) = &self.txn else { return None };
        if !txn.is_active() || self.bounds.end(self.since).is_none_or(|end| now < end) {
            return None;
        }
        let error = self.bounds.error(self.since, now);
        let cause = error.abort_cause().unwrap_or(AbortCause::Interrupted);
        match mem::replace(&mut self.txn, IdleTxn::Ended(Some(error), cause)) {
            IdleTxn::Waiting(txn) => Some((txn, cause)),
            IdleTxn::Nothing | IdleTxn::Ended(..) => None,
        }
    }

    /// Why there is no transaction to take.
    fn why_none(&mut self) -> TxnError {
        match &mut self.txn {
            IdleTxn::Ended(untold, cause) => {
                untold.take().unwrap_or(TxnError::RolledBack { cause: *cause })
            }
            IdleTxn::Nothing | IdleTxn::Waiting(_) => TxnError::NoTransaction,
        }
    }
}

impl IdlePlace {
    pub(super) fn new(db: Database) -> Arc<Self> {
        Arc::new(Self { db, idle: Mutex::default() })
    }

    /// Whether a transaction is here, or was ended here.
    pub(super) fn has_txn(&self) -> bool {
        !matches!(self.idle.lock().txn, IdleTxn::Nothing)
    }

    /// Puts a transaction here, to stay for as long as the bounds say.
    pub(super) fn put(self: &Arc<Self>, txn: ParkedTxn, bounds: IdleBounds) {
        let is_watched = (bounds.idle.is_some() || bounds.deadline.is_some()) && txn.is_active();
        let mut idle = self.idle.lock();
        idle.txn = IdleTxn::Waiting(txn);
        idle.bounds = bounds;
        if !is_watched {
            return;
        }
        let now = self.db.engine().env().now();
        idle.since = now;
        let Some(end) = bounds.end(now) else { return };
        let looks_at = end.min(now.saturating_add(LONGEST_SLEEP));
        if idle.looks_at.is_none_or(|other| looks_at < other) {
            idle.looks_at = Some(looks_at);
            idle.watcher += 1;
            let env = self.db.engine().env();
            let watch = watch(env.clone(), Arc::downgrade(self), idle.watcher, looks_at - now);
            drop(idle);
            env.spawn("idle_transaction", watch).detach();
        }
    }

    /// Takes the transaction, for an operation.
    ///
    /// # Errors
    /// [`TxnError::NoTransaction`]; why it was ended, if it was: the first time in full.
    pub(super) fn take(&self) -> Result<ParkedTxn, TxnError> {
        let now = self.db.engine().env().now();
        let mut idle = self.idle.lock();
        if let Some((late, cause)) = idle.take_overdue(now) {
            let error = idle.why_none();
            drop(idle);
            // The watcher was late.
            late.resume(self.db.state()).abort(cause);
            return Err(error);
        }
        match mem::take(&mut idle.txn) {
            IdleTxn::Waiting(txn) => Ok(txn),
            other => {
                idle.txn = other;
                Err(idle.why_none())
            }
        }
    }

    /// As [`take`](Self::take), for the end of the transaction: none is here afterwards.
    pub(super) fn end(&self) -> Result<ParkedTxn, TxnError> {
        let taken = self.take();
        self.idle.lock().txn = IdleTxn::Nothing;
        taken
    }

    /// What the watcher of that number is to roll back, or else in how long it is to look again.
    fn look(
        &self,
        number: u64,
        now: Duration,
    ) -> (Option<(ParkedTxn, AbortCause)>, Option<Duration>) {
        let mut idle = self.idle.lock();
        if idle.watcher != number {
            return (None, None);
        }
        idle.looks_at = None;
        let overdue = idle.take_overdue(now);
        let end = match &idle.txn {
            IdleTxn::Waiting(txn) if txn.is_active() => idle.bounds.end(idle.since),
            _ => None,
        };
        idle.looks_at = end.map(|end| end.min(now.saturating_add(LONGEST_SLEEP)));
        (overdue, idle.looks_at.map(|at| at.saturating_sub(now)))
    }
}

/// Looks after a place until it has nothing to watch, or another watcher does.
async fn watch(env: Env, place: Weak<IdlePlace>, number: u64, mut pause: Duration) {
    loop {
        env.sleep(pause).await;
        let Some(place) = place.upgrade() else { return };
        let (overdue, next) = place.look(number, env.now());
        if let Some((txn, cause)) = overdue {
            txn.resume(place.db.state()).rollback_for(cause).await;
            return;
        }
        let Some(next) = next else { return };
        pause = next;
    }
}
