//! The room in which a queue pair stages what its requests move: a ring, taken and given back in
//! order.

/// A ring of bytes. A place is contiguous.
#[derive(Debug)]
pub(super) struct StagingRing {
    capacity: usize,
    next: usize,
    used: usize,
}

/// A place in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: usize,
    /// What it takes of the ring, with what lies idle before it.
    pub(super) taken: usize,
}

impl StagingRing {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, next: 0, used: 0 }
    }

    /// Takes a place of so many bytes, if there is one.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Place> {
        let wraps = self.next + bytes > self.capacity;
        let idle = if wraps { self.capacity - self.next } else { 0 };
        let taken = idle + bytes;
        if bytes > self.capacity || self.used + taken > self.capacity {
            return None;
        }
        let at = if wraps { 0 } else { self.next };
        self.next = at + bytes;
        self.used += taken;
        Some(Place { at, taken })
    }

    /// Gives back the oldest places, which took so much.
    pub(super) fn give_back(&mut self, taken: usize) {
        debug_assert!(taken <= self.used, "{taken} of {} bytes", self.used);
        self.used = self.used.saturating_sub(taken);
        if self.used == 0 {
            self.next = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn places_never_overlap_and_all_room_comes_back(
            steps in prop::collection::vec((1..8_usize, any::<bool>()), 1..200),
        ) {
            let mut ring = StagingRing::new(128);
            let mut live: VecDeque<(Place, usize)> = VecDeque::new();
            for (words, gives_back) in steps {
                if gives_back && let Some((place, _)) = live.pop_front() {
                    ring.give_back(place.taken);
                }
                let bytes = 8 * words;
                match ring.take(bytes) {
                    Some(place) => {
                        prop_assert!(place.at + bytes <= 128);
                        for (other, length) in &live {
                            let is_before = place.at + bytes <= other.at;
                            let is_behind = other.at + length <= place.at;
                            prop_assert!(is_before || is_behind, "{place:?} over {other:?}");
                        }
                        live.push_back((place, bytes));
                    }
                    None => prop_assert!(!live.is_empty(), "an empty ring has no room"),
                }
            }
            live.iter().for_each(|(place, _)| ring.give_back(place.taken));
            prop_assert_eq!(ring.take(128), Some(Place { at: 0, taken: 128 }));
        }
    }
}
