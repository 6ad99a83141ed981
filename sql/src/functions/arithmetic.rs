//! Arithmetic of whole numbers, floats and `numeric`, and the bits of whole numbers.

use bigdecimal::BigDecimal;

use super::arguments::{float, number, whole};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::conversions;
use crate::types::numeric::{self, division_by_zero};
use crate::types::{Datum, Scalar};

/// Whole numbers of two widths, and what comes of them.
const WHOLE: [&str; 9] = [
    "int2 int2 -> int2",
    "int4 int4 -> int4",
    "int8 int8 -> int8",
    "int2 int4 -> int4",
    "int4 int2 -> int4",
    "int2 int8 -> int8",
    "int8 int2 -> int8",
    "int4 int8 -> int8",
    "int8 int4 -> int8",
];
const FLOATS: [&str; 4] = [
    "float4 float4 -> float4",
    "float8 float8 -> float8",
    "float4 float8 -> float8",
    "float8 float4 -> float8",
];
const NUMERICS: &str = "numeric numeric -> numeric";

/// The error of a float that is too great.
pub(super) fn float_overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: overflow")
}

/// The error of a float that is too near to 0.
pub(super) fn float_underflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value out of range: underflow")
}

/// A float as a datum of the type that is returned.
#[expect(clippy::cast_possible_truncation, reason = "rounding is meant")]
pub(super) fn float_datum(types: &Types, value: f64) -> Datum {
    if types.returns.scalar == Scalar::Float4 {
        Datum::F32(value as f32)
    } else {
        Datum::F64(value)
    }
}

fn whole_pair(
    types: &Types,
    values: &[Datum],
    compute: impl Fn(i128, i128) -> SqlResult<i128>,
) -> SqlResult<Datum> {
    let (a, b) = (whole(values, 0)?, whole(values, 1)?);
    conversions::whole(compute(i128::from(a), i128::from(b))?, types.returns.scalar)
}

/// Computes with two floats. `loses` tells whether a result of 0 is one that is too small.
fn float_pair(
    types: &Types,
    values: &[Datum],
    compute: impl Fn(f64, f64) -> f64,
    loses: impl Fn(f64, f64) -> bool,
) -> SqlResult<Datum> {
    let (a, b) = (float(values, 0)?, float(values, 1)?);
    let result = float_datum(types, compute(a, b));
    let shown = match result {
        Datum::F32(value) => f64::from(value),
        Datum::F64(value) => value,
        _ => 0.0,
    };
    if shown.is_infinite() && a.is_finite() && b.is_finite() {
        return Err(float_overflow());
    }
    if shown == 0.0 && loses(a, b) {
        return Err(float_underflow());
    }
    Ok(result)
}

/// Computes with two numbers; NaN stays NaN.
pub(super) fn numeric_pair(
    values: &[Datum],
    compute: impl Fn(&BigDecimal, &BigDecimal) -> SqlResult<BigDecimal>,
) -> SqlResult<Datum> {
    match (number(values, 0)?, number(values, 1)?) {
        (Some(a), Some(b)) => compute(a, b).map(numeric::datum),
        _ => Ok(numeric::NAN),
    }
}

fn divide_whole(a: i128, b: i128) -> SqlResult<i128> {
    a.checked_div(b).ok_or_else(division_by_zero)
}

fn remainder_whole(a: i128, b: i128) -> SqlResult<i128> {
    a.checked_rem(b).ok_or_else(division_by_zero)
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    for signature in WHOLE {
        table.add_typed("+", signature, |types, values, _| {
            whole_pair(types, values, |a, b| Ok(a + b))
        });
        table.add_typed("-", signature, |types, values, _| {
            whole_pair(types, values, |a, b| Ok(a - b))
        });
        table.add_typed("*", signature, |types, values, _| {
            whole_pair(types, values, |a, b| Ok(a * b))
        });
        table.add_typed("/", signature, |types, values, _| whole_pair(types, values, divide_whole));
        table.add_typed("%", signature, |types, values, _| {
            whole_pair(types, values, remainder_whole)
        });
    }
    for signature in FLOATS {
        table.add_typed("+", signature, |types, values, _| {
            float_pair(types, values, |a, b| a + b, |_, _| false)
        });
        table.add_typed("-", signature, |types, values, _| {
            float_pair(types, values, |a, b| a - b, |_, _| false)
        });
        table.add_typed("*", signature, |types, values, _| {
            float_pair(types, values, |a, b| a * b, |a, b| a != 0.0 && b != 0.0)
        });
        table.add_typed("/", signature, |types, values, _| {
            if float(values, 1)? == 0.0 && !float(values, 0)?.is_nan() {
                return Err(division_by_zero());
            }
            float_pair(types, values, |a, b| a / b, |a, b| a != 0.0 && b.is_finite())
        });
    }
    table.add("+", NUMERICS, |values, _| numeric_pair(values, numeric::add));
    table.add("-", NUMERICS, |values, _| numeric_pair(values, numeric::subtract));
    table.add("*", NUMERICS, |values, _| numeric_pair(values, numeric::multiply));
    table.add("/", NUMERICS, |values, _| numeric_pair(values, numeric::divide));
    table.add("%", NUMERICS, |values, _| numeric_pair(values, numeric::remainder));
    register_signs(table);
    register_bits(table);
}

