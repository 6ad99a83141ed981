//! Writing the parts of a row that both [`RowBuilder`](crate::RowBuilder) and
//! [`RowMut`](crate::RowMut) write.

use crate::encoding::row_layout::RowLayout;

/// Stores where the variable column ends: where the row now ends.
#[expect(clippy::expect_used, reason = "tables whose rows do not fit a page are refused")]
pub(super) fn set_end(layout: &RowLayout, bytes: &mut [u8], ordinal: usize) {
    let end = u16::try_from(bytes.len() - layout.variable_at).expect("a row fits a page");
    write_at(bytes, layout.ends_at + 2 * ordinal, &end.to_le_bytes());
}

/// Sets or clears the NULL bit of a column, in a row that has a bitmap.
#[expect(clippy::indexing_slicing, reason = "a row with a nullable column has the bitmap")]
pub(super) fn set_null_bit(bytes: &mut [u8], null_bit: usize, null: bool) {
    let bit = 1 << (null_bit % 8);
    let byte = &mut bytes[null_bit / 8];
    *byte = if null { *byte | bit } else { *byte & !bit };
}

/// Writes a value into the fixed section of a row.
#[expect(clippy::indexing_slicing, reason = "the row is as long as its fixed section at least")]
pub(super) fn write_at(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
