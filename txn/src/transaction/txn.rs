//! A transaction: its state, and what begins and ends each of its operations.
//!
//! What follows describes two-phase locking; [`choice`](crate::protocol::choice) says how the other
//! protocols differ.
//!
//! Two-phase locking without waiting: every leaf page that an operation touches is latched, shared
//! to read and exclusive to write, and stays latched until the end (growing phase); commit and
//! rollback release all of them at once (shrinking phase). A leaf that another transaction holds in
//! a conflicting mode is a conflict: the transaction is rolled back on the spot, so its latches are
//! free before the caller even sees the error. No transaction waits for a leaf while it holds one,
//! so there is no deadlock. A leaf is latched even when the key is not in it, and a scan latches
//! every leaf it crosses: the gaps between keys are locked too, hence no phantoms. A transaction
//! that reads more leaves than it may keep latched
//! ([`LeafBudget`](crate::transaction::leaf_budget)) records the page sequence numbers of the
//! others, and commit validates them, while all leaves that change are held: as optimistic
//! transactions do ([`commit`](crate::transaction::commit)).
//!
//! ```text
//!            error that rolls back, future dropped half-way, rollback(), drop
//!          +------------------------------------------------------> RolledBack(cause)
//! Active --+
//!          +-- commit() --> Committed
//! ```
//!
//! *Rollback is exact and cannot fail.* Every change is logged in memory together with the change
//! itself, with no suspension point in between. Undo changes leaves that are held exclusively, so
//! it needs no latch, no memory from the pool and no await: dropping a transaction rolls it back at
//! once, splits included. Why there is room is said in [`leaf_write`](crate::access::leaf_write).
//! A drop keeps its thread until all is undone; after many changes in place end with
//! [`rollback`](Txn::rollback), which lets other tasks run meanwhile.
//!
//! *Cancellation.* A future dropped at a suspension point drops what it was about to latch; what
//! was latched is in the transaction. If the operation was changing something, the transaction is
//! marked, and the next operation, commit included, rolls it back instead.
//!
//! *Fairness.* Operations on cached pages never suspend, so a task that runs one transaction after
//! the other would keep its thread from answering other nodes. Ending a transaction lets other
//! tasks run once, with nothing latched. In a [`Session`](crate::Session) one end in
//! [`ENDS_AT_ONCE`](crate::transaction::session::ENDS_AT_ONCE) does so: its client is waited for
//! between transactions, and each yield may wake another thread.
//!
//! *Maintenance* of trees runs after the latches are released; see
//! [`maintenance`](crate::transaction::maintenance).

use selkie_engine::GAddr;
use selkie_engine::log::Lsn;
use selkie_fabric::env::yield_now;

use crate::error::{AbortCause, TxnError};
use crate::locks::held_turns::HeldTurns;
use crate::locks::row_locks::RowLocks;
use crate::protocol::choice::{Isolation, Protocol, ProtocolRules, WriteRule};
use crate::protocol::leaf_latch::{LatchMode, LeafImage};
use crate::protocol::timestamp_order::TimestampOrder;
use crate::protocol::view::View;
use crate::transaction::cursor_scope::CursorScope;
use crate::transaction::database_state::DatabaseState;
use crate::transaction::leaf_budget::UNCOUNTED_LEAVES;
use crate::transaction::maintenance::{MaintenanceTask, RanTask, TaskEnd};
use crate::transaction::savepoint::Savepoints;
use crate::transaction::workspace::{Workspace, WorkspaceState};

/// Least number of postponed maintenance tasks that one ending transaction runs, beside its own.
const POSTPONED_AT_ONCE: usize = 4;

/// Maintenance tasks after which other tasks of the thread run once, and the most postponed ones
/// that one ending transaction runs.
const TASKS_AT_ONCE: usize = 32;

/// A transaction. Dropping it without [`commit`](Self::commit) rolls it back.
pub struct Txn<'db> {
    pub(crate) db: &'db DatabaseState,
    pub(super) rules: &'static dyn ProtocolRules,
    pub(super) isolation: Isolation,
    pub(super) read_only: bool,
    /// Which shard of the statistics and of the workspaces it uses.
    pub(super) shard: usize,
    pub(super) phase: TxnPhase,
    /// Its place in the order of all, by [`Protocol::Timestamp`].
    pub(crate) order: TimestampOrder<'db>,
    /// The state it reads, by [`Protocol::Snapshot`].
    pub(crate) view: View,
    /// Leaves that others held while they were to be validated at commit, with their trees.
    pub(crate) contended: Vec<(usize, GAddr)>,
    /// Commit has begun to make the changes of the write set.
    pub(super) applies: bool,
    /// An operation that changes something has begun and not ended.
    pub(super) changing: bool,
    pub(super) savepoints: Savepoints,
    pub(crate) cursors: CursorScope,
    /// How often it may have changed what its cursors see: changes that were begun, and rollbacks
    /// to savepoints.
    pub(crate) changes_begun: u64,
    /// Its reads were validated for the last time.
    pub(super) is_validated: bool,
    /// Room in the log that the changes took which were rolled back.
    pub(super) log_need: u64,
    /// Leaves looked at, to let other tasks run now and then.
    pub(crate) leaves_seen: u32,
    /// Its end lets other tasks run.
    pub(super) yields_at_end: bool,
    /// The rows that it has locked.
    pub(crate) row_locks: RowLocks,
    /// Its turns at rows that many change.
    pub(crate) turns: HeldTurns<'db>,
    pub(crate) work: Workspace<'db>,
}

