//! `VerbsFabric` and its endpoints.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Resource, geteuid, getrlimit};

use super::config::VerbsConfig;
use super::connection::Connection;
use super::device::{Device, DeviceInfo};
use super::error::VerbsError;
use super::hub::{Hub, HubRings, Times, VerbsCounters};
use super::queue_pair::VerbsQueuePair;
use super::region::VerbsRegion;
use super::targets::Targets;
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::domain::Domain;
use crate::doorbell::Doorbell;
use crate::env::Env;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::mem::words::Words;
use crate::tcp::TcpFabric;
use crate::tcp::endpoint::TcpEndpoint;

/// A fabric on RDMA devices. See the module.
pub struct VerbsFabric {
    tcp: Arc<TcpFabric>,
    config: VerbsConfig,
    env: Env,
    info: DeviceInfo,
    nodes: Mutex<HashMap<PeerId, Weak<NodeCore>>>,
}

impl VerbsFabric {
    /// Probes the device that was chosen, or else the first that has atomics, an active port and an
    /// address, and makes a fabric without nodes. The address is chosen by how far it reaches:
    /// of RoCE version 2 before others, of a network before those of a link.
    ///
    /// # Errors
    /// What is missing, and what to do about it.
    pub fn open(config: VerbsConfig, env: Env) -> Result<Arc<Self>, VerbsError> {
        let info = Device::open(&config.device)?.info;
        let tcp = TcpFabric::new(config.tcp.clone(), env.clone());
        Ok(Arc::new(Self { tcp, config, env, info, nodes: Mutex::default() }))
    }

    /// The connections over which queue pairs are set up: where peers are, who is let in, and which
    /// other protocols are served at the same ports.
    pub fn tcp(&self) -> &Arc<TcpFabric> {
        &self.tcp
    }

    /// The device in use.
    pub fn device(&self) -> &DeviceInfo {
        &self.info
    }

    /// What a node of this process has done; zeros if there is no such node.
    pub fn counters(&self, node: PeerId) -> VerbsCounters {
        self.core(node).map(|core| core.hub.counting.read()).unwrap_or_default()
    }

    /// How many queue pairs a node of this process has: those that post, and those that serve
    /// guests.
    pub fn queue_pairs(&self, node: PeerId) -> (usize, usize) {
        self.core(node).map(|core| core.hub.queue_pairs()).unwrap_or_default()
    }

    fn core(&self, node: PeerId) -> Option<Arc<NodeCore>> {
        self.nodes.lock().get(&node).and_then(Weak::upgrade)
    }
}

impl Fabric for VerbsFabric {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let failed = |what: String| FabricError::Network { peer: id, what };
        let device =
            Device::open(&self.config.device).map_err(|error| failed(error.to_string()))?;
        let times =
            Times { poll_for: self.config.poll_for, dead_after: self.config.tcp.dead_after };
        let hub = Hub::start(id, device, self.env.clone(), times)
            .map_err(|error| failed(format!("the RDMA device gives no queues: {error}")))?;
        let core = Arc::new(NodeCore { hub: Arc::clone(&hub), endpoint: OnceLock::new() });
        let targets = Arc::new(Targets::new(hub));
        let endpoint = self.tcp.join_as(id, Some(targets))?;
        // It is empty: it was made just now.
        let _ = core.endpoint.set(endpoint);
        let before = self.nodes.lock().insert(id, Arc::downgrade(&core));
        drop(before);
        Ok(Arc::new(VerbsEndpoint { core }))
    }

    /// Holds in this process, as that of `tcp` does: the sessions of the peer are closed, and with
    /// each its queue pair is destroyed here before this returns.
    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.tcp.fence(peer)
    }

    fn add_peer(
        &self,
        peer: PeerId,
        access_card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        self.tcp.add_peer(peer, access_card, within)
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        self.tcp.remove_peer(peer)
    }
}

/// A node of this process. It leaves when its endpoint and its queue pairs are gone.
pub(super) struct NodeCore {
    hub: Arc<Hub>,
    endpoint: OnceLock<Arc<TcpEndpoint>>,
}

impl NodeCore {
    fn endpoint(&self) -> Result<&Arc<TcpEndpoint>, FabricError> {
        self.endpoint.get().ok_or(FabricError::PeerDead { peer: self.hub.id() })
    }
}

impl Drop for NodeCore {
    fn drop(&mut self) {
        self.hub.stop();
    }
}

struct VerbsEndpoint {
    core: Arc<NodeCore>,
}

impl VerbsEndpoint {
    fn register_words(
        &self,
        bytes: usize,
        prepare: impl FnOnce(&Words) -> Result<(), FabricError>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        let hub = &self.core.hub;
        check_locked_memory(hub.id(), bytes as u64)?;
        let doorbell = Doorbell::collecting(Box::new(HubRings(Arc::downgrade(hub))));
        let region = self.core.endpoint()?.register_with(bytes, doorbell, prepare)?;
        hub.enter_region(Arc::clone(&region));
        Ok(Arc::new(VerbsRegion(region)))
    }
}

/// Refuses memory that the device could not pin.
fn check_locked_memory(node: PeerId, bytes: u64) -> Result<(), FabricError> {
    match getrlimit(Resource::Memlock).current {
        Some(limit) if limit < bytes && !geteuid().is_root() => {
            let what = format!(
                "its limit of locked memory is {} KiB, and cards need all of a region locked, {} \
                 KiB: raise it (`ulimit -l unlimited`, or LimitMEMLOCK=infinity in its unit)",
                limit >> 10,
                bytes.div_ceil(1 << 10)
            );
            Err(FabricError::Network { peer: node, what })
        }
        _ => Ok(()),
    }
}

impl Endpoint for VerbsEndpoint {
    fn id(&self) -> PeerId {
        self.core.hub.id()
    }

    fn access_card(&self) -> Option<String> {
        self.core.endpoint().ok()?.access_card()
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.core.endpoint().map_or(Duration::ZERO, |endpoint| endpoint.silence_of(peer))
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.register_words(bytes, |_| Ok(()))
    }

    fn register_populated(
        &self,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.register_words(bytes, |words| words.populate(told))
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let session = self.core.endpoint()?.connect_queue_pair(peer)?;
        let connection = Connection::begin(&self.core.hub, peer, session)?;
        Ok(Arc::new(VerbsQueuePair::new(Arc::clone(&self.core), connection)))
    }
}
