//! Values in the binary formats of PostgreSQL's protocol: what the `send` functions of the types
//! write and their `recv` functions read. All numbers are big-endian.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::{BigInt, Sign};
use selkie_txn::{Interval, MAX_TIME_US};

use super::array_text::MAX_DIMENSIONS;
use super::calendar::{self, DATE_INFINITY, DATE_MINUS_INFINITY};
use super::datum::{Array, Datum};
use super::json;
use super::limits::check_count;
use super::numeric;
use super::sql_type::{Scalar, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// The sign of a negative `numeric`.
const NEGATIVE: u16 = 0x4000;
/// The sign of a `numeric` that is NaN.
const NAN: u16 = 0xc000;
/// Decimal digits of a digit of a `numeric`.
const BASE_DIGITS: usize = 4;
/// The only version of `jsonb`.
const JSONB_VERSION: u8 = 1;
/// Where an element of an array would have its length.
const NULL_LENGTH: i32 = -1;

fn invalid(what: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_BINARY, what)
}

fn incorrect(ty: SqlType) -> SqlError {
    invalid(&format!("incorrect binary data format for type {}", ty.name()))
}

/// A length as the protocol has it.
fn length(length: usize) -> SqlResult<i32> {
    i32::try_from(length)
        .map_err(|_| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a value is too long to send"))
}

/// Appends a value that is not NULL.
///
/// # Errors
/// A value that is too long, or not of this type.
pub fn to_binary(value: &Datum, ty: SqlType, out: &mut Vec<u8>) -> SqlResult<()> {
    match value {
        Datum::Null => return Err(SqlError::internal("NULL has no binary format")),
        Datum::Bool(value) => out.push(u8::from(*value)),
        Datum::I16(value) => out.extend(value.to_be_bytes()),
        Datum::I32(value) | Datum::Date(value) => out.extend(value.to_be_bytes()),
        Datum::I64(value) if ty.scalar == Scalar::Int8 => {
            out.extend(value.to_be_bytes());
        }
        Datum::I64(value) => {
            let oid = u32::try_from(*value).map_err(|_| incorrect(ty))?;
            out.extend(oid.to_be_bytes());
        }
        Datum::F32(value) => out.extend(value.to_be_bytes()),
        Datum::F64(value) => out.extend(value.to_be_bytes()),
        Datum::Numeric(value) => numeric_to_binary(value.as_deref(), out)?,
        Datum::Text(value) => {
            out.extend(value.as_bytes());
            if ty.scalar == Scalar::Char {
                let missing = ty.max_characters().unwrap_or(0);
                let missing = missing.saturating_sub(value.chars().count());
                out.resize(out.len() + missing, b' ');
            }
        }
        Datum::Bytes(value) => out.extend(value.iter()),
        Datum::Json(value) => {
            if ty.scalar == Scalar::Jsonb {
                out.push(JSONB_VERSION);
            }
            out.extend(value.as_bytes());
        }
        Datum::Time(value) | Datum::Timestamp(value) => out.extend(value.to_be_bytes()),
        Datum::Interval(value) => {
            out.extend(value.microseconds.to_be_bytes());
            out.extend(value.days.to_be_bytes());
            out.extend(value.months.to_be_bytes());
        }
        Datum::Uuid(value) => out.extend(value),
        Datum::Array(array) => array_to_binary(array, out)?,
        Datum::Record(own) => {
            out.extend(length(own.values.len())?.to_be_bytes());
            for (value, ty) in own.typed() {
                out.extend(ty.oid().to_be_bytes());
                element_to_binary(value, ty, out)?;
            }
        }
    }
    Ok(())
}

/// Appends the length of a value and the value.
fn element_to_binary(value: &Datum, ty: SqlType, out: &mut Vec<u8>) -> SqlResult<()> {
    if value.is_null() {
        out.extend(NULL_LENGTH.to_be_bytes());
        return Ok(());
    }
    let start = out.len();
    out.extend([0; 4]);
    to_binary(value, ty, out)?;
    let bytes = length(out.len() - start - 4)?.to_be_bytes();
    if let Some(place) = out.get_mut(start..start + 4) {
        place.copy_from_slice(&bytes);
    }
    Ok(())
}

fn array_to_binary(array: &Array, out: &mut Vec<u8>) -> SqlResult<()> {
    let ty = SqlType::new(array.element);
    let has_null = array.elements.iter().any(Datum::is_null);
    out.extend(length(array.dimensions.len())?.to_be_bytes());
    out.extend(i32::from(has_null).to_be_bytes());
    out.extend(ty.oid().to_be_bytes());
    for &(count, first) in &array.dimensions {
        out.extend(length(count)?.to_be_bytes());
        out.extend(first.to_be_bytes());
    }
    array.elements.iter().try_for_each(|value| element_to_binary(value, ty, out))
}

fn numeric_to_binary(value: Option<&BigDecimal>, out: &mut Vec<u8>) -> SqlResult<()> {
    let mut header = |digits: i16, weight: i16, sign: u16, scale: u16| {
        out.extend(digits.to_be_bytes());
        out.extend(weight.to_be_bytes());
        out.extend(sign.to_be_bytes());
        out.extend(scale.to_be_bytes());
    };
    let Some(value) = value else {
        header(0, 0, NAN, 0);
        return Ok(());
    };
    let (number, scale) = numeric::parts(value);
    let scale = u16::try_from(scale).map_err(|_| numeric::overflow())?;
    // Filled up with zeroes, so that the point is between two digits of the base.
    let behind = usize::from(scale).div_ceil(BASE_DIGITS);
    let mut text = number.magnitude().to_string();
    text.push_str(&"0".repeat(behind * BASE_DIGITS - usize::from(scale)));
    let width = text.len().div_ceil(BASE_DIGITS) * BASE_DIGITS;
    let text = format!("{text:0>width$}");
    let all: Vec<i16> = text
        .as_bytes()
        .chunks(BASE_DIGITS)
        .map(|chunk| chunk.iter().fold(0, |sum, digit| sum * 10 + i16::from(digit - b'0')))
        .collect();
    let zeroes = all.iter().take_while(|digit| **digit == 0).count();
    let last = all.iter().rposition(|digit| *digit != 0).map_or(zeroes, |at| at + 1);
    let digits = all.get(zeroes..last).unwrap_or_default();
    let weight =
        if digits.is_empty() { 0 } else { (all.len() - behind) as i64 - zeroes as i64 - 1 };
    let sign = if number.sign() == Sign::Minus { NEGATIVE } else { 0 };
    let count = i16::try_from(digits.len()).map_err(|_| numeric::overflow())?;
    let weight = i16::try_from(weight).map_err(|_| numeric::overflow())?;
    header(count, weight, sign, scale);
    out.extend(digits.iter().flat_map(|digit| digit.to_be_bytes()));
    Ok(())
}

/// Bytes that are read from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> SqlResult<&'a [u8]> {
        let (taken, rest) = self
            .0
            .split_at_checked(count)
            .ok_or_else(|| invalid("insufficient data left in message"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> SqlResult<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| invalid("insufficient data left in message"))
    }

    fn i16(&mut self) -> SqlResult<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn u16(&mut self) -> SqlResult<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn i32(&mut self) -> SqlResult<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn u32(&mut self) -> SqlResult<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn i64(&mut self) -> SqlResult<i64> {
        self.array().map(i64::from_be_bytes)
    }

    fn text(&mut self) -> SqlResult<&'a str> {
        let text = std::str::from_utf8(self.take(self.0.len())?)
            .map_err(|_| invalid("invalid byte sequence for encoding \"UTF8\""))?;
        if text.contains('\0') {
            return Err(invalid("invalid byte sequence for encoding \"UTF8\": 0x00"));
        }
        Ok(text)
    }
}

