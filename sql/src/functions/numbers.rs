//! Functions of exact numbers: common divisors and multiples, scales, and the place of a value
//! among thresholds.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, Signed, Zero};

use super::CallContext;
use super::arguments::{argument, array, number};
use super::arithmetic::numeric_pair;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::order::compare;
use crate::types::{Datum, numeric};

/// Most bits of a number whose divisors are looked for: the time grows with their square.
const MAX_DIVIDED_BITS: u64 = 1 << 16;

/// The digits of two numbers with as many behind the point.
fn aligned(a: &BigDecimal, b: &BigDecimal) -> SqlResult<(BigInt, BigInt, i64)> {
    let ((a, a_scale), (b, b_scale)) = (numeric::parts(a), numeric::parts(b));
    let scale = a_scale.max(b_scale);
    let (a, b) = (numeric::rescale(&a, a_scale, scale), numeric::rescale(&b, b_scale, scale));
    if a.bits().max(b.bits()) > MAX_DIVIDED_BITS {
        let message = "a number has too many digits for its divisors to be found";
        return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message));
    }
    Ok((a.abs(), b.abs(), scale))
}

fn common_divisor(a: BigInt, b: BigInt) -> BigInt {
    let (mut a, mut b) = (a, b);
    while !b.is_zero() {
        let rest = &a % &b;
        (a, b) = (b, rest);
    }
    a
}

fn gcd(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let (a, b, scale) = aligned(a, b)?;
    numeric::checked(common_divisor(a, b), scale)
}

fn lcm(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let (a, b, scale) = aligned(a, b)?;
    if a.is_zero() || b.is_zero() {
        return numeric::checked(BigInt::zero(), scale);
    }
    let divisor = common_divisor(a.clone(), b.clone());
    numeric::checked(a / divisor * b, scale)
}

/// The digits behind the point that a number needs.
fn least_scale(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let Some(value) = number(values, 0)? else { return Ok(Datum::Null) };
    let scale = value.normalized().fractional_digit_count().max(0);
    Ok(Datum::I32(i32::try_from(scale).unwrap_or(i32::MAX)))
}

/// How many of the thresholds, which ascend, are not above a value.
fn bucket(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, thresholds) = (argument(values, 0), array(values, 1)?);
    if thresholds.dimensions.len() > 1 {
        let message = "thresholds must be one-dimensional array";
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, message));
    }
    if thresholds.elements.iter().any(Datum::is_null) {
        let message = "thresholds array must not contain NULLs";
        return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
    }
    let count = thresholds.elements.partition_point(|own| compare(own, value).is_le());
    Ok(Datum::I32(i32::try_from(count).unwrap_or(i32::MAX)))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    let signature = "numeric numeric -> numeric";
    table.add("gcd", signature, |v, _| numeric_pair(v, gcd));
    table.add("lcm", signature, |v, _| numeric_pair(v, lcm));
    table.add("min_scale", "numeric -> int4", least_scale);
    table.add("width_bucket", "anyelement anyarray -> int4", bucket);
}

#[cfg(test)]
mod tests {
    use super::super::testing::call;
    use crate::error::SqlState;

    #[test]
    fn divisors_and_scales_are_those_of_postgresql() {
        for (name, arguments, result) in [
            ("gcd", ["numeric:1.5", "numeric:2.5"], "0.5"),
            ("gcd", ["numeric:0", "numeric:-4.20"], "4.20"),
            ("lcm", ["numeric:1.5", "numeric:2"], "6.0"),
            ("lcm", ["numeric:0.0", "numeric:2"], "0.0"),
            ("gcd", ["numeric:NaN", "numeric:2"], "NaN"),
        ] {
            assert_eq!(call(name, &arguments).unwrap(), result, "{name} of {arguments:?}");
        }
        let long = format!("numeric:{}", "7".repeat(50_000));
        let refused = call("gcd", &[&long, "numeric:3"]).unwrap_err();
        assert_eq!(refused.state(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
}
