//! From values of Rust to those of SQL: parameters.

use std::sync::Arc;
use std::time::SystemTime;

use bigdecimal::BigDecimal;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::text_format::from_text;
use selkie_sql::{Array, Datum, Scalar, SqlError, SqlResult, SqlState, SqlType};
use selkie_txn::Interval;

use super::value::{Date, Time, Timestamp, Uuid};

/// A value for a parameter, as [`Connection::query`](super::Connection::query) takes it.
///
/// The statement says of which type a parameter is (`where id = $1`, or `$1::bigint`). A value has
/// to fit that type:
///
/// | Rust | SQL |
/// | --- | --- |
/// | `bool` | `boolean` |
/// | `i16`, `i32`, `i64` | `smallint`, `integer`, `bigint` if it is in range, `numeric`, `oid` |
/// | `f32`, `f64` | `real`, `double precision`; an `f64` is rounded to `real` |
/// | [`BigDecimal`] | `numeric` |
/// | `str`, `String` | texts and `json`; all others as a literal in quotes would be read |
/// | `[u8]`, `Vec<u8>` | `bytea` |
/// | [`Date`], [`Time`], [`Timestamp`], `SystemTime`, [`Interval`] | dates and times |
/// | [`Uuid`] | `uuid` |
/// | `Vec` of these | arrays of one dimension |
/// | `Option` of these | NULL |
/// | [`Datum`] | what it is, and NULL of any type |
pub trait ToSql {
    /// The value, of a type.
    ///
    /// # Errors
    /// 42804 if the Rust type has no counterpart there, 22003 if a number is out of range, 22008 if
    /// a date or moment is, others if a text is no value of the type.
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum>;
}

/// What has an array of SQL as its `Vec`. Not bytes: those are `bytea`.
pub trait ArrayElement {}

fn mismatch(rust: &str, ty: SqlType) -> SqlError {
    let message = format!("a value of Rust's type {rust} is given for {}", ty.name());
    SqlError::new(SqlState::DATATYPE_MISMATCH, message)
}

fn out_of_range(value: impl std::fmt::Display, ty: SqlType) -> SqlError {
    let message = format!("{value} is out of range for type {}", ty.name());
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
}

/// A number as it would be in a statement, for types with a precision.
fn by_text(text: &str, ty: SqlType) -> SqlResult<Datum> {
    from_text(text, ty, &FormatSettings::default())
}

fn whole(value: i64, rust: &str, ty: SqlType) -> SqlResult<Datum> {
    let failed = || out_of_range(value, ty);
    match ty.scalar {
        _ if ty.is_array => Err(mismatch(rust, ty)),
        Scalar::Int2 => value.try_into().map(Datum::I16).map_err(|_| failed()),
        Scalar::Int4 => value.try_into().map(Datum::I32).map_err(|_| failed()),
        Scalar::Int8 => Ok(Datum::I64(value)),
        Scalar::Oid => u32::try_from(value).map(|oid| Datum::I64(oid.into())).map_err(|_| failed()),
        Scalar::Numeric => by_text(&value.to_string(), ty),
        _ => Err(mismatch(rust, ty)),
    }
}

macro_rules! whole {
    ($($rust:ident)*) => { $(
        impl ToSql for $rust {
            fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
                whole(i64::from(*self), stringify!($rust), ty)
            }
        }
    )* };
}

whole!(i16 i32 i64);

/// What is of one type, or some, and nothing else.
macro_rules! exact {
    ($($rust:ty, $($scalar:ident)|+, $own:ident => $datum:expr;)*) => { $(
        impl ToSql for $rust {
            fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
                let $own = self;
                match ty.scalar {
                    $(Scalar::$scalar)|+ if !ty.is_array => Ok($datum),
                    _ => Err(mismatch(stringify!($rust), ty)),
                }
            }
        }
    )* };
}

exact! {
    bool, Bool, own => Datum::Bool(*own);
    [u8], Bytea, own => Datum::Bytes(own.into());
    Vec<u8>, Bytea, own => Datum::Bytes(own.as_slice().into());
    Date, Date, own => Datum::Date(own.checked()?);
    Time, Time, own => Datum::Time(own.microseconds());
    Timestamp, Timestamp | TimestampTz, own => Datum::Timestamp(own.checked()?);
    SystemTime, TimestampTz, own => Datum::Timestamp(Timestamp::try_from(*own)?.microseconds());
    Interval, Interval, own => Datum::Interval(*own);
    Uuid, Uuid, own => Datum::Uuid(own.0);
}

impl ToSql for f32 {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        match ty.scalar {
            Scalar::Float4 if !ty.is_array => Ok(Datum::F32(*self)),
            Scalar::Float8 if !ty.is_array => Ok(Datum::F64((*self).into())),
            _ => Err(mismatch("f32", ty)),
        }
    }
}

