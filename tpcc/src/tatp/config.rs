//! What to run.

use super::schema::Tables;
use crate::cluster::bounds::within;
use crate::cluster::{ClusterShape, Setup, TableSet};
use crate::error::TpccError;

/// The benchmark's name.
pub(super) const TITLE: &str = "TATP";
/// Most subscribers.
pub const MAX_SUBSCRIBERS: u32 = 20_000_000;

/// Bytes of pages that a subscriber's rows and the entry in the index take, about, measured after
/// loads.
const SUBSCRIBER_BYTES: u64 = 1_050;
/// The part of that by which call_forwarding may grow, one in so many: rows that are
/// inserted split pages.
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

impl Config {
    /// Subscribers are numbered from 1 to this.
    pub(super) fn last_subscriber(&self) -> i32 {
        self.subscribers.cast_signed()
    }

    /// Checks every field.
    pub(super) fn check_values(&self) -> Result<(), TpccError> {
        within("subscribers", self.subscribers.into(), 1, MAX_SUBSCRIBERS.into())?;
        self.setup.validate(TITLE, &Tables::schemas())
    }

    /// What pool and caches take.
    pub(super) fn cluster_shape(&self) -> ClusterShape {
        let database_bytes = u64::from(self.subscribers) * SUBSCRIBER_BYTES;
        let growth_bytes = database_bytes / GROWTH;
        ClusterShape {
            setup: self.setup.clone(),
            database_bytes,
            growth_bytes,
            divided: false,
            tables: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmark::Benchmark;

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        Config::default().validate().unwrap();
        Config::default().shape().pool().validate().unwrap();
        let none = Config { subscribers: 0, ..Config::default() };
        let text = none.validate().unwrap_err().to_string();
        assert_eq!(text, "subscribers = 0: must be 1 to 20000000");
        let setup = Setup { gcl_bytes: 256, ..Setup::default() };
        let text = Config { setup, ..Config::default() }.validate().unwrap_err().to_string();
        assert!(text.ends_with("must be a power of two in 512 to 8192"), "{text}");
    }
}
