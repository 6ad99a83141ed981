//! Splitting a full leaf under its latch, and the separator that is to be posted to the parent.
//!
//! A split is complete as soon as the left leaf's latch is released: its right link and high fence
//! lead to the new page. The parent's separator only shortens the way, so it can wait until the
//! caller holds no leaf latch (a transaction: until after commit). See [`crate::post`].

use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr};

use crate::error::TreeError;
use crate::latch::SharedInOrderLatch;
use crate::page::{self, PageView, Placement, Target};
use crate::tree::Tree;
use crate::unlinked::give_back_new;

/// Splits in a row that one entry needs at most: some take other entries away from it, and two make
/// the fences beside it as short as they can be.
pub const MAX_SPLITS: usize = 8;

/// A page that no parent points to yet. Hand it to [`Tree::post`] once no latch is held. Dropping
/// it leaves the tree valid, only a little slower around that page, until a later write reaches it
/// by the right link and posts it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "post the separator once no latch is held"]
pub struct PendingPost {
    /// Level of the parent.
    pub(crate) level: u8,
    /// Low fence of the child.
    pub(crate) separator: Vec<u8>,
    /// The child; null where it is found again by its low fence (level 1 without `seen`).
    pub(crate) child: GAddr,
    /// At level 1 the removal count of the parent that covered the separator, read when the child
    /// was alive or not yet born. `None` there: the child is found when it is posted.
    pub(crate) seen: Option<u32>,
}

impl PendingPost {
    /// The low fence of the page.
    #[must_use]
    pub fn separator(&self) -> &[u8] {
        &self.separator
    }

    /// For a leaf that was reached by a right link instead of from its parent.
    pub(crate) fn found_missing(low_fence: &[u8]) -> Self {
        Self { level: 1, separator: low_fence.to_vec(), child: GAddr::NULL, seen: None }
    }
}

impl Tree {
    /// Splits `left`, a leaf in which `key` found no room for a value of `value_bytes`, and returns
    /// the new right neighbour, latched, with the separator for the parent. Afterwards `key`
    /// belongs to whichever of the two [`LeafView::where_is`](crate::LeafView::where_is) says, and
    /// usually has room there; with values near [`max_value`](crate::max_value) it may take some
    /// more splits of that side, [`MAX_SPLITS`](crate::MAX_SPLITS) at most.
    ///
    /// A key at the end of the leaf cuts there, so ascending inserts leave full leaves behind;
    /// others cut in the middle by bytes. `key` may be in the leaf already, as a row that grows.
    ///
    /// Latches inner pages, each briefly, and allocates a page (a round trip only when the
    /// node's lease is used up). On an error nothing has changed.
    ///
    /// # Errors
    /// [`TreeError::Engine`] (the pool may be full), [`TreeError::Corrupt`] (also for an entry
    /// larger than `max_value` allows), [`TreeError::Contended`].
    ///
    /// # Panics
    /// When `key` is outside the leaf's fences: the caller skipped the check.
    pub async fn split_leaf<'e>(
        &self,
        engine: &'e Engine,
        left: &mut ExclusiveGuard<'_>,
        key: &[u8],
        value_bytes: usize,
    ) -> Result<(ExclusiveGuard<'e>, PendingPost), TreeError> {
        let left_addr = left.addr();
        let cut = {
            let view = PageView::parse(left).map_err(TreeError::damaged(left_addr))?;
            assert!(view.level() == 0, "split_leaf of an inner page");
            assert!(view.place(Target::At(key)) == Placement::Here, "split for a foreign key");
            page::choose_cut(&view, key, value_bytes).map_err(TreeError::damaged(left_addr))?
        };
        let target = Target::At(&cut.separator);
        let seen = {
            // Not for longer: the allocation may wait for pages that pins hold back.
            let _pin = engine.pin();
            match self.descend_by::<SharedInOrderLatch>(engine, target, 1).await {
                Ok(parent) => {
                    let damaged = TreeError::damaged(parent.addr());
                    Some(PageView::parse(&parent).map_err(damaged)?.header().extra)
                }
                // A recovery is in the way that may need the leaf: the post looks for the child.
                Err(TreeError::Engine(EngineError::Busy { .. })) => None,
                Err(error) => return Err(error),
            }
        };
        let mut right = engine.allocate().await?;
        let (bytes, child) = (left.len(), right.addr());
        let split =
            page::split(left.bytes_mut(0..bytes), right.bytes_mut(0..bytes), &cut, child.to_u64());
        if let Err(damage) = split {
            give_back_new(engine, right);
            return Err(TreeError::damaged(left_addr)(damage));
        }
        Ok((right, PendingPost { level: 1, separator: cut.separator, child, seen }))
    }
}
