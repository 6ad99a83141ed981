//! What to run.

use std::ops::Range;

use serde_json::json;

use super::check;
use super::input::Inputs;
use super::kind::Kind;
use super::ledger::Ledger;
use super::rows;
use super::schema::Tables;
use super::transactions::Register;
use crate::benchmark::{Benchmark, Findings, Place};
use crate::cluster::{Node, TableSet};
use crate::error::TpccError;
use crate::random::Random;
use crate::run::Terminal;
use crate::setup::{Setup, Shape, within};
use crate::units::count;

/// Most subscribers.
pub const MAX_SUBSCRIBERS: u32 = 20_000_000;

/// Bytes of pages that a subscriber's rows and the entry in the index take, about, measured after
/// loads.
const SUBSCRIBER_BYTES: u64 = 1_050;
/// Part of that by which call_forwarding may grow, one in so many: rows that are inserted split
/// pages.
const GROWTH: u64 = 4;

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Subscribers.
    pub subscribers: u32,
    /// Nodes, workers and sizes.
    pub setup: Setup,
}

impl Default for Config {
    /// 100,000 subscribers, the least of the description.
    fn default() -> Self {
        Self { subscribers: 100_000, setup: Setup::default() }
    }
}

impl Benchmark for Config {
    type Kind = Kind;
    type Tables = Tables;
    type Ledger = Ledger;

    const TITLE: &'static str = "TATP";
    const RATE: &'static str = "qualified throughput (not failed, a second)";

    fn validate(&self) -> Result<(), TpccError> {
        within("subscribers", self.subscribers.into(), 1, MAX_SUBSCRIBERS.into())?;
        self.setup.validate(Self::TITLE, &Tables::schemas())
    }

    fn shape(&self) -> Shape {
        let database_bytes = u64::from(self.subscribers) * SUBSCRIBER_BYTES;
        let growth_bytes = database_bytes / GROWTH;
        Shape { setup: self.setup.clone(), database_bytes, growth_bytes, divided: false }
    }

    fn keys(&self) -> i32 {
        self.subscribers.cast_signed()
    }

    fn accesses(kind: Kind) -> u32 {
        kind.accesses()
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.keys())
    }

    async fn load(&self, node: &Node<Tables>, keys: Range<i32>) -> Result<u64, TpccError> {
        rows::insert(node, self.setup.seed, keys).await
    }

    fn terminal<'a>(
        &'a self,
        place: Place<'a, Self>,
        random: Random,
    ) -> Result<impl Terminal<Kind = Kind> + 'a, TpccError> {
        Ok(Register { place, inputs: Inputs::new(self.keys(), random) })
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
        vec![("subscribers", count(self.subscribers.into()))]
    }

    fn settings_to_json(&self) -> serde_json::Value {
        json!({ "subscribers": self.subscribers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        Config::default().validate().unwrap();
        Config::default().shape().pool().validate().unwrap();
        let none = Config { subscribers: 0, ..Config::default() };
        let text = none.validate().unwrap_err().to_string();
        assert_eq!(text, "subscribers = 0: must be 1 to 20000000");
        let setup = Setup { gcl_bytes: 512, ..Setup::default() };
        let text = Config { setup, ..Config::default() }.validate().unwrap_err().to_string();
        assert!(text.contains("for TATP: an entry of table subscriber"), "{text}");
    }
}
