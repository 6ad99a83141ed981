//! Writing the parts of a row that both [`RowBuilder`](crate::RowBuilder) and
//! [`RowMut`](crate::RowMut) write.

use crate::encoding::moved_values::{MOST_IN_ROW, MovedValues, ValuePointer};
use crate::encoding::row_layout::{MOVED, RowLayout};

/// Appends the bytes of a variable column: its value, or if that would make the row too long, a
/// pointer to it.
pub(super) fn push_variable(
    layout: &RowLayout,
    bytes: &mut Vec<u8>,
    moved: &mut MovedValues,
    ordinal: usize,
    value: &[u8],
) {
    if bytes.len() - layout.variable_at + value.len() <= MOST_IN_ROW {
        bytes.extend_from_slice(value);
        set_end(layout, bytes, ordinal, false);
    } else {
        push_pointer(layout, bytes, ordinal, moved.add(value));
    }
}

/// Appends a pointer as that of a variable column.
pub(crate) fn push_pointer(
    layout: &RowLayout,
    bytes: &mut Vec<u8>,
    ordinal: usize,
    pointer: ValuePointer,
) {
    bytes.extend_from_slice(&pointer.encode());
    set_end(layout, bytes, ordinal, true);
}

/// Stores where the variable column ends: where the row now ends.
#[expect(clippy::expect_used, reason = "longer values are not in the row")]
pub(crate) fn set_end(layout: &RowLayout, bytes: &mut [u8], ordinal: usize, is_moved: bool) {
    let end = u16::try_from(bytes.len() - layout.variable_at).expect("ends have 15 bits");
    let moved = if is_moved { MOVED } else { 0 };
    write_at(bytes, layout.ends_at + 2 * ordinal, &(end | moved).to_le_bytes());
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