/// Reads a value; a modifier is applied as by an assignment.
///
/// # Errors
/// [`SqlState::INVALID_BINARY`] if the bytes are no value of this type.
pub fn from_binary(bytes: &[u8], ty: SqlType) -> SqlResult<Datum> {
    let mut reader = Reader(bytes);
    let value = if ty.is_array { array(&mut reader, ty)? } else { scalar(&mut reader, ty)? };
    if !reader.0.is_empty() {
        return Err(incorrect(ty));
    }
    super::conversions::apply_modifier(value, ty, false)
}

fn scalar(reader: &mut Reader<'_>, ty: SqlType) -> SqlResult<Datum> {
    Ok(match ty.scalar {
        Scalar::Bool => Datum::Bool(reader.array::<1>()? != [0]),
        Scalar::Int2 => Datum::I16(reader.i16()?),
        Scalar::Int4 => Datum::I32(reader.i32()?),
        Scalar::Int8 => Datum::I64(reader.i64()?),
        Scalar::Oid
        | Scalar::Regclass
        | Scalar::Regtype
        | Scalar::Regproc
        | Scalar::Regprocedure
        | Scalar::Regoper
        | Scalar::Regoperator
        | Scalar::Regcollation
        | Scalar::Regnamespace
        | Scalar::Regrole => Datum::I64(i64::from(reader.u32()?)),
        Scalar::Float4 => Datum::F32(f32::from_be_bytes(reader.array()?)),
        Scalar::Float8 => Datum::F64(f64::from_be_bytes(reader.array()?)),
        Scalar::Numeric => numeric_of(reader)?,
        Scalar::Char => Datum::text(reader.text()?.trim_end_matches(' ')),
        Scalar::Name => Datum::text(super::text_format::cut_name(reader.text()?)),
        Scalar::Text | Scalar::Varchar | Scalar::SingleChar | Scalar::Unknown => {
            Datum::text(reader.text()?)
        }
        Scalar::Bytea => Datum::Bytes(reader.take(reader.0.len())?.into()),
        Scalar::Date => match reader.i32()? {
            days @ (DATE_INFINITY | DATE_MINUS_INFINITY) => Datum::Date(days),
            days => Datum::Date(calendar::checked_date(i64::from(days))?),
        },
        Scalar::Time => match reader.i64()? {
            us @ 0..=MAX_TIME_US => Datum::Time(us),
            _ => return Err(incorrect(ty)),
        },
        Scalar::Timestamp | Scalar::TimestampTz => match reader.i64()? {
            us if !calendar::is_finite(us) => Datum::Timestamp(us),
            us => Datum::Timestamp(calendar::checked_timestamp(i128::from(us))?),
        },
        Scalar::Interval => {
            let (microseconds, days, months) = (reader.i64()?, reader.i32()?, reader.i32()?);
            Datum::Interval(Interval { months, days, microseconds })
        }
        Scalar::Uuid => Datum::Uuid(reader.array()?),
        Scalar::Json => {
            let text = reader.text()?;
            json::parse(text)?;
            Datum::Json(text.into())
        }
        Scalar::Jsonb => {
            if reader.array::<1>()? != [JSONB_VERSION] {
                return Err(invalid("unsupported jsonb version number"));
            }
            Datum::Json(json::canonical(reader.text()?)?.into())
        }
        Scalar::Record | Scalar::Void => return Err(incorrect(ty)),
    })
}

