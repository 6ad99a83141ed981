//! Functions of angles, in radians and in degrees.
//!
//! Those in degrees are exact where the result is a simple number: each part of a quadrant is
//! computed in radians, and scaled by what the library gives for 30, 45 or 60 degrees, so that its
//! rounding errors cancel there.

use super::arguments::float;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

fn out_of_range() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "input is out of range")
}

/// A function that is not defined at infinity.
fn of_finite(values: &[Datum], of: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = float(values, 0)?;
    if value.is_infinite() { Err(out_of_range()) } else { Ok(Datum::F64(of(value))) }
}

/// A function that is defined between two numbers.
fn of_range(values: &[Datum], low: f64, high: f64, of: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = float(values, 0)?;
    if value < low || value > high { Err(out_of_range()) } else { Ok(Datum::F64(of(value))) }
}

fn of_any(values: &[Datum], of: fn(f64) -> f64) -> SqlResult<Datum> {
    float(values, 0).map(|value| Datum::F64(of(value)))
}

/// The sine from 0 to 30 degrees.
fn low_sine(degrees: f64) -> f64 {
    degrees.to_radians().sin() / 30f64.to_radians().sin() / 2.0
}

/// The cosine from 0 to 60 degrees.
fn high_cosine(degrees: f64) -> f64 {
    let below_one = |degrees: f64| 1.0 - degrees.to_radians().cos();
    1.0 - below_one(degrees) / below_one(60.0) / 2.0
}

/// The sine from 0 to 90 degrees.
fn quadrant_sine(degrees: f64) -> f64 {
    if degrees <= 30.0 { low_sine(degrees) } else { high_cosine(90.0 - degrees) }
}

/// The cosine from 0 to 90 degrees.
fn quadrant_cosine(degrees: f64) -> f64 {
    if degrees <= 60.0 { high_cosine(degrees) } else { low_sine(90.0 - degrees) }
}

fn sine(degrees: f64) -> f64 {
    let turned = degrees % 360.0;
    let (sign, turned) = if turned < 0.0 { (-1.0, -turned) } else { (1.0, turned) };
    let (sign, turned) = if turned > 180.0 { (-sign, 360.0 - turned) } else { (sign, turned) };
    sign * quadrant_sine(if turned > 90.0 { 180.0 - turned } else { turned })
}

fn cosine(degrees: f64) -> f64 {
    let turned = (degrees % 360.0).abs();
    let turned = if turned > 180.0 { 360.0 - turned } else { turned };
    match turned > 90.0 {
        true => -quadrant_cosine(180.0 - turned),
        false => quadrant_cosine(turned),
    }
}

/// The angle with its sign from -90 to 90 degrees which has the same tangent.
fn within_half_turn(degrees: f64) -> (f64, f64) {
    let turned = degrees % 360.0;
    let (sign, turned) = if turned < 0.0 { (-1.0, -turned) } else { (1.0, turned) };
    let (sign, turned) = if turned > 180.0 { (-sign, 360.0 - turned) } else { (sign, turned) };
    if turned > 90.0 { (-sign, 180.0 - turned) } else { (sign, turned) }
}

/// A zero without its sign.
fn unsigned_zero(value: f64) -> f64 {
    if value == 0.0 { 0.0 } else { value }
}

fn tangent(degrees: f64) -> f64 {
    let (sign, turned) = within_half_turn(degrees);
    let scale = quadrant_sine(45.0) / quadrant_cosine(45.0);
    unsigned_zero(sign * (quadrant_sine(turned) / quadrant_cosine(turned) / scale))
}

fn cotangent(degrees: f64) -> f64 {
    let (sign, turned) = within_half_turn(degrees);
    let scale = quadrant_cosine(45.0) / quadrant_sine(45.0);
    unsigned_zero(sign * (quadrant_cosine(turned) / quadrant_sine(turned) / scale))
}

/// The arc sine of 0 to 1.
fn quadrant_arc_sine(value: f64) -> f64 {
    match value <= 0.5 {
        true => value.asin() / 0.5f64.asin() * 30.0,
        false => 90.0 - value.acos() / 0.5f64.acos() * 60.0,
    }
}

