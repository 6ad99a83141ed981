//! Values.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use selkie_txn::Interval;

use super::sql_type::{Scalar, SqlType};
use super::text_format::natural_type;

/// A value of any type. Which type it is says who has it: texts, names and literals are all
/// [`Datum::Text`], a `timestamp` and a `timestamptz` both [`Datum::Timestamp`], and what is an
/// oid is [`Datum::I64`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Datum {
    /// NULL, of any type.
    Null,
    /// `boolean`.
    Bool(bool),
    /// `smallint`.
    I16(i16),
    /// `integer`.
    I32(i32),
    /// `bigint`, and what is an oid.
    I64(i64),
    /// `real`.
    F32(f32),
    /// `double precision`.
    F64(f64),
    /// `numeric`; `None` is NaN.
    Numeric(Option<Arc<BigDecimal>>),
    /// `text`, `varchar`, `char` (without the spaces at its end), `name`, `"char"`, and literals.
    Text(Arc<str>),
    /// `bytea`.
    Bytes(Arc<[u8]>),
    /// `json` and `jsonb`, as text.
    Json(Arc<str>),
    /// Days since 2000-01-01; `i32::MIN` and `i32::MAX` are -infinity and infinity.
    Date(i32),
    /// Microseconds since midnight.
    Time(i64),
    /// Microseconds since 2000-01-01, in UTC if it has a time zone; `i64::MIN` and `i64::MAX` are
    /// -infinity and infinity.
    Timestamp(i64),
    /// Months, days and microseconds.
    Interval(Interval),
    /// `uuid`.
    Uuid([u8; 16]),
    /// An array.
    Array(Arc<Array>),
    /// A row.
    Record(Arc<Record>),
}

/// An array: its elements row by row.
#[derive(Clone, Debug)]
pub struct Array {
    /// The type of its elements.
    pub element: Scalar,
    /// The length and the first index of each dimension; none of an empty array.
    pub dimensions: Vec<(usize, i32)>,
    /// The elements, the last dimension fastest.
    pub elements: Vec<Datum>,
}

/// A row as one value.
#[derive(Clone, Debug)]
pub struct Record {
    /// The values of its fields.
    pub values: Vec<Datum>,
    /// What its fields are.
    pub fields: Arc<[Field]>,
}

/// A field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: Arc<str>,
    /// The type of its values.
    pub ty: SqlType,
}

impl Record {
    /// The values, with the types of their fields.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&Datum, SqlType)> {
        self.values.iter().enumerate().map(|(at, value)| {
            let known = self.fields.get(at).map(|own| own.ty).filter(|ty| *ty != SqlType::UNKNOWN);
            (value, known.unwrap_or_else(|| natural_type(value)))
        })
    }
}

impl Field {
    /// Fields that have no names of their own: `f1`, `f2` and so on.
    pub(crate) fn numbered(types: impl IntoIterator<Item = SqlType>) -> Arc<[Self]> {
        let field = |(number, ty): (usize, SqlType)| Self { name: format!("f{number}").into(), ty };
        (1..).zip(types).map(field).collect()
    }
}

impl Datum {
    /// Whether it is NULL.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// A text.
    pub fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }
}
