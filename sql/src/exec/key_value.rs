//! Values of other types as values of a column of a key.
//!
//! A column may be compared with values of a wider type. One that the column can have is found by
//! its key. Any other is between two that it can have: nothing is equal to it, and what is greater
//! is what is greater than the lower one. So a bound by it is exact, and never an error.

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, ToPrimitive};

use crate::types::{Datum, Scalar, SqlType, numeric};

/// Where a value is among those that a column can have.
#[derive(Debug)]
pub(crate) enum Place {
    /// It is this one.
    At(Datum),
    /// Behind this one and before the next.
    Behind(Datum),
    /// Before all.
    First,
}

/// The place of a value that is not NULL among those of a type. What the type is not compared with
/// by another is given back as it is.
pub(crate) fn place(value: Datum, ty: SqlType) -> Place {
    if ty.is_array {
        return Place::At(value);
    }
    match (ty.scalar, &value) {
        (Scalar::Int2, Datum::I16(_))
        | (Scalar::Int4, Datum::I32(_))
        | (Scalar::Int8, Datum::I64(_)) => Place::At(value),
        (Scalar::Int2 | Scalar::Int4 | Scalar::Int8, _) => match whole_part(&value) {
            Some(part) => among_whole(part, ty.scalar),
            None => Place::At(value),
        },
        (Scalar::Float8, Datum::F32(real)) => Place::At(Datum::F64(f64::from(*real))),
        (Scalar::Float4, Datum::F64(double)) => among_reals(*double),
        _ => Place::At(value),
    }
}

/// The greatest whole number that is not above a number.
enum WholePart {
    /// With whether the number is that.
    Of(i64, bool),
    BelowAll,
    AboveAll,
}

fn whole_part(value: &Datum) -> Option<WholePart> {
    Some(match value {
        Datum::I16(value) => WholePart::Of(i64::from(*value), true),
        Datum::I32(value) => WholePart::Of(i64::from(*value), true),
        Datum::I64(value) => WholePart::Of(*value, true),
        Datum::F32(value) => of_float(f64::from(*value)),
        Datum::F64(value) => of_float(*value),
        Datum::Numeric(Some(value)) => of_numeric(value),
        // Greater than all numbers.
        Datum::Numeric(None) => WholePart::AboveAll,
        _ => return None,
    })
}

