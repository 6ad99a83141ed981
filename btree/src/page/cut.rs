//! Where a page is split.
//!
//! # Why a split always ends with room
//!
//! An entry may be as large as a leaf takes that has no other one ([`max_value`]). So a split
//! leaves its side fewer entries, and where no other is left, shorter fences.
//!
//! *The halves fit.* Take a leaf with two entries or more, and a cut between two of them. The left
//! half gets the separator in place of its high fence, and loses the entry that the separator is
//! the beginning of, or was made from: what that takes in the page, with its share of the prefix,
//! is more than the separator is longer than the old fence. The same holds of the right half, and
//! the last entry of the left one, which has all bytes of the separator but the last. The prefix of
//! either half is no shorter than it was.
//!
//! With the new entry between the two there are two separators, one on either side of it. The
//! shorter of the two is that of the cut between the entries that are there. The longer one may not
//! fit, so each cut is tried before it is taken.
//!
//! *With one entry*, large and with the new one beside it, a cut between the two may not fit: the
//! fence on the other side is longer than the entry needs. Then the page is cut on that side first.
//! The half without entries is harmless: it is what deletes leave behind, and merged as those are.
//! Likewise where the new entry is alone between fences that are too long for it.
//!
//! So each split either takes an entry away from the side of the new one, or makes one of its
//! fences as short as can be, which happens once for each.
//!
//! *Inner pages* have room for three children whatever their separators are
//! ([`max_key`](super::max_key)), so one without room for another has four with that. Here too each
//! cut is tried, with the separator that is to be posted; [`layout`](super::layout) has the sum by
//! which the best one fits. Either side gets two children if it can. Of four with the new one
//! between the two in the middle, one side gets three.
//!
//! [`max_value`]: super::max_value

use std::ops::Range;

use super::layout::{Damage, HEADER, SLOT, entry_bytes};
use super::view::PageView;

/// Where to split a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitPoint {
    /// Entries from this slot on go to the right page.
    pub(crate) at: usize,
    /// High fence of the left page and low fence of the right one.
    pub(crate) separator: Vec<u8>,
}

/// Chooses where to split `view` for `key`, which is to get a value of `value_bytes` and found no
/// room for it.
///
/// A key that goes at the end of the page cuts there: ascending inserts leave full pages behind,
/// and a leaf's right page starts empty or nearly so. Otherwise both sides, the new entry included,
/// come out as equal in bytes as they can. A leaf cut between entries leaves either side at most as
/// many rows as there were, the new one included; one at an end of them shortens a fence. A leaf's
/// separator is as short as the two keys beside it allow; an inner page's is the key of the right
/// page's first child.
pub(crate) fn choose_cut(
    view: &PageView<'_>,
    key: &[u8],
    value_bytes: usize,
) -> Result<SplitPoint, Damage> {
    let divided = Divided::new(view, key, value_bytes)?;
    let rows = view.len();
    let is_at_end = divided.new == Some(rows);
    if view.level() > 0 {
        // The last child alone, for separators that ascend.
        let last = is_at_end.then(|| rows.saturating_sub(1)).filter(|at| *at > 0);
        let cuts = || last.into_iter().chain(divided.balanced());
        // One child alone is of little use. It may be what makes the bytes equal: its key becomes a
        // fence, and takes nothing more.
        for least in [2, 1] {
            for at in cuts() {
                if let Some(cut) = divided.inner_cut(at, least)? {
                    return Ok(cut);
                }
            }
        }
        return Err(Damage("full inner page with fewer than two children"));
    }
    let ends = if is_at_end { rows } else { 0 };
    let sides = [0, divided.bytes.len()];
    for at in (1..=ends).rev().chain(divided.balanced()).chain(sides) {
        if let Some(cut) = divided.leaf_cut(at)? {
            return Ok(cut);
        }
    }
    Err(Damage("entry larger than a page can take"))
}

/// The cut of the entries of two pages, laid out as one, by which both halves fit pages of
/// `page_bytes`, and are as equal in bytes as they can be.
pub(super) fn middle_cut(view: &PageView<'_>, page_bytes: usize) -> Result<SplitPoint, Damage> {
    let mut bytes = Vec::with_capacity(view.len());
    for slot in 0..view.len() {
        bytes.push(SLOT + view.cell(slot)?.heap_bytes());
    }
    for at in balanced(&bytes) {
        let right_first = key_at(view, at)?;
        let separator = match view.level() {
            0 => shortest_above(&key_at(view, at - 1)?, right_first)?,
            _ => right_first,
        };
        let left = half_bytes(view, 0..at, (view.low(), &separator), None)?;
        let right = half_bytes(view, at..view.len(), (&separator, view.high()), None)?;
        if left.max(right) <= page_bytes {
            return Ok(SplitPoint { at, separator });
        }
    }
    Err(Damage("entries that cannot be divided"))
}

/// The entries of a page that is to be divided, with the one that found no room.
struct Divided<'v> {
    view: &'v PageView<'v>,
    key: &'v [u8],
    value_bytes: usize,
    /// Where the new entry goes; `None` if it is in the page, and is to grow.
    new: Option<usize>,
    /// What each entry takes, with the new one in its place.
    bytes: Vec<usize>,
}

