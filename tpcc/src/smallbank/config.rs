//! What to run.

use super::schema::Tables;
use crate::cluster::bounds::{refused, within};
use crate::cluster::{ClusterShape, Setup, TableSet};
use crate::error::TpccError;

/// The benchmark's name.
pub(super) const TITLE: &str = "SmallBank";

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

    /// Customers, by numbers from 1.
    pub(super) fn customers(&self) -> i32 {
        self.accounts.cast_signed()
    }

    /// Checks every field.
    pub(super) fn check_values(&self) -> Result<(), TpccError> {
        // Some transactions take two.
        within("accounts", self.accounts.into(), 2, MAX_ACCOUNTS.into())?;
        within("hot-accounts", self.hot_accounts.into(), 1, self.accounts.into())?;
        if !(0.0..=1.0).contains(&self.hot_share) {
            return Err(refused("hot-share", self.hot_share, "must be 0 to 1".to_owned()));
        }
        self.setup.validate(TITLE, &Tables::schemas())
    }

    /// What pool and caches take.
    pub(super) fn cluster_shape(&self) -> ClusterShape {
        let database_bytes = u64::from(self.accounts) * ACCOUNT_BYTES;
        ClusterShape {
            setup: self.setup.clone(),
            database_bytes,
            growth_bytes: 0,
            divided: false,
            tables: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use selkie_fabric::sim::CostModel;

    use super::*;
    use crate::benchmark::Benchmark;
    use crate::cluster::Network;

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
        let gcl = refused(|c| c.setup.gcl_bytes = 256);
        assert_eq!(gcl, "gcl = 256: must be a power of two in 512 to 8192");
    }
}
