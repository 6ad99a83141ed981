//! Lines on stderr. Its reader may be gone, with a terminal that was closed or a pipe that has
//! ended: that is no reason to panic, as `eprintln!` does, and nothing is said then.

use std::fmt::Arguments;
use std::io::Write;

/// Writes a line to stderr, as `eprintln!`.
macro_rules! complain {
    ($($text:tt)*) => { $crate::support::stderr::line(format_args!($($text)*)) };
}
pub(crate) use complain;

/// Writes a line as a whole: other processes write to the same terminal.
pub(crate) fn line(text: Arguments<'_>) {
    write(&format!("{text}\n"));
}

/// Writes text as it is.
pub(crate) fn write(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}
