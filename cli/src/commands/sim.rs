//! `selkie sim`.

use std::io::{BufWriter, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::Args;
use selkie::pool::Coding;
use selkie::txn::Protocol;
use selkie_sim::{Case, Envelope, Scenario, sweep};
use selkie_tpcc::{Progress, units};

use crate::support::exit;
use crate::support::progress::Stderr;
use crate::support::stderr::complain;
use crate::support::stdout::tell;

/// A seed decides everything: the size of the cluster, what its clients do, what goes wrong and
/// when. The same seed gives the same run.
///
/// Exit code 0: every check passed; 1: a check failed, and the command that replays it is printed;
/// 2: the arguments are wrong.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["seed", "seeds"]))]
pub(crate) struct Arguments {
    /// Replay one seed, with a log of every event on stdout
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run the seeds from A to B - 1; stop at the first failure
    #[arg(long, value_name = "A..B")]
    seeds: Option<Seeds>,
    /// What the clients do: counter, bank, history, tree, tpcc, ring, crash, memnode-loss,
    /// tpcc-loss, corruption, straggler or slab-eviction [default: chosen by each seed]
    #[arg(long, value_name = "NAME")]
    scenario: Option<Scenario>,
    /// Coding of pages, as for `selkie pool create`; ring uses no pool, and the last five
    /// take no `plain` [default: plain; of crash and the last five, chosen by each seed]
    #[arg(long, value_name = "K+R")]
    coding: Option<Coding>,
    /// Concurrency control: 2pl, to, occ or snapshot. Only history and tpcc take it
    /// [default: chosen by each seed, which may mix 2pl and occ in history]
    #[arg(long, value_name = "NAME")]
    protocol: Option<Protocol>,
    /// How much may go wrong: gentle, what no node takes for a death, and deaths; or wide. Then
    /// nodes have leases, and links, nodes, clocks and the control plane fail for 0.1 to 5 leases.
    /// Only counter, bank, history, tree and crash have more in the wide one
    #[arg(long, value_name = "NAME", default_value_t = Envelope::Wide)]
    envelope: Envelope,
    /// Threads of a sweep, 1 to 1024 [default: one for each core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// A range of seeds.
#[derive(Clone, Debug)]
struct Seeds(Range<u64>);

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            part.parse().map_err(|_| format!("{part:?} is no number from 0 to {}", u64::MAX))
        };
        let (start, end) = text.split_once("..").ok_or("a range is written A..B, as in 0..1000")?;
        let (start, end): (u64, u64) = (number(start)?, number(end)?);
        if start >= end {
            return Err(format!("the range is empty: {start} must be less than {end}"));
        }
        Ok(Self(start..end))
    }
}

impl Arguments {
    /// What is run, whatever the seed; `None` if the seed chooses it.
    fn case(&self) -> Result<Option<Case>, String> {
        let Some(scenario) = self.scenario else { return Ok(None) };
        let mut case = Case::of(scenario, 0).within(self.envelope);
        if let Some(coding) = self.coding {
            case = case.coded(coding).map_err(|error| error.to_string())?;
        }
        if let Some(protocol) = self.protocol {
            case = case.protocolled(protocol).map_err(|error| error.to_string())?;
        }
        Ok(Some(case))
    }
}

/// Looks for values that do not go together.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    if arguments.scenario.is_some() {
        return Ok(());
    }
    let allowed = "together with --scenario";
    let refused = |option: &'static str, value: &dyn std::fmt::Display| {
        Err(exit::Refusal::new(option, &value.to_string(), allowed))
    };
    match (arguments.coding, arguments.protocol) {
        (Some(coding), _) => refused("coding", &coding),
        (None, Some(protocol)) => refused("protocol", &protocol),
        (None, None) => Ok(()),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let case = match arguments.case() {
        Ok(case) => case,
        Err(error) => {
            complain!("error: {error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let case_of = |seed: u64| {
        let chosen = || Case::of(Scenario::of_seed(seed), seed).within(arguments.envelope);
        case.map_or_else(chosen, |case| case.with_seed(seed))
    };
    match (arguments.seed, &arguments.seeds) {
        (Some(seed), _) => replay(case_of(seed)),
        (None, Some(Seeds(seeds))) => run_all(seeds.clone(), &case_of, arguments.threads),
        (None, None) => ExitCode::from(exit::USAGE),
    }
}

fn replay(case: Case) -> ExitCode {
    let Case { scenario, seed, .. } = case;
    let mut out = BufWriter::new(std::io::stdout());
    // A reader that has seen enough is no reason to stop: the verdict is still wanted.
    let log = Box::new(move |line: &str| drop(writeln!(out, "{line}")));
    match selkie_sim::run(case, Some(log)) {
        Ok(summary) => {
            complain!("coding {}, plan: {}", case.coding(), summary.plan);
            complain!(
                "scenario {scenario}, seed {seed}: ok, {} in {} of virtual time, {} gave up, \
                 trace {:016x}",
                units::plural(summary.operations, "operation"),
                units::seconds(summary.virtual_time),
                units::plural(summary.gave_up, "client"),
                summary.trace_hash
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            complain!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_all(
    seeds: Range<u64>,
    case_of: &(dyn Fn(u64) -> Case + Sync),
    threads: Option<u16>,
) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let threads = threads.map_or(cores, usize::from);
    let progress = Stderr::new();
    let told = AtomicU64::new(0);
    progress.begin("seeds", seeds.end - seeds.start);
    let started = Instant::now();
    let result = sweep(seeds.clone(), case_of, threads, &|runs| {
        let before = told.fetch_max(runs, Ordering::Relaxed);
        progress.advance(runs.saturating_sub(before));
    });
    progress.end();
    match result {
        Ok(summary) => {
            tell!(
                "{} ok, seeds {}..{}: {}, {} gave up because a node was lost, traces {:016x}, \
                 {:.1} s",
                units::plural(summary.runs, "run"),
                seeds.start,
                seeds.end,
                units::plural(summary.operations, "operation"),
                units::plural(summary.gave_up, "client"),
                summary.trace_hash,
                started.elapsed().as_secs_f64()
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            complain!("{failure}");
            ExitCode::FAILURE
        }
    }
}
