//! Leaves as transactions use them: a view of the rows and the edits under an exclusive latch.
//!
//! The holder of a leaf's latch alone changes it. The address of a leaf may be stale by
//! the time the latch is there: [`LeafView::where_is`] says whether the key still belongs to
//! this leaf, and every edit must follow such a check under the same latch.

use std::ops::{Bound, Range};

use selkie_engine::{ExclusiveGuard, GAddr};

use crate::error::{NoRoom, TreeError};
use crate::page::{self, PageView, Placement, Stamps, Target};

/// Where a key is, seen from one latched leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyLocation {
    /// In this leaf: the slot of the key, or the slot where it would go.
    Here(Result<usize, usize>),
    /// The leaf was split: continue at its right neighbour.
    Right(GAddr),
    /// The leaf is dead or too far right: locate the key again from the root.
    Elsewhere,
}

/// A leaf's bytes, read under its latch.
#[derive(Debug, Clone, Copy)]
pub struct LeafView<'a> {
    page: PageView<'a>,
}

impl<'a> LeafView<'a> {
    /// Reads the bytes of a latched leaf. Constant time: only the header is checked here, each
    /// access checks what it touches.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] without an address: add it by [`TreeError::at`].
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, TreeError> {
        let page = PageView::parse(bytes)?;
        if page.level() != 0 {
            return Err(TreeError::Corrupt { addr: GAddr::NULL, what: "an inner page as a leaf" });
        }
        Ok(Self { page })
    }

    /// Where `key` is.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] without an address.
    #[inline]
    pub fn where_is(&self, key: &[u8]) -> Result<KeyLocation, TreeError> {
        Ok(match self.page.place(Target::At(key)) {
            Placement::Here => KeyLocation::Here(self.page.search(key)?),
            Placement::Right => KeyLocation::Right(self.right()),
            Placement::Elsewhere => KeyLocation::Elsewhere,
        })
    }

    /// Where the greatest key below `bound` is, for reverse scans. `Here(Ok(slot))` is that row;
    /// `Here(Err(0))` says that this is the right leaf but it holds none: continue with
    /// [`Tree::locate_before`](crate::Tree::locate_before) of the excluded [low
    /// fence](Self::low_fence), unless that is empty.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] without an address.
    pub fn where_is_before(&self, bound: Bound<&[u8]>) -> Result<KeyLocation, TreeError> {
        let target = target_before(bound);
        let above = match self.page.place(target) {
            Placement::Right => return Ok(KeyLocation::Right(self.right())),
            Placement::Elsewhere => return Ok(KeyLocation::Elsewhere),
            Placement::Here => self.page.slots_below(target)?,
        };
        Ok(KeyLocation::Here(above.checked_sub(1).ok_or(0)))
    }

    /// Rows in the leaf.
    #[inline]
    pub fn len(&self) -> usize {
        self.page.len()
    }

    /// Whether the leaf has no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How much less than underfull the leaf is, in a few steps: 0 if it is not, the most if it has
    /// no rows. A change after which it is greater than before is one after which to call
    /// [`Tree::reclaim`](crate::Tree::reclaim). Constant time.
    #[inline]
    pub fn underfill(&self) -> u8 {
        page::underfill(&self.page)
    }

    /// Replaces the contents of `key` by the whole key in `slot`.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] without an address, also for a slot the leaf does not have.
    pub fn key_into(&self, slot: usize, key: &mut Vec<u8>) -> Result<(), TreeError> {
        Ok(self.page.key_into(slot, key)?)
    }

    /// The value in `slot`.
    ///
    /// # Errors
    /// As [`LeafView::key_into`].
    #[inline]
    pub fn value(&self, slot: usize) -> Result<&'a [u8], TreeError> {
        Ok(self.page.cell(slot)?.value)
    }

    /// Where in the page's bytes the value of `slot` lies, for changing it in place.
    ///
    /// # Errors
    /// As [`LeafView::key_into`].
    pub fn value_range(&self, slot: usize) -> Result<Range<usize>, TreeError> {
        Ok(self.page.value_range(slot)?)
    }

    /// Bytes a new row can still take, its 10 bytes of slot and cell header included.
    pub fn free_bytes(&self) -> usize {
        self.page.free_bytes() + usize::from(self.page.header().garbage)
    }

    /// The right neighbour, null for the last leaf.
    pub fn right(&self) -> GAddr {
        GAddr::from_u64(self.page.header().right)
    }

    /// Inclusive lower bound of the keys that belong here; empty for the first leaf.
    pub fn low_fence(&self) -> &'a [u8] {
        self.page.low()
    }

    /// ExclusiveLatch upper bound of the keys that belong here; `None` for the last leaf.
    pub fn high_fence(&self) -> Option<&'a [u8]> {
        Some(self.page.high()).filter(|high| !high.is_empty())
    }

    /// The latest transactions that have used the leaf, if they are ordered by timestamps.
    pub fn stamps(&self) -> Stamps {
        self.page.header().stamps
    }

    /// Whether rows of the leaf's range may be locked: see [`leaf_mark_locked`].
    #[inline]
    pub fn may_be_locked(&self) -> bool {
        self.page.may_be_locked()
    }

    /// Whether the leaf was unlinked from the tree.
    pub fn is_dead(&self) -> bool {
        self.page.is_dead()
    }
}

