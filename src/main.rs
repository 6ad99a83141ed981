//! The `selkie` command line.
//!
//! Results go to stdout, progress and errors to stderr. Exit codes: 0, all is well; 1, the run
//! failed or a consistency condition does not hold; 2, the arguments are wrong and nothing was
//! started.
#![forbid(unsafe_code)]

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
