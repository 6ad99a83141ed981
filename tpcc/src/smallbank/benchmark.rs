//! SmallBank as a [`Benchmark`]: what is loaded, run and checked, by its configuration.

use std::ops::Range;

use serde_json::{Value, json};

use super::check::{check, judge};
use super::config::{Config, TITLE};
use super::input::Inputs;
use super::ledger::BalanceLedger;
use super::rows;
use super::schema::Tables;
use super::transaction_type::TransactionType;
use super::transactions::Teller;
use crate::benchmark::{Benchmark, Findings, WorkerContext};
use crate::cluster::{ClusterShape, Node};
use crate::error::TpccError;
use crate::figures::units::count;
use crate::run::Terminal;
use crate::workload::Random;

impl Benchmark for Config {
    type TransactionType = TransactionType;
    type Tables = Tables;
    type Ledger = BalanceLedger;

    const TITLE: &'static str = TITLE;
    const RATE: &'static str = "not failed, a second";
    const FAILED: &'static str = "accounts without the funds, as the benchmark has it";

    fn validate(&self) -> Result<(), TpccError> {
        self.check_values()
    }

    fn shape(&self) -> ClusterShape {
        self.cluster_shape()
    }

    fn keys(&self) -> i32 {
        self.customers()
    }

    fn accesses(kind: TransactionType) -> u32 {
        kind.accesses()
    }

    fn ledger(&self) -> BalanceLedger {
        BalanceLedger::new(self.accounts)
    }

    async fn load(&self, node: &Node<Tables>, keys: Range<i32>) -> Result<u64, TpccError> {
        rows::insert(node, self.setup.seed, keys).await
    }

    fn terminal<'a>(
        &'a self,
        place: WorkerContext<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<TransactionType = TransactionType> + 'a, TpccError> {
        let inputs = Inputs::new(self, random);
        Ok(Teller { place, inputs })
    }

    async fn check(
        &self,
        node: &Node<Tables>,
        ledger: &BalanceLedger,
        keys: Range<i32>,
    ) -> Result<Findings, TpccError> {
        check(self, node, ledger, keys).await
    }

    fn judge(&self, ledger: &BalanceLedger, findings: &mut Findings) {
        judge(ledger, findings);
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
