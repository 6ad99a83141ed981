//! What a node knows of its snapshots and images.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::active::ActiveSnapshots;
use super::link::ImageLink;
use super::stamp::Stamp;

#[derive(Default)]
pub(super) struct Kept {
    pub(super) active: BTreeMap<Stamp, usize>,
    pub(super) images: HashMap<u64, Image>,
    pub(super) next: u64,
}

pub(super) struct Image {
    pub(super) from: Stamp,
    pub(super) until: Stamp,
    pub(super) previous: ImageLink,
    pub(super) page: Box<[u8]>,
}

/// Snapshots and images of one node.
#[derive(Default)]
pub(crate) struct SnapshotState {
    pub(super) kept: Arc<Mutex<Kept>>,
}

impl SnapshotState {
    pub(super) fn active(&self) -> ActiveSnapshots {
        let mut active = ActiveSnapshots::none();
        self.kept.lock().active.keys().for_each(|snapshot| active.add(*snapshot));
        active
    }
}

/// A state of the pool, which can be read until this is dropped.
pub struct Snapshot {
    pub(super) stamp: Stamp,
    pub(super) kept: Arc<Mutex<Kept>>,
}

impl Snapshot {
    /// What was committed up to this stamp is in the snapshot, and nothing else.
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut kept = self.kept.lock();
        if let Some(count) = kept.active.get_mut(&self.stamp) {
            *count -= 1;
            if *count == 0 {
                kept.active.remove(&self.stamp);
            }
        }
    }
}
