//! Rows of the system, made of values by the names of their columns.

use std::sync::Arc;

use selkie_txn::Interval;

use super::relation::{Relation, SystemColumn};
use crate::types::calendar::SECOND_US;
use crate::types::{Array, Datum, Scalar, SqlType};

/// A value, of which the column tells the type.
pub(super) enum Cell {
    Null,
    Bool(bool),
    Whole(i64),
    Real(f64),
    Text(Arc<str>),
    /// Microseconds since 2000-01-01.
    Moment(i64),
    /// A span of time.
    Seconds(i32),
    List(Vec<Cell>),
    /// A list whose elements are counted from 0.
    Vector(Vec<Cell>),
}

impl From<bool> for Cell {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<&str> for Cell {
    fn from(value: &str) -> Self {
        Self::Text(value.into())
    }
}

impl From<String> for Cell {
    fn from(value: String) -> Self {
        Self::Text(value.into())
    }
}

impl From<u32> for Cell {
    fn from(value: u32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<i32> for Cell {
    fn from(value: i32) -> Self {
        Self::Whole(value.into())
    }
}

impl From<i64> for Cell {
    fn from(value: i64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Cell {
    fn from(value: f64) -> Self {
        Self::Real(value)
    }
}

impl From<usize> for Cell {
    fn from(value: usize) -> Self {
        Self::Whole(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl<T: Into<Cell>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<T: Into<Cell>> From<Vec<T>> for Cell {
    fn from(values: Vec<T>) -> Self {
        Self::List(values.into_iter().map(Into::into).collect())
    }
}

/// An array as PostgreSQL's `int2vector` and `oidvector`.
pub(super) fn vector<T: Into<Cell>>(values: impl IntoIterator<Item = T>) -> Cell {
    Cell::Vector(values.into_iter().map(Into::into).collect())
}

impl Cell {
    fn datum(self, ty: SqlType) -> Datum {
        match self {
            Self::Null => Datum::Null,
            Self::Bool(value) => Datum::Bool(value),
            Self::Text(value) => Datum::Text(value),
            Self::Moment(moment) => Datum::Timestamp(moment),
            Self::Seconds(seconds) => Datum::Interval(Interval {
                microseconds: i64::from(seconds) * SECOND_US,
                ..Interval::default()
            }),
            Self::Whole(value) => whole(value, ty.scalar),
            Self::Real(value) => Datum::F64(value),
            Self::List(cells) => array(cells, ty, 1),
            Self::Vector(cells) => array(cells, ty, 0),
        }
    }
}

fn whole(value: i64, scalar: Scalar) -> Datum {
    match scalar {
        Scalar::Int2 => Datum::I16(i16::try_from(value).unwrap_or(i16::MAX)),
        Scalar::Int4 => Datum::I32(i32::try_from(value).unwrap_or(i32::MAX)),
        Scalar::Float4 => Datum::F32(value as f32),
        _ => Datum::I64(value),
    }
}

fn array(cells: Vec<Cell>, ty: SqlType, first: i32) -> Datum {
    let dimensions = if cells.is_empty() { Vec::new() } else { vec![(cells.len(), first)] };
    let elements = cells.into_iter().map(|cell| cell.datum(ty.element())).collect();
    Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements }))
}

/// A row of a relation. Columns that are not set are NULL or, if they cannot be, the zero of their
/// type.
pub(super) struct Record {
    relation: &'static Relation,
    row: Vec<Datum>,
}

impl Record {
    pub(super) fn new(relation: &'static Relation) -> Self {
        Self { relation, row: relation.columns.iter().map(zero).collect() }
    }

    /// Sets a column.
    #[must_use]
    pub(super) fn set(mut self, name: &str, value: impl Into<Cell>) -> Self {
        let at = self.relation.columns.iter().position(|own| own.name == name);
        debug_assert!(at.is_some(), "{} has no column {name}", self.relation.name);
        if let Some(at) = at
            && let (Some(place), Some(column)) =
                (self.row.get_mut(at), self.relation.columns.get(at))
        {
            *place = value.into().datum(column.ty);
        }
        self
    }

    pub(super) fn row(self) -> Vec<Datum> {
        self.row
    }
}

fn zero(column: &SystemColumn) -> Datum {
    if !column.is_never_null {
        return Datum::Null;
    }
    if column.ty.is_array {
        return array(Vec::new(), column.ty, 1);
    }
    match column.ty.scalar {
        Scalar::Bool => Datum::Bool(false),
        Scalar::Text | Scalar::Name | Scalar::SingleChar | Scalar::Varchar => Datum::text(""),
        Scalar::Float8 => Datum::F64(0.0),
        Scalar::TimestampTz => Datum::Timestamp(0),
        scalar => whole(0, scalar),
    }
}
