//! The tree handle: creating and opening it, descending to a page, latching with bounded retries.
//!
//! # Descent
//!
//! Inner pages are latched shared one at a time and released before the next one is latched: a
//! B-link tree needs no latch coupling, because a page that was split in between still leads to
//! the right place by its right link. A key at or above a page's high fence is to its right; a dead
//! page, or a key below its low fence, means the way here is out of date: start again at the root,
//! whose address never changes. The caller's epoch pin keeps every address read on the way from
//! being reused for another page.

use std::ops::Bound;

use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr, SharedGuard};

use crate::error::TreeError;
use crate::latch::{
    ExclusiveLatch, LatchKind, RESTARTS, SharedInOrderLatch, SharedLatch, latch, pause,
};
use crate::leaf::target_before;
use crate::page::{self, MAX_PAGE, MIN_PAGE, PageSpec, PageView, Placement, Target};
use crate::unlinked::NewPage;

/// No tree is higher: every level has at least twice the pages of the one above.
pub(crate) const MAX_HEIGHT: u8 = 64;
/// No way along right links is longer, unless damage made it a circle.
const MAX_STEPS: usize = 1 << 20;

/// A B-link tree in the pool. A plain value: copy it freely, on every node.
///
/// The root page never moves, so its address names the tree. All methods take the engine of the
/// node they run on; none blocks the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tree {
    root: GAddr,
    max_leaf_rows: u16,
}

impl Tree {
    /// Makes an empty tree: a root and one leaf. `max_leaf_rows` bounds the rows of a leaf
    /// (`u16::MAX`: as many as fit) and is at least 1; a small bound spreads hot rows over leaves.
    ///
    /// # Errors
    /// [`TreeError::Engine`], when the pool is full for one.
    ///
    /// # Panics
    /// When the pool's GCLs are not of 512 to 8192 bytes, which a pool refuses at its start.
    pub async fn create(engine: &Engine, max_leaf_rows: u16) -> Result<Self, TreeError> {
        let bytes = engine.page_bytes();
        assert!((MIN_PAGE..=MAX_PAGE).contains(&bytes), "the pool's GCL size is out of range");
        let max_leaf_rows = max_leaf_rows.max(1);
        let leaf = NewPage::allocate(engine).await?;
        let mut root = engine.allocate().await?;
        let mut leaf = leaf.keep();
        let all = |level, extra| PageSpec { level, extra, ..PageSpec::default() };
        let addr = leaf.addr();
        page::format(leaf.bytes_mut(0..bytes), &all(0, rows_of_page(max_leaf_rows)), [])
            .map_err(TreeError::damaged(addr))?;
        let child = addr.to_u64().to_le_bytes();
        let addr = root.addr();
        page::format(root.bytes_mut(0..bytes), &all(1, 0), [(&[][..], &child[..])])
            .map_err(TreeError::damaged(addr))?;
        Ok(Self { root: addr, max_leaf_rows })
    }

    /// The tree with this root page. `max_leaf_rows` is what it was created with.
    pub fn open(root: GAddr, max_leaf_rows: u16) -> Self {
        Self { root, max_leaf_rows: max_leaf_rows.max(1) }
    }

    /// Address of the root page: all that [`Tree::open`] needs.
    pub fn root(&self) -> GAddr {
        self.root
    }

    /// The most rows a leaf holds; `u16::MAX` means as many as fit.
    pub fn max_leaf_rows(&self) -> u16 {
        self.max_leaf_rows
    }

    /// As a leaf stores it.
    pub(crate) fn most_rows(&self) -> u32 {
        rows_of_page(self.max_leaf_rows)
    }

    /// The leaf that held `key` just now. Latches inner pages only, each briefly; check
    /// the leaf by [`LeafView::where_is`](crate::LeafView::where_is) once it is latched. The caller
    /// holds an epoch pin from before this call until it is done with the address, and no latch: it
    /// waits for the end of a recovery that is in the way ([`Tree::locate_in_order`]). No heap
    /// allocation; no round trip when the inner pages are cached.
    ///
    /// # Errors
    /// [`TreeError::Engine`], [`TreeError::Corrupt`], [`TreeError::Contended`].
    #[inline]
    pub async fn locate(&self, engine: &Engine, key: &[u8]) -> Result<GAddr, TreeError> {
        self.child_at::<SharedLatch>(engine, Target::At(key)).await
    }

    /// As [`Tree::locate`], for a caller that holds leaves.
    ///
    /// # Errors
    /// [`EngineError::Busy`](selkie_engine::EngineError::Busy) if the recovery from a node's death
    /// is in the way, which may need those leaves; else as [`Tree::locate`].
    #[inline]
    pub async fn locate_in_order(&self, engine: &Engine, key: &[u8]) -> Result<GAddr, TreeError> {
        self.child_at::<SharedInOrderLatch>(engine, Target::At(key)).await
    }

    /// The leaf that held the greatest keys below `bound` just now: where a reverse scan starts and
    /// continues. Otherwise as [`Tree::locate`]; check the leaf by
    /// [`LeafView::where_is_before`](crate::LeafView::where_is_before).
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn locate_before(
        &self,
        engine: &Engine,
        bound: Bound<&[u8]>,
    ) -> Result<GAddr, TreeError> {
        self.child_at::<SharedLatch>(engine, target_before(bound)).await
    }

    /// As [`Tree::locate_before`], for a caller that holds leaves.
    ///
    /// # Errors
    /// As [`Tree::locate_in_order`].
    pub async fn locate_before_in_order(
        &self,
        engine: &Engine,
        bound: Bound<&[u8]>,
    ) -> Result<GAddr, TreeError> {
        self.child_at::<SharedInOrderLatch>(engine, target_before(bound)).await
    }

