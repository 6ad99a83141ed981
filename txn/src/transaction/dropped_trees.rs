//! What a node knows of trees whose pages are to be given back to the pool
//! ([`reclaim`](crate::ddl::reclaim)).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::Stamp;

/// Time between two looks at a tree that older snapshots need, or another transaction has touched.
const PAUSE: Duration = Duration::from_millis(20);

/// A dropped tree, and a stamp no earlier than that of its drop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DroppedTree {
    pub(crate) root: i64,
    pub(crate) seen_at: Stamp,
}

/// What a node knows of dropped trees.
#[derive(Default)]
pub(crate) struct DroppedTrees {
    /// There is something to do.
    is_pending: AtomicBool,
    /// When it may be tried again, in nanoseconds.
    due: AtomicU64,
    pub(crate) trees: Mutex<Trees>,
}

#[derive(Default)]
pub(crate) struct Trees {
    is_busy: bool,
    /// How often the table was asked to be read, and by which of these it was.
    asked: u64,
    read: u64,
    pub(crate) known: VecDeque<DroppedTree>,
}

impl DroppedTrees {
    /// Notes that there may be trees in the table.
    pub(crate) fn look(&self) {
        self.trees.lock().asked += 1;
        self.is_pending.store(true, Ordering::Relaxed);
    }

    /// Whether there is something to do by now.
    #[inline]
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        // Relaxed: a later transaction sees it.
        self.is_pending.load(Ordering::Relaxed)
            && u128::from(self.due.load(Ordering::Relaxed)) <= now.as_nanos()
    }

    /// The number of the last time that the table was asked to be read, if it is to be read.
    pub(crate) fn unread(&self) -> Option<u64> {
        let trees = self.trees.lock();
        (trees.asked != trees.read).then_some(trees.asked)
    }

    /// Notes what the table had when it was read for this number. It stays to be read if that was
    /// asked for since, or if the reader was dropped and this is not called.
    pub(crate) fn note(&self, read: u64, known: VecDeque<DroppedTree>) {
        let mut trees = self.trees.lock();
        (trees.read, trees.known) = (read, known);
    }

    /// Leaves the first tree to another node, or to a later look at the table.
    pub(crate) fn pass_first(&self) {
        self.trees.lock().known.pop_front();
        self.settle();
    }

    /// Takes the right to work on dropped trees, which one task of a node has at a time. Whether it
    /// was to be had.
    pub(crate) fn take_turn(&self) -> bool {
        !std::mem::replace(&mut self.trees.lock().is_busy, true)
    }

    pub(crate) fn end_turn(&self) {
        self.trees.lock().is_busy = false;
    }

    pub(crate) fn pause(&self, now: Duration) {
        let due = (now + PAUSE).as_nanos();
        self.due.store(u64::try_from(due).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(crate) fn settle(&self) {
        let trees = self.trees.lock();
        let is_pending = trees.asked != trees.read || !trees.known.is_empty();
        self.is_pending.store(is_pending, Ordering::Relaxed);
    }
}