/// How far a transaction has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TxnPhase {
    Active,
    Committed,
    RolledBack(AbortCause),
    /// Its state is elsewhere: a [`ParkedTxn`](crate::transaction::parked::ParkedTxn).
    Parked,
}

impl<'db> Txn<'db> {
    pub(crate) fn new(
        db: &'db DatabaseState,
        protocol: Protocol,
        isolation: Isolation,
        shard: usize,
    ) -> Self {
        Self {
            db,
            rules: protocol.rules(),
            isolation,
            read_only: false,
            shard,
            phase: TxnPhase::Active,
            order: TimestampOrder::new(&db.engine, &db.clock),
            view: View::new(isolation, db.latest_stamp()),
            contended: Vec::new(),
            applies: false,
            changing: false,
            savepoints: Savepoints::default(),
            cursors: CursorScope::default(),
            changes_begun: 0,
            is_validated: false,
            log_need: 0,
            leaves_seen: 0,
            yields_at_end: true,
            row_locks: RowLocks::default(),
            turns: HeldTurns::new(&db.turns, &db.engine),
            work: db.workspaces.take(shard),
        }
    }

    /// The same transaction, refusing changes.
    pub(crate) fn read_only(mut self) -> Self {
        self.read_only = true;
        self.view = View::read_only();
        self
    }

    /// Whether it refuses changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether it has neither ended nor been rolled back.
    pub(crate) fn is_active(&self) -> bool {
        self.phase == TxnPhase::Active
    }

    /// Whether it was rolled back because of others, and may be run again.
    pub(super) fn was_lost(&self) -> bool {
        matches!(self.phase, TxnPhase::RolledBack(cause) if cause.is_retryable())
    }

    /// How many leaves are latched.
    #[must_use]
    pub fn latched_leaves(&self) -> usize {
        let is_latched = matches!(self.work.last_read, Some(LeafImage::Latched(_)));
        self.work.locks.len() + usize::from(is_latched)
    }

    pub(crate) fn is_serializable(&self) -> bool {
        self.isolation != Isolation::ReadCommitted
    }

    /// Whether all that one operation reads is of one state.
    pub(crate) fn sees_one_state(&self) -> bool {
        self.is_serializable() || self.records_rows()
    }

