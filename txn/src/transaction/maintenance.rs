//! Work on trees that a transaction leaves behind, done once it holds no latch.
//!
//! Splits leave separators to be posted to parents, removals leave leaves that are empty or
//! underfull. Neither is needed for correctness: a tree with missing separators and few rows a leaf
//! is valid, only slower. Posting waits for latches, so it is done after the transaction has ended;
//! what cannot be done then is kept for a later transaction of this database. Single tasks beyond a
//! bound become one sweep of a few ranges of each tree. A search that meets leaves without
//! separators adds a sweep too: they may come from a node that is gone. A walk that meets a leaf
//! which is empty since many commits has it given back: no node has it in mind.
//!
//! A tree may have been dropped meanwhile, and its pages be something else. So a task looks whether
//! the tree is there, under a pin that keeps its pages from being used again if it is.

use std::cmp::Ordering as Order;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use selkie_btree::{
    LeafView, PendingPost, Reclaimed, StampRule, SweepRange, Swept, Tree, TreeError,
};
use selkie_engine::{Engine, GAddr};

use crate::catalogue::directory::TableDirectory;
use crate::catalogue::known_tree::KnownTree;
use crate::transaction::backlog_bell::BacklogBell;

/// Most single tasks kept for later.
const BACKLOG_TASKS: usize = 1024;

/// Tasks looked at for one that may be tried.
const TASKS_LOOKED_AT: usize = 16;

/// Pause before a task that found a page in use is tried again; it doubles with each attempt.
const FIRST_PAUSE: Duration = Duration::from_micros(500);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Most ranges of a tree that wait to be swept.
const RANGES_A_TREE: usize = 16;

/// Leaves looked at by one run of a sweep.
const SWEPT_AT_ONCE: usize = 64;

/// What tasks are run with.
#[derive(Clone, Copy)]
pub(crate) struct TreeSite<'db> {
    pub(crate) engine: &'db Engine,
    pub(crate) directory: &'db TableDirectory,
    pub(crate) rule: StampRule,
}

/// One task on a tree.
pub(crate) enum MaintenanceTask {
    /// Post the separator of a split to the parent.
    PostSeparator(KnownTree, PendingPost),
    /// Merge the leaf with this low fence with a sibling, or give it back if it is empty.
    ReclaimLeaf(KnownTree, Box<[u8]>),
    /// Give the pages of a tree back that no other transaction has ever seen: these, once they are
    /// known.
    GiveBack(Tree, Option<Vec<GAddr>>),
    /// Post every missing separator of a range, and reclaim its leaves.
    Sweep(Sweep),
}

/// A range of a tree to be swept.
pub(crate) struct Sweep {
    tree: KnownTree,
    range: SweepRange,
}

/// How a run of a task ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskEnd {
    Done,
    /// A sweep has more to do.
    More,
    /// A page was in use: another attempt may succeed.
    InUse,
    /// There is more to do, not soon.
    Later,
}

impl MaintenanceTask {
    /// A sweep of the leaves between the one that the parent knows for `key` and the leaf of `key`.
    pub(crate) fn sweep_before(tree: KnownTree, key: &[u8]) -> Self {
        Self::Sweep(Sweep::of_key(tree, key))
    }

    /// Merging a leaf that is latched now.
    pub(crate) fn reclaim(tree: KnownTree, leaf: &LeafView<'_>) -> Self {
        Self::ReclaimLeaf(tree, leaf.low_fence().into())
    }

    /// The tree, and the key of the page that the task is about.
    fn key(&self) -> (u64, &[u8]) {
        let (tree, key) = match self {
            Self::PostSeparator(tree, post) => (&**tree, post.separator()),
            Self::ReclaimLeaf(tree, low) => (&**tree, &**low),
            Self::Sweep(sweep) => (&*sweep.tree, sweep.range.from()),
            Self::GiveBack(tree, _) => (tree, &[][..]),
        };
        (tree.root().to_u64(), key)
    }

