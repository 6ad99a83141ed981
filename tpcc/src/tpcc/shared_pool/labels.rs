//! The labels of the pool by which drivers agree, and their bytes.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::awaited::AwaitedDriver;
use crate::error::TpccError;
use crate::figures::units::plural;
use crate::tpcc::config::Config;
use crate::tpcc::scale::Scale;

/// Label of what is loaded.
pub(super) const DATABASE: &str = "tpcc.database";
/// Label that says which driver is in which phase.
pub(super) const PHASES: &str = "tpcc.phases";

/// What is in the pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum DatabaseLabel {
    /// A driver is at it.
    Loading(LoadUnderWay),
    /// A driver was at it, and has ended before it was done.
    CutShort {
        /// Number of the database in the pool.
        generation: u64,
    },
    /// There is one.
    Complete(LoadedDatabase),
}

/// What a driver that loads says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoadUnderWay {
    /// Its process.
    pub(super) host: u64,
    /// Number of the database in the pool.
    pub(super) generation: u64,
    /// What it loads.
    pub(super) shape: DatabaseShape,
    /// How far it is.
    pub(super) stage: LoadStage,
}

/// How far a load is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LoadStage {
    /// Nothing is changed as yet, and the nodes of the driver need not be in the pool: what it is
    /// about to replace, if there is something.
    Begins(Option<LoadedDatabase>),
    /// Pages are written. Its nodes are in the pool.
    Writes,
}

impl LoadStage {
    /// What a driver is waited for whose nodes are not in the pool.
    pub(super) fn of_one_away(&self) -> AwaitedDriver {
        match self {
            Self::Begins(_) => AwaitedDriver {
                what: "another driver, which is about to load the database, and starts its compute nodes",
                helps: "this one loads if that does not",
            },
            Self::Writes => AwaitedDriver {
                what: "another driver, which loads the database and shows no sign of life",
                helps: "it is taken for gone soon, and then the load is to be done again with --reload",
            },
        }
    }
}

/// A database that can be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LoadedDatabase {
    /// Number of the database in the pool.
    pub(super) generation: u64,
    /// Bytes of pages in use that are of those before.
    pub(super) abandoned_bytes: u64,
    /// Its numbers.
    pub(super) shape: DatabaseShape,
}

/// What two drivers must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DatabaseShape {
    warehouses: u32,
    items: i32,
    customers_per_district: i32,
    new_orders_per_district: i32,
    seed: u64,
}

impl DatabaseShape {
    pub(super) fn of(config: &Config) -> Self {
        let Config { warehouses, seed, scale, .. } = *config;
        let Scale { items, customers_per_district, new_orders_per_district } = scale;
        Self { warehouses, items, customers_per_district, new_orders_per_district, seed }
    }

    pub(super) fn warehouses(&self) -> u32 {
        self.warehouses
    }

    /// Refuses a driver that is not of this shape, which the database in the pool has, or that
    /// which another driver loads.
    pub(super) fn admit(&self, config: &Config, is_loaded: bool) -> Result<(), TpccError> {
        let own = Self::of(config);
        let subject = if is_loaded { "the pool holds" } else { "another driver loads" };
        let allowed = |what: String| format!("{subject} a database of {what}");
        let refused = |key, value: String, what| {
            Err(TpccError::Config { key, value, allowed: allowed(what) })
        };
        if self.warehouses != own.warehouses {
            let what = plural(u64::from(self.warehouses), "warehouse");
            return refused("warehouses", own.warehouses.to_string(), what);
        }
        if self.seed != own.seed {
            return refused("seed", own.seed.to_string(), format!("seed {}", self.seed));
        }
        if *self != own {
            let what = format!("another scale: {} items", self.items);
            return refused("scale", format!("of {} items", own.items), what);
        }
        Ok(())
    }
}

/// Drivers by process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DriverPhases {
    /// Have the database open.
    pub(super) present: BTreeSet<u64>,
    pub(super) running: BTreeSet<u64>,
    pub(super) checking: BTreeSet<u64>,
    /// How long the longest measurement of those that run may be, seconds; those of an older
    /// program do not say.
    #[serde(default)]
    pub(super) longest_run_s: u64,
}

pub(super) fn from_text<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, TpccError> {
    serde_json::from_str(text)
        .map_err(|error| TpccError::Label { name: name.to_owned(), what: error.to_string() })
}

pub(super) fn to_text<T: Serialize>(value: &T) -> Result<String, TpccError> {
    serde_json::to_string(value)
        .map_err(|error| TpccError::Label { name: "new".into(), what: error.to_string() })
}
