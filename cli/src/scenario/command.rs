//! What `selkie scenario` is told to do.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::error::ScenarioError;
use super::file::{FileError, ScenarioFile, Span};
use super::plan::Plan;
use super::processes::OutputDirectory;
use super::random::{self, RandomArguments};
use super::runner::{ScenarioRun, say};
use super::{report, verdict};
use crate::support::exit::{USAGE, fail, print};
use crate::support::stderr::complain;

/// Runs pools of real processes under TPC-C as a file says, with faults, and judges what came of
/// it.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs a scenario. Exit code 0: all went as it must; 1: it did not, or the scenario could not
    /// be run; 2: the file is wrong, nothing was started; 128 and the number of a signal: that has
    /// ended it
    Run {
        /// The scenario file
        file: PathBuf,
        /// Stretch or shrink it to this time, as 60s, faults with it
        #[arg(long, value_name = "TIME")]
        duration: Option<Span>,
        /// Print one JSON object instead of tables
        #[arg(long)]
        json: bool,
        /// Keep the directory with the output of all processes, and say where it is, also if all
        /// went as it must
        #[arg(long)]
        keep: bool,
    },
    /// Runs scenarios that are drawn at random from a seed: over which fabric, with which coding
    /// and durability, and which process is killed, stopped or cut off when and for how long. In
    /// all of them nothing that was acknowledged may be missing, processes end well or with an
    /// error that names what happened, and no driver is stuck for longer than three leases after a
    /// fault is over. Exit code 0: all went as it must; 1: one did not, or could not be run
    Random {
        #[command(flatten)]
        random: RandomArguments,
    },
    /// Says `ok`, or the first mistake in a scenario file
    Check {
        /// The scenario file
        file: PathBuf,
    },
}

fn plan(file: &Path, duration: Option<Duration>) -> Result<Plan, FileError> {
    let read = ScenarioFile::read(file)?;
    let path = file.display().to_string();
    Plan::of(read, duration).map_err(|what| FileError::Impossible { path, what })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let refuse = |error: FileError| {
        complain!("error: {error}");
        ExitCode::from(USAGE)
    };
    match &arguments.command {
        Command::Random { random } => random::run(random),
        Command::Check { file } => match plan(file, None) {
            Ok(_) => print("ok\n", true),
            Err(error) => refuse(error),
        },
        Command::Run { file, duration, json, keep } => {
            match plan(file, duration.map(|span| span.0)) {
                Ok(plan) => play(&plan, *json, *keep),
                Err(error) => refuse(error),
            }
        }
    }
}

fn play(plan: &Plan, json: bool, keep: bool) -> ExitCode {
    let mut output = match OutputDirectory::make(&plan.file.name) {
        Ok(output) => output,
        Err(error) => return fail(&error),
    };
    let kept = |output: &mut OutputDirectory| {
        output.keep();
        say(&format!("the output of all processes is in {}", output.directory().display()));
    };
    if keep {
        kept(&mut output);
    }
    let outcome = match ScenarioRun::play(plan, &output) {
        Ok(outcome) => outcome,
        Err(error) => {
            if !keep && !matches!(error, ScenarioError::Interrupted(_)) {
                kept(&mut output);
            }
            return error.fail();
        }
    };
    let verdict = verdict::judge(plan, &outcome);
    let text = if json {
        format!("{}\n", report::json(plan, &outcome, &verdict))
    } else {
        report::text(plan, &outcome, &verdict)
    };
    for check in verdict.checks.iter().filter(|check| !check.holds) {
        say(&format!("error: {}: {}", check.what, check.found));
    }
    if !keep && !verdict.holds() {
        kept(&mut output);
    }
    print(&text, verdict.holds())
}
