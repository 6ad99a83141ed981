//! Work on trees that a transaction leaves behind, done once it holds no latch.
//!
//! Splits leave separators to be posted to parents, removals leave empty leaves. Neither is needed
//! for correctness: a tree with missing separators and empty leaves is valid. Posting waits for
//! latches, so it is done after the transaction has ended; what cannot be done then is kept for a
//! later transaction of this database.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use selkie_btree::{PendingPost, Tree};
use selkie_engine::{Engine, GAddr};

/// Most tasks kept for later. Later traversals of the trees do what does not fit.
const BACKLOG_TASKS: usize = 1024;

/// One task on a tree.
pub(crate) enum MaintenanceTask {
    /// Post the separator of a split to the parent.
    PostSeparator(Tree, PendingPost),
    /// Give an empty leaf back.
    ReclaimLeaf(Tree, GAddr),
}

impl MaintenanceTask {
    /// Runs the task, waiting for inner pages; the caller holds no latch. Returns it if a page
    /// stayed busy and the task is worth another attempt.
    ///
    /// Other failures are left to later traversals: the transaction that the task comes from has
    /// ended, and the tree is valid.
    pub(crate) async fn run(self, engine: &Engine) -> Option<Self> {
        let (result, again) = match self {
            Self::PostSeparator(tree, post) => {
                let result = tree.post(engine, post.clone()).await;
                (result, Some(Self::PostSeparator(tree, post)))
            }
            // A leaf that another transaction uses stays: that one needs it.
            Self::ReclaimLeaf(tree, leaf) => (tree.reclaim(engine, leaf).await.map(drop), None),
        };
        let error = result.err()?;
        if error.is_retryable() {
            return again;
        }
        tracing::debug!(%error, "maintenance of a tree failed");
        None
    }
}

/// Tasks that wait for a later transaction, oldest first.
#[derive(Default)]
pub(crate) struct MaintenanceBacklog {
    tasks: Mutex<VecDeque<MaintenanceTask>>,
    /// How many there are, to be read without the lock.
    len: AtomicUsize,
}

impl MaintenanceBacklog {
    /// Keeps a task for a later transaction, if there is room.
    pub(crate) fn push(&self, task: MaintenanceTask) {
        let mut tasks = self.tasks.lock();
        if tasks.len() < BACKLOG_TASKS {
            tasks.push_back(task);
        }
        self.len.store(tasks.len(), Ordering::Relaxed);
    }

    /// Takes the oldest task.
    pub(crate) fn pop(&self) -> Option<MaintenanceTask> {
        // Relaxed: a task that is missed here is taken by a later transaction.
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut tasks = self.tasks.lock();
        let task = tasks.pop_front();
        self.len.store(tasks.len(), Ordering::Relaxed);
        task
    }
}
