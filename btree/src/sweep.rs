//! Sweeping a range of leaves: posting the separators that their parents lack, giving empty leaves
//! back.
//!
//! What a transaction leaves to be done may be lost: its node died, a page was in use, its future
//! was dropped. A sweep finds it by comparing the leaves, along their right links, with the parent.

use std::collections::HashSet;

use selkie_engine::{Engine, EngineError, GAddr};

use crate::error::TreeError;
use crate::page::{Damage, PageView, Target};
use crate::reclaim::StampRule;
use crate::split::PendingPost;
use crate::tree::Tree;

/// What a parent says of the leaves from one of them on.
struct KnownLeaves {
    parent: GAddr,
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
    is_empty: bool,
}

/// How far a sweep has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Swept {
    /// The range is done.
    Done,
    /// Enough leaves were looked at: continue from this key.
    More(Vec<u8>),
    /// The leaf of this key is latched exclusively: try again from there.
    InUse(Vec<u8>),
}

impl Tree {
    /// Looks at about `leaves` leaves, from the one that the parent knows for `from` on to the one
    /// of `to`, posts their missing separators and gives back those that are empty. The caller
    /// holds no latch. A round trip for each leaf that is not cached. Waits for no leaf.
    ///
    /// # Errors
    /// As [`Tree::locate`], and [`TreeError::Engine`] when the pool is full. The tree is valid
    /// after every error.
    pub async fn sweep(
        &self,
        engine: &Engine,
        from: &[u8],
        to: &[u8],
        leaves: usize,
        rule: StampRule,
    ) -> Result<Swept, TreeError> {
        let _pin = engine.pin();
        let mut at = from.to_vec();
        let mut left = leaves.max(1);
        while left > 0 {
            let known = self.known_leaves(engine, &at).await?;
            let mut addr = known.first;
            // Until the leaves of another parent begin.
            while left > 0 && (known.high.is_empty() || at < known.high) {
                let leaf = match look_at(engine, addr).await {
                    Ok(Some(leaf)) => leaf,
                    Ok(None) => {
                        // It was reclaimed meanwhile, and the tree leads around it.
                        left -= 1;
                        break;
                    }
                    Err(TreeError::Engine(EngineError::Busy { .. })) => {
                        return Ok(Swept::InUse(at));
                    }
                    Err(error) => return Err(error),
                };
                // An earlier call may have looked at the first: the parent knew none further right.
                left -= usize::from(leaf.high > at || leaf.high.is_empty());
                if !leaf.low.is_empty() && !known.separators.contains(&leaf.low) {
                    let seen = Some((known.parent, known.removals));
                    let separator = leaf.low.clone();
                    let child = leaf.addr;
                    self.post(engine, PendingPost { level: 1, separator, child, seen }).await?;
                }
                if leaf.is_empty {
                    self.reclaim(engine, leaf.addr, rule).await?;
                }
                if leaf.high.is_empty() || leaf.high.as_slice() > to {
                    return Ok(Swept::Done);
                }
                (at, addr) = (leaf.high, leaf.right);
            }
        }
        Ok(Swept::More(at))
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
                parent: parent.addr(),
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
        is_empty: view.len() == 0,
    }))
}
