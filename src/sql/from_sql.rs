//! From values of SQL to those of Rust: columns.

use std::sync::Arc;
use std::time::SystemTime;

use bigdecimal::BigDecimal;
use selkie_sql::{Datum, Scalar, SqlType};
use selkie_txn::Interval;

use super::to_sql::ArrayElement;
use super::value::{Date, Time, Timestamp, Uuid};

/// A value of a column, as [`Row::get`](super::Row::get) gives it.
///
/// Nothing is lost: a `bigint` cannot be read as `i32`, but an `integer` as `i64`.
///
/// | Rust | SQL |
/// | --- | --- |
/// | `bool` | `boolean` |
/// | `i16`, `i32`, `i64` | `smallint`, `integer`, `bigint` of no more bits; `i64` an `oid`, too |
/// | `f32`, `f64` | `real`; `f64` a `double precision`, too |
/// | [`BigDecimal`] | `numeric`, except NaN |
/// | `String`, `Arc<str>` | texts, names, `json`, `jsonb` |
/// | `Vec<u8>` | `bytea` |
/// | [`Date`], [`Time`], [`Timestamp`], [`Interval`] | dates and times |
/// | `SystemTime` | `timestamptz`, except infinities |
/// | [`Uuid`] | `uuid` |
/// | `Vec` of these | arrays of one dimension |
/// | `Option` of these | NULL is `None` |
/// | [`Datum`] | any |
///
/// [`Row::text`](super::Row::text) gives any value as text.
pub trait FromSql: Sized {
    /// How errors call the Rust type.
    const NAME: &'static str;

    /// Whether columns of a type can be read.
    fn accepts(ty: SqlType) -> bool;

    /// The value, of a type that is accepted. `None` if it has no counterpart.
    fn from_sql(value: &Datum, ty: SqlType) -> Option<Self>;

    /// What NULL is; `None` if it is an error.
    #[must_use]
    fn from_null() -> Option<Self> {
        None
    }
}

/// What is of some types, and which values of them.
macro_rules! scalars {
    ($($rust:ty, $name:literal, $($scalar:ident)|+, { $($value:pat => $out:expr),+ };)*) => { $(
        impl FromSql for $rust {
            const NAME: &'static str = $name;

            fn accepts(ty: SqlType) -> bool {
                !ty.is_array && matches!(ty.scalar, $(Scalar::$scalar)|+)
            }

            fn from_sql(value: &Datum, _: SqlType) -> Option<Self> {
                match value {
                    $($value => $out,)+
                    _ => None,
                }
            }
        }
    )* };
}

scalars! {
    bool, "bool", Bool, { Datum::Bool(own) => Some(*own) };
    i16, "i16", Int2, { Datum::I16(own) => Some(*own) };
    i32, "i32", Int2 | Int4, {
        Datum::I16(own) => Some((*own).into()),
        Datum::I32(own) => Some(*own)
    };
    i64, "i64", Int2 | Int4 | Int8 | Oid, {
        Datum::I16(own) => Some((*own).into()),
        Datum::I32(own) => Some((*own).into()),
        Datum::I64(own) => Some(*own)
    };
    f32, "f32", Float4, { Datum::F32(own) => Some(*own) };
    f64, "f64", Float4 | Float8, {
        Datum::F32(own) => Some((*own).into()),
        Datum::F64(own) => Some(*own)
    };
    BigDecimal, "BigDecimal", Numeric, {
        Datum::Numeric(own) => own.as_deref().cloned()
    };
    String, "String", Text | Varchar | Char | Name | SingleChar | Unknown | Json | Jsonb, {
        Datum::Text(own) | Datum::Json(own) => Some((**own).to_owned())
    };
    Arc<str>, "Arc<str>", Text | Varchar | Char | Name | SingleChar | Unknown | Json | Jsonb, {
        Datum::Text(own) | Datum::Json(own) => Some(Arc::clone(own))
    };
    Vec<u8>, "Vec<u8>", Bytea, { Datum::Bytes(own) => Some(own.to_vec()) };
    Date, "Date", Date, { Datum::Date(own) => Some(Self::of_days(*own)) };
    Time, "Time", Time, { Datum::Time(own) => Self::of_microseconds(*own) };
    Timestamp, "Timestamp", Timestamp | TimestampTz, {
        Datum::Timestamp(own) => Some(Self::of_microseconds(*own))
    };
    SystemTime, "SystemTime", TimestampTz, {
        Datum::Timestamp(own) => Timestamp::of_microseconds(*own).system_time()
    };
    Interval, "Interval", Interval, { Datum::Interval(own) => Some(*own) };
    Uuid, "Uuid", Uuid, { Datum::Uuid(own) => Some(Self(*own)) };
}

impl FromSql for Datum {
    const NAME: &'static str = "Datum";

    fn accepts(_: SqlType) -> bool {
        true
    }

    fn from_sql(value: &Datum, _: SqlType) -> Option<Self> {
        Some(value.clone())
    }

    fn from_null() -> Option<Self> {
        Some(Self::Null)
    }
}

impl<T: FromSql> FromSql for Option<T> {
    const NAME: &'static str = T::NAME;

    fn accepts(ty: SqlType) -> bool {
        T::accepts(ty)
    }

    fn from_sql(value: &Datum, ty: SqlType) -> Option<Self> {
        T::from_sql(value, ty).map(Some)
    }

    fn from_null() -> Option<Self> {
        Some(None)
    }
}

impl<T: FromSql + ArrayElement> FromSql for Vec<T> {
    const NAME: &'static str = "Vec";

    fn accepts(ty: SqlType) -> bool {
        ty.is_array && T::accepts(ty.element())
    }

    fn from_sql(value: &Datum, ty: SqlType) -> Option<Self> {
        let Datum::Array(array) = value else { return None };
        if array.dimensions.len() > 1 {
            return None;
        }
        let elements = array.elements.iter().map(|element| match element {
            Datum::Null => T::from_null(),
            element => T::from_sql(element, ty.element()),
        });
        elements.collect()
    }
}
