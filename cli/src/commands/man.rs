//! `selkie man`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::support::exit;

/// Writes a manual page of each command to a directory: `selkie.1`, `selkie-pool.1`,
/// `selkie-pool-create.1` and so on. `man DIR/selkie.1` shows one; in a directory `man1` of
/// `MANPATH` they are found by name.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The directory, which is made if it is not there; pages in it are replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Runs the command, for the program of which this is the command line.
pub(crate) fn run<C: CommandFactory>(arguments: &Arguments) -> ExitCode {
    let directory = &arguments.directory;
    let written = std::fs::create_dir_all(directory)
        .and_then(|()| clap_mangen::generate_to(C::command(), directory));
    match written {
        Ok(()) => {
            let first = directory.join("selkie.1");
            exit::print(&format!("`man {}` shows the first page\n", first.display()), true)
        }
        Err(error) => exit::fail(&format_args!("{}: {error}", directory.display())),
    }
}
