//! Making a row, column after column.

use crate::catalogue::column_type::ColumnType;
use crate::encoding::decimal::DecimalRef;
use crate::encoding::moved_values::{MovedValues, ValuePointer};
use crate::encoding::named_row_error::NamedRowError;
use crate::encoding::row_bytes::{push_pointer, push_variable, set_end, set_null_bit, write_at};
use crate::encoding::row_error::RowError;
use crate::encoding::row_layout::{ColumnPlace, RowLayout};
use crate::encoding::row_ref::RowRef;
use crate::encoding::temporal::Interval;
use crate::encoding::value::{Value, check_time};

/// Builds one row, column after column in their order. Values may be as long as their columns
/// allow: the transaction that stores the row stores apart from it what it has no room for. The
/// first mistake is kept and reported by [`finish`](Self::finish), so calls can be chained. Reuse
/// one builder for many rows: [`clear`](Self::clear) keeps its memory.
#[derive(Clone, Debug)]
pub struct RowBuilder<'a> {
    layout: &'a RowLayout,
    bytes: Vec<u8>,
    /// Values that are too long for them.
    moved: MovedValues,
    next: usize,
    error: Option<NamedRowError>,
}

impl<'a> RowBuilder<'a> {
    pub(crate) fn new(layout: &'a RowLayout) -> Self {
        let (bytes, moved) = (Vec::new(), MovedValues::default());
        let mut builder = Self { layout, bytes, moved, next: 0, error: None };
        builder.clear();
        builder
    }

    /// Starts again with the first column.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.moved.clear();
        self.bytes.resize(self.layout.variable_at, 0);
        self.layout.mark.write(&mut self.bytes);
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

