//! Arithmetic of `numeric`, with PostgreSQL's rules for the digits behind the point.
//!
//! Every value here has a scale from 0 to [`MAX_SCALE`]; infinities do not exist.

use std::cmp::Ordering;
use std::fmt::Write;
use std::sync::Arc;

use bigdecimal::num_bigint::{BigInt, Sign};
use bigdecimal::{BigDecimal, Signed, ToPrimitive, Zero};

use super::datum::Datum;
use super::sql_type::{Scalar, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// Most digits behind the point.
pub const MAX_SCALE: i64 = 16_383;
/// Most digits before the point.
const MAX_BEFORE: i64 = 131_072;
/// Significant digits that a quotient has at least.
pub(crate) const MIN_SIGNIFICANT: i64 = 16;
/// Most digits behind the point that a function gives on its own account.
pub(crate) const MAX_DISPLAY_SCALE: i64 = 1000;
/// Decimal digits of one digit of the base that PostgreSQL computes in.
const BASE_DIGITS: i64 = 4;

/// A `numeric` as an argument: NaN is `None`.
pub type Number = Option<Arc<BigDecimal>>;

/// The error of a number with too many digits.
pub(crate) fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "value overflows numeric format")
}

/// The error of a division by zero.
pub(crate) fn division_by_zero() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

pub(crate) fn power_of_ten(exponent: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(exponent.max(0)).unwrap_or(u32::MAX))
}

/// The digits and the scale of a number.
pub(crate) fn parts(value: &BigDecimal) -> (BigInt, i64) {
    let (digits, scale) = value.as_bigint_and_scale();
    if scale < 0 {
        (digits.as_ref() * power_of_ten(-scale), 0)
    } else {
        (digits.into_owned(), scale)
    }
}

/// The quotient, rounded half away from zero.
pub(crate) fn divide_rounded(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let quotient = dividend / divisor;
    let rest: BigInt = dividend - &quotient * divisor;
    if (rest.abs() << 1u8) >= divisor.abs() {
        let is_negative = (dividend.sign() == Sign::Minus) != (divisor.sign() == Sign::Minus);
        if is_negative { quotient - 1 } else { quotient + 1 }
    } else {
        quotient
    }
}

/// The digits of a number of scale `from` at the scale `to`, rounded half away from zero.
pub(crate) fn rescale(digits: &BigInt, from: i64, to: i64) -> BigInt {
    if to >= from {
        digits * power_of_ten(to - from)
    } else {
        divide_rounded(digits, &power_of_ten(from - to))
    }
}

/// Decimal digits of a number; 0 has one.
fn count_digits(digits: &BigInt) -> i64 {
    i64::try_from(BigDecimal::new(digits.clone(), 0).digits()).unwrap_or(i64::MAX)
}

/// A number that was computed, if it has no more digits than there may be.
pub(crate) fn checked(digits: BigInt, scale: i64) -> SqlResult<BigDecimal> {
    let (digits, scale) = if scale < 0 {
        (digits * power_of_ten((-scale).min(MAX_BEFORE + 1)), 0)
    } else if scale > MAX_SCALE {
        (rescale(&digits, scale, MAX_SCALE), MAX_SCALE)
    } else {
        (digits, scale)
    };
    // Bits are known without a conversion; most numbers are far from the limit.
    if digits.bits() > 400_000 && count_digits(&digits) - scale > MAX_BEFORE {
        return Err(overflow());
    }
    Ok(BigDecimal::new(digits, scale))
}

/// The value as a datum.
#[must_use]
pub fn datum(value: BigDecimal) -> Datum {
    Datum::Numeric(Some(Arc::new(value)))
}

/// NaN.
pub(crate) const NAN: Datum = Datum::Numeric(None);

/// The sum.
///
/// # Errors
/// Too many digits.
pub fn add(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let ((a, a_scale), (b, b_scale)) = (parts(a), parts(b));
    let scale = a_scale.max(b_scale);
    checked(rescale(&a, a_scale, scale) + rescale(&b, b_scale, scale), scale)
}

