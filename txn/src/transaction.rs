//! A transaction from its beginning to its end.
//!
//! What follows is of two-phase locking; how others differ is in [`mod@crate::protocol`].
//!
//! Two-phase locking without waiting: every leaf page an operation touches is latched, shared to
//! read and exclusive to write, and stays latched until the end (growing phase); commit and
//! rollback release all of them at once (shrinking phase). A leaf that somebody else holds in the
//! way is a conflict: the transaction is rolled back on the spot, so its latches are free before
//! the caller even sees the error, and nobody ever waits for a leaf while holding one: there is no
//! deadlock. A leaf is latched even when the key looked for is not in it, and a scan latches every
//! leaf it crosses: the gaps between keys are locked too, hence no phantoms.
//!
//! ```text
//!            error that rolls back, future dropped half-way, rollback(), drop
//!          +------------------------------------------------------> RolledBack(cause)
//! Active --+
//!          +-- commit() --> Committed
//! ```
//!
//! *Rollback is exact and cannot fail.* Every change is logged in memory together with the change
//! itself, with no suspension point in between. Undo works on leaves that are held exclusively, so
//! it needs no latch, no memory from the pool and no await: dropping a transaction rolls it back at
//! once. That an entry that was removed fits back is argued in `write`.
//!
//! *Cancellation.* A future dropped at a suspension point drops what it was about to latch; what
//! was latched is in the transaction. If the operation was changing something, the transaction is
//! marked, and whatever is asked of it next, commit included, rolls it back instead.
//!
//! *Fairness.* Operations on cached pages never suspend, so a task that runs one transaction after
//! the other would keep its thread from answering other nodes. Ending a transaction lets other
//! tasks run once, with nothing latched.
//!
//! *Upkeep.* Splits leave separators to be posted to parents, removals leave empty leaves. Neither
//! is needed for correctness (a B-link tree is searched through its right links), and posting waits
//! for latches; so both happen after the latches are released. What cannot be done then is kept for
//! a later transaction of this database.

use selkie_btree::Stamp;
use selkie_engine::log::Lsn;
use selkie_fabric::env::yield_now;

use crate::database::{Inner, Isolation};
use crate::error::{AbortCause, TxnError};
use crate::held::{HeldLeaves, Shown};
use crate::latch::Mode;
use crate::overlay::Overlay;
use crate::protocol::{Changes, Control, Protocol};
use crate::reads::Reads;
use crate::rollback::{note_empty_leaves, undo_to};
use crate::savepoint::Savepoints;
use crate::undo::UndoLog;
use crate::upkeep::Upkeep;

/// Postponed upkeep done by one ending transaction, beside its own.
const POSTPONED_AT_ONCE: usize = 4;

/// A transaction. Dropping it without [`commit`](Self::commit) rolls it back.
pub struct Txn<'db> {
    pub(crate) db: &'db Inner,
    control: &'static dyn Control,
    isolation: Isolation,
    /// Nothing may be changed by it.
    read_only: bool,
    shard: usize,
    state: State,
    /// Its place in the order of all, by [`Protocol::Timestamp`], from its first access on.
    pub(crate) stamp: Option<Stamp>,
    /// Changes that were kept aside are being made.
    applies: bool,
    /// An operation that changes something has begun and not ended.
    changing: bool,
    pub(crate) savepoints: Savepoints,
    pub(crate) work: Work<'db>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Committed,
    RolledBack(AbortCause),
}

/// What a transaction holds and logs; its memory is used again by later ones.
#[derive(Default)]
pub(crate) struct Work<'db> {
    pub(crate) held: HeldLeaves<'db>,
    /// The leaf last read whose latch is not kept ([`Isolation::ReadCommitted`], all but
    /// [`Protocol::TwoPhase`]), until the next operation.
    pub(crate) transient: Option<Shown<'db>>,
    pub(crate) undo: UndoLog,
    /// Changes that are kept aside, and leaves read and not held, of protocols that have such.
    pub(crate) overlay: Overlay,
    pub(crate) reads: Reads,
    pub(crate) upkeep: Vec<Upkeep>,
    /// Entries were removed, so a held leaf may be empty.
    pub(crate) removed: bool,
    /// The row an update works on.
    pub(crate) row: Vec<u8>,
    /// The row that was read last, where no latch is kept for it.
    pub(crate) shown: Vec<u8>,
    /// The key of the index entry that a row is fetched for.
    pub(crate) entry: Vec<u8>,
}

