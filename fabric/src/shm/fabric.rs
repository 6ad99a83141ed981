//! `ShmFabric`, its endpoints and queue pairs.

use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};

use super::attendant;
use super::control::{Control, SharedWord};
use super::segment::{Segment, open_root, random};
use crate::api::{Endpoint, Fabric, LocalRegion, QueuePair, Reach};
use crate::completion::Completion;
use crate::doorbell::{Doorbell, ring_word};
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MAX_REGION_BYTES, MAX_REGIONS, MemRegion, Node, SLOT_BITS, slot_of};
use crate::mem::queue_pair::apply;
use crate::mem::words::{PAGE_BYTES, Words};
use crate::sync::Word;
use crate::verb::{Chain, Verb};

/// How long [`ShmFabric`] waits for a verb of a node it fences.
const FENCE_PATIENCE: Duration = Duration::from_millis(200);
/// How long a pause [`ShmFabric::fence_patiently`] makes between two looks.
const FENCE_PAUSE: Duration = Duration::from_micros(50);

/// A fabric between the processes of one host. Any number of processes open it by its root.
pub struct ShmFabric {
    root: PathBuf,
}

impl ShmFabric {
    /// The fabric whose directory is `root`, on a file system in memory; it is made if it does not
    /// exist.
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

    /// Whether `peer` is there and alive.
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
    /// touched. Blocks for a verb or two. Nothing happens if there is no such peer.
    ///
    /// # Errors
    /// `StillExecuting` if after `patience` the node is in the middle of a verb, as its process was
    /// stopped there: it is marked dead, but may finish that verb once it goes on, unless it is
    /// ended first. `Segment` if its files cannot be read.
    pub fn fence_patiently(&self, peer: PeerId, patience: Duration) -> Result<(), FabricError> {
        let (segment, control) = match Segment::open(&self.root, peer) {
            Ok(opened) => opened,
            Err(FabricError::UnknownPeer { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        control.mark_dead();
        let until = Instant::now() + patience;
        while control.is_executing() && !segment.owner_is_gone()? {
            if Instant::now() >= until {
                return Err(FabricError::StillExecuting { peer, process: control.process() });
            }
            thread::sleep(FENCE_PAUSE);
        }
        Ok(())
    }
}

impl ShmFabric {
    fn join_as(&self, id: PeerId) -> Result<Arc<ShmEndpoint>, FabricError> {
        let (segment, control) = Segment::create(&self.root, id)?;
        let (control, node) = (Arc::new(control), Node::new(id));
        let (registered, mirrors) = (Mutex::new(0), Mutex::default());
        let root = self.root.clone();
        let own = Stay(Arc::new(Own { root, segment, control, node, registered, mirrors }));
        attendant::start(&own.0, &own.control)?;
        Ok(Arc::new(ShmEndpoint { own: Arc::new(own) }))
    }
}

impl Fabric for ShmFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        Ok(self.join_as(id)?)
    }

    /// A process that was stopped in the middle of a verb is ended: nothing else can keep it from
    /// finishing.
    fn forget(&self, peer: PeerId) -> bool {
        let remove = || match Segment::open(&self.root, peer) {
            Ok((segment, control)) => {
                Ok(segment.owner_is_gone()? && segment.try_leave(control.incarnation())?)
            }
            Err(FabricError::UnknownPeer { .. }) => Ok(true),
            Err(error) => Err(error),
        };
        remove().unwrap_or_else(|error| {
            // It would fail again; whoever wants the name is told why.
            tracing::warn!(node = %peer, %error, "cannot remove what a node has left behind");
            true
        })
    }

    fn fence(&self, peer: PeerId) -> Result<Reach, FabricError> {
        match self.fence_patiently(peer, FENCE_PATIENCE) {
            Err(FabricError::StillExecuting { process, .. }) => {
                tracing::warn!(node = %peer, process, "end a process that stands still in a verb");
                end_process(process);
                self.fence_patiently(peer, FENCE_PATIENCE)?;
            }
            fenced => fenced?,
        }
        tracing::debug!(node = %peer, "fenced");
        Ok(Reach::Everywhere)
    }
}

fn end_process(process: u64) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw);
    // It may have ended by itself, which is as good.
    let _ = process.map(|process| kill_process(process, Signal::KILL));
}

/// A node of this process while it stays: it leaves when its endpoint and queue pairs are gone. Its
/// attendant has no share in that, as the process may end before it comes to see that it is the
/// last.
struct Stay(Arc<Own>);

impl Deref for Stay {
    type Target = Own;

    fn deref(&self) -> &Own {
        &self.0
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.control.mark_dead();
        // What cannot be removed now is removed by whoever wants the name.
        let _ = self.segment.leave(self.control.incarnation());
    }
}

/// A node of this process.
pub(super) struct Own {
    root: PathBuf,
    segment: Segment,
    control: Arc<Control>,
    node: Node,
    /// Regions registered; its lock orders registrations.
    registered: Mutex<u32>,
    mirrors: Mutex<HashMap<PeerId, Arc<Mirror>>>,
}

