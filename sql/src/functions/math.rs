//! Mathematical functions.

use bigdecimal::num_bigint::BigInt;
use bigdecimal::{BigDecimal, Signed, ToPrimitive, Zero};

use super::arguments::{float, number, whole};
use super::arithmetic::{float_overflow, float_underflow};
use super::interrupts::Interrupts;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::numeric::{self, MAX_DISPLAY_SCALE, MIN_SIGNIFICANT};
use crate::types::{Datum, conversions};

/// Most digits before the point of what a series computes: its time grows with their square.
const MAX_SERIES_DIGITS: i64 = 10_000;
/// Most digits of a power that is multiplied out.
const MAX_EXACT_DIGITS: u64 = 300_000;
/// Digits that intermediate results have more than the result.
const GUARD_DIGITS: i64 = 8;

fn invalid_logarithm(is_zero: bool) -> SqlError {
    SqlError::new(
        SqlState::INVALID_ARGUMENT_FOR_LOGARITHM,
        if is_zero {
            "cannot take logarithm of zero"
        } else {
            "cannot take logarithm of a negative number"
        },
    )
}

fn invalid_power(message: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_ARGUMENT_FOR_POWER, message)
}

fn negative_root() -> SqlError {
    invalid_power("cannot take square root of a negative number")
}

/// A result of a float, of finite arguments.
fn checked(result: f64, is_finite: bool) -> SqlResult<Datum> {
    if result.is_infinite() && is_finite {
        return Err(float_overflow());
    }
    if result.is_nan() && is_finite {
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "input is out of range"));
    }
    Ok(Datum::F64(result))
}

fn logarithm(value: f64, of: fn(f64) -> f64) -> SqlResult<Datum> {
    if value <= 0.0 {
        return Err(invalid_logarithm(value == 0.0));
    }
    Ok(Datum::F64(of(value)))
}

fn power(base: f64, exponent: f64) -> SqlResult<Datum> {
    let invalid = |what| Err(invalid_power(what));
    if base == 0.0 && exponent < 0.0 {
        return invalid("zero raised to a negative power is undefined");
    }
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        return invalid("a negative number raised to a non-integer power yields a complex result");
    }
    let result = base.powf(exponent);
    if result == 0.0 && base != 0.0 && base.is_finite() && exponent.is_finite() {
        return Err(float_underflow());
    }
    checked(result, base.is_finite() && exponent.is_finite())
}

/// Digits behind the point that a number of this decimal weight is given with.
fn scale_for(weight: i64, least: i64) -> i64 {
    (MIN_SIGNIFICANT - weight).max(least).clamp(0, MAX_DISPLAY_SCALE)
}

/// Steps that a product of numbers of this scale takes, and to divide it, about.
fn steps_of(scale: i64) -> usize {
    // A limb has 19 digits.
    let limbs = usize::try_from(scale / 19 + 1).unwrap_or(usize::MAX);
    limbs.saturating_mul(limbs).saturating_mul(2)
}

/// e to the power of digits at a scale, as digits at that scale.
fn exponential(digits: &BigInt, scale: i64, interrupts: &Interrupts) -> SqlResult<BigInt> {
    let (one, steps) = (numeric::power_of_ten(scale), steps_of(scale));
    // Halved until it is below 1/1024, so that the series is short.
    let mut halvings = 0u32;
    let mut small = digits.clone();
    while small.abs() > &one >> 10u8 {
        small /= 2;
        halvings += 1;
    }
    let (mut sum, mut term, mut n) = (one.clone(), one.clone(), 1u32);
    while !term.is_zero() {
        term = &term * &small / &one / n;
        sum += &term;
        n += 1;
        interrupts.after(steps)?;
    }
    for _ in 0..halvings {
        sum = &sum * &sum / &one;
        interrupts.after(steps)?;
    }
    Ok(sum)
}

/// The natural logarithm of digits at a scale, greater than 0, by Newton's method.
fn natural_logarithm(digits: &BigInt, scale: i64, interrupts: &Interrupts) -> SqlResult<BigInt> {
    let (one, steps) = (numeric::power_of_ten(scale), steps_of(scale));
    // The roots come near to 1, where the series of the inverse hyperbolic tangent is short.
    let (mut value, mut roots) = (digits.clone(), 0u32);
    while (&value - &one).abs() > &one >> 4u8 {
        value = (&value * &one).sqrt();
        roots += 1;
        // It divides as often as digits double.
        interrupts.after(steps.saturating_mul(8))?;
    }
    let quotient = (&value - &one) * &one / (&value + &one);
    let square = &quotient * &quotient / &one;
    let (mut sum, mut power, mut n) = (BigInt::zero(), quotient, 1u32);
    while !power.is_zero() {
        sum += &power / n;
        power = &power * &square / &one;
        n += 2;
        interrupts.after(steps)?;
    }
    Ok((sum << 1u8) << roots)
}

