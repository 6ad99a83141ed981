//! The leaves that a transaction holds latched to its end: the lock set of two-phase locking.
//!
//! A leaf is found by its address, or among the leaves of its tree that were added last. Positions
//! are stable: leaves are only added, until the transaction ends and releases all of them. The
//! vectors survive the transaction (see [`LockSet::emptied`]), so holding a leaf allocates nothing
//! once they have grown.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use selkie_btree::{KeyLocation, LeafView};
use selkie_engine::log::Lsn;
use selkie_engine::{ExclusiveGuard, GAddr, SharedGuard, change_together};

use crate::protocol::leaf_latch::LeafLatch;

/// Up to so many leaves are searched one by one; beyond, the set keeps an index by address.
const LINEAR_SEARCH_LEAVES: usize = 16;

/// How many of a tree's latest leaves are searched for a key before a descent.
const RECENT_LEAVES: usize = 3;

/// The position that stands for no leaf.
const NO_LEAF: usize = usize::MAX;

struct HeldLeaf<'db> {
    addr: GAddr,
    tree: usize,
    /// The leaf of the same tree that was added before this one.
    earlier: usize,
    /// `None` only while the latch is being upgraded.
    latch: Option<LeafLatch<'db>>,
}

/// All leaves held by one transaction.
#[derive(Default)]
pub(crate) struct LockSet<'db> {
    leaves: Vec<HeldLeaf<'db>>,
    /// For each tree, the leaf added last.
    latest: Vec<usize>,
    by_addr: HashMap<u64, usize, BuildHasherDefault<AddrHasher>>,
}

impl<'db> LockSet<'db> {
    pub(crate) fn len(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn position(&self, addr: GAddr) -> Option<usize> {
        if self.leaves.len() <= LINEAR_SEARCH_LEAVES {
            self.leaves.iter().rposition(|leaf| leaf.addr == addr)
        } else {
            self.by_addr.get(&addr.to_u64()).copied()
        }
    }

    /// Adds a leaf and returns its position.
    pub(crate) fn add(&mut self, tree: usize, addr: GAddr, latch: LeafLatch<'db>) -> usize {
        let position = self.leaves.len();
        if self.latest.len() <= tree {
            self.latest.resize(tree + 1, NO_LEAF);
        }
        let earlier =
            self.latest.get_mut(tree).map_or(NO_LEAF, |latest| std::mem::replace(latest, position));
        self.leaves.push(HeldLeaf { addr, tree, earlier, latch: Some(latch) });
        if self.leaves.len() > LINEAR_SEARCH_LEAVES {
            if self.by_addr.is_empty() {
                let all = self.leaves.iter().enumerate();
                self.by_addr.extend(all.map(|(position, leaf)| (leaf.addr.to_u64(), position)));
            } else {
                self.by_addr.insert(addr.to_u64(), position);
            }
        }
        position
    }

    /// The latch of the leaf at this position, which [`add`](Self::add) or
    /// [`position`](Self::position) returned and which is not being upgraded.
    #[expect(clippy::expect_used, reason = "a position outside the set breaks two-phase locking")]
    pub(crate) fn latch(&self, position: usize) -> &LeafLatch<'db> {
        let latch = self.leaves.get(position).and_then(|leaf| leaf.latch.as_ref());
        latch.expect("a position in the lock set names a latched leaf")
    }

    /// The bytes of the leaf at this position, as for [`latch`](Self::latch).
    pub(crate) fn bytes(&self, position: usize) -> &[u8] {
        self.latch(position).bytes()
    }

