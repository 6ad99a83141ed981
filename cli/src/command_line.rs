//! The command line: its commands, and the options of all of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    backup, bench, cert, completions, config, man, memnode, micro, pool, recover, restore, server,
    sim, smallbank, sql, tatp, tpcc, ycsb,
};
use crate::support::config_file::{self, Checked};
use crate::support::exit::{self, Refusal};
use crate::support::stderr::complain;
use crate::support::{log, signals};
use crate::{demo, doctor, figures, scenario, top};

/// A multi-primary storage engine over disaggregated memory.
#[derive(Parser)]
#[command(name = "selkie", version, about)]
struct Cli {
    /// TOML file with a section for each command, as [tpcc] or [pool.create], whose keys are the
    /// command's options without the dashes; options given here override it
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What to log on stderr: off, error, warn, info, debug or trace, also for parts, as
    /// warn,selkie_engine=info [default: warn; of sim, whose nodes mean to fail: off]
    #[arg(long, global = true, value_name = "FILTER", env = "SELKIE_LOG")]
    log: Option<log::Filter>,
    /// End when the process with this number ends, which started this one
    #[arg(long, global = true, hide = true, value_name = "PID")]
    parent: Option<u32>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Shows what a pool is: starts one, kills a memory node of it, heals it, finds every commit.
    Demo(demo::Arguments),
    /// Runs TPC-C: loads, runs the standard mix, checks the result.
    Tpcc(Box<tpcc::Arguments>),
    /// Runs SmallBank: loads, runs the mix, checks every balance.
    Smallbank(Box<smallbank::Arguments>),
    /// Runs TATP: loads, runs the mix, checks every row.
    Tatp(Box<tatp::Arguments>),
    /// Runs YCSB: loads, runs a core workload, checks every record.
    Ycsb(Box<ycsb::Arguments>),
    /// Runs SQL on the database of a pool.
    Sql(sql::Arguments),
    /// Serves PostgreSQL clients from the database of a pool.
    Server(server::Arguments),
    /// Makes, shows and removes pools that several processes share.
    Pool(pool::Arguments),
    /// Writes a snapshot of a shared pool to an object store, while its nodes keep working.
    Backup(Box<backup::Arguments>),
    /// Puts a backup into a new shared pool.
    Restore(Box<restore::Arguments>),
    /// Recovers a pool whose memory is lost from the logs of its compute nodes, in another pool.
    Recover(Box<recover::Arguments>),
    /// Lends memory to a pool that several processes share.
    Memnode(memnode::Arguments),
    /// Makes and shows certificates for pools over TCP.
    Cert(cert::Arguments),
    /// Shows the nodes of a shared pool and their work.
    Top(top::Arguments),
    /// Measures page accesses under a coherence protocol, in real or in virtual time.
    Micro(Box<micro::Arguments>),
    /// Measures the network of a pool: an RDMA card, verb by verb.
    Bench(bench::Arguments),
    /// Measures the papers' experiments in virtual time: CSV, plots, and a page that compares.
    Figures(figures::Arguments),
    /// Runs whole clusters in virtual time from seeds, with faults, and checks what they did.
    Sim(sim::Arguments),
    /// Runs pools of real processes under load, with faults, and judges the outcome.
    Scenario(scenario::Arguments),
    /// Checks configuration files.
    Config(config::Arguments),
    /// Looks whether this host is fit for pools, and says what to do where it is not.
    Doctor(doctor::Arguments),
    /// Prints what a shell takes to complete commands, options and values.
    Completions(completions::Arguments),
    /// Writes a manual page of each command.
    Man(man::Arguments),
}

impl Checked for Cli {
    fn check(&self) -> Result<(), Refusal> {
        self.command.check()
    }
}

impl Command {
    /// What is logged if no filter is given.
    fn usual_log(&self) -> log::Filter {
        match self {
            Command::Sim(_) => log::Filter::off(),
            _ => log::Filter::default(),
        }
    }

