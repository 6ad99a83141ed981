//! Writing a page anew from entries: fresh pages, compaction, splits.
//!
//! Fences decide the prefix, and the prefix decides how every key is stored, so whatever moves a
//! fence re-encodes the page. The new image is built aside and copied over at the end: an error
//! leaves the page as it was.

use std::ops::Range;

use super::layout::{Damage, HEADER, Header, LOCKED, SLOT, Slot, entry_bytes};
use super::order::{head_of, rest_of};
use super::stamps::Stamps;
use super::view::PageView;
use super::write::{PageMut, cell_before, put, put_cell};

/// What a page is, apart from its entries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PageSpec {
    pub(crate) level: u8,
    pub(crate) extra: u32,
    pub(crate) low: Vec<u8>,
    pub(crate) high: Vec<u8>,
    pub(crate) right: u64,
    pub(crate) stamps: Stamps,
    /// Rows of its range may be locked.
    pub(crate) may_be_locked: bool,
}

impl PageSpec {
    /// The description of an existing page.
    pub(crate) fn of(view: &PageView<'_>) -> Self {
        let header = view.header();
        Self {
            level: header.level,
            extra: header.extra,
            low: view.low().to_vec(),
            high: view.high().to_vec(),
            right: header.right,
            stamps: header.stamps,
            may_be_locked: header.flags & LOCKED != 0,
        }
    }
}

/// Writes entries in key order into an empty page.
pub(super) struct Builder<'p> {
    page: &'p mut [u8],
    header: Header,
}

impl<'p> Builder<'p> {
    pub(super) fn new(page: &'p mut [u8], spec: &PageSpec) -> Result<Self, Damage> {
        let too_long = |_| Damage("fence too long");
        let prefix = spec.low.iter().zip(&spec.high).take_while(|(a, b)| a == b).count();
        let heap = page
            .len()
            .checked_sub(spec.low.len() + spec.high.len())
            .filter(|heap| *heap >= HEADER)
            .ok_or(Damage("fences do not fit"))?;
        put(page, heap, &spec.low)?;
        put(page, heap + spec.low.len(), &spec.high)?;
        let header = Header {
            level: spec.level,
            flags: if spec.may_be_locked { LOCKED } else { 0 },
            count: 0,
            heap: u16::try_from(heap).map_err(|_| Damage("page too long"))?,
            garbage: 0,
            prefix_len: u16::try_from(prefix).map_err(too_long)?,
            low_len: u16::try_from(spec.low.len()).map_err(too_long)?,
            high_len: u16::try_from(spec.high.len()).map_err(too_long)?,
            right: spec.right,
            extra: spec.extra,
            stamps: spec.stamps,
        };
        Ok(Self { page, header })
    }

    /// Appends an entry; keys must come in order and between the fences.
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        let suffix = key
            .get(usize::from(self.header.prefix_len)..)
            .ok_or(Damage("key without the page's prefix"))?;
        let slot_at = self.header.slots_end();
        let free = usize::from(self.header.heap).saturating_sub(slot_at);
        if entry_bytes(suffix.len(), value.len()) > free {
            return Err(Damage("entries do not fit the page"));
        }
        let (rest, heap) = (rest_of(suffix), self.header.heap);
        let offset = cell_before(heap, rest.len() + value.len())?;
        let cell = self.page.get_mut(usize::from(offset)..usize::from(heap));
        put_cell(cell.ok_or(Damage("write out of bounds"))?, rest, value)?;
        let slot = Slot {
            head: head_of(suffix),
            offset,
            suffix_len: u16::try_from(suffix.len()).map_err(|_| Damage("key too long"))?,
        };
        put(self.page, slot_at, &slot.encode())?;
        debug_assert_eq!(slot_at + SLOT, HEADER + SLOT * (usize::from(self.header.count) + 1));
        self.header.count += 1;
        self.header.heap = offset;
        Ok(())
    }

    /// Appends some entries of another page; `substitute` replaces the value of one slot.
    pub(super) fn push_all(
        &mut self,
        source: &PageView<'_>,
        slots: Range<usize>,
        substitute: Option<(usize, &[u8])>,
    ) -> Result<(), Damage> {
        let mut key = Vec::with_capacity(64);
        for slot in slots {
            source.key_into(slot, &mut key)?;
            let value = match substitute {
                Some((changed, value)) if changed == slot => value,
                _ => source.cell(slot)?.value,
            };
            self.push(&key, value)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) {
        self.header.store(self.page);
    }
}

