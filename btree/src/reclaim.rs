//! Unlinking and freeing leaves that have become empty.
//!
//! Three pages change together: the parent loses a separator, the left sibling takes over the
//! leaf's range and right link, and the leaf is marked dead. The parent's latch is waited for while
//! nothing else is held; the two leaves are only *tried*, because a transaction that holds a leaf
//! may be waiting for an inner page. If either is in use, reclaim gives up: an empty leaf is
//! harmless, and the next row deleted from it tries again.
//!
//! Readers on their way to the dead leaf hold an epoch pin from before it was unlinked, so its page
//! is not reused before they have seen the mark and started again at the root.
//!
//! What stays: the first leaf under each parent (its left sibling belongs to another parent), hence
//! every inner page; a leaf whose separator is not posted yet; a leaf that its left sibling cannot
//! absorb because the sibling's prefix would get shorter and its rows too long for the page.

use selkie_engine::{Engine, ExclusiveGuard, GAddr, change_together};

use crate::error::TreeError;
use crate::latch::try_exclusive;
use crate::page::{self, PageView, Target};
use crate::tree::Tree;

impl Tree {
    /// Unlinks and frees `leaf` if it is empty and neither it nor its left sibling is latched.
    /// Returns whether it did. The caller holds no latch. An address that has become stale does no
    /// harm.
    ///
    /// # Errors
    /// As [`Tree::locate`]; never for a leaf in use. The tree is valid after every error.
    pub async fn reclaim(&self, engine: &Engine, leaf: GAddr) -> Result<bool, TreeError> {
        let _pin = engine.pin();
        // The address may name another page by now, of any kind: then the low fence read here is
        // only a key, and what it leads to is checked again under the latches.
        let key = match engine.try_shared(leaf).await {
            Ok(page) => match PageView::parse(&page) {
                Ok(view) if view.level() == 0 && view.len() == 0 && !view.is_dead() => {
                    view.low().to_vec()
                }
                _ => return Ok(false),
            },
            Err(error) if error.is_retryable() => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        match self.unlink(engine, &key).await? {
            Some(leaf) => {
                engine.free(leaf);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Takes the empty leaf of `key` out of the tree and returns it, dead and latched.
    async fn unlink<'e>(
        &self,
        engine: &'e Engine,
        key: &[u8],
    ) -> Result<Option<ExclusiveGuard<'e>>, TreeError> {
        let mut parent = self.descend_exclusive(engine, key, 1).await?;
        let parent_addr = parent.addr();
        let mut separator = Vec::new();
        let children = PageView::parse(&parent).and_then(|view| {
            let slot = view.child_slot(Target::At(key))?;
            view.key_into(slot, &mut separator)?;
            let leaf = view.child(slot)?;
            Ok(match slot.checked_sub(1) {
                Some(before) => Some((slot, view.child(before)?, leaf)),
                None => None,
            })
        });
        let Some((slot, left_addr, leaf_addr)) =
            children.map_err(TreeError::damaged(parent_addr))?
        else {
            return Ok(None);
        };
        let left_addr = GAddr::from_u64(left_addr);
        let Some(mut left) = try_exclusive(engine, left_addr).await? else { return Ok(None) };
        let Some(mut leaf) = try_exclusive(engine, GAddr::from_u64(leaf_addr)).await? else {
            return Ok(None);
        };
        let absorbed = {
            let view = PageView::parse(&leaf).map_err(TreeError::damaged(leaf.addr()))?;
            let before = PageView::parse(&left).map_err(TreeError::damaged(left_addr))?;
            let neighbours = before.header().right == leaf_addr && before.high() == separator;
            let empty = view.level() == 0 && view.len() == 0 && view.low() == separator;
            if !neighbours || !empty || view.is_dead() || before.is_dead() {
                return Ok(None);
            }
            page::absorb(&mut left, &view)
        };
        if absorbed.is_err() {
            return Ok(None);
        }
        page::remove(&mut parent, slot)
            .and_then(|()| page::bump_removals(&mut parent))
            .map_err(TreeError::damaged(parent_addr))?;
        page::mark_dead(&mut leaf).map_err(TreeError::damaged(leaf.addr()))?;
        change_together([&mut parent, &mut left, &mut leaf]);
        Ok(Some(leaf))
    }
}
