//! The scenarios, by their names.

use std::fmt;
use std::str::FromStr;

/// What clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// Increments and reads of a counter in each of some pages, latched in every way, some given up
    /// half-way. The history of each page is linearizable, no page is seen torn.
    Counter,
    /// Transfers between accounts, audits of all accounts. No money is made or lost, and the
    /// history is strictly serializable.
    Bank,
    /// Transactions of every kind by each of the protocols: reads, writes, deletes and scans of
    /// registers, by their keys and by an index, appends to lists, savepoints. The history is
    /// strictly serializable.
    History,
    /// Inserts, updates, deletes, lookups and scans on one tree from all nodes, against an oracle.
    Tree,
    /// TPC-C, scaled down, and its consistency conditions.
    Tpcc,
    /// Messages from every node to every node: none lost, doubled, damaged or out of order.
    Ring,
    /// As many memory nodes of a coded pool die as it has parity splits, under one of the loads
    /// above. When their slabs are regenerated, as many others die. No client notices, and nothing
    /// is lost but the changes of a compute node that died as well.
    MemnodeLoss,
    /// The same under TPC-C, where the seeds go through all choices of those that die: first of the
    /// first, with each of the codings, then of the others.
    TpccLoss,
    /// Bits of splits change by themselves. No page is read that is not what was written; where
    /// damage is to be corrected it is, all of it.
    Corruption,
    /// Memory nodes answer many times slower, for a while. Pages are what they should be.
    Straggler,
    /// Hosts of memory nodes run short of memory, so that slabs are evicted, and lent again later.
    /// No client notices, and nothing is lost but the changes of a compute node that died.
    SlabEviction,
    /// Compute nodes with logs die under transfers between accounts: one, also those that recover
    /// from it, or all; at any time, verb, or append to a log. Others go on, nothing that was
    /// acknowledged is lost, and nothing else is half there. In some runs the pool is lost as well,
    /// and rebuilt from the logs.
    Crash,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Scenario; 12] = [
        Scenario::Counter,
        Scenario::Bank,
        Scenario::History,
        Scenario::Tree,
        Scenario::Tpcc,
        Scenario::Ring,
        Scenario::MemnodeLoss,
        Scenario::TpccLoss,
        Scenario::Corruption,
        Scenario::Straggler,
        Scenario::SlabEviction,
        Scenario::Crash,
    ];

    /// What it is called on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Scenario::Counter => "counter",
            Scenario::Bank => "bank",
            Scenario::History => "history",
            Scenario::Tree => "tree",
            Scenario::Tpcc => "tpcc",
            Scenario::Ring => "ring",
            Scenario::MemnodeLoss => "memnode-loss",
            Scenario::TpccLoss => "tpcc-loss",
            Scenario::Corruption => "corruption",
            Scenario::Straggler => "straggler",
            Scenario::SlabEviction => "slab-eviction",
            Scenario::Crash => "crash",
        }
    }

    /// The scenario that a sweep over all of them runs with `seed`: those that take longer than the
    /// others get fewer.
    pub fn of_seed(seed: u64) -> Scenario {
        match seed % 20 {
            0 => Scenario::Tpcc,
            1..=4 => Scenario::Counter,
            5 => Scenario::Crash,
            9 => Scenario::History,
            6..=8 => Scenario::Bank,
            10..=13 => Scenario::Tree,
            14 => Scenario::Ring,
            15 => Scenario::SlabEviction,
            16 => Scenario::MemnodeLoss,
            // That takes longest.
            17 if (seed / 20).is_multiple_of(8) => Scenario::TpccLoss,
            17 => Scenario::MemnodeLoss,
            18 => Scenario::Corruption,
            _ => Scenario::Straggler,
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No scenario has that name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownScenario(pub String);

impl std::error::Error for UnknownScenario {}

impl fmt::Display for UnknownScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Scenario::ALL.map(Scenario::name).join(", ");
        write!(f, "there is no scenario {:?}; there are {names}", self.0)
    }
}

impl FromStr for Scenario {
    type Err = UnknownScenario;

    fn from_str(name: &str) -> Result<Self, UnknownScenario> {
        let found = Scenario::ALL.into_iter().find(|scenario| scenario.name() == name);
        found.ok_or_else(|| UnknownScenario(name.to_owned()))
    }
}
