//! Lines on stdout. Their reader may have seen enough, as `head` has: that is no error, and no
//! reason to panic, as `println!` does.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write};

use super::stderr::complain;

/// Writes a line to stdout, as `println!`.
macro_rules! tell {
    ($($text:tt)*) => { $crate::support::stdout::line(format_args!($($text)*)) };
}
pub(crate) use tell;

/// Writes a line.
pub(crate) fn line(text: Arguments<'_>) {
    if let Err(error) = text_of(format_args!("{text}\n")) {
        complain!("error: stdout: {error}");
    }
}

/// Writes text as it is, unless no process reads it any more.
///
/// # Errors
/// What the system reports.
pub(crate) fn text_of(text: Arguments<'_>) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    unless_unread(stdout.write_fmt(text).and_then(|()| stdout.flush()))
}

fn unless_unread(written: std::io::Result<()>) -> std::io::Result<()> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
