//! Changing the columns of a row.

use std::ops::Range;

use crate::catalogue::schema::ColumnType;
use crate::encoding::row_bytes::set_null_bit;
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::{ColumnPlace, RowLayout};
use crate::encoding::row_ref::RowRef;

/// A row being changed inside [`Txn::update`](crate::Txn::update). Reads see what was set before.
/// Nothing reaches the table unless the closure returns `Ok`.
#[derive(Debug)]
pub struct RowMut<'a> {
    layout: &'a RowLayout,
    bytes: &'a mut Vec<u8>,
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
    pub(crate) fn new(layout: &'a RowLayout, bytes: &'a mut Vec<u8>) -> Self {
        Self { layout, bytes, changes: RowChanges::default() }
    }

    pub(crate) fn into_changes(self) -> RowChanges {
        self.changes
    }

    /// The row as it is now.
    #[must_use]
    pub fn as_row(&self) -> RowRef<'_> {
        RowRef::new(self.layout, self.bytes)
    }

    /// As [`RowRef::i32`].
    ///
    /// # Errors
    /// As [`RowRef::i32`].
    pub fn i32(&self, column: usize) -> Result<i32, RowError> {
        self.as_row().i32(column)
    }

    /// As [`RowRef::i64`].
    ///
    /// # Errors
    /// As [`RowRef::i64`].
    pub fn i64(&self, column: usize) -> Result<i64, RowError> {
        self.as_row().i64(column)
    }

    /// As [`RowRef::f64`].
    ///
    /// # Errors
    /// As [`RowRef::f64`].
    pub fn f64(&self, column: usize) -> Result<f64, RowError> {
        self.as_row().f64(column)
    }

    /// As [`RowRef::text`].
    ///
    /// # Errors
    /// As [`RowRef::text`].
    pub fn text(&self, column: usize) -> Result<&str, RowError> {
        self.as_row().text(column)
    }

    /// Sets an `I32` column, in place.
    ///
    /// # Errors
    /// [`RowError`] if there is no such column, it has another type or belongs to the primary key.
    pub fn set_i32(&mut self, column: usize, value: i32) -> Result<(), RowError> {
        self.set_fixed(column, ColumnType::I32, &value.to_le_bytes())
    }

    /// Sets an `I64` column, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_i64(&mut self, column: usize, value: i64) -> Result<(), RowError> {
        self.set_fixed(column, ColumnType::I64, &value.to_le_bytes())
    }

    /// Sets an `F64` column, in place.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32).
    pub fn set_f64(&mut self, column: usize, value: f64) -> Result<(), RowError> {
        self.set_fixed(column, ColumnType::F64, &value.to_le_bytes())
    }

    /// Sets a text column; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_i32`](Self::set_i32), and [`RowError::TooLong`].
    pub fn set_text(&mut self, column: usize, value: &str) -> Result<(), RowError> {
        self.set_variable(column, ColumnType::Text(0), value.as_bytes())
    }

    /// Sets a byte-string column; a new length stores the whole row again.
    ///
    /// # Errors
    /// As [`set_text`](Self::set_text).
    pub fn set_bytes(&mut self, column: usize, value: &[u8]) -> Result<(), RowError> {
        self.set_variable(column, ColumnType::Bytes(0), value)
    }

    /// Sets a column to NULL.
    ///
    /// # Errors
    /// [`RowError::NoSuchColumn`], [`RowError::NotNullable`].
    pub fn set_null(&mut self, column: usize) -> Result<(), RowError> {
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
        }
        self.mark_null(column, true);
        Ok(())
    }

    fn set_fixed(&mut self, column: usize, ty: ColumnType, value: &[u8]) -> Result<(), RowError> {
        let at = self.layout.fixed_offset(column, ty)?;
        self.refuse_key(column)?;
        self.patch(at..at + value.len(), column, |bytes| bytes.copy_from_slice(value))?;
        self.mark_null(column, false);
        Ok(())
    }

    fn set_variable(
        &mut self,
        column: usize,
        ty: ColumnType,
        value: &[u8],
    ) -> Result<(), RowError> {
        let ordinal = self.layout.variable_ordinal(column, ty, value.len())?;
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

    /// Replaces the bytes of a variable column, and moves what follows.
    fn splice(&mut self, column: usize, ordinal: usize, value: &[u8]) -> Result<(), RowError> {
        let damaged = RowError::Damaged { column };
        let old = self.layout.variable(self.bytes, ordinal).ok_or(damaged.clone())?;
        if old.end > self.bytes.len() {
            return Err(damaged);
        }
        if old.len() == value.len() {
            return self.patch(old, column, |bytes| bytes.copy_from_slice(value));
        }
        for later in ordinal..self.layout.variable_columns {
            let at = self.layout.ends_at + 2 * later;
            let end = self.bytes.get_mut(at..at + 2).ok_or(damaged.clone())?;
            let old_end = u16::from_le_bytes(end.try_into().map_err(|_| damaged.clone())?);
            let moved = (usize::from(old_end) + value.len()).checked_sub(old.len());
            let moved = moved.and_then(|end| u16::try_from(end).ok()).ok_or(damaged.clone())?;
            end.copy_from_slice(&moved.to_le_bytes());
        }
        self.bytes.splice(old, value.iter().copied());
        self.changes.rebuilt = true;
        self.changes.columns |= 1 << column;
        Ok(())
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
        if self.layout.columns.get(column).is_some_and(|layout| layout.nullable) {
            set_null_bit(self.bytes, column, null);
            self.changes.columns |= 1 << column;
            self.widen(column / 8..column / 8 + 1);
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
    use crate::encoding::row_builder::RowBuilder;
    use crate::encoding::row_error::wrong_type;
    use crate::encoding::row_ref::Value;
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
        assert_eq!(row.i32(1), Err(wrong_type(1, ColumnType::Text(8), ColumnType::I32)));
        assert_eq!(row.i64(0), Err(wrong_type(0, ColumnType::I32, ColumnType::I64)));
        assert_eq!(row.text(2), Err(RowError::Null { column: 2 }));
        assert_eq!(row.i32(6), Err(RowError::NoSuchColumn { column: 6, columns: 6 }));
    }

    #[test]
    fn the_builder_keeps_its_first_mistake() {
        let layout = layout();
        let refused = |fill: &dyn Fn(&mut RowBuilder<'_>)| {
            let mut row = RowBuilder::new(&layout);
            fill(&mut row);
            row.finish().unwrap_err()
        };
        assert_eq!(refused(&|r| _ = r.i32(1)), RowError::Incomplete { given: 1, columns: 6 });
        assert_eq!(refused(&|r| _ = r.null().i32(3)), RowError::NotNullable { column: 0 });
        let too_long = RowError::TooLong { column: 1, bytes: 9, max: 8 };
        assert_eq!(refused(&|r| _ = r.i32(1).text("123456789")), too_long);
        assert!(matches!(refused(&|r| _ = r.text("x")), RowError::WrongType { column: 0, .. }));
        let many = RowError::NoSuchColumn { column: 6, columns: 6 };
        assert_eq!(build(&layout).i32(1).finish().unwrap_err(), many);
    }

    #[test]
    fn in_place_changes_have_narrow_bounds() {
        let layout = layout();
        let mut bytes = build(&layout).finish().unwrap().as_bytes().to_vec();
        let before = bytes.clone();
        let mut row = RowMut::new(&layout, &mut bytes);
        row.set_f64(4, 2.0).unwrap();
        assert_eq!(row.set_i32(0, 1), Err(RowError::KeyColumn { column: 0 }));
        let changes = row.into_changes();
        assert_eq!(changes, RowChanges { dirty: 13..21, columns: 1 << 4, rebuilt: false });
        let differing: Vec<_> = (0..bytes.len()).filter(|&at| bytes[at] != before[at]).collect();
        assert!(differing.iter().all(|at| changes.dirty.contains(at)) && !differing.is_empty());
    }

    #[test]
    fn damaged_rows_are_refused() {
        let layout = layout();
        let good = build(&layout).finish().unwrap().as_bytes().to_vec();
        for cut in 0..good.len() {
            let row = RowRef::new(&layout, &good[..cut]);
            let read = (0..6).try_for_each(|column| row.value(column).map(drop));
            assert!(matches!(read, Err(RowError::Damaged { .. })), "cut at {cut}");
        }
        let mut swapped = good;
        swapped[21] = 200;
        assert_eq!(RowRef::new(&layout, &swapped).text(1), Err(RowError::Damaged { column: 1 }));
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
}
