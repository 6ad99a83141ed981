//! Posting the separators of split pages to their parents, bottom up, one latched page at a time.
//!
//! [`Tree::post`] inserts a separator into the page of its level that covers it, splits that page
//! when it is full, and continues one level up with the separator of that split. It never holds two
//! pages that others can reach: pages it splits off are new, and the root is split by copying both
//! halves down into two new pages, so that the root's address stays.
//!
//! # Why a separator never points to a dead page
//!
//! A leaf can be reclaimed between its split and a post: a writer that reached it by a right link
//! may have posted its separator, and reclaim may have removed it again ([`crate::reclaim`]). A
//! post must notice without latching leaf and parent together. Every inner page has a count
//! (`extra`). Take the count of the page right above the leaves that covers a key:
//!
//! 1. Reclaim removes a leaf, or gives it another low fence, only together with its separator,
//!    under the exclusive latch of the inner page that covers it, and counts up in that page.
//! 2. Whatever page covers a key later has at least that count: both halves of a split page have
//!    its count, a page that takes over keys of a neighbour counts up from the later count of the
//!    two, and a root that becomes the only page of a level has the count of that page.
//!
//! So a key's count never decreases, whatever becomes of pages and their addresses, and it grows
//! when a separator is removed there. A post knows the count for its separator, read *before* a
//! point in time at which the child was alive: [`Tree::split_leaf`] reads it just before it makes
//! the child; otherwise the child is looked up by its low fence after reading it. If the page that
//! covers the separator, latched exclusively, has the same count, the child is still alive, and it
//! stays so while the latch is held. If not, the child is looked up again, through the parent and
//! the right links: either a live leaf has that low fence, which is then the one to post, or the
//! range was absorbed and there is nothing to do. Posting twice is harmless: the second post finds
//! the separator. (The count has 32 bits: a post that waits for exactly 2^32 removals is not met.)
//!
//! An inner page is removed only once its parent knows it, and only the post of its own split makes
//! the parent know it. So it is alive when its separator is posted, once, without this check; and
//! its level stays, because a root takes over only the last page of a level.
//!
//! What is not done: an inner split whose post fails or is cancelled stays unposted (its right
//! link serves); [`TreeStats::unposted`](crate::TreeStats) counts such pages.

use selkie_engine::{Engine, ExclusiveGuard, GAddr, change_together};

use crate::error::TreeError;
use crate::latch::{RESTARTS, SharedLatch, pause};
use crate::page::{self, CHILD, Damage, NoRoomOr, PageSpec, PageView, Target};
use crate::split::PendingPost;
use crate::tree::Tree;
use crate::unlinked::{NewPage, give_back_new};

impl Tree {
    /// Inserts the separator of a split into the parent, splitting upward as far as needed. The
    /// caller holds no latch. Idempotent; does nothing when the page was reclaimed meanwhile.
    ///
    /// # Errors
    /// As [`Tree::locate`], and [`TreeError::Engine`] when the pool is full. The tree is valid
    /// after every error; the separator is then missing, which a clone of `pending` can mend later.
    pub async fn post(&self, engine: &Engine, pending: PendingPost) -> Result<(), TreeError> {
        let _pin = engine.pin();
        let mut next = Some(pending);
        while let Some(pending) = next {
            next = self.post_level(engine, pending).await?;
        }
        Ok(())
    }

    /// Posts on one level; returns what is to be posted one level up.
    async fn post_level(
        &self,
        engine: &Engine,
        mut pending: PendingPost,
    ) -> Result<Option<PendingPost>, TreeError> {
        for attempt in 0..RESTARTS {
            if attempt > 0 {
                pause(engine, attempt).await;
            }
            if pending.level == 1 && pending.seen.is_none() {
                match self.find_unposted(engine, &pending.separator).await? {
                    Some(found) => pending = found,
                    None => return Ok(None),
                }
            }
            let parent = self.descend_exclusive(engine, &pending.separator, pending.level).await?;
            let Some(mut parent) = parent else {
                let what = "no level for the separator of a page that was split";
                return Err(TreeError::Corrupt { addr: self.root(), what });
            };
            let damaged = TreeError::damaged(parent.addr());
            let removals = PageView::parse(&parent).map_err(damaged)?.header().extra;
            if pending.level == 1 && pending.seen.take() != Some(removals) {
                continue;
            }
            if insert_separator(&mut parent, &pending)? {
                return Ok(None);
            }
            if parent.addr() != self.root() {
                return self.split_inner(engine, parent, &pending).await.map(Some);
            }
            self.grow_root(engine, parent, &pending.separator).await?;
            // What was known about the root holds for the halves, which have its count.
            pending.seen = Some(removals);
        }
        Err(TreeError::Contended { attempts: RESTARTS })
    }

