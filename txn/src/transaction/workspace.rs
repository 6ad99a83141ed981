//! The state that a transaction's operations work on, and its memory, which later transactions use
//! again.

use std::collections::VecDeque;

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
    /// Changes made in held leaves.
    pub(crate) undo: UndoLog,
    /// Changes deferred to commit.
    pub(crate) writes: WriteSet,
    /// Leaves read and not held.
    pub(crate) reads: ReadSet,
    /// Rows and ranges that were read.
    pub(crate) rows: RowReads,
    /// The leaf last read whose latch is not held to the end, until the next operation.
    pub(crate) last_read: Option<LeafImage<'db>>,
    /// Which version of its leaf that is, where rows are recorded.
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
    /// Keeps pages that are given back from being used again, until the next operation.
    pub(crate) pin: Option<EpochPin<'db>>,
    /// Buffer for the row that an update changes.
    pub(crate) row: Vec<u8>,
    /// Buffer for the row that was read last, where no latch is kept for it.
    pub(crate) copied_row: Vec<u8>,
    /// Buffer for the key of the index entry that a row is fetched for.
    pub(crate) entry: Vec<u8>,
}

impl Default for Workspace<'_> {
    fn default() -> Self {
        Self {
            locks: LockSet::default(),
            undo: UndoLog::default(),
            writes: WriteSet::default(),
            reads: ReadSet::default(),
            rows: RowReads::default(),
            last_read: None,
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
            pin: None,
            row: Vec::new(),
            copied_row: Vec::new(),
            entry: Vec::new(),
        }
    }
}

impl<'db> Workspace<'db> {
    /// The same without latches: all that was read and is deferred stays.
    pub(super) fn unlatched<'other>(self) -> Workspace<'other> {
        Workspace {
            locks: self.locks.emptied(),
            undo: self.undo,
            writes: self.writes,
            reads: self.reads,
            rows: self.rows,
            last_read: None,
            last_version: self.last_version,
            recent: self.recent,
            maintenance: self.maintenance,
            leaf_room: self.leaf_room,
            log_room: self.log_room,
            has_emptied: self.has_emptied,
            catalogue_leaf: LeafVersion::NONE,
            tables: self.tables,
            changes_tables: self.changes_tables,
            created: self.created,
            drops_trees: self.drops_trees,
            pin: None,
            row: self.row,
            copied_row: self.copied_row,
            entry: self.entry,
        }
    }

    /// The same memory with nothing in it.
    fn emptied<'other>(mut self) -> Workspace<'other> {
        self.undo.clear();
        self.undo.shrink_to(KEPT_UNDO_BYTES);
        self.writes.clear();
        self.writes.shrink_to(KEPT_WRITE_BYTES);
        self.reads.clear();
        self.rows.clear();
        self.rows.shrink_to(KEPT_READ_BYTES);
        self.maintenance.clear();
        self.tables.clear();
        self.created.clear();
        Workspace {
            last_version: LeafVersion::NONE,
            recent: RecentLeaves::NONE,
            leaf_room: UNCOUNTED_LEAVES,
            log_room: LogReservation::default(),
            has_emptied: false,
            changes_tables: false,
            drops_trees: false,
            ..self.unlatched()
        }
    }

    /// Takes back the latest changes in held leaves until `mark` are left.
    pub(crate) fn undo_to(&mut self, engine: &Engine, mark: usize) {
        self.undo.undo_to(engine, &mut self.locks, mark);
    }

    /// Queues what the trees need once the leaves of a transaction that commits are released:
    /// separators of splits, then leaves to be merged. `tree_of` has the tree of a number.
    pub(crate) fn queue_maintenance(&mut self, tree_of: impl Fn(usize) -> Option<KnownTree>) {
        let splits = self.undo.take_splits().map(|split| split.post);
        let posts = splits.map(|(tree, post)| MaintenanceTask::PostSeparator(tree, post));
        self.maintenance.extend(posts);
        // By their keys, so that each leaf lies next to one that its parent knows already.
        self.maintenance.make_contiguous().sort_by(MaintenanceTask::compare_keys);
        if !std::mem::take(&mut self.has_emptied) {
            return;
        }
        for (tree, guard) in self.locks.shrunk() {
            if let Ok(leaf) = LeafView::new(guard)
                && leaf.underfill() > 0
                && let Some(tree) = tree_of(tree)
            {
                let task = MaintenanceTask::reclaim(tree, &leaf);
                self.maintenance.push_back(task);
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
        let pooled = self.shard(shard).lock().pop();
        // A new one where none is pooled.
        pooled.unwrap_or_default().emptied()
    }

    /// Keeps the memory of a workspace for a later transaction.
    pub(crate) fn give(&self, shard: usize, workspace: Workspace<'_>) {
        let workspace = workspace.emptied();
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
