//! A tree that is built and has yet to become the tree that it was built for; and the pages of a
//! load, which go back to the pool until then.

use std::mem;

use selkie_engine::log::LogReservation;
use selkie_engine::{Engine, ExclusiveGuard, GAddr};

use crate::error::TreeError;
use crate::latch::{ExclusiveLatch, if_free, latch};
use crate::leaf::{LeafView, leaf_stamp};
use crate::page::{PageView, Stamps};
use crate::tree::Tree;
use crate::unlinked::give_back_new;

/// Pages after which other tasks get their turn.
pub(super) const YIELD_PAGES: usize = 16;

/// Pages to which nothing leads. They go back to the pool unless they are attached.
pub(super) struct NewPages {
    pub(super) engine: Engine,
    pub(super) pages: Vec<GAddr>,
}

impl Drop for NewPages {
    fn drop(&mut self) {
        let pages = mem::take(&mut self.pages);
        if pages.is_empty() {
            return;
        }
        let engine = self.engine.clone();
        drop(self.engine.env().spawn("give back a load", async move {
            for (at, addr) in pages.into_iter().enumerate() {
                // What cannot be latched is leaked, as when a node dies.
                if let Ok(guard) = latch::<ExclusiveLatch>(&engine, addr).await {
                    give_back_new(&engine, guard);
                }
                if at % YIELD_PAGES == YIELD_PAGES - 1 {
                    engine.env().yield_now().await;
                }
            }
        }));
    }
}

/// A tree that is built, and not attached.
#[must_use = "a tree that is not attached is given back"]
pub struct BuiltTree {
    pub(super) tree: Tree,
    pub(super) leaf: GAddr,
    pub(super) removals: u32,
    pub(super) first: Vec<u8>,
    /// What the root becomes, unless the first leaf has all rows.
    pub(super) root: Option<Vec<u8>>,
    pub(super) leaves: Vec<GAddr>,
    pub(super) pages: NewPages,
    pub(super) rows: u64,
}

impl BuiltTree {
    /// The leaf of the empty tree. The caller that attaches latches it exclusively, then the root.
    #[must_use]
    pub fn leaf(&self) -> GAddr {
        self.leaf
    }

    /// The leaves behind that one. Nothing leads to them yet.
    #[must_use]
    pub fn leaves(&self) -> &[GAddr] {
        &self.leaves
    }

    /// The root of the tree that it is to become.
    #[must_use]
    pub fn root(&self) -> GAddr {
        self.tree.root()
    }

    /// Rows of the tree.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Latches the root, if it is not latched now, to change it with room in the log.
    ///
    /// # Errors
    /// [`TreeError::Engine`].
    pub async fn try_root<'e>(
        &self,
        engine: &'e Engine,
        room: &LogReservation,
    ) -> Result<Option<ExclusiveGuard<'e>>, TreeError> {
        if_free(engine.try_exclusive_with_room(self.tree.root(), room).await)
    }

    /// Fails unless leaf and root, latched, are those of an empty tree.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`].
    pub fn check(&self, leaf: &[u8], root: &[u8]) -> Result<(), TreeError> {
        let addr = self.tree.root();
        let only = PageView::parse(root).and_then(|root| {
            // Of posts that wait, none may take a new page for the one that it has seen.
            let is_same = root.header().extra.wrapping_add(1) == self.removals;
            let is_low = root.level() == 1 && root.len() == 1;
            Ok(is_same && is_low && root.child(0)? == self.leaf.to_u64())
        });
        let is_only = only.map_err(TreeError::damaged(addr))?;
        let is_empty = is_empty_leaf(leaf).map_err(|error| error.at(self.leaf))?;
        if is_only && is_empty { Ok(()) } else { Err(TreeError::NotEmpty) }
    }

    /// Gives the leaf and the root, which were [checked](Self::check) under the same latches, the
    /// content that makes all rows those of the tree. The caller makes both, with those of other
    /// trees, one change ([`selkie_engine::change_together`]). The other leaves should have these
    /// stamps by then.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`], as for `check`; nothing is changed then.
    pub fn attach(
        mut self,
        leaf: &mut ExclusiveGuard<'_>,
        root: &mut ExclusiveGuard<'_>,
        stamps: Stamps,
    ) -> Result<(), TreeError> {
        self.check(leaf, root)?;
        leaf.bytes_mut(0..self.first.len()).copy_from_slice(&self.first);
        leaf_stamp(leaf, stamps);
        if let Some(image) = self.root.take() {
            root.bytes_mut(0..image.len()).copy_from_slice(&image);
        }
        self.pages.pages.clear();
        Ok(())
    }
}

/// Whether a leaf is that of a tree without rows.
pub(super) fn is_empty_leaf(leaf: &[u8]) -> Result<bool, TreeError> {
    let leaf = LeafView::new(leaf)?;
    let is_all = leaf.low_fence().is_empty() && leaf.high_fence().is_none();
    Ok(is_all && leaf.is_empty() && !leaf.is_dead())
}