fn of_float(value: f64) -> WholePart {
    // The least double above all 64-bit numbers.
    const END: f64 = 9_223_372_036_854_775_808.0;
    if value.is_nan() || value >= END {
        return WholePart::AboveAll;
    }
    let floor = value.floor();
    if floor < -END {
        return WholePart::BelowAll;
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    WholePart::Of(floor as i64, floor == value)
}

fn of_numeric(value: &BigDecimal) -> WholePart {
    let (digits, scale) = numeric::parts(value);
    let unit = numeric::power_of_ten(scale);
    let cut: BigInt = &digits / &unit;
    let is_exact = &cut * &unit == digits;
    let is_negative = digits.sign() == Sign::Minus;
    let floor = if is_exact || !is_negative { cut } else { cut - 1 };
    match floor.to_i64() {
        Some(floor) => WholePart::Of(floor, is_exact),
        None if is_negative => WholePart::BelowAll,
        None => WholePart::AboveAll,
    }
}

fn among_whole(part: WholePart, scalar: Scalar) -> Place {
    let (least, greatest) = match scalar {
        Scalar::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Scalar::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        _ => (i64::MIN, i64::MAX),
    };
    let (floor, is_exact) = match part {
        WholePart::BelowAll => return Place::First,
        WholePart::AboveAll => (greatest, false),
        WholePart::Of(floor, _) if floor < least => return Place::First,
        WholePart::Of(floor, _) if floor > greatest => (greatest, false),
        WholePart::Of(floor, is_exact) => (floor, is_exact),
    };
    #[expect(clippy::cast_possible_truncation, reason = "it is within the range of the type")]
    let found = match scalar {
        Scalar::Int2 => Datum::I16(floor as i16),
        Scalar::Int4 => Datum::I32(floor as i32),
        _ => Datum::I64(floor),
    };
    if is_exact { Place::At(found) } else { Place::Behind(found) }
}

fn among_reals(value: f64) -> Place {
    #[expect(clippy::cast_possible_truncation, reason = "what is lost is looked at")]
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() {
        return Place::At(Datum::F32(near));
    }
    Place::Behind(Datum::F32(if back > value { near.next_down() } else { near }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FormatSettings;
    use crate::types::text_format::{from_text, to_string};

    /// What `place` says, as text.
    fn shown(text: &str, from: SqlType, ty: SqlType) -> String {
        let settings = FormatSettings::default();
        match place(from_text(text, from, &settings).unwrap(), ty) {
            Place::At(value) => format!("= {}", to_string(&value, ty, &settings)),
            Place::Behind(value) => format!("> {}", to_string(&value, ty, &settings)),
            Place::First => "first".to_owned(),
        }
    }

    #[test]
    fn values_have_their_places_among_whole_numbers() {
        for (text, from, ty, wanted) in [
            ("5", SqlType::INT8, SqlType::INT4, "= 5"),
            ("-7", SqlType::INT2, SqlType::INT8, "= -7"),
            ("2147483648", SqlType::INT8, SqlType::INT4, "> 2147483647"),
            ("-2147483649", SqlType::INT8, SqlType::INT4, "first"),
            ("-2147483648", SqlType::INT8, SqlType::INT4, "= -2147483648"),
            ("32768", SqlType::INT4, SqlType::INT2, "> 32767"),
            ("5.00", SqlType::NUMERIC, SqlType::INT4, "= 5"),
            ("5.01", SqlType::NUMERIC, SqlType::INT4, "> 5"),
            ("-5.01", SqlType::NUMERIC, SqlType::INT4, "> -6"),
            ("-0.5", SqlType::NUMERIC, SqlType::INT4, "> -1"),
            ("1e30", SqlType::NUMERIC, SqlType::INT8, "> 9223372036854775807"),
            ("-1e30", SqlType::NUMERIC, SqlType::INT8, "first"),
            ("NaN", SqlType::NUMERIC, SqlType::INT4, "> 2147483647"),
            ("-0", SqlType::FLOAT8, SqlType::INT4, "= 0"),
            ("-0.5", SqlType::FLOAT8, SqlType::INT4, "> -1"),
            ("NaN", SqlType::FLOAT8, SqlType::INT2, "> 32767"),
            ("-Infinity", SqlType::FLOAT8, SqlType::INT2, "first"),
            ("-32768.5", SqlType::FLOAT8, SqlType::INT2, "first"),
        ] {
            assert_eq!(shown(text, from, ty), wanted, "{text}");
        }
    }

    #[test]
    fn values_have_their_places_among_floats() {
        for (text, from, ty, wanted) in [
            ("0.5", SqlType::FLOAT8, SqlType::FLOAT4, "= 0.5"),
            ("0.1", SqlType::FLOAT8, SqlType::FLOAT4, "> 0.099999994"),
            ("-0.1", SqlType::FLOAT8, SqlType::FLOAT4, "> -0.1"),
            ("1e300", SqlType::FLOAT8, SqlType::FLOAT4, "> 3.4028235e+38"),
            ("-1e300", SqlType::FLOAT8, SqlType::FLOAT4, "> -Infinity"),
            ("1e-300", SqlType::FLOAT8, SqlType::FLOAT4, "> 0"),
            ("NaN", SqlType::FLOAT8, SqlType::FLOAT4, "= NaN"),
            ("Infinity", SqlType::FLOAT8, SqlType::FLOAT4, "= Infinity"),
            ("0.1", SqlType::FLOAT4, SqlType::FLOAT8, "= 0.10000000149011612"),
        ] {
            assert_eq!(shown(text, from, ty), wanted, "{text}");
        }
    }
}
