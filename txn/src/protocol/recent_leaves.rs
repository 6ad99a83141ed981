//! The leaves that a transaction has read last and does not hold, one of each of a few trees: where
//! reads are recorded, the next key of a tree is looked for there before a descent.
//!
//! Keys that come one after the other, as the lines of an order, are in one leaf, and other tables
//! are read in between. Keys that are spread over a tree are not, and latching a leaf for nothing
//! has its price: where the last key was in another leaf than the one before it, the leaf is not
//! tried, until two keys in turn are in one again.

use selkie_engine::GAddr;

use crate::protocol::row_reads::LeafVersion;

/// Trees of which the last leaf is known: as many as a procedure goes to and fro between.
const TREES: usize = 8;

/// The last leaf of one tree.
#[derive(Clone, Copy, Debug)]
struct RecentLeaf {
    /// By its root: a table that is emptied gets other trees.
    tree: GAddr,
    leaf: LeafVersion,
    /// The key before was in another leaf.
    has_moved: bool,
}

/// The leaves that were read last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentLeaves {
    leaves: [RecentLeaf; TREES],
    /// Whose place the next new tree takes.
    next: usize,
}

impl RecentLeaves {
    pub(crate) const NONE: Self = Self {
        leaves: [RecentLeaf { tree: GAddr::NULL, leaf: LeafVersion::NONE, has_moved: false };
            TREES],
        next: 0,
    };

    /// The leaf in which the next key of a tree is likely to be.
    #[inline]
    pub(crate) fn likely(&self, tree: GAddr) -> Option<LeafVersion> {
        let of_tree = |recent: &&RecentLeaf| recent.tree == tree && recent.leaf.psn.is_some();
        self.leaves.iter().find(of_tree).filter(|recent| !recent.has_moved).map(|found| found.leaf)
    }

    /// Notes in which leaf a key was found.
    #[inline]
    pub(crate) fn note(&mut self, tree: GAddr, leaf: LeafVersion) {
        let of_tree = |recent: &&mut RecentLeaf| recent.tree == tree && recent.leaf.psn.is_some();
        if let Some(recent) = self.leaves.iter_mut().find(of_tree) {
            let has_moved = recent.leaf.addr != leaf.addr;
            *recent = RecentLeaf { tree, leaf, has_moved };
        } else if let Some(recent) = self.leaves.get_mut(self.next) {
            *recent = RecentLeaf { tree, leaf, has_moved: false };
            self.next = (self.next + 1) % TREES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(number: u64, psn: u64) -> LeafVersion {
        LeafVersion { addr: GAddr::from_u64(number << 8), psn: Some(psn) }
    }

    fn tree(number: usize) -> GAddr {
        GAddr::from_u64((number as u64 + 1) << 20)
    }

    #[test]
    fn a_leaf_is_likely_until_a_key_was_elsewhere() {
        let mut recent = RecentLeaves::NONE;
        assert_eq!(recent.likely(tree(0)), None);
        recent.note(tree(7), leaf(1, 1));
        recent.note(tree(3), leaf(2, 5));
        assert_eq!(
            (recent.likely(tree(7)), recent.likely(tree(3))),
            (Some(leaf(1, 1)), Some(leaf(2, 5)))
        );
        // The same leaf in a later version.
        recent.note(tree(7), leaf(1, 2));
        assert_eq!(recent.likely(tree(7)), Some(leaf(1, 2)));
        recent.note(tree(7), leaf(4, 2));
        assert_eq!(recent.likely(tree(7)), None);
        recent.note(tree(7), leaf(4, 2));
        assert_eq!(recent.likely(tree(7)), Some(leaf(4, 2)));
    }

    #[test]
    fn the_tree_that_came_first_makes_room() {
        let mut recent = RecentLeaves::NONE;
        for number in 0..=TREES {
            recent.note(tree(number), leaf(number as u64 + 1, 1));
        }
        assert_eq!(recent.likely(tree(0)), None);
        for number in 1..=TREES {
            assert_eq!(recent.likely(tree(number)), Some(leaf(number as u64 + 1, 1)));
        }
    }
}
