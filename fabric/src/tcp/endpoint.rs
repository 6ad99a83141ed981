//! The endpoint of a node: registers regions and makes queue pairs.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::client::queue_pair::TcpQueuePair;
use super::config::Admission;
use super::node::{TcpNode, random_bits};
use super::security::access_card::AccessCard;
use crate::api::{Endpoint, LocalRegion, QueuePair};
use crate::doorbell::Doorbell;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey};
use crate::mem::node::{MAX_REGION_BYTES, MAX_REGIONS, MemRegion, SLOT_BITS};
use crate::mem::words::{PAGE_BYTES, Words};

pub(crate) struct TcpEndpoint {
    node: Arc<TcpNode>,
}

impl TcpEndpoint {
    pub(super) fn new(node: Arc<TcpNode>) -> Self {
        Self { node }
    }
}

impl Endpoint for TcpEndpoint {
    fn id(&self) -> PeerId {
        self.node.host.id()
    }

    fn access_card(&self) -> Option<String> {
        let config = &self.node.process.config;
        let listens = self.node.host.listen_addr();
        let ip = config.advertise.unwrap_or(listens.ip());
        let addr = SocketAddr::new(ip, listens.port());
        let card = AccessCard { addr, key: self.node.access.hash() };
        (config.admission == Admission::ByCard).then(|| card.to_text())
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
        Ok(Arc::new(self.connect_queue_pair(peer)?))
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.node.driver.silence_of(peer)
    }
}

impl TcpEndpoint {
    /// A queue pair to `peer`.
    pub(crate) fn connect_queue_pair(&self, peer: PeerId) -> Result<TcpQueuePair, FabricError> {
        self.node.host.node().check_alive()?;
        let link = self.node.connect(peer)?;
        Ok(TcpQueuePair::new(Arc::clone(&self.node), link))
    }

    /// Registers memory that `prepare` makes ready first.
    fn register_words(
        &self,
        bytes: usize,
        prepare: impl FnOnce(&Words) -> Result<(), FabricError>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        Ok(self.register_with(bytes, Doorbell::new(), prepare)?)
    }

    /// As above, with a doorbell that the caller made.
    pub(crate) fn register_with(
        &self,
        bytes: usize,
        doorbell: Doorbell,
        prepare: impl FnOnce(&Words) -> Result<(), FabricError>,
    ) -> Result<Arc<MemRegion>, FabricError> {
        let node = self.node.host.node();
        node.check_alive()?;
        if !(1..=MAX_REGION_BYTES).contains(&(bytes as u64)) {
            return Err(FabricError::RegionBytes { bytes: bytes as u64, limit: MAX_REGION_BYTES });
        }
        let mut registered = self.node.registered.lock();
        let full = FabricError::TooManyRegions { peer: self.id(), limit: MAX_REGIONS };
        if *registered == MAX_REGIONS {
            return Err(full);
        }
        let words = Words::zeroed(bytes.div_ceil(PAGE_BYTES))
            .ok_or(FabricError::OutOfMemory { bytes: bytes as u64 })?;
        prepare(&words)?;
        let secret = loop {
            let secret = (random_bits(self.id())? as u32) << SLOT_BITS;
            if secret != 0 {
                break secret;
            }
        };
        let key = RegionKey::from_raw(secret | *registered);
        let region = MemRegion::new(key, words, doorbell);
        let region = node.enter(*registered as usize, region).ok_or(full)?;
        *registered += 1;
        Ok(Arc::clone(region))
    }
}
