//! The state that a transaction's operations work on, and its memory, which later transactions use
//! again.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;
use selkie_btree::{LeafView, Tree};
use selkie_engine::log::{LogReservation, Lsn};
use selkie_engine::{Engine, EpochPin};

use crate::catalogue::handles::Table;
use crate::catalogue::known_tree::KnownTree;
use crate::protocol::leaf_latch::LeafImage;
use crate::protocol::lock_set::LockSet;
use crate::protocol::read_set::ReadSet;
use crate::protocol::recent_leaves::RecentLeaves;
use crate::protocol::row_reads::{LeafVersion, RowReads};
use crate::protocol::undo_log::UndoLog;
use crate::protocol::write_set::WriteSet;
use crate::stats::SHARDS;
use crate::transaction::leaf_budget::UNCOUNTED_LEAVES;
use crate::transaction::maintenance::MaintenanceTask;

/// Most workspaces kept in a shard: about the transactions open at once on one thread.
const POOLED_WORKSPACES: usize = 64;
/// Bytes of undo that a workspace keeps for the next transaction.
const KEPT_UNDO_BYTES: usize = 64 << 10;
/// Bytes of the log of deferred changes that a workspace keeps.
const KEPT_WRITE_BYTES: usize = 64 << 10;
/// Bytes of the rows and ranges that were read that a workspace keeps.
const KEPT_READ_BYTES: usize = 64 << 10;

/// A table that a transaction has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableInUse {
    pub(crate) table: Table,
    /// Where its definition is.
    pub(crate) position: usize,
    /// Whether it is the one that the current operation sees.
    pub(crate) is_checked: bool,
}

/// A tree that a transaction has created, and how many changes there were before.
pub(crate) struct CreatedTree {
    pub(crate) tree: Tree,
    pub(crate) mark: usize,
}

/// What a transaction holds, has read and has changed.
pub(crate) struct Workspace<'db> {
    /// Leaves held to the end.
    pub(crate) locks: LockSet<'db>,
    /// The leaf last read whose latch is not held to the end, until the next operation.
    pub(crate) last_read: Option<LeafImage<'db>>,
    /// Keeps pages that are given back from being used again, until the next operation.
    pub(crate) pin: Option<EpochPin<'db>>,
    /// In a box of its own, as a transaction is moved for each operation of a session. `None` once
    /// it was taken out.
    state: Option<Box<WorkspaceState>>,
}

/// What of that borrows nothing of the database.
pub(crate) struct WorkspaceState {
    /// Changes made in held leaves.
    pub(crate) undo: UndoLog,
    /// Changes deferred to commit.
    pub(crate) writes: WriteSet,
    /// Leaves read and not held.
    pub(crate) reads: ReadSet,
    /// Rows and ranges that were read.
    pub(crate) rows: RowReads,
    /// Which version of its leaf the leaf last read is, where rows are recorded.
    pub(crate) last_version: LeafVersion,
    /// The leaves read last of a few trees, where rows are recorded.
    pub(crate) recent: RecentLeaves,
    pub(crate) maintenance: VecDeque<MaintenanceTask>,
    /// Leaves that may be held.
    pub(crate) leaf_room: usize,
    /// Room in the log for the changes.
    pub(crate) log_room: LogReservation,
    /// A held leaf has become emptier, and may be merged.
    pub(crate) has_emptied: bool,
    /// The leaf of the catalogue that was looked at last, while all that was read is of one state
    /// with it.
    pub(crate) catalogue_leaf: LeafVersion,
    /// Tables that were used and may change.
    pub(crate) tables: Vec<TableInUse>,
    /// The transaction has changed definitions of tables.
    pub(crate) changes_tables: bool,
    /// Trees that it has created.
    pub(crate) created: Vec<CreatedTree>,
    /// It has noted trees in the catalogue whose pages are to be given back.
    pub(crate) drops_trees: bool,
    /// Buffer for the row that an update changes.
    pub(crate) row: Vec<u8>,
    /// Buffer for the row that was read last, where no latch is kept for it.
    pub(crate) copied_row: Vec<u8>,
    /// Buffer for the key of the index entry that a row is fetched for.
    pub(crate) entry: Vec<u8>,
}

impl Default for WorkspaceState {
    fn default() -> Self {
        Self {
            undo: UndoLog::default(),
            writes: WriteSet::default(),
            reads: ReadSet::default(),
            rows: RowReads::default(),
            last_version: LeafVersion::NONE,
            recent: RecentLeaves::NONE,
            maintenance: VecDeque::new(),
            leaf_room: UNCOUNTED_LEAVES,
            log_room: LogReservation::default(),
            has_emptied: false,
            catalogue_leaf: LeafVersion::NONE,
            tables: Vec::new(),
            changes_tables: false,
            created: Vec::new(),
            drops_trees: false,
            row: Vec::new(),
            copied_row: Vec::new(),
            entry: Vec::new(),
        }
    }
}

