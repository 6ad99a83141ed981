//! Functions of byte strings: their bits and bytes, parts of them, and hashes of the SHA-2 family.

use super::CallContext;
use super::arguments::{bytes, text, whole};
use super::encodings::check_utf8;
use super::sha224::sha224;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

fn of_bytes(value: impl AsRef<[u8]>) -> Datum {
    Datum::Bytes(value.as_ref().into())
}

fn out_of_range(at: i64, count: u64) -> SqlError {
    let last = i128::from(count) - 1;
    let message = format!("index {at} out of valid range, 0..{last}");
    SqlError::new(SqlState::ARRAY_SUBSCRIPT, message)
}

/// The place of a byte by its number.
fn byte_at(value: &[u8], at: i64) -> SqlResult<usize> {
    let found = usize::try_from(at).ok().filter(|at| *at < value.len());
    found.ok_or_else(|| out_of_range(at, value.len() as u64))
}

/// The place of a bit: its byte, and how far it is from the lowest there.
fn bit_at(value: &[u8], at: i64) -> SqlResult<(usize, u32)> {
    let bits = 8 * value.len() as u64;
    let found = u64::try_from(at).ok().filter(|at| *at < bits);
    let found = found.ok_or_else(|| out_of_range(at, bits))?;
    let byte = usize::try_from(found / 8).map_err(|_| out_of_range(at, bits))?;
    Ok((byte, u32::try_from(found % 8).unwrap_or(0)))
}

fn get_byte(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, at) = (bytes(values, 0)?, whole(values, 1)?);
    let byte = value.get(byte_at(value, at)?).copied().unwrap_or(0);
    Ok(Datum::I32(i32::from(byte)))
}

fn set_byte(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, at) = (bytes(values, 0)?, whole(values, 1)?);
    let at = byte_at(value, at)?;
    let mut value = value.to_vec();
    if let Some(byte) = value.get_mut(at) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the low bits")]
        let new = whole(values, 2)? as u8;
        *byte = new;
    }
    Ok(of_bytes(value))
}

fn get_bit(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, at) = (bytes(values, 0)?, whole(values, 1)?);
    let (byte, bit) = bit_at(value, at)?;
    let byte = value.get(byte).copied().unwrap_or(0);
    Ok(Datum::I32(i32::from((byte >> bit) & 1)))
}

fn set_bit(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, at) = (bytes(values, 0)?, whole(values, 1)?);
    let (byte, bit) = bit_at(value, at)?;
    let new = match whole(values, 2)? {
        0 => 0,
        1 => 1u8,
        _ => return Err(SqlError::new(SqlState::INVALID_PARAMETER, "new bit must be 0 or 1")),
    };
    let mut value = value.to_vec();
    if let Some(byte) = value.get_mut(byte) {
        *byte = (*byte & !(1 << bit)) | (new << bit);
    }
    Ok(of_bytes(value))
}

fn position(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, wanted) = (bytes(values, 0)?, bytes(values, 1)?);
    let found = match wanted.len() {
        0 => Some(0),
        length => value.windows(length).position(|part| part == wanted),
    };
    let at = found.map_or(0, |at| at + 1);
    Ok(Datum::I32(i32::try_from(at).unwrap_or(i32::MAX)))
}

fn overlay(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (value, new, from) = (bytes(values, 0)?, bytes(values, 1)?, whole(values, 2)?);
    let length = if values.len() > 3 { whole(values, 3)? } else { new.len() as i64 };
    if from <= 0 {
        let message = "negative substring length not allowed";
        return Err(SqlError::new(SqlState::SUBSTRING_ERROR, message));
    }
    let place = |at: i64| usize::try_from(at).unwrap_or(0).min(value.len());
    let before = value.get(..place(from - 1)).unwrap_or_default();
    let after = place((from - 1).saturating_add(length));
    Ok(of_bytes([before, new, value.get(after..).unwrap_or_default()].concat()))
}

