//! `selkie smallbank`.

use std::process::ExitCode;

use clap::Args;
use selkie_tpcc::TpccError;
use selkie_tpcc::smallbank::Config;

use super::benchmark::{self, BenchmarkOptions};
use crate::support::exit;

/// Customers of a bank with a savings and a checking account each, in a pool of this process.
/// Workers on every compute node run the mix on all accounts, without pauses: Balance,
/// DepositChecking, TransactSavings, Amalgamate and WriteCheck 15 % each, SendPayment 25 %. A
/// withdrawal that the account does not cover is rolled back and counts as failed.
///
/// After the run all balances are read. Each balance is the loaded one plus the changes of
/// committed transactions. No savings account is overdrawn. The sum of all balances is the loaded
/// sum plus all deposits. Every row exists once.
///
/// SIGINT, SIGTERM or SIGHUP ends the mix early; the result is then checked. A second signal ends
/// the process.
///
/// Exit code 0: the run ended and every rule holds; 1: it failed, or a rule does not hold; 2: wrong
/// arguments, nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Customers, 2 to 100000000; each takes about 160 bytes of the pool, and 16 of this process
    /// for the check
    #[arg(long, value_name = "N", default_value_t = Config::default().accounts)]
    accounts: u32,
    /// Customers that most transactions go to, 1 to all of them [default: 4 % of them]
    #[arg(long, value_name = "N")]
    hot_accounts: Option<u32>,
    /// Share of the transactions that go to them, 0 to 1
    #[arg(long, value_name = "F", default_value_t = Config::default().hot_share, allow_negative_numbers = true)]
    hot_share: f64,
    #[command(flatten)]
    options: BenchmarkOptions,
}

impl Arguments {
    fn config(&self) -> Result<Config, TpccError> {
        Ok(Config {
            accounts: self.accounts,
            hot_accounts: self
                .hot_accounts
                .unwrap_or_else(|| Config::usual_hot_accounts(self.accounts)),
            hot_share: self.hot_share,
            setup: self.options.setup()?,
        })
    }
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    benchmark::check(arguments.config(), &arguments.options)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    benchmark::run(arguments.config(), &arguments.options, selkie_tpcc::smallbank::run)
}
