//! Which leaves lie ahead, as the inner pages say that are cached: for callers that fetch leaves
//! before they need them.
//!
//! Nothing here waits. Of a way through inner pages that are not cached the first of these is
//! [prefetched](Engine::prefetch). Addresses are those of a moment ago, as from
//! [`Tree::locate`]: the caller holds an epoch pin from before the call until it is done with them.

use selkie_engine::{Engine, GAddr, SharedGuard};
use std::ops::Bound;

use crate::leaf::target_before;
use crate::page::{PageView, Placement, Target};
use crate::scan::Direction;
use crate::tree::Tree;

/// Pages on the way from the root to the parent of a leaf, right links included: beyond that the
/// way is left to those who wait.
const MAX_STEPS: usize = 64;

/// Inner pages beside each other that are looked at for leaves.
const MAX_PARENTS: usize = 4;

/// What a scan still has to read when it leaves a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestOfScan<'a> {
    /// The fence at which the leaf ends: forwards keys from here on remain, in reverse those below.
    pub from: &'a [u8],
    /// Where the scan ends: before this key, or in reverse with it. `None`: where the tree does.
    pub until: Option<&'a [u8]>,
    /// Which way it goes.
    pub direction: Direction,
}

impl Tree {
    /// Calls `found` with the number of each key in `keys`, and the leaf that held it just now,
    /// where that is known. Keys that are in order are found faster.
    pub fn locate_cached<'k>(
        &self,
        engine: &Engine,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut found: impl FnMut(usize, GAddr),
    ) {
        let mut parent: Option<SharedGuard<'_>> = None;
        for (at, key) in keys.into_iter().enumerate() {
            let target = Target::At(key);
            let is_here = |page: &SharedGuard<'_>| {
                PageView::parse(page).is_ok_and(|view| view.place(target) == Placement::Here)
            };
            if !parent.as_ref().is_some_and(is_here) {
                parent = self.cached_parent(engine, target);
            }
            let child = parent.as_ref().and_then(|page| child_of(page, target));
            if let Some((_, child)) = child {
                found(at, child);
            }
        }
    }

    /// At most `most` of the leaves that a scan comes to next, in its order. Returns whether an
    /// inner page is being fetched that leads to more.
    pub fn leaves_ahead(
        &self,
        engine: &Engine,
        rest: RestOfScan<'_>,
        most: usize,
        leaves: &mut Vec<GAddr>,
    ) -> bool {
        let RestOfScan { from, until, direction } = rest;
        leaves.clear();
        let mut target = match direction {
            Direction::Forward => Target::At(from),
            Direction::Reverse => target_before(Bound::Excluded(from)),
        };
        let mut edge = Vec::new();
        for _ in 0..MAX_PARENTS {
            let parent = match self.cached_page(engine, target) {
                Ok(parent) => parent,
                Err(missing) => return missing.is_some_and(|addr| engine.prefetch(addr)),
            };
            let Ok(view) = PageView::parse(&parent) else { return false };
            let Some((slot, _)) = child_of(&parent, target) else { return false };
            let is_within = |slot| children_are_within(&view, slot, until, direction);
            let slots: &mut dyn Iterator<Item = usize> = match direction {
                Direction::Forward => &mut (slot..view.len()),
                Direction::Reverse => &mut (0..=slot).rev(),
            };
            for (at, slot) in slots.enumerate() {
                if leaves.len() >= most || (at > 0 && !is_within(slot)) {
                    return false;
                }
                let Ok(child) = view.child(slot) else { return false };
                leaves.push(GAddr::from_u64(child));
            }
            edge.clear();
            edge.extend_from_slice(match direction {
                Direction::Forward => view.high(),
                Direction::Reverse => view.low(),
            });
            let is_beyond = until.is_some_and(|until| match direction {
                Direction::Forward => *edge >= *until,
                Direction::Reverse => *edge <= *until,
            });
            if edge.is_empty() || is_beyond || leaves.len() >= most {
                return false;
            }
            target = match direction {
                Direction::Forward => Target::At(&edge),
                Direction::Reverse => Target::Before(&edge),
            };
        }
        false
    }

    /// The page of level 1 that covers `target`, if all pages on the way are cached; else the first
    /// that is not is being fetched.
    fn cached_parent<'e>(&self, engine: &'e Engine, target: Target<'_>) -> Option<SharedGuard<'e>> {
        match self.cached_page(engine, target) {
            Ok(parent) => Some(parent),
            Err(missing) => {
                if let Some(addr) = missing {
                    engine.prefetch(addr);
                }
                None
            }
        }
    }

    /// The same; else the first page that is not cached, if the way is as it should be up to there.
    fn cached_page<'e>(
        &self,
        engine: &'e Engine,
        target: Target<'_>,
    ) -> Result<SharedGuard<'e>, Option<GAddr>> {
        let mut addr = self.root();
        for _ in 0..MAX_STEPS {
            let page = engine.shared_hit(addr).ok_or(Some(addr))?;
            let view = PageView::parse(&page).map_err(|_| None)?;
            addr = match view.place(target) {
                Placement::Here if view.level() == 1 => return Ok(page),
                Placement::Here if view.level() > 1 => child_of(&page, target).ok_or(None)?.1,
                Placement::Right => GAddr::from_u64(view.header().right),
                Placement::Here | Placement::Elsewhere => return Err(None),
            };
        }
        Err(None)
    }
}

/// The child for a target that an inner page covers, and its slot.
fn child_of(page: &SharedGuard<'_>, target: Target<'_>) -> Option<(usize, GAddr)> {
    let view = PageView::parse(page).ok()?;
    let slot = view.child_slot(target).ok()?;
    Some((slot, GAddr::from_u64(view.child(slot).ok()?)))
}

/// Whether the child in a slot, which is beside one that is, may have keys up to `until`.
fn children_are_within(
    view: &PageView<'_>,
    slot: usize,
    until: Option<&[u8]>,
    direction: Direction,
) -> bool {
    let Some(until) = until else { return true };
    let mut separator = Vec::new();
    match direction {
        // It begins at its separator.
        Direction::Forward => view.key_into(slot, &mut separator).is_ok() && *separator < *until,
        // It ends at that of the next.
        Direction::Reverse => {
            view.key_into(slot + 1, &mut separator).is_ok() && *separator > *until
        }
    }
}
