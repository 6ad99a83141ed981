//! The byte layout of a row.
//!
//! Byte map, little-endian, packed:
//! ```text
//! layout number    one or two bytes, only in tables that may change
//! NULL bitmap      one bit a column, only if a column of the layout may be NULL
//! fixed section    the columns of fixed width in column order, at constant offsets (NULL: zeroes)
//! ends             u16 for each variable column: where its bytes end in the next section
//! variable bytes   Decimal, Text, Bytes and Json columns in column order (NULL: nothing)
//! ```
//! An end has 15 bits. The highest one says that the column has a pointer in place of its value
//! ([`moved_values`](crate::encoding::moved_values)).
//!
//! A `Bool` is 0 or 1; numbers, dates, times and timestamps are integers or floats of their width;
//! an `Interval` is its months (i32), days (i32) and microseconds (i64); a `Uuid` its 16 bytes; a
//! `Decimal` its scale and its ordered form, see `encoding/decimal.rs`.
//!
//! A fixed-width column is one load at an offset known from the schema, and can be changed in
//! place.
//!
//! *Layout numbers.* Columns that are added or dropped give the rows of a table a new layout. Rows
//! that are there keep theirs, and say which it is: below 128 in one byte, else in two, of which
//! the first has its highest bit set and the lowest seven bits of the number. A [`RowLayout`] says
//! where the columns that the table has *now* are in rows of one layout. Those that it lacks have a
//! value of the layout; those that were dropped since are not named.

use std::sync::Arc;

use crate::catalogue::column_type::ColumnType;
use crate::catalogue::schema::{Column, TableSchema};
use crate::encoding::moved_values::ValuePointer;
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_error::{RowError, wrong_type};
use crate::encoding::row_names::RowNames;
use crate::encoding::value::{Value, check_length};

/// The highest layout number is below this.
pub(crate) const LAYOUT_NUMBERS: u16 = 128 << 8;
/// Most bytes of a layout number in a row.
pub(crate) const MAX_NUMBER_BYTES: usize = 2;
/// Bit of a variable column's end: in its place is a pointer.
pub(crate) const MOVED: u16 = 1 << 15;
/// The numbers below are stored in one byte.
const SHORT_NUMBERS: u16 = 128;

/// Where a column is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnPlace {
    /// At this byte of the row.
    Fixed(usize),
    /// Ordinal among the variable columns.
    Variable(usize),
    /// Not in the row: its value is in these bytes of [`RowLayout::missing`].
    Missing { start: usize, end: usize },
    /// Not in the row: it is NULL.
    MissingNull,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ColumnLayout {
    pub(crate) ty: ColumnType,
    /// Whether it may be NULL in a row of this layout.
    pub(crate) nullable: bool,
    /// Part of the primary key, hence never changed.
    pub(crate) in_key: bool,
    /// Its bit in a row, if it may be NULL.
    pub(crate) null_bit: usize,
    pub(crate) place: ColumnPlace,
}

/// How rows say that they are of a layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LayoutMark {
    pub(crate) number: u16,
    /// The first bytes of a row, and which of their bits matter: none where tables do not change.
    bits: u16,
    mask: u16,
}

impl LayoutMark {
    pub(crate) const fn of(number: u16) -> Self {
        if number < SHORT_NUMBERS {
            return Self { number, bits: number, mask: 0xff };
        }
        let low = (number % SHORT_NUMBERS) | SHORT_NUMBERS;
        Self { number, bits: low | ((number / SHORT_NUMBERS) << 8), mask: 0xffff }
    }

    /// The number that a row says, which must be one of a table that may change.
    pub(crate) fn number_in(row: &[u8]) -> Option<u16> {
        let first = u16::from(*row.first()?);
        if first < SHORT_NUMBERS {
            return Some(first);
        }
        Some(first % SHORT_NUMBERS + u16::from(*row.get(1)?) * SHORT_NUMBERS)
    }

    /// Whether a row is of this layout.
    #[inline]
    pub(crate) fn is_of(self, row: &[u8]) -> bool {
        // A row of one byte has no number, or is damaged.
        let bits = row.first_chunk().map_or(0, |first| u16::from_le_bytes(*first));
        bits & self.mask == self.bits
    }

    /// Bytes of it in a row.
    pub(crate) const fn bytes(self) -> usize {
        self.mask.count_ones() as usize / 8
    }

    /// Writes it into a row.
    pub(crate) fn write(self, row: &mut [u8]) {
        let bits = self.bits.to_le_bytes();
        row.iter_mut().zip(&bits).take(self.bytes()).for_each(|(byte, bits)| *byte = *bits);
    }
}

