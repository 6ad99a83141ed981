//! What a transaction keeps of each tree that it uses: of a few, whose numbers may be large.

/// Trees that are remembered when the transaction has ended: as many as a procedure uses.
const KEPT_TREES: usize = 64;

/// Values by the numbers of trees, in the order in which the trees came in.
#[derive(Debug)]
pub(crate) struct PerTree<T> {
    /// Apart from the values: these few numbers are searched one after the other.
    numbers: Vec<usize>,
    values: Vec<T>,
}

impl<T> Default for PerTree<T> {
    fn default() -> Self {
        Self { numbers: Vec::new(), values: Vec::new() }
    }
}

impl<T: Default> PerTree<T> {
    #[inline]
    fn position(&self, tree: usize) -> Option<usize> {
        self.numbers.iter().position(|number| *number == tree)
    }

    #[inline]
    pub(crate) fn get(&self, tree: usize) -> Option<&T> {
        self.values.get(self.position(tree)?)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, tree: usize) -> Option<&mut T> {
        let position = self.position(tree)?;
        self.values.get_mut(position)
    }

    /// The value of a tree, which is the default one at first.
    #[expect(clippy::indexing_slicing, reason = "each number has a value")]
    pub(crate) fn or_default(&mut self, tree: usize) -> &mut T {
        let position = self.position(tree).unwrap_or_else(|| {
            self.numbers.push(tree);
            self.values.push(T::default());
            self.numbers.len() - 1
        });
        &mut self.values[position]
    }

    /// All values, with the numbers of their trees.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.numbers.iter().copied().zip(&self.values)
    }

    /// Empties each value. Keeps those of some trees: a next transaction need not make them.
    pub(crate) fn clear(&mut self, empty: impl FnMut(&mut T)) {
        self.numbers.truncate(KEPT_TREES);
        self.values.truncate(KEPT_TREES);
        self.values.iter_mut().for_each(empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_have_values_of_their_own_whatever_their_numbers() {
        let mut trees = PerTree::<Vec<usize>>::default();
        assert!(trees.get(3).is_none() && trees.get_mut(3).is_none());
        for tree in (0..100).map(|number| number << 40) {
            trees.or_default(tree).push(tree);
            trees.or_default(tree).push(1);
        }
        assert_eq!(trees.get(7 << 40), Some(&vec![7 << 40, 1]));
        assert_eq!(trees.iter().count(), 100);
        trees.clear(Vec::clear);
        assert_eq!(trees.get(7 << 40), Some(&vec![]));
        assert_eq!(trees.iter().count(), KEPT_TREES);
        assert_eq!(trees.get(99 << 40), None);
    }
}
