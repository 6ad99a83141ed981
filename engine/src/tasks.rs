//! Tasks of an engine: a panic in one ends the node, rather than leave it half dead.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use selkie_fabric::env::TaskHandle;

use crate::EngineError;
use crate::core::Core;
use crate::telemetry::account::{self, OnAccount};

/// How often a node that has ended tries to tell the pool.
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(10);

impl Core {
    /// Runs a task of this engine in the background. If it panics the node ends, with
    /// [`EngineError::TaskPanicked`] for all callers; the environment is told of the panic too.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        let core = self.this.clone();
        self.env.spawn(name, async move {
            // What the task has left half changed is served by no node: this one ends.
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                if let Some(core) = core.upgrade() {
                    core.end_by_panic(name, &*panic);
                }
                resume_unwind(panic);
            }
        })
    }

    /// As [`spawn`](Self::spawn), of what the future that is polled has begun: it goes on on its
    /// account.
    pub(crate) fn spawn_for_caller(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        match account::current() {
            None => self.spawn(name, task),
            Some(account) => self.spawn(name, OnAccount::new(account, task)),
        }
    }

    /// Ends the node as a part of it has panicked. Does not wait, and takes no lock, so that it may
    /// be called with locks held.
    pub(crate) fn end_by_panic(&self, task: &'static str, panic: &(dyn Any + Send)) {
        let error = EngineError::TaskPanicked { task, message: message_of(panic) };
        if !self.lifecycle.fail_by_panic(error) {
            return;
        }
        self.give_up_soon();
    }

    /// Has a task end all waits of this node, which has failed, and tell the pool.
    pub(crate) fn give_up_soon(&self) {
        let Some(core) = self.this.upgrade() else { return };
        drop(self.env.spawn("end", async move { core.end_and_give_up().await }));
    }

    /// As [`Core::end_by_panic`], for a panic outside of this engine's tasks: the environment is
    /// told of it too.
    pub(crate) fn end_and_report(&self, task: &'static str, panic: Box<dyn Any + Send>) {
        self.end_by_panic(task, &*panic);
        self.report(task, panic);
    }

    /// Tells the environment of a panic that was caught, and does not end the node.
    pub(crate) fn report(&self, task: &'static str, panic: Box<dyn Any + Send>) {
        drop(self.env.spawn(task, async move { resume_unwind(panic) }));
    }

    /// Panics, once, if a test has planted that here.
    #[cfg(test)]
    pub(crate) fn panic_if_planted(&self, place: &'static str) {
        let planted = self.planted_panic.lock().take_if(|planted| *planted == place);
        assert!(planted.is_none(), "planted");
    }

    /// Nothing is planted outside of tests.
    #[cfg(not(test))]
    #[inline]
    #[expect(clippy::unused_self, reason = "a panic is planted in one node")]
    pub(crate) fn panic_if_planted(&self, _place: &'static str) {}

    /// Ends all waits, and tells the pool, so that the others recover as from a death.
    async fn end_and_give_up(self: Arc<Self>) {
        if let Some(error) = self.lifecycle.failure() {
            self.end_with(error.clone());
        }
        let core = Arc::downgrade(&self);
        let (env, pool, node) = (self.env.clone(), Arc::clone(&self.pool), self.index());
        let Some(incarnation) = self.lifecycle.incarnation() else { return };
        // A successor may have the index of a node that has left.
        if self.lifecycle.is_leaving() && !self.is_member_itself() {
            return;
        }
        drop(self);
        // When the last handle is dropped the engine itself gives up.
        while core.strong_count() > 0 {
            match pool.give_up(node, incarnation).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "cannot tell that this node has failed"),
            }
            env.sleep(TRY_AGAIN_AFTER).await;
        }
    }
}

/// The message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that meets something else has failed")]
mod tests {
    use selkie_fabric::Fabric;
    use selkie_fabric::env::{Env, RealRuntime, RuntimeConfig};
    use selkie_fabric::mem::MemFabric;
    use selkie_memnode::EmbeddedPool;
    use selkie_pool::{Coding, ComputeIndex, Observer, Pool, PoolConfig};

    use super::*;
    use crate::log::LogTo;
    use crate::{ComputeId, Engine, EngineConfig, GAddr};

    const GCL: usize = 512;
    /// Far below the request timeout, and enough on a machine that is busy with other things.
    const SOON: Duration = Duration::from_secs(120);

    struct Two {
        env: Env,
        pool: Arc<Pool>,
        fabric: Arc<dyn Fabric>,
        engines: Vec<Engine>,
        /// Changed by node 0 and not home.
        page: GAddr,
        _memory: Arc<EmbeddedPool>,
    }

