//! Giving the pages of dropped trees back to the pool.
//!
//! The transaction that drops a tree enters it in the table `dropped`. A node that sees the entry
//! at a snapshot knows that the drop is no later than that; once no older snapshot is active, no
//! transaction needs the tree
//! ([`table_use`](crate::access::table_use)). The node claims the entry, and gives the pages back,
//! some at a time: first it notes in the entry with which page it will continue. If it ends in
//! between, some pages stay allocated, and another node continues.
//!
//! That is done by transactions that end, a part each, as other work on trees is
//! ([`maintenance`](crate::transaction::maintenance)), or by [`Database::reclaim_dropped`]. Each
//! part is a task of its own, which goes on if the future is dropped that waits for it: between the
//! note and the last page it has pages to which nothing leads.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_btree::{Direction, Tree};
use selkie_engine::{ComputeId, EngineError, GAddr};
use selkie_fabric::BoxFuture;

use crate::catalogue::definition::DROPPED;
use crate::encoding::key::KeyBuf;
use crate::encoding::key_range::KeyRange;
use crate::encoding::row_ref::RowRef;
use crate::error::TxnError;
use crate::protocol::choice::{Isolation, Protocol};
use crate::stats::shard_here;
use crate::transaction::database::Database;
use crate::transaction::database_state::DatabaseState;
use crate::transaction::dropped_trees::DroppedTree;
use crate::transaction::txn::Txn;

/// Pages given back at a time.
const PAGES_AT_ONCE: usize = 64;

/// Columns of `dropped`.
const OWNER: usize = 1;
const LEVEL: usize = 2;
const NEXT: usize = 3;

impl Database {
    /// Gives the pages of dropped tables and indexes back, as far as no snapshot needs them.
    /// Transactions do so by and by when they end. Returns how many trees are left. A round trip
    /// for each page, and a small transaction for each 64.
    ///
    /// # Errors
    /// What the engine and the tree report.
    pub async fn reclaim_dropped(&self) -> Result<usize, TxnError> {
        let state = self.state();
        if state.directory.changing().is_none() {
            return Ok(0);
        }
        state.dropped.look();
        while in_a_task(state).await? {}
        Ok(state.dropped.trees.lock().known.len())
    }
}

/// Gives some pages back, if there are any to be given back. Failures are left to a later call.
pub(crate) fn reclaim_dropped(db: &DatabaseState) -> BoxFuture<'_, ()> {
    Box::pin(async move {
        if let Err(error) = in_a_task(db).await {
            if !error.is_retryable() {
                tracing::warn!(%error, "pages of a dropped table were not given back");
            }
            db.dropped.pause(db.engine.env().now());
        }
    })
}

/// The right to work on dropped trees.
struct Turn(Arc<DatabaseState>);

impl Turn {
    fn take(db: &DatabaseState) -> Option<Self> {
        let db = db.this.upgrade()?;
        db.dropped.take_turn().then(|| Self(db))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.dropped.end_turn();
    }
}

/// As [`reclaim_some`], to the end, whatever becomes of the caller.
async fn in_a_task(db: &DatabaseState) -> Result<bool, TxnError> {
    let Some(turn) = Turn::take(db) else { return Ok(false) };
    let outcome = Arc::new(Mutex::new(Err(EngineError::Closed.into())));
    let told = Arc::clone(&outcome);
    let task = db.engine.env().spawn("dropped_trees", async move {
        let done = reclaim_some(&turn.0).await;
        // Before the caller goes on, which may take the next one.
        drop(turn);
        *told.lock() = done;
    });
    if let Err(error) = task.join().await {
        // It leaves `Closed`.
        tracing::warn!(%error, "the work on dropped tables has ended early");
    }
    let mut outcome = outcome.lock();
    std::mem::replace(&mut *outcome, Ok(false))
}

/// Gives some pages back. Returns whether another call may go on at once.
async fn reclaim_some(db: &DatabaseState) -> Result<bool, TxnError> {
    if let Some(number) = db.dropped.unread() {
        let known = dropped_trees(db).await?;
        db.dropped.note(number, known);
    }
    let first = db.dropped.trees.lock().known.front().copied();
    db.dropped.settle();
    let Some(tree) = first else { return Ok(false) };
    if db.engine.snapshot_horizon() < tree.seen_at {
        db.dropped.pause(db.engine.env().now());
        return Ok(false);
    }
    match give_some_back(db, tree.root).await {
        Ok(false) => {}
        Ok(true) => db.dropped.pass_first(),
        Err(error) => {
            // Else it would be tried with each commit, as where this node only reads.
            if !error.is_retryable() {
                db.dropped.pass_first();
            }
            return Err(error);
        }
    }
    Ok(true)
}

fn begin(db: &DatabaseState) -> Txn<'_> {
    Txn::new(db, Protocol::Snapshot, Isolation::Serializable, shard_here())
}

