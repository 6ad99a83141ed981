//! How a command ends: what it prints, and its exit code.

use std::process::ExitCode;

use selkie_tpcc::TpccError;

use super::stderr::complain;
use super::stdout;

/// The exit code for wrong arguments, the same as clap's.
pub(crate) const USAGE: u8 = 2;
/// The exit code of statements that were not all run, as nobody reads what they give any more: that
/// of a process that SIGPIPE has ended.
pub(crate) const UNREAD: u8 = 128 + 13;

/// An option's value that a command does not take.
pub(crate) struct Refusal {
    /// The option, without dashes.
    pub(crate) key: String,
    /// The option, its value and what is allowed.
    pub(crate) what: String,
}

impl Refusal {
    pub(crate) fn new(key: &str, value: &str, allowed: &str) -> Self {
        let what = if value.is_empty() {
            format!("{key}: {allowed}")
        } else {
            format!("{key} = {value}: {allowed}")
        };
        Self { key: key.to_owned(), what }
    }
}

/// Names the option that a driver's configuration refuses.
pub(crate) fn refusal(error: TpccError) -> Refusal {
    match error {
        TpccError::Config { key, value, allowed } => Refusal::new(key, &value, &allowed),
        error => Refusal { key: String::new(), what: error.to_string() },
    }
}

/// Prints a report on stdout. The exit code says whether all that it tells of holds, if it can be
/// printed.
pub(crate) fn print(report: &str, holds: bool) -> ExitCode {
    if let Err(error) = stdout::text_of(format_args!("{report}")) {
        return fail(&format!("stdout: {error}"));
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says on stderr what a command does not take.
pub(crate) fn refuse(refusal: &Refusal) -> ExitCode {
    complain!("error: {}", refusal.what);
    ExitCode::from(USAGE)
}

/// Says on stderr that an option does not have a value that is allowed.
pub(crate) fn refuse_option(key: &str, value: &str, allowed: &str) -> ExitCode {
    complain!("error: --{key} {value} is not allowed: {allowed}");
    ExitCode::from(USAGE)
}

/// Says on stderr why a command failed.
pub(crate) fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    complain!("error: {error}");
    ExitCode::FAILURE
}

/// Says on stderr why a driver failed; that it refused an option is said as of wrong arguments.
pub(crate) fn fail_driver(error: &TpccError) -> ExitCode {
    match error {
        TpccError::Config { key, value, allowed } => {
            let separator = if value.is_empty() { "" } else { " " };
            complain!("error: --{key}{separator}{value}: {allowed}");
            ExitCode::from(USAGE)
        }
        error => fail(error),
    }
}
