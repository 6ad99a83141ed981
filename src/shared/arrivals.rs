//! The wait for memory nodes that have yet to join a pool.

use std::time::Duration;

use crate::pool::{NOTICE, WaitNotice};

use super::url::Place;

/// How long an open waits for the next memory node to join. Each takes its memory first, and over
/// shared memory one after the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// How the memory nodes of a pool arrive, as one that waits for all of them sees it.
pub(super) struct Arrivals {
    notice: WaitNotice,
    /// How many have joined, and since when no more.
    joined: (usize, Duration),
}

impl Arrivals {
    /// Of a wait that begins now.
    pub(super) fn new(now: Duration) -> Self {
        Self { notice: WaitNotice::new(now), joined: (0, now) }
    }

    /// Whether to wait for more; says so if that lasts.
    pub(super) fn are_awaited(
        &mut self,
        (joined, nodes): (usize, usize),
        now: Duration,
        place: &Place,
    ) -> bool {
        if joined > self.joined.0 {
            self.joined = (joined, now);
        }
        if now.saturating_sub(self.joined.1) >= PATIENCE {
            return false;
        }
        if let Some(waited) = self.notice.due(now) {
            tracing::info!(
                target: NOTICE,
                "has waited for {} s, and goes on until none joins for {} s, for memory nodes of pool {place}: {joined} of \
                 {nodes} have joined; start others with `selkie memnode --pool {place} --memory SIZE`",
                waited.as_secs(),
                PATIENCE.as_secs()
            );
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a host with much load, or with large memory nodes, all of them together took longer.
    #[test]
    fn who_waits_for_memory_nodes_has_patience_for_each() {
        let s = Duration::from_secs;
        let place: Place = "some".parse().unwrap();
        let mut arrivals = Arrivals::new(s(100));
        let mut at = |second, joined| arrivals.are_awaited((joined, 3), s(second), &place);
        assert!(at(100, 0) && at(129, 0) && at(129, 1), "one has joined");
        assert!(at(158, 1) && at(158, 2), "and one more");
        assert!(at(187, 2) && !at(188, 2), "no other for too long");
    }
}