/// The arc cosine of 0 to 1.
fn quadrant_arc_cosine(value: f64) -> f64 {
    match value <= 0.5 {
        true => 90.0 - value.asin() / 0.5f64.asin() * 30.0,
        false => value.acos() / 0.5f64.acos() * 60.0,
    }
}

fn arc_sine(value: f64) -> f64 {
    if value < 0.0 { -quadrant_arc_sine(-value) } else { quadrant_arc_sine(value) }
}

fn arc_cosine(value: f64) -> f64 {
    match value < 0.0 {
        true => 90.0 + quadrant_arc_sine(-value),
        false => quadrant_arc_cosine(value),
    }
}

/// Radians of an arc tangent as degrees.
fn of_arc_tangent(radians: f64) -> f64 {
    radians / 1f64.atan() * 45.0
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    let signature = "float8 -> float8";
    table.add("sin", signature, |v, _| of_finite(v, f64::sin));
    table.add("cos", signature, |v, _| of_finite(v, f64::cos));
    table.add("tan", signature, |v, _| of_finite(v, f64::tan));
    table.add("cot", signature, |v, _| of_finite(v, |value| 1.0 / value.tan()));
    table.add("asin", signature, |v, _| of_range(v, -1.0, 1.0, f64::asin));
    table.add("acos", signature, |v, _| of_range(v, -1.0, 1.0, f64::acos));
    table.add("atan", signature, |v, _| of_any(v, f64::atan));
    table.add("sinh", signature, |v, _| of_any(v, f64::sinh));
    table.add("cosh", signature, |v, _| of_any(v, f64::cosh));
    table.add("tanh", signature, |v, _| of_any(v, f64::tanh));
    table.add("asinh", signature, |v, _| of_any(v, f64::asinh));
    table.add("acosh", signature, |v, _| of_range(v, 1.0, f64::INFINITY, f64::acosh));
    table.add("atanh", signature, |v, _| of_range(v, -1.0, 1.0, f64::atanh));
    table.add("sind", signature, |v, _| of_finite(v, sine));
    table.add("cosd", signature, |v, _| of_finite(v, cosine));
    table.add("tand", signature, |v, _| of_finite(v, tangent));
    table.add("cotd", signature, |v, _| of_finite(v, cotangent));
    table.add("asind", signature, |v, _| of_range(v, -1.0, 1.0, arc_sine));
    table.add("acosd", signature, |v, _| of_range(v, -1.0, 1.0, arc_cosine));
    table.add("atand", signature, |v, _| of_any(v, |value| of_arc_tangent(value.atan())));
    table.add("degrees", signature, |v, _| of_any(v, f64::to_degrees));
    table.add("radians", signature, |v, _| of_any(v, f64::to_radians));
    let signature = "float8 float8 -> float8";
    table.add("atan2", signature, |v, _| Ok(Datum::F64(float(v, 0)?.atan2(float(v, 1)?))));
    table.add("atan2d", signature, |v, _| {
        Ok(Datum::F64(of_arc_tangent(float(v, 0)?.atan2(float(v, 1)?))))
    });
    table.add("pi", "-> float8", |_, _| Ok(Datum::F64(std::f64::consts::PI)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_are_exact_where_results_are_simple() {
        for (of, degrees, wanted) in [
            (sine as fn(f64) -> f64, 0.0, 0.0),
            (sine, 30.0, 0.5),
            (sine, 150.0, 0.5),
            (sine, 210.0, -0.5),
            (sine, -90.0, -1.0),
            (sine, 450.0, 1.0),
            (cosine, 60.0, 0.5),
            (cosine, 90.0, 0.0),
            (cosine, 240.0, -0.5),
            (cosine, 720.0, 1.0),
            (tangent, 45.0, 1.0),
            (tangent, 135.0, -1.0),
            (tangent, 180.0, 0.0),
            (tangent, 225.0, 1.0),
            (cotangent, 45.0, 1.0),
            (cotangent, 315.0, -1.0),
            (arc_sine, 0.5, 30.0),
            (arc_sine, -1.0, -90.0),
            (arc_cosine, 0.5, 60.0),
            (arc_cosine, -0.5, 120.0),
            (arc_cosine, -1.0, 180.0),
        ] {
            assert_eq!(of(degrees), wanted, "{degrees}");
        }
        assert!(tangent(90.0).is_infinite());
    }
}
