//! `selkie config`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::support::config_file::{self, Checked};
use crate::support::exit;
use crate::support::stdout::tell;

/// Configuration files.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Subcommand)]
enum Subcommands {
    /// Prints `ok`, or the first mistake in a configuration file
    Check {
        /// The file
        file: PathBuf,
    },
}

/// Runs the command.
pub(crate) fn run<C: Checked>(arguments: &Arguments) -> ExitCode {
    let Subcommands::Check { file } = &arguments.command;
    match config_file::check::<C>(file) {
        Ok(()) => {
            tell!("ok");
            ExitCode::SUCCESS
        }
        Err(error) => exit::fail(&error),
    }
}
