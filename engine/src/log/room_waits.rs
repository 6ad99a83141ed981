//! The callers that wait for room in a log. What is said of them: `waits.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;

/// The callers that wait for room.
#[derive(Default)]
pub(super) struct RoomWaits(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    last: u64,
    /// By numbers that grow, and since when.
    callers: BTreeMap<u64, Duration>,
    /// Since when there are some.
    busy_since: Duration,
    /// For how long there were some, before that.
    before: Duration,
}

/// A caller that waits.
pub(super) struct RoomWait<'w>(&'w RoomWaits, u64);

impl RoomWaits {
    /// Enters a caller that has waited since then, until what is returned is dropped.
    pub(super) fn enter(&self, since: Duration) -> RoomWait<'_> {
        let waits = &mut *self.0.lock();
        waits.last += 1;
        if waits.callers.is_empty() {
            waits.busy_since = since;
        }
        waits.callers.insert(waits.last, since);
        RoomWait(self, waits.last)
    }

    /// Since when the caller waits that has waited longest.
    pub(super) fn oldest(&self) -> Option<Duration> {
        self.0.lock().callers.values().min().copied()
    }

    /// For how long callers have waited by now, one or several.
    pub(super) fn total(&self, now: Duration) -> Duration {
        let waits = self.0.lock();
        let still = !waits.callers.is_empty();
        waits.before + if still { now.saturating_sub(waits.busy_since) } else { Duration::ZERO }
    }
}

impl RoomWait<'_> {
    /// Ends a wait that has brought room. One that is dropped counts as none.
    pub(super) fn end(self, now: Duration) {
        let waits = &mut *self.0.0.lock();
        if waits.callers.len() == 1 {
            waits.before += now.saturating_sub(waits.busy_since);
        }
        waits.callers.remove(&self.1);
    }
}

impl Drop for RoomWait<'_> {
    fn drop(&mut self) {
        self.0.0.lock().callers.remove(&self.1);
    }
}

/// The times at which a log became full. Small ones do many times a second: the watch tells of
/// that, once for all.
#[derive(Default)]
pub(super) struct Fillings {
    times: AtomicU64,
    bell: Arc<Doorbell>,
}

impl Fillings {
    /// It has become full, or has room again.
    pub(super) fn note(&self, is_full: bool) {
        if is_full {
            self.times.fetch_add(1, Ordering::Relaxed);
            self.bell.ring();
        }
    }

    /// How often it has.
    pub(super) fn times(&self) -> u64 {
        self.times.load(Ordering::Relaxed)
    }

    /// Rung when it does: it is cut short at once then.
    pub(super) fn bell(&self) -> &Arc<Doorbell> {
        &self.bell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_several_wait_counts_once() {
        let (s, waits) = (Duration::from_secs, RoomWaits::default());
        let (first, second) = (waits.enter(s(10)), waits.enter(s(12)));
        assert_eq!((waits.oldest(), waits.total(s(13))), (Some(s(10)), s(3)));
        first.end(s(14));
        assert_eq!((waits.oldest(), waits.total(s(15))), (Some(s(12)), s(5)));
        second.end(s(16));
        assert_eq!((waits.oldest(), waits.total(s(20))), (None, s(6)));
        waits.enter(s(30)).end(s(31));
        assert_eq!(waits.total(s(40)), s(7));
        drop(waits.enter(s(50)));
        assert_eq!(waits.total(s(60)), s(7), "it was given up");
    }
}