/// The digits of a number with so many behind the point.
fn digits_at(value: &BigDecimal, scale: i64) -> BigInt {
    let (digits, own) = numeric::parts(value);
    numeric::rescale(&digits, own, scale)
}

/// Digits before the point, less one; of numbers below 1 negative.
fn exponent_of(value: &BigDecimal) -> i64 {
    let (_, scale) = numeric::parts(value);
    i64::try_from(value.digits()).unwrap_or(0) - scale - 1
}

fn check_series(weight: i64) -> SqlResult<()> {
    if weight <= MAX_SERIES_DIGITS {
        return Ok(());
    }
    let what = format!("powers of more than {MAX_SERIES_DIGITS} digits");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("{what} are not supported")))
}

fn exp(value: &BigDecimal, interrupts: &Interrupts) -> SqlResult<BigDecimal> {
    let approximate = value.to_f64().unwrap_or(f64::INFINITY) * std::f64::consts::LOG10_E;
    if approximate > 131_072.0 {
        return Err(numeric::overflow());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let weight = approximate.max(-20_000.0) as i64;
    let scale = scale_for(weight, numeric::parts(value).1);
    if weight < -scale - 1 {
        return Ok(BigDecimal::new(BigInt::zero(), scale));
    }
    check_series(weight)?;
    let inner = scale + weight.abs() + 2 * GUARD_DIGITS;
    let digits = exponential(&digits_at(value, inner), inner, interrupts)?;
    numeric::round(&BigDecimal::new(digits, inner), scale)
}

/// The logarithm, with some digits more than are asked for.
fn logarithm_of(value: &BigDecimal, scale: i64, interrupts: &Interrupts) -> SqlResult<BigDecimal> {
    // Of a number from 1 to 10, and of the power of ten apart: digits before the point cost time.
    let (exponent, inner) = (exponent_of(value), scale + 2 * GUARD_DIGITS);
    let (digits, own) = numeric::parts(value);
    let below_ten = numeric::rescale(&digits, own + exponent, inner);
    let mut sum = natural_logarithm(&below_ten, inner, interrupts)?;
    if exponent != 0 {
        let ten = numeric::power_of_ten(inner + 1);
        sum += natural_logarithm(&ten, inner, interrupts)? * exponent;
    }
    Ok(BigDecimal::new(sum, inner))
}

fn check_logarithm(value: &BigDecimal) -> SqlResult<()> {
    if value.is_positive() { Ok(()) } else { Err(invalid_logarithm(value.is_zero())) }
}

fn ln(value: &BigDecimal, interrupts: &Interrupts) -> SqlResult<BigDecimal> {
    check_logarithm(value)?;
    let rough = logarithm_of(value, 4, interrupts)?;
    let weight = if rough.is_zero() { 0 } else { exponent_of(&rough).max(0) };
    let scale = scale_for(weight, numeric::parts(value).1);
    numeric::round(&logarithm_of(value, scale, interrupts)?, scale)
}

fn log(base: &BigDecimal, value: &BigDecimal, interrupts: &Interrupts) -> SqlResult<BigDecimal> {
    check_logarithm(base)?;
    check_logarithm(value)?;
    let shown = numeric::parts(value).1.max(numeric::parts(base).1).min(MAX_DISPLAY_SCALE);
    let inner = 2 * MIN_SIGNIFICANT + shown;
    let above = logarithm_of(value, inner, interrupts)?;
    let below = logarithm_of(base, inner, interrupts)?;
    if below.is_zero() {
        return Err(numeric::division_by_zero());
    }
    let scaled = BigDecimal::new(
        digits_at(&above, 2 * inner) * numeric::power_of_ten(inner) / digits_at(&below, 2 * inner),
        inner,
    );
    let weight = if scaled.is_zero() { 0 } else { exponent_of(&scaled).max(0) };
    let least = numeric::parts(value).1.max(numeric::parts(base).1);
    numeric::round(&scaled, scale_for(weight, least))
}

fn power_of(
    base: &BigDecimal,
    exponent: &BigDecimal,
    interrupts: &Interrupts,
) -> SqlResult<BigDecimal> {
    let invalid = |what| Err(invalid_power(what));
    if base.is_zero() && exponent.is_negative() {
        return invalid("zero raised to a negative power is undefined");
    }
    let is_whole = exponent.is_integer();
    if base.is_negative() && !is_whole {
        return invalid("a negative number raised to a non-integer power yields a complex result");
    }
    let least = numeric::parts(base).1.max(numeric::parts(exponent).1);
    if base.is_zero() || exponent.is_zero() {
        let result = if exponent.is_zero() { BigDecimal::from(1) } else { BigDecimal::zero() };
        return numeric::round(&result, scale_for(0, least));
    }
    let is_odd = is_whole && digits_at(exponent, 0).bit(0);
    let times = exponent.to_f64().unwrap_or(f64::INFINITY);
    let rough = logarithm_of(&base.abs(), 17, interrupts)?.to_f64().unwrap_or(0.0);
    let approximate = times * rough * std::f64::consts::LOG10_E;
    if approximate > 131_072.0 {
        return Err(numeric::overflow());
    }
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let weight = approximate.max(-20_000.0) as i64;
    let scale = match is_whole {
        true => MIN_SIGNIFICANT.max(numeric::parts(base).1).min(MAX_DISPLAY_SCALE),
        false => scale_for(weight, least),
    };
    if weight < -scale - 1 {
        return Ok(BigDecimal::new(BigInt::zero(), scale));
    }
    // Whole powers are multiplied out while they are short enough.
    let count = exponent.to_u32().filter(|_| is_whole);
    if let Some(count) = count
        && base.digits().saturating_mul(u64::from(count)) <= MAX_EXACT_DIGITS
    {
        let (digits, own) = numeric::parts(base);
        let exact = BigDecimal::new(digits.pow(count), own * i64::from(count));
        return numeric::round(&exact, scale);
    }
    check_series(weight)?;
    let inner = scale + weight.abs() + exponent_of(exponent).abs() + 2 * GUARD_DIGITS;
    let log = digits_at(&logarithm_of(&base.abs(), inner, interrupts)?, inner);
    let (digits, own) = numeric::parts(exponent);
    let product = numeric::rescale(&(log * digits), own + inner, inner);
    let result = BigDecimal::new(exponential(&product, inner, interrupts)?, inner);
    numeric::round(&if base.is_negative() && is_odd { -result } else { result }, scale)
}

fn sqrt(value: &BigDecimal) -> SqlResult<BigDecimal> {
    if value.is_negative() {
        return Err(negative_root());
    }
    // As PostgreSQL estimates it, in digits of the base 10000.
    let weight = numeric::weight(value);
    let before = if weight >= 0 { weight * 2 + 1 } else { 1 - (1 - weight * 4) / 2 };
    let scale = scale_for(before, numeric::parts(value).1);
    numeric::square_root_to(value, scale)
}

fn of_number(
    values: &[Datum],
    compute: impl Fn(&BigDecimal) -> SqlResult<BigDecimal>,
) -> SqlResult<Datum> {
    match number(values, 0)? {
        Some(value) => compute(value).map(numeric::datum),
        None => Ok(numeric::NAN),
    }
}

fn sign(value: &BigDecimal) -> BigDecimal {
    BigDecimal::from(i32::from(value.is_positive()) - i32::from(value.is_negative()))
}

fn floor(value: &BigDecimal) -> SqlResult<BigDecimal> {
    let cut = numeric::truncate(value, 0)?;
    if cut > *value { numeric::subtract(&cut, &BigDecimal::from(1)) } else { Ok(cut) }
}

fn ceiling(value: &BigDecimal) -> SqlResult<BigDecimal> {
    let cut = numeric::truncate(value, 0)?;
    if cut < *value { numeric::add(&cut, &BigDecimal::from(1)) } else { Ok(cut) }
}

type OfFloat = (&'static str, fn(f64) -> f64);

/// Functions of one float that are defined everywhere, or give NaN where they are not.
const FLOATS: [OfFloat; 8] = [
    ("ceil", f64::ceil),
    ("ceiling", f64::ceil),
    ("floor", f64::floor),
    ("round", f64::round_ties_even),
    ("trunc", f64::trunc),
    ("cbrt", f64::cbrt),
    ("exp", f64::exp),
    ("sign", |value| if value == 0.0 || value.is_nan() { value } else { value.signum() }),
];

pub(super) fn register_operators(table: &mut Table<Body>) {
    table.add("^", "float8 float8 -> float8", |v, _| power(float(v, 0)?, float(v, 1)?));
    table.add("^", "numeric numeric -> numeric", power_pair);
    table.add("|/", "float8 -> float8", |v, _| square_root(float(v, 0)?));
    table.add("||/", "float8 -> float8", |v, _| Ok(Datum::F64(float(v, 0)?.cbrt())));
}

fn square_root(value: f64) -> SqlResult<Datum> {
    if value < 0.0 { Err(negative_root()) } else { Ok(Datum::F64(value.sqrt())) }
}

fn power_pair(values: &[Datum], context: &super::CallContext<'_>) -> SqlResult<Datum> {
    super::arithmetic::numeric_pair(values, |a, b| power_of(a, b, context.interrupts))
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for (name, body) in FLOATS {
        table.add_body(name, "float8 -> float8", Body::OfFloat(body));
    }
    table.add("sqrt", "float8 -> float8", |v, _| square_root(float(v, 0)?));
    table.add("ln", "float8 -> float8", |v, _| logarithm(float(v, 0)?, f64::ln));
    for name in ["log", "log10"] {
        table.add(name, "float8 -> float8", |v, _| logarithm(float(v, 0)?, f64::log10));
    }
    for name in ["power", "pow"] {
        table.add(name, "float8 float8 -> float8", |v, _| power(float(v, 0)?, float(v, 1)?));
        table.add(name, "numeric numeric -> numeric", power_pair);
    }
    table.add("random", "volatile -> float8", |_, context| Ok(Datum::F64((context.random)())));
    let signature = "numeric -> numeric";
    table.add("ceil", signature, |v, _| of_number(v, ceiling));
    table.add("ceiling", signature, |v, _| of_number(v, ceiling));
    table.add("floor", signature, |v, _| of_number(v, floor));
    table.add("round", signature, |v, _| of_number(v, |value| numeric::round(value, 0)));
    table.add("trunc", signature, |v, _| of_number(v, |value| numeric::truncate(value, 0)));
    table.add("sign", signature, |v, _| of_number(v, |value| Ok(sign(value))));
    table.add("sqrt", signature, |v, _| of_number(v, sqrt));
    table.add("exp", signature, |v, context| of_number(v, |own| exp(own, context.interrupts)));
    table.add("ln", signature, |v, context| of_number(v, |own| ln(own, context.interrupts)));
    for name in ["log", "log10"] {
        table.add(name, signature, |v, context| {
            of_number(v, |value| log(&BigDecimal::from(10), value, context.interrupts))
        });
    }
    table.add("log", "numeric numeric -> numeric", |v, context| {
        super::arithmetic::numeric_pair(v, |a, b| log(a, b, context.interrupts))
    });
    table.add("round", "numeric int4 -> numeric", |v, _| {
        let scale = whole(v, 1)?;
        of_number(v, |value| numeric::round(value, scale))
    });
    table.add("trunc", "numeric int4 -> numeric", |v, _| {
        let scale = whole(v, 1)?;
        of_number(v, |value| numeric::truncate(value, scale))
    });
    table.add("scale", "numeric -> int4", |v, _| match number(v, 0)? {
        Some(value) => {
            conversions::whole(i128::from(numeric::parts(value).1), crate::types::Scalar::Int4)
        }
        None => Ok(Datum::Null),
    });
    table.add("trim_scale", "numeric -> numeric", |v, _| {
        of_number(v, |value| {
            let normal = value.normalized();
            numeric::round(&normal, normal.fractional_digit_count().max(0))
        })
    });
    table.add("factorial", "int8 -> numeric", factorial);
    table.add("width_bucket", "float8 float8 float8 int4 -> int4", |v, _| {
        bucket(float(v, 0)?, float(v, 1)?, float(v, 2)?, whole(v, 3)?)
    });
}

fn factorial(values: &[Datum], context: &super::CallContext<'_>) -> SqlResult<Datum> {
    let n = whole(values, 0)?;
    if n < 0 {
        let what = "factorial of a negative number is undefined";
        return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, what));
    }
    // The first that has too many digits.
    if n > 32_177 {
        return Err(numeric::overflow());
    }
    let mut product = BigInt::from(1);
    for factor in 2..=n {
        product *= factor;
        // So many digits it has at most.
        context.interrupts.after(usize::try_from(factor / 4).unwrap_or(0))?;
    }
    Ok(numeric::datum(BigDecimal::new(product, 0)))
}

