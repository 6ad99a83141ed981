//! Merging two siblings on one level: the first look, and the change of three pages.
//! [`crate::reclaim`] has the argument.

use std::ops::Deref;

use selkie_engine::{Engine, ExclusiveGuard, GAddr, SharedGuard, change_together};

use crate::error::TreeError;
use crate::latch::{ExclusiveLatch, latch, try_exclusive};
use crate::leaf::leaf_stamp;
use crate::page::{self, Damage, Joint, PageView, Stamps, Target};
use crate::reclaim::StampRule;
use crate::tree::Tree;

/// What keeps two pages apart that would be merged, for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// One of them is latched.
    InUse,
    /// Their stamps.
    Stamps,
}

/// What came of a look at one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MergeStep {
    /// A page was freed, or two have divided their entries.
    Changed,
    Blocked(Obstacle),
    /// The page has no sibling below its parent.
    Alone,
    /// A leaf has a right neighbour of this low fence that the parent does not know.
    Unposted(Vec<u8>),
    Nothing,
}

/// A look at one level.
pub(crate) struct Looked {
    pub(crate) step: MergeStep,
    /// The page above may be merged, too. Never the root, which has no sibling.
    pub(crate) is_parent_underfull: bool,
}

/// A page and its siblings, as their parent knows them.
struct Siblings {
    own: GAddr,
    left: Option<GAddr>,
    right: Option<GAddr>,
    is_parent_underfull: bool,
}

/// Two siblings, named by their place beside the page of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pair {
    WithLeft,
    WithRight,
}

/// What two pages can do.
enum Verdict {
    Join(Joint, Stamps),
    Blocked(Obstacle),
    Unposted(Vec<u8>),
    Apart,
}

impl Tree {
    /// Merges the page of `key` below `level` with a sibling, if it is underfull and one of them
    /// has room.
    pub(crate) async fn merge_below(
        &self,
        engine: &Engine,
        key: &[u8],
        level: u8,
        rule: StampRule,
    ) -> Result<Looked, TreeError> {
        let looked = |step, is_parent_underfull| Ok(Looked { step, is_parent_underfull });
        let Some(siblings) = self.siblings(engine, key, level).await? else {
            return looked(MergeStep::Nothing, false);
        };
        let is_parent_underfull = siblings.is_parent_underfull;
        if siblings.left.is_none() && siblings.right.is_none() {
            return looked(MergeStep::Alone, is_parent_underfull);
        }
        let mut step = MergeStep::Nothing;
        for pair in [Pair::WithLeft, Pair::WithRight] {
            step = match look_at(engine, &siblings, pair, level, rule).await? {
                Verdict::Join(..) => match self.join(engine, key, level, pair, rule).await? {
                    MergeStep::Nothing => step,
                    joined => joined,
                },
                Verdict::Blocked(obstacle) => MergeStep::Blocked(obstacle),
                Verdict::Unposted(separator) => MergeStep::Unposted(separator),
                Verdict::Apart => step,
            };
            if matches!(step, MergeStep::Changed | MergeStep::Unposted(_)) {
                break;
            }
        }
        looked(step, is_parent_underfull)
    }

