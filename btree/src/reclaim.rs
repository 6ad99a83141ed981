//! Giving back pages that deletes have left empty or underfull: merging them with a sibling.
//!
//! [`Tree::reclaim`] begins at the leaf of a key and climbs while the page above has become
//! underfull as well. On each level a first look, with shared latches that are only tried, says
//! whether the page and a sibling below the same parent fit one page; only then are the three
//! latched exclusively ([`crate::merge`]). At last, a root with a single inner page below takes its
//! place: the tree is a level lower, and the root's address stays.
//!
//! A leaf without rows goes wherever its range fits, also the first below its parent. The only leaf
//! below a parent gets siblings first: its parent, with one child, is merged with a neighbour, or
//! takes half of that one's children.
//!
//! # What happens in one step
//!
//! Three pages change together: the parent loses a separator, the left of two siblings takes over
//! the range, the right link and the entries of the right one, and that one is marked dead. All
//! three are one change of the log, so a recovery finds all of it or nothing. The parent's latch is
//! waited for while nothing else is held; the two siblings are only *tried*: a transaction that
//! holds a leaf may be waiting for an inner page, and an operation that holds an inner page waits
//! for nothing. If one is in use, reclaim gives up: an underfull page is harmless, and the caller
//! may try again later.
//!
//! # Why others do not notice
//!
//! A page that is looked for is found by its range. Readers on their way to the dead page hold an
//! epoch pin from before it was unlinked, so its address is not used for another page before they
//! have seen the mark and started again at the root; so do readers that come to a page that begins
//! behind their key. A reader that latches one page at a time meets each row once: both pages
//! change under their latches, and a reader of the left one before continues from its old high
//! fence, wherever that lies now. A transaction that holds a leaf relies on its range, and its
//! latch keeps the leaf from being merged. Why no separator is posted for a page that is gone:
//! [`crate::post`].
//!
//! What the stamps of leaves mean is the transaction layer's concern, so it says whether two leaves
//! may become one: [`StampRule`].
//!
//! What stays: a page whose siblings are too full; one beside a page that its parent does not know,
//! as the separator of an inner page was lost; one that fits no sibling, as the common prefix would
//! get shorter, where the parent has no room for another separator either.

use selkie_engine::{Engine, Stamp};

use crate::error::TreeError;
use crate::merge::{MergeStep, Obstacle};
use crate::page::Stamps;
use crate::split::PendingPost;
use crate::tree::{MAX_HEIGHT, Tree};

/// Most changes of one call, each of which frees a page, or divides the entries of two.
const CHANGES: u32 = 4 * MAX_HEIGHT as u32;

/// Whether two leaves may become one, and the stamps that one gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StampRule {
    /// Always. It gets the later stamps of both.
    Latest,
    /// Only if neither was changed after the horizon, else [`Reclaimed::Postponed`]. It gets the
    /// later write stamp, and zero in place of the read stamp: for transactions that keep a link
    /// to an earlier image there, which none needs of a leaf that was changed so long ago.
    Above {
        /// The latest write stamp that a leaf may have.
        horizon: Stamp,
    },
}

impl StampRule {
    /// The stamps of two leaves that become one, if they may.
    pub(crate) fn join(self, left: Stamps, right: Stamps) -> Option<Stamps> {
        let latest = left.latest(right);
        match self {
            Self::Latest => Some(latest),
            Self::Above { horizon } => {
                (latest.write <= horizon).then_some(Stamps { read: Stamp::default(), ..latest })
            }
        }
    }
}

/// What became of the pages on the way to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reclaimed {
    /// Pages were freed, and no more can be now.
    Freed,
    /// A page or its sibling is latched: another attempt may free one.
    InUse,
    /// The stamps of two leaves forbid it for now: another attempt may free one.
    Postponed,
    /// No page can be freed, or needs to be.
    Stays,
}

impl Tree {
    /// Merges the leaf of `key` with siblings if it is empty or
    /// [underfull](crate::LeafView::underfill), and then the pages above. The caller holds no
    /// latch. Where nothing can be merged it latches a few pages shared, and waits for inner ones
    /// only.
    ///
    /// # Errors
    /// As [`Tree::locate`]; never for a page in use. The tree is valid after every error.
    pub async fn reclaim(
        &self,
        engine: &Engine,
        key: &[u8],
        rule: StampRule,
    ) -> Result<Reclaimed, TreeError> {
        let _pin = engine.pin();
        let (mut has_freed, mut obstacle) = (false, None);
        // Again from the leaf after a page that was alone below its parent got siblings.
        for _ in 0..MAX_HEIGHT {
            let climbed = self.climb(engine, key, rule).await?;
            has_freed |= climbed.has_changed;
            obstacle = climbed.obstacle;
            if !climbed.was_alone || !climbed.has_changed {
                break;
            }
        }
        for _ in 0..MAX_HEIGHT {
            match self.shrink_root(engine).await? {
                MergeStep::Changed => has_freed = true,
                MergeStep::Blocked(blocked) => obstacle = obstacle.or(Some(blocked)),
                _ => break,
            }
        }
        Ok(match obstacle {
            Some(Obstacle::InUse) => Reclaimed::InUse,
            Some(Obstacle::Stamps) => Reclaimed::Postponed,
            None if has_freed => Reclaimed::Freed,
            None => Reclaimed::Stays,
        })
    }

    /// Merges from the leaf of `key` upwards.
    async fn climb(
        &self,
        engine: &Engine,
        key: &[u8],
        rule: StampRule,
    ) -> Result<Climbed, TreeError> {
        let mut climbed = Climbed::default();
        let mut level = 1;
        for _ in 0..CHANGES {
            let looked = self.merge_below(engine, key, level, rule).await?;
            match looked.step {
                MergeStep::Changed => {
                    climbed.has_changed = true;
                    continue;
                }
                MergeStep::Unposted(separator) => {
                    self.post(engine, PendingPost::found_missing(&separator)).await?;
                    continue;
                }
                MergeStep::Blocked(obstacle) => {
                    climbed.obstacle = climbed.obstacle.or(Some(obstacle));
                }
                MergeStep::Alone => climbed.was_alone = true,
                MergeStep::Nothing => {}
            }
            if !looked.is_parent_underfull {
                break;
            }
            level += 1;
        }
        Ok(climbed)
    }
}

/// What a climb has come to.
#[derive(Default)]
struct Climbed {
    has_changed: bool,
    /// A page was alone below its parent.
    was_alone: bool,
    obstacle: Option<Obstacle>,
}