fn register_signs(table: &mut Table<Body>) {
    for signature in ["int2 -> int2", "int4 -> int4", "int8 -> int8"] {
        table.add_typed("-", signature, |types, values, _| {
            conversions::whole(-i128::from(whole(values, 0)?), types.returns.scalar)
        });
        table.add_typed("@", signature, absolute_whole);
    }
    for signature in ["float4 -> float4", "float8 -> float8"] {
        table.add_typed("-", signature, |types, values, _| {
            Ok(float_datum(types, -float(values, 0)?))
        });
        table.add_typed("@", signature, |types, values, _| {
            Ok(float_datum(types, float(values, 0)?.abs()))
        });
    }
    table.add("-", "numeric -> numeric", |values, _| {
        Ok(number(values, 0)?.map_or(numeric::NAN, |value| numeric::datum(-value)))
    });
    table.add("@", "numeric -> numeric", absolute_numeric);
    for signature in [
        "int2 -> int2",
        "int4 -> int4",
        "int8 -> int8",
        "float4 -> float4",
        "float8 -> float8",
        "numeric -> numeric",
    ] {
        table.add("+", signature, |values, _| Ok(values.first().cloned().unwrap_or(Datum::Null)));
    }
}

fn absolute_whole(types: &Types, values: &[Datum], _: &super::CallContext<'_>) -> SqlResult<Datum> {
    conversions::whole(i128::from(whole(values, 0)?).abs(), types.returns.scalar)
}

fn absolute_numeric(values: &[Datum], _: &super::CallContext<'_>) -> SqlResult<Datum> {
    Ok(number(values, 0)?.map_or(numeric::NAN, |value| numeric::datum(value.abs())))
}

/// The low bits of a number, as one of the type that is returned.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are meant")]
fn bits(types: &Types, value: i64) -> Datum {
    match types.returns.scalar {
        Scalar::Int2 => Datum::I16(value as i16),
        Scalar::Int4 => Datum::I32(value as i32),
        _ => Datum::I64(value),
    }
}

/// How far a shift goes: as processors do, more than there are bits wraps.
fn shift(types: &Types, values: &[Datum]) -> SqlResult<u32> {
    // Of 16 bits C shifts the promoted 32.
    let mask = if types.returns.scalar == Scalar::Int8 { 63 } else { 31 };
    Ok(u32::try_from(whole(values, 1)? & mask).unwrap_or(0))
}

fn register_bits(table: &mut Table<Body>) {
    for signature in ["int2 int2 -> int2", "int4 int4 -> int4", "int8 int8 -> int8"] {
        table.add_typed("&", signature, |types, values, _| {
            Ok(bits(types, whole(values, 0)? & whole(values, 1)?))
        });
        table.add_typed("|", signature, |types, values, _| {
            Ok(bits(types, whole(values, 0)? | whole(values, 1)?))
        });
        table.add_typed("#", signature, |types, values, _| {
            Ok(bits(types, whole(values, 0)? ^ whole(values, 1)?))
        });
    }
    for signature in ["int2 -> int2", "int4 -> int4", "int8 -> int8"] {
        table.add_typed("~", signature, |types, values, _| Ok(bits(types, !whole(values, 0)?)));
    }
    for signature in ["int2 int4 -> int2", "int4 int4 -> int4", "int8 int4 -> int8"] {
        table.add_typed("<<", signature, |types, values, _| {
            Ok(bits(types, whole(values, 0)?.wrapping_shl(shift(types, values)?)))
        });
        table.add_typed(">>", signature, |types, values, _| {
            Ok(bits(types, whole(values, 0)?.wrapping_shr(shift(types, values)?)))
        });
    }
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in ["int2 -> int2", "int4 -> int4", "int8 -> int8"] {
        table.add_typed("abs", signature, absolute_whole);
    }
    for signature in ["float4 -> float4", "float8 -> float8"] {
        table.add_typed("abs", signature, |types, values, _| {
            Ok(float_datum(types, float(values, 0)?.abs()))
        });
    }
    table.add("abs", "numeric -> numeric", absolute_numeric);
    for signature in ["int2 int2 -> int2", "int4 int4 -> int4", "int8 int8 -> int8"] {
        table.add_typed("mod", signature, |types, values, _| {
            whole_pair(types, values, remainder_whole)
        });
    }
    table.add("mod", NUMERICS, |values, _| numeric_pair(values, numeric::remainder));
    table.add("div", NUMERICS, |values, _| numeric_pair(values, numeric::divide_whole));
    for signature in ["int4 int4 -> int4", "int8 int8 -> int8"] {
        table.add_typed("gcd", signature, |types, values, _| {
            whole_pair(types, values, |a, b| Ok(gcd(a, b)))
        });
        table.add_typed("lcm", signature, |types, values, _| {
            whole_pair(types, values, |a, b| {
                Ok(if a == 0 || b == 0 { 0 } else { (a / gcd(a, b) * b).abs() })
            })
        });
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