    /// The tree, unless none but this task knows it.
    fn tree(&self) -> Option<&KnownTree> {
        match self {
            Self::PostSeparator(tree, _) | Self::ReclaimLeaf(tree, _) => Some(tree),
            Self::Sweep(sweep) => Some(&sweep.tree),
            Self::GiveBack(..) => None,
        }
    }

    pub(crate) fn compare_keys(&self, other: &Self) -> Order {
        self.key().cmp(&other.key())
    }

    /// Runs the task, waiting for inner pages; the caller holds no latch. May be dropped at any
    /// await and run again.
    ///
    /// Failures are left to later traversals: the transaction that the task comes from has ended,
    /// and the tree is valid.
    pub(crate) async fn run(&mut self, site: TreeSite<'_>) -> TaskEnd {
        let TreeSite { engine, directory, rule } = site;
        // The pages of the tree are not used again meanwhile, if it is there.
        let _pin = engine.pin();
        if let Some(tree) = self.tree() {
            match directory.is_there(engine, tree).await {
                Ok(true) => {}
                Err(error) if error.is_retryable() => return TaskEnd::InUse,
                Ok(false) | Err(_) => return TaskEnd::Done,
            }
        }
        let end = match self {
            Self::GiveBack(tree, pages) => {
                give_back(engine, *tree, pages).await.map(|()| TaskEnd::Done)
            }
            Self::PostSeparator(tree, post) => {
                tree.post(engine, post.clone()).await.map(|()| TaskEnd::Done)
            }
            Self::ReclaimLeaf(tree, low) => {
                tree.reclaim(engine, low, rule).await.map(|reclaimed| match reclaimed {
                    Reclaimed::InUse | Reclaimed::Postponed => TaskEnd::InUse,
                    Reclaimed::Freed | Reclaimed::Stays => TaskEnd::Done,
                })
            }
            Self::Sweep(Sweep { tree, range }) => {
                tree.sweep(engine, range, SWEPT_AT_ONCE, rule).await.map(|swept| match swept {
                    Swept::Done => TaskEnd::Done,
                    Swept::More => TaskEnd::More,
                    Swept::InUse => TaskEnd::InUse,
                    Swept::Postponed => TaskEnd::Later,
                })
            }
        };
        end.unwrap_or_else(|error| {
            if error.is_retryable() {
                return TaskEnd::InUse;
            }
            tracing::debug!(%error, "maintenance of a tree failed");
            TaskEnd::Done
        })
    }
}

/// Gives all pages of a tree back that no other transaction has ever seen.
async fn give_back(
    engine: &Engine,
    tree: Tree,
    pages: &mut Option<Vec<GAddr>>,
) -> Result<(), TreeError> {
    if pages.is_none() {
        let (mut all, mut level) = (Vec::new(), 0);
        while let Some(first) = tree.first_page(engine, level).await? {
            let mut next = Some(first);
            while let Some(first) = next {
                let (some, more) = Tree::pages_from(engine, first, SWEPT_AT_ONCE).await?;
                all.extend(some);
                next = more;
            }
            level += 1;
        }
        *pages = Some(all);
    }
    // One that was given back is not looked at again: it may be of something else. One that was
    // waited for in vain stays, also if this future is dropped meanwhile.
    while let Some(page) = pages.as_ref().and_then(|pages| pages.last().copied()) {
        Tree::give_back(engine, page).await?;
        pages.as_mut().map(Vec::pop);
    }
    Ok(())
}

impl Sweep {
    /// A sweep of what a single task is about.
    fn of_key(tree: KnownTree, key: &[u8]) -> Self {
        Self { tree, range: SweepRange::new(key, key) }
    }

    /// Whether a range of the same tree has leaves in common with this one.
    fn meets(&self, other: &Self) -> bool {
        let (one, other_range) = (&self.range, &other.range);
        self.tree == other.tree && one.from() <= other_range.to() && other_range.from() <= one.to()
    }

