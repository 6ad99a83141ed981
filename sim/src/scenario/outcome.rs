//! What came of a run.

use std::time::Duration;

use crate::cluster::SimCluster;

/// What a scenario reports.
pub(super) struct RunOutcome {
    pub(super) trace_hash: u64,
    pub(super) virtual_time: Duration,
    pub(super) operations: u64,
    pub(super) gave_up: u64,
}

/// What the clients of a run report to.
#[derive(Default)]
pub(super) struct OperationCounts {
    pub(super) operations: u64,
    pub(super) gave_up: u64,
}

impl OperationCounts {
    /// Takes over what others did.
    pub(super) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.gave_up += other.gave_up;
    }
}

/// The report of a cluster's run.
pub(super) fn done(cluster: &SimCluster, tally: &OperationCounts) -> RunOutcome {
    RunOutcome {
        trace_hash: cluster.world.trace_hash(),
        virtual_time: cluster.world.now(),
        operations: tally.operations,
        gave_up: tally.gave_up,
    }
}
