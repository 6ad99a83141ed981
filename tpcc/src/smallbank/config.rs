//! What to run.

use std::ops::Range;

use serde_json::{Value, json};

use super::check::{self, Ledger};
use super::input::Inputs;
use super::kind::Kind;
use super::rows;
use super::schema::Tables;
use super::transactions::Teller;
use crate::benchmark::{Benchmark, Findings, Place};
use crate::cluster::{Node, TableSet};
use crate::error::TpccError;
use crate::random::Random;
use crate::run::Terminal;
use crate::setup::{Setup, Shape, refused, within};
use crate::units::count;

/// Most accounts.
pub const MAX_ACCOUNTS: u32 = 100_000_000;

/// Accounts that are hot if nothing is said, in percent.
const HOT_PERCENT: u32 = 4;
/// Bytes of pages that a customer's three rows take, about, measured after loads.
const ACCOUNT_BYTES: u64 = 160;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Customers, each with a savings and a checking account.
    pub accounts: u32,
    /// Those of them that most transactions go to.
    pub hot_accounts: u32,
    /// Share of the transactions that go to them, 0..=1.
    pub hot_share: f64,
    /// Nodes, workers and sizes.
    pub setup: Setup,
}

impl Default for Config {
    /// 100,000 accounts, of which 4,000 have 90 % of the transactions.
    fn default() -> Self {
        let accounts = 100_000;
        let hot_accounts = Self::usual_hot_accounts(accounts);
        Self { accounts, hot_accounts, hot_share: 0.9, setup: Setup::default() }
    }
}

impl Config {
    /// How many of so many accounts are hot if nothing is said: 4 %, one at least.
    #[must_use]
    pub fn usual_hot_accounts(accounts: u32) -> u32 {
        (accounts / 100 * HOT_PERCENT + accounts % 100 * HOT_PERCENT / 100).max(1)
    }
}

impl Benchmark for Config {
    type Kind = Kind;
    type Tables = Tables;
    type Ledger = Ledger;

    const TITLE: &'static str = "SmallBank";
    const RATE: &'static str = "not failed, a second";

    fn validate(&self) -> Result<(), TpccError> {
        // Some transactions take two.
        within("accounts", self.accounts.into(), 2, MAX_ACCOUNTS.into())?;
        within("hot-accounts", self.hot_accounts.into(), 1, self.accounts.into())?;
        if !(0.0..=1.0).contains(&self.hot_share) {
            return Err(refused("hot-share", self.hot_share, "must be 0 to 1".to_owned()));
        }
        self.setup.validate(Self::TITLE, &Tables::schemas())
    }

    fn shape(&self) -> Shape {
        let database_bytes = u64::from(self.accounts) * ACCOUNT_BYTES;
        Shape { setup: self.setup.clone(), database_bytes, growth_bytes: 0, divided: false }
    }

    fn keys(&self) -> i32 {
        self.accounts.cast_signed()
    }

    fn accesses(kind: Kind) -> u32 {
        kind.accesses()
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.accounts)
    }

    async fn load(&self, node: &Node<Tables>, keys: Range<i32>) -> Result<u64, TpccError> {
        rows::insert(node, self.setup.seed, keys).await
    }

    fn terminal<'a>(
        &'a self,
        place: Place<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<Kind = Kind> + 'a, TpccError> {
        let inputs = Inputs::new(self, random);
        Ok(Teller { place, inputs })
    }

    async fn check(
        &self,
        node: &Node<Tables>,
        ledger: &Ledger,
        keys: Range<i32>,
    ) -> Result<Findings, TpccError> {
        check::check(self, node, ledger, keys).await
    }

    fn judge(&self, ledger: &Ledger, findings: &mut Findings) {
        check::judge(ledger, findings);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let hot = format!(
            "{} of them hot, with {:.0} % of the transactions",
            count(self.hot_accounts.into()),
            100.0 * self.hot_share
        );
        vec![("accounts", format!("{}, {hot}", count(self.accounts.into())))]
    }

    fn settings_to_json(&self) -> Value {
        json!({
            "accounts": self.accounts,
            "hot_accounts": self.hot_accounts,
            "hot_share": self.hot_share,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use selkie_fabric::sim::CostModel;

    use super::*;
    use crate::network::Network;

    #[test]
    fn four_in_a_hundred_accounts_are_hot() {
        let hot = [2, 26, 1_000, 100_000, MAX_ACCOUNTS].map(Config::usual_hot_accounts);
        assert_eq!(hot, [1, 1, 40, 4_000, 4_000_000]);
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        Config::default().validate().unwrap();
        Config::default().shape().pool().validate().unwrap();
        let refused = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert_eq!(refused(|c| c.accounts = 1), "accounts = 1: must be 2 to 100000000");
        assert_eq!(refused(|c| c.hot_accounts = 0), "hot-accounts = 0: must be 1 to 100000");
        assert_eq!(
            refused(|c| c.hot_accounts = 100_001),
            "hot-accounts = 100001: must be 1 to 100000"
        );
        assert_eq!(refused(|c| c.hot_share = 1.5), "hot-share = 1.5: must be 0 to 1");
        assert!(refused(|c| c.hot_share = f64::NAN).starts_with("hot-share = NaN"));
        assert_eq!(refused(|c| c.setup.workers = 0), "workers = 0: must be 1 to 1024");
        let duration = refused(|c| {
            c.setup.network = Network::Simulated(CostModel::PAPER);
            c.setup.duration = Duration::from_secs(3_601);
        });
        let allowed = "must be above 0 and at most 3600 seconds of virtual time";
        assert_eq!(duration, format!("duration = 3601: {allowed}"));
        let gcl = refused(|c| c.setup.gcl_bytes = 512);
        assert!(gcl.contains("for SmallBank: an entry of table account"), "{gcl}");
    }
}
