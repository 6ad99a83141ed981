//! TATP as a [`Benchmark`]: what is loaded, run and checked, by its configuration.

use std::ops::Range;

use serde_json::json;

use super::check::{check, judge};
use super::config::{Config, TITLE};
use super::input::Inputs;
use super::ledger::SubscriberLedger;
use super::rows;
use super::schema::Tables;
use super::transaction_type::TransactionType;
use super::transactions::Register;
use crate::benchmark::{Benchmark, Findings, WorkerContext};
use crate::cluster::{ClusterShape, Node};
use crate::error::TpccError;
use crate::figures::units::count;
use crate::run::Terminal;
use crate::workload::Random;

impl Benchmark for Config {
    type TransactionType = TransactionType;
    type Tables = Tables;
    type Ledger = SubscriberLedger;

    const TITLE: &'static str = TITLE;
    const RATE: &'static str = "qualified throughput (not failed, a second)";
    const FAILED: &'static str =
        "rows that are not there, or are there already, as the benchmark has it";

    fn validate(&self) -> Result<(), TpccError> {
        self.check_values()
    }

    fn shape(&self) -> ClusterShape {
        self.cluster_shape()
    }

    fn keys(&self) -> i32 {
        self.last_subscriber()
    }

    fn accesses(kind: TransactionType) -> u32 {
        kind.accesses()
    }

    fn ledger(&self) -> SubscriberLedger {
        SubscriberLedger::new(self.keys())
    }

    async fn load(&self, node: &Node<Tables>, keys: Range<i32>) -> Result<u64, TpccError> {
        rows::insert(node, self.setup.seed, keys).await
    }

    fn terminal<'a>(
        &'a self,
        place: WorkerContext<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<TransactionType = TransactionType> + 'a, TpccError> {
        Ok(Register { place, inputs: Inputs::new(self.keys(), random) })
    }

    async fn check(
        &self,
        node: &Node<Tables>,
        ledger: &SubscriberLedger,
        keys: Range<i32>,
    ) -> Result<Findings, TpccError> {
        check(self, node, ledger, keys).await
    }

    fn judge(&self, ledger: &SubscriberLedger, findings: &mut Findings) {
        judge(ledger, findings);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        vec![("subscribers", count(self.subscribers.into()))]
    }

    fn settings_to_json(&self) -> serde_json::Value {
        json!({ "subscribers": self.subscribers })
    }
}