    async fn start(
        pool: &Arc<Pool>,
        fabric: &Arc<dyn Fabric>,
        env: &Env,
        node: usize,
        log: Option<LogTo>,
    ) -> Engine {
        let config = EngineConfig {
            log,
            cache_bytes: EngineConfig::min_cache_bytes(GCL),
            request_timeout: 10 * SOON,
            tick: Duration::from_millis(1),
            ..EngineConfig::default()
        };
        let id = ComputeId::new(node).unwrap();
        Engine::start(pool, fabric, env, id, config).await.unwrap()
    }

    impl Two {
        async fn start(env: &Env, log: Option<LogTo>) -> Two {
            let fabric: Arc<dyn Fabric> = MemFabric::new();
            let config = PoolConfig {
                memory_nodes: 2,
                bytes_per_node: 4 << 20,
                gcl_bytes: GCL,
                range_bytes: 256 << 10,
                max_compute_nodes: 4,
                coding: Coding::PLAIN,
                log_bytes: if log.is_some() { 128 << 10 } else { 0 },
            };
            let memory = EmbeddedPool::start(&fabric, config).unwrap();
            let pool = Arc::clone(memory.pool());
            let mut engines = Vec::new();
            for node in 0..2 {
                engines.push(start(&pool, &fabric, env, node, log.clone()).await);
            }
            let mut guard = engines[0].allocate().await.unwrap();
            guard.bytes_mut(0..1).fill(1);
            let page = guard.addr();
            drop(guard);
            Two { env: env.clone(), pool, engines, page, fabric, _memory: memory }
        }

        async fn until(&self, what: &str, over: impl Fn() -> bool) {
            let started = self.env.now();
            while !over() {
                assert!(self.env.now() - started < SOON, "{what}");
                self.env.sleep(Duration::from_millis(1)).await;
            }
        }

        /// Node 0 has panicked, or is about to: all of its callers learn that, and node 1 recovers.
        async fn node_ends(
            &self,
            waiter: &Arc<parking_lot::Mutex<Option<EngineError>>>,
            task: &str,
        ) {
            let [ended, other] = &self.engines[..] else { panic!("two nodes") };
            let says = |error: &EngineError| {
                matches!(error, EngineError::TaskPanicked { task: own, message }
                    if *own == task && message.contains("planted"))
            };
            self.until("the waiting access ends", || waiter.lock().as_ref().is_some_and(says))
                .await;
            let started = self.env.now();
            assert!(says(&ended.shared(self.page).await.map(drop).unwrap_err()));
            assert!(says(&ended.try_exclusive(self.page).await.map(drop).unwrap_err()));
            assert!(
                ended.shared_hit(self.page).is_none() && ended.exclusive_hit(self.page).is_none()
            );
            assert!(says(&ended.allocate().await.map(drop).unwrap_err()));
            assert!(says(&ended.close().await.unwrap_err()));
            assert!(self.env.now() - started < SOON, "nothing waits");
            let gone = ComputeIndex::new(0);
            let recovered = || !self.pool.is_member(gone) && self.pool.lost().is_empty();
            self.until("the other node recovers", recovered).await;
            let lost = other.shared(self.page).await.map(drop).unwrap_err();
            assert!(matches!(lost, EngineError::PageLost { node: None, .. }), "{lost}");
            drop(other.allocate().await.unwrap());
            other.close().await.unwrap();
        }

        /// An access of node 0 that waits for a latch that is not let go. It waits already.
        async fn waiter(&self) -> Arc<parking_lot::Mutex<Option<EngineError>>> {
            let told = Arc::new(parking_lot::Mutex::default());
            let (engine, page, own) = (self.engines[0].clone(), self.page, Arc::clone(&told));
            drop(self.env.spawn("waiter", async move {
                let held = engine.exclusive(page).await.unwrap();
                let error = engine.exclusive(page).await.map(drop).unwrap_err();
                *own.lock() = Some(error);
                drop(held);
            }));
            let shard = self.engines[0].core().cache.shard(self.page);
            let is_queued = || {
                let lines = shard.lock();
                lines.get(&self.page.to_u64()).is_some_and(|line| !line.waiters.is_empty())
            };
            self.until("the access waits", is_queued).await;
            told
        }
    }

    fn run(test: impl AsyncFnOnce(Two)) {
        run_with(None, test);
    }

