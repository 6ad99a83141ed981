//! Commands: one module each, and the progress they share.

mod backup;
mod benchmark;
mod cert;
mod config;
mod durability;
mod figures;
mod log;
mod member;
mod memnode;
mod metrics;
mod micro;
mod network;
mod pool;
mod progress;
mod recover;
mod restore;
mod scenario;
mod sim;
mod smallbank;
mod tatp;
mod top;
mod tpcc;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use selkie::tpcc::TpccError;

/// The exit code for wrong arguments, the same as clap's.
const USAGE: u8 = 2;

/// A multi-primary storage engine over disaggregated memory.
#[derive(Parser)]
#[command(name = "selkie", version, about)]
struct Cli {
    /// TOML file with a section for each command, as [tpcc] or [pool.create], whose keys are the
    /// command's options without the dashes; options given here override it
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to log on stderr: off, error, warn, info, debug or trace, also for parts, as
    /// warn,selkie_engine=info
    #[arg(long, global = true, value_name = "FILTER", env = "SELKIE_LOG", default_value = "warn")]
    log: log::Filter,
    /// End with the process of this number, which has started this one
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs TPC-C: loads, runs the standard mix, checks the result.
    Tpcc(Box<tpcc::Arguments>),
    /// Runs SmallBank: loads, runs the mix, checks every balance.
    Smallbank(Box<smallbank::Arguments>),
    /// Runs TATP: loads, runs the mix, checks every row.
    Tatp(Box<tatp::Arguments>),
    /// Makes, shows and removes pools that several processes share.
    Pool(pool::Arguments),
    /// Writes what a shared pool holds to an object store, while its nodes go on.
    Backup(Box<backup::Arguments>),
    /// Puts a backup into a new shared pool.
    Restore(Box<restore::Arguments>),
    /// Makes the pages of a pool whose memory is lost from the logs of its compute nodes, in
    /// another pool.
    Recover(Box<recover::Arguments>),
    /// Lends memory to a pool that several processes share.
    Memnode(memnode::Arguments),
    /// Makes and shows certificates for pools over TCP.
    Cert(cert::Arguments),
    /// Shows what a pool that several processes share does.
    Top(top::Arguments),
    /// Measures page accesses under a coherence protocol, in real or in virtual time.
    Micro(Box<micro::Arguments>),
    /// Measures the papers' experiments in virtual time: CSV, plots, and a page that compares.
    Figures(figures::Arguments),
    /// Runs whole clusters in virtual time from seeds, with faults, and checks what they did.
    Sim(sim::Arguments),
    /// Runs pools of real processes under load, with faults, and judges what came of it.
    Scenario(scenario::Arguments),
    /// Checks configuration files.
    Config(config::Arguments),
}

/// An option's value that a command does not take.
struct Refusal {
    /// The option, without dashes.
    key: String,
    /// The option, its value and what is allowed.
    what: String,
}

impl Refusal {
    fn new(key: &str, value: &str, allowed: &str) -> Self {
        let what = if value.is_empty() {
            format!("{key}: {allowed}")
        } else {
            format!("{key} = {value}: {allowed}")
        };
        Self { key: key.to_owned(), what }
    }
}

impl Command {
    /// Looks for values out of range without starting anything. What only the run can know is left
    /// to it.
    fn check(&self) -> Result<(), Refusal> {
        match self {
            Command::Tpcc(arguments) => tpcc::check(arguments),
            Command::Smallbank(arguments) => smallbank::check(arguments),
            Command::Tatp(arguments) => tatp::check(arguments),
            Command::Pool(arguments) => pool::check(arguments),
            Command::Recover(arguments) => recover::check(arguments),
            Command::Backup(arguments) => backup::check(arguments),
            Command::Restore(arguments) => restore::check(arguments),
            Command::Top(arguments) => top::check(arguments),
            Command::Micro(arguments) => micro::check(arguments),
            Command::Memnode(arguments) => memnode::check(arguments),
            Command::Cert(arguments) => cert::check(arguments),
            Command::Sim(arguments) => sim::check(arguments),
            Command::Figures(_) | Command::Scenario(_) | Command::Config(_) => Ok(()),
        }
    }
}

/// Parses the arguments and runs the command.
pub(crate) fn main() -> ExitCode {
    let cli = match config::parse(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(USAGE);
        }
    };
    log::install(cli.log);
    if let Some(parent) = cli.parent
        && let Err(error) = end_with(parent)
    {
        return fail(&error);
    }
    match cli.command {
        Command::Tpcc(arguments) => tpcc::run(&arguments),
        Command::Smallbank(arguments) => smallbank::run(&arguments),
        Command::Tatp(arguments) => tatp::run(&arguments),
        Command::Pool(arguments) => pool::run(&arguments),
        Command::Recover(arguments) => recover::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Memnode(arguments) => memnode::run(&arguments),
        Command::Cert(arguments) => cert::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Micro(arguments) => micro::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Scenario(arguments) => scenario::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
    }
}

/// Has the system kill this process when its parent ends, which must be the one that is named.
fn end_with(parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let now = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    if now.is_some_and(|now| now.get().unsigned_abs() == parent) {
        return Ok(());
    }
    // It ended before the system knew.
    Err(std::io::Error::other("the process that started this one is gone"))
}

/// Names the option that a driver's configuration refuses.
fn refusal(error: TpccError) -> Refusal {
    match error {
        TpccError::Config { key, value, allowed } => Refusal::new(key, &value, &allowed),
        error => Refusal { key: String::new(), what: error.to_string() },
    }
}

/// Prints a report on stdout. The exit code says whether all that it tells of holds, if it can be
/// printed.
fn print(report: &str, holds: bool) -> ExitCode {
    if let Err(error) = std::io::stdout().write_all(report.as_bytes()) {
        return fail(&format!("stdout: {error}"));
    }
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Says on stderr what a command does not take.
fn refuse(refusal: &Refusal) -> ExitCode {
    eprintln!("error: {}", refusal.what);
    ExitCode::from(USAGE)
}

/// Says on stderr why a command failed.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Says on stderr why a driver failed; that it refused an option is said as of wrong arguments.
fn fail_driver(error: &TpccError) -> ExitCode {
    match error {
        TpccError::Config { key, value, allowed } => {
            eprintln!("error: --{key} {value}: {allowed}");
            ExitCode::from(USAGE)
        }
        error => fail(error),
    }
}
