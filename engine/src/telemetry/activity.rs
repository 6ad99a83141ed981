//! Counts of accesses to the ranges of a coded pool in memory: a node counts where it fetches a
//! page or writes one home. Hits are not counted, because they do not concern a memory node.

use std::sync::atomic::{AtomicU32, Ordering};

use selkie_pool::control::MAX_RANGES;

/// Accesses to each range that are not reported yet.
pub(crate) struct Activity(Box<[AtomicU32]>);

impl Activity {
    pub(crate) fn new() -> Self {
        Self((0..MAX_RANGES).map(|_| AtomicU32::new(0)).collect())
    }

    /// Counts an access. Relaxed: no other data depends on the order of a count.
    pub(crate) fn note(&self, range: usize) {
        if let Some(own) = self.0.get(range) {
            own.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the counts: the ranges with accesses since the last call, with the number of accesses.
    pub(super) fn take(&self) -> Vec<(usize, u32)> {
        let taken = self.0.iter().map(|own| match own.load(Ordering::Relaxed) {
            0 => 0,
            _ => own.swap(0, Ordering::Relaxed),
        });
        taken.enumerate().filter(|(_, count)| *count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_access_is_taken_once() {
        let activity = Activity::new();
        assert_eq!(activity.take(), []);
        [3, 0, 3, MAX_RANGES - 1, MAX_RANGES].into_iter().for_each(|range| activity.note(range));
        assert_eq!(activity.take(), [(0, 1), (3, 2), (MAX_RANGES - 1, 1)]);
        assert_eq!(activity.take(), []);
    }
}
