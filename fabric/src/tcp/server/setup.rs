//! What another fabric sets up over a session: it writes requests to the region [`SETUP_REGION`],
//! which no node has, and reads the answers there. The session tells it who the guest is, and
//! takes all of it back when it is closed.

use std::sync::Arc;

use crate::domain::Domain;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::Node;

/// The key of no region: those of regions have a secret that is not zero.
pub(crate) const SETUP_REGION: RegionKey = RegionKey::from_raw(0);

/// A guest that was admitted.
#[derive(Clone)]
#[cfg_attr(not(feature = "verbs"), allow(dead_code, reason = "no fabric sets anything up"))]
pub(crate) struct Guest {
    pub(crate) peer: PeerId,
    pub(crate) incarnation: u64,
    /// `None` allows everything.
    pub(crate) domain: Option<Arc<Domain>>,
}

/// What a node sets up for its guests.
pub(crate) trait SetupService: Send + Sync {
    /// For a session of `guest`.
    fn open(&self, guest: Guest) -> Box<dyn SetupSession>;
}

/// What was set up for one session. Once it is dropped, nothing of it executes.
pub(crate) trait SetupSession: Send {
    /// Takes a request, about the memory of `node`.
    fn ask(&mut self, node: &Node, request: &[u8]);

    /// Fills in the answer to the latest request.
    fn answer(&mut self, into: &mut [u8]);
}