impl<'v> Divided<'v> {
    fn new(view: &'v PageView<'v>, key: &'v [u8], value_bytes: usize) -> Result<Self, Damage> {
        let mut bytes = Vec::with_capacity(view.len() + 1);
        for slot in 0..view.len() {
            bytes.push(SLOT + view.cell(slot)?.heap_bytes());
        }
        let suffix = key.len().saturating_sub(view.header().prefix_len.into());
        let entry = entry_bytes(suffix, value_bytes);
        let new = match view.search(key)? {
            Ok(slot) => {
                bytes.get_mut(slot).into_iter().for_each(|bytes| *bytes = entry.max(*bytes));
                None
            }
            Err(slot) => {
                bytes.insert(slot, entry);
                Some(slot)
            }
        };
        Ok(Self { view, key, value_bytes, new, bytes })
    }

    /// Where to cut, that with the most equal sides first. Positions count the new entry.
    fn balanced(&self) -> impl Iterator<Item = usize> {
        balanced(&self.bytes)
    }

    /// The slot that is at this position, or behind it if that is the new entry's.
    fn slot(&self, at: usize) -> usize {
        at - usize::from(self.new.is_some_and(|new| new < at))
    }

    /// The whole key of an entry.
    fn key(&self, at: usize) -> Result<Vec<u8>, Damage> {
        match self.new {
            Some(new) if new == at => Ok(self.key.to_vec()),
            _ => key_at(self.view, self.slot(at)),
        }
    }

    /// The cut before the entry at this position, if there is a separator, and both halves fit
    /// their pages as long as the new entry is in neither.
    fn leaf_cut(&self, at: usize) -> Result<Option<SplitPoint>, Damage> {
        let (view, low, high) = (self.view, self.view.low(), self.view.high());
        let separator = if at == 0 {
            let first = self.key(0)?;
            if first.starts_with(low) {
                return Ok(None);
            }
            shortest_above(low, first)?
        } else if at == self.bytes.len() {
            let shorter = common(&self.key(at - 1)?, high) + 1;
            match high.get(..shorter) {
                Some(shorter) if shorter.len() < high.len() => shorter.to_vec(),
                _ => return Ok(None),
            }
        } else {
            shortest_above(&self.key(at - 1)?, self.key(at)?)?
        };
        let at = self.slot(at);
        let fits = half_bytes(view, 0..at, (low, &separator), None)? <= view.page_bytes()
            && half_bytes(view, at..view.len(), (&separator, high), None)? <= view.page_bytes();
        Ok(fits.then_some(SplitPoint { at, separator }))
    }

    /// The cut before the child at this position, if both halves fit with the new entry, and have
    /// so many children at least.
    fn inner_cut(&self, at: usize, least: usize) -> Result<Option<SplitPoint>, Damage> {
        let (view, at) = (self.view, self.slot(at));
        if at == 0 || at >= view.len() {
            return Ok(None);
        }
        let separator = key_at(view, at)?;
        let new = Some((self.key, self.value_bytes)).filter(|_| self.new.is_some());
        let (left, right) = if *self.key < *separator { (new, None) } else { (None, new) };
        let children = [at + left.iter().len(), view.len() - at + right.iter().len()];
        if children.iter().any(|children| *children < least) {
            return Ok(None);
        }
        let fences = (view.low(), &*separator);
        let fits = half_bytes(view, 0..at, fences, left)? <= view.page_bytes();
        let fences = (&*separator, view.high());
        let fits = fits && half_bytes(view, at..view.len(), fences, right)? <= view.page_bytes();
        Ok(fits.then_some(SplitPoint { at, separator }))
    }
}

/// Bytes of a page with some entries of another one, these fences, and one more entry.
fn half_bytes(
    view: &PageView<'_>,
    slots: Range<usize>,
    (low, high): (&[u8], &[u8]),
    new: Option<(&[u8], usize)>,
) -> Result<usize, Damage> {
    let prefix = common(low, high);
    let longer = prefix.saturating_sub(view.header().prefix_len.into());
    let mut bytes = HEADER + low.len() + high.len();
    for slot in slots.clone() {
        let cell = view.cell(slot)?;
        let is_low_fence = view.level() > 0 && slot == slots.start;
        let suffix = if is_low_fence { 0 } else { usize::from(cell.slot.suffix_len) };
        bytes += entry_bytes(suffix.saturating_sub(longer), cell.value.len());
    }
    if let Some((key, value_bytes)) = new {
        bytes += entry_bytes(key.len().saturating_sub(prefix), value_bytes);
    }
    Ok(bytes)
}

/// The whole key of a slot.
fn key_at(view: &PageView<'_>, slot: usize) -> Result<Vec<u8>, Damage> {
    let mut key = Vec::new();
    view.key_into(slot, &mut key)?;
    Ok(key)
}

/// The shortest separator above `below` and not above `first`.
fn shortest_above(below: &[u8], mut first: Vec<u8>) -> Result<Vec<u8>, Damage> {
    if below >= first.as_slice() {
        return Err(Damage("keys out of order"));
    }
    first.truncate(common(below, &first) + 1);
    Ok(first)
}

fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Where to cut entries of these sizes so that neither side is empty: the smaller the larger side,
/// the earlier.
fn balanced(bytes: &[usize]) -> impl Iterator<Item = usize> + use<> {
    let total: usize = bytes.iter().sum();
    let mut left = 0;
    let sides = bytes.iter().enumerate().take(bytes.len().saturating_sub(1));
    let larger = sides.map(|(index, size)| {
        left += size;
        (left.max(total - left), index + 1)
    });
    let mut cuts: Vec<_> = larger.collect();
    cuts.sort_unstable();
    cuts.into_iter().map(|(_, at)| at)
}
