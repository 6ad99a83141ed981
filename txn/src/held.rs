//! The leaves a transaction holds: found again by address, or by "lately used in this tree".
//!
//! Positions are stable: leaves are only added, until the transaction ends and all are released.
//! The vectors survive the transaction (see [`HeldLeaves::emptied`]), so holding a leaf allocates
//! nothing once they have grown.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;

use selkie_engine::log::Lsn;
use selkie_engine::{ExclusiveGuard, GAddr, SharedGuard, change_together};

/// Up to so many leaves are searched one by one; beyond, an index is kept.
const SCANNED: usize = 16;

/// How many of the tree's latest leaves are looked at before a descent.
const RECENT: usize = 3;

const NONE: usize = usize::MAX;

/// A held latch.
pub(crate) enum Latch<'db> {
    Shared(SharedGuard<'db>),
    Exclusive(ExclusiveGuard<'db>),
}

impl Latch<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(guard) => guard,
            Self::Exclusive(guard) => guard,
        }
    }

    pub(crate) fn addr(&self) -> GAddr {
        match self {
            Self::Shared(guard) => guard.addr(),
            Self::Exclusive(guard) => guard.addr(),
        }
    }
}

/// A leaf that was read and is not held to the end.
pub(crate) enum Shown<'db> {
    /// Until another is looked at.
    Latched(SharedGuard<'db>),
    /// As it was, by those who hold no leaf while they wait for one.
    Copied(Box<[u8]>),
}

impl Shown<'_> {
    pub(crate) fn copy_of(leaf: &[u8]) -> Self {
        Self::Copied(leaf.into())
    }
}

impl Deref for Shown<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Latched(guard) => guard,
            Self::Copied(leaf) => leaf,
        }
    }
}

struct HeldLeaf<'db> {
    addr: GAddr,
    tree: usize,
    /// The leaf of the same tree that was added before this one.
    earlier: usize,
    /// `None` only while the latch is being upgraded.
    latch: Option<Latch<'db>>,
}

/// All leaves held by one transaction.
#[derive(Default)]
pub(crate) struct HeldLeaves<'db> {
    leaves: Vec<HeldLeaf<'db>>,
    /// For each tree, the leaf added last.
    latest: Vec<usize>,
    by_addr: HashMap<u64, usize, BuildHasherDefault<AddrHasher>>,
}

impl<'db> HeldLeaves<'db> {
    pub(crate) fn len(&self) -> usize {
        self.leaves.len()
    }

    pub(crate) fn position(&self, addr: GAddr) -> Option<usize> {
        if self.leaves.len() <= SCANNED {
            self.leaves.iter().rposition(|leaf| leaf.addr == addr)
        } else {
            self.by_addr.get(&addr.to_u64()).copied()
        }
    }

    /// Adds a leaf and returns its position.
    pub(crate) fn add(&mut self, tree: usize, addr: GAddr, latch: Latch<'db>) -> usize {
        let at = self.leaves.len();
        if self.latest.len() <= tree {
            self.latest.resize(tree + 1, NONE);
        }
        let earlier =
            self.latest.get_mut(tree).map_or(NONE, |latest| std::mem::replace(latest, at));
        self.leaves.push(HeldLeaf { addr, tree, earlier, latch: Some(latch) });
        if self.leaves.len() > SCANNED {
            if self.by_addr.is_empty() {
                let all = self.leaves.iter().enumerate();
                self.by_addr.extend(all.map(|(at, leaf)| (leaf.addr.to_u64(), at)));
            } else {
                self.by_addr.insert(addr.to_u64(), at);
            }
        }
        at
    }

    pub(crate) fn latch(&self, at: usize) -> Option<&Latch<'db>> {
        self.leaves.get(at)?.latch.as_ref()
    }

    pub(crate) fn bytes(&self, at: usize) -> Option<&[u8]> {
        self.latch(at).map(Latch::bytes)
    }

    pub(crate) fn exclusive_mut(&mut self, at: usize) -> Option<&mut ExclusiveGuard<'db>> {
        match self.leaves.get_mut(at)?.latch.as_mut()? {
            Latch::Exclusive(guard) => Some(guard),
            Latch::Shared(_) => None,
        }
    }

    /// Takes a latch out to upgrade it; [`put_back`](Self::put_back) must follow.
    pub(crate) fn take(&mut self, at: usize) -> Option<Latch<'db>> {
        self.leaves.get_mut(at)?.latch.take()
    }

    pub(crate) fn put_back(&mut self, at: usize, latch: Latch<'db>) {
        if let Some(leaf) = self.leaves.get_mut(at) {
            leaf.latch = Some(latch);
        }
    }

    /// Positions of the leaves of `tree` added last, the latest first.
    pub(crate) fn recent(&self, tree: usize) -> impl Iterator<Item = usize> + '_ {
        let first = self.latest.get(tree).copied().unwrap_or(NONE);
        let chain = std::iter::successors(Some(first), |&at| Some(self.leaves.get(at)?.earlier));
        chain.take_while(|&at| at != NONE).take(RECENT)
    }

    /// Every leaf held exclusively, with its tree.
    pub(crate) fn exclusive(&self) -> impl Iterator<Item = (usize, &ExclusiveGuard<'db>)> + '_ {
        self.leaves.iter().filter_map(|leaf| match &leaf.latch {
            Some(Latch::Exclusive(guard)) => Some((leaf.tree, guard)),
            _ => None,
        })
    }

    /// As above, to be changed.
    pub(crate) fn exclusive_mut_all(
        &mut self,
    ) -> impl Iterator<Item = &mut ExclusiveGuard<'db>> + '_ {
        self.leaves.iter_mut().filter_map(|leaf| match &mut leaf.latch {
            Some(Latch::Exclusive(guard)) => Some(guard),
            _ => None,
        })
    }

    /// Makes all that was changed one change; up to where the node's log has to be durable before
    /// anybody may rely on it, or on what was read.
    pub(crate) fn seal(&mut self) -> Lsn {
        let latches = || self.leaves.iter().filter_map(|leaf| leaf.latch.as_ref());
        let read = latches().filter_map(|latch| match latch {
            Latch::Shared(guard) => Some(guard.lsn()),
            Latch::Exclusive(_) => None,
        });
        let read = read.max().unwrap_or(0);
        let changed = change_together(self.exclusive_mut_all()).unwrap_or(0);
        // What was latched to be changed and is as it was has been read.
        let latched = self.exclusive().map(|(_, guard)| guard.lsn()).max().unwrap_or(0);
        read.max(changed).max(latched)
    }

    /// Releases every latch.
    pub(crate) fn release(&mut self) {
        for leaf in self.leaves.drain(..) {
            if let Some(latest) = self.latest.get_mut(leaf.tree) {
                *latest = NONE;
            }
        }
        self.by_addr.clear();
    }

    /// The same memory, empty, for a transaction with another lifetime.
    pub(crate) fn emptied<'other>(mut self) -> HeldLeaves<'other> {
        self.release();
        // Collecting an empty vector into one of the same layout reuses its allocation.
        let leaves = self.leaves.into_iter().map(|_| unreachable!("it is empty")).collect();
        HeldLeaves { leaves, latest: self.latest, by_addr: self.by_addr }
    }
}

/// Spreads addresses: one multiplication, because they are multiples of the page size.
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
