//! How far a node is with its search for lines that are for all, and what others have said of such
//! lines. The search itself is in [`adoption`](super::adoption).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// A node that asked the others in vain asks again after this. The node that is asked gives for as
/// long, as what it has freed is to ripen first.
pub(super) const ASKS_EVERY: Duration = Duration::from_secs(1);

/// What tells that there may be more lines for all than before: the count of gifts, and who has
/// been in the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Occasion {
    pub(super) given: u64,
    pub(super) entered: u64,
    pub(super) present: usize,
}

/// A node's search for lines that are for all, and what others have said of such lines.
#[derive(Default)]
pub(crate) struct Search {
    /// Requests and gifts, as last read.
    pub(super) requests: AtomicU64,
    pub(super) given: AtomicU64,
    /// Headers were made anew, without the marks of this node.
    pub(crate) marks_lost: AtomicBool,
    pub(super) state: Mutex<Progress>,
}

/// How far the search is.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) is_under_way: bool,
    /// The next piece to look at, and how many were looked at since a line was found.
    pub(super) next: usize,
    pub(super) in_vain: usize,
    /// When that began.
    pub(super) occasion: Occasion,
    /// Since then a line was met that may be free, but could not be had just then.
    pub(super) is_unsure: bool,
    /// All was looked at in vain, and it makes no sense to look again before that time.
    pub(super) exhausted: Option<(Occasion, Duration)>,
    /// When this node asked the others, and until when it gives, as others have asked; by the
    /// environment's clock.
    pub(super) asked_at: Option<Duration>,
    pub(super) gives_until: Duration,
}

/// Ends a search, also one that is dropped.
pub(super) struct UnderWay<'a>(pub(super) &'a Search);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_under_way = false;
    }
}

impl Search {
    /// Takes note of what the counters say. If a node has asked since the last time, this one gives
    /// for a while.
    pub(super) fn note(&self, requests: u64, given: u64, now: Duration) {
        self.given.store(given, Ordering::Relaxed);
        if self.requests.swap(requests, Ordering::Relaxed) != requests {
            self.state.lock().gives_until = now + ASKS_EVERY;
        }
    }

    /// Whether this node gives what it does not need: another is short, and it is not itself.
    pub(super) fn gives(&self, now: Duration) -> bool {
        let progress = self.state.lock();
        let is_short = progress.asked_at.is_some_and(|at| now < at + ASKS_EVERY);
        now < progress.gives_until && !is_short
    }
}
