//! The CSV format: values with a delimiter between them, in quotes where they have to be.

use super::line_end::{Found, LineEnd};
use super::{CopyFormat, Field, has};

/// What ends the record that begins at 0, and where; `None` if nothing does in these bytes. `from`
/// is where to look on, and `is_quoted` whether that is within quotes; both are moved.
pub(super) fn record_end(
    bytes: &[u8],
    format: &CopyFormat,
    (from, is_quoted): (&mut usize, &mut bool),
    ends: &mut LineEnd,
    is_end: bool,
) -> Option<(usize, Found)> {
    while let Some(byte) = bytes.get(*from) {
        let is_escape = *is_quoted && *byte == format.escape && format.escape != format.quote;
        match byte {
            _ if is_escape && *from + 1 >= bytes.len() => return None,
            _ if is_escape => *from += 1,
            byte if *byte == format.quote => *is_quoted = !*is_quoted,
            b'\n' | b'\r' if !*is_quoted => {
                let found = ends.find(bytes.get(*from..).unwrap_or_default(), is_end);
                return (found != Found::Open).then_some((*from, found));
            }
            _ => {}
        }
        *from += 1;
    }
    None
}

/// The values of a record; `None` if a quote in it is not closed.
pub(super) fn fields(record: &str, format: &CopyFormat) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    let (quote, escape) = (char::from(format.quote), char::from(format.escape));
    let delimiter = char::from(format.delimiter);
    let mut characters = record.chars().peekable();
    loop {
        let (mut value, mut was_quoted, mut is_quoted) = (String::new(), false, false);
        let is_last = loop {
            let Some(character) = characters.next() else { break true };
            if is_quoted {
                let is_escape = character == escape;
                if is_escape
                    && let Some(next) = characters.next_if(|next| *next == quote || *next == escape)
                {
                    value.push(next);
                } else if character == quote {
                    is_quoted = false;
                } else {
                    value.push(character);
                }
            } else if character == quote {
                (is_quoted, was_quoted) = (true, true);
            } else if character == delimiter {
                break false;
            } else {
                value.push(character);
            }
        };
        if is_quoted {
            return None;
        }
        let at = fields.len();
        let is_null = value == format.null
            && !has(&format.force_not_null, at)
            && (!was_quoted || has(&format.force_null, at));
        fields.push((!is_null).then_some(value));
        if is_last {
            return Some(fields);
        }
    }
}

/// Writes a value, which is alone in its row or not.
pub(super) fn write(
    value: &str,
    column: Option<usize>,
    is_alone: bool,
    format: &CopyFormat,
    out: &mut Vec<u8>,
) {
    let special = [format.delimiter, format.quote, b'\n', b'\r'];
    let needs_quotes = column.is_some_and(|at| has(&format.force_quote, at))
        || value == format.null
        || (is_alone && value == "\\.")
        || value.bytes().any(|byte| special.contains(&byte));
    if !needs_quotes {
        out.extend(value.bytes());
        return;
    }
    out.push(format.quote);
    for byte in value.bytes() {
        if byte == format.quote || byte == format.escape {
            out.push(format.escape);
        }
        out.push(byte);
    }
    out.push(format.quote);
}
