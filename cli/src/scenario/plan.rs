//! The plan of a scenario: which processes start when, and what happens to which of them.

use std::time::Duration;

use super::file::{DriverSection, FabricKind, FaultAction, ScenarioFile};

/// A scenario that can be run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) file: ScenarioFile,
    pub(crate) duration: Duration,
    /// How long the drivers may take after their time is over, to check.
    pub(crate) check: Duration,
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
    /// The other side of a cut between two processes.
    pub(crate) from: Option<FaultTarget>,
    /// Of such a cut: only what the target sends is lost.
    pub(crate) one_way: bool,
    /// Whether the pool takes the target for dead because of it; of a cut between two, one of them.
    pub(crate) death: Death,
    /// When it is over: that of a kill is its time, that of a silence its end.
    pub(crate) over: Duration,
}

/// Whether a process is taken for dead because of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Death {
    Never,
    /// Chance decides.
    Perhaps,
    Surely,
}

impl PlannedFault {
    /// Whether the pool surely loses a compute node by it.
    pub(crate) fn kills_a_driver(&self) -> bool {
        self.death == Death::Surely && matches!(self.target, FaultTarget::Driver(_))
    }

    /// Whether it happens to this process, alone or with another.
    pub(crate) fn touches(&self, target: FaultTarget) -> bool {
        self.target == target || self.from == Some(target)
    }
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

    /// What a fault does to whom.
    pub(crate) fn say(&self, due: &PlannedFault) -> String {
        let mut said = format!("{} {}", due.action.name(), self.name_of(due.target));
        if let Some(from) = due.from {
            let way = if due.one_way { ", one way" } else { "" };
            said = format!("{said} from {}{way}", self.name_of(from));
        }
        said
    }

    /// The place of a process in the network: drivers are behind the memory nodes.
    pub(crate) fn place(&self, target: FaultTarget) -> usize {
        match target {
            FaultTarget::Memory(position) => position,
            FaultTarget::Driver(driver) => self.file.memory.nodes + driver,
        }
    }

    /// How many memory nodes may die, one after the other, before data is lost, if all that can be
    /// is made good in between: without redundancy none, else until fewer live than a page has data
    /// splits.
    fn outlived_at_best(&self) -> usize {
        let coding = self.file.pool.coding;
        match coding.is_plain() {
            true => 0,
            false => self.file.memory.nodes.saturating_sub(coding.data()),
        }
    }

    /// When surely more memory nodes are dead than the pool outlives.
    pub(crate) fn memory_is_lost(&self) -> Option<Duration> {
        let sure = self.deaths_of_memory().filter(|due| due.death == Death::Surely);
        sure.map(|due| due.at).nth(self.outlived_at_best())
    }

    /// From when on more memory nodes may be taken for dead than the pool outlives.
    pub(crate) fn memory_may_be_lost(&self) -> Option<&PlannedFault> {
        let parity = self.file.pool.coding.parity();
        self.deaths_of_memory().nth(parity)
    }

    /// The deaths of memory nodes, sure or not, by time.
    fn deaths_of_memory(&self) -> impl Iterator<Item = &PlannedFault> {
        let of_memory = |due: &&PlannedFault| matches!(due.target, FaultTarget::Memory(_));
        self.faults
            .iter()
            .filter(of_memory)
            .filter(|due| due.death != Death::Never && due.from.is_none())
    }

    /// Whether the pool may lose a compute node, also because one meets the death of a memory node.
    pub(crate) fn may_lose_drivers(&self) -> bool {
        self.memory_may_be_lost().is_some()
            || self.faults.iter().any(|due| {
                let targets = [Some(due.target), due.from];
                let is_driver = |target| matches!(target, Some(FaultTarget::Driver(_)));
                due.death != Death::Never && targets.into_iter().any(is_driver)
                    || self.is_long_silence_of_memory(due)
            })
    }

    /// Whether pages may be lost with compute nodes: those without logs.
    pub(crate) fn may_lose_pages(&self) -> bool {
        self.may_lose_drivers() && !self.file.pool.has_logs()
    }

    /// Whether what happened before may have ended a process by this time.
    pub(crate) fn may_have_ended(&self, target: FaultTarget, by: Duration) -> bool {
        let is_driver = matches!(target, FaultTarget::Driver(_));
        let memory = self.memory_may_be_lost().filter(|_| is_driver).map(|due| due.at);
        let may_end = |due: &PlannedFault| {
            due.death == Death::Perhaps && due.touches(target)
                || is_driver && self.is_long_silence_of_memory(due)
        };
        memory.is_some_and(|at| at <= by)
            || self.faults.iter().any(|due| due.at <= by && may_end(due))
    }

    /// How long after the end of a fault all that live go on, and all others have ended.
    pub(crate) fn patience(&self) -> Duration {
        LEASES * self.file.pool.lease.0.0
    }

    pub(crate) fn is_shm(&self) -> bool {
        self.file.fabric == FabricKind::Shm
    }
}

/// So many leases after the end of a fault no driver is stuck any more.
pub(crate) const LEASES: u32 = 3;
