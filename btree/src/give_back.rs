//! Giving the pages of a whole tree back, which no node uses any more.
//!
//! Level by level, from the leaves up, along the right links, which lead to every page of a level.
//! The levels above stay, so the first page of the next level is found from the root. The caller
//! notes durably how far it is before it gives pages back: after a crash in between some pages stay
//! allocated, and none is given back twice.

use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr};

use crate::error::TreeError;
use crate::page::{self, PageSpec, PageView, Target};
use crate::tree::Tree;

impl Tree {
    /// The first page of a level; `None` above the root.
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn first_page(&self, engine: &Engine, level: u8) -> Result<Option<GAddr>, TreeError> {
        let root = engine.shared(self.root()).await?;
        let top = PageView::parse(&root).map_err(TreeError::damaged(self.root()))?.level();
        drop(root);
        if level > top {
            return Ok(None);
        }
        Ok(Some(self.descend(engine, Target::At(&[]), level).await?.addr()))
    }

    /// Up to `most` pages of a level from this one on, and the next one behind them. A round trip
    /// for each page that is not cached.
    ///
    /// # Errors
    /// [`TreeError::Engine`], [`TreeError::Corrupt`].
    pub async fn pages_from(
        engine: &Engine,
        first: GAddr,
        most: usize,
    ) -> Result<(Vec<GAddr>, Option<GAddr>), TreeError> {
        let (mut pages, mut next) = (Vec::with_capacity(most), first);
        while pages.len() < most && !next.is_null() {
            let guard = engine.shared(next).await?;
            let view = PageView::parse(&guard).map_err(TreeError::damaged(next))?;
            pages.push(next);
            next = GAddr::from_u64(view.header().right);
        }
        Ok((pages, Some(next).filter(|next| !next.is_null())))
    }

    /// Gives a page of a tree back that no node uses any more, unless that was done: two pages may
    /// have been merged. The caller holds an epoch pin from before the page was found in the tree.
    ///
    /// # Errors
    /// [`TreeError::Engine`], [`TreeError::Corrupt`].
    pub async fn give_back(engine: &Engine, page: GAddr) -> Result<(), TreeError> {
        let mut guard = engine.exclusive(page).await?;
        if PageView::parse(&guard).map_err(TreeError::damaged(page))?.is_dead() {
            return Ok(());
        }
        page::mark_dead(&mut guard).map_err(TreeError::damaged(page))?;
        engine.free(guard);
        Ok(())
    }
}

/// Gives a page back that was allocated for a tree and to which no page leads. It is marked first:
/// what is made of logs and backups has no other way to know (see [`is_unlinked`]).
pub fn give_back_new(engine: &Engine, mut page: ExclusiveGuard<'_>) {
    let bytes = page.len();
    let empty = page::format(page.bytes_mut(0..bytes), &PageSpec::default(), []);
    // Only a page of a size that no pool has cannot be formatted: it is leaked in a restored pool.
    let marked = empty.and_then(|()| page::mark_dead(&mut page));
    debug_assert!(marked.is_ok(), "{marked:?}");
    engine.free(page);
}

/// A page that was allocated for a tree, and to which no page leads yet. It is given back if it is
/// dropped, as with a future that waits for another page.
pub(crate) struct NewPage<'e> {
    engine: &'e Engine,
    page: Option<ExclusiveGuard<'e>>,
}

impl<'e> NewPage<'e> {
    pub(crate) async fn allocate(engine: &'e Engine) -> Result<Self, EngineError> {
        let page = Some(engine.allocate().await?);
        Ok(Self { engine, page })
    }

    /// The page, which the caller gives back or brings into a tree.
    pub(crate) fn keep(mut self) -> ExclusiveGuard<'e> {
        let Some(page) = self.page.take() else { unreachable!("a new page is kept once") };
        page
    }
}

impl Drop for NewPage<'_> {
    fn drop(&mut self) {
        if let Some(page) = self.page.take() {
            give_back_new(self.engine, page);
        }
    }
}

/// Whether this is a page that was taken out of its tree, or never came into one: no page leads to
/// it. Logs and backups have such pages: that a page was freed is noted in the pool alone.
#[must_use]
pub fn is_unlinked(page: &[u8]) -> bool {
    PageView::parse(page).is_ok_and(|view| view.is_dead())
}
