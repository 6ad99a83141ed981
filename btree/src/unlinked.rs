//! Pages to which no page leads: new ones that do not come into a tree, and those that left one.

use selkie_engine::{Engine, EngineError, ExclusiveGuard, Stamp};

use crate::LeafView;
use crate::page::{self, PageSpec, PageView};

/// Gives a page back that was allocated for a tree and to which no page leads. It is marked first:
/// what is made of logs and backups has no other way to know (see [`is_unlinked`]).
pub fn give_back_new(engine: &Engine, mut page: ExclusiveGuard<'_>) {
    // One that was never formatted becomes an empty page. The others keep their bytes: the log
    // would have all of them again.
    let marked = page::mark_dead(&mut page).or_else(|_| {
        let bytes = page.len();
        page::format(page.bytes_mut(0..bytes), &PageSpec::default(), [])?;
        page::mark_dead(&mut page)
    });
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

/// The stamp of the last change of a page, zero if it is no leaf or has none.
#[must_use]
pub fn written_at(page: &[u8]) -> Stamp {
    LeafView::new(page).map_or_else(|_| Stamp::default(), |leaf| leaf.stamps().write)
}