    pub(crate) fn rules(&self) -> &'static dyn ProtocolRules {
        self.rules
    }

    /// Whether changes are deferred to commit.
    pub(crate) fn defers_writes(&self) -> bool {
        self.rules.writes() == WriteRule::Deferred
    }

    /// Whether leaves are latched only to be read, in either mode: changes are deferred, and
    /// commit has not begun to make them.
    pub(crate) fn only_reads_leaves(&self) -> bool {
        self.defers_writes() && !self.applies
    }

    /// From now on leaves are latched in the mode that is asked for.
    pub(super) fn begin_apply(&mut self) {
        self.applies = true;
    }

    /// Notes that a leaf was read, whose latch is still held: see
    /// [`ReadSet::add`](crate::protocol::read_set::ReadSet::add).
    pub(crate) async fn record_read(
        &mut self,
        addr: GAddr,
        psn: u64,
        lsn: Lsn,
    ) -> Result<(), TxnError> {
        let (locks, WorkspaceState { reads, .. }) = self.work.parts();
        reads.add(&self.db.engine, locks, addr, psn, lsn).await
    }

    /// Fails unless every leaf in the read set is unchanged.
    pub(crate) async fn validate_reads(&mut self) -> Result<(), TxnError> {
        if self.records_rows() {
            // At a snapshot all that is read is of one state.
            return if self.view.is_snapshot() { Ok(()) } else { self.validate_rows().await };
        }
        let (locks, WorkspaceState { reads, .. }) = self.work.parts();
        reads.validate(&self.db.engine, locks, self.db.read_ahead()).await
    }

    /// For an error that depends on the data: that error if the reads are consistent with each
    /// other, else the error of validation. The read set is empty where reads need no validation.
    /// No wait while the node's lease lasts.
    pub(crate) async fn error_of_valid_reads(&mut self, error: TxnError) -> TxnError {
        if let Err(stale) = self.validate_reads().await {
            return stale;
        }
        // A caller acts upon it without a commit: it must not come from a node that was expelled.
        self.db.engine.until_durable(0).await.err().map_or(error, TxnError::from)
    }

    /// For a failure while a tree was read, or a value that does not go with the definition: that
    /// the table was changed or dropped meanwhile, if it was. Pages may be something else by now,
    /// and a row that the transaction has made may be one that the later definition does not take.
    pub(super) async fn error_if_in_force(&mut self, error: TxnError) -> TxnError {
        let is_failure = matches!(error, TxnError::NoStableLeaf { .. } | TxnError::Tree(_))
            || error.abort_cause() == Some(AbortCause::Failure);
        if self.work.tables.is_empty() || !(is_failure || matches!(error, TxnError::Row(_))) {
            return error;
        }
        if self.records_rows() && self.view.is_snapshot() {
            // A commit, and who locks a row, works on the current state: there the table may have
            // other trees than at the snapshot.
            return self.validate_rows().await.err().unwrap_or(error);
        }
        self.error_of_valid_reads(error).await
    }

    /// Queues what the trees need once the leaves of this transaction are released.
    pub(super) fn queue_maintenance(&mut self) {
        let db = self.db;
        self.work
            .queue_maintenance(|used, tree| db.index_in_use(used, tree).map(|index| index.known));
    }

    /// How many changes there were: a mark to roll back to.
    pub(crate) fn mark(&self) -> usize {
        if self.defers_writes() { self.work.writes.len() } else { self.work.undo.len() }
    }

    /// Takes back the latest changes until `mark` are left.
    pub(super) fn take_back(&mut self, mark: usize) {
        if !self.work.created.is_empty() {
            self.give_created_back(mark);
        }
        if self.work.changes_tables {
            self.forget_definitions();
        }
        if self.defers_writes() {
            self.work.writes.take_back(mark);
        } else {
            self.work.undo_to(&self.db.engine, mark);
        }
    }

    /// Gives the trees back that were created after so many changes, which no other transaction
    /// knows.
    fn give_created_back(&mut self, mark: usize) {
        let WorkspaceState { created, maintenance, .. } = &mut *self.work;
        let later = created.extract_if(.., |created| created.mark >= mark);
        maintenance.extend(later.map(|created| MaintenanceTask::GiveBack(created.tree, None)));
    }

    /// Begins an operation that reads.
    pub(crate) fn open_read(&mut self) -> Result<(), TxnError> {
        self.check_active()?;
        self.work.last_read = None;
        self.work.pin = None;
        if self.view.is_of_operation() {
            self.forget_definitions();
        }
        self.view.open_operation();
        if self.only_reads_leaves() && self.work.locks.len() > 0 {
            // A validation was dropped that had latched some.
            self.work.locks.release();
        }
        Ok(())
    }

    /// Ends an operation that read: errors that are not the caller's roll back.
    pub(crate) async fn close_read<T>(
        &mut self,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        match result {
            Ok(found) => Ok(found),
            Err(error) => Err(Box::pin(self.end_failed_read(error)).await),
        }
    }

    async fn end_failed_read(&mut self, error: TxnError) -> TxnError {
        let error = self.error_if_in_force(error).await;
        if let Some(cause) = error.abort_cause() {
            self.undo_in_turns(0).await;
            self.abort(cause);
        }
        self.wait_if_full(error).await
    }

    /// Begins an operation that reads, for update if the mode is exclusive.
    pub(crate) fn open_read_for(&mut self, mode: LatchMode) -> Result<(), TxnError> {
        self.open_read()?;
        if self.read_only && mode == LatchMode::Exclusive {
            return Err(TxnError::ReadOnly);
        }
        Ok(())
    }

    /// The current operation begins to change something; returns the mark to undo to if it fails.
    pub(crate) fn begin_change(&mut self) -> usize {
        self.changing = true;
        self.changes_begun += 1;
        self.mark()
    }

    /// Ends an operation that changed: a failure leaves nothing of it behind.
    pub(crate) async fn close_change<T>(
        &mut self,
        mark: usize,
        result: Result<T, TxnError>,
    ) -> Result<T, TxnError> {
        self.changing = false;
        self.work.last_read = None;
        let fits = |changed| self.check_write_set().map(|()| changed);
        match result.and_then(fits) {
            Ok(changed) => Ok(changed),
            Err(error) => Err(Box::pin(self.end_failed_change(mark, error)).await),
        }
    }

    async fn end_failed_change(&mut self, mark: usize, error: TxnError) -> TxnError {
        // What the operation did is there until it is taken back.
        let before = self.open_critical();
        let error = self.error_if_in_force(error).await;
        self.close_critical(before);
        match error.abort_cause() {
            Some(cause) => {
                self.undo_in_turns(0).await;
                self.abort(cause);
            }
            None => {
                self.undo_in_turns(mark).await;
                self.take_back(mark);
            }
        }
        self.wait_if_full(error).await
    }

    /// After a rollback for want of room, waits until the log has room, or until freed pages may be
    /// used: a retry would fail before. If the log has no room in time, that is the error.
    pub(super) async fn wait_if_full(&self, error: TxnError) -> TxnError {
        if error.is_freed_in_use() {
            self.db.engine.until_freed_is_released().await;
            return error;
        }
        if error.abort_cause() != Some(AbortCause::LogFull) {
            return error;
        }
        self.db.engine.until_room(self.log_need).await.map_or_else(TxnError::from, |()| error)
    }

    /// Marks the transaction for the time of an await that it cannot survive being dropped in;
    /// returns what [`close_critical`](Self::close_critical) needs.
    pub(crate) fn open_critical(&mut self) -> bool {
        std::mem::replace(&mut self.changing, true)
    }

    pub(crate) fn close_critical(&mut self, before: bool) {
        self.changing = before;
    }

    pub(crate) fn count_split(&self) {
        self.db.stats.split(self.shard);
    }

    /// Fails if the transaction has ended. Ends it if an operation was dropped half-way.
    pub(super) fn check_active(&mut self) -> Result<(), TxnError> {
        if self.changing {
            self.abort(AbortCause::Interrupted);
        }
        match self.phase {
            TxnPhase::Active => Ok(()),
            TxnPhase::RolledBack(cause) => Err(TxnError::RolledBack { cause }),
            TxnPhase::Committed | TxnPhase::Parked => {
                Err(TxnError::RolledBack { cause: AbortCause::Requested })
            }
        }
    }

    /// Why a rollback that the caller asks for happens.
    pub(super) fn rollback_cause(&self) -> AbortCause {
        if self.changing { AbortCause::Interrupted } else { AbortCause::Requested }
    }

    /// Undoes all changes and releases every latch. Does nothing if the transaction has ended.
    pub(super) fn abort(&mut self, cause: AbortCause) {
        self.changing = false;
        if self.phase != TxnPhase::Active {
            return;
        }
        self.phase = TxnPhase::RolledBack(cause);
        self.give_created_back(0);
        self.log_need = self.log_need.max(self.log_need());
        self.work.undo_to(&self.db.engine, 0);
        // A rollback promises nothing that would have to be durable.
        let _ = self.release_all();
        // By a task, unless a caller that can wait has taken them.
        if !self.row_locks.is_empty() {
            drop(self.row_locks.take());
        }
        self.db.stats.aborted(self.shard, cause);
    }

    /// Releases every latch, the room for them and for changes in the log, and forgets all changes
    /// and reads. Returns up to where the log has to be durable before the caller may report a
    /// commit.
    pub(super) fn release_all(&mut self) -> Lsn {
        let lsn = self.work.release();
        self.turns.give_back();
        self.view.end();
        let room = std::mem::replace(&mut self.work.leaf_room, UNCOUNTED_LEAVES);
        self.db.leaf_budget.give_back(room);
        self.work.log_room.release();
        lsn
    }

    /// Runs the maintenance tasks of this transaction and some that others left, then lets other
    /// tasks run, unless it is one of those of a session that need not.
    pub(super) async fn maintain(&mut self) {
        let mut ran = 0;
        while let Some(task) = self.work.maintenance.front_mut() {
            // In the queue while it runs, which is kept if this future is dropped.
            let end = Box::pin(task.run(self.db.tree_site())).await;
            let task = self.work.maintenance.pop_front();
            if let Some(task) = task.filter(|_| end != TaskEnd::Done) {
                self.db.backlog.push(task);
            }
            ran += 1;
            if ran % TASKS_AT_ONCE == 0 {
                yield_now().await;
            }
        }
        for _ in 0..(self.db.backlog.len() / 16).clamp(POSTPONED_AT_ONCE, TASKS_AT_ONCE) {
            if self.db.backlog.len() == 0 {
                break;
            }
            // A part of a sweep is enough for one transaction.
            if Box::pin(self.db.backlog.run_one(self.db.tree_site())).await != RanTask::Single {
                break;
            }
        }
        if self.yields_at_end {
            yield_now().await;
        }
    }
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        if self.phase == TxnPhase::Parked {
            return;
        }
        self.abort(self.rollback_cause());
        for task in self.work.maintenance.drain(..) {
            self.db.backlog.push(task);
        }
        self.db.workspaces.give(self.shard, &mut self.work);
    }
}