/// The difference.
///
/// # Errors
/// Too many digits.
pub fn subtract(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    add(a, &-b)
}

/// The product, of as many digits behind the point as both have together.
///
/// # Errors
/// Too many digits.
pub fn multiply(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let ((a, a_scale), (b, b_scale)) = (parts(a), parts(b));
    checked(a * b, a_scale + b_scale)
}

/// The weight of the first digit in base 10000, and that digit.
fn first_digit(digits: &BigInt, scale: i64) -> (i64, i64) {
    if digits.is_zero() {
        return (0, 0);
    }
    let exponent = count_digits(digits) - scale - 1;
    let weight = exponent.div_euclid(BASE_DIGITS);
    // The digit is the number without what is below its weight.
    let below = weight * BASE_DIGITS + scale;
    let first = if below >= 0 {
        digits.abs() / power_of_ten(below)
    } else {
        digits.abs() * power_of_ten(-below)
    };
    (weight, first.to_i64().unwrap_or(i64::MAX))
}

/// The weight of the first digit in base 10000.
pub(crate) fn weight(value: &BigDecimal) -> i64 {
    let (digits, scale) = parts(value);
    first_digit(&digits, scale).0
}

/// Digits behind the point of a quotient: `select_div_scale` of PostgreSQL.
fn quotient_scale(a: &(BigInt, i64), b: &(BigInt, i64)) -> i64 {
    let (a_weight, a_first) = first_digit(&a.0, a.1);
    let (b_weight, b_first) = first_digit(&b.0, b.1);
    let weight = a_weight - b_weight - i64::from(a_first <= b_first);
    (MIN_SIGNIFICANT - weight * BASE_DIGITS).max(a.1).max(b.1).clamp(0, MAX_DISPLAY_SCALE)
}

/// The quotient.
///
/// # Errors
/// A divisor of zero; too many digits.
pub fn divide(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let (a, b) = (parts(a), parts(b));
    if b.0.is_zero() {
        return Err(division_by_zero());
    }
    let scale = quotient_scale(&a, &b);
    let shift = scale + b.1 - a.1;
    let (dividend, divisor) = if shift >= 0 {
        (a.0 * power_of_ten(shift), b.0)
    } else {
        (a.0, b.0 * power_of_ten(-shift))
    };
    checked(divide_rounded(&dividend, &divisor), scale)
}

/// The whole part of the quotient.
///
/// # Errors
/// A divisor of zero.
pub fn divide_whole(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let ((a, a_scale), (b, b_scale)) = (parts(a), parts(b));
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let scale = a_scale.max(b_scale);
    checked(rescale(&a, a_scale, scale) / rescale(&b, b_scale, scale), 0)
}

/// The rest of the division, of the sign of the dividend.
///
/// # Errors
/// A divisor of zero.
pub fn remainder(a: &BigDecimal, b: &BigDecimal) -> SqlResult<BigDecimal> {
    let ((a, a_scale), (b, b_scale)) = (parts(a), parts(b));
    if b.is_zero() {
        return Err(division_by_zero());
    }
    let scale = a_scale.max(b_scale);
    checked(rescale(&a, a_scale, scale) % rescale(&b, b_scale, scale), scale)
}

/// The number rounded to so many digits behind the point, or before it if they are negative.
///
/// # Errors
/// Too many digits.
pub fn round(value: &BigDecimal, scale: i64) -> SqlResult<BigDecimal> {
    let (digits, own) = parts(value);
    let scale = scale.clamp(-MAX_BEFORE, MAX_SCALE);
    checked(rescale(&digits, own, scale), scale)
}

