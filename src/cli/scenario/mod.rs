//! `selkie scenario`: pools of real processes under load, with faults, and a judgement of what came of it.
//!
//! ```text
//! file ---> plan ---> stage: memory nodes, load, drivers, faults ---> outcome ---> verdict ---> report
//!           pure             processes, namespaces                    as seen      pure (series)
//! ```
//! What is run is this program itself: the processes are those that people start by hand.

mod file;
mod namespaces;
mod outcome;
mod plan;
mod processes;
mod report;
mod series;
mod stage;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::USAGE;
use file::{File, FileError};
use plan::Plan;
use stage::Stage;

/// Runs pools of real processes under TPC-C as a file says, with faults, and judges what came of it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario. Exit code 0: all went as it must; 1: it did not, or the scenario could not be run; 2: the file
    /// is wrong, nothing was started
    Run {
        /// The scenario file
        file: PathBuf,
        /// Stretch or shrink it to this time, as 60s, faults with it
        #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
        duration: Option<Duration>,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
        /// Keep the directory with the output of all processes, and say where it is
        #[arg(long)]
        keep: bool,
    },
    /// Says `ok`, or the first mistake in a scenario file
    Check {
        /// The scenario file
        file: PathBuf,
    },
}

/// Why a scenario could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScenarioError {
    /// The system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// A process did something else than it was started for.
    #[error("{name}: {what}")]
    Process {
        /// The process.
        name: String,
        /// What it did.
        what: String,
    },
    /// The network could not be made or changed.
    #[error("{what}")]
    Network {
        /// What was tried, and why it failed.
        what: String,
    },
    /// It was told to stop.
    #[error("interrupted")]
    Interrupted,
}

impl ScenarioError {
    fn io(what: impl std::fmt::Display, source: std::io::Error) -> Self {
        Self::Io { what: what.to_string(), source }
    }
}

fn plan(file: &Path, duration: Option<Duration>) -> Result<Plan, FileError> {
    let read = File::read(file)?;
    let path = file.display().to_string();
    Plan::of(read, duration).map_err(|what| FileError::Impossible { path, what })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let refuse = |error: FileError| {
        eprintln!("error: {error}");
        ExitCode::from(USAGE)
    };
    match &arguments.command {
        Command::Check { file } => match plan(file, None) {
            Ok(_) => {
                println!("ok");
                ExitCode::SUCCESS
            }
            Err(error) => refuse(error),
        },
        Command::Run { file, duration, json, keep } => match plan(file, *duration) {
            Ok(plan) => play(&plan, *json, *keep),
            Err(error) => refuse(error),
        },
    }
}

fn play(plan: &Plan, json: bool, keep: bool) -> ExitCode {
    let outcome = match Stage::play(plan, keep) {
        Ok(outcome) => outcome,
        Err(error) => return super::fail(&error),
    };
    let verdict = verdict::judge(plan, &outcome);
    if json {
        println!("{}", report::json(plan, &outcome, &verdict));
    } else {
        print!("{}", report::text(plan, &outcome, &verdict));
    }
    for check in verdict.checks.iter().filter(|check| !check.holds) {
        eprintln!("error: {}: {}", check.what, check.found);
    }
    if verdict.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
