//! `selkie tatp`.

use std::process::ExitCode;

use clap::Args;
use selkie_tpcc::TpccError;
use selkie_tpcc::tatp::Config;

use super::benchmark::{self, BenchmarkOptions};
use crate::support::exit;

/// The home location register of a mobile network, in a pool of this process. Workers on every
/// compute node run the mix on all subscribers, without pauses: GetSubscriberData 35 %,
/// GetNewDestination 10 %, GetAccessData 35 %, UpdateSubscriberData 2 %, UpdateLocation 14 %,
/// InsertCallForwarding 2 %, DeleteCallForwarding 2 %. As the benchmark defines it, some fail,
/// because a row is missing or exists already. The qualified throughput counts the others.
///
/// After the run all tables are read, and the index of subscribers by number. Their rows are the
/// loaded ones; call_forwarding also has the rows that were inserted and not deleted since. Each
/// row has its parent row. All values are those that were loaded or committed last.
///
/// SIGINT, SIGTERM or SIGHUP ends the mix early; the result is then checked. A second signal ends
/// the process.
///
/// Exit code 0: the run ended and every rule holds; 1: it failed, or a rule does not hold; 2: wrong
/// arguments, nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Subscribers, 1 to 20000000; each takes about 1 KiB of the pool, and 144 bytes of this
    /// process for the check
    #[arg(long, value_name = "N", default_value_t = Config::default().subscribers)]
    subscribers: u32,
    #[command(flatten)]
    options: BenchmarkOptions,
}

impl Arguments {
    fn config(&self) -> Result<Config, TpccError> {
        Ok(Config { subscribers: self.subscribers, setup: self.options.setup()? })
    }
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    benchmark::check(arguments.config(), &arguments.options)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    benchmark::run(arguments.config(), &arguments.options, selkie_tpcc::tatp::run)
}
