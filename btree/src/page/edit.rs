//! Changing a page in place: insert, remove, replace, flags and counters.

use std::ops::Range;

use super::layout::{
    CELL_HEADER, DEAD, Damage, FLAGS_AT, HEADER, Header, LOCKED, SLOT, STAMPS_AT, Slot, entry_bytes,
};
use super::order::{head_of, rest_of};
use super::rebuild::{PageSpec, rebuild};
use super::stamps::Stamps;
use super::view::PageView;
use super::write::{PageMut, cell_before, change, put, put_cell};

/// Why an entry did not go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoomOr {
    /// The page is full; it has to be split.
    NoRoom,
    /// The page is damaged.
    Damage(Damage),
}

impl From<Damage> for NoRoomOr {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

/// Inserts an entry at `slot`, the place [`PageView::search`] named. `key` is the whole key.
/// Compacts the page when its free bytes are scattered, else touches only the header, the slots
/// from `slot` on and the new cell. On an error the page is unchanged.
pub(crate) fn insert(
    page: &mut impl PageMut,
    slot: usize,
    key: &[u8],
    value: &[u8],
) -> Result<(), NoRoomOr> {
    let view = PageView::parse(page)?;
    let header = *view.header();
    let suffix = key.get(usize::from(header.prefix_len)..).ok_or(Damage("key without prefix"))?;
    let need = entry_bytes(suffix.len(), value.len());
    if slot > view.len() {
        return Err(Damage("no such slot").into());
    }
    if need > view.free_bytes() {
        if need > view.free_bytes() + usize::from(header.garbage) {
            return Err(NoRoomOr::NoRoom);
        }
        compact(page)?;
        if need > PageView::parse(page)?.free_bytes() {
            return Err(Damage("fewer bytes are free than the header says").into());
        }
    }
    let header = Header::load(page)?;
    let rest = rest_of(suffix);
    let offset = cell_before(header.heap, rest.len() + value.len())?;
    let suffix_len = u16::try_from(suffix.len()).map_err(|_| Damage("key too long"))?;
    let word = Slot { head: head_of(suffix), offset, suffix_len, is_low_fence: false };
    put_cell(change(page, usize::from(offset)..usize::from(header.heap))?, rest, value)?;
    let slots = change(page, HEADER + slot * SLOT..header.slots_end() + SLOT)?;
    slots.copy_within(..slots.len() - SLOT, SLOT);
    put(slots, 0, &word.encode())?;
    Header { count: header.count + 1, heap: offset, ..header }.store(change(page, 0..HEADER)?);
    Ok(())
}

/// Removes the entry in `slot`. Touches only the header and the slots from `slot` on.
pub(crate) fn remove(page: &mut impl PageMut, slot: usize) -> Result<(), Damage> {
    let view = PageView::parse(page)?;
    let cell = view.cell(slot)?;
    let (before, offset, freed) = (*view.header(), cell.slot.offset, cell.heap_bytes());
    let freed = u16::try_from(freed).map_err(|_| Damage("cell out of bounds"))?;
    let slots = change(page, HEADER + slot * SLOT..before.slots_end())?;
    slots.copy_within(SLOT.., 0);
    let mut header = Header { count: before.count - 1, ..before };
    if offset == header.heap {
        header.heap = header.heap.saturating_add(freed);
    } else {
        header.garbage = header.garbage.saturating_add(freed);
    }
    if header.count == 0 {
        header.heap = header.heap.saturating_add(header.garbage);
        header.garbage = 0;
    }
    header.store(change(page, 0..HEADER)?);
    Ok(())
}

/// Gives the entry in `slot` a value of another length: where it is if that takes no more, or in
/// another cell if there is room for one beside those that are there; else the page is compacted.
/// On an error the page is unchanged.
pub(crate) fn replace(page: &mut impl PageMut, slot: usize, value: &[u8]) -> Result<(), NoRoomOr> {
    let view = PageView::parse(page)?;
    let cell = view.cell(slot)?;
    if cell.slot.is_low_fence {
        return Err(Damage("the entry of a low fence is not replaced").into());
    }
    let (header, word, freed) = (*view.header(), cell.slot, cell.heap_bytes());
    let need = CELL_HEADER + cell.rest.len() + value.len();
    if need > view.free_bytes() + usize::from(header.garbage) + freed {
        return Err(NoRoomOr::NoRoom);
    }
    // The lowest cell gives its place to the new one, others keep theirs if they can.
    let is_lowest = word.offset == header.heap;
    let stays = !is_lowest && need <= freed;
    let given = if is_lowest { freed } else { 0 };
    let end =
        if stays { usize::from(word.offset) + need } else { usize::from(header.heap) + given };
    if end > view.heap_end() || word.offset < header.heap {
        return Err(Damage("cell out of bounds").into());
    }
    if !stays && need > view.free_bytes() + given {
        let spec = PageSpec::of(&view);
        return rebuild(page, &spec, Some((slot, value))).map_err(NoRoomOr::from);
    }
    let rest = cell.rest.to_vec();
    let too_long = |_| Damage("page too long");
    let offset = cell_before(u16::try_from(end).map_err(too_long)?, rest.len() + value.len())?;
    put_cell(change(page, usize::from(offset)..end)?, &rest, value)?;
    let at = HEADER + slot * SLOT;
    put(change(page, at..at + SLOT)?, 0, &Slot { offset, ..word }.encode())?;
    let unused = freed - given - if stays { need } else { 0 };
    let garbage = header.garbage.saturating_add(u16::try_from(unused).map_err(too_long)?);
    let heap = if stays { header.heap } else { offset };
    Header { heap, garbage, ..header }.store(change(page, 0..HEADER)?);
    Ok(())
}

/// Moves all cells together so that the free bytes are one piece.
fn compact(page: &mut impl PageMut) -> Result<(), Damage> {
    let spec = PageSpec::of(&PageView::parse(page)?);
    rebuild(page, &spec, None)
}

/// Marks a page as unlinked.
pub(crate) fn mark_dead(page: &mut impl PageMut) -> Result<(), Damage> {
    let header = Header::load(page)?;
    Header { flags: header.flags | DEAD, ..header }.store(change(page, 0..HEADER)?);
    Ok(())
}

/// Notes whether rows of a leaf's range may be locked.
pub(crate) fn mark_locked(page: &mut impl PageMut, may_be: bool) -> Result<(), Damage> {
    let header = Header::load(page)?;
    let flags = if may_be { header.flags | LOCKED } else { header.flags & !LOCKED };
    change(page, FLAGS_AT..FLAGS_AT + 1)?.fill(flags);
    Ok(())
}

/// Counts one more separator removed from this inner page.
pub(crate) fn bump_removals(page: &mut impl PageMut) -> Result<(), Damage> {
    let header = Header::load(page)?;
    let extra = header.extra.wrapping_add(1);
    Header { extra, ..header }.store(change(page, 0..HEADER)?);
    Ok(())
}

/// Where the stamps of a page are, and what they become.
pub(crate) fn stamp(stamps: Stamps) -> (Range<usize>, [u8; HEADER - STAMPS_AT]) {
    (STAMPS_AT..HEADER, stamps.encode())
}
