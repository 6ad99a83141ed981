//! What a commit does about rows that others have locked: see [`locks`](crate::locks).

use std::time::Duration;

use selkie_btree::{LeafView, TreeError, leaf_mark_locked};
use selkie_engine::{EngineError, GAddr};

use crate::catalogue::table_info::IndexInfo;
use crate::error::TxnError;
use crate::locks::entry::LockName;
use crate::locks::lock_table::LockTable;
use crate::locks::row_locks::LockWait;
use crate::protocol::write_set::WriteSet;
use crate::transaction::commit_bound::CommitBound;
use crate::transaction::txn::Txn;

/// Locks that keep a commit from its rows.
pub(super) type Obstacles = Vec<LockName>;

impl<'db> Txn<'db> {
    /// Whether rows of a leaf that is held to be changed may be locked: one test for each leaf.
    pub(super) fn may_meet_locks(&self) -> Result<bool, TxnError> {
        for (_, guard) in self.work.locks.exclusive() {
            if LeafView::new(guard)?.may_be_locked() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which locks keep the transaction from its changes, whose leaves are held.
    pub(super) async fn obstacles(
        &mut self,
        writes: &WriteSet,
        leaves: &[(&'db IndexInfo, usize)],
    ) -> Result<Obstacles, TxnError> {
        let Some(table) = &self.db.locks else { return Ok(Vec::new()) };
        let (mut obstacles, mut last) = (Vec::new(), None);
        for (change, (index, leaf)) in writes.all().zip(leaves) {
            if !LeafView::new(self.work.locks.bytes(*leaf))?.may_be_locked() {
                continue;
            }
            let whole = LockName::of_tree(index.tree.root());
            if last != Some(whole) {
                last = Some(whole);
                let has_locks = table.has_locks(whole).await;
                if !self.looked_in_order(table, has_locks).await? {
                    last = None;
                    leaf_mark_locked(self.work.locks.exclusive_mut(*leaf), false)?;
                    continue;
                }
                self.add_obstacle(table, whole, &mut obstacles).await?;
            }
            let row = LockName::of_row(index.tree.root(), change.key);
            self.add_obstacle(table, row, &mut obstacles).await?;
        }
        obstacles.sort_unstable();
        obstacles.dedup();
        Ok(obstacles)
    }

    async fn add_obstacle(
        &mut self,
        table: &LockTable,
        name: LockName,
        obstacles: &mut Obstacles,
    ) -> Result<(), TxnError> {
        let kept = table.is_kept_from(name, self.row_locks.number()).await;
        if self.looked_in_order(table, kept).await? {
            obstacles.push(name);
        }
        Ok(())
    }

    /// What a look into the lock tree gave. If a recovery is in the way, lets all leaves go, which
    /// the recovery may need, waits for it, and has the commit begin again.
    async fn looked_in_order(
        &mut self,
        table: &LockTable,
        looked: Result<bool, TreeError>,
    ) -> Result<bool, TxnError> {
        let Err(TreeError::Engine(EngineError::Busy { addr })) = looked else {
            return Ok(looked?);
        };
        self.work.locks.release();
        drop(table.engine.shared(addr).await?);
        Err(TxnError::Conflict { leaf: addr, upgrade: false })
    }

    /// Waits for these locks, with no leaf held, and has them then. All waits of a commit together
    /// may take as long as one for a lock.
    pub(super) async fn overcome(
        &mut self,
        obstacles: Obstacles,
        writes: &WriteSet,
        bound: &mut CommitBound<'_>,
        lock_timeout: Duration,
    ) -> Result<(), TxnError> {
        self.work.locks.release();
        let env = self.db.engine.env();
        let since = bound.waits_since(env.now());
        let ends = since.saturating_add(lock_timeout);
        let wait = async {
            for name in obstacles {
                // One that is free is had also when the time is over.
                self.row_locks.timeout = ends.saturating_sub(env.now());
                let acquired = self.acquire_lock(name, LockWait::Wait).await;
                let _ = acquired.map_err(|error| self.of_obstacle(error, name, writes))?;
            }
            Ok(())
        };
        bound.apply(env, wait).await.map_err(|error| match error {
            TxnError::LockTimeout { table, key, .. } => {
                TxnError::LockTimeout { waited: env.now().saturating_sub(since), table, key }
            }
            other => other,
        })
    }

    /// The error of a wait for a lock, with the change that the lock is in the way of.
    fn of_obstacle(&self, error: TxnError, name: LockName, writes: &WriteSet) -> TxnError {
        for change in writes.all() {
            let Ok(index) = self.index_of_tree(change.tree) else { continue };
            let root = index.tree.root();
            if name == LockName::of_tree(root) {
                return index.of_lock(error, None);
            }
            if name == LockName::of_row(root, change.key) {
                return index.of_lock(error, Some(change.key));
            }
        }
        error
    }
}

/// What a commit that has met locks gives up its attempt with.
pub(super) fn met_locks() -> TxnError {
    TxnError::Conflict { leaf: GAddr::NULL, upgrade: false }
}