    /// The next column, a `Bool`.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.fixed(ColumnType::Bool, &[u8::from(value)])
    }

    /// The next column, an `I16`.
    pub fn i16(&mut self, value: i16) -> &mut Self {
        self.fixed(ColumnType::I16, &value.to_le_bytes())
    }

    /// The next column, an `F32`.
    pub fn f32(&mut self, value: f32) -> &mut Self {
        self.fixed(ColumnType::F32, &value.to_le_bytes())
    }

    /// The next column, a `Date`, in days since 2000-01-01.
    pub fn date(&mut self, value: i32) -> &mut Self {
        self.fixed(ColumnType::Date, &value.to_le_bytes())
    }

    /// The next column, a `Time`, in microseconds since midnight.
    pub fn time(&mut self, value: i64) -> &mut Self {
        let column = self.next;
        let given = || Some(Value::Time(value));
        self.step(given, |layout, bytes, _| {
            let at = layout.fixed_offset(column, ColumnType::Time)?;
            check_time(column, value)?;
            write_at(bytes, at, &value.to_le_bytes());
            Ok(())
        })
    }

    /// The next column, a `Timestamp`, in microseconds since 2000-01-01 00:00 UTC.
    pub fn timestamp(&mut self, value: i64) -> &mut Self {
        self.fixed(ColumnType::Timestamp, &value.to_le_bytes())
    }

    /// The next column, an `Interval`.
    pub fn interval(&mut self, value: Interval) -> &mut Self {
        self.fixed(ColumnType::Interval, &value.to_stored())
    }

    /// The next column, a `Uuid`.
    pub fn uuid(&mut self, value: [u8; 16]) -> &mut Self {
        self.fixed(ColumnType::Uuid, &value)
    }

    /// The next column, a `Decimal`.
    pub fn decimal(&mut self, value: DecimalRef<'_>) -> &mut Self {
        let digits = value.significant_digits();
        self.variable(ColumnType::Decimal(0), digits, &value.to_stored())
    }

    /// The next column, a text.
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.variable(ColumnType::Text(0), value.len(), value.as_bytes())
    }

    /// The next column, a byte string.
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.variable(ColumnType::Bytes(0), value.len(), value)
    }

    /// The next column, a `Json`; the bytes are not looked at.
    pub fn json(&mut self, value: &[u8]) -> &mut Self {
        self.variable(ColumnType::Json(0), value.len(), value)
    }

    /// The next column, of any type.
    pub fn value(&mut self, value: Value<'_>) -> &mut Self {
        match value {
            Value::Null => self.null(),
            Value::Bool(value) => self.bool(value),
            Value::I16(value) => self.i16(value),
            Value::I32(value) => self.i32(value),
            Value::I64(value) => self.i64(value),
            Value::F32(value) => self.f32(value),
            Value::F64(value) => self.f64(value),
            Value::Date(value) => self.date(value),
            Value::Time(value) => self.time(value),
            Value::Timestamp(value) => self.timestamp(value),
            Value::Interval(value) => self.interval(value),
            Value::Uuid(value) => self.uuid(value),
            Value::Decimal(value) => self.decimal(value),
            Value::Text(value) => self.text(value),
            Value::Bytes(value) => self.bytes(value),
            Value::Json(value) => self.json(value),
        }
    }

    /// The next column is NULL.
    pub fn null(&mut self) -> &mut Self {
        let column = self.next;
        self.step(no_value, |layout, bytes, _| {
            let place = layout.column(column)?;
            if !place.nullable {
                return Err(RowError::NotNullable { column });
            }
            set_null_bit(bytes, place.null_bit, true);
            if let ColumnPlace::Variable(ordinal) = place.place {
                set_end(layout, bytes, ordinal, false);
            }
            Ok(())
        })
    }

    /// The next column gets its [default](crate::Column::default), or NULL if it has none and may
    /// be NULL; else that is the mistake.
    pub fn default_value(&mut self) -> &mut Self {
        let (layout, column) = (self.layout, self.next);
        let default = layout.default_of(column);
        if default.is_none() && layout.column(column).is_ok_and(|layout| !layout.nullable) {
            return self.step(no_value, |_, _, _| Err(RowError::NoDefault { column }));
        }
        self.stored(default)
    }

    /// All columns that are left get their [defaults](Self::default_value).
    pub fn default_values(&mut self) -> &mut Self {
        while self.error.is_none() && self.next < self.layout.columns.len() {
            self.default_value();
        }
        self
    }

    /// The next column, of a value that is stored in a row or a definition; `None`: NULL.
    pub(crate) fn stored(&mut self, value: Option<&[u8]>) -> &mut Self {
        let Some(value) = value else { return self.null() };
        let column = self.next;
        self.step(no_value, |layout, bytes, moved| {
            match layout.column(column)?.place {
                ColumnPlace::Fixed(at) => write_at(bytes, at, value),
                ColumnPlace::Variable(ordinal) => {
                    push_variable(layout, bytes, moved, ordinal, value);
                }
                // A row is made in the layout that has all columns.
                ColumnPlace::Missing { .. } | ColumnPlace::MissingNull => {
                    return Err(RowError::Damaged { column });
                }
            }
            Ok(())
        })
    }

    /// The next column is not known: it must not be read from the row.
    pub(crate) fn left_out(&mut self) -> &mut Self {
        let column = self.next;
        self.step(no_value, |layout, bytes, _| {
            if let ColumnPlace::Variable(ordinal) = layout.column(column)?.place {
                set_end(layout, bytes, ordinal, false);
            }
            Ok(())
        })
    }

    /// The next column, of a value that another row has a pointer to.
    pub(crate) fn pointer(&mut self, pointer: ValuePointer) -> &mut Self {
        let column = self.next;
        self.step(no_value, |layout, bytes, _| match layout.column(column)?.place {
            ColumnPlace::Variable(ordinal) => {
                push_pointer(layout, bytes, ordinal, pointer);
                Ok(())
            }
            _ => Err(RowError::Damaged { column }),
        })
    }

    /// The row, if every column has its value.
    ///
    /// # Errors
    /// The first [`RowError`] met, or [`RowError::Incomplete`]; with the names of table and column,
    /// and the value that was refused.
    pub fn finish(&self) -> Result<RowRef<'_>, NamedRowError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let columns = self.layout.columns.len();
        if self.next < columns {
            return Err(self.layout.named(RowError::Incomplete { given: self.next, columns }));
        }
        Ok(RowRef::with_moved(self.layout, &self.bytes, &self.moved))
    }

    /// As [`finish`](Self::finish), for an owner of the bytes, and of the values that are not among
    /// them.
    pub(crate) fn into_parts(self) -> Result<(Vec<u8>, MovedValues), NamedRowError> {
        self.finish()?;
        Ok((self.bytes, self.moved))
    }

    /// Fills the next column. `given` is the value of which an error says that it was refused.
    fn step<'v>(
        &mut self,
        given: impl FnOnce() -> Option<Value<'v>>,
        fill: impl FnOnce(&RowLayout, &mut Vec<u8>, &mut MovedValues) -> Result<(), RowError>,
    ) -> &mut Self {
        if self.error.is_none() {
            if let Err(error) = fill(self.layout, &mut self.bytes, &mut self.moved) {
                self.error = Some(self.layout.refused(error, given()));
            }
            self.next += 1;
        }
        self
    }

    fn fixed(&mut self, ty: ColumnType, value: &[u8]) -> &mut Self {
        let column = self.next;
        let given = || Value::from_stored(ty, value);
        self.step(given, |layout, bytes, _| {
            let at = layout.fixed_offset(column, ty)?;
            write_at(bytes, at, value);
            Ok(())
        })
    }

    /// `length` is in the unit of the column's limit.
    fn variable(&mut self, ty: ColumnType, length: usize, value: &[u8]) -> &mut Self {
        let column = self.next;
        let given = || Value::from_stored(ty, value);
        self.step(given, |layout, bytes, moved| {
            let ordinal = layout.variable_ordinal(column, ty, length)?;
            push_variable(layout, bytes, moved, ordinal, value);
            Ok(())
        })
    }
}

/// For a step that is given none.
fn no_value() -> Option<Value<'static>> {
    None
}
