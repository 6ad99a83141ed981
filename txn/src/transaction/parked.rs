//! A transaction between two of its operations, without a borrow of its database.

use std::mem;

use selkie_btree::Stamp;
use selkie_engine::GAddr;

use crate::locks::held_turns::HeldTurns;
use crate::locks::row_locks::RowLocks;
use crate::protocol::choice::{Isolation, ProtocolRules};
use crate::protocol::timestamp_order::TimestampOrder;
use crate::protocol::view::View;
use crate::transaction::cursor_scope::CursorScope;
use crate::transaction::database_state::DatabaseState;
use crate::transaction::leaf_budget::UNCOUNTED_LEAVES;
use crate::transaction::savepoint::Savepoints;
use crate::transaction::txn::{Txn, TxnPhase};
use crate::transaction::workspace::Workspace;

/// A transaction that defers its changes and has no leaf latched. It delays no other: what it has
/// read and is to change is in memory of its own. Only its snapshot, if it has one, is known to
/// others, who keep images of pages for it as long as they have room.
pub(super) struct ParkedTxn {
    rules: &'static dyn ProtocolRules,
    isolation: Isolation,
    read_only: bool,
    shard: usize,
    phase: TxnPhase,
    stamp: Option<Stamp>,
    view: View,
    contended: Vec<(usize, GAddr)>,
    changing: bool,
    savepoints: Savepoints,
    cursors: CursorScope,
    changes_begun: u64,
    is_validated: bool,
    log_need: u64,
    leaves_seen: u32,
    row_locks: RowLocks,
    work: Workspace<'static>,
}

impl Txn<'_> {
    /// Sets the transaction aside. What it has latched to read is let go.
    ///
    /// # Panics
    /// If it does not defer its changes, or has begun to make them: then leaves are held for it.
    pub(super) fn park(mut self) -> ParkedTxn {
        assert!(self.only_reads_leaves(), "a transaction is parked that holds leaves");
        // The next operation may read another snapshot, and nothing is latched.
        self.view.open_operation();
        let room = mem::replace(&mut self.work.leaf_room, UNCOUNTED_LEAVES);
        self.db.leaf_budget.give_back(room);
        let phase = mem::replace(&mut self.phase, TxnPhase::Parked);
        ParkedTxn {
            rules: self.rules,
            isolation: self.isolation,
            read_only: self.read_only,
            shard: self.shard,
            phase,
            stamp: self.order.stamp(),
            view: mem::replace(&mut self.view, View::read_only()),
            contended: mem::take(&mut self.contended),
            changing: self.changing,
            savepoints: mem::take(&mut self.savepoints),
            cursors: mem::take(&mut self.cursors),
            changes_begun: self.changes_begun,
            is_validated: self.is_validated,
            log_need: self.log_need,
            leaves_seen: self.leaves_seen,
            row_locks: mem::take(&mut self.row_locks),
            work: self.work.take_unlatched(),
        }
    }
}

impl ParkedTxn {
    /// Whether it has not been rolled back.
    pub(super) fn is_active(&self) -> bool {
        self.phase == TxnPhase::Active
    }

    /// Goes on with it.
    pub(super) fn resume(self, db: &DatabaseState) -> Txn<'_> {
        Txn {
            db,
            rules: self.rules,
            isolation: self.isolation,
            read_only: self.read_only,
            shard: self.shard,
            phase: self.phase,
            order: TimestampOrder::at(&db.engine, &db.clock, self.stamp),
            view: self.view,
            contended: self.contended,
            applies: false,
            changing: self.changing,
            savepoints: self.savepoints,
            cursors: self.cursors,
            changes_begun: self.changes_begun,
            is_validated: self.is_validated,
            log_need: self.log_need,
            leaves_seen: self.leaves_seen,
            yields_at_end: true,
            row_locks: self.row_locks,
            turns: HeldTurns::none(&db.turns, &db.engine),
            work: self.work,
        }
    }
}
