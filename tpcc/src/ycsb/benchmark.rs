//! YCSB as a [`Benchmark`]: what is loaded, run and checked, by its configuration.

use std::ops::Range;

use serde_json::{Value, json};

use super::check::{check, judge};
use super::client::Client;
use super::config::{Config, LoadMethod, TITLE};
use super::distribution::Distribution;
use super::ledger::RecordLedger;
use super::load::{insert, load_in_bulk};
use super::rules::RecordRules;
use super::schema::Tables;
use super::workload::Operation;
use crate::benchmark::{Benchmark, Findings, LoadProgress, WorkerContext};
use crate::cluster::{ClusterShape, Node};
use crate::error::TpccError;
use crate::figures::units::{bytes, count, rounded};
use crate::micro::coherence_name;
use crate::run::{Interval, LoadReport, Terminal};
use crate::workload::{Mix, Random};

impl Config {
    pub(super) fn rules(&self) -> RecordRules {
        RecordRules { seed: self.setup.seed, fields: self.fields() }
    }
}

impl Benchmark for Config {
    type TransactionType = Operation;
    type Tables = Tables;
    type Ledger = RecordLedger;

    const TITLE: &'static str = TITLE;
    const RATE: &'static str = "operations a second";
    const FAILED: &'static str = "none, as the benchmark has it";

    fn validate(&self) -> Result<(), TpccError> {
        self.check_values()
    }

    fn shape(&self) -> ClusterShape {
        self.cluster_shape()
    }

    fn keys(&self) -> i32 {
        self.records.cast_signed()
    }

    fn accesses(kind: Operation) -> u32 {
        kind.accesses()
    }

    fn ledger(&self) -> RecordLedger {
        RecordLedger::new(self.records)
    }

    async fn load_at_once(
        &self,
        node: &Node<Tables>,
        progress: &LoadProgress,
    ) -> Result<Option<u64>, TpccError> {
        match self.load {
            LoadMethod::Bulk => load_in_bulk(self, node, progress).await.map(Some),
            LoadMethod::Rows => Ok(None),
        }
    }

    async fn load(&self, node: &Node<Tables>, keys: Range<i32>) -> Result<u64, TpccError> {
        insert(self, node, keys).await
    }

    fn terminal<'a>(
        &'a self,
        place: WorkerContext<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<TransactionType = Operation> + 'a, TpccError> {
        Ok(Client::new(self, place, random))
    }

    async fn check(
        &self,
        node: &Node<Tables>,
        ledger: &RecordLedger,
        keys: Range<i32>,
    ) -> Result<Findings, TpccError> {
        check(self, node, ledger, keys).await
    }

    fn judge(&self, ledger: &RecordLedger, findings: &mut Findings) {
        judge(self, ledger, findings);
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let mix = Operation::ALL.iter().map(|kind| (kind, self.workload.percent(*kind)));
        let mix = mix.filter(|(_, percent)| *percent > 0);
        let mix: Vec<_> =
            mix.map(|(kind, percent)| format!("{} {percent} %", kind.title())).collect();
        let requests = match self.distribution() {
            Distribution::Uniform => "uniform".to_owned(),
            skewed => format!("{skewed}, {}", self.zipf()),
        };
        let size = bytes(self.value_bytes as u64);
        vec![
            ("workload", format!("{}: {}", self.workload, mix.join(", "))),
            ("records", format!("{} of {size} in ten fields", count(self.records.into()))),
            ("requests", requests),
            ("loaded", self.load.name().to_owned()),
            ("via", self.via.name().to_owned()),
        ]
    }

    fn settings_to_json(&self) -> Value {
        json!({
            "workload": self.workload.name(),
            "records": self.records,
            "operations": self.setup.transactions,
            "value_bytes": self.value_bytes,
            "distribution": self.distribution().name(),
            "zipf": (self.distribution() != Distribution::Uniform).then(|| self.zipf()),
            "load": self.load.name(),
            "via": self.via.name(),
            "coherence": coherence_name(self.setup.coherence),
        })
    }

    fn figures_to_json(&self, load: &LoadReport, interval: &Interval<Operation, ()>) -> Value {
        let seconds = load.duration.as_secs_f64();
        let rate = if seconds > 0.0 { load.rows as f64 / seconds } else { 0.0 };
        let per_record = |bytes: u64, records: u64| bytes as f64 / records.max(1) as f64;
        json!({
            "ops_per_second": rounded(interval.per_second(interval.completed())),
            "operations": interval.completed(),
            "round_trips_per_op": interval.per_txn(interval.traffic.chains),
            "bytes_per_record": rounded(per_record(load.database_bytes, load.rows)),
            "load_records_per_second": rounded(rate),
        })
    }
}
