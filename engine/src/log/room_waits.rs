//! The callers that wait for room in a log. What is said of them: `waits.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

/// The callers that wait for room, by numbers that grow, and since when.
#[derive(Default)]
pub(super) struct RoomWaits(Mutex<(u64, BTreeMap<u64, Duration>)>);

/// A caller that waits.
pub(super) struct RoomWait<'w>(&'w RoomWaits, u64);

impl RoomWaits {
    /// Enters a caller that has waited since then, until what is returned is dropped.
    pub(super) fn enter(&self, since: Duration) -> RoomWait<'_> {
        let (next, waits) = &mut *self.0.lock();
        *next += 1;
        waits.insert(*next, since);
        RoomWait(self, *next)
    }

    /// Since when the caller waits that has waited longest.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.0.lock().1.values().min().copied()
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        self.0.0.lock().1.remove(&self.1);
    }
}
