//! The state of a disk: logs, nodes to kill, and nodes that find it full.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{LogError, LogOwner};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::Controls;

use super::log::DiskLog;

/// What the disk is called in errors.
pub(super) const PLACE: &str = "the simulated disk";

/// When, in an append, its owner is killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendStage {
    /// Before anything is written.
    Before,
    /// When anything may be written.
    Amid,
    /// When all is durable and nothing is reported yet.
    After,
}

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// Where all chance comes from.
    pub seed: u64,
    /// Bytes that a log may keep.
    pub capacity: u64,
    /// Keep also what logs were cut off.
    pub is_archive: bool,
}

pub(super) struct DiskShared {
    pub(super) config: DiskConfig,
    pub(super) random: SplitMix,
    pub(super) state: Mutex<DiskState>,
}

#[derive(Default)]
pub(super) struct DiskState {
    pub(super) world: Option<Attached>,
    pub(super) logs: BTreeMap<LogOwner, DiskLog>,
    /// Appends that a node lives to make, and when it dies in the next.
    pub(super) deaths: BTreeMap<u16, (u64, AppendStage)>,
    /// Nodes that find the disk full, and when.
    pub(super) outages: BTreeMap<u16, Range<Duration>>,
}

/// The world whose nodes use the disk.
pub(super) struct Attached {
    pub(super) envs: Vec<Env>,
    pub(super) controls: Controls,
}

impl DiskShared {
    pub(super) fn nanos(&self, range: Range<u64>) -> Duration {
        Duration::from_nanos(range.start + self.random.below(range.end - range.start))
    }

    /// When the node is to be killed in the append that it begins.
    pub(super) fn begin_append(&self, node: u16) -> Option<AppendStage> {
        let mut state = self.state.lock();
        let (left, stage) = state.deaths.get_mut(&node)?;
        *left = left.saturating_sub(1);
        (*left == 0).then_some(*stage)
    }

    pub(super) fn is_full_for(&self, node: u16, now: Duration) -> bool {
        self.state.lock().outages.get(&node).is_some_and(|when| when.contains(&now))
    }

    /// Does something to a log; nothing if it was removed.
    pub(super) fn with<T>(
        &self,
        owner: LogOwner,
        work: impl FnOnce(&mut DiskLog) -> T,
    ) -> Option<T> {
        self.state.lock().logs.get_mut(&owner).map(work)
    }
}

pub(super) fn failed(what: &'static str, kind: io::ErrorKind) -> LogError {
    LogError::new(what, PLACE, kind.into())
}