impl WorkspaceState {
    /// Forgets all, and keeps memory for a later transaction.
    fn clear(&mut self) {
        self.undo.clear();
        self.undo.shrink_to(KEPT_UNDO_BYTES);
        self.writes.clear();
        self.writes.shrink_to(KEPT_WRITE_BYTES);
        self.reads.clear();
        self.rows.clear();
        self.rows.shrink_to(KEPT_READ_BYTES);
        self.last_version = LeafVersion::NONE;
        self.recent = RecentLeaves::NONE;
        self.maintenance.clear();
        self.leaf_room = UNCOUNTED_LEAVES;
        self.log_room = LogReservation::default();
        self.has_emptied = false;
        self.catalogue_leaf = LeafVersion::NONE;
        self.tables.clear();
        self.changes_tables = false;
        self.created.clear();
        self.drops_trees = false;
    }
}

impl Deref for Workspace<'_> {
    type Target = WorkspaceState;

    #[inline]
    #[expect(clippy::expect_used, reason = "only a transaction that ends is without")]
    fn deref(&self) -> &WorkspaceState {
        self.state.as_deref().expect("a transaction works after its end")
    }
}

impl DerefMut for Workspace<'_> {
    #[inline]
    #[expect(clippy::expect_used, reason = "only a transaction that ends is without")]
    fn deref_mut(&mut self) -> &mut WorkspaceState {
        self.state.as_deref_mut().expect("a transaction works after its end")
    }
}

impl<'db> Workspace<'db> {
    /// Takes all out without the latches: what was read and is deferred stays.
    pub(super) fn take_unlatched(&mut self) -> Workspace<'static> {
        self.catalogue_leaf = LeafVersion::NONE;
        let locks = std::mem::take(&mut self.locks).emptied();
        (self.last_read, self.pin) = (None, None);
        Workspace { locks, last_read: None, pin: None, state: self.state.take() }
    }

    /// The leaves that are held, and the rest.
    #[expect(clippy::expect_used, reason = "only a transaction that ends is without")]
    pub(crate) fn parts(&mut self) -> (&mut LockSet<'db>, &mut WorkspaceState) {
        let state = self.state.as_deref_mut().expect("a transaction works after its end");
        (&mut self.locks, state)
    }

    /// Takes back the latest changes in held leaves until `mark` are left.
    pub(crate) fn undo_to(&mut self, engine: &Engine, mark: usize) {
        let (locks, state) = self.parts();
        state.undo.undo_to(engine, locks, mark);
    }

    /// Queues what the trees need once the leaves of a transaction that commits are released:
    /// separators of splits, then leaves to be merged. `tree_of` has the tree of a number, given
    /// the tables in use.
    pub(crate) fn queue_maintenance(
        &mut self,
        tree_of: impl Fn(&[TableInUse], usize) -> Option<KnownTree>,
    ) {
        let (locks, state) = self.parts();
        let splits = state.undo.take_splits().map(|split| split.post);
        let posts = splits.map(|(tree, post)| MaintenanceTask::PostSeparator(tree, post));
        state.maintenance.extend(posts);
        // By their keys, so that each leaf lies next to one that its parent knows already.
        state.maintenance.make_contiguous().sort_by(MaintenanceTask::compare_keys);
        if !std::mem::take(&mut state.has_emptied) {
            return;
        }
        for (tree, guard) in locks.shrunk() {
            if let Ok(leaf) = LeafView::new(guard)
                && leaf.underfill() > 0
                && let Some(tree) = tree_of(&state.tables, tree)
            {
                let task = MaintenanceTask::reclaim(tree, &leaf);
                state.maintenance.push_back(task);
            }
        }
    }

    /// Releases every latch and forgets all changes and reads. Returns up to where the log has to
    /// be durable before the caller may report a commit.
    pub(crate) fn release(&mut self) -> Lsn {
        let lsn = self.locks.seal().max(self.reads.lsn());
        self.locks.release();
        self.last_read = None;
        self.pin = None;
        self.undo.clear();
        self.writes.clear();
        self.reads.clear();
        self.rows.clear();
        lsn
    }
}

/// Workspaces of ended transactions.
#[derive(Default)]
pub(crate) struct WorkspacePool([PoolShard; SHARDS]);

/// Some of the workspaces, alone on their cache lines.
#[derive(Default)]
#[repr(align(128))]
struct PoolShard(Mutex<Vec<Workspace<'static>>>);

impl WorkspacePool {
    /// An empty workspace.
    pub(crate) fn take<'db>(&self, shard: usize) -> Workspace<'db> {
        match self.shard(shard).lock().pop() {
            Some(pooled) => pooled,
            None => Workspace {
                locks: LockSet::default(),
                last_read: None,
                pin: None,
                state: Some(Box::default()),
            },
        }
    }

    /// Keeps the memory of a workspace for a later transaction.
    pub(crate) fn give(&self, shard: usize, workspace: &mut Workspace<'_>) {
        workspace.clear();
        let workspace = workspace.take_unlatched();
        let mut pool = self.shard(shard).lock();
        if pool.len() < POOLED_WORKSPACES {
            pool.push(workspace);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "shards are numbered below SHARDS")]
    fn shard(&self, shard: usize) -> &Mutex<Vec<Workspace<'static>>> {
        &self.0[shard].0
    }
}
