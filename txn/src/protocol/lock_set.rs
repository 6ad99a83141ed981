//! The leaves that a transaction holds latched to its end: the lock set of two-phase locking.
//!
//! A leaf is found by its address, or among the leaves of its tree that were added last. The leaves
//! that the transaction has split off are found by their low fence too: no parent knows them before
//! commit, and a way along the right links would pass all of them. Positions are stable: only undo
//! of a split takes a leaf out, and leaves its position vacant. The vectors survive the transaction
//! (see [`LockSet::emptied`]), so holding a leaf allocates nothing once they have grown.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Bound;

use selkie_btree::{KeyLocation, LEAF_HEADER_BYTES, LeafView, TreeError};
use selkie_engine::log::Lsn;
use selkie_engine::{EngineError, ExclusiveGuard, GAddr, SharedGuard, change_together};

use crate::protocol::leaf_latch::LeafLatch;
use crate::protocol::per_tree::PerTree;

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
    /// Bytes that its changes and their undo take in the log.
    change_bytes: u64,
    /// Undo may rebuild the page.
    is_rebuilt_by_undo: bool,
    /// It has left the cache.
    is_beyond_cache: bool,
    /// `None` while the latch is being upgraded, and for a right half whose split was undone.
    latch: Option<LeafLatch<'db>>,
}

/// What is known of the held leaves of one tree.
struct TreeLeaves {
    /// The leaf added last.
    latest: usize,
    /// The leaves that the transaction has split off, by their low fence.
    made: BTreeMap<Box<[u8]>, usize>,
}

impl Default for TreeLeaves {
    fn default() -> Self {
        Self { latest: NO_LEAF, made: BTreeMap::new() }
    }
}

/// All leaves held by one transaction.
#[derive(Default)]
pub(crate) struct LockSet<'db> {
    leaves: Vec<HeldLeaf<'db>>,
    trees: PerTree<TreeLeaves>,
    by_addr: HashMap<u64, usize, BuildHasherDefault<AddrHasher>>,
    /// Bytes that all changes take in the log.
    change_bytes: u64,
    /// Positions of right halves whose splits were undone.
    vacant: usize,
    /// Leaves that have left the cache.
    beyond_cache: usize,
    /// Where to look for the next leaf that may leave the cache.
    next_out: usize,
}

impl<'db> LockSet<'db> {
    /// Leaves that are held.
    pub(crate) fn len(&self) -> usize {
        self.leaves.len() - self.vacant
    }

    /// Leaves that are held and have frames of the cache.
    #[inline]
    pub(crate) fn in_cache(&self) -> usize {
        self.len() - self.beyond_cache
    }

