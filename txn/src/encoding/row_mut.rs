//! Changing the columns of a row.

use std::ops::Range;

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::moved_values::{MOST_IN_ROW, MovedValues, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_bytes::set_null_bit;
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::{ColumnLayout, ColumnPlace, MOVED, RowLayout};
use crate::encoding::row_ref::RowRef;
use crate::encoding::temporal::Interval;
use crate::encoding::value::{Value, check_time};

/// A row being changed inside [`Txn::update`](crate::Txn::update). Reads see what was set before.
/// Nothing reaches the table unless the closure returns `Ok`.
#[derive(Debug)]
pub struct RowMut<'a> {
    layout: &'a RowLayout,
    bytes: &'a mut Vec<u8>,
    /// Values that are too long for them.
    moved: MovedValues,
    changes: RowChanges,
}

/// What an update touched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowChanges {
    /// Bytes that may differ, if the row kept its length.
    pub(crate) dirty: Range<usize>,
    /// One bit a column that was set.
    pub(crate) columns: u64,
    /// Variable bytes moved: the row as a whole must be stored again.
    pub(crate) rebuilt: bool,
}

impl<'a> RowMut<'a> {
    #[cfg(test)]
    pub(crate) fn new(layout: &'a RowLayout, bytes: &'a mut Vec<u8>) -> Self {
        Self::with_moved(layout, bytes, MovedValues::default())
    }

    /// A row with values that are not in its bytes.
    pub(crate) fn with_moved(
        layout: &'a RowLayout,
        bytes: &'a mut Vec<u8>,
        moved: MovedValues,
    ) -> Self {
        Self { layout, bytes, moved, changes: RowChanges::default() }
    }

    /// What was changed, and the values that are not in the row's bytes.
    pub(crate) fn into_changes(self) -> (RowChanges, MovedValues) {
        (self.changes, self.moved)
    }

