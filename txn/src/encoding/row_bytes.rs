//! Writing the parts of a row that both [`RowBuilder`](crate::RowBuilder) and
//! [`RowMut`](crate::RowMut) write.

use crate::encoding::row_layout::RowLayout;

/// Notes that the variable column ends where the row now ends.
pub(super) fn set_end(layout: &RowLayout, bytes: &mut [u8], ordinal: usize) {
    let end = bytes.len() - layout.variable_at;
    // Every column is at most its type's maximum and a row at most a page: far below u16.
    let end = u16::try_from(end).unwrap_or(u16::MAX);
    write_at(bytes, layout.ends_at + 2 * ordinal, &end.to_le_bytes());
}

pub(super) fn set_null_bit(bytes: &mut [u8], column: usize, null: bool) {
    if let Some(byte) = bytes.get_mut(column / 8) {
        let bit = 1 << (column % 8);
        *byte = if null { *byte | bit } else { *byte & !bit };
    }
}

pub(super) fn write_at(bytes: &mut [u8], at: usize, value: &[u8]) {
    if let Some(target) = bytes.get_mut(at..at + value.len()) {
        target.copy_from_slice(value);
    }
}