    /// Reads in the page of `level` what lies below for `key`. `None` if there is no such level.
    async fn siblings(
        &self,
        engine: &Engine,
        key: &[u8],
        level: u8,
    ) -> Result<Option<Siblings>, TreeError> {
        let parent = self.descend(engine, Target::At(key), level).await?;
        let is_root = parent.addr() == self.root();
        let read = |view: PageView<'_>| -> Result<Option<Siblings>, Damage> {
            if view.level() != level {
                return Ok(None);
            }
            let slot = view.child_slot(Target::At(key))?;
            let beside = |slot: Option<usize>| {
                let there = slot.filter(|slot| *slot < view.len());
                there.map(|slot| view.child(slot).map(GAddr::from_u64)).transpose()
            };
            Ok(Some(Siblings {
                own: GAddr::from_u64(view.child(slot)?),
                left: beside(slot.checked_sub(1))?,
                right: beside(Some(slot + 1))?,
                is_parent_underfull: !is_root && page::underfill(&view) > 0,
            }))
        };
        PageView::parse(&parent).and_then(read).map_err(TreeError::damaged(parent.addr()))
    }

    /// Latches parent and siblings exclusively, and makes the change if they are still as they were
    /// found.
    async fn join(
        &self,
        engine: &Engine,
        key: &[u8],
        level: u8,
        pair: Pair,
        rule: StampRule,
    ) -> Result<MergeStep, TreeError> {
        let Some(mut parent) = self.descend_exclusive(engine, key, level).await? else {
            return Ok(MergeStep::Nothing);
        };
        let mut separator = Vec::new();
        let found = PageView::parse(&parent).and_then(|view| {
            let own = view.child_slot(Target::At(key))?;
            // That of the right page.
            let slot = if pair == Pair::WithLeft { own } else { own + 1 };
            if slot == 0 || slot >= view.len() {
                return Ok(None);
            }
            view.key_into(slot, &mut separator)?;
            let [left, right] = [view.child(slot - 1)?, view.child(slot)?].map(GAddr::from_u64);
            Ok(Some((slot, left, right)))
        });
        let Some((slot, left, right)) = found.map_err(TreeError::damaged(parent.addr()))? else {
            return Ok(MergeStep::Nothing);
        };
        let Some(mut left) = try_exclusive(engine, left).await? else {
            return Ok(MergeStep::Blocked(Obstacle::InUse));
        };
        let Some(mut right) = try_exclusive(engine, right).await? else {
            return Ok(MergeStep::Blocked(Obstacle::InUse));
        };
        let (joint, stamps) =
            match judge((&left, left.addr()), (&right, right.addr()), level, rule)? {
                Verdict::Join(joint, stamps) => (joint, stamps),
                Verdict::Blocked(obstacle) => return Ok(MergeStep::Blocked(obstacle)),
                Verdict::Unposted(_) | Verdict::Apart => return Ok(MergeStep::Nothing),
            };
        let is_done = match joint {
            Joint::Merge => merge(&mut parent, slot, &mut left, &mut right)?,
            Joint::Share => share(&mut parent, slot, &mut left, &mut right)?,
            Joint::Apart => false,
        };
        if !is_done {
            return Ok(MergeStep::Nothing);
        }
        if level == 1 {
            leaf_stamp(&mut left, stamps);
            if joint == Joint::Share {
                leaf_stamp(&mut right, stamps);
            }
        }
        change_together([&mut parent, &mut left, &mut right]);
        if joint == Joint::Merge {
            engine.free(right);
        }
        Ok(MergeStep::Changed)
    }

    /// Gives the root the place of the inner page below it, if that is its only child and the only
    /// page of its level.
    pub(crate) async fn shrink_root(&self, engine: &Engine) -> Result<MergeStep, TreeError> {
        let root = self.descend(engine, Target::End, u8::MAX).await?;
        if only_child(&root).map_err(TreeError::damaged(self.root()))?.is_none() {
            return Ok(MergeStep::Nothing);
        }
        drop(root);
        let mut root = latch::<ExclusiveLatch>(engine, self.root()).await?;
        let Some(child) = only_child(&root).map_err(TreeError::damaged(self.root()))? else {
            return Ok(MergeStep::Nothing);
        };
        let Some(mut child) = try_exclusive(engine, child).await? else {
            return Ok(MergeStep::Blocked(Obstacle::InUse));
        };
        let (addr, bytes) = (child.addr(), child.len());
        let level = PageView::parse(&root).map_err(TreeError::damaged(self.root()))?.level();
        let fits = PageView::parse(&child).map(|view| {
            let is_only = view.low().is_empty() && view.high().is_empty();
            is_only && !view.is_dead() && view.level() + 1 == level
        });
        if !fits.map_err(TreeError::damaged(addr))? {
            return Ok(MergeStep::Nothing);
        }
        root.bytes_mut(0..bytes).copy_from_slice(&child);
        page::mark_dead(&mut child).map_err(TreeError::damaged(addr))?;
        change_together([&mut root, &mut child]);
        engine.free(child);
        Ok(MergeStep::Changed)
    }
}

/// The only child of a root, unless that is a leaf.
fn only_child(root: &[u8]) -> Result<Option<GAddr>, Damage> {
    let view = PageView::parse(root)?;
    if view.level() < 2 || view.len() != 1 {
        return Ok(None);
    }
    Ok(Some(GAddr::from_u64(view.child(0)?)))
}

/// The right page goes to the left one. `false` if it does not fit.
fn merge(
    parent: &mut ExclusiveGuard<'_>,
    slot: usize,
    left: &mut ExclusiveGuard<'_>,
    right: &mut ExclusiveGuard<'_>,
) -> Result<bool, TreeError> {
    let (above, behind) = (parent.addr(), right.addr());
    let absorbed = PageView::parse(right).map(|neighbour| page::absorb(left, &neighbour).is_ok());
    if !absorbed.map_err(TreeError::damaged(behind))? {
        return Ok(false);
    }
    page::remove(parent, slot)
        .and_then(|()| page::bump_removals(parent))
        .map_err(TreeError::damaged(above))?;
    page::mark_dead(right).map_err(TreeError::damaged(behind))?;
    Ok(true)
}

