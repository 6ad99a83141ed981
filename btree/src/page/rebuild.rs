//! Writing a page anew from entries: fresh pages, compaction, splits.
//!
//! Fences decide the prefix, and the prefix decides how every key is stored, so whatever moves a
//! fence re-encodes the page. The new image is built aside and copied over at the end: an error
//! leaves the page as it was.

use std::ops::Range;

use super::cut::SplitPoint;
use super::layout::{CELL_HEADER, Damage, HEADER, Header, LOCKED, SLOT, Slot};
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

    /// The low fence, which is in the page already.
    fn low(&self) -> &[u8] {
        let end = self.page.len().saturating_sub(self.header.high_len.into());
        let start = end.saturating_sub(self.header.low_len.into());
        self.page.get(start..end).unwrap_or_default()
    }

    /// Appends an entry; keys must come in order and between the fences.
    fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), Damage> {
        let suffix = key
            .get(usize::from(self.header.prefix_len)..)
            .ok_or(Damage("key without the page's prefix"))?;
        let slot_at = self.header.slots_end();
        let free = usize::from(self.header.heap).saturating_sub(slot_at);
        // The first key of an inner page is its low fence, and is stored once.
        let is_low_fence = self.header.level > 0 && self.header.count == 0 && self.low() == key;
        let rest = if is_low_fence { &[] } else { rest_of(suffix) };
        let heap = self.header.heap;
        if SLOT + CELL_HEADER + rest.len() + value.len() > free {
            return Err(Damage("entries do not fit the page"));
        }
        let offset = cell_before(heap, rest.len() + value.len())?;
        let cell = self.page.get_mut(usize::from(offset)..usize::from(heap));
        put_cell(cell.ok_or(Damage("write out of bounds"))?, rest, value)?;
        let slot = Slot {
            head: head_of(suffix),
            offset,
            suffix_len: u16::try_from(suffix.len()).map_err(|_| Damage("key too long"))?,
            is_low_fence,
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
