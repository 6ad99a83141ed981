//! `ShmFabric`, its endpoints and queue pairs.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::attendant;
use super::control_page::SharedDoorbellWord;
use super::held::HeldNode;
use super::mapping::Mapping;
use super::node::{ShmNode, ShmNodeGuard};
use super::peer::ShmPeer;
use super::segment::{Segment, open_root, random};
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::completion::Completion;
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MAX_REGION_BYTES, MAX_REGIONS, MemRegion, SLOT_BITS};
use crate::mem::words::{PAGE_BYTES, Words};
use crate::sync::Word;
use crate::verb::{Chain, Verb};

/// A fabric between the processes of one host. Any number of processes can open it by its root.
pub struct ShmFabric {
    root: PathBuf,
}

impl ShmFabric {
    /// The fabric with the directory `root`, on a file system in memory. Makes the directory if it
    /// does not exist.
    ///
    /// # Errors
    /// `Segment` if it cannot be made.
    pub fn open(root: impl Into<PathBuf>) -> Result<Arc<Self>, FabricError> {
        let root = root.into();
        open_root(&root)?;
        Ok(Arc::new(Self { root }))
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether `peer` has joined and is alive.
    ///
    /// # Errors
    /// `Segment` if its files cannot be read.
    pub fn lives(&self, peer: PeerId) -> Result<bool, FabricError> {
        match Segment::open(&self.root, peer) {
            Ok((segment, control)) => Ok(!control.is_dead() && !segment.owner_is_gone()?),
            Err(FabricError::UnknownPeer { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Declares `peer` dead, and returns once it can execute nothing more. Its memory is not
    /// touched. Blocks for a verb or two. Does nothing if there is no such peer.
    ///
    /// # Errors
    /// `StillExecuting` if the node is still in the middle of a verb after `patience`, because its
    /// process was stopped there. It is marked dead, but may finish that verb when it resumes,
    /// unless it is killed first. `Segment` if its files cannot be read.
    pub fn fence_patiently(&self, peer: PeerId, patience: Duration) -> Result<(), FabricError> {
        self.find(peer)?.map_or(Ok(()), |held| held.fence_patiently(patience))
    }

    /// Holds a node by its files, and its memory with it, if there is such a node.
    ///
    /// # Errors
    /// `Segment` if its files cannot be read.
    pub fn hold(&self, peer: PeerId) -> Result<Option<HeldNode>, FabricError> {
        self.find(peer)?.map(HeldNode::with_memory).transpose()
    }

    fn find(&self, peer: PeerId) -> Result<Option<HeldNode>, FabricError> {
        match Segment::open(&self.root, peer) {
            Ok(opened) => Ok(Some(HeldNode::new(peer, opened))),
            Err(FabricError::UnknownPeer { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ShmFabric {
    fn join_as(&self, id: PeerId) -> Result<Arc<ShmEndpoint>, FabricError> {
        let (segment, control) = Segment::create(&self.root, id)?;
        let node = ShmNode::new(self.root.clone(), id, segment, control);
        let node = ShmNodeGuard(Arc::new(node));
        attendant::start(&node.0, &node.control)?;
        Ok(Arc::new(ShmEndpoint { node: Arc::new(node) }))
    }
}

impl Fabric for ShmFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        Ok(self.join_as(id)?)
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        let remove = || match Segment::open(&self.root, peer) {
            Ok((segment, control)) => {
                Ok(segment.owner_is_gone()? && segment.try_leave(control.incarnation())?)
            }
            Err(FabricError::UnknownPeer { .. }) => Ok(true),
            Err(error) => Err(error),
        };
        remove().unwrap_or_else(|error| {
            // It would fail again. A node that joins by this name gets the error.
            tracing::warn!(node = %peer, %error, "cannot remove what a node has left behind");
            true
        })
    }

    /// Kills a process that was stopped in the middle of a verb: nothing else keeps it from
    /// finishing that verb.
    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        if let Some(held) = self.find(peer)? {
            held.fence()?;
        }
        Ok(FenceScope::Everywhere)
    }
}

struct ShmEndpoint {
    node: Arc<ShmNodeGuard>,
}

impl Endpoint for ShmEndpoint {
    fn id(&self) -> PeerId {
        self.node.node.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.register_mapping(bytes, |segment, slot, bytes| segment.create_region(slot, bytes))
    }

    fn register_populated(
        &self,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.register_mapping(bytes, |segment, slot, bytes| {
            segment.create_populated_region(slot, bytes, told)
        })
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        self.node.check_alive()?;
        let target = self.node.peer(peer)?;
        Ok(Arc::new(ShmQueuePair { owner: Arc::clone(&self.node), target }))
    }
}

impl ShmEndpoint {
    /// Registers the memory of a file that `make` makes.
    fn register_mapping(
        &self,
        bytes: usize,
        make: impl FnOnce(&Segment, usize, usize) -> Result<Mapping, FabricError>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        let own = &self.node;
        own.check_alive()?;
        if !(1..=MAX_REGION_BYTES).contains(&(bytes as u64)) {
            return Err(FabricError::RegionBytes { bytes: bytes as u64, limit: MAX_REGION_BYTES });
        }
        let mut registered = own.registered.lock();
        let slot = *registered as usize;
        let full = FabricError::TooManyRegions { peer: self.id(), limit: MAX_REGIONS };
        if *registered == MAX_REGIONS {
            return Err(full);
        }
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let words = Words::mapped(make(&own.segment, slot, bytes)?);
        let secret = (random()? as u32 | 1) << SLOT_BITS;
        let key = RegionKey::from_raw(secret | *registered);
        let doorbell = Doorbell::at(Word::Shared(SharedDoorbellWord::new(&own.control, slot)));
        let region = own.node.enter(slot, MemRegion::new(key, words, doorbell)).ok_or(full)?;
        own.control.publish_region(slot, key, bytes);
        *registered += 1;
        Ok(Arc::clone(region) as Arc<dyn LocalRegion>)
    }
}

struct ShmQueuePair {
    owner: Arc<ShmNodeGuard>,
    target: Arc<ShmPeer>,
}

impl ShmQueuePair {
    #[inline]
    fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        if self.target.control.is_dead() {
            return Err(FabricError::PeerDead { peer: self.target.id() });
        }
        self.owner.check_alive()?;
        self.target.execute(verb)
    }
}

impl QueuePair for ShmQueuePair {
    fn peer(&self) -> PeerId {
        self.target.id()
    }

    fn post(&self, mut chain: Chain) -> Completion {
        let announced = self.owner.control.announce();
        let mut executed = 0;
        let mut failure = None;
        for verb in &mut chain.verbs {
            match self.execute(verb) {
                Ok(()) => executed += 1,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        drop(announced);
        match failure {
            None => Completion::ready(Ok(chain)),
            Some(error) => Completion::failed(chain, executed, error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by scenarios: a process ended while the attendant of its node looked after the peers,
    /// and left the node's memory behind.
    #[test]
    fn a_node_leaves_while_its_attendant_is_at_work() {
        let root = tempfile::tempdir().unwrap();
        let fabric = ShmFabric::open(root.path().join("fabric")).unwrap();
        let endpoint = fabric.join_as(PeerId::compute(1)).unwrap();
        let at_work = Arc::clone(&endpoint.node.0);
        endpoint.register(4096).unwrap();
        drop(endpoint);
        assert!(!fabric.lives(PeerId::compute(1)).unwrap());
        assert!(!fabric.root().join("cn1").exists(), "nothing is left");
        drop(at_work);
    }
}