impl ToSql for f64 {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        match ty.scalar {
            Scalar::Float4 if !ty.is_array => {
                let rounded = *self as f32;
                let overflows = rounded.is_infinite() && self.is_finite();
                let underflows = rounded == 0.0 && *self != 0.0;
                let fits = !overflows && !underflows;
                if fits { Ok(Datum::F32(rounded)) } else { Err(out_of_range(self, ty)) }
            }
            Scalar::Float8 if !ty.is_array => Ok(Datum::F64(*self)),
            _ => Err(mismatch("f64", ty)),
        }
    }
}

/// Digits before the point that a `numeric` may have.
const MAX_NUMERIC_DIGITS: i64 = 131_072;

impl ToSql for BigDecimal {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        if ty.scalar != Scalar::Numeric || ty.is_array {
            return Err(mismatch("BigDecimal", ty));
        }
        let scale = self.fractional_digit_count();
        // Before zeroes are written out.
        if !(-MAX_NUMERIC_DIGITS..=selkie_sql::types::numeric::MAX_SCALE).contains(&scale) {
            return Err(out_of_range(format_args!("a number of scale {scale}"), ty));
        }
        by_text(&self.to_plain_string(), ty)
    }
}

impl ToSql for str {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        if self.contains('\0') {
            let message = "a text with the character 0 is given";
            return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
        }
        by_text(self, ty)
    }
}

impl ToSql for String {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        self.as_str().to_sql(ty)
    }
}

impl ToSql for Arc<str> {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        (**self).to_sql(ty)
    }
}

impl ToSql for Datum {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        if !is_of(self, ty) {
            return Err(mismatch("Datum", ty));
        }
        Ok(self.clone())
    }
}

/// Whether values of a type have this shape. Lengths and precisions are not looked at.
fn is_of(value: &Datum, ty: SqlType) -> bool {
    use Scalar as S;
    if let (Datum::Array(array), true) = (value, ty.is_array) {
        let element = ty.element();
        return array.element == element.scalar
            && array.elements.iter().all(|value| is_of(value, element));
    }
    if ty.is_array {
        return matches!(value, Datum::Null);
    }
    match value {
        Datum::Null => true,
        Datum::Bool(_) => ty.scalar == S::Bool,
        Datum::I16(_) => ty.scalar == S::Int2,
        Datum::I32(_) => ty.scalar == S::Int4,
        Datum::I64(_) => {
            let is_oid = matches!(ty.scalar, S::Oid | S::Regclass | S::Regtype | S::Regproc);
            let is_other = matches!(ty.scalar, S::Regprocedure | S::Regoper | S::Regoperator);
            let is_oid = is_oid || is_other || ty.scalar == S::Regcollation;
            is_oid || matches!(ty.scalar, S::Int8 | S::Regnamespace | S::Regrole)
        }
        Datum::F32(_) => ty.scalar == S::Float4,
        Datum::F64(_) => ty.scalar == S::Float8,
        Datum::Numeric(_) => ty.scalar == S::Numeric,
        Datum::Text(_) => {
            let is_text = matches!(ty.scalar, S::Text | S::Varchar | S::Char | S::Name);
            is_text || matches!(ty.scalar, S::SingleChar | S::Unknown | S::Void)
        }
        Datum::Bytes(_) => ty.scalar == S::Bytea,
        Datum::Json(_) => matches!(ty.scalar, S::Json | S::Jsonb),
        Datum::Date(_) => ty.scalar == S::Date,
        Datum::Time(_) => ty.scalar == S::Time,
        Datum::Timestamp(_) => matches!(ty.scalar, S::Timestamp | S::TimestampTz),
        Datum::Interval(_) => ty.scalar == S::Interval,
        Datum::Uuid(_) => ty.scalar == S::Uuid,
        Datum::Record(_) => ty.scalar == S::Record,
        _ => false,
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        self.as_ref().map_or(Ok(Datum::Null), |value| value.to_sql(ty))
    }
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        (**self).to_sql(ty)
    }
}

impl<T: ToSql + ArrayElement> ToSql for Vec<T> {
    fn to_sql(&self, ty: SqlType) -> SqlResult<Datum> {
        if !ty.is_array {
            return Err(mismatch("Vec", ty));
        }
        let elements = self.iter().map(|value| value.to_sql(ty.element()));
        let elements = elements.collect::<SqlResult<Vec<_>>>()?;
        let dimensions = if elements.is_empty() { vec![] } else { vec![(elements.len(), 1)] };
        Ok(Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements })))
    }
}

macro_rules! elements {
    ($($rust:ty)*) => { $( impl ArrayElement for $rust {} )* };
}

elements! {
    bool i16 i32 i64 f32 f64 String &str Arc<str> BigDecimal Vec<u8> Date Time Timestamp SystemTime
    Interval Uuid
}

impl<T: ArrayElement> ArrayElement for Option<T> {}
