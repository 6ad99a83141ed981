//! `selkie bench`: what the network of a pool takes, measured.

#[cfg(feature = "verbs")]
mod measure;
#[cfg(feature = "verbs")]
mod perftest;
#[cfg(feature = "verbs")]
mod verbs;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::str::FromStr;

use clap::{Args, Subcommand};

use crate::support::exit;

/// Measures the network of a pool.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures an RDMA card: latency and rate of each verb, of misses and of hand-overs
    ///
    /// Without --listen and --connect both sides are on the card of this host, and the same work
    /// done by the library alone is measured beside it, and by perftest if that is installed.
    Verbs(VerbsArguments),
}

/// Options of `selkie bench verbs`.
#[derive(Args)]
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "checked, and then refused"))]
pub(crate) struct VerbsArguments {
    /// Rounds of each measurement, 100 to 10000000
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    rounds: u32,
    /// Bytes of a page: a multiple of 8, 8 to 65536
    #[arg(long, value_name = "BYTES", default_value_t = 2048)]
    page: usize,
    /// Serve memory to `--connect` of another host at this address, until it is ended
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Use the memory of `--listen` of another host, which says how it is called
    #[arg(long, value_name = "ADDR:PORT/KEY")]
    connect: Option<Served>,
    /// RDMA device, as `ibv_devices` shows it [default: the first that can be used]
    #[arg(long, value_name = "NAME")]
    rdma_device: Option<String>,
    /// Port of the RDMA device, from 1 on [default: the first that is active]
    #[arg(long, value_name = "PORT")]
    rdma_port: Option<u8>,
    /// Index of the port's address, as `ibv_devinfo -v` shows it [default: the one that reaches
    /// furthest]
    #[arg(long, value_name = "INDEX")]
    rdma_gid: Option<u8>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Memory that another host serves.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "as above"))]
pub(crate) struct Served {
    at: SocketAddr,
    key: u32,
}

impl FromStr for Served {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once('/').and_then(|(at, key)| {
            Some(Self { at: at.parse().ok()?, key: u32::from_str_radix(key, 16).ok()? })
        });
        parts.ok_or_else(|| "it is ADDR:PORT/KEY, as --listen prints it".to_owned())
    }
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    let Command::Verbs(VerbsArguments { rounds, page, .. }) = &arguments.command;
    if !(100..=10_000_000).contains(rounds) {
        return Err(exit::Refusal::new("rounds", &rounds.to_string(), "must be 100 to 10000000"));
    }
    if !(8..=65536).contains(page) || !page.is_multiple_of(8) {
        let allowed = "must be a multiple of 8, 8 to 65536";
        return Err(exit::Refusal::new("page", &page.to_string(), allowed));
    }
    Ok(())
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let Command::Verbs(arguments) = &arguments.command;
    run_verbs(arguments)
}

#[cfg(feature = "verbs")]
fn run_verbs(arguments: &VerbsArguments) -> ExitCode {
    match verbs::run(arguments) {
        Ok(report) => exit::print(&report, true),
        Err(error) => exit::fail(&error),
    }
}

#[cfg(not(feature = "verbs"))]
fn run_verbs(_arguments: &VerbsArguments) -> ExitCode {
    exit::fail(&selkie::shared::SharedPoolError::NoVerbs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_memory_is_named_as_it_is_printed() {
        let served: Served = "10.0.0.1:7000/a50003".parse().unwrap();
        assert_eq!((served.at.to_string().as_str(), served.key), ("10.0.0.1:7000", 0x00a5_0003));
        for bad in ["10.0.0.1:7000", "10.0.0.1/5", "10.0.0.1:7000/x", "/5", ""] {
            assert!(bad.parse::<Served>().is_err(), "{bad}");
        }
    }
}
