//! Sizes, counts and times as people read them.

use std::time::Duration;

/// `bytes` in the largest unit that leaves at least one of it, with at most four digits: `1.5 GiB`,
/// `1,022 MiB`.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{} B", count(bytes));
    }
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    // Not `1000.0`, which 999.96 would round to.
    let number = if value >= 999.95 { count(value.round() as u64) } else { format!("{value:.1}") };
    format!("{number} {unit}")
}

/// A size that is no less, as options take it: `133M`, `1060K`.
#[must_use]
pub fn as_option(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes >= 10 * MIB || bytes > 0 && bytes.is_multiple_of(MIB) {
        format!("{}M", bytes.div_ceil(MIB))
    } else {
        format!("{}K", bytes.div_ceil(1 << 10))
    }
}

/// `count` with its thousands apart: `1,234,567`.
#[must_use]
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of something, with their thousands apart: `1 slab`, `1,200 slabs`.
#[must_use]
pub fn plural(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", self::count(count))
}

/// A number of no fixed size, with at most four digits behind the first that is not 0, and its
/// thousands apart: `0.0123`, `1.5`, `20.42`, `20,423`.
#[must_use]
pub fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 999.95 => return sign(value) + &count(value.abs().round() as u64),
        size if size >= 99.995 => 1,
        size if size >= 9.9995 => 2,
        size if size >= 0.09995 => 3,
        _ => 4,
    };
    let text = format!("{value:.decimals$}");
    // Digits that say nothing.
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.strip_prefix("-0").filter(|rest| rest.is_empty()).map_or(text, |_| "0").to_owned()
}

/// A time in seconds: `0.25 s`, `2 s`, `1,200 s`.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{} s", figure(time.as_secs_f64()))
}

fn sign(value: f64) -> String {
    if value < 0.0 { "-".to_owned() } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_seconds() {
        let said = [250, 2_000, 1_234, 600_000, 1_200_000].map(|ms| {
            let time = Duration::from_millis(ms);
            seconds(time)
        });
        assert_eq!(said, ["0.25 s", "2 s", "1.234 s", "600 s", "1,200 s"]);
    }

    #[test]
    fn sizes() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1,023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 30), "3.0 GiB");
        assert_eq!(bytes(u64::MAX), "16,384 PiB");
        assert_eq!(bytes(1022 << 20), "1,022 MiB");
        assert_eq!(bytes((648 << 20) + (1 << 19)), "648.5 MiB");
        assert_eq!(bytes(1 << 46), "64.0 TiB");
        for (least, text) in
            [((132 << 20) + 1, "133M"), (133 << 20, "133M"), (1_085_440, "1060K"), (700, "1K")]
        {
            assert_eq!(as_option(least), text);
        }
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.00001, "0"),
            (0.0123, "0.0123"),
            (0.19, "0.19"),
            (1.5, "1.5"),
            (2.4849, "2.485"),
            (17.714, "17.71"),
            (999.94, "999.9"),
            (999.96, "1,000"),
            (20_423.4, "20,423"),
            (-1_234_567.0, "-1,234,567"),
            (-0.00001, "0"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn thousands() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(
            (plural(1, "slab"), plural(1_200, "slab")),
            ("1 slab".into(), "1,200 slabs".into())
        );
    }
}