    /// The guard of a leaf that is held exclusively, at this position.
    #[expect(clippy::panic, reason = "a change without an exclusive latch breaks isolation")]
    pub(crate) fn exclusive_mut(&mut self, position: usize) -> &mut ExclusiveGuard<'db> {
        match self.leaves.get_mut(position).and_then(|leaf| leaf.latch.as_mut()) {
            Some(LeafLatch::Exclusive(guard)) => guard,
            _ => panic!("a leaf that is not held exclusively is to be changed"),
        }
    }

    /// Takes a shared latch out to upgrade it; [`put_back`](Self::put_back) must follow.
    #[expect(clippy::panic, reason = "the caller has seen that the latch is shared")]
    pub(crate) fn take_shared(&mut self, position: usize) -> SharedGuard<'db> {
        match self.leaves.get_mut(position).and_then(|leaf| leaf.latch.take()) {
            Some(LeafLatch::Shared(guard)) => guard,
            _ => panic!("a leaf that is not held shared is to be upgraded"),
        }
    }

    #[expect(clippy::expect_used, reason = "a lost latch breaks two-phase locking")]
    pub(crate) fn put_back(&mut self, position: usize, latch: LeafLatch<'db>) {
        let leaf = self.leaves.get_mut(position);
        leaf.expect("a latch is put back where it was taken").latch = Some(latch);
    }

    /// Positions of the leaves of `tree` added last, the latest first.
    pub(crate) fn recent(&self, tree: usize) -> impl Iterator<Item = usize> + '_ {
        // A tree has no latest leaf until one of its leaves is held.
        let first = self.latest.get(tree).copied().unwrap_or(NO_LEAF);
        let chain = std::iter::successors(Some(first), |&at| Some(self.leaves.get(at)?.earlier));
        chain.take_while(|&at| at != NO_LEAF).take(RECENT_LEAVES)
    }

    /// The position of the leaf that `key` is in now, and its slot there or the slot where it would
    /// be. `key` was in the leaf at `position`. Splits since then moved it only to the right, into
    /// leaves that the transaction holds because it made them.
    pub(crate) fn locate(
        &self,
        mut position: usize,
        key: &[u8],
    ) -> Option<(usize, Result<usize, usize>)> {
        for _ in 0..=self.len() {
            match LeafView::new(self.bytes(position)).ok()?.where_is(key).ok()? {
                KeyLocation::Here(slot) => return Some((position, slot)),
                KeyLocation::Right(next) => position = self.position(next)?,
                KeyLocation::Elsewhere => return None,
            }
        }
        None
    }

    /// Every leaf held exclusively, with its tree.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = (usize, &ExclusiveGuard<'db>)> + '_ {
        self.leaves.iter().filter_map(|leaf| match &leaf.latch {
            Some(LeafLatch::Exclusive(guard)) => Some((leaf.tree, guard)),
            _ => None,
        })
    }

    /// Every leaf held exclusively, to be changed.
    pub(crate) fn exclusive_mut_all(
        &mut self,
    ) -> impl Iterator<Item = &mut ExclusiveGuard<'db>> + '_ {
        self.leaves.iter_mut().filter_map(|leaf| match &mut leaf.latch {
            Some(LeafLatch::Exclusive(guard)) => Some(guard),
            _ => None,
        })
    }

    /// Makes all changes one change of the log. Returns the position up to which the node's log has
    /// to be durable before the caller may rely on what was changed or read.
    pub(crate) fn seal(&mut self) -> Lsn {
        let latches = || self.leaves.iter().filter_map(|leaf| leaf.latch.as_ref());
        let read = latches().filter_map(|latch| match latch {
            LeafLatch::Shared(guard) => Some(guard.lsn()),
            LeafLatch::Exclusive(_) => None,
        });
        // Zero where there is nothing: the log is always durable up to there.
        let read = read.max().unwrap_or(0);
        let changed = change_together(self.exclusive_mut_all()).unwrap_or(0);
        // A leaf that was latched to be changed and was not changed counts as read.
        let latched = self.exclusive().map(|(_, guard)| guard.lsn()).max().unwrap_or(0);
        read.max(changed).max(latched)
    }

    /// Releases every latch.
    pub(crate) fn release(&mut self) {
        for leaf in self.leaves.drain(..) {
            if let Some(latest) = self.latest.get_mut(leaf.tree) {
                *latest = NO_LEAF;
            }
        }
        self.by_addr.clear();
    }

    /// The same memory, empty, for a transaction with another lifetime.
    pub(crate) fn emptied<'other>(mut self) -> LockSet<'other> {
        self.release();
        // Collecting an empty vector into one of the same layout reuses its allocation.
        let leaves = self.leaves.into_iter().map(|_| unreachable!("it is empty")).collect();
        LockSet { leaves, latest: self.latest, by_addr: self.by_addr }
    }
}

/// Spreads addresses by one multiplication: they are multiples of the page size.
#[derive(Default)]
pub(crate) struct AddrHasher(u64);

impl Hasher for AddrHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
