//! What a node keeps of an open database: shared by the handles and their transactions.

use std::sync::atomic::{AtomicU64, Ordering};

use selkie_engine::Engine;

use crate::catalogue::directory::TableDirectory;
use crate::protocol::clock::Clock;
use crate::stats::StatsShards;
use crate::transaction::leaf_budget::LeafBudget;
use crate::transaction::maintenance::MaintenanceBacklog;
use crate::transaction::workspace::WorkspacePool;

pub(crate) struct DatabaseState {
    pub(crate) engine: Engine,
    pub(crate) directory: TableDirectory,
    /// Gives the timestamps of transactions that are ordered by them.
    pub(crate) clock: Clock,
    pub(crate) stats: StatsShards,
    pub(crate) workspaces: WorkspacePool,
    pub(crate) backlog: MaintenanceBacklog,
    pub(crate) leaf_budget: LeafBudget,
    /// The number of the next savepoint: no transaction takes one for another's. Handles of other
    /// nodes begin elsewhere.
    next_savepoint: AtomicU64,
}

impl DatabaseState {
    pub(crate) fn new(engine: &Engine, directory: TableDirectory) -> Self {
        let first_savepoint = engine.env().random_u64();
        Self {
            engine: engine.clone(),
            directory,
            clock: Clock::new(),
            stats: StatsShards::default(),
            workspaces: WorkspacePool::default(),
            backlog: MaintenanceBacklog::default(),
            leaf_budget: LeafBudget::new(engine),
            next_savepoint: AtomicU64::new(first_savepoint),
        }
    }

    pub(crate) fn savepoint_number(&self) -> u64 {
        // Relaxed: only that no number is given twice.
        self.next_savepoint.fetch_add(1, Ordering::Relaxed)
    }
}
