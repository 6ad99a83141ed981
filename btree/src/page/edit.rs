//! Changing a page in place: insert, remove, replace, flags and counters.

use std::ops::Range;

use super::layout::{
    CELL_HEADER, DEAD, Damage, HEAD, HEADER, Header, SLOT, STAMPS_AT, Slot, entry_bytes,
};
use super::order::head_of;
use super::rebuild::{Spec, rebuild};
use super::stamps::Stamps;
use super::view::PageView;

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
/// Compacts the page when its free bytes are scattered. On an error the page is unchanged.
pub(crate) fn insert(
    page: &mut [u8],
    slot: usize,
    key: &[u8],
    value: &[u8],
) -> Result<(), NoRoomOr> {
    let view = PageView::parse(page)?;
    let header = *view.header();
    let suffix = key.get(usize::from(header.prefix_len)..).ok_or(Damage("key without prefix"))?;
    let need = entry_bytes(suffix.len(), value.len());
    if need > view.free_bytes() {
        if need > view.free_bytes() + usize::from(header.garbage) {
            return Err(NoRoomOr::NoRoom);
        }
        compact(page)?;
    }
    let header = Header::load(page)?;
    let offset = put_cell(page, header.heap, suffix, value)?;
    let slots =
        page.get_mut(HEADER..header.slots_end() + SLOT).ok_or(Damage("slots out of bounds"))?;
    let at = slot * SLOT;
    if at + SLOT > slots.len() {
        return Err(Damage("no such slot").into());
    }
    slots.copy_within(at..slots.len() - SLOT, at + SLOT);
    let word = Slot {
        head: head_of(suffix),
        offset,
        suffix_len: u16::try_from(suffix.len()).map_err(|_| Damage("key too long"))?,
    };
    put(slots, at, &word.encode())?;
    Header { count: header.count + 1, heap: offset, ..header }.store(page);
    Ok(())
}

/// Writes a cell that ends at `heap_start` and returns its offset.
pub(crate) fn put_cell(
    page: &mut [u8],
    heap_start: u16,
    suffix: &[u8],
    value: &[u8],
) -> Result<u16, Damage> {
    let rest = suffix.get(HEAD..).unwrap_or_default();
    let bytes = CELL_HEADER + rest.len() + value.len();
    let value_len = u16::try_from(value.len()).map_err(|_| Damage("value too long"))?;
    let offset = u16::try_from(bytes)
        .ok()
        .and_then(|bytes| heap_start.checked_sub(bytes))
        .ok_or(Damage("cell does not fit"))?;
    let at = usize::from(offset);
    put(page, at, &value_len.to_le_bytes())?;
    put(page, at + CELL_HEADER, rest)?;
    put(page, at + CELL_HEADER + rest.len(), value)?;
    Ok(offset)
}

/// Copies `bytes` to `page[at..]`, checked.
pub(crate) fn put(page: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), Damage> {
    page.get_mut(at..at + bytes.len()).ok_or(Damage("write out of bounds"))?.copy_from_slice(bytes);
    Ok(())
}

/// Removes the entry in `slot`. Touches only the header and the slot array, `front`, which is
/// [`slots_end`] bytes long; `heap_bytes` is the size of the removed cell.
pub(crate) fn remove(
    front: &mut [u8],
    header: &Header,
    slot: usize,
    offset: u16,
    heap_bytes: usize,
) -> Result<(), Damage> {
    let slots = front.get_mut(HEADER..).ok_or(Damage("slots out of bounds"))?;
    let at = slot * SLOT;
    if at + SLOT > slots.len() {
        return Err(Damage("no such slot"));
    }
    slots.copy_within(at + SLOT.., at);
    let freed = u16::try_from(heap_bytes).map_err(|_| Damage("cell out of bounds"))?;
    let mut header = Header { count: header.count - 1, ..*header };
    if offset == header.heap {
        header.heap = header.heap.saturating_add(freed);
    } else {
        header.garbage = header.garbage.saturating_add(freed);
    }
    if header.count == 0 {
        header.heap = header.heap.saturating_add(header.garbage);
        header.garbage = 0;
    }
    header.store(front);
    Ok(())
}

/// End of header and slot array.
pub(crate) fn slots_end(page: &[u8]) -> Result<usize, Damage> {
    Ok(Header::load(page)?.slots_end())
}

/// Gives the entry in `slot` a value of another length. On an error the page is unchanged.
pub(crate) fn replace(page: &mut [u8], slot: usize, value: &[u8]) -> Result<(), NoRoomOr> {
    let view = PageView::parse(page)?;
    let cell = view.cell(slot)?;
    let need = CELL_HEADER + cell.rest.len() + value.len();
    let have = view.free_bytes() + usize::from(view.header().garbage) + cell.heap_bytes();
    if need > have {
        return Err(NoRoomOr::NoRoom);
    }
    let spec = Spec::of(&view);
    rebuild(page, &spec, Some((slot, value))).map_err(NoRoomOr::from)
}

/// Moves all cells together so that the free bytes are one piece.
fn compact(page: &mut [u8]) -> Result<(), Damage> {
    let spec = Spec::of(&PageView::parse(page)?);
    rebuild(page, &spec, None)
}

/// Marks an empty page as unlinked.
pub(crate) fn mark_dead(page: &mut [u8]) -> Result<(), Damage> {
    let header = Header::load(page)?;
    Header { flags: header.flags | DEAD, ..header }.store(page);
    Ok(())
}

/// Counts one more separator removed from this inner page.
pub(crate) fn bump_removals(page: &mut [u8]) -> Result<(), Damage> {
    let header = Header::load(page)?;
    Header { extra: header.extra.wrapping_add(1), ..header }.store(page);
    Ok(())
}

/// Where the stamps of a page are, and what they become.
pub(crate) fn stamp(stamps: Stamps) -> (Range<usize>, [u8; HEADER - STAMPS_AT]) {
    (STAMPS_AT..HEADER, stamps.encode())
}