    /// Extends the range to another of the same tree.
    fn extend(&mut self, other: &SweepRange) {
        let from = self.range.from().min(other.from());
        self.range = SweepRange::new(from, self.range.to().max(other.to()));
    }
}

/// A task that waits for a later transaction.
struct PostponedTask {
    task: MaintenanceTask,
    /// How often a page was in use.
    attempts: u32,
    /// When it may be tried again.
    due: Duration,
}

/// The same of a sweep.
struct PostponedSweep {
    sweep: Sweep,
    attempts: u32,
    due: Duration,
}

impl From<Sweep> for PostponedSweep {
    fn from(sweep: Sweep) -> Self {
        Self { sweep, attempts: 0, due: Duration::ZERO }
    }
}

/// What waits for a later transaction.
#[derive(Default)]
struct Postponed {
    /// The first is tried first.
    tasks: VecDeque<PostponedTask>,
    /// Of each tree at most [`RANGES_A_TREE`], which have nothing in common.
    sweeps: VecDeque<PostponedSweep>,
}

impl Postponed {
    fn push(&mut self, task: PostponedTask) {
        let PostponedTask { attempts, due, .. } = task;
        match task.task {
            MaintenanceTask::Sweep(sweep) if attempts == 0 => self.push_sweep(sweep.into()),
            MaintenanceTask::GiveBack(..) => self.tasks.push_back(task),
            _ if self.tasks.len() < BACKLOG_TASKS => self.tasks.push_back(task),
            // One that waits for others is not due before, or it would be tried all the time.
            MaintenanceTask::Sweep(sweep) => {
                self.push_sweep(PostponedSweep { sweep, attempts, due });
            }
            MaintenanceTask::PostSeparator(tree, post) => {
                self.push_sweep(Sweep::of_key(tree, post.separator()).into());
            }
            MaintenanceTask::ReclaimLeaf(tree, low) => {
                self.push_sweep(Sweep::of_key(tree, &low).into());
            }
        }
    }

    /// Whether the page that a task is about is to be looked at.
    fn has(&self, task: &MaintenanceTask) -> bool {
        let (root, key) = task.key();
        let covers = |sweep: &Sweep| {
            let range = &sweep.range;
            sweep.tree.root().to_u64() == root && range.from() <= key && key <= range.to()
        };
        let is_it = |other: &MaintenanceTask| match other {
            MaintenanceTask::Sweep(sweep) => covers(sweep),
            other => other.key() == (root, key),
        };
        let of_sweeps = |postponed: &PostponedSweep| covers(&postponed.sweep);
        self.tasks.iter().any(|other| is_it(&other.task)) || self.sweeps.iter().any(of_sweeps)
    }

    fn push_sweep(&mut self, mut own: PostponedSweep) {
        let is_of_tree = |other: &PostponedSweep, tree| other.sweep.tree == tree;
        let of_tree = self.sweeps.iter().filter(|other| is_of_tree(other, own.sweep.tree)).count();
        let mut joins_any = of_tree >= RANGES_A_TREE;
        while let Some(at) = self.sweeps.iter().position(|other| {
            other.sweep.meets(&own.sweep) || joins_any && is_of_tree(other, own.sweep.tree)
        }) {
            let Some(other) = self.sweeps.remove(at) else { return };
            own.sweep.extend(&other.sweep.range);
            (own.attempts, own.due) = (own.attempts.max(other.attempts), own.due.max(other.due));
            joins_any = false;
        }
        self.sweeps.push_back(own);
    }