fn numeric_of(reader: &mut Reader<'_>) -> SqlResult<Datum> {
    let failed = |what: &str| invalid(&format!("invalid {what} in external \"numeric\" value"));
    let count = usize::try_from(reader.i16()?).map_err(|_| failed("length"))?;
    let weight = i64::from(reader.i16()?);
    let sign = reader.u16()?;
    let scale = i64::from(reader.u16()?);
    if sign == NAN {
        reader.take(2 * count)?;
        return Ok(Datum::Numeric(None));
    }
    if sign != 0 && sign != NEGATIVE {
        return Err(failed("sign"));
    }
    if scale > numeric::MAX_SCALE {
        return Err(failed("scale"));
    }
    let bytes = reader.take(2 * count)?;
    let mut text = String::with_capacity(BASE_DIGITS * count + 1);
    for pair in bytes.chunks_exact(2) {
        let digit = pair.iter().fold(0u16, |sum, byte| sum << 8 | u16::from(*byte));
        if digit > 9999 {
            return Err(failed("digit"));
        }
        text.push_str(&format!("{digit:04}"));
    }
    let digits = BigInt::parse_bytes(text.as_bytes(), 10).unwrap_or_default();
    let digits = if sign == NEGATIVE { -digits } else { digits };
    let own_scale = BASE_DIGITS as i64 * (count as i64 - 1 - weight);
    if count == 0 {
        return Ok(numeric::datum(BigDecimal::new(digits, scale)));
    }
    let number = BigDecimal::new(digits, own_scale);
    Ok(numeric::datum(numeric::truncate(&number, scale)?))
}