    /// Moves a leaf that is held exclusively out of the cache, the first that was not looked at.
    /// Returns `false` if there is none that can move now.
    pub(crate) fn move_out_of_cache(&mut self) -> Result<bool, EngineError> {
        for _ in 0..self.leaves.len() {
            if self.next_out >= self.leaves.len() {
                // Some were held shared, or could not move, when they were passed.
                self.next_out = 0;
            }
            let Some(leaf) = self.leaves.get_mut(self.next_out) else { break };
            self.next_out += 1;
            if !leaf.is_beyond_cache
                && let Some(LeafLatch::Exclusive(guard)) = &mut leaf.latch
                && guard.leave_cache()?
            {
                leaf.is_beyond_cache = true;
                self.beyond_cache += 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) fn position(&self, addr: GAddr) -> Option<usize> {
        if self.leaves.len() <= LINEAR_SEARCH_LEAVES {
            self.leaves.iter().rposition(|leaf| leaf.addr == addr)
        } else {
            self.by_addr.get(&addr.to_u64()).copied()
        }
    }

    /// Bytes that all changes made in the leaves take in the log.
    pub(crate) fn change_bytes(&self) -> u64 {
        self.change_bytes
    }

    /// Counts what was changed in the leaf at this position, and the header, which may get a stamp.
    pub(crate) fn note_change(&mut self, position: usize) {
        let Some(leaf) = self.leaves.get_mut(position) else { return };
        let Some(LeafLatch::Exclusive(guard)) = &leaf.latch else { return };
        let now = match leaf.is_rebuilt_by_undo {
            true => guard.whole_change_bytes(),
            false => guard.change_bytes(LEAF_HEADER_BYTES),
        } as u64;
        self.change_bytes = self.change_bytes - leaf.change_bytes + now;
        leaf.change_bytes = now;
    }

    /// Counts the stamps of all leaves that are held exclusively.
    pub(crate) fn note_stamps(&mut self) {
        (0..self.leaves.len()).for_each(|position| self.note_change(position));
    }

    /// As [`note_change`](Self::note_change), of a change whose undo needs room in the page: it may
    /// have to rebuild the page for that, which changes all of it.
    pub(crate) fn note_shrinking_change(&mut self, position: usize) {
        if let Some(leaf) = self.leaves.get_mut(position) {
            leaf.is_rebuilt_by_undo = true;
        }
        self.note_change(position);
    }

    /// Adds a leaf and returns its position.
    pub(crate) fn add(&mut self, tree: usize, addr: GAddr, latch: LeafLatch<'db>) -> usize {
        let position = self.leaves.len();
        let of_tree = self.trees.or_default(tree);
        let earlier = std::mem::replace(&mut of_tree.latest, position);
        self.leaves.push(HeldLeaf {
            addr,
            tree,
            earlier,
            change_bytes: 0,
            is_rebuilt_by_undo: false,
            is_beyond_cache: false,
            latch: Some(latch),
        });
        if self.leaves.len() > LINEAR_SEARCH_LEAVES {
            if self.by_addr.is_empty() {
                let all = self.leaves.iter().enumerate().filter(|(_, leaf)| !leaf.addr.is_null());
                self.by_addr.extend(all.map(|(position, leaf)| (leaf.addr.to_u64(), position)));
            } else {
                self.by_addr.insert(addr.to_u64(), position);
            }
        }
        position
    }

    /// Adds the right half of a split that the transaction has made.
    pub(crate) fn add_made(
        &mut self,
        tree: usize,
        latch: ExclusiveGuard<'db>,
    ) -> Result<usize, TreeError> {
        let low: Box<[u8]> = LeafView::new(&latch)?.low_fence().into();
        let position = self.add(tree, latch.addr(), LeafLatch::Exclusive(latch));
        if let Some(of_tree) = self.trees.get_mut(tree) {
            of_tree.made.insert(low, position);
        }
        Ok(position)
    }

    /// Takes out the right half of a split that was undone. Its position stays vacant.
    pub(crate) fn take_made(&mut self, position: usize) -> Option<ExclusiveGuard<'db>> {
        let leaf = self.leaves.get_mut(position)?;
        let Some(LeafLatch::Exclusive(guard)) = leaf.latch.take() else { return None };
        let addr = std::mem::replace(&mut leaf.addr, GAddr::NULL);
        // What is freed is in the log, whole: that stays counted.
        let whole = guard.whole_change_bytes() as u64;
        self.change_bytes += whole - std::mem::replace(&mut leaf.change_bytes, whole).min(whole);
        self.vacant += 1;
        self.beyond_cache -= usize::from(std::mem::take(&mut leaf.is_beyond_cache));
        if let Some(of_tree) = self.trees.get_mut(leaf.tree)
            && let Ok(view) = LeafView::new(&guard)
        {
            of_tree.made.remove(view.low_fence());
            if of_tree.latest == position {
                of_tree.latest = leaf.earlier;
            }
        }
        self.by_addr.remove(&addr.to_u64());
        Some(guard)
    }

    /// Among the leaves of a tree that the transaction has split off, the last that begins within
    /// the bound.
    pub(crate) fn last_made(&self, tree: usize, up_to: Bound<&[u8]>) -> Option<usize> {
        let made = &self.trees.get(tree)?.made;
        // Of most transactions, and each search asks.
        if made.is_empty() {
            return None;
        }
        let made = made.range::<[u8], _>((Bound::Unbounded, up_to)).next_back();
        made.map(|(_, position)| *position)
    }

    /// The latch of the leaf at this position, which [`add`](Self::add) or
    /// [`position`](Self::position) returned and which is not being upgraded.
    #[expect(clippy::expect_used, reason = "a position outside the set breaks two-phase locking")]
    pub(crate) fn latch(&self, position: usize) -> &LeafLatch<'db> {
        let latch = self.leaves.get(position).and_then(|leaf| leaf.latch.as_ref());
        latch.expect("a position in the lock set names a latched leaf")
    }

