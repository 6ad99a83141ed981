//! Variances and standard deviations.

use bigdecimal::{BigDecimal, Signed, Zero};

use super::aggregates::{NewAccumulator, fold};
use super::arguments::{float, number, whole};
use super::signature::Table;
use crate::error::SqlResult;
use crate::types::{Datum, numeric};

/// Sums of numbers and of their squares.
#[derive(Default)]
struct Squares {
    count: u64,
    sum: BigDecimal,
    squares: BigDecimal,
    is_nan: bool,
}

/// The same of floats, by the method of Youngs and Cramer.
#[derive(Clone, Copy, Default)]
struct FloatSquares {
    count: f64,
    sum: f64,
    /// Squares of the distances to the mean.
    squares: f64,
}

fn add_number(state: &mut Squares, values: &[Datum]) -> SqlResult<()> {
    let converted;
    let value = match values.first() {
        Some(Datum::Numeric(_)) => number(values, 0)?,
        _ => {
            converted = BigDecimal::from(whole(values, 0)?);
            Some(&converted)
        }
    };
    state.count += 1;
    match value {
        Some(value) => {
            state.sum = numeric::add(&state.sum, value)?;
            state.squares = numeric::add(&state.squares, &numeric::multiply(value, value)?)?;
        }
        None => state.is_nan = true,
    }
    Ok(())
}

fn add_float(state: &mut FloatSquares, values: &[Datum]) -> SqlResult<()> {
    let value = float(values, 0)?;
    let count = state.count + 1.0;
    let sum = state.sum + value;
    let mut squares = state.squares;
    if state.count > 0.0 {
        let distance = value * count - sum;
        squares += distance * distance / (count * state.count);
    } else if !value.is_finite() {
        squares = f64::NAN;
    }
    *state = FloatSquares { count, sum, squares };
    Ok(())
}

/// The variance of the whole population, or of what a sample tells of it, or its root.
fn end(state: &Squares, is_sample: bool, is_root: bool) -> SqlResult<Datum> {
    if state.count == 0 || (is_sample && state.count == 1) {
        return Ok(Datum::Null);
    }
    if state.is_nan {
        return Ok(numeric::NAN);
    }
    let count = BigDecimal::from(state.count);
    let mean_part = numeric::multiply(&state.sum, &state.sum)?;
    let distances = numeric::subtract(&numeric::multiply(&count, &state.squares)?, &mean_part)?;
    if !distances.is_positive() {
        return Ok(numeric::datum(BigDecimal::zero()));
    }
    let below = BigDecimal::from(if is_sample { state.count - 1 } else { state.count });
    let variance = numeric::divide(&distances, &numeric::multiply(&count, &below)?)?;
    Ok(numeric::datum(match is_root {
        true => numeric::square_root_to(&variance, numeric::parts(&variance).1)?,
        false => variance,
    }))
}

fn end_float(state: &FloatSquares, is_sample: bool, is_root: bool) -> Datum {
    let below = if is_sample { state.count - 1.0 } else { state.count };
    if below <= 0.0 {
        return Datum::Null;
    }
    let variance = state.squares / below;
    Datum::F64(if is_root { variance.sqrt() } else { variance })
}

macro_rules! register_each {
    ($table:ident, $($name:literal: $is_sample:literal, $is_root:literal;)*) => {$(
        for signature in
            ["int2 -> numeric", "int4 -> numeric", "int8 -> numeric", "numeric -> numeric"]
        {
            $table.add_body($name, signature, |_| {
                fold(Squares::default(), add_number, |state| end(state, $is_sample, $is_root))
            });
        }
        for signature in ["float4 -> float8", "float8 -> float8"] {
            $table.add_body($name, signature, |_| {
                fold(FloatSquares::default(), add_float, |state| {
                    Ok(end_float(state, $is_sample, $is_root))
                })
            });
        }
    )*};
}

pub(super) fn register(table: &mut Table<NewAccumulator>) {
    register_each! {table,
        "variance": true, false;
        "var_samp": true, false;
        "var_pop": false, false;
        "stddev": true, true;
        "stddev_samp": true, true;
        "stddev_pop": false, true;
    }
}