    /// The level-1 entry for `target`.
    async fn child_at<L>(&self, engine: &Engine, target: Target<'_>) -> Result<GAddr, TreeError>
    where
        L: for<'e> LatchKind<Guard<'e> = SharedGuard<'e>>,
    {
        let parent = self.descend_by::<L>(engine, target, 1).await?;
        let child = PageView::parse(&parent)
            .and_then(|view| view.child(view.child_slot(target)?))
            .map_err(TreeError::damaged(parent.addr()))?;
        Ok(GAddr::from_u64(child))
    }

    /// Latches the page of `level` (1 or more) that covers `target`, shared; the root, if the tree
    /// has no such level. The caller holds an epoch pin, as inner pages may be freed.
    pub(crate) async fn descend<'e>(
        &self,
        engine: &'e Engine,
        target: Target<'_>,
        level: u8,
    ) -> Result<SharedGuard<'e>, TreeError> {
        self.descend_by::<SharedLatch>(engine, target, level).await
    }

    /// As [`Tree::descend`], with latches of this kind.
    pub(crate) async fn descend_by<'e, L>(
        &self,
        engine: &'e Engine,
        target: Target<'_>,
        level: u8,
    ) -> Result<SharedGuard<'e>, TreeError>
    where
        L: LatchKind<Guard<'e> = SharedGuard<'e>>,
    {
        for attempt in 0..L::RESTARTS {
            if attempt > 0 {
                pause(engine, attempt).await;
            }
            let mut addr = self.root;
            // Levels only go down, and right links only go right, on a way that is not damaged.
            let mut above = MAX_HEIGHT + 1;
            for _ in 0..MAX_STEPS {
                let guard = latch::<L>(engine, addr).await?;
                let damaged = TreeError::damaged(addr);
                let view = match PageView::parse(&guard) {
                    Ok(view) => view,
                    Err(damage) => return Err(damaged(damage)),
                };
                // The root alone may be below the level: the tree may have become lower.
                let least = if addr == self.root { 1 } else { level };
                if view.level() >= above || view.level() < least {
                    let what = "wrong level below its parent";
                    return Err(TreeError::Corrupt { addr, what });
                }
                match view.place(target) {
                    Placement::Here if view.level() <= level => return Ok(guard),
                    Placement::Here => {
                        above = view.level();
                        let child = view.child_slot(target).and_then(|slot| view.child(slot));
                        addr = GAddr::from_u64(child.map_err(damaged)?);
                    }
                    Placement::Right => addr = GAddr::from_u64(view.header().right),
                    Placement::Elsewhere => break,
                }
            }
        }
        Err(match L::RESTARTS {
            RESTARTS => TreeError::Contended { attempts: RESTARTS },
            _ => TreeError::Engine(EngineError::Busy { addr: self.root }),
        })
    }

    /// Latches the page of `level` (1 or more) that covers `key`, exclusively; `None` if the tree
    /// has no such level. Waits for it holding no other inner latch. The caller holds an epoch pin.
    pub(crate) async fn descend_exclusive<'e>(
        &self,
        engine: &'e Engine,
        key: &[u8],
        level: u8,
    ) -> Result<Option<ExclusiveGuard<'e>>, TreeError> {
        for attempt in 0..RESTARTS {
            if attempt > 0 {
                pause(engine, attempt).await;
            }
            let mut addr = {
                let page = self.descend(engine, Target::At(key), level).await?;
                let found = PageView::parse(&page).map_err(TreeError::damaged(page.addr()))?;
                if found.level() < level {
                    return Ok(None);
                }
                page.addr()
            };
            loop {
                let guard = latch::<ExclusiveLatch>(engine, addr).await?;
                let view = PageView::parse(&guard).map_err(TreeError::damaged(addr))?;
                // The root may have grown a level since, or lost one.
                if view.level() != level {
                    break;
                }
                match view.place(Target::At(key)) {
                    Placement::Here => return Ok(Some(guard)),
                    Placement::Right => addr = GAddr::from_u64(view.header().right),
                    Placement::Elsewhere => break,
                }
            }
        }
        Err(TreeError::Contended { attempts: RESTARTS })
    }

    /// Latches the leaf that covers `target`, starting at `from` (read under the same pin) if
    /// given. The flag says that the last step was along a right link: a separator may be missing
    /// above.
    #[inline]
    pub(crate) async fn find_leaf<'e, L: LatchKind>(
        &self,
        engine: &'e Engine,
        target: Target<'_>,
        mut from: Option<GAddr>,
    ) -> Result<(L::Guard<'e>, GAddr, bool), TreeError> {
        for attempt in 0..RESTARTS {
            if attempt > 0 {
                pause(engine, attempt).await;
            }
            let mut addr = match from.take() {
                Some(addr) => addr,
                None => self.child_at::<SharedLatch>(engine, target).await?,
            };
            let mut strayed = false;
            for _ in 0..MAX_STEPS {
                let guard = latch::<L>(engine, addr).await?;
                let view = PageView::parse(&guard).map_err(TreeError::damaged(addr))?;
                if view.level() != 0 {
                    return Err(TreeError::Corrupt { addr, what: "an inner page as a leaf" });
                }
                match view.place(target) {
                    Placement::Here => return Ok((guard, addr, strayed)),
                    Placement::Right => addr = GAddr::from_u64(view.header().right),
                    Placement::Elsewhere => break,
                }
                strayed = true;
            }
        }
        Err(TreeError::Contended { attempts: RESTARTS })
    }
}

/// The most rows of a leaf as the page stores them.
fn rows_of_page(max_leaf_rows: u16) -> u32 {
    if max_leaf_rows == u16::MAX { u32::MAX } else { u32::from(max_leaf_rows) }
}
