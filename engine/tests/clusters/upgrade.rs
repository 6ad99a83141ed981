//! Upgrades that meet other readers between their compare-and-swaps.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::{
    Chain, Completion, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair,
    Verb,
};

use crate::common::{Cluster, engine_config, page, pool_config};

type Hook = Box<dyn FnOnce() + Send>;

/// A fabric that does something of the test's just before the next-but-one compare-and-swap.
struct Interposed {
    inner: Arc<dyn Fabric>,
    /// What to do, and the compare-and-swaps to let pass first.
    armed: Arc<Mutex<Option<(u32, Hook)>>>,
}

struct InterposedEndpoint(Arc<dyn Endpoint>, Arc<Mutex<Option<(u32, Hook)>>>);

struct InterposedQueuePair(Arc<dyn QueuePair>, Arc<Mutex<Option<(u32, Hook)>>>);

impl Fabric for Interposed {
    fn join(&self, id: PeerId) -> Result<Arc<dyn Endpoint>, FabricError> {
        Ok(Arc::new(InterposedEndpoint(self.inner.join(id)?, Arc::clone(&self.armed))))
    }

    fn fence(&self, peer: PeerId) -> Result<FenceScope, FabricError> {
        self.inner.fence(peer)
    }
}

impl Endpoint for InterposedEndpoint {
    fn id(&self) -> PeerId {
        self.0.id()
    }

    fn register(&self, bytes: usize) -> Result<Arc<dyn LocalRegion>, FabricError> {
        self.0.register(bytes)
    }

    fn connect(&self, peer: PeerId) -> Result<Arc<dyn QueuePair>, FabricError> {
        Ok(Arc::new(InterposedQueuePair(self.0.connect(peer)?, Arc::clone(&self.1))))
    }
}

impl QueuePair for InterposedQueuePair {
    fn peer(&self) -> PeerId {
        self.0.peer()
    }

    fn post(&self, chain: Chain) -> Completion {
        if chain.verbs.iter().any(|verb| matches!(verb, Verb::CompareAndSwap { .. })) {
            let mut armed = self.1.lock();
            let due = match &mut *armed {
                Some((0, _)) => armed.take(),
                Some((left, _)) => {
                    *left -= 1;
                    None
                }
                None => None,
            };
            drop(armed);
            if let Some((_, hook)) = due {
                hook();
            }
        }
        self.0.post(chain)
    }
}

/// An upgrade that fails because the readers changed between its two compare-and-swaps; before it
/// the reader may have given up its copy, and left its bit in the word.
fn upgrades_between_readers(evicts: bool) {
    let armed = Arc::new(Mutex::new(None));
    let hooks = Arc::clone(&armed);
    let mut config = engine_config();
    config.request_timeout = Duration::from_secs(5);
    let fabric = |_: &_| Arc::new(Interposed { inner: MemFabric::new(), armed: hooks }) as _;
    let cluster = Cluster::with(3, fabric, pool_config(1, 4 << 20), config);
    let [a, b, c] = &cluster.engines[..] else { panic!("three engines") };
    cluster.run(async {
        let addr = page(b).await;
        drop(b.shared(addr).await.unwrap());
        drop(a.shared(addr).await.unwrap());
        if evicts {
            a.evict(addr).await.unwrap();
        }
        // The first compare-and-swap finds b; c comes before the second, the writer's intent.
        let newcomer = c.clone();
        let read = move || {
            let access = std::pin::pin!(newcomer.shared(addr));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(access.poll(&mut context).is_ready(), "no holder is in the way");
        };
        *armed.lock() = Some((1, Box::new(read) as Hook));
        drop(a.exclusive(addr).await.unwrap());
        assert!(armed.lock().is_none(), "the newcomer came in between");
    });
    cluster.close_and_check();
}

/// Found by the tree's stress: its caller was left asleep, in a queue that no task would wake.
#[test]
fn an_upgrade_that_meets_changed_readers_tries_again() {
    upgrades_between_readers(false);
}

/// Found under slabs that were filled: as above.
#[test]
fn so_does_one_whose_copy_was_given_up() {
    upgrades_between_readers(true);
}
