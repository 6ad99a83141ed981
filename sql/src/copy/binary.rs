//! The binary format.

use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::binary_format::{from_binary, to_binary};
use crate::types::{Datum, SqlType};

/// What data begins with.
const SIGNATURE: &[u8; 11] = b"PGCOPY\n\xff\r\n\0";

/// Length of what data ends with.
pub(super) const TRAILER_BYTES: usize = 2;

/// What data begins with, flags, and the length of what follows: nothing.
pub(super) fn write_header(out: &mut Vec<u8>) {
    out.extend(SIGNATURE);
    out.extend([0; 8]);
}

/// What data ends with.
pub(super) fn write_trailer(out: &mut Vec<u8>) {
    out.extend((-1_i16).to_be_bytes());
}

/// Writes a row.
pub(super) fn write(row: &[Datum], types: &[SqlType], out: &mut Vec<u8>) -> SqlResult<()> {
    let count = i16::try_from(row.len()).map_err(|_| invalid("too many columns"))?;
    out.extend(count.to_be_bytes());
    for (value, ty) in row.iter().zip(types) {
        if value.is_null() {
            out.extend((-1_i32).to_be_bytes());
            continue;
        }
        let at = out.len();
        out.extend([0; 4]);
        to_binary(value, *ty, out)?;
        let length = out.len() - at - 4;
        let length = i32::try_from(length).map_err(|_| invalid("a value is too long"))?;
        if let Some(place) = out.get_mut(at..at + 4) {
            place.copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(())
}

/// The length of the header; `None` if it is not there whole.
pub(super) fn header(bytes: &[u8]) -> SqlResult<Option<usize>> {
    let begun = bytes.len().min(SIGNATURE.len());
    if bytes.get(..begun) != SIGNATURE.get(..begun) {
        return Err(invalid("COPY file signature not recognized"));
    }
    let Some(flags) = int(bytes, SIGNATURE.len()) else { return Ok(None) };
    let Some(length) = int(bytes, SIGNATURE.len() + 4) else { return Ok(None) };
    // The upper half are flags that a reader has to know.
    if flags >> 16 != 0 {
        return Err(invalid("unrecognized critical flags in COPY file header"));
    }
    let length = usize::try_from(length);
    let length = length.map_err(|_| invalid("invalid COPY file header (wrong length)"))?;
    let whole = SIGNATURE.len() + 8 + length;
    Ok((bytes.len() >= whole).then_some(whole))
}

/// What a record is.
pub(super) enum Record {
    /// It is not there whole.
    Incomplete,
    /// That was all.
    End,
    /// A row, and how many bytes it took.
    Row(Vec<Datum>, usize),
}

/// The record that bytes begin with.
pub(super) fn record(bytes: &[u8], types: &[SqlType]) -> SqlResult<Record> {
    let Some(count) = bytes.first_chunk::<2>() else { return Ok(Record::Incomplete) };
    let count = i16::from_be_bytes(*count);
    if count == -1 {
        return Ok(Record::End);
    }
    if usize::try_from(count) != Ok(types.len()) {
        let message = format!("row field count is {count}, expected {}", types.len());
        return Err(invalid(message));
    }
    let (mut at, mut row) = (2, Vec::with_capacity(types.len()));
    for ty in types {
        let Some(length) = int(bytes, at) else { return Ok(Record::Incomplete) };
        at += 4;
        if length == -1 {
            row.push(Datum::Null);
            continue;
        }
        let length = usize::try_from(length).map_err(|_| invalid("invalid field size"))?;
        let Some(value) = bytes.get(at..at + length) else { return Ok(Record::Incomplete) };
        row.push(from_binary(value, *ty)?);
        at += length;
    }
    Ok(Record::Row(row, at))
}

fn int(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes))
}

pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}
