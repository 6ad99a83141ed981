//! Writing bytes of a page, checked: ranges that are recorded as changed, and cells.

use std::ops::{Deref, Range};

use selkie_engine::ExclusiveGuard;

use super::layout::{CELL_HEADER, Damage};

/// A page that records which of its bytes are changed: only these are written home, and to the log.
pub(crate) trait PageMut: Deref<Target = [u8]> {
    /// The bytes of a range of the page, to be changed.
    fn change(&mut self, range: Range<usize>) -> &mut [u8];
}

impl PageMut for ExclusiveGuard<'_> {
    fn change(&mut self, range: Range<usize>) -> &mut [u8] {
        self.bytes_mut(range)
    }
}

/// The bytes of a range of a page, to be changed; checked.
pub(super) fn change(page: &mut impl PageMut, range: Range<usize>) -> Result<&mut [u8], Damage> {
    if range.start > range.end || range.end > page.len() {
        return Err(Damage("write out of bounds"));
    }
    Ok(page.change(range))
}

/// Where a cell begins that ends at `end` and has so many bytes of key and value.
pub(super) fn cell_before(end: u16, bytes: usize) -> Result<u16, Damage> {
    u16::try_from(CELL_HEADER + bytes)
        .ok()
        .and_then(|bytes| end.checked_sub(bytes))
        .ok_or(Damage("cell does not fit"))
}

/// Writes a cell: the rest of the suffix, and the value.
pub(super) fn put_cell(cell: &mut [u8], rest: &[u8], value: &[u8]) -> Result<(), Damage> {
    let value_len = u16::try_from(value.len()).map_err(|_| Damage("value too long"))?;
    put(cell, 0, &value_len.to_le_bytes())?;
    put(cell, CELL_HEADER, rest)?;
    put(cell, CELL_HEADER + rest.len(), value)
}

/// Copies `bytes` to `page[at..]`, checked.
pub(super) fn put(page: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), Damage> {
    page.get_mut(at..at + bytes.len()).ok_or(Damage("write out of bounds"))?.copy_from_slice(bytes);
    Ok(())
}
