//! What to run.

use selkie_btree::max_value;
use selkie_engine::{Coherence, PSN_BYTES};
use selkie_txn::Protocol;

use super::distribution::Distribution;
use super::record::{FIELDS, FieldSizes, LEAST_FIELD};
use super::schema::{ROW_OVERHEAD, schemas_of};
use super::store::Via;
use super::workload::{Operation, Workload};
use crate::cluster::bounds::{refused, within};
use crate::cluster::{ClusterShape, Durability, Network, Setup};
use crate::error::TpccError;

/// The benchmark's name.
pub(super) const TITLE: &str = "YCSB";

/// Most records.
pub const MAX_RECORDS: u32 = 1_000_000_000;
/// Bytes of the fields of a record unless it is said: ten of a hundred bytes, as YCSB has it.
pub(super) const USUAL_VALUE_BYTES: usize = 1_000;

/// Bytes of a key.
const KEY_BYTES: usize = 8;
/// Bytes that a page, an entry of a leaf and the number of a row's layout take, at most.
const PAGE_OVERHEAD: usize = 64;
const ENTRY_OVERHEAD: usize = 10;
const LAYOUT_NUMBER: usize = 2;
/// How full pages are: after a bulk load, and after inserts in random order.
const BULK_PERCENT: usize = 90;
const RANDOM_PERCENT: usize = 66;
/// Inserts a second that the pool has room for, if a run ends by the clock: of workload d, and of
/// workload e, which mostly scans. In virtual time of each compute node.
const INSERTS: u64 = 30_000;
const INSERTS_BESIDE_SCANS: u64 = 5_000;

/// How records are loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadMethod {
    /// In the order of their keys, bottom-up.
    #[default]
    Bulk,
    /// One after the other, in the order of their numbers, which is not that of their keys.
    Rows,
}

impl LoadMethod {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Rows => "rows",
        }
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The mix.
    pub workload: Workload,
    /// Records that are loaded.
    pub records: u32,
    /// Bytes of the ten fields of a record together.
    pub value_bytes: usize,
    /// How requests are distributed; `None`: as the workload has it.
    pub distribution: Option<Distribution>,
    /// Exponent of skewed distributions; `None`: that of YCSB.
    pub zipf: Option<f64>,
    /// How records are loaded.
    pub load: LoadMethod,
    /// What operations are done with.
    pub via: Via,
    /// Nodes, workers and sizes.
    pub setup: Setup,
}

impl Default for Config {
    /// Workload a on 100,000 records of a thousand bytes.
    fn default() -> Self {
        Self {
            workload: Workload::default(),
            records: 100_000,
            value_bytes: USUAL_VALUE_BYTES,
            distribution: None,
            zipf: None,
            load: LoadMethod::default(),
            via: Via::default(),
            setup: Setup::default(),
        }
    }
}

