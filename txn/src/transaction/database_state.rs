//! What a node keeps of an open database: shared by the handles and their transactions.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use selkie_btree::{Stamp, StampRule};
use selkie_engine::{Engine, EngineError, Snapshot};

use crate::catalogue::directory::TableDirectory;
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::IndexInfo;
use crate::locks::entry::Owner;
use crate::locks::lock_table::LockTable;
use crate::locks::turns::Turns;
use crate::protocol::clock::Clock;
use crate::protocol::row_reads::Digester;
use crate::sequences::blocks::LeasedBlocks;
use crate::stats::StatsShards;
use crate::transaction::dropped_trees::DroppedTrees;
use crate::transaction::leaf_budget::LeafBudget;
use crate::transaction::maintenance::{MaintenanceBacklog, TreeSite};
use crate::transaction::workspace::{TableInUse, WorkspacePool};

/// Most pages fetched ahead by one walk, unless set.
pub(crate) const READ_AHEAD: usize = 16;
/// Most that may be set.
pub(crate) const MOST_AHEAD: usize = 256;

pub(crate) struct DatabaseState {
    /// For tasks that outlive the future that has begun them.
    pub(crate) this: Weak<Self>,
    pub(crate) engine: Engine,
    pub(crate) directory: TableDirectory,
    /// Locks of rows, where there are any.
    pub(crate) locks: Option<Arc<LockTable>>,
    /// Whose turn it is at rows that many transactions of this node change.
    pub(crate) turns: Turns,
    /// Gives the timestamps of transactions that are ordered by them.
    pub(crate) clock: Clock,
    /// Makes digests of the rows that transactions read.
    pub(crate) digester: Digester,
    /// Leaves link to earlier images of themselves, for snapshots.
    has_snapshots: bool,
    /// The latest stamp of a commit that this node has seen.
    latest_stamp: AtomicU64,
    pub(crate) stats: StatsShards,
    pub(crate) workspaces: WorkspacePool,
    pub(crate) backlog: MaintenanceBacklog,
    /// Trees of dropped tables, whose pages are to be given back.
    pub(crate) dropped: DroppedTrees,
    pub(crate) leaf_budget: LeafBudget,
    /// Values of sequences that this node has taken.
    pub(crate) sequences: LeasedBlocks,
    /// Pages that a walk fetches ahead at most.
    read_ahead: AtomicUsize,
    /// The next number of a savepoint, or of a transaction with cursors: no transaction takes one
    /// for another's. Handles of other nodes begin elsewhere.
    next_number: AtomicU64,
}

impl DatabaseState {
    pub(crate) fn new(
        this: Weak<Self>,
        engine: &Engine,
        directory: TableDirectory,
        has_snapshots: bool,
    ) -> Self {
        let first_number = engine.env().random_u64();
        Self {
            this,
            engine: engine.clone(),
            locks: directory.locks().map(|tree| Arc::new(LockTable::new(engine, tree))),
            directory,
            turns: Turns::default(),
            clock: Clock::new(),
            digester: Digester::new(engine.env().random_u64()),
            has_snapshots,
            latest_stamp: AtomicU64::new(0),
            stats: StatsShards::default(),
            workspaces: WorkspacePool::default(),
            backlog: MaintenanceBacklog::default(),
            dropped: DroppedTrees::default(),
            leaf_budget: LeafBudget::new(engine),
            sequences: LeasedBlocks::default(),
            read_ahead: AtomicUsize::new(READ_AHEAD),
            next_number: AtomicU64::new(first_number),
        }
    }

    /// A stamp that was drawn before.
    pub(crate) fn latest_stamp(&self) -> Stamp {
        // Relaxed: any value that was ever there will do.
        Stamp::new(self.latest_stamp.load(Ordering::Relaxed))
    }

    /// Notes a stamp that was drawn.
    pub(crate) fn note_stamp(&self, stamp: Stamp) {
        // A load first: most stamps that are seen are earlier.
        if stamp > self.latest_stamp() {
            self.latest_stamp.fetch_max(stamp.get(), Ordering::Relaxed);
        }
    }

    /// A new owner of locks, of an age, or as old as what is committed now.
    pub(crate) fn lock_owner(&self, age: Option<Stamp>) -> Owner {
        Owner {
            node: u8::try_from(self.engine.node().index()).unwrap_or(u8::MAX),
            incarnation: self.engine.incarnation(),
            txn: self.unique_number(),
            age: age.unwrap_or_else(|| self.latest_stamp()).get(),
        }
    }

    /// Which leaves may become one: with snapshots, those whose images none wants any more.
    pub(crate) fn stamp_rule(&self) -> StampRule {
        match self.has_snapshots {
            true => StampRule::Above { horizon: self.engine.snapshot_horizon() },
            false => StampRule::Latest,
        }
    }

    /// What work on trees that was left for later is done with.
    pub(crate) fn tree_site(&self) -> TreeSite<'_> {
        TreeSite { engine: &self.engine, directory: &self.directory, rule: self.stamp_rule() }
    }

    /// Begins a snapshot. One round trip.
    pub(crate) async fn begin_snapshot(&self) -> Result<Snapshot, EngineError> {
        self.engine.begin_snapshot().await
    }

    /// Pages that a walk fetches ahead at most.
    pub(crate) fn read_ahead(&self) -> usize {
        // Relaxed: a bound on a number, no data depends on it.
        self.read_ahead.load(Ordering::Relaxed)
    }

    pub(super) fn set_read_ahead(&self, pages: usize) {
        self.read_ahead.store(pages.min(MOST_AHEAD), Ordering::Relaxed);
    }

    /// A number that is given once.
    pub(crate) fn unique_number(&self) -> u64 {
        // Relaxed: only that no number is given twice.
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The index whose tree has this number, of a table that a transaction has used.
    pub(crate) fn index_in_use(&self, used: &[TableInUse], tree: usize) -> Option<&IndexInfo> {
        let table = Table::of_tree(tree);
        if let Some(info) = self.directory.fixed(table) {
            return info.index_of_tree(tree);
        }
        let changing = self.directory.changing()?;
        let used = used.iter().rev().filter(|used| used.table == table);
        let mut infos = used.map(|used| &changing.at(used.position).info);
        infos.find_map(|info| info.index_of_tree(tree))
    }
}
