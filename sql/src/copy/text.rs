//! The text format: a line a row, with a delimiter between values and escapes by backslash.

use super::line_end::{Found, LineEnd};
use super::{CopyFormat, Field};
use crate::error::{SqlError, SqlResult, SqlState};

/// What ends the record that begins at 0, and where; `None` if nothing does in these bytes. `from`
/// is where to look on, and is moved.
pub(super) fn record_end(
    bytes: &[u8],
    from: &mut usize,
    ends: &mut LineEnd,
    is_end: bool,
) -> Option<(usize, Found)> {
    while let Some(byte) = bytes.get(*from) {
        match byte {
            // The next byte is part of it, if it is there.
            b'\\' if *from + 1 < bytes.len() => *from += 2,
            b'\\' => return None,
            b'\n' | b'\r' => {
                let found = ends.find(bytes.get(*from..).unwrap_or_default(), is_end);
                return (found != Found::Open).then_some((*from, found));
            }
            _ => *from += 1,
        }
    }
    None
}

/// The values of a record.
pub(super) fn fields(record: &str, format: &CopyFormat) -> SqlResult<Vec<Field>> {
    let mut fields = Vec::new();
    let mut rest = record;
    loop {
        let end = field_end(rest, format.delimiter);
        let (raw, behind) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, ""));
        fields.push(if raw == format.null { None } else { Some(unescaped(raw)?) });
        match (end, behind.get(1..)) {
            (Some(_), Some(next)) => rest = next,
            _ => return Ok(fields),
        }
    }
}

/// Where the next delimiter is that no backslash stands before.
fn field_end(text: &str, delimiter: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if *byte == delimiter => return Some(at),
            _ => at += 1,
        }
    }
    None
}

fn unescaped(raw: &str) -> SqlResult<String> {
    if !raw.contains('\\') {
        return Ok(raw.to_owned());
    }
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes().iter().copied().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        // One at the end is itself.
        let Some(escaped) = rest.next() else {
            bytes.push(byte);
            break;
        };
        bytes.push(match escaped {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            b'0'..=b'7' => {
                let mut value = u32::from(escaped - b'0');
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(|digit| matches!(digit, b'0'..=b'7')) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                // As PostgreSQL: the lowest eight bits.
                (value & 0xff) as u8
            }
            b'x' if rest.peek().is_some_and(u8::is_ascii_hexdigit) => {
                let mut value = 0;
                for _ in 0..2 {
                    let Some(digit) = rest.next_if(u8::is_ascii_hexdigit) else { break };
                    value = value * 16 + char::from(digit).to_digit(16).unwrap_or_default();
                }
                (value & 0xff) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| {
        let message = "invalid byte sequence for encoding \"UTF8\"";
        SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
    })
}

/// Writes a value.
pub(super) fn write(value: &str, format: &CopyFormat, out: &mut Vec<u8>) {
    for byte in value.bytes() {
        let escaped = match byte {
            0x08 => b'b',
            0x0c => b'f',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0x0b => b'v',
            b'\\' => b'\\',
            byte if byte == format.delimiter => byte,
            byte => {
                out.push(byte);
                continue;
            }
        };
        out.extend([b'\\', escaped]);
    }
}