/// A column of a layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayoutColumn<'a> {
    pub(crate) ty: ColumnType,
    /// Whether rows of the layout have it.
    pub(crate) is_stored: bool,
    /// The column of the table, unless it was dropped, and its position.
    pub(crate) now: Option<(usize, &'a Column)>,
    /// Its value in rows that lack it, as it would be stored; `None`: NULL.
    pub(crate) missing: Option<&'a [u8]>,
}

/// The places of all columns of a table in its rows of one layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowLayout {
    pub(crate) mark: LayoutMark,
    pub(crate) columns: Box<[ColumnLayout]>,
    pub(crate) variable_columns: usize,
    /// Where the ends begin.
    pub(crate) ends_at: usize,
    /// Where the variable bytes begin: also the length of the shortest row.
    pub(crate) variable_at: usize,
    /// Length of the longest row, all values in it.
    pub(crate) max_bytes: usize,
    /// The values of columns that rows of this layout lack.
    pub(crate) missing: Box<[u8]>,
    /// What the columns are in a new row that does not say, as it would be stored.
    defaults: Box<[Option<Box<[u8]>>]>,
    /// For errors.
    names: Arc<RowNames>,
}

impl RowLayout {
    /// Of a table that never changes.
    pub(crate) fn of(schema: &TableSchema) -> Self {
        let columns = schema.columns.iter().enumerate();
        let columns: Vec<_> = columns
            .map(|(position, column)| LayoutColumn {
                ty: column.ty,
                is_stored: true,
                now: Some((position, column)),
                missing: None,
            })
            .collect();
        let has_nulls = schema.columns.iter().any(|column| column.nullable);
        Self::of_columns(schema, LayoutMark::default(), has_nulls, &columns)
    }

