//! Stand-alone operations: each latches one leaf for its own duration.
//!
//! For callers that need no transaction (loaders, catalogues, tests), and the pattern that
//! transactions follow with the same building blocks: locate, latch, check, edit, split if there is
//! no room; post and reclaim once the latches are gone.
//!
//! On cached pages no operation waits for anything: a task that does nothing else must let others
//! run from time to time (`engine.env().yield_now()`), the engine's own tasks among them.

use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr, change_together};

use crate::error::TreeError;
use crate::latch::{ExclusiveLatch, SharedLatch};
use crate::leaf::{leaf_insert, leaf_remove, leaf_replace};
use crate::page::{self, PageView, Placement, Target, max_key, max_value};
use crate::reclaim::StampRule;
use crate::split::PendingPost;
use crate::tree::Tree;

/// Waits for freed pages in one write: others may take the pages that it waited for.
const WAITS_FOR_PAGES: u32 = 8;

/// Whether a write may insert a row, and whether it may replace one.
#[derive(Debug, Clone, Copy)]
struct WritePolicy {
    insert: bool,
    replace: bool,
}

/// What becomes of a row: see [`Tree::modify`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueChange {
    /// Nothing.
    Keep,
    /// It has this value, and is there.
    Set(Vec<u8>),
    /// It is not there.
    Remove,
}

impl Tree {
    /// The value of `key`. A heap allocation for the copy only; no round trip when cached.
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn get(&self, engine: &Engine, key: &[u8]) -> Result<Option<Vec<u8>>, TreeError> {
        self.get_with(engine, key, <[u8]>::to_vec).await
    }

