//! `selkie completions`.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::support::exit;

/// Prints what a shell takes to complete commands, options and values. For the shell that runs:
/// `source <(selkie completions bash)`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command, for the program of which this is the command line.
pub(crate) fn run<C: CommandFactory>(arguments: &Arguments) -> ExitCode {
    let mut command = C::command();
    let (name, mut script) = (command.get_name().to_owned(), Vec::new());
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    exit::print(&String::from_utf8_lossy(&script), true)
}