/// The trees that no other living node gives back.
async fn dropped_trees(db: &DatabaseState) -> Result<VecDeque<DroppedTree>, TxnError> {
    let mut txn = begin(db).read_only();
    txn.open_read()?;
    let (dropped, mut roots) = (txn.system_table(DROPPED), Vec::new());
    let mut take = |row: RowRef<'_>| {
        if !is_of_another(db, row.i64(OWNER)?) {
            roots.push(row.i64(0)?);
        }
        Ok(ControlFlow::Continue(()))
    };
    let (range, forward, mut entry) = (KeyRange::all(), Direction::Forward, Vec::new());
    let scan = txn.scan_rows(dropped, &dropped.primary, &range, forward, &mut take, &mut entry);
    let scanned = scan.await;
    txn.close_read(scanned).await?;
    txn.work.last_read = None;
    let seen_at = txn.snapshot().await?;
    txn.commit().await?;
    Ok(roots.into_iter().map(|root| DroppedTree { root, seen_at }).collect())
}

/// Who gives a tree back, as it stands in the table; nobody is 0.
fn owner_here(db: &DatabaseState) -> i64 {
    let (node, incarnation) = (db.engine.node().index() as u64, db.engine.incarnation());
    ((node + 1) << 32 | u64::from(incarnation)).cast_signed()
}

fn is_of_another(db: &DatabaseState, owner: i64) -> bool {
    let (owner, here) = (owner.cast_unsigned(), owner_here(db));
    let node = (owner >> 32).checked_sub(1).and_then(|node| ComputeId::new(node as usize));
    owner.cast_signed() != here && node.is_some_and(|node| db.engine.is_member(node, owner as u32))
}

/// What is to be done with a tree.
enum Step {
    /// Another node gives it back, or has.
    Leave,
    /// Give these pages back.
    GiveBack(Vec<GAddr>),
    /// The pages of all levels are given back.
    End,
}

/// Gives some pages of a tree back. Returns whether there are no more for this node.
async fn give_some_back(db: &DatabaseState, root: i64) -> Result<bool, TxnError> {
    // A page that a merge gives back meanwhile is not used again before it is found dead here.
    let _pin = db.engine.pin();
    let mut txn = begin(db);
    let mark = {
        txn.open_read()?;
        txn.begin_change()
    };
    let step = advance(&mut txn, root).await;
    let step = txn.close_change(mark, step).await?;
    txn.commit().await?;
    match step {
        Step::Leave | Step::End => Ok(true),
        Step::GiveBack(pages) => {
            for page in pages {
                Tree::give_back(&db.engine, page).await?;
            }
            Ok(false)
        }
    }
}

/// Notes how far the tree will be given back.
async fn advance(txn: &mut Txn<'_>, root: i64) -> Result<Step, TxnError> {
    let (db, dropped) = (txn.db, txn.system_table(DROPPED));
    let (engine, key, mut buffer) = (&db.engine, KeyBuf::new().i64(root), Vec::new());
    match txn.copy_row(dropped, &key, &mut buffer).await {
        Err(TxnError::NotFound { .. }) => return Ok(Step::Leave),
        found => found?,
    };
    // The pages of the tree are waited for.
    txn.work.last_read = None;
    let row = RowRef::new(&dropped.layout, &buffer);
    let (owner, level, next) = (row.i64(OWNER)?, row.i16(LEVEL)?, row.i64(NEXT)?);
    if is_of_another(db, owner) {
        return Ok(Step::Leave);
    }
    let tree = Tree::open(GAddr::from_u64(root.cast_unsigned()), u16::MAX);
    // The null page is none of a tree: the level has not been begun.
    let first = match next {
        0 => tree.first_page(engine, level as u8).await?,
        next => Some(GAddr::from_u64(next.cast_unsigned())),
    };
    let Some(first) = first else {
        txn.delete_row(dropped, &key, &mut buffer).await?;
        return Ok(Step::End);
    };
    let (pages, next) = Tree::pages_from(engine, first, PAGES_AT_ONCE).await?;
    let is_root = pages.contains(&tree.root());
    if is_root {
        // The last of all: the level above would be looked for from there.
        txn.delete_row(dropped, &key, &mut buffer).await?;
        return Ok(Step::GiveBack(pages));
    }
    let (level, next) = match next {
        Some(next) => (level, next.to_u64().cast_signed()),
        None => (level + 1, 0),
    };
    let here = owner_here(db);
    txn.update_row(dropped, &key, &mut buffer, |row| {
        row.set_i64(OWNER, here)?;
        row.set_i16(LEVEL, level)?;
        Ok(row.set_i64(NEXT, next)?)
    })
    .await?;
    Ok(Step::GiveBack(pages))
}
