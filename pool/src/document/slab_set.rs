//! A set of a memory node's slabs, as runs: a node gives back many that lie side by side, and the
//! state of a pool, in which the sets are, is to stay small.

use serde::{Deserialize, Serialize};

/// Slabs of one memory node, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
pub struct SlabSet {
    /// First slab and length of each run: sorted, none empty, and no two of them touch.
    runs: Vec<(u32, u32)>,
}

impl SlabSet {
    /// Whether a slab is in it.
    #[must_use]
    pub fn contains(&self, slab: u32) -> bool {
        self.run_of(slab).is_some()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.runs.iter().map(|(_, length)| *length as usize).sum()
    }

    /// They, from the lowest.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.runs.iter().flat_map(|(first, length)| *first..first + length)
    }

    /// Puts a slab in; whether it was not there.
    pub fn insert(&mut self, slab: u32) -> bool {
        if self.contains(slab) {
            return false;
        }
        let at = self.runs.partition_point(|(first, _)| *first < slab);
        let before = at.checked_sub(1).and_then(|before| self.runs.get_mut(before));
        let before = before.filter(|(first, length)| *first + *length == slab);
        let joined = before.map(|(_, length)| *length += 1).is_some();
        let follows = |(first, _): &&mut (u32, u32)| Some(*first) == slab.checked_add(1);
        match self.runs.get_mut(at).filter(follows) {
            Some((_, length)) if joined => {
                let length = *length;
                self.runs.remove(at);
                if let Some((_, own)) = at.checked_sub(1).and_then(|own| self.runs.get_mut(own)) {
                    *own += length;
                }
            }
            Some((first, length)) => (*first, *length) = (slab, *length + 1),
            None if joined => {}
            None => self.runs.insert(at, (slab, 1)),
        }
        true
    }

    /// Takes a slab out; whether it was there.
    pub fn remove(&mut self, slab: u32) -> bool {
        let Some(at) = self.run_of(slab) else { return false };
        let (first, length) = self.runs.remove(at);
        let after = (slab + 1, first + length - slab - 1);
        let parts = [(first, slab - first), after].into_iter().filter(|(_, length)| *length > 0);
        self.runs.splice(at..at, parts);
        true
    }

    /// Keeps those of which this holds.
    pub fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        *self = self.iter().filter(|slab| keep(*slab)).collect();
    }

    /// The run that has a slab.
    fn run_of(&self, slab: u32) -> Option<usize> {
        let at = self.runs.partition_point(|(first, _)| *first <= slab).checked_sub(1)?;
        self.runs.get(at).filter(|(first, length)| slab - first < *length).map(|_| at)
    }
}

impl FromIterator<u32> for SlabSet {
    fn from_iter<T: IntoIterator<Item = u32>>(slabs: T) -> Self {
        let mut set = Self::default();
        for slab in slabs {
            set.insert(slab);
        }
        set
    }
}

impl From<Vec<(u32, u32)>> for SlabSet {
    fn from(runs: Vec<(u32, u32)>) -> Self {
        runs.iter().flat_map(|(first, length)| *first..first.saturating_add(*length)).collect()
    }
}

impl From<SlabSet> for Vec<(u32, u32)> {
    fn from(set: SlabSet) -> Self {
        set.runs
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use selkie_fabric::env::SplitMix;

    use super::*;

    #[test]
    fn it_is_as_a_set_of_numbers_and_never_has_two_runs_for_one() {
        for seed in 0..20 {
            let random = SplitMix::new(seed);
            let (mut set, mut oracle) = (SlabSet::default(), BTreeSet::new());
            for _ in 0..400 {
                let slab = random.below(24) as u32;
                if random.below(2) == 0 {
                    assert_eq!(set.insert(slab), oracle.insert(slab));
                } else {
                    assert_eq!(set.remove(slab), oracle.remove(&slab));
                }
                assert!(set.iter().eq(oracle.iter().copied()), "{set:?}, {oracle:?}");
                assert!((0..26).all(|slab| set.contains(slab) == oracle.contains(&slab)));
                assert_eq!((set.len(), set.is_empty()), (oracle.len(), oracle.is_empty()));
                let apart = |pair: &[(u32, u32)]| pair[0].0 + pair[0].1 < pair[1].0;
                assert!(set.runs.windows(2).all(apart), "{set:?}");
                assert!(set.runs.iter().all(|(_, length)| *length > 0), "{set:?}");
            }
        }
    }

    #[test]
    fn it_is_written_as_runs() {
        let set: SlabSet = [7, 1, 2, 3, 9].into_iter().collect();
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(json, "[[1,3],[7,1],[9,1]]");
        assert_eq!(serde_json::from_str::<SlabSet>(&json).unwrap(), set);
    }
}
