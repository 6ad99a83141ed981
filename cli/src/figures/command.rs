//! `selkie figures`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::figure::{Figure, Settings};
use super::{measure, page};
use crate::support::stdout::tell;

/// Each figure is a sweep on a simulated network, or of drawn failures. In DIR there will be
/// NAME.csv and NAME.svg for each (those of coding have several, NAME-PART), and README.md, which
/// sets the ratios measured beside the published ones; what README.md says there of other figures
/// stays.
///
/// Exit code 0: everything was measured; 1: a run failed or a file could not be written; 2: wrong
/// arguments.
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
    let make = || -> Result<(), Box<dyn std::error::Error>> {
        // Before minutes of measuring.
        page::make_folder(&arguments.out)?;
        let measured = measure::all(&figures, &settings, threads);
        let measured = measured.map_err(|error| -> Box<dyn std::error::Error> { error })?;
        Ok(page::write(&arguments.out, &measured, &settings)?)
    };
    match make() {
        Ok(()) => {
            tell!("{}", arguments.out.join("README.md").display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