    /// The number of the tree of the leaf that was added last.
    pub(crate) fn latest_tree(&self) -> Option<usize> {
        self.leaves.last().map(|leaf| leaf.tree)
    }

    /// The number of the tree of the leaf at this position, if it is there.
    pub(crate) fn tree_of(&self, position: usize) -> Option<usize> {
        self.leaves.get(position).map(|leaf| leaf.tree)
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
        let first = self.trees.get(tree).map_or(NO_LEAF, |of_tree| of_tree.latest);
        let chain = std::iter::successors(Some(first), |&at| Some(self.leaves.get(at)?.earlier));
        let is_held = |at: &usize| self.leaves.get(*at).is_some_and(|leaf| leaf.latch.is_some());
        let looked_at = chain.take_while(|&at| at != NO_LEAF).take(4 * RECENT_LEAVES);
        looked_at.filter(is_held).take(RECENT_LEAVES)
    }

    /// The position of the leaf that `key` is in now, and its slot there or the slot where it would
    /// be. `key` was in the leaf at `position`. Splits since then moved it only to the right, into
    /// leaves that the transaction holds because it made them.
    pub(crate) fn locate(
        &self,
        position: usize,
        key: &[u8],
    ) -> Option<(usize, Result<usize, usize>)> {
        let here = |at: usize| match LeafView::new(self.bytes(at)).ok()?.where_is(key).ok()? {
            KeyLocation::Here(slot) => Some((at, slot)),
            KeyLocation::Right(_) | KeyLocation::Elsewhere => None,
        };
        let tree = self.leaves.get(position)?.tree;
        here(position).or_else(|| here(self.last_made(tree, Bound::Included(key))?))
    }

    /// Every leaf held exclusively, with its tree.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = (usize, &ExclusiveGuard<'db>)> + '_ {
        self.leaves.iter().filter_map(|leaf| match &leaf.latch {
            Some(LeafLatch::Exclusive(guard)) => Some((leaf.tree, guard)),
            _ => None,
        })
    }

    /// Those of them with changes whose undo needs room: entries may have gone, or become shorter.
    pub(crate) fn shrunk(&self) -> impl Iterator<Item = (usize, &ExclusiveGuard<'db>)> + '_ {
        self.leaves.iter().filter_map(|leaf| match &leaf.latch {
            Some(LeafLatch::Exclusive(guard)) if leaf.is_rebuilt_by_undo => {
                Some((leaf.tree, guard))
            }
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
        if !self.leaves.is_empty() {
            self.leaves.clear();
            self.trees.clear(|of_tree| {
                of_tree.latest = NO_LEAF;
                of_tree.made.clear();
            });
        }
        self.by_addr.clear();
        (self.change_bytes, self.vacant, self.beyond_cache, self.next_out) = (0, 0, 0, 0);
    }

    /// The same memory, empty, for a transaction with another lifetime.
    pub(crate) fn emptied<'other>(mut self) -> LockSet<'other> {
        self.release();
        // Collecting an empty vector into one of the same layout reuses its allocation.
        let leaves = self.leaves.into_iter().map(|_| unreachable!("it is empty")).collect();
        LockSet { leaves, trees: self.trees, by_addr: self.by_addr, ..LockSet::default() }
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
