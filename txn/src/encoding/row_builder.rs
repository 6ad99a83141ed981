//! Making a row, column after column.

use crate::catalogue::schema::ColumnType;
use crate::encoding::row_bytes::{set_end, set_null_bit, write_at};
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::{ColumnPlace, RowLayout};
use crate::encoding::row_ref::RowRef;

/// Builds one row, column after column in their order. The first mistake is kept and reported by
/// [`finish`](Self::finish), so calls can be chained. Reuse one builder for many rows:
/// [`clear`](Self::clear) keeps its memory.
#[derive(Clone, Debug)]
pub struct RowBuilder<'a> {
    layout: &'a RowLayout,
    bytes: Vec<u8>,
    next: usize,
    error: Option<RowError>,
}

impl<'a> RowBuilder<'a> {
    pub(crate) fn new(layout: &'a RowLayout) -> Self {
        let mut builder = Self { layout, bytes: Vec::new(), next: 0, error: None };
        builder.clear();
        builder
    }

    /// Starts again with the first column.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.resize(self.layout.variable_at, 0);
        self.next = 0;
        self.error = None;
    }

    /// The next column, an `I32`.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.fixed(ColumnType::I32, &value.to_le_bytes())
    }

    /// The next column, an `I64`.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.fixed(ColumnType::I64, &value.to_le_bytes())
    }

    /// The next column, an `F64`.
    pub fn f64(&mut self, value: f64) -> &mut Self {
        self.fixed(ColumnType::F64, &value.to_le_bytes())
    }

    /// The next column, a text.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.variable(ColumnType::Text(0), value.as_bytes())
    }

    /// The next column, a byte string.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.variable(ColumnType::Bytes(0), value)
    }

    /// The next column is NULL.
    pub fn null(&mut self) -> &mut Self {
        let column = self.next;
        self.step(|layout, bytes| {
            let place = layout.column(column)?;
            if !place.nullable {
                return Err(RowError::NotNullable { column });
            }
            set_null_bit(bytes, column, true);
            if let ColumnPlace::Variable(ordinal) = place.place {
                set_end(layout, bytes, ordinal);
            }
            Ok(())
        })
    }

    /// The row, if every column has its value.
    ///
    /// # Errors
    /// The first [`RowError`] met, or [`RowError::Incomplete`].
    pub fn finish(&self) -> Result<RowRef<'_>, RowError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let columns = self.layout.columns.len();
        if self.next < columns {
            return Err(RowError::Incomplete { given: self.next, columns });
        }
        Ok(RowRef::new(self.layout, &self.bytes))
    }

    fn step(
        &mut self,
        fill: impl FnOnce(&RowLayout, &mut Vec<u8>) -> Result<(), RowError>,
    ) -> &mut Self {
        if self.error.is_none() {
            self.error = fill(self.layout, &mut self.bytes).err();
            self.next += 1;
        }
        self
    }

    fn fixed(&mut self, ty: ColumnType, value: &[u8]) -> &mut Self {
        let column = self.next;
        self.step(|layout, bytes| {
            let at = layout.fixed_offset(column, ty)?;
            write_at(bytes, at, value);
            Ok(())
        })
    }

    fn variable(&mut self, ty: ColumnType, value: &[u8]) -> &mut Self {
        let column = self.next;
        self.step(|layout, bytes| {
            let ordinal = layout.variable_ordinal(column, ty, value.len())?;
            bytes.extend_from_slice(value);
            set_end(layout, bytes, ordinal);
            Ok(())
        })
    }
}