impl<'db> Work<'db> {
    /// The same memory with nothing in it.
    pub(crate) fn emptied<'other>(mut self) -> Work<'other> {
        self.undo.clear();
        self.overlay.clear();
        self.reads.clear();
        self.upkeep.clear();
        Work {
            held: self.held.emptied(),
            transient: None,
            undo: self.undo,
            overlay: self.overlay,
            reads: self.reads,
            upkeep: self.upkeep,
            removed: false,
            row: self.row,
            shown: self.shown,
            entry: self.entry,
        }
    }

    /// Lets go of everything; up to where the log has to be durable before anybody may be told.
    fn release(&mut self) -> Lsn {
        let lsn = self.held.seal().max(self.reads.lsn());
        self.held.release();
        self.transient = None;
        self.undo.clear();
        self.overlay.clear();
        self.reads.clear();
        lsn
    }
}

impl<'db> Txn<'db> {
    pub(crate) fn new(
        db: &'db Inner,
        protocol: Protocol,
        isolation: Isolation,
        shard: usize,
        work: Work<'db>,
    ) -> Self {
        let savepoints = Savepoints::default();
        let state = State::Active;
        let (read_only, stamp, applies, changing) = (false, None, false, false);
        let control = protocol.control();
        Self {
            db,
            control,
            isolation,
            read_only,
            shard,
            state,
            stamp,
            applies,
            changing,
            savepoints,
            work,
        }
    }

    pub(crate) fn that_only_reads(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Commits: releases every latch, which makes all changes visible to everyone at once. Before
    /// that, where changes are kept aside, latches what is to be changed, and looks whether what
    /// was read is as it was ([`Protocol::Optimistic`]), or nobody later was there
    /// ([`Protocol::Timestamp`]). Then does upkeep of the trees, waiting for inner pages only; if
    /// the future is dropped there the transaction is committed nevertheless, and rolled back if it
    /// is dropped before.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] if an earlier error rolled it back, or an operation was dropped
    /// half-way. Under [`Protocol::Optimistic`] and [`Protocol::Timestamp`] also
    /// [`TxnError::Stale`] or [`TxnError::TooLate`], [`TxnError::Conflict`] and the other errors
    /// that roll back. [`TxnError::Undetermined`] if the node's log cannot be written: it has
    /// committed, but may be gone if the node ends now. Nothing else: upkeep that fails is left for
    /// later.
    pub async fn commit(mut self) -> Result<(), TxnError> {
        self.check_active()?;
        if self.defers()
            && let Err(error) = self.apply().await
        {
            self.abort(error.abort_cause().unwrap_or(AbortCause::Failure));
            self.tidy().await;
            return Err(self.until_room(error).await);
        }
        self.state = State::Committed;
        note_empty_leaves(&mut self.work, self.db);
        let lsn = self.work.release();
        self.db.stats.committed(self.shard);
        let durable = self.db.engine.until_durable(lsn).await;
        self.tidy().await;
        durable.map_err(|source| TxnError::Undetermined { source })
    }

    /// Takes every change back, releases every latch, then does upkeep as [`commit`](Self::commit)
    /// does. After an error that has rolled the transaction back already, only the upkeep.
    pub async fn rollback(mut self) {
        self.abort(self.requested());
        self.tidy().await;
    }

    /// How many leaves are latched.
    #[must_use]
    pub fn latched_leaves(&self) -> usize {
        let is_latched = matches!(self.work.transient, Some(Shown::Latched(_)));
        self.work.held.len() + usize::from(is_latched)
    }

    pub(crate) fn is_serializable(&self) -> bool {
        self.isolation == Isolation::Serializable
    }

    pub(crate) fn control(&self) -> &'static dyn Control {
        self.control
    }

    /// Whether changes are kept aside until commit.
    pub(crate) fn defers(&self) -> bool {
        self.control.changes() == Changes::Aside
    }

    /// Whether leaves are latched only to be read, whatever is to become of them.
    pub(crate) fn only_reads(&self) -> bool {
        self.defers() && !self.applies
    }

    /// From now on leaves are latched as they are asked for.
    pub(crate) fn latch_changes(&mut self) {
        self.applies = true;
    }

    /// How many changes there were: a mark to go back to.
    pub(crate) fn mark(&self) -> usize {
        if self.defers() { self.work.overlay.len() } else { self.work.undo.len() }
    }