/// The value without those of a set of bytes at its ends.
fn trim(values: &[Datum], at_start: bool, at_end: bool) -> SqlResult<Datum> {
    let (value, set) = (bytes(values, 0)?, bytes(values, 1)?);
    let is_kept = |byte: &u8| !set.contains(byte);
    let Some(first) = value.iter().position(is_kept) else {
        return Ok(of_bytes(if at_start || at_end { &[] } else { value }));
    };
    let last = value.iter().rposition(is_kept).unwrap_or(first);
    let from = if at_start { first } else { 0 };
    let to = if at_end { last + 1 } else { value.len() };
    Ok(of_bytes(value.get(from..to).unwrap_or_default()))
}

fn hash(values: &[Datum], algorithm: &'static ring::digest::Algorithm) -> SqlResult<Datum> {
    Ok(of_bytes(ring::digest::digest(algorithm, bytes(values, 0)?)))
}

/// The characters that bytes are in an encoding.
fn length_in(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    check_utf8(text(values, 1)?)?;
    let count = decoded(bytes(values, 0)?)?.chars().count();
    Ok(Datum::I32(i32::try_from(count).unwrap_or(i32::MAX)))
}

/// Bytes as a text of UTF-8.
pub(super) fn decoded(value: &[u8]) -> SqlResult<&str> {
    std::str::from_utf8(value).map_err(|error| {
        let from = error.valid_up_to();
        let most = value.len().min(from + error.error_len().unwrap_or(value.len()));
        let shown = value.get(from..most).unwrap_or_default().iter();
        let shown: Vec<String> = shown.map(|byte| format!("0x{byte:02x}")).collect();
        let message = format!("invalid byte sequence for encoding \"UTF8\": {}", shown.join(" "));
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    })
}

fn convert(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    check_utf8(text(values, 1)?)?;
    check_utf8(text(values, 2)?)?;
    decoded(bytes(values, 0)?).map(of_bytes)
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("get_byte", "bytea int4 -> int4", get_byte);
    table.add("set_byte", "bytea int4 int4 -> bytea", set_byte);
    table.add("get_bit", "bytea int8 -> int4", get_bit);
    table.add("set_bit", "bytea int8 int4 -> bytea", set_bit);
    table.add("bit_count", "bytea -> int8", |v, _| {
        let ones = bytes(v, 0)?.iter().map(|byte| i64::from(byte.count_ones()));
        Ok(Datum::I64(ones.sum()))
    });
    for name in ["position", "strpos"] {
        table.add(name, "bytea bytea -> int4", position);
    }
    for signature in ["bytea bytea int4 -> bytea", "bytea bytea int4 int4 -> bytea"] {
        table.add("overlay", signature, overlay);
    }
    let signature = "bytea bytea -> bytea";
    table.add("ltrim", signature, |v, _| trim(v, true, false));
    table.add("rtrim", signature, |v, _| trim(v, false, true));
    table.add("btrim", signature, |v, _| trim(v, true, true));
    let signature = "bytea -> bytea";
    table.add("sha224", signature, |v, _| Ok(of_bytes(sha224(bytes(v, 0)?))));
    table.add("sha256", signature, |v, _| hash(v, &ring::digest::SHA256));
    table.add("sha384", signature, |v, _| hash(v, &ring::digest::SHA384));
    table.add("sha512", signature, |v, _| hash(v, &ring::digest::SHA512));
    table.add("length", "bytea name -> int4", length_in);
    table.add("convert", "bytea name name -> bytea", convert);
}

#[cfg(test)]
mod tests {
    use super::super::testing::call;

    #[test]
    fn hashes_are_those_of_the_standard() {
        let starts = |name: &str, start: &str| {
            let shown = call(name, &["\\x616263"]);
            assert!(shown.as_deref().unwrap().starts_with(start), "{name}: {shown:?}");
        };
        starts("sha224", "\\x23097d223405d8228642a477bda255b32aadbce4bda0b3f7e36c9da7");
        starts("sha256", "\\xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        starts("sha384", "\\xcb00753f45a35e8bb5a03d699ac65007272c32ab0eded163");
        starts("sha512", "\\xddaf35a193617abacc417349ae204131");
    }
}