    fn pop(&mut self, now: Duration) -> Option<PostponedTask> {
        let first_due = self.tasks.iter().take(TASKS_LOOKED_AT).position(|task| task.due <= now);
        if let Some(task) = first_due.and_then(|at| self.tasks.remove(at)) {
            return Some(task);
        }
        let at = self.sweeps.iter().position(|sweep| sweep.due <= now)?;
        let PostponedSweep { sweep, attempts, .. } = self.sweeps.remove(at)?;
        Some(PostponedTask { task: MaintenanceTask::Sweep(sweep), attempts, due: now })
    }
}

/// Tasks that wait for a later transaction.
#[derive(Default)]
pub(crate) struct MaintenanceBacklog {
    postponed: Mutex<Postponed>,
    /// How many there are, to be read without the lock, and who waits for some.
    bell: Arc<BacklogBell>,
}

impl Drop for MaintenanceBacklog {
    fn drop(&mut self) {
        self.bell.end();
    }
}

impl MaintenanceBacklog {
    /// Keeps a task for a later transaction.
    pub(crate) fn push(&self, task: MaintenanceTask) {
        self.push_task(PostponedTask { task, attempts: 0, due: Duration::ZERO });
    }

    /// Keeps a task of which another node may know, or this one already.
    pub(crate) fn push_met(&self, task: MaintenanceTask) {
        let mut postponed = self.postponed.lock();
        if !postponed.has(&task) {
            postponed.push(PostponedTask { task, attempts: 0, due: Duration::ZERO });
            self.ring_if_first(postponed);
        }
    }

    fn push_task(&self, task: PostponedTask) {
        let mut postponed = self.postponed.lock();
        postponed.push(task);
        self.ring_if_first(postponed);
    }

    /// Wakes who waits for tasks, if there were none.
    fn ring_if_first(&self, postponed: MutexGuard<'_, Postponed>) {
        let are_first = self.set_len(&postponed);
        drop(postponed);
        if are_first {
            self.bell.ring();
        }
    }

    fn set_len(&self, postponed: &Postponed) -> bool {
        self.bell.set_tasks(postponed.tasks.len() + postponed.sweeps.len())
    }

    /// How many tasks there are, or were a moment ago.
    pub(crate) fn len(&self) -> usize {
        self.bell.tasks()
    }

    /// What says when there are tasks.
    pub(super) fn bell(&self) -> Arc<BacklogBell> {
        Arc::clone(&self.bell)
    }

    /// Runs the first task that may be tried. If the future is dropped the task is kept.
    pub(crate) async fn run_one(&self, site: TreeSite<'_>) -> RanTask {
        if self.len() == 0 {
            return RanTask::None;
        }
        let env = site.engine.env();
        let now = env.now();
        let taken = {
            let mut postponed = self.postponed.lock();
            let taken = postponed.pop(now);
            self.set_len(&postponed);
            taken
        };
        let Some(taken) = taken else { return RanTask::None };
        let mut held = HeldTask { backlog: self, task: Some(taken) };
        let Some(task) = &mut held.task else { return RanTask::None };
        let ran = match task.task {
            MaintenanceTask::Sweep(_) => RanTask::Sweep,
            _ => RanTask::Single,
        };
        let end = task.task.run(site).await;
        match end {
            TaskEnd::Done => held.task = None,
            TaskEnd::More => task.attempts = 0,
            TaskEnd::InUse => {
                let pause = FIRST_PAUSE.saturating_mul(1 << task.attempts.min(20));
                task.attempts += 1;
                task.due = env.now() + pause.min(LONGEST_PAUSE);
            }
            TaskEnd::Later => {
                task.attempts += 1;
                task.due = env.now() + LONGEST_PAUSE;
            }
        }
        ran
    }
}

/// What kind of task was run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RanTask {
    /// There was none that may be tried.
    None,
    Single,
    /// A part of a sweep.
    Sweep,
}

/// A task that is run, which goes back if it is not done.
struct HeldTask<'b> {
    backlog: &'b MaintenanceBacklog,
    task: Option<PostponedTask>,
}

impl Drop for HeldTask<'_> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.backlog.push_task(task);
        }
    }
}
