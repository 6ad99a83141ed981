//! The plan of a scenario: which processes start when, and what happens to which of them.

use std::time::Duration;

use super::file::{DriverSection, FaultAction, ScenarioFile};

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) file: ScenarioFile,
    pub(crate) duration: Duration,
    pub(crate) drivers: Vec<PlannedDriver>,
    /// By time.
    pub(crate) faults: Vec<PlannedFault>,
}

/// A driver: its name, and how it is started.
#[derive(Clone, Debug)]
pub(crate) struct PlannedDriver {
    pub(crate) name: String,
    pub(crate) delay: Duration,
    pub(crate) driver: DriverSection,
}

/// A process that can be the target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FaultTarget {
    /// By position.
    Driver(usize),
    /// By position.
    Memory(usize),
}

/// A fault that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlannedFault {
    pub(crate) at: Duration,
    pub(crate) action: FaultAction,
    pub(crate) target: FaultTarget,
    /// Whether the pool takes a driver for dead because of it.
    pub(crate) kills: bool,
}

impl Plan {
    pub(super) fn names(&self) -> Vec<String> {
        let drivers = self.drivers.iter().map(|role| role.name.clone());
        let memory = (1..=self.file.memory.nodes).map(|number| format!("memory-{number}"));
        drivers.chain(memory).collect()
    }

    pub(super) fn target(&self, name: &str) -> Option<FaultTarget> {
        if let Some(number) = name.strip_prefix("memory-") {
            let number: usize = number.parse().ok()?;
            let position = number.checked_sub(1)?;
            return (position < self.file.memory.nodes).then_some(FaultTarget::Memory(position));
        }
        self.drivers.iter().position(|role| role.name == name).map(FaultTarget::Driver)
    }

    pub(crate) fn name_of(&self, target: FaultTarget) -> String {
        match target {
            FaultTarget::Memory(position) => format!("memory-{}", position + 1),
            FaultTarget::Driver(position) => {
                self.drivers.get(position).map_or_else(String::new, |role| role.name.clone())
            }
        }
    }

    /// The place of a driver in the network, behind the memory nodes.
    pub(crate) fn place(&self, driver: usize) -> usize {
        self.file.memory.nodes + driver
    }

    /// When more memory nodes are dead than the pool outlives, also if all losses are repaired in
    /// between that can be: without redundancy with the first of them, else when fewer live than a
    /// page has data splits.
    pub(crate) fn memory_is_lost(&self) -> Option<Duration> {
        let coding = self.file.pool.coding;
        let outlived = match coding.is_plain() {
            true => 0,
            false => self.file.memory.nodes.saturating_sub(coding.data()),
        };
        self.deaths_of_memory().nth(outlived).map(|due| due.at)
    }

    /// The deaths of memory nodes, by time.
    pub(crate) fn deaths_of_memory(&self) -> impl Iterator<Item = &PlannedFault> {
        self.faults.iter().filter(|due| matches!(due.target, FaultTarget::Memory(_)))
    }

    /// Whether the pool loses a compute node.
    pub(crate) fn loses_drivers(&self) -> bool {
        self.faults.iter().any(|due| due.kills && matches!(due.target, FaultTarget::Driver(_)))
    }
}
