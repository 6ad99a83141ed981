//! `selkie figures`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use selkie_tpcc::{Progress, units};

use super::figure::{Figure, Settings};
use super::measure::{self, Cut, Outcome};
use super::page;
use super::point::Measured;
use crate::support::exit;
use crate::support::progress::Stderr;
use crate::support::stdout::tell;

/// Each figure is a sweep on a simulated network, or of drawn failures. In DIR there will be
/// NAME.csv and NAME.svg for each (those of coding have several, NAME-PART), and README.md, which
/// sets the ratios measured beside the published ones; what README.md says there of other figures
/// stays.
///
/// A signal, or a run that fails, ends it early: what was finished is written, and the page says
/// what is missing.
///
/// Exit code 0: everything was measured; 1: a run failed or a file could not be written; 2: wrong
/// arguments; 128 and the number of a signal: that has ended it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Figures to make: scalability, locality, skew, fairness, remote-cpu, gcl-size, ablation,
    /// tpcc, two-phase-commit, coding-sets, coding-latency, coding-failures [default: all]
    #[arg(value_name = "NAME", value_parser = figure)]
    names: Vec<Figure>,
    /// Where the files go; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Virtual milliseconds measured for each point, after as many to warm up; 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(1..=1000))]
    duration_ms: u64,
    /// Failures drawn for each point of coding-sets, 1 to 1000000000
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    trials: u64,
    /// Seed of all runs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Runs at a time, 1 to 1024 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

fn figure(name: &str) -> Result<Figure, String> {
    Figure::ALL.into_iter().find(|figure| figure.name() == name).ok_or_else(|| {
        let known: Vec<_> = Figure::ALL.iter().map(|figure| figure.name()).collect();
        format!("there is no such figure; there are {}", known.join(", "))
    })
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let figures =
        if arguments.names.is_empty() { Figure::ALL.to_vec() } else { arguments.names.clone() };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = arguments.threads.map_or(cores, usize::from);
    let duration = Duration::from_millis(arguments.duration_ms);
    let settings = Settings { duration, seed: arguments.seed, trials: arguments.trials };
    // A signal ends it with what it has.
    let progress = match Stderr::mind_signals() {
        Ok(progress) => progress,
        Err(error) => return exit::fail(&error),
    };
    // Before minutes of measuring.
    if let Err(error) = page::make_folder(&arguments.out) {
        return exit::fail(&error);
    }
    let Outcome { measured, planned, cut } = measure::all(&figures, settings, threads, &progress);
    let readme = arguments.out.join("README.md");
    if !measured.is_empty() {
        if let Err(error) = page::write(&arguments.out, &measured, &settings) {
            return exit::fail(&error);
        }
        tell!("{}", readme.display());
    }
    let Some(cut) = cut else { return ExitCode::SUCCESS };
    let finished: usize = measured.iter().map(|measured| measured.points.len()).sum();
    if finished == 0 {
        progress.note("no run was finished: nothing was written");
    } else {
        let of_runs = units::plural(planned as u64, "run");
        progress
            .note(&format!("{finished} of {of_runs} finished: written are {}", names(&measured)));
    }
    match cut {
        Cut::Interrupted(interrupted) => interrupted.end(),
        Cut::Failed(error) => exit::fail(&error),
    }
}

/// What was written of which figure.
fn names(measured: &[Measured]) -> String {
    let name = |measured: &Measured| {
        let (name, finished) = (measured.figure.name(), measured.points.len());
        match measured.is_whole() {
            true => name.to_owned(),
            false => format!("{name} (only {finished} of its {})", measured.planned),
        }
    };
    measured.iter().map(name).collect::<Vec<_>>().join(", ")
}