    /// Looks for values out of range without starting anything. What only the run can know is left
    /// to it.
    fn check(&self) -> Result<(), Refusal> {
        match self {
            Command::Demo(arguments) => demo::check(arguments),
            Command::Tpcc(arguments) => tpcc::check(arguments),
            Command::Smallbank(arguments) => smallbank::check(arguments),
            Command::Tatp(arguments) => tatp::check(arguments),
            Command::Ycsb(arguments) => ycsb::check(arguments),
            Command::Pool(arguments) => pool::check(arguments),
            Command::Recover(arguments) => recover::check(arguments),
            Command::Backup(arguments) => backup::check(arguments),
            Command::Restore(arguments) => restore::check(arguments),
            Command::Top(arguments) => top::check(arguments),
            Command::Micro(arguments) => micro::check(arguments),
            Command::Bench(arguments) => bench::check(arguments),
            Command::Server(arguments) => server::check(arguments),
            Command::Memnode(arguments) => memnode::check(arguments),
            Command::Cert(arguments) => cert::check(arguments),
            Command::Sim(arguments) => sim::check(arguments),
            Command::Figures(_)
            | Command::Sql(_)
            | Command::Scenario(_)
            | Command::Config(_)
            | Command::Doctor(_)
            | Command::Completions(_)
            | Command::Man(_) => Ok(()),
        }
    }
}

impl Command {
    /// Whether it gives up what it does and leaves when a signal asks it to end. The others have
    /// nothing to leave.
    fn minds_signals(&self) -> bool {
        match self {
            Command::Tpcc(_) | Command::Smallbank(_) | Command::Tatp(_) | Command::Ycsb(_) => true,
            Command::Backup(_) | Command::Restore(_) | Command::Recover(_) => true,
            Command::Figures(_) | Command::Server(_) | Command::Sql(_) => true,
            Command::Memnode(_) | Command::Top(_) | Command::Scenario(_) | Command::Demo(_) => true,
            Command::Pool(arguments) => arguments.minds_signals(),
            Command::Cert(_)
            | Command::Micro(_)
            | Command::Bench(_)
            | Command::Sim(_)
            | Command::Doctor(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Config(_) => false,
        }
    }
}

/// Parses the arguments and runs the command.
pub(crate) fn main() -> ExitCode {
    let cli = match config_file::parse::<Cli>(std::env::args_os().collect()) {
        Ok(cli) => cli,
        Err(error) => {
            complain!("error: {error}");
            return ExitCode::from(exit::USAGE);
        }
    };
    let is_usual = cli.log.is_none();
    log::install(cli.log.unwrap_or_else(|| cli.command.usual_log()), is_usual);
    if let Some(parent) = cli.parent
        && let Err(error) = end_with(parent)
    {
        return exit::fail(&error);
    }
    if !cli.command.minds_signals()
        && let Err(error) = signals::end_at_first()
    {
        return exit::fail(&error);
    }
    match cli.command {
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Tpcc(arguments) => tpcc::run(&arguments),
        Command::Smallbank(arguments) => smallbank::run(&arguments),
        Command::Tatp(arguments) => tatp::run(&arguments),
        Command::Ycsb(arguments) => ycsb::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Pool(arguments) => pool::run(&arguments),
        Command::Recover(arguments) => recover::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Memnode(arguments) => memnode::run(&arguments),
        Command::Cert(arguments) => cert::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Micro(arguments) => micro::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Scenario(arguments) => scenario::run(&arguments),
        Command::Config(arguments) => config::run::<Cli>(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions(arguments) => completions::run::<Cli>(&arguments),
        Command::Man(arguments) => man::run::<Cli>(&arguments),
    }
}

/// Has the system kill this process when its parent ends, which must be the one that is named.
fn end_with(parent: u32) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let now = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    if now.is_some_and(|now| now.get().unsigned_abs() == parent) {
        return Ok(());
    }
    // The parent ended before the signal was set.
    Err(std::io::Error::other("the process that started this one is gone"))
}

#[cfg(test)]
mod documented;
