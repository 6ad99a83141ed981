//! Conversions of values to other types and to the modifiers of types.

use std::sync::Arc;

use bigdecimal::{BigDecimal, ToPrimitive};
use selkie_txn::Interval;

use super::calendar::{self, SECOND_US};
use super::datum::{Array, Datum};
use super::json::{self, Value};
use super::numeric;
use super::settings::FormatSettings;
use super::sql_type::{Scalar, SqlType};
use super::text_format::{self, from_text, to_string};
use crate::error::{SqlError, SqlResult, SqlState};

/// The error of a whole number that is out of range.
pub(crate) fn out_of_range(scalar: Scalar) -> SqlError {
    let message = format!("{} out of range", SqlType::new(scalar).name());
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
}

/// Makes a value one of a type with its modifier. An explicit cast cuts what is too long.
pub(crate) fn apply_modifier(value: Datum, ty: SqlType, is_explicit: bool) -> SqlResult<Datum> {
    if ty.modifier < 0 {
        return Ok(value);
    }
    Ok(match value {
        Datum::Array(array) => {
            let convert = |value: &Datum| apply_modifier(value.clone(), ty.element(), is_explicit);
            let elements = array.elements.iter().map(convert).collect::<SqlResult<_>>()?;
            let dimensions = array.dimensions.clone();
            Datum::Array(Arc::new(Array { element: array.element, dimensions, elements }))
        }
        Datum::Text(text) => match ty.max_characters() {
            Some(most) => cut(text, most, ty, is_explicit)?,
            None => Datum::Text(text),
        },
        Datum::Numeric(Some(value)) if ty.scalar == Scalar::Numeric => {
            numeric::datum(numeric::apply_modifier(Arc::unwrap_or_clone(value), ty)?)
        }
        Datum::Time(us) => Datum::Time(round_us(us, ty.modifier)),
        Datum::Timestamp(us) if calendar::is_finite(us) => {
            Datum::Timestamp(round_us(us, ty.modifier))
        }
        Datum::Interval(interval) => {
            let microseconds = round_us(interval.microseconds, ty.modifier);
            Datum::Interval(Interval { microseconds, ..interval })
        }
        other => other,
    })
}

/// A text of at most so many characters: spaces beyond these may always go.
fn cut(text: Arc<str>, most: usize, ty: SqlType, is_explicit: bool) -> SqlResult<Datum> {
    let Some((end, _)) = text.char_indices().nth(most) else { return Ok(Datum::Text(text)) };
    let (kept, rest) = text.split_at(end);
    if !is_explicit && rest.contains(|c| c != ' ') {
        return Err(SqlError::new(
            SqlState::STRING_DATA_RIGHT_TRUNCATION,
            format!("value too long for type {}", ty.element().name()),
        ));
    }
    let kept = if ty.scalar == Scalar::Char { kept.trim_end_matches(' ') } else { kept };
    Ok(Datum::text(kept))
}

/// Rounds to so many digits of a second, half away from zero.
fn round_us(us: i64, digits: i32) -> i64 {
    let unit = 10i64.pow(6u32.saturating_sub(digits.unsigned_abs()));
    let rest = us % unit;
    let cut = us - rest;
    if rest.abs() * 2 >= unit && unit > 1 { cut.saturating_add(unit * us.signum()) } else { cut }
}

/// Converts a value that is not NULL to another type; that there is such a cast was checked. The
/// modifier is not applied.
pub(crate) fn convert(
    value: Datum,
    from: SqlType,
    to: SqlType,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    if to.is_array {
        return match value {
            Datum::Array(array) => convert_array(&array, from, to, settings),
            Datum::Text(text) => from_text(&text, to.plain(), settings),
            other => Err(impossible(&other, to)),
        };
    }
    match to.scalar {
        Scalar::Bool => to_bool(value, from, settings),
        Scalar::Int2 | Scalar::Int4 | Scalar::Int8 => to_whole(value, from, to.scalar, settings),
        Scalar::Oid
        | Scalar::Regclass
        | Scalar::Regtype
        | Scalar::Regproc
        | Scalar::Regprocedure
        | Scalar::Regoper
        | Scalar::Regoperator
        | Scalar::Regcollation
        | Scalar::Regnamespace
        | Scalar::Regrole => to_oid(value, to, settings),
        Scalar::Float4 | Scalar::Float8 => to_float(value, from, to, settings),
        Scalar::Numeric => to_numeric(value, from, settings),
        Scalar::Text
        | Scalar::Varchar
        | Scalar::Char
        | Scalar::Name
        | Scalar::SingleChar
        | Scalar::Unknown => Ok(to_characters(value, from, to, settings)),
        Scalar::Date | Scalar::Time | Scalar::Timestamp | Scalar::TimestampTz => {
            to_moment(value, from, to, settings)
        }
        Scalar::Interval => match value {
            Datum::Time(microseconds) => {
                Ok(Datum::Interval(Interval { microseconds, ..Interval::default() }))
            }
            Datum::Interval(_) => Ok(value),
            other => of_text(&other, to, settings),
        },
        Scalar::Json => match value {
            Datum::Json(_) => Ok(value),
            other => of_text(&other, to, settings),
        },
        Scalar::Jsonb => match value {
            Datum::Json(text) => Ok(Datum::Json(json::canonical(&text)?.into())),
            other => of_text(&other, to, settings),
        },
        _ => match value {
            Datum::Text(text) => from_text(&text, to.plain(), settings),
            other => Ok(other),
        },
    }
}

