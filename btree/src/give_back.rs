//! Giving the pages of a whole tree back, which no node uses any more.
//!
//! Level by level, from the leaves up, along the right links, which lead to every page of a level.
//! The levels above stay, so the first page of the next level is found from the root. The caller
//! notes durably how far it is before it gives pages back: after a crash in between some pages stay
//! allocated, and none is given back twice.

use selkie_engine::{Engine, GAddr};

use crate::error::TreeError;
use crate::page::{self, PageView, Target};
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