/// Makes `page` an empty page, then adds `entries`, which must be in key order.
pub(crate) fn format<'e>(
    page: &mut [u8],
    spec: &PageSpec,
    entries: impl IntoIterator<Item = (&'e [u8], &'e [u8])>,
) -> Result<(), Damage> {
    let mut builder = Builder::new(page, spec)?;
    for (key, value) in entries {
        builder.push(key, value)?;
    }
    builder.finish();
    Ok(())
}

/// Builds `target` from some entries of `source`; `substitute` replaces the value of one slot.
fn copy_entries(
    target: &mut [u8],
    spec: &PageSpec,
    source: &PageView<'_>,
    slots: Range<usize>,
    substitute: Option<(usize, &[u8])>,
) -> Result<(), Damage> {
    let mut builder = Builder::new(target, spec)?;
    builder.push_all(source, slots, substitute)?;
    builder.finish();
    Ok(())
}

/// Re-encodes a page under `spec`; `substitute` replaces the value of one slot. On an error the
/// page is unchanged.
pub(crate) fn rebuild(
    page: &mut impl PageMut,
    spec: &PageSpec,
    substitute: Option<(usize, &[u8])>,
) -> Result<(), Damage> {
    let view = PageView::parse(page)?;
    let mut image = vec![0; page.len()];
    copy_entries(&mut image, spec, &view, 0..view.len(), substitute)?;
    page.change(0..image.len()).copy_from_slice(&image);
    Ok(())
}

/// Where to split a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SplitPoint {
    /// Entries from this slot on go to the right page.
    pub(crate) at: usize,
    /// High fence of the left page and low fence of the right one.
    pub(crate) separator: Vec<u8>,
}

/// Chooses where to split `view` for `key`, which found no room in it.
///
/// A key that goes at the end of the page cuts there: ascending inserts leave full pages behind,
/// and a leaf's right page starts empty or nearly so. Otherwise both sides, the new entry included,
/// come out as equal in bytes as they can. Every leaf cut leaves either side at most as many rows
/// as there were, the new one included. A leaf's separator is as short as the two keys beside it
/// allow; an inner page's is the key of the right page's first child.
pub(crate) fn choose_cut(view: &PageView<'_>, key: &[u8]) -> Result<SplitPoint, Damage> {
    let found = view.search(key)?;
    let mut bytes = Vec::with_capacity(view.len() + 1);
    let mut values = 0;
    for slot in 0..view.len() {
        let cell = view.cell(slot)?;
        bytes.push(SLOT + cell.heap_bytes());
        values += cell.value.len();
    }
    if view.level() > 0 {
        let at = match found {
            Err(slot) if slot == view.len() => slot.checked_sub(1).filter(|at| *at > 0),
            _ => balanced(&bytes),
        };
        let at = at.ok_or(Damage("full inner page with fewer than two children"))?;
        let mut separator = Vec::new();
        view.key_into(at, &mut separator)?;
        return Ok(SplitPoint { at, separator });
    }
    let too_few = Damage("entry larger than a page can take");
    let Err(new) = found else {
        // The entry in `found` outgrew the page: nothing is added.
        let at = balanced(&bytes).ok_or(too_few)?;
        return leaf_cut(view, at, &key_at(view, at - 1)?, key_at(view, at)?);
    };
    if new == view.len() {
        return end_cut(view, key, &bytes);
    }
    let suffix = key.len().saturating_sub(usize::from(view.header().prefix_len));
    bytes.insert(new, entry_bytes(suffix, values / view.len()));
    // `cut` counts the new entry, `at` does not.
    let cut = balanced(&bytes).ok_or(too_few)?;
    let at = if cut > new { cut - 1 } else { cut };
    let left_last = if cut == new + 1 { key.to_vec() } else { key_at(view, at - 1)? };
    let right_first = if cut == new { key.to_vec() } else { key_at(view, at)? };
    leaf_cut(view, at, &left_last, right_first)
}

