//! Sizes, counts and times as people read them: those of all commands, and seconds of reports.

pub use selkie_pool::units::{bytes, count, figure, plural, seconds};

/// To a tenth: more digits would not be true.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Seconds to a tenth, or to a tenth of a millisecond if there is less than one.
pub(crate) fn precise(seconds: f64) -> String {
    if seconds < 1.0 { format!("{seconds:.4}") } else { format!("{seconds:.1}") }
}
