//! Checking every invariant of a tree that no node is changing.

use std::collections::HashSet;

use selkie_engine::{Engine, GAddr};

use crate::error::TreeError;
use crate::latch::{SharedLatch, latch};
use crate::page::PageView;
use crate::tree::Tree;

/// Pages after which other tasks get their turn.
const YIELD_PAGES: usize = 32;

/// The shape of a tree, as [`Tree::verify`] found it.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct TreeStats {
    /// Levels, leaves included; at least 2.
    pub height: usize,
    /// Pages above the leaves.
    pub inner_pages: usize,
    /// Leaves.
    pub leaves: usize,
    /// Rows.
    pub entries: usize,
    /// Pages whose parent does not know them yet: valid, reached by right links.
    pub unposted: usize,
    /// Used bytes of the leaves over their size, headers included: 0 to 1.
    pub fill: f64,
}

/// What the level above says about a page: the separator and the address.
type Child = (Vec<u8>, GAddr);

/// What a walk along one level has found.
#[derive(Default)]
struct LevelWalk {
    level: u8,
    pages: usize,
    entries: usize,
    unposted: usize,
    used_bytes: usize,
    children: Vec<Child>,
}

impl Tree {
    /// Walks every level from left to right by its right links and checks: each page's prefix, key
    /// order, heads and cell bounds; levels; that the low fence of a page is the high fence of its
    /// left neighbour, from minus to plus infinity; that every separator points to a page of the
    /// walk with this low fence, in order; that no page is dead or visited twice. No node may
    /// change the tree meanwhile. Reads every page once.
    ///
    /// # Errors
    /// [`TreeError::Broken`] or [`TreeError::Corrupt`] name the page and the invariant;
    /// [`TreeError::Engine`].
    pub async fn verify(&self, engine: &Engine) -> Result<TreeStats, TreeError> {
        self.walk_all(engine, &mut HashSet::new()).await
    }

    /// All pages of the tree. Checks what [`Tree::verify`] checks, as a page that a damaged tree
    /// does not lead to may be one of it all the same. No node may change the tree meanwhile.
    ///
    /// # Errors
    /// As [`Tree::verify`].
    pub async fn pages(&self, engine: &Engine) -> Result<HashSet<GAddr>, TreeError> {
        let mut pages = HashSet::new();
        self.walk_all(engine, &mut pages).await?;
        Ok(pages)
    }

    /// Walks all levels. Adds the pages to those that were seen.
    async fn walk_all(
        &self,
        engine: &Engine,
        seen: &mut HashSet<GAddr>,
    ) -> Result<TreeStats, TreeError> {
        let _pin = engine.pin();
        let mut expected = vec![(Vec::new(), self.root())];
        let mut stats =
            TreeStats { height: 0, inner_pages: 0, leaves: 0, entries: 0, unposted: 0, fill: 0.0 };
        let mut above = None;
        loop {
            let level = walk(engine, above, &expected, seen).await?;
            stats.height += 1;
            stats.unposted += level.unposted;
            if level.level == 0 {
                stats.leaves = level.pages;
                stats.entries = level.entries;
                stats.fill =
                    level.used_bytes as f64 / (level.pages * engine.page_bytes()).max(1) as f64;
                return Ok(stats);
            }
            stats.inner_pages += level.pages;
            above = Some(level.level);
            expected = level.children;
        }
    }
}

/// Walks one level, whose parents know the pages `expected`; `above` is the parents' level.
async fn walk(
    engine: &Engine,
    above: Option<u8>,
    expected: &[Child],
    seen: &mut HashSet<GAddr>,
) -> Result<LevelWalk, TreeError> {
    let mut result = LevelWalk::default();
    let mut known = expected.iter().peekable();
    let mut fence = Vec::new();
    let mut next = expected.first().map_or(GAddr::NULL, |(_, addr)| *addr);
    while !next.is_null() {
        if result.pages % YIELD_PAGES == YIELD_PAGES - 1 {
            engine.env().yield_now().await;
        }
        let addr = next;
        let broken = |what| Err(TreeError::Broken { addr, what });
        if !seen.insert(addr) {
            return broken("met twice");
        }
        let page = latch::<SharedLatch>(engine, addr).await?;
        let view = PageView::parse(&page).map_err(TreeError::damaged(addr))?;
        if result.pages == 0 {
            result.level = view.level();
        }
        if view.level() != result.level
            || above.is_some_and(|above| Some(view.level()) != above.checked_sub(1))
        {
            return broken("wrong level");
        }
        if above.is_none() && (view.level() == 0 || view.header().right != 0) {
            return broken("the root is a leaf or has a neighbour");
        }
        if view.is_dead() {
            return broken("dead, but linked");
        }
        if view.low() != fence {
            return broken("low fence is not the left neighbour's high fence");
        }
        view.check().map_err(TreeError::damaged(addr))?;
        match known.next_if(|(_, child)| *child == addr) {
            Some((separator, _)) if separator != view.low() => {
                return broken("low fence is not the parent's separator");
            }
            Some(_) => {}
            None => result.unposted += 1,
        }
        if view.level() > 0 {
            collect_children(&view, &mut result.children)
                .map_err(|what| TreeError::Broken { addr, what })?;
        }
        result.pages += 1;
        result.entries += view.len();
        result.used_bytes += view.used_bytes();
        fence = view.high().to_vec();
        next = GAddr::from_u64(view.header().right);
    }
    match known.next() {
        Some((_, addr)) => {
            Err(TreeError::Broken { addr: *addr, what: "known to its parent, but not linked" })
        }
        None => Ok(result),
    }
}

/// Adds the children of an inner page.
fn collect_children(view: &PageView<'_>, children: &mut Vec<Child>) -> Result<(), &'static str> {
    if view.len() == 0 {
        return Err("inner page without children");
    }
    for slot in 0..view.len() {
        let mut separator = Vec::new();
        view.key_into(slot, &mut separator).map_err(|damage| damage.0)?;
        if slot == 0 && separator != view.low() {
            return Err("the first separator is not the low fence");
        }
        children.push((separator, GAddr::from_u64(view.child(slot).map_err(|damage| damage.0)?)));
    }
    Ok(())
}