/// The cut that makes the two sides as equal in bytes as they can be, for no new entry.
pub(super) fn middle_cut(view: &PageView<'_>) -> Result<SplitPoint, Damage> {
    let mut bytes = Vec::with_capacity(view.len());
    for slot in 0..view.len() {
        bytes.push(SLOT + view.cell(slot)?.heap_bytes());
    }
    let at = balanced(&bytes).ok_or(Damage("fewer than two entries to be divided"))?;
    let right_first = key_at(view, at)?;
    match view.level() {
        0 => leaf_cut(view, at, &key_at(view, at - 1)?, right_first),
        _ => Ok(SplitPoint { at, separator: right_first }),
    }
}

/// The cut for a key that goes at the end of a leaf: as far right as the left page, which gets the
/// separator as its high fence, has room for. `bytes` are the sizes of the entries.
fn end_cut(view: &PageView<'_>, key: &[u8], bytes: &[usize]) -> Result<SplitPoint, Damage> {
    let mut left = HEADER + view.low().len() + bytes.iter().sum::<usize>();
    let mut right_first = key.to_vec();
    for (last, size) in bytes.iter().enumerate().rev() {
        let left_last = key_at(view, last)?;
        let cut = leaf_cut(view, last + 1, &left_last, right_first)?;
        if left + cut.separator.len() <= view.page_bytes() {
            return Ok(cut);
        }
        left -= size;
        right_first = left_last;
    }
    Err(Damage("entry larger than a page can take"))
}

/// The whole key of a slot.
fn key_at(view: &PageView<'_>, slot: usize) -> Result<Vec<u8>, Damage> {
    let mut key = Vec::new();
    view.key_into(slot, &mut key)?;
    Ok(key)
}

/// A cut with the shortest separator above `left_last` and not above `right_first`.
fn leaf_cut(
    view: &PageView<'_>,
    at: usize,
    left_last: &[u8],
    mut right_first: Vec<u8>,
) -> Result<SplitPoint, Damage> {
    if left_last >= right_first.as_slice() || at > view.len() {
        return Err(Damage("keys out of order"));
    }
    let common = left_last.iter().zip(&right_first).take_while(|(a, b)| a == b).count();
    right_first.truncate(common + 1);
    Ok(SplitPoint { at, separator: right_first })
}

/// The cut that makes the larger side smallest, both sides non-empty. `None` for fewer than two.
fn balanced(bytes: &[usize]) -> Option<usize> {
    let total: usize = bytes.iter().sum();
    let mut left = 0;
    let mut best = None;
    for (index, size) in bytes.iter().enumerate().take(bytes.len().saturating_sub(1)) {
        left += size;
        let larger = left.max(total - left);
        if best.is_none_or(|(least, _)| larger < least) {
            best = Some((larger, index + 1));
        }
    }
    best.map(|(_, cut)| cut)
}

/// Writes the two halves of `source` into `left` and `right`; `right_addr` is where `right` lives.
pub(crate) fn split_into(
    source: &[u8],
    left: &mut [u8],
    right: &mut [u8],
    cut: &SplitPoint,
    right_addr: u64,
) -> Result<(), Damage> {
    let view = PageView::parse(source)?;
    let whole = PageSpec::of(&view);
    let right_spec = PageSpec { low: cut.separator.clone(), ..whole.clone() };
    copy_entries(right, &right_spec, &view, cut.at..view.len(), None)?;
    let left_spec = PageSpec { high: cut.separator.clone(), right: right_addr, ..whole };
    copy_entries(left, &left_spec, &view, 0..cut.at, None)
}

/// Splits `left` in place: the entries from the cut on move to `right`.
pub(crate) fn split(
    left: &mut [u8],
    right: &mut [u8],
    cut: &SplitPoint,
    right_addr: u64,
) -> Result<(), Damage> {
    let mut image = vec![0; left.len()];
    split_into(left, &mut image, right, cut, right_addr)?;
    left.copy_from_slice(&image);
    Ok(())
}
