//! The nodes that a run loses.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::PeerId;

/// The nodes that are lost for good. The plan does not name all of them.
#[derive(Clone, Default)]
pub(super) struct LostNodes(Arc<Mutex<Losses>>);

#[derive(Default)]
pub(super) struct Losses {
    nodes: BTreeSet<PeerId>,
    are_over: bool,
}

impl LostNodes {
    /// These nodes.
    pub(super) fn of(nodes: &[PeerId]) -> Self {
        let losses = Losses { nodes: nodes.iter().copied().collect(), are_over: false };
        Self(Arc::new(Mutex::new(losses)))
    }

    /// Adds a node, unless losses are over; returns whether it may be lost.
    pub(super) fn add(&self, peer: PeerId) -> bool {
        let mut losses = self.0.lock();
        if !losses.are_over {
            losses.nodes.insert(peer);
        }
        !losses.are_over
    }

    pub(super) fn has_compute(&self, node: usize) -> bool {
        self.0.lock().nodes.contains(&PeerId::compute(node as u16))
    }

    pub(super) fn all(&self) -> Vec<PeerId> {
        self.0.lock().nodes.iter().copied().collect()
    }

    /// Ends the losses; returns all lost nodes.
    pub(super) fn end(&self) -> Vec<PeerId> {
        self.0.lock().are_over = true;
        self.all()
    }
}