    fn run_with(log: Option<LogTo>, test: impl AsyncFnOnce(Two)) {
        // What is planted is to be reported, and is no news.
        let on_panic: Option<selkie_fabric::env::PanicHook> = Some(Arc::new(|_| {}));
        let config = RuntimeConfig { threads: 2, seed: None, on_panic };
        let runtime = RealRuntime::start(config).unwrap();
        let env = runtime.env();
        runtime.block_on(async { test(Two::start(&env, log).await).await });
    }

    fn plant(two: &Two, place: &'static str) {
        *two.engines[0].core().planted_panic.lock() = Some(place);
    }

    #[test]
    fn a_panic_of_the_lease_task_ends_the_node() {
        run(async |two| {
            let waiter = two.waiter().await;
            plant(&two, "lease");
            two.node_ends(&waiter, "lease").await;
        });
    }

    #[test]
    fn a_panic_of_the_mail_task_ends_the_node() {
        run(async |two| {
            let waiter = two.waiter().await;
            plant(&two, "mail");
            let (other, page) = (two.engines[1].clone(), two.page);
            let asks = two.env.spawn("asks", async move {
                let asked = other.exclusive(page).await.map(drop);
                assert!(
                    matches!(asked, Err(EngineError::PageLost { node: None, .. })),
                    "{asked:?}"
                );
            });
            two.node_ends(&waiter, "mail").await;
            asks.join().await.unwrap();
        });
    }

    #[test]
    fn a_panic_in_a_step_of_a_line_ends_the_node_whose_caller_it_was() {
        run(async |two| {
            let waiter = two.waiter().await;
            plant(&two, "step of a line");
            let (own, page) = (two.engines[0].clone(), two.page);
            let panics = two.env.spawn("panics", async move {
                drop(own.shared(page).await);
            });
            assert!(panics.join().await.is_err());
            two.node_ends(&waiter, "step of a line").await;
        });
    }

    /// The pool's task serves all nodes of a process: a panic in one of them ends that one.
    #[test]
    fn a_panic_while_a_node_follows_the_pool_ends_that_node() {
        run(async |two| {
            let waiter = two.waiter().await;
            plant(&two, "pool");
            let follows = || two.engines[0].core().changed(&two.pool.state());
            assert!(!follows(), "an operation may be under way by the state before");
            two.node_ends(&waiter, "pool").await;
            assert!(follows(), "a fenced node has none");
        });
    }

    /// A program whose only node has panicked starts another in the same process.
    #[test]
    fn another_node_enters_the_pool_of_one_that_panicked() {
        run(async |two| {
            let [panics, leaves] = &two.engines[..] else { panic!("two nodes") };
            leaves.close().await.unwrap();
            plant(&two, "lease");
            two.until("it has ended", || panics.core().lifecycle.has_panicked()).await;
            let other = start(&two.pool, &two.fabric, &two.env, 2, None).await;
            let gone = ComputeIndex::new(0);
            let recovered = || !two.pool.is_member(gone) && two.pool.lost().is_empty();
            two.until("the other node recovers", recovered).await;
            drop(other.allocate().await.unwrap());
            other.close().await.unwrap();
        });
    }

    /// As for damage in a log that nothing else finds.
    #[test]
    fn a_panic_while_a_page_is_redone_loses_that_page_alone() {
        run_with(Some(LogTo::Memory), async |two| {
            let [dies, recovers] = &two.engines[..] else { panic!("two nodes") };
            let mut pages = vec![two.page];
            for value in 2..6 {
                let mut guard = dies.allocate().await.unwrap();
                guard.bytes_mut(0..1).fill(value);
                pages.push(guard.addr());
            }
            let lsn = dies.shared(pages[4]).await.unwrap().lsn();
            dies.until_durable(lsn).await.unwrap();
            *recovers.core().planted_panic.lock() = Some("redo of a page");
            plant(&two, "lease");
            let gone = ComputeIndex::new(0);
            let recovered = || !two.pool.is_member(gone) && two.pool.lost().is_empty();
            two.until("the other node recovers", recovered).await;
            let mut lost = Vec::new();
            for (addr, value) in pages.iter().zip(1..) {
                match recovers.shared(*addr).await {
                    Ok(page) => assert_eq!(page[0], value, "{addr}"),
                    Err(EngineError::PageLost { node: Some(0), .. }) => lost.push(addr.to_u64()),
                    Err(error) => panic!("{addr}: {error}"),
                }
            }
            assert_eq!(lost.len(), 1);
            assert_eq!(two.pool.lost_pages(), lost);
            recovers.close().await.unwrap();
        });
    }
}
