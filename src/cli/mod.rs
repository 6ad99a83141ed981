//! Commands: one module each, and the progress they share.

mod figures;
mod memnode;
mod micro;
mod pool;
mod progress;
mod sim;
mod tpcc;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The exit code for wrong arguments, the same as clap's.
const USAGE: u8 = 2;

/// A multi-primary storage engine over disaggregated memory.
#[derive(Parser)]
#[command(name = "selkie", version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs TPC-C: loads, runs the standard mix, checks the result.
    Tpcc(Box<tpcc::Arguments>),
    /// Makes, shows and removes pools that several processes share.
    Pool(pool::Arguments),
    /// Lends memory to a pool that several processes share.
    Memnode(memnode::Arguments),
    /// Measures page accesses under a coherence protocol, in real or in virtual time.
    Micro(Box<micro::Arguments>),
    /// Measures the papers' experiments in virtual time: CSV, plots, and a page that compares.
    Figures(figures::Arguments),
    /// Runs whole clusters in virtual time from seeds, with faults, and checks what they did.
    Sim(sim::Arguments),
}

/// Parses the arguments and runs the command.
pub(crate) fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Tpcc(arguments) => tpcc::run(&arguments),
        Command::Pool(arguments) => pool::run(&arguments),
        Command::Memnode(arguments) => memnode::run(&arguments),
        Command::Figures(arguments) => figures::run(&arguments),
        Command::Micro(arguments) => micro::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
    }
}

/// Says on stderr why a command failed.
fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