/// Both divide their entries. `false` if they do not fit, or the parent has no room for the new
/// separator.
fn share(
    parent: &mut ExclusiveGuard<'_>,
    slot: usize,
    left: &mut ExclusiveGuard<'_>,
    right: &mut ExclusiveGuard<'_>,
) -> Result<bool, TreeError> {
    let (above, behind) = (parent.addr(), right.addr().to_u64());
    let halves = PageView::parse(left).and_then(|before| {
        let after = PageView::parse(right)?;
        page::share(&before, &after, behind)
    });
    let Ok(halves) = halves else { return Ok(false) };
    let is_room = PageView::parse(parent)
        .and_then(|view| page::has_room_instead(&view, slot, &halves.separator));
    if !is_room.map_err(TreeError::damaged(above))? {
        return Ok(false);
    }
    let child = behind.to_le_bytes();
    page::remove(parent, slot)
        .and_then(|()| page::bump_removals(parent))
        .map_err(TreeError::damaged(above))?;
    if page::insert(parent, slot, &halves.separator, &child).is_err() {
        let what = "less room for a separator than was counted";
        return Err(TreeError::Corrupt { addr: above, what });
    }
    left.bytes_mut(0..halves.left.len()).copy_from_slice(&halves.left);
    right.bytes_mut(0..halves.right.len()).copy_from_slice(&halves.right);
    Ok(true)
}

/// Latches a page and its sibling shared, if they are free, and says what they can do.
async fn look_at(
    engine: &Engine,
    siblings: &Siblings,
    pair: Pair,
    level: u8,
    rule: StampRule,
) -> Result<Verdict, TreeError> {
    let (left, right) = match pair {
        Pair::WithLeft => (siblings.left, Some(siblings.own)),
        Pair::WithRight => (Some(siblings.own), siblings.right),
    };
    let (Some(left), Some(right)) = (left, right) else { return Ok(Verdict::Apart) };
    let Some(own) = try_shared(engine, siblings.own).await? else {
        return Ok(Verdict::Blocked(Obstacle::InUse));
    };
    let view = PageView::parse(&own).map_err(TreeError::damaged(siblings.own))?;
    if page::underfill(&view) == 0 {
        return Ok(Verdict::Apart);
    }
    let other = if pair == Pair::WithLeft { left } else { right };
    let Some(other) = try_shared(engine, other).await? else {
        return Ok(Verdict::Blocked(Obstacle::InUse));
    };
    match pair {
        Pair::WithLeft => judge((&other, left), (&own, right), level, rule),
        Pair::WithRight => judge((&own, left), (&other, right), level, rule),
    }
}

/// Latches a page shared if it is not latched otherwise now.
async fn try_shared(engine: &Engine, addr: GAddr) -> Result<Option<SharedGuard<'_>>, TreeError> {
    match engine.try_shared(addr).await {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.is_retryable() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What two pages below one of `level` can do, which their parent takes for neighbours.
fn judge<G: Deref<Target = [u8]>>(
    (left, left_addr): (&G, GAddr),
    (right, right_addr): (&G, GAddr),
    level: u8,
    rule: StampRule,
) -> Result<Verdict, TreeError> {
    let before = PageView::parse(left).map_err(TreeError::damaged(left_addr))?;
    let behind = PageView::parse(right).map_err(TreeError::damaged(right_addr))?;
    let is_of_level = |view: &PageView<'_>| view.level() + 1 == level && !view.is_dead();
    if !is_of_level(&before) || !is_of_level(&behind) {
        return Ok(Verdict::Apart);
    }
    if before.header().right != right_addr.to_u64() || before.high() != behind.low() {
        let is_between = !before.high().is_empty() && before.high() < behind.low();
        return Ok(match is_between && level == 1 {
            true => Verdict::Unposted(before.high().to_vec()),
            false => Verdict::Apart,
        });
    }
    let joint = page::joint(&before, &behind).map_err(TreeError::damaged(left_addr))?;
    Ok(match (joint, rule.join(before.header().stamps, behind.header().stamps)) {
        (Joint::Apart, _) => Verdict::Apart,
        (joint, Some(stamps)) => Verdict::Join(joint, stamps),
        (_, None) => Verdict::Blocked(Obstacle::Stamps),
    })
}