    /// Takes back the latest changes until `mark` are left.
    pub(crate) fn take_back(&mut self, mark: usize) {
        if self.defers() {
            self.work.overlay.take_back(mark);
        } else {
            undo_to(&mut self.work, mark);
        }
    }

    /// Begins an operation that reads.
    pub(crate) fn open_read(&mut self) -> Result<(), TxnError> {
        self.check_active()?;
        self.work.transient = None;
        Ok(())
    }

    /// Ends an operation that read: errors that are not the caller's roll back.
    pub(crate) async fn close_read<T>(
        &mut self,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        match result {
            Ok(found) => Ok(found),
            Err(error) => {
                if let Some(cause) = error.abort_cause() {
                    self.abort(cause);
                }
                Err(self.until_room(error).await)
            }
        }
    }

    /// Begins an operation that reads what is to be changed, if that is the mode.
    pub(crate) fn open_read_for(&mut self, mode: Mode) -> Result<(), TxnError> {
        self.open_read()?;
        if self.read_only && mode == Mode::Exclusive {
            return Err(TxnError::ReadOnly);
        }
        Ok(())
    }

    /// Begins an operation that changes; returns the mark to undo to if it fails.
    pub(crate) fn open_change(&mut self) -> Result<usize, TxnError> {
        self.open_read_for(Mode::Exclusive)?;
        self.changing = true;
        Ok(self.mark())
    }

    /// Ends an operation that changed: a failure leaves nothing of it behind.
    pub(crate) async fn close_change<T>(
        &mut self,
        mark: usize,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        self.changing = false;
        self.work.transient = None;
        match result {
            Ok(changed) => Ok(changed),
            Err(error) => {
                match error.abort_cause() {
                    Some(cause) => self.abort(cause),
                    None => self.take_back(mark),
                }
                Err(self.until_room(error).await)
            }
        }
    }

    /// If it was rolled back as the log was full, waits until it has room: it would be rolled back
    /// again before. If there is none in time, that is the error.
    async fn until_room(&self, error: TxnError) -> TxnError {
        if error.abort_cause() != Some(AbortCause::LogFull) {
            return error;
        }
        self.db.engine.until_room().await.map_or_else(TxnError::from, |()| error)
    }

    /// Marks the transaction for the time of an await that it cannot survive being dropped in;
    /// returns what [`close_critical`](Self::close_critical) wants.
    pub(crate) fn open_critical(&mut self) -> bool {
        std::mem::replace(&mut self.changing, true)
    }

    pub(crate) fn close_critical(&mut self, before: bool) {
        self.changing = before;
    }

    pub(crate) fn count_split(&self) {
        self.db.stats.split(self.shard);
    }

    fn check_active(&mut self) -> Result<(), TxnError> {
        if self.changing {
            self.abort(AbortCause::Interrupted);
        }
        match self.state {
            State::Active => Ok(()),
            State::RolledBack(cause) => Err(TxnError::RolledBack { cause }),
            State::Committed => Err(TxnError::RolledBack { cause: AbortCause::Requested }),
        }
    }

    fn requested(&self) -> AbortCause {
        if self.changing { AbortCause::Interrupted } else { AbortCause::Requested }
    }

    /// Takes everything back and releases every latch. Does nothing if that has been done.
    fn abort(&mut self, cause: AbortCause) {
        self.changing = false;
        if self.state != State::Active {
            return;
        }
        self.state = State::RolledBack(cause);
        undo_to(&mut self.work, 0);
        note_empty_leaves(&mut self.work, self.db);
        let _ = self.work.release();
        self.db.stats.aborted(self.shard, cause);
    }

    /// Does the upkeep of this transaction and some that others left, then lets other tasks run.
    async fn tidy(&mut self) {
        // Oldest first: a leaf is only given back once its parent knows it.
        self.work.upkeep.reverse();
        while let Some(upkeep) = self.work.upkeep.pop() {
            self.db.do_upkeep(upkeep).await;
        }
        for _ in 0..POSTPONED_AT_ONCE {
            let Some(upkeep) = self.db.take_postponed() else { break };
            self.db.do_upkeep(upkeep).await;
        }
        yield_now().await;
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.abort(self.requested());
        for upkeep in self.work.upkeep.drain(..) {
            self.db.postpone(upkeep);
        }
        self.db.give_work(self.shard, std::mem::take(&mut self.work));
    }
}