fn bucket(value: f64, low: f64, high: f64, count: i64) -> SqlResult<Datum> {
    let state = SqlState::INVALID_ARGUMENT_FOR_WIDTH_BUCKET;
    let invalid = |what| Err(SqlError::new(state, what));
    if count <= 0 {
        return invalid("count must be greater than zero");
    }
    if value.is_nan() || low.is_nan() || high.is_nan() {
        return invalid("operand, lower bound, and upper bound cannot be NaN");
    }
    if !low.is_finite() || !high.is_finite() {
        return invalid("lower and upper bounds must be finite");
    }
    if low == high {
        return invalid("lower bound cannot equal upper bound");
    }
    let (value, low, high) = if low < high { (value, low, high) } else { (-value, -low, -high) };
    let at = if value < low {
        0
    } else if value >= high {
        count + 1
    } else {
        #[expect(clippy::cast_possible_truncation, reason = "it is at most the count")]
        let at = ((value - low) / (high - low) * count as f64) as i64;
        at.min(count - 1) + 1
    };
    conversions::whole(i128::from(at), crate::types::Scalar::Int4)
}

/// A function of one float, computed and checked.
pub(super) fn checked_float(values: &[Datum], of: fn(f64) -> f64) -> SqlResult<Datum> {
    let value = float(values, 0)?;
    checked(of(value), value.is_finite())
}
