//! What a transaction has changed and nobody else can see: entries of trees, kept aside until it
//! commits.
//!
//! Reads look here first. A log of what each change was in place of takes changes back, of an
//! operation that failed or of all since a savepoint.

use std::collections::BTreeMap;
use std::ops::Bound;

/// The value of an entry; `None`: there is none any more.
type Value = Option<Box<[u8]>>;

/// A change, and what there was before: `None` if the entry was as the tree has it.
struct Step {
    tree: usize,
    key: Box<[u8]>,
    before: Option<Value>,
}

/// Changed entries, by tree and key.
#[derive(Default)]
pub(crate) struct Overlay {
    trees: Vec<BTreeMap<Box<[u8]>, Value>>,
    steps: Vec<Step>,
}

/// What a transaction itself says of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own<'a> {
    /// Nothing: it is as the tree has it.
    Unchanged,
    Removed,
    Is(&'a [u8]),
}

impl<'a> Own<'a> {
    fn of(value: Option<&'a Value>) -> Self {
        match value {
            None => Self::Unchanged,
            Some(None) => Self::Removed,
            Some(Some(value)) => Self::Is(value),
        }
    }
}

impl Overlay {
    /// How many changes there were: a mark to go back to.
    pub(crate) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Whether a tree is as it was.
    pub(crate) fn leaves_alone(&self, tree: usize) -> bool {
        self.trees.get(tree).is_none_or(BTreeMap::is_empty)
    }

    pub(crate) fn get(&self, tree: usize, key: &[u8]) -> Own<'_> {
        Own::of(self.trees.get(tree).and_then(|tree| tree.get(key)))
    }

    /// Sets an entry, or removes it.
    pub(crate) fn set(&mut self, tree: usize, key: &[u8], value: Option<&[u8]>) {
        if self.trees.len() <= tree {
            self.trees.resize_with(tree + 1, BTreeMap::new);
        }
        let Some(entries) = self.trees.get_mut(tree) else { return };
        let key: Box<[u8]> = key.into();
        let before = entries.insert(key.clone(), value.map(Box::from));
        self.steps.push(Step { tree, key, before });
    }

    /// Takes the latest changes back until `mark` are left.
    pub(crate) fn take_back(&mut self, mark: usize) {
        while self.steps.len() > mark {
            let Some(Step { tree, key, before }) = self.steps.pop() else { return };
            let Some(entries) = self.trees.get_mut(tree) else { continue };
            match before {
                Some(value) => drop(entries.insert(key, value)),
                None => drop(entries.remove(&key)),
            }
        }
    }

    /// The changed entries of a tree from `low` up to, and without, `high`; empty bounds are
    /// infinite.
    pub(crate) fn range<'a>(
        &'a self,
        tree: usize,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], Own<'a>)> {
        let high = high.map_or(Bound::Unbounded, Bound::Excluded);
        let is_empty = matches!(high, Bound::Excluded(high) if high <= low);
        let entries = self.trees.get(tree).filter(|_| !is_empty);
        let bounds = (Bound::Included(low), high);
        let found = entries.map(|entries| entries.range::<[u8], _>(bounds));
        found.into_iter().flatten().map(|(key, value)| (&**key, Own::of(Some(value))))
    }

    /// All changed entries, tree by tree, in the order of their keys.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &[u8], Option<&[u8]>)> {
        let trees = self.trees.iter().enumerate();
        trees.flat_map(|(tree, entries)| {
            entries.iter().map(move |(key, value)| (tree, &**key, value.as_deref()))
        })
    }

    pub(crate) fn clear(&mut self) {
        self.trees.iter_mut().for_each(BTreeMap::clear);
        self.steps.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(overlay: &Overlay, low: &[u8], high: Option<&[u8]>) -> Vec<Vec<u8>> {
        overlay.range(1, low, high).map(|(key, _)| key.to_vec()).collect()
    }

    #[test]
    fn what_is_set_is_found_and_what_is_taken_back_is_not() {
        let mut overlay = Overlay::default();
        assert!(overlay.leaves_alone(1) && overlay.get(1, b"a") == Own::Unchanged);
        overlay.set(1, b"b", Some(b"1"));
        overlay.set(1, b"d", None);
        let mark = overlay.len();
        overlay.set(1, b"b", Some(b"2"));
        overlay.set(1, b"c", Some(b"3"));
        overlay.set(1, b"d", Some(b"4"));
        overlay.set(0, b"c", None);
        assert_eq!(overlay.get(1, b"b"), Own::Is(b"2"));
        assert_eq!(overlay.get(0, b"c"), Own::Removed);
        let all: Vec<_> = overlay.all().map(|(tree, key, _)| (tree, key[0])).collect();
        assert_eq!(all, [(0, b'c'), (1, b'b'), (1, b'c'), (1, b'd')]);
        assert_eq!(keys(&overlay, b"c", None), [b"c", b"d"]);
        assert_eq!(keys(&overlay, b"", Some(b"c")), [b"b"]);
        assert!(
            keys(&overlay, b"d", Some(b"b")).is_empty()
                && keys(&overlay, b"c", Some(b"c")).is_empty()
        );
        overlay.take_back(mark);
        assert_eq!(overlay.get(1, b"b"), Own::Is(b"1"));
        assert_eq!([overlay.get(1, b"c"), overlay.get(1, b"d")], [Own::Unchanged, Own::Removed]);
        assert!(overlay.leaves_alone(0));
        overlay.take_back(0);
        assert!(overlay.leaves_alone(1) && overlay.all().next().is_none());
    }
}
