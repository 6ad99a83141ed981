//! Values as errors show them: with their types, and not all of a long one.

use crate::encoding::temporal::Interval;
use crate::encoding::value::Value;

/// Most characters of a text, or bytes of a byte string, that are shown.
const MOST_SHOWN: usize = 64;

/// A value with its type, and at most 64 characters or bytes of it. Dates, times and timestamps are
/// the numbers that they are stored as.
pub(crate) fn shown(value: Value<'_>) -> String {
    let text = match value {
        Value::Null => return value.type_name().to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::I16(value) => value.to_string(),
        Value::I32(value) | Value::Date(value) => value.to_string(),
        Value::I64(value) | Value::Time(value) | Value::Timestamp(value) => value.to_string(),
        Value::F32(value) => value.to_string(),
        Value::F64(value) => value.to_string(),
        Value::Interval(Interval { months, days, microseconds }) => {
            format!("{months} months {days} days {microseconds} us")
        }
        Value::Uuid(value) => shown_bytes(&value),
        Value::Decimal(value) => shortened(&value.to_string()),
        Value::Text(value) => shown_text(value),
        Value::Bytes(value) => shown_bytes(value),
        Value::Json(value) => match std::str::from_utf8(value) {
            Ok(value) => shown_text(value),
            Err(_) => shown_bytes(value),
        },
    };
    format!("{} {text}", value.type_name())
}

/// Bytes as hexadecimal digits, and how many there are if not all are shown.
pub(crate) fn shown_bytes(bytes: &[u8]) -> String {
    let shown = bytes.get(..MOST_SHOWN).unwrap_or(bytes);
    let digits: String = shown.iter().map(|byte| format!("{byte:02x}")).collect();
    match bytes.len() {
        0..=MOST_SHOWN => format!("0x{digits}"),
        all => format!("0x{digits}... ({all} bytes)"),
    }
}

fn shown_text(text: &str) -> String {
    match text.char_indices().nth(MOST_SHOWN) {
        None => format!("{text:?}"),
        Some((end, _)) => {
            format!("{:?}... ({} bytes)", text.get(..end).unwrap_or_default(), text.len())
        }
    }
}

fn shortened(digits: &str) -> String {
    match digits.get(..MOST_SHOWN) {
        Some(first) if digits.len() > MOST_SHOWN => {
            format!("{first}... ({} characters)", digits.len())
        }
        _ => digits.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::decimal::Decimal;

    #[test]
    fn values_are_shown_with_their_types_and_not_all_of_a_long_one() {
        let decimal: Decimal = "-1.50".parse().unwrap();
        let interval = Interval { months: 1, days: -2, microseconds: 3 };
        let cases = [
            (Value::Null, "NULL"),
            (Value::Bool(true), "Bool true"),
            (Value::I16(-1), "I16 -1"),
            (Value::Date(7), "Date 7"),
            (Value::Timestamp(9), "Timestamp 9"),
            (Value::F64(0.5), "F64 0.5"),
            (Value::Interval(interval), "Interval 1 months -2 days 3 us"),
            (Value::Decimal(decimal.as_ref()), "Decimal -1.50"),
            (Value::Text("a\"b\n"), "Text \"a\\\"b\\n\""),
            (Value::Bytes(&[0, 255]), "Bytes 0x00ff"),
            (Value::Bytes(&[]), "Bytes 0x"),
            (Value::Json(b"{}"), "Json \"{}\""),
            (Value::Json(&[0xff]), "Json 0xff"),
        ];
        for (value, expected) in cases {
            assert_eq!(shown(value), expected);
        }
        // Characters, of two bytes each.
        let (whole, long) = ("\u{e9}".repeat(64), "\u{e9}".repeat(65));
        assert_eq!(shown(Value::Text(&whole)), format!("Text \"{whole}\""));
        assert_eq!(shown(Value::Text(&long)), format!("Text \"{whole}\"... (130 bytes)"));
        assert_eq!(shown(Value::Bytes(&[7; 64])), format!("Bytes 0x{}", "07".repeat(64)));
        let bytes = format!("Bytes 0x{}... (65 bytes)", "07".repeat(64));
        assert_eq!(shown(Value::Bytes(&[7; 65])), bytes);
        let digits: Decimal = "1".repeat(65).parse().unwrap();
        let expected = format!("Decimal {}... (65 characters)", "1".repeat(64));
        assert_eq!(shown(Value::Decimal(digits.as_ref())), expected);
    }
}