    /// The row as it is now.
    #[must_use]
    pub fn as_row(&self) -> RowRef<'_> {
        RowRef::with_moved(self.layout, self.bytes, &self.moved)
    }

    /// As [`RowRef::i32`].
    ///
    /// # Errors
    /// As [`RowRef::i32`].
    pub fn i32(&self, column: usize) -> Result<i32, NamedRowError> {
        self.as_row().i32(column)
    }

    /// As [`RowRef::i64`].
    ///
    /// # Errors
    /// As [`RowRef::i64`].
    pub fn i64(&self, column: usize) -> Result<i64, NamedRowError> {
        self.as_row().i64(column)
    }

    /// As [`RowRef::f64`].
    ///
    /// # Errors
    /// As [`RowRef::f64`].
    pub fn f64(&self, column: usize) -> Result<f64, NamedRowError> {
        self.as_row().f64(column)
    }

    /// As [`RowRef::value`].
    ///
    /// # Errors
    /// As [`RowRef::value`].
    pub fn value(&self, column: usize) -> Result<Value<'_>, NamedRowError> {
        self.as_row().value(column)
    }

    /// As [`RowRef::text`].
    ///
    /// # Errors
    /// As [`RowRef::text`]. Values that are [stored apart](RowRef::is_moved) are not read for an
    /// update: [`RowError::Moved`], unless the column was set before.
    pub fn text(&self, column: usize) -> Result<&str, NamedRowError> {
        self.as_row().text(column)
    }

    /// Sets an `I32` column, in place.
    ///
    /// # Errors
    /// A [`RowError`] with its names, and the value that is refused, if there is no such column, it
    /// has another type or belongs to the primary key.
    pub fn set_i32(&mut self, column: usize, value: i32) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::I32, &value.to_le_bytes())
    }

    /// Sets an `I64` column, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_i64(&mut self, column: usize, value: i64) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::I64, &value.to_le_bytes())
    }

    /// Sets an `F64` column, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_f64(&mut self, column: usize, value: f64) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::F64, &value.to_le_bytes())
    }

    /// Sets a `Bool`, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_bool(&mut self, column: usize, value: bool) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::Bool, &[u8::from(value)])
    }

    /// Sets an `I16`, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_i16(&mut self, column: usize, value: i16) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::I16, &value.to_le_bytes())
    }

    /// Sets an `F32`, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_f32(&mut self, column: usize, value: f32) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::F32, &value.to_le_bytes())
    }

    /// Sets a `Date`, in days since 2000-01-01, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_date(&mut self, column: usize, value: i32) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::Date, &value.to_le_bytes())
    }

    /// Sets a `Time`, in microseconds since midnight, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32), and [`RowError::OutOfRange`].
    pub fn set_time(&mut self, column: usize, value: i64) -> Result<(), NamedRowError> {
        let offset = self.layout.fixed_offset(column, ColumnType::Time);
        let checked = offset.and_then(|_| check_time(column, value));
        checked.map_err(|error| self.layout.refused(error, Some(Value::Time(value))))?;
        self.set_fixed(column, ColumnType::Time, &value.to_le_bytes())
    }

    /// Sets a `Timestamp`, in microseconds since 2000-01-01 00:00 UTC, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_timestamp(&mut self, column: usize, value: i64) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::Timestamp, &value.to_le_bytes())
    }

    /// Sets an `Interval`, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_interval(&mut self, column: usize, value: Interval) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::Interval, &value.to_stored())
    }

    /// Sets a `Uuid`, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_uuid(&mut self, column: usize, value: [u8; 16]) -> Result<(), NamedRowError> {
        self.set_fixed(column, ColumnType::Uuid, &value)
    }

    /// Sets a `Decimal`; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32), and [`RowError::TooManyDigits`].
    pub fn set_decimal(
        &mut self,
        column: usize,
        value: DecimalRef<'_>,
    ) -> Result<(), NamedRowError> {
        let digits = value.significant_digits();
        self.set_variable(column, ColumnType::Decimal(0), digits, &value.to_stored())
    }

    /// Sets a text column; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32), and [`RowError::TooLong`].
    pub fn set_text(&mut self, column: usize, value: &str) -> Result<(), NamedRowError> {
        self.set_variable(column, ColumnType::Text(0), value.len(), value.as_bytes())
    }

    /// Sets a byte-string column; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_text`](Self::set_text).
    pub fn set_bytes(&mut self, column: usize, value: &[u8]) -> Result<(), NamedRowError> {
        self.set_variable(column, ColumnType::Bytes(0), value.len(), value)
    }

    /// Sets a `Json` column; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_text`](Self::set_text).
    pub fn set_json(&mut self, column: usize, value: &[u8]) -> Result<(), NamedRowError> {
        self.set_variable(column, ColumnType::Json(0), value.len(), value)
    }

    /// Sets a column of any type.
    ///
    /// # Errors
    /// As the method for this type.
    pub fn set(&mut self, column: usize, value: Value<'_>) -> Result<(), NamedRowError> {
        match value {
            Value::Null => self.set_null(column),
            Value::Bool(value) => self.set_bool(column, value),
            Value::I16(value) => self.set_i16(column, value),
            Value::I32(value) => self.set_i32(column, value),
            Value::I64(value) => self.set_i64(column, value),
            Value::F32(value) => self.set_f32(column, value),
            Value::F64(value) => self.set_f64(column, value),
            Value::Date(value) => self.set_date(column, value),
            Value::Time(value) => self.set_time(column, value),
            Value::Timestamp(value) => self.set_timestamp(column, value),
            Value::Interval(value) => self.set_interval(column, value),
            Value::Uuid(value) => self.set_uuid(column, value),
            Value::Decimal(value) => self.set_decimal(column, value),
            Value::Text(value) => self.set_text(column, value),
            Value::Bytes(value) => self.set_bytes(column, value),
            Value::Json(value) => self.set_json(column, value),
        }
    }

    /// Sets a column to NULL.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::NotNullable`].
    pub fn set_null(&mut self, column: usize) -> Result<(), NamedRowError> {
        let layout = self.layout;
        self.put_null(column).map_err(|error| layout.named(error))
    }

    fn put_null(&mut self, column: usize) -> Result<(), RowError> {
        let layout = self.layout.column(column)?;
        if !layout.nullable {
            return Err(RowError::NotNullable { column });
        }
        match layout.place {
            ColumnPlace::Fixed(at) => {
                let bytes = layout.ty.max_bytes();
                self.patch(at..at + bytes, column, |bytes| bytes.fill(0))?;
            }
            ColumnPlace::Variable(ordinal) => self.splice(column, ordinal, &[])?,
            // A row is changed in the layout that has all columns.
            ColumnPlace::Missing { .. } | ColumnPlace::MissingNull => {
                return Err(RowError::Damaged { column });
            }
        }
        self.mark_null(column, true);
        Ok(())
    }

    fn set_fixed(
        &mut self,
        column: usize,
        ty: ColumnType,
        value: &[u8],
    ) -> Result<(), NamedRowError> {
        let layout = self.layout;
        let put = self.put_fixed(column, ty, value);
        put.map_err(|error| layout.refused(error, Value::from_stored(ty, value)))
    }

    fn put_fixed(&mut self, column: usize, ty: ColumnType, value: &[u8]) -> Result<(), RowError> {
        let at = self.layout.fixed_offset(column, ty)?;
        self.refuse_key(column)?;
        self.patch(at..at + value.len(), column, |bytes| bytes.copy_from_slice(value))?;
        self.mark_null(column, false);
        Ok(())
    }

    /// `length` is in the unit of the column's limit.
    fn set_variable(
        &mut self,
        column: usize,
        ty: ColumnType,
        length: usize,
        value: &[u8],
    ) -> Result<(), NamedRowError> {
        let layout = self.layout;
        let put = self.put_variable(column, ty, length, value);
        put.map_err(|error| layout.refused(error, Value::from_stored(ty, value)))
    }

    fn put_variable(
        &mut self,
        column: usize,
        ty: ColumnType,
        length: usize,
        value: &[u8],
    ) -> Result<(), RowError> {
        let ordinal = self.layout.variable_ordinal(column, ty, length)?;
        self.refuse_key(column)?;
        self.splice(column, ordinal, value)?;
        self.mark_null(column, false);
        Ok(())
    }

    fn refuse_key(&self, column: usize) -> Result<(), RowError> {
        if self.layout.column(column)?.in_key {
            return Err(RowError::KeyColumn { column });
        }
        Ok(())
    }

    /// Replaces the value of a variable column: in the row, or beside it if it is too long.
    fn splice(&mut self, column: usize, ordinal: usize, value: &[u8]) -> Result<(), RowError> {
        let damaged = RowError::Damaged { column };
        let old = self.layout.variable(self.bytes, ordinal).ok_or(damaged.clone())?;
        if old.end > self.bytes.len() {
            return Err(damaged);
        }
        let others = self.bytes.len() - self.layout.variable_at - old.len();
        if others + value.len() > MOST_IN_ROW {
            let pointer = self.moved.add(value);
            return self.splice_stored(column, ordinal, old, (&pointer.encode(), MOVED));
        }
        self.splice_stored(column, ordinal, old, (value, 0))
    }

    /// Replaces the bytes of a variable column, and moves what follows. `moved` is the bit that
    /// says whether they are a pointer.
    fn splice_stored(
        &mut self,
        column: usize,
        ordinal: usize,
        old: Range<usize>,
        (value, moved): (&[u8], u16),
    ) -> Result<(), RowError> {
        let damaged = RowError::Damaged { column };
        let was_moved = self.layout.is_moved(self.bytes, ordinal);
        if old.len() == value.len() && !was_moved && moved == 0 {
            return self.patch(old, column, |bytes| bytes.copy_from_slice(value));
        }
        for later in ordinal..self.layout.variable_columns {
            let at = self.layout.ends_at + 2 * later;
            let end = self.bytes.get_mut(at..at + 2).ok_or(damaged.clone())?;
            let word = u16::from_le_bytes(end.try_into().map_err(|_| damaged.clone())?);
            let bit = if later == ordinal { moved } else { word & MOVED };
            let after = (usize::from(word & !MOVED) + value.len()).checked_sub(old.len());
            let after = after.and_then(|end| u16::try_from(end).ok()).filter(|end| *end < MOVED);
            end.copy_from_slice(&(after.ok_or(damaged.clone())? | bit).to_le_bytes());
        }
        self.bytes.splice(old, value.iter().copied());
        self.changes.rebuilt = true;
        self.changes.columns |= 1 << column;
        Ok(())
    }

    /// Puts the value of a column into the row that this has a pointer to.
    pub(crate) fn bring_in(&mut self, column: usize, value: &[u8]) -> Result<(), NamedRowError> {
        let layout = self.layout;
        let put = layout.column(column).and_then(|found| match found.place {
            ColumnPlace::Variable(ordinal) => self.splice(column, ordinal, value),
            _ => Err(RowError::Damaged { column }),
        });
        put.map_err(|error| layout.named(error))
    }

    /// Gives a column, which has a pointer, another one.
    pub(crate) fn set_pointer(
        &mut self,
        column: usize,
        pointer: ValuePointer,
    ) -> Result<(), NamedRowError> {
        let layout = self.layout;
        let put = layout.column(column).and_then(|found| {
            let damaged = RowError::Damaged { column };
            let ColumnPlace::Variable(ordinal) = found.place else { return Err(damaged) };
            let old = layout.variable(self.bytes, ordinal).ok_or(damaged)?;
            self.splice_stored(column, ordinal, old, (&pointer.encode(), MOVED))
        });
        put.map_err(|error| layout.named(error))
    }

    fn patch(
        &mut self,
        range: Range<usize>,
        column: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), RowError> {
        fill(self.bytes.get_mut(range.clone()).ok_or(RowError::Damaged { column })?);
        self.changes.columns |= 1 << column;
        self.widen(range);
        Ok(())
    }

    fn mark_null(&mut self, column: usize, null: bool) {
        let layout = self.layout.columns.get(column).filter(|layout| layout.nullable);
        if let Some(&ColumnLayout { null_bit, .. }) = layout {
            set_null_bit(self.bytes, null_bit, null);
            self.changes.columns |= 1 << column;
            self.widen(null_bit / 8..null_bit / 8 + 1);
        }
    }

    fn widen(&mut self, range: Range<usize>) {
        let dirty = &mut self.changes.dirty;
        *dirty = if dirty.start >= dirty.end {
            range
        } else {
            dirty.start.min(range.start)..dirty.end.max(range.end)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::schema::TableSchema;
    use crate::encoding::decimal::Decimal;
    use crate::encoding::row_builder::RowBuilder;
    use crate::encoding::row_error::wrong_type;
    use crate::encoding::temporal::MAX_TIME_US;
    use proptest::prelude::*;

    fn layout() -> RowLayout {
        RowLayout::of(
            &TableSchema::new("t")
                .column("id", ColumnType::I32)
                .column("name", ColumnType::Text(8))
                .nullable_column("note", ColumnType::Text(8))
                .nullable_column("balance", ColumnType::I64)
                .column("rate", ColumnType::F64)
                .column("blob", ColumnType::Bytes(4))
                .primary_key([0]),
        )
    }

    fn build(layout: &RowLayout) -> RowBuilder<'_> {
        let mut row = RowBuilder::new(layout);
        row.i32(-7).text("name").null().i64(1 << 40).f64(0.5).bytes(&[1, 0]);
        row
    }

    #[test]
    fn what_is_put_in_comes_out() {
        let layout = layout();
        let builder = build(&layout);
        let row = builder.finish().unwrap();
        assert_eq!(row.as_bytes().len(), 1 + 4 + 8 + 8 + 6 + 4 + 2);
        let values: Vec<_> = (0..6).map(|column| row.value(column).unwrap()).collect();
        let expected = [
            Value::I32(-7),
            Value::Text("name"),
            Value::Null,
            Value::I64(1 << 40),
            Value::F64(0.5),
            Value::Bytes(&[1, 0]),
        ];
        assert_eq!(values, expected);
        let wrong = wrong_type(1, ColumnType::Text(8), ColumnType::I32);
        assert_eq!(row.i32(1).unwrap_err().error, wrong);
        let wrong = wrong_type(0, ColumnType::I32, ColumnType::I64);
        assert_eq!(row.i64(0).unwrap_err().error, wrong);
        assert_eq!(row.text(2).unwrap_err().error, RowError::Null { column: 2 });
        let missing = RowError::NoSuchColumn { column: 6, columns: 6 };
        assert_eq!(row.i32(6).unwrap_err().error, missing);
    }

    #[test]
    fn the_builder_keeps_its_first_mistake() {
        let layout = layout();
        let refused = |fill: &dyn Fn(&mut RowBuilder<'_>)| {
            let mut row = RowBuilder::new(&layout);
            fill(&mut row);
            row.finish().unwrap_err().error
        };
        assert_eq!(refused(&|r| _ = r.i32(1)), RowError::Incomplete { given: 1, columns: 6 });
        assert_eq!(refused(&|r| _ = r.null().i32(3)), RowError::NotNullable { column: 0 });
        let too_long = RowError::TooLong { column: 1, bytes: 9, max: 8 };
        assert_eq!(refused(&|r| _ = r.i32(1).text("123456789")), too_long);
        assert!(matches!(refused(&|r| _ = r.text("x")), RowError::WrongType { column: 0, .. }));
        let many = RowError::NoSuchColumn { column: 6, columns: 6 };
        assert_eq!(build(&layout).i32(1).finish().unwrap_err().error, many);
    }

    #[test]
    fn in_place_changes_have_narrow_bounds() {
        let layout = layout();
        let mut bytes = build(&layout).finish().unwrap().as_bytes().to_vec();
        let before = bytes.clone();
        let mut row = RowMut::new(&layout, &mut bytes);
        row.set_f64(4, 2.0).unwrap();
        let refused = row.set_i32(0, 1).unwrap_err().error;
        assert_eq!(refused, RowError::KeyColumn { column: 0 });
        let (changes, _) = row.into_changes();
        assert_eq!(changes, RowChanges { dirty: 13..21, columns: 1 << 4, rebuilt: false });
        let differing: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).collect();
        assert!(differing.iter().all(|at| changes.dirty.contains(at)) && !differing.is_empty());
    }

    /// A table with a column of each type that the other one does not have, all nullable.
    fn wide() -> RowLayout {
        let types = [
            ColumnType::Bool,
            ColumnType::I16,
            ColumnType::F32,
            ColumnType::Date,
            ColumnType::Time,
            ColumnType::Timestamp,
            ColumnType::Interval,
            ColumnType::Uuid,
            ColumnType::Decimal(5),
            ColumnType::Json(8),
        ];
        let table = TableSchema::new("t").column("id", ColumnType::I32).primary_key([0]);
        let table =
            types.into_iter().fold(table, |table, ty| table.nullable_column(format!("{ty:?}"), ty));
        RowLayout::of(&table)
    }

    /// Values of its columns.
    fn wide_values<'a>(decimals: &'a [Decimal; 2], second: bool) -> [Value<'a>; 11] {
        let n = i32::from(second);
        let interval = Interval { months: -1 - n, days: i32::MAX, microseconds: i64::MIN };
        [
            Value::I32(7),
            Value::Bool(second),
            Value::I16(-300),
            Value::F32(0.5),
            Value::Date(-n),
            Value::Time(MAX_TIME_US - i64::from(n)),
            Value::Timestamp(i64::MAX),
            Value::Interval(interval),
            Value::Uuid([9; 16]),
            Value::Decimal(decimals[usize::from(second)].as_ref()),
            Value::Json(if second { b"{}" } else { b"[null]" }),
        ]
    }

    fn decimals() -> [Decimal; 2] {
        ["-100.50".parse().unwrap(), "0.0000".parse().unwrap()]
    }

    #[test]
    fn every_type_is_stored_and_changed() {
        let (layout, decimals) = (wide(), decimals());
        let first = wide_values(&decimals, false);
        let mut builder = RowBuilder::new(&layout);
        first.iter().for_each(|&value| _ = builder.value(value));
        let mut bytes = builder.finish().unwrap().as_bytes().to_vec();
        let fixed = 2 + 4 + 1 + 2 + 4 + 4 + 8 + 8 + 16 + 16;
        assert_eq!(bytes.len(), fixed + 4 + (2 + 3 + 3 + 1) + 6);
        assert!(bytes.len() <= layout.max_bytes);
        let read = |bytes: &[u8], column| {
            let text = format!("{:?}", RowRef::new(&layout, bytes).value(column).unwrap());
            text
        };
        for (column, value) in first.iter().enumerate() {
            assert_eq!(read(&bytes, column), format!("{value:?}"));
        }
        for (column, value) in wide_values(&decimals, true).into_iter().enumerate().skip(1) {
            RowMut::new(&layout, &mut bytes).set(column, Value::Null).unwrap();
            assert_eq!(RowRef::new(&layout, &bytes).value(column), Ok(Value::Null));
            RowMut::new(&layout, &mut bytes).set(column, value).unwrap();
            assert_eq!(read(&bytes, column), format!("{value:?}"));
        }
        assert_eq!(RowRef::new(&layout, &bytes).decimal(9).unwrap().to_string(), "0.0000");
    }

    #[test]
    fn what_a_column_does_not_take_is_refused_by_name() {
        let layout = wide();
        let mut bytes = {
            let mut row = RowBuilder::new(&layout);
            row.i32(1);
            (0..10).for_each(|_| _ = row.null());
            row.finish().unwrap().as_bytes().to_vec()
        };
        let before = bytes.clone();
        let mut row = RowMut::new(&layout, &mut bytes);
        let mut refused = |column, value| row.set(column, value).unwrap_err().error.to_string();
        let time = "column 5: 86400000001 (allowed: 0 to 86400000000)";
        assert_eq!(refused(5, Value::Time(MAX_TIME_US + 1)), time);
        let long: Decimal = "1000.01".parse().unwrap();
        let digits = "column 9: 6 digits (allowed: 5)";
        assert_eq!(refused(9, Value::Decimal(long.as_ref())), digits);
        assert_eq!(refused(10, Value::Json(&[0; 9])), "column 10: 9 bytes (allowed: 8)");
        assert_eq!(refused(10, Value::Bytes(&[0])), "column 10 is Json(8), not Bytes");
        assert_eq!(refused(4, Value::I32(1)), "column 4 is Date, not I32");
        assert_eq!(bytes, before);
        let mut row = RowBuilder::new(&layout);
        row.i32(1).bool(true).i16(1).f32(1.0).date(1).time(-1);
        let range = RowError::OutOfRange { column: 5, value: -1, min: 0, max: MAX_TIME_US };
        assert_eq!(row.finish().unwrap_err().error, range);
        let mut row = RowBuilder::new(&layout);
        row.i32(1).bool(true).i16(1).f32(1.0).date(1).time(1).timestamp(1);
        row.interval(Interval::default()).uuid([1; 16]).decimal(long.as_ref());
        let digits = RowError::TooManyDigits { column: 9, digits: 6, max: 5 };
        assert_eq!(row.finish().unwrap_err().error, digits);
    }

    #[test]
    fn damaged_values_are_refused() {
        let (layout, decimals) = (wide(), decimals());
        let mut builder = RowBuilder::new(&layout);
        wide_values(&decimals, false).iter().for_each(|&value| _ = builder.value(value));
        let good = builder.finish().unwrap().as_bytes().to_vec();
        for cut in 0..good.len() {
            let row = RowRef::new(&layout, &good[..cut]);
            let read = (0..11).try_for_each(|column| row.value(column).map(drop));
            let error = read.unwrap_err().error;
            assert!(matches!(error, RowError::Damaged { .. }), "cut at {cut}");
        }
        let decimal_at = layout.variable_at;
        // A bool and a time that are none, less digits printed than there are, and no pair.
        let time_at = 6 + 1 + 2 + 4 + 4 + 7;
        let damages = [(1, 6, 2), (5, time_at, 1), (9, decimal_at, 0), (9, decimal_at + 6, 1)];
        for (column, at, byte) in damages {
            let mut bad = good.clone();
            bad[at] = byte;
            let damaged = RowError::Damaged { column };
            let read = RowRef::new(&layout, &bad).value(column).unwrap_err();
            assert_eq!(read.error, damaged, "byte {at}");
        }
    }

    #[test]
    fn damaged_rows_are_refused() {
        let layout = layout();
        let good = build(&layout).finish().unwrap().as_bytes().to_vec();
        for cut in 0..good.len() {
            let row = RowRef::new(&layout, &good[..cut]);
            let read = (0..6).try_for_each(|column| row.value(column).map(drop));
            let error = read.unwrap_err().error;
            assert!(matches!(error, RowError::Damaged { .. }), "cut at {cut}");
        }
        let mut swapped = good;
        swapped[21] = 200;
        let read = RowRef::new(&layout, &swapped).text(1).unwrap_err();
        assert_eq!(read.error, RowError::Damaged { column: 1 });
    }

    proptest! {
        #[test]
        fn changes_leave_the_other_columns_alone(
            steps in proptest::collection::vec((1usize..6, "[a-z]{0,8}", any::<i64>(), any::<bool>()), 0..12)
        ) {
            let layout = layout();
            let mut bytes = build(&layout).finish().unwrap().as_bytes().to_vec();
            let mut model = (String::from("name"), None::<String>, Some(1i64 << 40), 0.5f64, vec![1u8, 0]);
            for (column, text, number, null) in steps {
                let mut row = RowMut::new(&layout, &mut bytes);
                match (column, null) {
                    (1, _) => { row.set_text(1, &text).unwrap(); model.0 = text; }
                    (2, true) => { row.set_null(2).unwrap(); model.1 = None; }
                    (2, false) => { row.set_text(2, &text).unwrap(); model.1 = Some(text); }
                    (3, true) => { row.set_null(3).unwrap(); model.2 = None; }
                    (3, false) => { row.set_i64(3, number).unwrap(); model.2 = Some(number); }
                    (4, _) => { row.set_f64(4, number as f64).unwrap(); model.3 = number as f64; }
                    _ => { let b = &text.as_bytes()[..text.len().min(4)]; row.set_bytes(5, b).unwrap(); model.4 = b.to_vec(); }
                }
                let row = RowRef::new(&layout, &bytes);
                prop_assert_eq!(row.i32(0).unwrap(), -7);
                prop_assert_eq!(row.text(1).unwrap(), &model.0);
                prop_assert_eq!(row.value(2).unwrap(), model.1.as_deref().map_or(Value::Null, Value::Text));
                prop_assert_eq!(row.value(3).unwrap(), model.2.map_or(Value::Null, Value::I64));
                prop_assert_eq!(row.f64(4).unwrap(), model.3);
                prop_assert_eq!(row.bytes(5).unwrap(), &model.4[..]);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            for layout in [layout(), wide()] {
                let row = RowRef::new(&layout, &bytes);
                for column in 0..layout.columns.len() {
                    let _ = row.value(column);
                    let _ = RowMut::new(&layout, &mut bytes.clone()).set_null(column);
                }
            }
        }
    }
}
