//! `Meter`: a fabric that counts every chain on its way to the fabric it wraps.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::counters::{Counters, MeterSnapshot};
use crate::api::{Endpoint, Fabric, FenceScope, LocalRegion, QueuePair};
use crate::completion::Completion;
use crate::domain::Domain;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::Chain;

/// Counts round trips, verbs and bytes per endpoint. Costs a few relaxed atomic adds a chain.
pub struct Meter {
    inner: Arc<dyn Fabric>,
    /// By endpoint; kept when a node dies and another joins under its name.
    counters: Mutex<HashMap<PeerId, Arc<Counters>>>,
}

impl Meter {
    /// Counts what passes to `inner`.
    pub fn wrap(inner: Arc<dyn Fabric>) -> Arc<Self> {
        Arc::new(Self { inner, counters: Mutex::default() })
    }

    /// What the endpoint `id` has posted so far; zeros if it never joined. Counts of chains posted
    /// meanwhile may be in it or not, each counter on its own.
    pub fn snapshot(&self, id: PeerId) -> MeterSnapshot {
        self.counters.lock().get(&id).map(|counters| counters.snapshot()).unwrap_or_default()
    }

    /// What all endpoints together have posted so far.
    pub fn total(&self) -> MeterSnapshot {
        let counters = self.counters.lock();
        counters.values().fold(MeterSnapshot::default(), |sum, one| sum + one.snapshot())
    }
}

impl Fabric for Meter {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        let inner = self.inner.join(id)?;
        let counters = Arc::clone(self.counters.lock().entry(id).or_default());
        Ok(Arc::new(MeterEndpoint { inner, counters }))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.inner.fence(peer)
    }

    fn add_peer(
        &self,
        peer: PeerId,
        access_card: &str,
        within: Option<&Arc<Domain>>,
    ) -> Result<(), FabricError> {
        self.inner.add_peer(peer, access_card, within)
    }

    fn remove_peer(&self, peer: PeerId) -> bool {
        self.inner.remove_peer(peer)
    }
}

struct MeterEndpoint {
    inner: Arc<dyn Endpoint>,
    counters: Arc<Counters>,
}

impl Endpoint for MeterEndpoint {
    fn id(&self) -> PeerId {
        self.inner.id()
    }

    fn access_card(&self) -> Option<String> {
        self.inner.access_card()
    }

    fn silence_of(&self, peer: PeerId) -> Duration {
        self.inner.silence_of(peer)
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.inner.register(bytes)
    }

    fn register_populated(
        &self,
        bytes: usize,
        told: &mut dyn FnMut(usize) -> ControlFlow<()>,
    ) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.inner.register_populated(bytes, told)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        let inner = self.inner.connect(peer)?;
        let shard = self.counters.assign();
        Ok(Arc::new(MeterQueuePair { inner, counters: Arc::clone(&self.counters), shard }))
    }
}

struct MeterQueuePair {
    inner: Arc<dyn QueuePair>,
    counters: Arc<Counters>,
    shard: usize,
}

impl QueuePair for MeterQueuePair {
    fn peer(&self) -> PeerId {
        self.inner.peer()
    }

    #[inline]
    fn post(&self, chain: Chain) -> Completion {
        self.counters.shard(self.shard).count(&chain);
        self.inner.post(chain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buf, MemFabric, RemoteAddr, Verb};

    #[test]
    fn every_verb_is_counted_once_for_the_endpoint_that_posts_it() {
        let meter = Meter::wrap(MemFabric::new());
        let (node, other) = (PeerId::compute(0), PeerId::compute(1));
        let memory = meter.join(PeerId::memory(0)).unwrap();
        let region = memory.register(4096).unwrap();
        let at = RemoteAddr::new(region.key(), 0);
        let endpoint = meter.join(node).unwrap();
        meter.join(other).unwrap();
        // More queue pairs than shards: the sum must not miss one.
        for _ in 0..10 {
            let queue_pair = endpoint.connect(memory.id()).unwrap();
            let atomics = [Verb::compare_and_swap(at, 0, 1), Verb::fetch_and_add(at, 1)];
            drop(queue_pair.post(atomics.into()));
            drop(queue_pair.post([Verb::read(at, Buf::zeroed(2048))].into()));
            let ring = Verb::write_with_doorbell(at, Buf::zeroed(8));
            drop(queue_pair.post([Verb::write(at, Buf::zeroed(16)), ring].into()));
        }
        let counted = meter.snapshot(node);
        assert_eq!(
            counted,
            MeterSnapshot {
                chains: 30,
                reads: 10,
                writes: 20,
                atomics: 20,
                doorbells: 10,
                bytes_read: 20480,
                bytes_written: 240,
            }
        );
        assert_eq!(meter.snapshot(other), MeterSnapshot::default());
        assert_eq!(meter.snapshot(PeerId::memory(9)), MeterSnapshot::default());
        assert_eq!(meter.total() - counted, MeterSnapshot::default());
        assert_eq!((counted + counted) - counted, counted);
    }
}
