//! Unlinking and freeing leaves that have become empty.
//!
//! Three pages change together: the parent loses a separator, the left of two siblings takes over
//! the range, the right link and the rows of the right one, and that one is marked dead. The empty
//! leaf is the right one, or, if it is the first under its parent, the left one. The parent's latch
//! is waited for while nothing else is held; the two leaves are only *tried*, because a transaction
//! that holds a leaf may be waiting for an inner page. If either is in use, reclaim gives up: an
//! empty leaf is harmless, and the caller may try again later.
//!
//! Readers on their way to the dead leaf hold an epoch pin from before it was unlinked, so its page
//! is not reused before they have seen the mark and started again at the root.
//!
//! What the stamps of leaves mean is the transaction layer's concern, so it says whether two leaves
//! may become one: [`StampRule`].
//!
//! What stays: the only leaf under a parent, hence every inner page; a leaf whose separator is not
//! posted yet; a leaf whose sibling cannot be merged with it because the common prefix would get
//! shorter and the rows too long for the page.

use selkie_engine::{Engine, GAddr, Stamp, change_together};

use crate::error::TreeError;
use crate::latch::try_exclusive;
use crate::leaf::leaf_stamp;
use crate::page::{self, PageView, Stamps, Target};
use crate::tree::Tree;

/// Whether two leaves may become one, and the stamps that one gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampRule {
    /// Always. It gets the later stamps of both.
    Latest,
    /// Only if neither was changed after the horizon, else [`Reclaimed::Postponed`]. It gets the
    /// later write stamp, and zero in place of the read stamp: for transactions that keep a link
    /// to an earlier image there, which none needs of a leaf that was changed so long ago.
    Above {
        /// The latest write stamp that a leaf may have.
        horizon: Stamp,
    },
}

impl StampRule {
    /// The stamps of two leaves that become one, if they may.
    fn join(self, left: Stamps, right: Stamps) -> Option<Stamps> {
        let latest = left.latest(right);
        match self {
            Self::Latest => Some(latest),
            Self::Above { horizon } => {
                (latest.write <= horizon).then_some(Stamps { read: Stamp::default(), ..latest })
            }
        }
    }
}

/// What became of an empty leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// A page was freed.
    Freed,
    /// It or its sibling is latched: another attempt may free it.
    InUse,
    /// The stamps of the two forbid it for now: another attempt may free it.
    Postponed,
    /// It is not empty, not in the tree, or cannot be merged with a sibling.
    Stays,
}

impl Tree {
    /// Merges `leaf` with a sibling if it is empty and neither of them is latched. The caller holds
    /// no latch. An address that has become stale does no harm.
    ///
    /// # Errors
    /// As [`Tree::locate`]; never for a leaf in use. The tree is valid after every error.
    pub async fn reclaim(
        &self,
        engine: &Engine,
        leaf: GAddr,
        rule: StampRule,
    ) -> Result<Reclaimed, TreeError> {
        let _pin = engine.pin();
        // The address may name another page by now, of any kind: then the low fence read here is
        // only a key, and what it leads to is checked again under the latches.
        let key = match engine.try_shared(leaf).await {
            Ok(page) => match PageView::parse(&page) {
                Ok(view) if view.level() == 0 && view.len() == 0 && !view.is_dead() => {
                    view.low().to_vec()
                }
                _ => return Ok(Reclaimed::Stays),
            },
            Err(error) if error.is_retryable() => return Ok(Reclaimed::InUse),
            Err(error) => return Err(error.into()),
        };
        self.unlink(engine, &key, rule).await
    }

    /// Merges the leaf of `key` with a sibling if one of the two is empty, and frees the right one.
    async fn unlink(
        &self,
        engine: &Engine,
        key: &[u8],
        rule: StampRule,
    ) -> Result<Reclaimed, TreeError> {
        let mut parent = self.descend_exclusive(engine, key, 1).await?;
        let parent_addr = parent.addr();
        let mut separator = Vec::new();
        let siblings = PageView::parse(&parent).and_then(|view| {
            // The right one of the two.
            let slot = view.child_slot(Target::At(key))?.max(1);
            if slot >= view.len() {
                return Ok(None);
            }
            view.key_into(slot, &mut separator)?;
            Ok(Some((slot, view.child(slot - 1)?, view.child(slot)?)))
        });
        let Some((slot, left_addr, right_addr)) =
            siblings.map_err(TreeError::damaged(parent_addr))?
        else {
            return Ok(Reclaimed::Stays);
        };
        let (left_addr, right_addr) = (GAddr::from_u64(left_addr), GAddr::from_u64(right_addr));
        let Some(mut left) = try_exclusive(engine, left_addr).await? else {
            return Ok(Reclaimed::InUse);
        };
        let Some(mut right) = try_exclusive(engine, right_addr).await? else {
            return Ok(Reclaimed::InUse);
        };
        let stamps;
        let absorbed = {
            let behind = PageView::parse(&right).map_err(TreeError::damaged(right_addr))?;
            let before = PageView::parse(&left).map_err(TreeError::damaged(left_addr))?;
            let are_leaves = before.level() == 0 && behind.level() == 0;
            let are_neighbours = before.header().right == right_addr.to_u64()
                && before.high() == separator
                && behind.low() == separator;
            let is_any_empty = before.len() == 0 || behind.len() == 0;
            let is_any_dead = before.is_dead() || behind.is_dead();
            if !are_leaves || !are_neighbours || !is_any_empty || is_any_dead {
                return Ok(Reclaimed::Stays);
            }
            let Some(joined) = rule.join(before.header().stamps, behind.header().stamps) else {
                return Ok(Reclaimed::Postponed);
            };
            stamps = joined;
            page::absorb(&mut left, &behind)
        };
        if absorbed.is_err() {
            return Ok(Reclaimed::Stays);
        }
        leaf_stamp(&mut left, stamps);
        page::remove(&mut parent, slot)
            .and_then(|()| page::bump_removals(&mut parent))
            .map_err(TreeError::damaged(parent_addr))?;
        page::mark_dead(&mut right).map_err(TreeError::damaged(right_addr))?;
        change_together([&mut parent, &mut left, &mut right]);
        engine.free(right);
        Ok(Reclaimed::Freed)
    }
}
