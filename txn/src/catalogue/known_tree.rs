//! A tree as a table's definition names it, to be worked on later.

use std::ops::Deref;

use selkie_btree::Tree;

use crate::catalogue::handles::Table;

/// A tree, and which it is. Tables that change may drop it, and its pages become something else: a
/// later tree may have the same root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownTree {
    tree: Tree,
    /// Its number among all trees of the database.
    number: usize,
    /// Of no other tree; 0 for one that is never dropped.
    identity: i64,
}

impl KnownTree {
    pub(crate) fn new(tree: Tree, number: usize, identity: i64) -> Self {
        Self { tree, number, identity }
    }

    pub(crate) fn table(&self) -> Table {
        Table::of_tree(self.number)
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Whether it is there as long as its database.
    pub(crate) fn is_fixed(&self) -> bool {
        self.identity == 0
    }
}

impl Deref for KnownTree {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        &self.tree
    }
}