/// How a bound from above is routed.
pub(crate) fn target_before(bound: Bound<&[u8]>) -> Target<'_> {
    match bound {
        Bound::Included(key) => Target::At(key),
        Bound::Excluded(key) => Target::Before(key),
        Bound::Unbounded => Target::End,
    }
}

/// Inserts a row that [`LeafView::where_is`] placed here and did not find.
///
/// # Errors
/// [`NoRoom`] when the leaf is full by bytes or holds its tree's `max_leaf_rows`; also when the
/// page is damaged, which [`Tree::split_leaf`](crate::Tree::split_leaf) then reports.
///
/// # Panics
/// When the key is in the leaf already or outside its fences: the caller skipped the check.
pub fn leaf_insert(leaf: &mut ExclusiveGuard<'_>, key: &[u8], value: &[u8]) -> Result<(), NoRoom> {
    let view = PageView::parse(leaf).map_err(|_| NoRoom)?;
    assert!(view.place(Target::At(key)) == Placement::Here, "a row outside the leaf's fences");
    let found = view.search(key).map_err(|_| NoRoom)?;
    if u32::from(view.header().count) >= view.header().extra {
        return Err(NoRoom);
    }
    let Err(slot) = found else { panic!("a row that is in the leaf already") };
    page::insert(leaf, slot, key, value).map_err(|_| NoRoom)
}

/// Gives the row in `slot` another value. A value of the same length is written in place and
/// dirties only its own bytes.
///
/// # Errors
/// As [`leaf_insert`]; also when the leaf has no such slot.
pub fn leaf_replace(
    leaf: &mut ExclusiveGuard<'_>,
    slot: usize,
    value: &[u8],
) -> Result<(), NoRoom> {
    let range =
        PageView::parse(leaf).and_then(|view| view.value_range(slot)).map_err(|_| NoRoom)?;
    if range.len() == value.len() {
        leaf.bytes_mut(range).copy_from_slice(value);
        return Ok(());
    }
    page::replace(leaf, slot, value).map_err(|_| NoRoom)
}

/// Removes the row in `slot`. When the leaf is [emptier](LeafView::underfill) afterwards, call
/// [`Tree::reclaim`](crate::Tree::reclaim) once no latch is held.
///
/// # Errors
/// [`TreeError::Corrupt`] when the leaf has no such slot or is damaged; the row then stays.
pub fn leaf_remove(leaf: &mut ExclusiveGuard<'_>, slot: usize) -> Result<(), TreeError> {
    page::remove(leaf, slot).map_err(TreeError::damaged(leaf.addr()))
}

/// Gives a leaf other stamps. A change as any other; only their bytes become dirty.
///
/// # Panics
/// When the page is no leaf: the caller skipped the check.
pub fn leaf_stamp(leaf: &mut ExclusiveGuard<'_>, stamps: Stamps) {
    assert!(LeafView::new(leaf).is_ok(), "stamps for what is no leaf");
    let (range, bytes) = page::stamp(stamps);
    leaf.bytes_mut(range).copy_from_slice(&bytes);
}

/// Notes that rows of a leaf's range may be locked, or that none is. The mark stays with the range:
/// both halves of a split have it, and a leaf that takes over a marked neighbour. A change as any
/// other; one byte becomes dirty.
///
/// # Errors
/// [`TreeError::Corrupt`] when the page is damaged.
pub fn leaf_mark_locked(leaf: &mut ExclusiveGuard<'_>, may_be: bool) -> Result<(), TreeError> {
    page::mark_locked(leaf, may_be).map_err(TreeError::damaged(leaf.addr()))
}
