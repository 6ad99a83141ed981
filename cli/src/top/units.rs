//! Figures as people read them; a dash for what is not known.

use selkie_tpcc::units;

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

pub(crate) fn count(value: u64) -> String {
    units::count(value)
}

/// Per second: whole numbers, small ones with a digit more.
pub(crate) fn rate(value: Option<f64>) -> String {
    or_dash(value.map(|value| {
        if value > 0.0 && value < 10.0 {
            format!("{value:.1}")
        } else {
            units::count(value.round() as u64)
        }
    }))
}

pub(crate) fn part(value: Option<f64>) -> String {
    or_dash(value.map(|value| format!("{:.1} %", 100.0 * value)))
}

pub(crate) fn size(value: Option<u64>) -> String {
    or_dash(value.map(units::bytes))
}

/// Time since the last beat, and the lease.
pub(crate) fn age(silent_s: Option<f64>, lease_s: f64) -> String {
    or_dash(silent_s.map(|silent| format!("{silent:.1}/{lease_s} s")))
}