fn array(reader: &mut Reader<'_>, ty: SqlType) -> SqlResult<Datum> {
    let dimension_count = usize::try_from(reader.i32()?).ok();
    let dimension_count = dimension_count
        .filter(|count| *count <= MAX_DIMENSIONS)
        .ok_or_else(|| invalid("invalid number of dimensions"))?;
    if !matches!(reader.i32()?, 0 | 1) {
        return Err(invalid("invalid array flags"));
    }
    if reader.u32()? != ty.element().oid() {
        return Err(invalid("wrong element type"));
    }
    let mut dimensions = Vec::new();
    let mut count = usize::from(dimension_count > 0);
    for _ in 0..dimension_count {
        let length = usize::try_from(reader.i32()?).map_err(|_| invalid("invalid array length"))?;
        let first = reader.i32()?;
        if i64::from(first) + length as i64 - 1 > i64::from(i32::MAX) {
            return Err(invalid("array lower bound is too large"));
        }
        count = count.checked_mul(length).ok_or_else(|| invalid("invalid array length"))?;
        dimensions.push((length, first));
    }
    // Each element takes its length at least: more cannot follow, and is not reserved.
    if count > reader.0.len() / 4 {
        return Err(invalid("insufficient data left in message"));
    }
    check_count(count.saturating_sub(1))?;
    let mut elements = Vec::with_capacity(count);
    for _ in 0..count {
        let bytes = reader.i32()?;
        if bytes == NULL_LENGTH {
            elements.push(Datum::Null);
            continue;
        }
        let bytes = usize::try_from(bytes).map_err(|_| invalid("invalid array element length"))?;
        elements.push(from_binary(reader.take(bytes)?, ty.element().plain())?);
    }
    if elements.is_empty() {
        dimensions.clear();
    }
    Ok(Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::settings::FormatSettings;
    use crate::types::text_format::{from_text, to_string};

    fn read(text: &str, ty: SqlType) -> Datum {
        from_text(text, ty, &FormatSettings::default()).unwrap()
    }

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let cases: [(SqlType, &str, &[u8]); 9] = [
            (SqlType::BOOL, "t", &[1]),
            (SqlType::INT4, "-2", &[255, 255, 255, 254]),
            (SqlType::OID, "4294967295", &[255; 4]),
            (SqlType::NUMERIC, "12345.678", &[0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 9, 41, 26, 124]),
            (SqlType::NUMERIC, "-0.01", &[0, 1, 255, 255, 64, 0, 0, 2, 0, 100]),
            (SqlType::NUMERIC, "NaN", &[0, 0, 0, 0, 0xc0, 0, 0, 0]),
            (SqlType::TIMESTAMP, "2000-01-01 00:00:01", &[0, 0, 0, 0, 0, 15, 66, 64]),
            (SqlType::JSONB, "[1]", &[1, b'[', b'1', b']']),
            (
                SqlType::array(Scalar::Int2),
                "{7,NULL}",
                &[
                    0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 21, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 7,
                    255, 255, 255, 255,
                ],
            ),
        ];
        for (ty, text, bytes) in cases {
            let mut out = Vec::new();
            to_binary(&read(text, ty), ty, &mut out).unwrap();
            assert_eq!(out, bytes, "{text}");
        }
    }

    #[test]
    fn values_come_back_and_cut_ones_are_refused() {
        let settings = FormatSettings::default();
        for (ty, text) in [
            (SqlType::INT2, "-7"),
            (SqlType::INT8, "1234567890123"),
            (SqlType::FLOAT4, "1.5"),
            (SqlType::FLOAT8, "-Infinity"),
            (SqlType::NUMERIC, "0.00"),
            (SqlType::NUMERIC, "100000000"),
            (SqlType::NUMERIC, "-123456789.0001234500"),
            (SqlType::DATE, "1999-01-08"),
            (SqlType::TIME, "24:00:00"),
            (SqlType::TIMESTAMPTZ, "infinity"),
            (SqlType::INTERVAL, "1 year 2 mons 3 days 04:05:06"),
            (SqlType::UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (SqlType::array(Scalar::Text), "{{a,b},{NULL,\"\"}}"),
            (SqlType::array(Scalar::Int8), "[5:6]={1,2}"),
        ] {
            let mut out = Vec::new();
            to_binary(&read(text, ty), ty, &mut out).unwrap();
            let back = from_binary(&out, ty).unwrap();
            assert_eq!(to_string(&back, ty, &settings), text);
            for end in 0..out.len() {
                let state = from_binary(&out[..end], ty).unwrap_err().state();
                assert_eq!(state, SqlState::INVALID_BINARY, "{text} cut to {end}");
            }
            out.push(0);
            from_binary(&out, ty).unwrap_err();
        }
    }

    #[test]
    fn lengths_that_lie_reserve_nothing() {
        let mut bytes = Vec::new();
        for number in [6, 0, 23, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1, 1 << 30, 1, 4, 1, 4, 1i32] {
            bytes.extend(number.to_be_bytes());
        }
        from_binary(&bytes, SqlType::array(Scalar::Int4)).unwrap_err();
        from_binary(&[0x7f, 255, 0x7f, 255, 0, 0, 0, 0], SqlType::NUMERIC).unwrap_err();
    }
}
