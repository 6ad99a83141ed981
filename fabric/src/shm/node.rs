//! A node of this process: its segment, its control page, its regions, and the peers it has used.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;

use super::control_page::ControlPage;
use super::peer::ShmPeer;
use super::segment::Segment;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::node::Node;

/// A node of this process.
pub(super) struct ShmNode {
    root: PathBuf,
    pub(super) segment: Segment,
    pub(super) control: Arc<ControlPage>,
    pub(super) node: Node,
    /// Count of registered regions. Its lock orders registrations.
    pub(super) registered: Mutex<u32>,
    peers: Mutex<HashMap<PeerId, Arc<ShmPeer>>>,
}

impl ShmNode {
    /// The node of a new segment under `root`.
    pub(super) fn new(root: PathBuf, id: PeerId, segment: Segment, control: ControlPage) -> Self {
        let (control, node) = (Arc::new(control), Node::new(id));
        let (registered, peers) = (Mutex::new(0), Mutex::default());
        Self { root, segment, control, node, registered, peers }
    }

    pub(super) fn check_alive(&self) -> Result<(), FabricError> {
        let peer = self.node.id();
        if self.control.is_dead() { Err(FabricError::PeerDead { peer }) } else { Ok(()) }
    }

    /// Wakes the waiters of doorbells that were rung.
    pub(super) fn wake_rung(&self) {
        self.node.regions().for_each(|region| region.doorbell().wake_passed());
    }

    /// Marks the peers whose process is gone as dead.
    pub(super) fn check_peers(&self) {
        let peers: Vec<_> = self.peers.lock().values().map(Arc::clone).collect();
        for peer in peers {
            // A lock that cannot be tried tells nothing: the next check tries again.
            if !peer.control.is_dead() && peer.segment.owner_is_gone().unwrap_or(false) {
                peer.control.mark_dead();
            }
        }
        // Dead peers without a queue pair are forgotten.
        let is_used = |peer: &Arc<ShmPeer>| Arc::strong_count(peer) > 1;
        self.peers.lock().retain(|_, peer| !peer.control.is_dead() || is_used(peer));
    }

    /// The living peer of this name.
    pub(super) fn peer(&self, id: PeerId) -> Result<Arc<ShmPeer>, FabricError> {
        let (segment, control) = Segment::open(&self.root, id)?;
        if control.is_dead() || segment.owner_is_gone()? {
            control.mark_dead();
            return Err(FabricError::PeerDead { peer: id });
        }
        let mut peers = self.peers.lock();
        if let Some(known) = peers.get(&id)
            && known.control.incarnation() == control.incarnation()
        {
            return Ok(Arc::clone(known));
        }
        let peer = Arc::new(ShmPeer::new(id, segment, control));
        peers.insert(id, Arc::clone(&peer));
        Ok(peer)
    }
}

/// Lets its node leave when it is dropped. The endpoint and the queue pairs of a node share it. The
/// attendant does not: the process may end before the attendant notices that it is the last.
pub(super) struct ShmNodeGuard(pub(super) Arc<ShmNode>);

impl Deref for ShmNodeGuard {
    type Target = ShmNode;

    fn deref(&self) -> &ShmNode {
        &self.0
    }
}

impl Drop for ShmNodeGuard {
    fn drop(&mut self) {
        self.control.mark_dead();
        // If the files cannot be removed now, the next node of this name removes them.
        let _ = self.segment.leave(self.control.incarnation());
    }
}