fn impossible(value: &Datum, to: SqlType) -> SqlError {
    let from = text_format::natural_type(value).name();
    SqlError::internal(format!("no conversion from {from} to {}", to.name()))
}

fn of_text(value: &Datum, to: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    match value {
        Datum::Text(text) => from_text(text, to.plain(), settings),
        other => Err(impossible(other, to)),
    }
}

fn convert_array(
    array: &Array,
    from: SqlType,
    to: SqlType,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    let (from, element) = (from.element(), to.element());
    let convert = |value: &Datum| match value {
        Datum::Null => Ok(Datum::Null),
        value if from.scalar == element.scalar => Ok(value.clone()),
        value => convert(value.clone(), from, element, settings),
    };
    let elements = array.elements.iter().map(convert).collect::<SqlResult<_>>()?;
    let dimensions = array.dimensions.clone();
    Ok(Datum::Array(Arc::new(Array { element: to.scalar, dimensions, elements })))
}

/// The scalar that a `jsonb` is, as a text.
fn json_scalar(text: &str, to: SqlType) -> SqlResult<(Value, String)> {
    let node = json::parse(text)?;
    let fits = match node.value {
        Value::Bool(_) => to.scalar == Scalar::Bool,
        Value::Number => to.scalar != Scalar::Bool,
        _ => false,
    };
    if !fits {
        let (kind, to) = (node.type_name(), to.name());
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("cannot cast jsonb {kind} to type {to}"),
        ));
    }
    let shown = node.text(text).to_owned();
    Ok((node.value, shown))
}

fn to_bool(value: Datum, from: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    match value {
        Datum::I32(value) => Ok(Datum::Bool(value != 0)),
        Datum::Json(text) if from.scalar == Scalar::Jsonb => {
            Ok(Datum::Bool(matches!(json_scalar(&text, SqlType::BOOL)?.0, Value::Bool(true))))
        }
        Datum::Bool(_) => Ok(value),
        other => of_text(&other, SqlType::BOOL, settings),
    }
}

/// A whole number as a datum of `scalar`.
pub(crate) fn whole(value: i128, scalar: Scalar) -> SqlResult<Datum> {
    let failed = || out_of_range(scalar);
    match scalar {
        Scalar::Int2 => i16::try_from(value).map(Datum::I16).map_err(|_| failed()),
        Scalar::Int4 => i32::try_from(value).map(Datum::I32).map_err(|_| failed()),
        _ => i64::try_from(value).map(Datum::I64).map_err(|_| failed()),
    }
}

fn to_whole(
    value: Datum,
    from: SqlType,
    scalar: Scalar,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    let of_float = |value: f64| {
        let rounded = value.round_ties_even();
        // Beyond these, no whole number is of 64 bits.
        if rounded.is_nan() || rounded.abs() > 1e19 {
            return Err(out_of_range(scalar));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
        whole(rounded as i128, scalar)
    };
    match value {
        Datum::I16(value) => whole(i128::from(value), scalar),
        Datum::I32(value) => whole(i128::from(value), scalar),
        Datum::I64(value) => whole(i128::from(value), scalar),
        Datum::F32(value) => of_float(f64::from(value)),
        Datum::F64(value) => of_float(value),
        Datum::Bool(value) => whole(i128::from(value), scalar),
        Datum::Numeric(None) => {
            let to = SqlType::new(scalar).name();
            Err(SqlError::new(
                SqlState::FEATURE_NOT_SUPPORTED,
                format!("cannot convert NaN to {to}"),
            ))
        }
        Datum::Numeric(Some(value)) => {
            let (digits, scale) = numeric::parts(&value);
            let rounded = numeric::rescale(&digits, scale, 0);
            whole(rounded.to_i128().ok_or_else(|| out_of_range(scalar))?, scalar)
        }
        Datum::Json(text) => {
            let (_, shown) = json_scalar(&text, SqlType::new(scalar))?;
            let number = from_text(&shown, SqlType::NUMERIC, settings)?;
            to_whole(number, SqlType::NUMERIC, scalar, settings)
        }
        Datum::Text(text) if from.scalar == Scalar::SingleChar => {
            whole(text.bytes().next().map_or(0, i128::from), scalar)
        }
        other => of_text(&other, SqlType::new(scalar), settings),
    }
}

fn to_oid(value: Datum, to: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    let value = match value {
        Datum::I16(value) => i64::from(value) & 0xffff_ffff,
        Datum::I32(value) => i64::from(value) & 0xffff_ffff,
        Datum::I64(value) => value,
        other => return of_text(&other, to, settings),
    };
    if (0..=i64::from(u32::MAX)).contains(&value) {
        Ok(Datum::I64(value))
    } else {
        Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "OID out of range"))
    }
}

