//! A task that reads one page at the node that is cut off, and fails at a stale value.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::env::{Env, TaskHandle};
use selkie_pool::{ComputeIndex, Pool};

use crate::common::processes::{Processes, value, write};

pub(super) const LEASE: Duration = Duration::from_secs(2);
/// The node whose way to the plane is cut.
pub(super) const CUT: ComputeIndex = ComputeIndex::new(0);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Reads a page at one node again and again, and asserts that nothing that it gets is older than
/// what is written.
pub(super) struct Reader {
    seen: Arc<Seen>,
    task: TaskHandle,
}

#[derive(Default)]
struct Seen {
    /// What has been written when a read begins.
    written: AtomicU64,
    reads: AtomicU64,
    /// Nanoseconds of the environment's clock.
    latest: AtomicU64,
    ends: AtomicBool,
    error: Mutex<Option<EngineError>>,
}

impl Reader {
    pub(super) fn start(engine: &Engine, addr: GAddr, env: &Env) -> Self {
        let seen = Arc::new(Seen::default());
        let (engine, env) = (engine.clone(), env.clone());
        let task = {
            let (seen, env) = (Arc::clone(&seen), env.clone());
            env.clone().spawn("reader", async move {
                while !seen.ends.load(Ordering::SeqCst) {
                    let floor = seen.written.load(Ordering::SeqCst);
                    match value(&engine, addr).await {
                        Ok(value) => assert!(value >= floor, "stale: {value} after {floor}"),
                        Err(error) => {
                            *seen.error.lock() = Some(error);
                            return;
                        }
                    }
                    seen.reads.fetch_add(1, Ordering::SeqCst);
                    seen.latest.store(env.now().as_nanos() as u64, Ordering::SeqCst);
                    env.sleep(Duration::from_micros(300)).await;
                }
            })
        };
        Self { seen, task }
    }

    pub(super) fn reads(&self) -> u64 {
        self.seen.reads.load(Ordering::SeqCst)
    }

    pub(super) fn latest(&self) -> Duration {
        Duration::from_nanos(self.seen.latest.load(Ordering::SeqCst))
    }

    /// From now on nothing else is to be read.
    pub(super) fn written(&self, value: u64) {
        self.seen.written.store(value, Ordering::SeqCst);
    }

    /// Waits until it has not read anything for a while.
    pub(super) async fn stops(&self, env: &Env) {
        until(env, "hits wait", || env.now() - self.latest() > ms(50)).await;
    }

    /// Waits until reads fail because the node was expelled.
    pub(super) async fn ends_expelled(self, env: &Env) {
        until(env, "it ends", || self.seen.error.lock().is_some()).await;
        let error = self.end().await;
        assert!(matches!(error, Some(EngineError::Expelled { .. })), "{error:?}");
    }

    pub(super) async fn end(self) -> Option<EngineError> {
        self.seen.ends.store(true, Ordering::SeqCst);
        self.task.join().await.unwrap();
        self.seen.error.lock().take()
    }
}

pub(super) async fn until(env: &Env, what: &str, is_so: impl Fn() -> bool) {
    let started = env.now();
    while !is_so() {
        assert!(env.now() - started < 10 * LEASE, "not: {what}");
        env.sleep(ms(1)).await;
    }
}

pub(super) async fn is_recovered_from(env: &Env, pool: &Pool) {
    let is_over = || !pool.is_member(CUT) && pool.lost().is_empty();
    until(env, "the others recover from the death", is_over).await;
}

/// A page at the last memory node, or at all, which one node reads from now on.
pub(super) async fn read(processes: &Processes, env: &Env) -> (GAddr, Reader) {
    let [one, two] = &processes.engines;
    let is_on_the_last = |addr: &GAddr| {
        let descriptor = processes.pools[0].descriptor();
        let before =
            descriptor.memory_nodes.iter().rev().skip(1).map(|node| u64::from(node.ranges));
        !descriptor.coding.is_plain()
            || addr.to_u64() >= before.sum::<u64>() * descriptor.range_bytes
    };
    let addr = loop {
        let addr = two.allocate().await.unwrap().addr();
        if is_on_the_last(&addr) {
            break addr;
        }
    };
    write(two, addr, 1).await;
    let reader = Reader::start(one, addr, env);
    reader.written(1);
    env.sleep(LEASE).await;
    assert!(reader.reads() > 1_000);
    (addr, reader)
}

pub(super) fn silent_for(processes: &Processes, env: &Env) -> Duration {
    processes.pools[0].signs_of_life(env.now()).silent_for
}

pub(super) fn renewals(processes: &Processes) -> u64 {
    processes.pools[1].state().compute_nodes[&CUT.get()].renewals
}