/// The number cut to so many digits behind the point.
///
/// # Errors
/// Too many digits.
pub fn truncate(value: &BigDecimal, scale: i64) -> SqlResult<BigDecimal> {
    let (digits, own) = parts(value);
    let scale = scale.clamp(-MAX_BEFORE, MAX_SCALE);
    let digits = if scale >= own {
        rescale(&digits, own, scale)
    } else {
        digits / power_of_ten(own - scale)
    };
    checked(digits, scale)
}

/// The square root of a number that is not negative, to so many digits behind the point.
pub(crate) fn square_root_to(value: &BigDecimal, scale: i64) -> SqlResult<BigDecimal> {
    let (digits, own) = parts(value);
    let shift = 2 * scale - own;
    let radicand =
        if shift >= 0 { digits * power_of_ten(shift) } else { digits / power_of_ten(-shift) };
    let root = radicand.sqrt();
    let rest: BigInt = radicand - &root * &root;
    checked(if rest > root { root + 1 } else { root }, scale)
}

/// The order of two numbers.
pub(crate) fn compare(a: &BigDecimal, b: &BigDecimal) -> Ordering {
    a.cmp(b)
}

/// The number that a text stands for; the outer `None` if it is none, the inner one for NaN.
pub(crate) fn parse(text: &str) -> Option<SqlResult<Option<BigDecimal>>> {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    if text.eq_ignore_ascii_case("nan") {
        return Some(Ok(None));
    }
    let (is_negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest.eq_ignore_ascii_case("infinity") || rest.eq_ignore_ascii_case("inf") {
        return Some(Err(SqlError::unsupported("an infinite numeric")));
    }
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => {
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            is_number.then_some(())?;
            (mantissa, exponent.parse::<i32>().unwrap_or(i32::MAX))
        }
        None => (rest, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let scale = fraction.len() as i64 - i64::from(exponent);
    let before = all.trim_start_matches('0').len() as i64 - scale;
    if before > MAX_BEFORE || scale > 10 * MAX_SCALE || -scale > MAX_BEFORE {
        return Some(Err(overflow()));
    }
    let digits = BigInt::parse_bytes(all.as_bytes(), 10)?;
    let digits = if is_negative { -digits } else { digits };
    Some(checked(digits, scale).map(Some))
}

/// Prints a number with all digits of its scale.
pub(crate) fn print(value: &BigDecimal, out: &mut String) {
    let (digits, scale) = parts(value);
    let scale = usize::try_from(scale).unwrap_or(0);
    if digits.sign() == Sign::Minus {
        out.push('-');
    }
    let mut text = digits.magnitude().to_string();
    if text.len() <= scale {
        text.insert_str(0, &"0".repeat(scale + 1 - text.len()));
    }
    let (whole, fraction) = text.split_at(text.len() - scale);
    out.push_str(whole);
    if scale > 0 {
        let _ = write!(out, ".{fraction}");
    }
}

/// The number as `numeric(p, s)` has it.
///
/// # Errors
/// [`SqlState::NUMERIC_OUT_OF_RANGE`] if it has too many digits before the point.
pub(crate) fn apply_modifier(value: BigDecimal, ty: SqlType) -> SqlResult<BigDecimal> {
    debug_assert_eq!(ty.scalar, Scalar::Numeric, "only numeric has a precision");
    let Some((precision, scale)) = ty.precision_and_scale() else { return Ok(value) };
    let (digits, own) = parts(&value);
    let digits = rescale(&digits, own, i64::from(scale));
    if digits.abs() >= power_of_ten(i64::from(precision)) {
        let power = precision - scale;
        let limit = if power == 0 { "1".to_owned() } else { format!("10^{power}") };
        let detail = format!(
            "A field with precision {precision}, scale {scale} must round to an absolute value \
             less than {limit}."
        );
        let error = SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, "numeric field overflow");
        return Err(error.detail(detail));
    }
    checked(digits, i64::from(scale))
}

/// The float, in as few digits as PostgreSQL gives it: 15 of a double, 6 of a real.
pub(crate) fn from_float(value: f64, significant: usize) -> SqlResult<Datum> {
    if value.is_nan() {
        return Ok(NAN);
    }
    if value.is_infinite() {
        return Err(SqlError::unsupported("an infinite numeric"));
    }
    let text = format!("{value:.*e}", significant.saturating_sub(1));
    let Some(Ok(Some(parsed))) = parse(&text) else { return Err(overflow()) };
    // Like %.15g, zeroes at the end do not count.
    let (digits, scale) = parts(&parsed);
    let shown = BigDecimal::new(digits, scale);
    let normal = shown.normalized();
    let scale = normal.fractional_digit_count().max(0);
    Ok(datum(shown.with_scale(scale)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> BigDecimal {
        parse(text).unwrap().unwrap().unwrap()
    }

    fn shown(value: &BigDecimal) -> String {
        let mut out = String::new();
        print(value, &mut out);
        out
    }

    #[test]
    fn quotients_have_the_digits_of_postgresql() {
        for (a, b, quotient) in [
            ("1", "3", "0.33333333333333333333"),
            ("2", "3", "0.66666666666666666667"),
            ("10", "3", "3.3333333333333333"),
            ("100", "7", "14.2857142857142857"),
            ("1", "8", "0.12500000000000000000"),
            ("10000", "3", "3333.3333333333333333"),
            ("6", "2", "3.0000000000000000"),
            ("-7", "2", "-3.5000000000000000"),
            ("0", "5", "0.00000000000000000000"),
            ("1.0", "0.0003", "3333.3333333333333333"),
        ] {
            assert_eq!(shown(&divide(&number(a), &number(b)).unwrap()), quotient, "{a} / {b}");
        }
        assert_eq!(
            divide(&number("1"), &number("0.0")).unwrap_err().state(),
            SqlState::DIVISION_BY_ZERO
        );
    }

    #[test]
    fn sums_and_products_keep_the_scale() {
        let (a, b) = (number("1.50"), number("-0.125"));
        assert_eq!(shown(&add(&a, &b).unwrap()), "1.375");
        assert_eq!(shown(&multiply(&a, &b).unwrap()), "-0.18750");
        assert_eq!(shown(&subtract(&a, &a).unwrap()), "0.00");
        assert_eq!(shown(&remainder(&number("-7.5"), &number("2")).unwrap()), "-1.5");
        assert_eq!(shown(&round(&number("2.5"), 0).unwrap()), "3");
        assert_eq!(shown(&round(&number("-2.5"), 0).unwrap()), "-3");
        assert_eq!(shown(&round(&number("1250"), -2).unwrap()), "1300");
        assert_eq!(shown(&truncate(&number("-2.59"), 1).unwrap()), "-2.5");
    }

    #[test]
    fn texts_are_read_and_printed() {
        for (text, out) in [
            ("1.50", "1.50"),
            (" -0.001 ", "-0.001"),
            ("1e3", "1000"),
            ("1.5e-3", "0.0015"),
            (".5", "0.5"),
            ("5.", "5"),
            ("+7", "7"),
            ("-0", "0"),
        ] {
            assert_eq!(shown(&number(text)), out, "{text}");
        }
        for text in ["", ".", "e5", "1e", "1 2", "--1", "1.2.3", "0x10"] {
            assert!(parse(text).is_none(), "{text}");
        }
        for text in ["1e131073", "1e999999999999", "infinity"] {
            assert!(parse(text).unwrap().is_err(), "{text}");
        }
    }

    #[test]
    fn a_precision_rounds_and_refuses() {
        let ty = SqlType::numeric(4, 2).unwrap();
        assert_eq!(shown(&apply_modifier(number("1.005"), ty).unwrap()), "1.01");
        let error = apply_modifier(number("99.995"), ty).unwrap_err();
        assert_eq!(error.message(), "numeric field overflow");
        let ty = SqlType::numeric(3, -2).unwrap();
        assert_eq!(shown(&apply_modifier(number("12345"), ty).unwrap()), "12300");
    }
}
