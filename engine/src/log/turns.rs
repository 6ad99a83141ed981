//! The queue of those that a log has refused room for large changes; why there is one is said in
//! [`reservation`](super::reservation).

use std::collections::VecDeque;
use std::time::Duration;

/// For how long the room of a transaction that has its turn counts as taken.
pub(super) const TURN: Duration = Duration::from_millis(20);

/// The queue of those that were refused room.
#[derive(Default)]
pub(super) struct Turns {
    pub(super) next: u64,
    pub(super) waiting: VecDeque<u64>,
    /// When those that went got their turn, and the room they need.
    pub(super) given: VecDeque<(Duration, u64)>,
}

impl Turns {
    /// Whether callers wait for room.
    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A caller that had its turn has reserved room.
    pub(super) fn take(&mut self, held: u64, bytes: u64) {
        let taken = self.given.iter().position(|(_, need)| (held + 1..=bytes).contains(need));
        if let Some(at) = taken {
            self.given.remove(at);
        }
    }

    /// Room that counts as taken.
    pub(super) fn given_bytes(&mut self, now: Duration) -> u64 {
        while self.given.front().is_some_and(|(at, _)| now.saturating_sub(*at) >= TURN) {
            self.given.pop_front();
        }
        self.given.iter().map(|(_, bytes)| bytes).sum()
    }
}
