//! Upgrades that meet other readers between their compare-and-swaps.

#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::EngineError;
use selkie_fabric::mem::MemFabric;
use selkie_fabric::meter::Meter;
use selkie_fabric::{
    Chain, Completion, Endpoint, Fabric, FabricError, FenceScope, LocalRegion, PeerId, QueuePair,
    Verb,
};

use crate::common::{Cluster, engine_config, page, pool_config};

/// Bit position of the holder in a latch word.
const HOLDER_SHIFT: u32 = 58;

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

/// A writer that was refused cancels its intent, or dies before it can, and is in the word until it
/// has been recovered from. The upgrade was tried again without a pause, a round trip each.
#[test]
fn an_upgrade_that_a_refused_writer_is_in_the_way_of_pauses() {
    let meter = Meter::wrap(MemFabric::new());
    let fabric = |_: &_| Arc::clone(&meter) as Arc<dyn Fabric>;
    let cluster = Cluster::with(2, fabric, pool_config(1, 4 << 20), engine_config());
    let [a, writer] = &cluster.engines[..] else { panic!("two engines") };
    let env = cluster.runtime.env();
    cluster.run(async {
        let addr = page(a).await;
        a.evict(addr).await.unwrap();
        let guard = a.shared(addr).await.unwrap();
        let refused = writer.try_exclusive(addr).await.map(drop);
        assert!(matches!(refused, Err(EngineError::Busy { .. })), "{refused:?}");
        let (node, offset, word) = loop {
            let words = cluster.latched_words().await;
            let [found] = &words[..] else { panic!("one page is in use: {words:x?}") };
            if found.2 >> HOLDER_SHIFT == 0 {
                break *found;
            }
            env.sleep(Duration::from_millis(1)).await;
        };
        // As if the intent had not been cancelled.
        let intent = 2 << HOLDER_SHIFT | word & !0b10;
        assert!(cluster.swap_word(node, offset, word, intent).await);
        drop(guard);
        let before = meter.snapshot(PeerId::compute(0));
        let began = env.now();
        let mut upgrade = std::pin::pin!(a.exclusive(addr));
        let mut until = std::pin::pin!(env.sleep(Duration::from_millis(100)));
        std::future::poll_fn(|cx| {
            assert!(upgrade.as_mut().poll(cx).is_pending(), "another node is in the word");
            until.as_mut().poll(cx)
        })
        .await;
        let (took, after) = (env.now() - began, meter.snapshot(PeerId::compute(0)));
        let verbs = after.reads + after.atomics - before.reads - before.atomics;
        println!("{verbs} verbs in {took:?}");
        // Some of them are of the node's ticks.
        let ticks = took.as_millis() as u64;
        assert!(verbs < 8 * ticks + 50, "{verbs} verbs in {took:?}");
        let served = env.now();
        assert!(cluster.swap_word(node, offset, intent, word).await);
        drop(upgrade.await.unwrap());
        let pause = env.now() - served;
        assert!(pause < Duration::from_secs(1), "it still paused for {pause:?}");
    });
    cluster.close_and_check();
}