    /// Of the rows that begin with this mark, and may have a NULL bitmap, and have these columns in
    /// this order.
    pub(crate) fn of_columns(
        schema: &TableSchema,
        mark: LayoutMark,
        has_nulls: bool,
        all: &[LayoutColumn<'_>],
    ) -> Self {
        let stored = all.iter().filter(|column| column.is_stored).count();
        let first_bit = 8 * mark.bytes();
        let mut at = mark.bytes() + if has_nulls { stored.div_ceil(8) } else { 0 };
        let (mut ordinal, mut variable_columns, mut variable_bytes) = (0, 0, 0);
        let (mut columns, mut missing) = (Vec::with_capacity(schema.columns.len()), Vec::new());
        for LayoutColumn { ty, is_stored, now, missing: value } in all {
            let place = match (is_stored, ty.fixed_bytes(), value) {
                (true, Some(bytes), _) => {
                    at += bytes;
                    ColumnPlace::Fixed(at - bytes)
                }
                (true, None, _) => {
                    variable_columns += 1;
                    variable_bytes += ty.max_bytes();
                    ColumnPlace::Variable(variable_columns - 1)
                }
                (false, _, Some(value)) => {
                    let start = missing.len();
                    missing.extend_from_slice(value);
                    ColumnPlace::Missing { start, end: missing.len() }
                }
                (false, _, None) => ColumnPlace::MissingNull,
            };
            let null_bit = first_bit + ordinal;
            ordinal += usize::from(*is_stored);
            let Some((position, column)) = now else { continue };
            let nullable = match place {
                ColumnPlace::Missing { .. } => false,
                ColumnPlace::MissingNull => true,
                _ => column.nullable && has_nulls,
            };
            let in_key = schema.primary_key.contains(position);
            columns.push(ColumnLayout { ty: *ty, nullable, in_key, null_bit, place });
        }
        let variable_at = at + 2 * variable_columns;
        let default = |column: &Column| column.default.as_ref().map(|value| value.stored().into());
        Self {
            mark,
            columns: columns.into(),
            variable_columns,
            ends_at: at,
            variable_at,
            max_bytes: variable_at + variable_bytes,
            missing: missing.into(),
            defaults: schema.columns.iter().map(default).collect(),
            names: RowNames::of(schema),
        }
    }

    /// An error of a row of this layout, with the names of its table and column.
    #[cold]
    pub(crate) fn named(&self, error: RowError) -> NamedRowError {
        NamedRowError::new(error, &self.names, None)
    }

    /// As [`named`](Self::named), of a value that is refused.
    #[cold]
    pub(crate) fn refused(&self, error: RowError, given: Option<Value<'_>>) -> NamedRowError {
        NamedRowError::new(error, &self.names, given)
    }

    /// What a column is in a new row that does not say, as it would be stored; `None`: NULL, if it
    /// may be.
    pub(crate) fn default_of(&self, column: usize) -> Option<&[u8]> {
        self.defaults.get(column)?.as_deref()
    }

    pub(crate) fn column(&self, column: usize) -> Result<&ColumnLayout, RowError> {
        let columns = self.columns.len();
        self.columns.get(column).ok_or(RowError::NoSuchColumn { column, columns })
    }

    /// Byte range of a variable column.
    pub(crate) fn variable(&self, row: &[u8], ordinal: usize) -> Option<std::ops::Range<usize>> {
        let start = if ordinal == 0 { 0 } else { self.end(row, ordinal - 1)? };
        let end = self.end(row, ordinal)?;
        (start <= end).then_some(self.variable_at + start..self.variable_at + end)
    }

    fn end(&self, row: &[u8], ordinal: usize) -> Option<usize> {
        Some((self.end_word(row, ordinal)? & !MOVED).into())
    }

    fn end_word(&self, row: &[u8], ordinal: usize) -> Option<u16> {
        let at = self.ends_at + 2 * ordinal;
        Some(u16::from_le_bytes(row.get(at..at + 2)?.try_into().ok()?))
    }

    /// Whether a variable column has a pointer in place of its value.
    #[inline]
    pub(crate) fn is_moved(&self, row: &[u8], ordinal: usize) -> bool {
        self.end_word(row, ordinal).is_some_and(|end| end & MOVED != 0)
    }

    /// Whether a row of this layout has pointers. One pass over the ends of its variable columns.
    #[inline]
    pub(crate) fn has_pointers(&self, row: &[u8]) -> bool {
        const BIT: u8 = (MOVED >> 8) as u8;
        let ends = row.get(self.ends_at..self.ends_at + 2 * self.variable_columns);
        let (ends, _) = ends.unwrap_or_default().as_chunks::<2>();
        ends.iter().fold(0, |all, [_, high]| all | high) & BIT != 0
    }

    /// The pointers of a row of this layout, also those of columns that were dropped.
    pub(crate) fn pointers(&self, row: &[u8]) -> impl Iterator<Item = ValuePointer> {
        (0..self.variable_columns)
            .filter(|ordinal| self.is_moved(row, *ordinal))
            .filter_map(|ordinal| ValuePointer::decode(row.get(self.variable(row, ordinal)?)?))
    }

    /// Offset of a fixed-width column of this type.
    pub(crate) fn fixed_offset(&self, column: usize, ty: ColumnType) -> Result<usize, RowError> {
        let found = self.column(column)?;
        match found.place {
            ColumnPlace::Fixed(at) if found.ty == ty => Ok(at),
            _ => Err(wrong_type(column, found.ty, ty)),
        }
    }

    /// Ordinal of a variable column of this type that takes a value of this length: digits of a
    /// decimal, else bytes.
    pub(crate) fn variable_ordinal(
        &self,
        column: usize,
        ty: ColumnType,
        length: usize,
    ) -> Result<usize, RowError> {
        let found = self.column(column)?;
        let ColumnPlace::Variable(ordinal) = found.place else {
            return Err(wrong_type(column, found.ty, ty));
        };
        if std::mem::discriminant(&found.ty) != std::mem::discriminant(&ty) {
            return Err(wrong_type(column, found.ty, ty));
        }
        check_length(column, found.ty, length)?;
        Ok(ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_marks_its_rows_and_no_others() {
        for number in 0..LAYOUT_NUMBERS {
            let mark = LayoutMark::of(number);
            let mut row = [0xa5; 3];
            mark.write(&mut row);
            assert_eq!(mark.bytes(), if number < 128 { 1 } else { 2 });
            assert_eq!(&row[mark.bytes()..], &[0xa5; 3][mark.bytes()..]);
            assert_eq!(LayoutMark::number_in(&row), Some(number));
            assert!(mark.is_of(&row));
            for other in [0, 1, 127, 128, 129, 255, 256, LAYOUT_NUMBERS - 1, number ^ 1] {
                assert_eq!(LayoutMark::of(other).is_of(&row), other == number, "{number}");
            }
        }
        assert!(LayoutMark::default().is_of(&[7]) && LayoutMark::default().is_of(&[7, 7]));
        assert_eq!(LayoutMark::number_in(&[0x80]), None);
        assert_eq!(LayoutMark::number_in(&[]), None);
    }
}
