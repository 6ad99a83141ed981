//! The `selkie` command line.
//!
//! Results go to stdout, progress and errors to stderr. Exit codes: 0, all is well; 1, the run
//! failed or a consistency condition does not hold; 2, the arguments are wrong and nothing was
//! started.
#![forbid(unsafe_code)]
// They panic where nobody reads any more: `support` has macros that do not.
#![warn(clippy::print_stderr, clippy::print_stdout)]

mod command_line;
mod commands;
mod demo;
mod doctor;
mod figures;
mod options;
mod scenario;
mod shell;
mod support;
mod top;
mod wire;

use std::process::ExitCode;

fn main() -> ExitCode {
    command_line::main()
}