fn to_float(
    value: Datum,
    from: SqlType,
    to: SqlType,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    let is_real = to.scalar == Scalar::Float4;
    let of_text = |text: &str| from_text(text, to.plain(), settings);
    let number = match value {
        Datum::I16(value) => f64::from(value),
        Datum::I32(value) => f64::from(value),
        Datum::I64(value) if is_real => return Ok(Datum::F32(value as f32)),
        Datum::I64(value) => value as f64,
        Datum::F32(value) => f64::from(value),
        Datum::F64(value) => value,
        Datum::Numeric(None) => f64::NAN,
        Datum::Numeric(Some(_)) => return of_text(&to_string(&value, from, settings)),
        Datum::Json(text) => return of_text(&json_scalar(&text, to)?.1),
        Datum::Text(text) => return of_text(&text),
        other => return Err(impossible(&other, to)),
    };
    if !is_real {
        return Ok(Datum::F64(number));
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what the cast is for")]
    let real = number as f32;
    let failed = |what| Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, what));
    if real.is_infinite() && number.is_finite() {
        return failed("value out of range: overflow");
    }
    if real == 0.0 && number != 0.0 {
        return failed("value out of range: underflow");
    }
    Ok(Datum::F32(real))
}

fn to_numeric(value: Datum, from: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    let of_whole = |value: i64| numeric::datum(BigDecimal::from(value));
    match value {
        Datum::I16(value) => Ok(of_whole(i64::from(value))),
        Datum::I32(value) => Ok(of_whole(i64::from(value))),
        Datum::I64(value) => Ok(of_whole(value)),
        Datum::F32(value) => numeric::from_float(f64::from(value), 6),
        Datum::F64(value) => numeric::from_float(value, 15),
        Datum::Json(text) if from.scalar == Scalar::Jsonb => {
            from_text(&json_scalar(&text, SqlType::NUMERIC)?.1, SqlType::NUMERIC, settings)
        }
        Datum::Numeric(_) => Ok(value),
        other => of_text(&other, SqlType::NUMERIC, settings),
    }
}

fn to_characters(value: Datum, from: SqlType, to: SqlType, settings: &FormatSettings) -> Datum {
    let text: Arc<str> = match value {
        Datum::Text(text) => text,
        Datum::Bool(value) => if value { "true" } else { "false" }.into(),
        Datum::I32(value) if to.scalar == Scalar::SingleChar => {
            let c = u8::try_from(value).ok().map(char::from);
            c.map(String::from).unwrap_or_default().into()
        }
        other => to_string(&other, from, settings).into(),
    };
    match to.scalar {
        Scalar::Char => Datum::text(text.trim_end_matches(' ')),
        Scalar::Name => Datum::text(text_format::cut_name(&text)),
        Scalar::SingleChar => {
            Datum::text(text.chars().next().map(String::from).unwrap_or_default())
        }
        _ => Datum::Text(text),
    }
}

fn to_moment(
    value: Datum,
    from: SqlType,
    to: SqlType,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    let zone = &settings.time_zone;
    // What has a zone is shown in that of the session, and what has none is taken to be in it.
    let local = |us: i64| match from.scalar {
        Scalar::TimestampTz => zone.to_local(us),
        _ => Ok(us),
    };
    match (value, to.scalar) {
        (Datum::Text(text), _) => from_text(&text, to.plain(), settings),
        (Datum::Timestamp(us), Scalar::Date) => {
            calendar::timestamp_to_date(local(us)?).map(Datum::Date)
        }
        (Datum::Timestamp(us), Scalar::Time) if calendar::is_finite(us) => {
            Ok(Datum::Time(calendar::split(local(us)?).1))
        }
        (Datum::Timestamp(_), Scalar::Time) => Ok(Datum::Null),
        (Datum::Timestamp(us), Scalar::Timestamp) => local(us).map(Datum::Timestamp),
        (Datum::Timestamp(us), Scalar::TimestampTz) if from.scalar == Scalar::Timestamp => {
            zone.to_moment(us).map(Datum::Timestamp)
        }
        (Datum::Date(date), Scalar::Timestamp) => {
            calendar::date_to_timestamp(date).map(Datum::Timestamp)
        }
        (Datum::Date(date), Scalar::TimestampTz) => {
            let us = calendar::date_to_timestamp(date)?;
            zone.to_moment(us).map(Datum::Timestamp)
        }
        (Datum::Interval(interval), Scalar::Time) => {
            Ok(Datum::Time(interval.microseconds.rem_euclid(86_400 * SECOND_US)))
        }
        (value, _) => Ok(value),
    }
}