impl Own {
    fn check_alive(&self) -> Result<(), FabricError> {
        let peer = self.node.id();
        if self.control.is_dead() { Err(FabricError::PeerDead { peer }) } else { Ok(()) }
    }

    /// Wakes those who wait for doorbells that have been rung.
    pub(super) fn wake_rung(&self) {
        self.node.regions().for_each(|region| region.doorbell().wake_passed());
    }

    /// Marks the peers whose process is gone.
    pub(super) fn look_after_peers(&self) {
        let mirrors: Vec<_> = self.mirrors.lock().values().map(Arc::clone).collect();
        for mirror in mirrors {
            // A lock that cannot be tried says nothing.
            if !mirror.control.is_dead() && mirror.segment.owner_is_gone().unwrap_or(false) {
                mirror.control.mark_dead();
            }
        }
        // What nobody here uses any more need not be kept in memory.
        let is_used = |mirror: &Arc<Mirror>| Arc::strong_count(mirror) > 1;
        self.mirrors.lock().retain(|_, mirror| !mirror.control.is_dead() || is_used(mirror));
    }

    fn mirror_of(&self, peer: PeerId) -> Result<Arc<Mirror>, FabricError> {
        let (segment, control) = Segment::open(&self.root, peer)?;
        if control.is_dead() || segment.owner_is_gone()? {
            control.mark_dead();
            return Err(FabricError::PeerDead { peer });
        }
        let mut mirrors = self.mirrors.lock();
        if let Some(known) = mirrors.get(&peer)
            && known.control.incarnation() == control.incarnation()
        {
            return Ok(Arc::clone(known));
        }
        let mirror = Arc::new(Mirror { segment, control, node: Node::new(peer) });
        mirrors.insert(peer, Arc::clone(&mirror));
        Ok(mirror)
    }
}

/// A peer as this node sees it: the regions it has used so far.
struct Mirror {
    segment: Segment,
    control: Control,
    node: Node,
}

impl Mirror {
    /// Maps the region with this key, if the peer has it.
    #[cold]
    fn map(&self, key: RegionKey) -> Result<(), FabricError> {
        let unknown = FabricError::UnknownRegion { peer: self.node.id(), region: key };
        let slot = slot_of(key);
        let Some((_, bytes)) = self.control.region(slot).filter(|(known, _)| *known == key) else {
            return Err(unknown);
        };
        let words = Words::mapped(self.segment.open_region(slot, bytes)?);
        // Nobody waits for it here.
        let region = MemRegion::new(key, words, Doorbell::new());
        self.node.enter(slot, region).map(drop).ok_or(unknown)
    }

    #[inline]
    fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        match apply(&self.node, verb) {
            Err(FabricError::UnknownRegion { region, .. }) => {
                self.map(region)?;
                apply(&self.node, verb)?;
            }
            done => drop(done?),
        }
        if matches!(verb, Verb::WriteWithDoorbell { .. })
            && ring_word(self.control.doorbell(slot_of(verb.at().region)))
        {
            self.control.call();
        }
        Ok(())
    }
}

struct ShmEndpoint {
    own: Arc<Stay>,
}

impl Endpoint for ShmEndpoint {
    fn id(&self) -> PeerId {
        self.own.node.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        let own = &self.own;
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
        let words = Words::mapped(own.segment.create_region(slot, bytes)?);
        let secret = (random()? as u32 | 1) << SLOT_BITS;
        let key = RegionKey::from_raw(secret | *registered);
        let doorbell = Doorbell::at(Word::Shared(SharedWord::new(&own.control, slot)));
        let region = own.node.enter(slot, MemRegion::new(key, words, doorbell)).ok_or(full)?;
        own.control.publish_region(slot, key, bytes);
        *registered += 1;
        Ok(Arc::clone(region) as Arc<dyn LocalRegion>)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        self.own.check_alive()?;
        let target = self.own.mirror_of(peer)?;
        Ok(Arc::new(ShmQueuePair { own: Arc::clone(&self.own), target }))
    }
}

struct ShmQueuePair {
    own: Arc<Stay>,
    target: Arc<Mirror>,
}

impl ShmQueuePair {
    #[inline]
    fn execute(&self, verb: &mut Verb) -> Result<(), FabricError> {
        if self.target.control.is_dead() {
            return Err(FabricError::PeerDead { peer: self.target.node.id() });
        }
        self.own.check_alive()?;
        self.target.execute(verb)
    }
}

impl QueuePair for ShmQueuePair {
    fn peer(&self) -> PeerId {
        self.target.node.id()
    }

    fn post(&self, mut chain: Chain) -> Completion {
        let announced = self.own.control.announce();
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
        let at_work = Arc::clone(&endpoint.own.0);
        endpoint.register(4096).unwrap();
        drop(endpoint);
        assert!(!fabric.lives(PeerId::compute(1)).unwrap());
        assert!(!fabric.root().join("cn1").exists(), "nothing is left");
        drop(at_work);
    }
}