impl Config {
    /// How requests are distributed.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        self.distribution.unwrap_or(self.workload.usual_distribution())
    }

    /// The exponent of skewed distributions.
    #[must_use]
    pub fn zipf(&self) -> f64 {
        self.zipf.unwrap_or(Distribution::USUAL_ZIPF)
    }

    pub(super) fn fields(&self) -> FieldSizes {
        FieldSizes::new(self.value_bytes)
    }

    /// Inserts that are expected: as many as YCSB expects where the operations are counted.
    pub(super) fn expected_inserts(&self) -> u64 {
        self.setup.transactions.map_or(0, |operations| 2 * self.inserts_of(operations))
    }

    fn inserts_of(&self, operations: u64) -> u64 {
        operations.div_ceil(100).saturating_mul(self.workload.percent(Operation::Insert) as u64)
    }

    /// Checks every field.
    pub(super) fn check_values(&self) -> Result<(), TpccError> {
        within("records", self.records.into(), 1, MAX_RECORDS.into())?;
        if let Some(zipf) = self.zipf {
            if self.distribution() == Distribution::Uniform {
                let allowed = "goes with --distribution zipfian and latest only".to_owned();
                return Err(refused("zipf", zipf, allowed));
            }
            if !(zipf > 0.0 && zipf < 1.0) {
                let allowed = "must be above 0 and below 1: the method of YCSB has no others";
                return Err(refused("zipf", zipf, allowed.to_owned()));
            }
        }
        self.check_via()?;
        // Sizes of pages first, on which those of records depend.
        self.setup.validate(TITLE, &[])?;
        let (least, most) = (FIELDS * LEAST_FIELD, self.most_value_bytes());
        if !(least..=most).contains(&self.value_bytes) {
            let gcl = self.setup.gcl_bytes;
            let allowed = format!("must be {least} to {most} with --gcl {gcl}");
            return Err(refused("value-bytes", self.value_bytes, allowed));
        }
        Ok(())
    }

    fn check_via(&self) -> Result<(), TpccError> {
        let Setup { protocol, network, durability, .. } = &self.setup;
        match &self.via {
            Via::Table => Ok(()),
            Via::Tree if *protocol != Protocol::TwoPhase => {
                let allowed = "is of transactions: --via tree has none".to_owned();
                Err(refused("protocol", protocol, allowed))
            }
            Via::Tree if *durability != Durability::None => {
                let allowed = "is of transactions: --via tree has none".to_owned();
                Err(refused("durability", durability.name(), allowed))
            }
            Via::Tree => Ok(()),
            Via::Sql(_) if *protocol != Protocol::Snapshot => {
                let allowed = "with --via sql must be snapshot".to_owned();
                Err(refused("protocol", protocol, allowed))
            }
            Via::Sql(_) if matches!(network, Network::Simulated(_)) => {
                let allowed = "must be tree or table where time is virtual: that of SQL is not \
                               simulated";
                Err(refused("via", "sql", allowed.to_owned()))
            }
            Via::Sql(_) => Ok(()),
        }
    }

    /// Most bytes that the fields of a record may take on these pages.
    fn most_value_bytes(&self) -> usize {
        let page = self.setup.gcl_bytes.saturating_sub(PSN_BYTES);
        let most = max_value(page, KEY_BYTES);
        match self.setup.protocol {
            // Longer rows have values stored apart, which a bulk load refuses.
            Protocol::Snapshot => most.min(page / 8 * 5) - ROW_OVERHEAD - LAYOUT_NUMBER,
            _ => most - ROW_OVERHEAD,
        }
    }

    /// Bytes of pages that so many records take, where pages are so full.
    fn bytes_of(&self, records: u64, percent: usize) -> u64 {
        let page = self.setup.gcl_bytes.saturating_sub(PAGE_OVERHEAD) * percent / 100;
        let entry = self.value_bytes + ROW_OVERHEAD + ENTRY_OVERHEAD;
        let leaves = records.div_ceil((page / entry).max(1) as u64);
        // Inner pages take some percent, the less the larger pages are.
        (leaves + leaves / 16 + 2).saturating_mul(self.setup.gcl_bytes as u64)
    }

    /// What pool and caches take.
    pub(super) fn cluster_shape(&self) -> ClusterShape {
        let percent = match self.load {
            LoadMethod::Bulk => BULK_PERCENT,
            LoadMethod::Rows => RANDOM_PERCENT,
        };
        let database_bytes = self.bytes_of(self.records.into(), percent);
        ClusterShape {
            setup: self.setup.clone(),
            database_bytes,
            growth_bytes: self.growth_bytes(database_bytes),
            divided: false,
            tables: Some(schemas_of(self.fields())),
        }
    }

    fn growth_bytes(&self, database_bytes: u64) -> u64 {
        let inserts = match (self.workload, self.setup.transactions) {
            (Workload::A | Workload::B | Workload::C | Workload::F, _) => return 0,
            (_, Some(operations)) => self.inserts_of(operations),
            (workload, None) => {
                let rate = match workload {
                    Workload::E => INSERTS_BESIDE_SCANS,
                    _ => INSERTS,
                };
                let nodes = match self.setup.network {
                    Network::Real { .. } => 1.0,
                    Network::Simulated(_) => self.setup.compute_nodes as f64,
                };
                (self.setup.duration.as_secs_f64() * rate as f64 * nodes).ceil() as u64
            }
        };
        // An insert into a page of a bulk load splits it.
        let splits = inserts.saturating_mul(self.setup.gcl_bytes as u64).min(database_bytes);
        self.bytes_of(inserts, RANDOM_PERCENT).saturating_add(splits)
    }

    /// The coding of an embedded pool if none is said: directories know none.
    #[must_use]
    pub fn usual_coding(coherence: Coherence, memory_nodes: usize) -> selkie_pool::Coding {
        match coherence {
            Coherence::Rpc => selkie_pool::Coding::PLAIN,
            _ => selkie_pool::Coding::usual_for(memory_nodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use selkie_fabric::sim::CostModel;

    use super::*;
    use crate::benchmark::Benchmark;

    fn refused(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn bad_values_are_named_with_what_is_allowed() {
        Config::default().validate().unwrap();
        Config::default().shape().pool().validate().unwrap();
        assert_eq!(refused(|c| c.records = 0), "records = 0: must be 1 to 1000000000");
        assert!(refused(|c| c.records = MAX_RECORDS + 1).starts_with("records = 1000000001: must"));
        assert_eq!(
            refused(|c| c.value_bytes = 79),
            "value-bytes = 79: must be 80 to 1933 with --gcl 2048"
        );
        assert!(refused(|c| c.value_bytes = 1_934).starts_with("value-bytes = 1934: must be 80"));
        let small = refused(|c| c.setup.gcl_bytes = 512);
        assert_eq!(small, "value-bytes = 1000: must be 80 to 397 with --gcl 512");
        let snapshot = refused(|c| (c.setup.protocol, c.value_bytes) = (Protocol::Snapshot, 1_500));
        assert!(snapshot.contains("must be 80 to 1237 "), "{snapshot}");
        for zipf in [0.0, 1.0, -1.0, f64::NAN] {
            let allowed = "must be above 0 and below 1";
            assert!(refused(|c| c.zipf = Some(zipf)).contains(allowed), "{zipf}");
        }
        let uniform =
            refused(|c| (c.zipf, c.distribution) = (Some(0.5), Some(Distribution::Uniform)));
        assert!(uniform.starts_with("zipf = 0.5: goes with --distribution zipfian"), "{uniform}");
        let operations = refused(|c| c.setup.transactions = Some(0));
        assert!(operations.starts_with("operations = 0: must be 1 to "), "{operations}");
        let tree = refused(|c| (c.via, c.setup.protocol) = (Via::Tree, Protocol::Optimistic));
        assert_eq!(tree, "protocol = occ: is of transactions: --via tree has none");
        let memory = Durability::Memory { log_mib: 64 };
        let tree = refused(|c| (c.via, c.setup.durability) = (Via::Tree, memory));
        assert_eq!(tree, "durability = memory: is of transactions: --via tree has none");
    }

    #[test]
    fn a_kilobyte_in_ten_fields_fits_the_usual_pages_by_every_protocol() {
        for protocol in
            [Protocol::TwoPhase, Protocol::Timestamp, Protocol::Optimistic, Protocol::Snapshot]
        {
            let setup = Setup { protocol, ..Setup::default() };
            let config = Config { value_bytes: 1_024, setup, ..Config::default() };
            config.validate().unwrap();
        }
    }

    #[test]
    fn the_pool_has_room_for_what_a_run_inserts() {
        let shape = |workload, transactions, network| {
            let setup = Setup { transactions, network, ..Setup::default() };
            Config { workload, setup, ..Config::default() }.shape()
        };
        let real = Network::default();
        for workload in [Workload::A, Workload::B, Workload::C, Workload::F] {
            assert_eq!(shape(workload, None, real.clone()).growth_bytes, 0);
        }
        let counted = shape(Workload::D, Some(20_000), real.clone()).growth_bytes;
        assert!(counted > 1_000 * 1_000 && counted < 10_000_000, "{counted}");
        let timed = shape(Workload::D, None, real).growth_bytes;
        assert!(timed > 300_000 * 1_000, "{timed}");
        let simulated = Network::Simulated(CostModel::PAPER);
        assert!(shape(Workload::E, None, simulated).growth_bytes > 0);
    }
}
