//! Sweeping a range of leaves: posting the separators that their parents lack, merging leaves that
//! are empty or underfull.
//!
//! What a transaction leaves to be done may be lost: its node died, a page was in use, its future
//! was dropped. A sweep finds it by comparing the leaves, along their right links, with the parent.
//! Leaves that cannot be merged yet do not stop it: once it has come to the end it begins again at
//! the first of them.

use std::collections::HashSet;

use selkie_engine::{Engine, EngineError, GAddr};

use crate::error::TreeError;
use crate::page::{self, Damage, PageView, Target};
use crate::reclaim::{Reclaimed, StampRule};
use crate::split::PendingPost;
use crate::tree::Tree;

/// What a parent says of the leaves from one of them on.
struct KnownLeaves {
    /// Removals counted in the parent.
    removals: u32,
    /// The leaf to begin with.
    first: GAddr,
    /// Separators that the parent has.
    separators: HashSet<Vec<u8>>,
    /// The parent's high fence; empty for the last.
    high: Vec<u8>,
}

/// A leaf that a sweep has looked at.
struct SweptLeaf {
    addr: GAddr,
    low: Vec<u8>,
    /// Empty for the last leaf.
    high: Vec<u8>,
    right: GAddr,
    is_underfull: bool,
}

/// The leaves that a sweep has yet to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepRange {
    from: Vec<u8>,
    to: Vec<u8>,
    /// A leaf that could not be merged yet, the first.
    again: Option<Vec<u8>>,
}

impl SweepRange {
    /// From the leaf that the parent knows for `from` on to the one of `to`.
    #[must_use]
    pub fn new(from: &[u8], to: &[u8]) -> Self {
        Self { from: from.to_vec(), to: to.to_vec(), again: None }
    }

    /// Where the next part begins.
    #[must_use]
    pub fn from(&self) -> &[u8] {
        let again = self.again.as_ref().filter(|again| **again < self.from);
        again.unwrap_or(&self.from)
    }

    /// The key of the last leaf.
    #[must_use]
    pub fn to(&self) -> &[u8] {
        &self.to
    }
}

/// How far a sweep has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// The range is done.
    Done,
    /// Enough leaves were looked at: the range begins behind them.
    More,
    /// The first leaf of the range is latched exclusively: try again.
    InUse,
    /// The range is done but for leaves that could not be merged yet. It begins at the first of
    /// them: try again later.
    Postponed,
}

impl Tree {
    /// Looks at about `leaves` leaves of a range, posts their missing separators and
    /// [reclaims](Self::reclaim) those that are empty or underfull. The caller holds no latch. A
    /// round trip for each leaf that is not cached. Waits for no leaf.
    ///
    /// # Errors
    /// As [`Tree::locate`], and [`TreeError::Engine`] when the pool is full. The tree is valid
    /// after every error, and the range is what was left to look at.
    pub async fn sweep(
        &self,
        engine: &Engine,
        range: &mut SweepRange,
        leaves: usize,
        rule: StampRule,
    ) -> Result<Swept, TreeError> {
        let _pin = engine.pin();
        let mut left = leaves.max(1);
        while left > 0 {
            let known = self.known_leaves(engine, &range.from).await?;
            let mut addr = known.first;
            // Until the leaves of another parent begin.
            while left > 0 && (known.high.is_empty() || range.from < known.high) {
                let leaf = match look_at(engine, addr).await {
                    Ok(Some(leaf)) => leaf,
                    Ok(None) => {
                        // It was merged meanwhile, and the tree leads around it.
                        left -= 1;
                        break;
                    }
                    Err(TreeError::Engine(EngineError::Busy { .. })) => return Ok(Swept::InUse),
                    Err(error) => return Err(error),
                };
                // An earlier call may have looked at the first: the parent knew none further right.
                left -= usize::from(leaf.high > range.from || leaf.high.is_empty());
                self.tend_leaf(engine, &leaf, &known, range, rule).await?;
                if leaf.high.is_empty() || leaf.high > range.to {
                    return Ok(match range.again.take() {
                        Some(again) => {
                            range.from = again;
                            Swept::Postponed
                        }
                        None => Swept::Done,
                    });
                }
                (range.from, addr) = (leaf.high, leaf.right);
            }
        }
        Ok(Swept::More)
    }

    /// Does for one leaf what is to be done.
    async fn tend_leaf(
        &self,
        engine: &Engine,
        leaf: &SweptLeaf,
        known: &KnownLeaves,
        range: &mut SweepRange,
        rule: StampRule,
    ) -> Result<(), TreeError> {
        if !leaf.low.is_empty() && !known.separators.contains(&leaf.low) {
            let (separator, child) = (leaf.low.clone(), leaf.addr);
            let post = PendingPost { level: 1, separator, child, seen: Some(known.removals) };
            self.post(engine, post).await?;
        }
        if leaf.is_underfull {
            match self.reclaim(engine, &leaf.low, rule).await? {
                Reclaimed::Freed | Reclaimed::Stays => {}
                Reclaimed::InUse | Reclaimed::Postponed => {
                    range.again.get_or_insert_with(|| leaf.low.clone());
                }
            }
        }
        Ok(())
    }

    /// What the parent knows for `key`.
    async fn known_leaves(&self, engine: &Engine, key: &[u8]) -> Result<KnownLeaves, TreeError> {
        let parent = self.descend(engine, Target::At(key), 1).await?;
        let known = |view: PageView<'_>| -> Result<KnownLeaves, Damage> {
            let at = view.child_slot(Target::At(key))?;
            let mut separators = HashSet::new();
            for slot in at..view.len() {
                let mut separator = Vec::new();
                view.key_into(slot, &mut separator)?;
                separators.insert(separator);
            }
            Ok(KnownLeaves {
                removals: view.header().extra,
                first: GAddr::from_u64(view.child(at)?),
                separators,
                high: view.high().to_vec(),
            })
        };
        PageView::parse(&parent).and_then(known).map_err(TreeError::damaged(parent.addr()))
    }
}

/// A leaf, unless it is dead.
async fn look_at(engine: &Engine, addr: GAddr) -> Result<Option<SweptLeaf>, TreeError> {
    let guard = engine.try_shared(addr).await?;
    let view = PageView::parse(&guard).map_err(TreeError::damaged(addr))?;
    if view.level() != 0 {
        return Err(TreeError::Corrupt { addr, what: "an inner page as a leaf" });
    }
    Ok((!view.is_dead()).then(|| SweptLeaf {
        addr,
        low: view.low().to_vec(),
        high: view.high().to_vec(),
        right: GAddr::from_u64(view.header().right),
        is_underfull: page::underfill(&view) > 0,
    }))
}