    /// Calls `read` with the value of `key`, under the leaf's shared latch. No heap allocation.
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn get_with<R>(
        &self,
        engine: &Engine,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, TreeError> {
        let _pin = engine.pin();
        let (leaf, addr, _) = self.find_leaf::<SharedLatch>(engine, Target::At(key), None).await?;
        let value = PageView::parse(&leaf).and_then(|view| match view.search(key)? {
            Ok(slot) => Ok(Some(view.cell(slot)?.value)),
            Err(_) => Ok(None),
        });
        Ok(value.map_err(TreeError::damaged(addr))?.map(read))
    }

    /// Inserts a row.
    ///
    /// # Errors
    /// [`TreeError::Duplicate`] if the key is there; [`TreeError::KeyTooLong`],
    /// [`TreeError::ValueTooLong`]; [`TreeError::Engine`] (pool full, timeout); as
    /// [`Tree::locate`]. The row is not in the tree after any of them.
    pub async fn insert(&self, engine: &Engine, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let policy = WritePolicy { insert: true, replace: false };
        match self.write(engine, key, value, policy).await? {
            true => Ok(()),
            false => Err(TreeError::Duplicate),
        }
    }

    /// Inserts a row or replaces its value.
    ///
    /// # Errors
    /// As [`Tree::insert`], without `Duplicate`.
    pub async fn upsert(&self, engine: &Engine, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let policy = WritePolicy { insert: true, replace: true };
        self.write(engine, key, value, policy).await.map(drop)
    }

    /// Replaces the value of a row; `false` if there is no such row.
    ///
    /// # Errors
    /// As [`Tree::upsert`].
    pub async fn update(
        &self,
        engine: &Engine,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, TreeError> {
        self.write(engine, key, value, WritePolicy { insert: false, replace: true }).await
    }

    /// Removes a row; `false` if there is none. Merges the leaf with a sibling if it has become
    /// empty or underfull.
    ///
    /// # Errors
    /// As [`Tree::locate`].
    pub async fn delete(&self, engine: &Engine, key: &[u8]) -> Result<bool, TreeError> {
        let _pin = engine.pin();
        let (mut leaf, addr, _) =
            self.find_leaf::<ExclusiveLatch>(engine, Target::At(key), None).await?;
        let (found, before) = PageView::parse(&leaf)
            .and_then(|view| Ok((view.search(key)?, page::underfill(&view))))
            .map_err(TreeError::damaged(addr))?;
        let Ok(slot) = found else { return Ok(false) };
        leaf_remove(&mut leaf, slot)?;
        self.release_shrunk(engine, leaf, before, key).await?;
        Ok(true)
    }

    /// Changes the row of `key` as `change` says, which sees its value, if there is one, under the
    /// leaf's exclusive latch: atomically, for all nodes. `change` may be called several times; the
    /// result of the last call is returned, whose change was made. If the future is dropped, the
    /// change was made as a whole or not at all.
    ///
    /// # Errors
    /// As [`Tree::upsert`]. The row is as it was after any of them.
    pub async fn modify<R>(
        &self,
        engine: &Engine,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> (ValueChange, R),
    ) -> Result<R, TreeError> {
        let mut waits = 0;
        loop {
            let failure = {
                let _pin = engine.pin();
                let (mut leaf, addr, _) =
                    self.find_leaf::<ExclusiveLatch>(engine, Target::At(key), None).await?;
                let view = PageView::parse(&leaf).map_err(TreeError::damaged(addr))?;
                let before = page::underfill(&view);
                let slot = view.search(key).map_err(TreeError::damaged(addr))?;
                let value = slot.ok().map(|slot| view.cell(slot)).transpose();
                let value = value.map_err(TreeError::damaged(addr))?.map(|cell| cell.value);
                let (change, returned) = change(value);
                let value_bytes = match (&change, slot) {
                    (ValueChange::Keep, _) | (ValueChange::Remove, Err(_)) => return Ok(returned),
                    (ValueChange::Remove, Ok(slot)) => {
                        leaf_remove(&mut leaf, slot)?;
                        self.release_shrunk(engine, leaf, before, key).await?;
                        return Ok(returned);
                    }
                    (ValueChange::Set(value), slot) => {
                        check_size(engine, key, value)?;
                        let written = match slot {
                            Ok(slot) => leaf_replace(&mut leaf, slot, value),
                            Err(_) => leaf_insert(&mut leaf, key, value),
                        };
                        if written.is_ok() {
                            self.release_shrunk(engine, leaf, before, key).await?;
                            return Ok(returned);
                        }
                        value.len()
                    }
                };
                // No room: split, and look again, as others may have been there since.
                let split = self.split_leaf(engine, &mut leaf, key, value_bytes).await;
                match split {
                    Ok((mut right, post)) => {
                        change_together([&mut leaf, &mut right]);
                        drop((leaf, right));
                        tidied(self.post(engine, post).await)?;
                        continue;
                    }
                    Err(error) => error,
                }
            };
            match failure {
                TreeError::Engine(EngineError::FreedInUse) if waits < WAITS_FOR_PAGES => {
                    waits += 1;
                    engine.until_freed_is_released().await;
                }
                error => return Err(error),
            }
        }
    }

    /// Calls `read` with the first entry whose key is `from` or above, or with `None`. For a caller
    /// that holds other pages, none of this tree: it waits for no recovery from a node's death.
    ///
    /// # Errors
    /// `Busy` if a recovery is in the way; else as [`Tree::locate`].
    pub async fn first_in_order<R>(
        &self,
        engine: &Engine,
        from: &[u8],
        read: impl FnOnce(Option<(&[u8], &[u8])>) -> R,
    ) -> Result<R, TreeError> {
        let _pin = engine.pin();
        let mut addr = self.locate_in_order(engine, from).await?;
        // The merge of a leaf that was on its way is met by the caller's next attempt.
        let busy = |addr| TreeError::Engine(EngineError::Busy { addr });
        let mut has_moved = false;
        loop {
            let leaf = engine.shared_in_order(addr).await?;
            let view = PageView::parse(&leaf).map_err(TreeError::damaged(addr))?;
            let slot = match view.place(Target::At(from)) {
                _ if view.is_dead() => return Err(busy(addr)),
                Placement::Here => match view.search(from).map_err(TreeError::damaged(addr))? {
                    Ok(slot) | Err(slot) => slot,
                },
                Placement::Right => view.len(),
                Placement::Elsewhere if has_moved => 0,
                Placement::Elsewhere => return Err(busy(addr)),
            };
            if slot < view.len() {
                let mut key = Vec::new();
                view.key_into(slot, &mut key).map_err(TreeError::damaged(addr))?;
                let cell = view.cell(slot).map_err(TreeError::damaged(addr))?;
                return Ok(read(Some((&key, cell.value))));
            }
            if view.header().right == 0 {
                return Ok(read(None));
            }
            addr = GAddr::from_u64(view.header().right);
            has_moved = true;
        }
    }

    /// Writes a row as the policy allows; `false` if it does not. Where only pages that readers may
    /// still use would make room, waits for those without a latch.
    async fn write(
        &self,
        engine: &Engine,
        key: &[u8],
        value: &[u8],
        policy: WritePolicy,
    ) -> Result<bool, TreeError> {
        check_size(engine, key, value)?;
        let mut waits = 0;
        loop {
            match self.write_once(engine, key, value, policy).await {
                Err(TreeError::Engine(EngineError::FreedInUse)) if waits < WAITS_FOR_PAGES => {
                    waits += 1;
                    engine.until_freed_is_released().await;
                }
                result => return result,
            }
        }
    }

    async fn write_once(
        &self,
        engine: &Engine,
        key: &[u8],
        value: &[u8],
        policy: WritePolicy,
    ) -> Result<bool, TreeError> {
        let _pin = engine.pin();
        let (mut leaf, _, strayed) =
            self.find_leaf::<ExclusiveLatch>(engine, Target::At(key), None).await?;
        let mut posts = Vec::new();
        let view = PageView::parse(&leaf).map_err(TreeError::damaged(leaf.addr()))?;
        let before = page::underfill(&view);
        if strayed {
            posts.push(PendingPost::found_missing(view.low()));
        }
        let written = loop {
            let damaged = TreeError::damaged(leaf.addr());
            let found =
                PageView::parse(&leaf).and_then(|view| view.search(key)).map_err(damaged)?;
            let written = match found {
                Ok(slot) if policy.replace => leaf_replace(&mut leaf, slot, value),
                Err(_) if policy.insert => leaf_insert(&mut leaf, key, value),
                _ => break false,
            };
            if written.is_ok() {
                break true;
            }
            // Every round leaves fewer rows on the key's side, or shorter fences.
            match self.split_leaf(engine, &mut leaf, key, value.len()).await {
                Ok((right, post)) => {
                    posts.push(post);
                    leaf = side_of(key, leaf, right)?;
                }
                Err(error) => {
                    drop(leaf);
                    self.post_all(engine, posts).await?;
                    return Err(error);
                }
            }
        };
        let was_split = !posts.is_empty();
        if was_split {
            drop(leaf);
        } else {
            self.release_shrunk(engine, leaf, before, key).await?;
        }
        self.post_all(engine, posts).await?;
        Ok(written)
    }

    /// Releases the leaf of `key`, and merges it with a sibling if it has become emptier than it
    /// was `before`.
    async fn release_shrunk(
        &self,
        engine: &Engine,
        leaf: ExclusiveGuard<'_>,
        before: u8,
        key: &[u8],
    ) -> Result<(), TreeError> {
        let view = PageView::parse(&leaf).map_err(TreeError::damaged(leaf.addr()))?;
        let is_emptier = page::underfill(&view) > before;
        drop(leaf);
        if is_emptier {
            tidied(self.reclaim(engine, key, StampRule::Latest).await.map(drop))?;
        }
        Ok(())
    }

    /// Posts what an operation left for the parents.
    async fn post_all(&self, engine: &Engine, posts: Vec<PendingPost>) -> Result<(), TreeError> {
        for post in posts {
            tidied(self.post(engine, post).await)?;
        }
        Ok(())
    }
}

/// Keeps the one of two neighbours that `key` belongs to and releases the other.
fn side_of<'e>(
    key: &[u8],
    mut left: ExclusiveGuard<'e>,
    mut right: ExclusiveGuard<'e>,
) -> Result<ExclusiveGuard<'e>, TreeError> {
    // The log has both halves or neither.
    change_together([&mut left, &mut right]);
    let view = PageView::parse(&left).map_err(TreeError::damaged(left.addr()))?;
    Ok(if view.place(Target::At(key)) == Placement::Here { left } else { right })
}

/// The result of work that only keeps the tree in shape, after an operation that has succeeded: it
/// may fail (the tree is valid without it, and a later operation tries again) unless a page is
/// damaged.
fn tidied(result: Result<(), TreeError>) -> Result<(), TreeError> {
    match result {
        Err(error @ TreeError::Corrupt { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Refuses rows that no page takes.
pub(crate) fn check_size(engine: &Engine, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
    let page = engine.page_bytes();
    if key.len() > max_key(page) {
        return Err(TreeError::KeyTooLong { bytes: key.len(), max: max_key(page) });
    }
    let (bytes, max) = (value.len(), max_value(page, key.len()));
    if bytes > max {
        return Err(TreeError::ValueTooLong { bytes, max, key_bytes: key.len() });
    }
    Ok(())
}
