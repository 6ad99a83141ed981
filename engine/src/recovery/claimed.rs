//! Lines taken over from a dead node that had granted them: the dead node's changes are in its log
//! and in this node's copy.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::GAddr;

/// Such lines, as long as they are not home. Mostly there are none, which costs a look at a
/// counter.
#[derive(Default)]
pub(crate) struct ClaimedLines {
    lines: Mutex<Vec<GAddr>>,
    count: AtomicUsize,
}

impl ClaimedLines {
    pub(crate) fn add(&self, addr: GAddr) {
        let mut lines = self.lines.lock();
        lines.push(addr);
        // Release pairs with `is_empty`; a line is looked for under its own lock, under which it
        // was added.
        self.count.store(lines.len(), Ordering::Release);
    }

    pub(crate) fn remove(&self, addr: GAddr) {
        if self.is_empty() {
            return;
        }
        let mut lines = self.lines.lock();
        lines.retain(|own| *own != addr);
        self.count.store(lines.len(), Ordering::Release);
    }

    pub(crate) fn contains(&self, addr: GAddr) -> bool {
        !self.is_empty() && self.lines.lock().contains(&addr)
    }

    /// The one that was added last.
    pub(crate) fn last(&self) -> Option<GAddr> {
        self.lines.lock().last().copied()
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}