    /// Looks for a live leaf with this low fence that its parent does not know.
    async fn find_unposted(
        &self,
        engine: &Engine,
        separator: &[u8],
    ) -> Result<Option<PendingPost>, TreeError> {
        let target = Target::At(separator);
        let (seen, from) = {
            let parent = self.descend(engine, target, 1).await?;
            let damaged = TreeError::damaged(parent.addr());
            let known = PageView::parse(&parent).and_then(|view| {
                if view.search(separator)?.is_ok() {
                    return Ok(None);
                }
                Ok(Some((view.header().extra, view.child(view.child_slot(target)?)?)))
            });
            match known.map_err(damaged)? {
                Some((removals, child)) => (removals, GAddr::from_u64(child)),
                None => return Ok(None),
            }
        };
        let (leaf, child, _) = self.find_leaf::<SharedLatch>(engine, target, Some(from)).await?;
        let view = PageView::parse(&leaf).map_err(TreeError::damaged(child))?;
        Ok((view.low() == separator).then(|| PendingPost {
            level: 1,
            separator: separator.to_vec(),
            child,
            seen: Some(seen),
        }))
    }

    /// Splits a full inner page, inserts the separator on its side, and returns the note for the
    /// level above.
    async fn split_inner(
        &self,
        engine: &Engine,
        mut left: ExclusiveGuard<'_>,
        pending: &PendingPost,
    ) -> Result<PendingPost, TreeError> {
        let left_addr = left.addr();
        let cut = PageView::parse(&left)
            .and_then(|view| page::choose_cut(&view, &pending.separator, CHILD))
            .map_err(TreeError::damaged(left_addr))?;
        let mut right = engine.allocate().await?;
        let (bytes, child) = (left.len(), right.addr());
        let split =
            page::split(left.bytes_mut(0..bytes), right.bytes_mut(0..bytes), &cut, child.to_u64());
        if let Err(damage) = split {
            give_back_new(engine, right);
            return Err(TreeError::damaged(left_addr)(damage));
        }
        let side = if pending.separator < cut.separator { &mut left } else { &mut right };
        let inserted = insert_separator(side, pending);
        // The log has both halves or neither.
        change_together([&mut left, &mut right]);
        if !inserted? {
            let what = "no room for a separator in a page just split";
            return Err(TreeError::Corrupt { addr: left_addr, what });
        }
        let level = pending.level + 1;
        Ok(PendingPost { level, separator: cut.separator, child, seen: None })
    }

    /// Moves both halves of the full root into new pages, a level below the root.
    async fn grow_root(
        &self,
        engine: &Engine,
        mut root: ExclusiveGuard<'_>,
        separator: &[u8],
    ) -> Result<(), TreeError> {
        let damaged = TreeError::damaged(root.addr());
        let source = root.to_vec();
        let planned = PageView::parse(&source)
            .and_then(|view| Ok((page::choose_cut(&view, separator, CHILD)?, view.level())));
        let (cut, level) = match planned {
            Ok(planned) => planned,
            Err(damage) => return Err(damaged(damage)),
        };
        let left = NewPage::allocate(engine).await?;
        let mut right = engine.allocate().await?;
        let mut left = left.keep();
        let (left_addr, right_addr) = (left.addr(), right.addr());
        let mut bytes = vec![0; source.len()];
        let built = page::split_into(
            &source,
            left.bytes_mut(0..source.len()),
            right.bytes_mut(0..source.len()),
            &cut,
            right_addr.to_u64(),
        )
        .and_then(|()| {
            let level = level.checked_add(1).ok_or(Damage("too many levels"))?;
            let spec = PageSpec { level, ..PageSpec::default() };
            let children = [left_addr.to_u64().to_le_bytes(), right_addr.to_u64().to_le_bytes()];
            let keys = [&[][..], &cut.separator];
            let entries = keys.into_iter().zip(children.iter().map(|child| &child[..]));
            page::format(&mut bytes, &spec, entries)
        });
        if let Err(damage) = built {
            give_back_new(engine, left);
            give_back_new(engine, right);
            return Err(damaged(damage));
        }
        root.bytes_mut(0..source.len()).copy_from_slice(&bytes);
        change_together([&mut root, &mut left, &mut right]);
        Ok(())
    }
}

/// Inserts the separator if it is not there. `false`: no room.
fn insert_separator(
    parent: &mut ExclusiveGuard<'_>,
    pending: &PendingPost,
) -> Result<bool, TreeError> {
    let addr = parent.addr();
    let found = PageView::parse(parent)
        .and_then(|view| view.search(&pending.separator))
        .map_err(TreeError::damaged(addr))?;
    let Err(slot) = found else { return Ok(true) };
    let child = pending.child.to_u64().to_le_bytes();
    match page::insert(parent, slot, &pending.separator, &child) {
        Ok(()) => Ok(true),
        Err(NoRoomOr::NoRoom) => Ok(false),
        Err(NoRoomOr::Damage(damage)) => Err(TreeError::damaged(addr)(damage)),
    }
}
