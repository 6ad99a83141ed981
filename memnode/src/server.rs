//! A memory node as a process of its own in a pool that processes share.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_fabric::{Fabric, FabricError};

use selkie_pool::control::{Beat, Card, ControlPlane, MemoryMember, PoolState, Timing, Versioned};
use selkie_pool::{
    ATTEMPTS, FailureDomain, Membership, NOTICE, PoolError, PoolUsage, Reclaim, Residency,
    WaitNotice, change_state,
};

use crate::capacity::{Capacity, PopulationWatcher};
use crate::monitor::{MonitorConfig, ResourceMonitor, check_can_reclaim};
use crate::node::MemoryNode;
use crate::pool_watch::PoolWatch;

/// How long another process that joins at the same time may take to populate its memory.
const OTHER: Duration = Duration::from_secs(600);

/// A memory node of this process in a pool of many processes, for as long as this is kept.
pub struct MemoryServer {
    node: MemoryNode,
    membership: Membership,
}

impl MemoryServer {
    /// Joins a pool with the capacity that is offered: as the lowest of its memory nodes that has
    /// not joined yet, or as one more of a coded pool that has them all. Compute nodes notice, and
    /// move slabs there. `host` is a random number of the calling process, so that no two processes
    /// share one. Call [`MemoryServer::follow`] afterwards.
    ///
    /// # Errors
    /// [`PoolError::MemoryNodeRefused`] if all memory nodes of a plain pool have joined, there are
    /// [`selkie_pool::MAX_MEMORY_NODES`], or the pool could no longer have as many failure domains
    /// as a page has splits; [`PoolError::TooManyRanges`], [`PoolError::Config`] if
    /// the bytes are too few for a range, or memory is to stay free and the pool is not coded,
    /// [`PoolError::HostMemory`], [`PoolError::MemoryNode`], [`PoolError::Control`].
    ///
    /// Blocks the calling thread while the memory is populated, about a second for each GiB. That
    /// ends with `Interrupted` when the pool is destroyed.
    pub async fn join(
        fabric: &Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        env: &Env,
        host: u64,
        offer: impl Into<Capacity>,
    ) -> Result<Arc<Self>, PoolError> {
        let Capacity { bytes, domain, headroom, watcher } = offer.into();
        let (mut attempts, mut awaited) = (0, None);
        while attempts < ATTEMPTS {
            let state = plane.load().await?.state;
            if let Some(headroom) = headroom {
                check_can_reclaim(&state, headroom)?;
            }
            let node = state.next_memory_node()?;
            let began = WaitNotice::new(env.now());
            let (_, mut notice) =
                awaited.take().filter(|(own, _)| *own == node).unwrap_or((node, began));
            let until_end = until_end(&watcher, &plane, env, &state);
            match MemoryNode::start(fabric, node, &state.plan_of(bytes)?, Some(&until_end)) {
                // Another process is about to enter it, as soon as its memory is populated.
                Err(PoolError::MemoryNode {
                    source: FabricError::AlreadyJoined { .. }, ..
                }) if notice.waited(env.now()) < OTHER => {
                    if let Some(waited) = notice.due(env.now()) {
                        tracing::info!(
                            target: NOTICE,
                            "has waited for {} s, and for {} s at most, for the process that joins as memory node {node}: it \
                             takes its memory first, and one at a time joins; if it hangs, end it",
                            waited.as_secs(),
                            OTHER.as_secs()
                        );
                    }
                    awaited = Some((node, notice));
                    env.sleep(plane.pace()).await;
                }
                Err(error) => return Err(error),
                Ok(started) => {
                    attempts += 1;
                    // Before it is in: a member without a beat for a lease is dead.
                    let peer = started.descriptor().peer;
                    let beat = Beat { node: peer, host, seen: 0, report: String::new() };
                    plane.beat(beat).await?;
                    // Compute nodes connect as soon as they see it in the pool: it knows their
                    // keys before that.
                    let before = plane.load().await?;
                    Membership::new(host, Arc::clone(fabric), Arc::clone(&plane), before)?;
                    let since = env.now();
                    let entered = match enter(&*plane, &started, host, &domain).await {
                        Ok(entered) => entered,
                        Err(error) => {
                            // It may be in nevertheless.
                            take_back(&*plane, &started, host).await;
                            return Err(error);
                        }
                    };
                    if let Some(now) = entered {
                        let opened =
                            Membership::new(host, Arc::clone(fabric), Arc::clone(&plane), now);
                        let membership = match opened {
                            Ok(membership) => membership,
                            Err(error) => {
                                take_back(&*plane, &started, host).await;
                                return Err(error);
                            }
                        };
                        membership.lives_since(since);
                        membership.mark_looks_in(Arc::clone(started.region()), since);
                        return Ok(Arc::new(Self { node: started, membership }));
                    }
                }
            }
        }
        Err(PoolError::Contended { attempts: ATTEMPTS })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &MemoryNode {
        &self.node
    }

    /// Admits the pool's members, fences its dead nodes, and beats for the node, for as long as the
    /// server is kept.
    pub fn follow(self: &Arc<Self>, env: &Env) {
        let (server, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("memory node", async move {
            loop {
                let Some(server) = server.upgrade() else { return };
                server.membership.follow_once(&env).await;
            }
        }));
    }

    /// Monitors the memory of the host for as long as the server is kept. When less is free than
    /// the headroom, the node takes slabs back, once their contents have moved elsewhere; when
    /// there is more, it offers them again.
    pub fn start_monitor(self: &Arc<Self>, env: &Env, config: MonitorConfig) {
        let mut monitor = ResourceMonitor::new(config, &self.node);
        let (server, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("resource monitor", async move {
            loop {
                env.sleep(monitor.every()).await;
                let Some(server) = server.upgrade() else { return };
                if let Err(error) = monitor.look(&server.membership, &server.node, &env).await {
                    tracing::debug!(%error, "the resource monitor cannot change the pool");
                }
            }
        }));
    }

    /// The number of slabs that the node evicts, and of those that are withdrawn.
    #[must_use]
    pub fn reclaimed(&self) -> (u64, u64) {
        let state = self.membership.state();
        let own = state.reclaim_of(self.node.descriptor().peer.index());
        own.map_or((0, 0), |own| (own.evicting.len() as u64, own.withdrawn.len() as u64))
    }

    /// How much of the node is leased to compute nodes; in a coded pool, how much lies in the slabs
    /// that ranges have.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        self.node.usage(&self.membership.state())
    }

    /// For how long the process could not show that the node lives, at the longest.
    #[must_use]
    pub fn longest_silence(&self, now: Duration) -> Duration {
        self.membership.signs_of_life(now).longest
    }

    /// For how long the process could not show that the node lives, of late: the silence for which
    /// others can have taken the node for dead just now.
    #[must_use]
    pub fn latest_silence(&self, now: Duration) -> Duration {
        self.membership.signs_of_life(now).latest
    }

    /// When silence means death in the pool.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.membership.timing()
    }

    /// Why the node has ended for the pool, as far as is known.
    #[must_use]
    pub fn end(&self) -> Option<ServerEnd> {
        if self.membership.is_gone() {
            return Some(ServerEnd::PoolGone);
        }
        let state = self.membership.state();
        match state.member(self.node.descriptor().peer.index()) {
            Some(member) if member.stay == Residency::Left => Some(ServerEnd::Left),
            Some(member) if !member.dead => None,
            _ => Some(ServerEnd::Dead),
        }
    }

    /// Sets the report that the node sends with its beats from now on, for people who watch the
    /// pool.
    pub fn set_report(&self, report: String) {
        self.membership.set_report(self.node.descriptor().peer, report);
    }
}

/// Breaks population off when the pool is destroyed meanwhile.
fn until_end(
    watcher: &PopulationWatcher,
    plane: &Arc<dyn ControlPlane>,
    env: &Env,
    state: &PoolState,
) -> PopulationWatcher {
    let watch = Mutex::new(PoolWatch::new(plane, env, state.id, state.timing.heartbeat));
    let watcher = watcher.clone();
    PopulationWatcher::new(move |done, of| match watch.lock().is_gone() {
        true => ControlFlow::Break(()),
        false => watcher.told(done, of),
    })
}

/// Undoes [`enter`], so that another node can take the place.
async fn take_back(plane: &dyn ControlPlane, started: &MemoryNode, host: u64) {
    let descriptor = started.descriptor();
    let leave = |state: &mut PoolState| {
        // The pool waits for none of the nodes that joined later.
        let is_complete = state.memory_nodes.iter().all(Option::is_some);
        let grows = is_complete && !state.coding.is_plain();
        let node = usize::from(descriptor.peer.index());
        let slot = state.memory_nodes.get(node).and_then(Option::as_ref);
        if slot.is_some_and(|own| own.host == host && own.descriptor == *descriptor) {
            // Slabs may be on their way there.
            state.declare_dead(descriptor.peer);
            match state.memory_nodes.get_mut(node) {
                Some(Some(member)) if grows => member.stay = Residency::Left,
                Some(slot) => *slot = None,
                None => {}
            }
        }
        Ok(())
    };
    // The caller reports the error that made it leave. If this fails too, the others find out by
    // the silence of the node.
    let _ = change_state(plane, leave).await;
}

/// Why a living memory node has ended for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEnd {
    /// The pool has declared it dead, as it did not show in time that it lives.
    Dead,
    /// The pool was removed.
    PoolGone,
    /// It was to leave, and has no slabs any more.
    Left,
}

/// Enters the node in the pool's state. `None` if there is another memory node of this index.
async fn enter(
    plane: &dyn ControlPlane,
    started: &MemoryNode,
    host: u64,
    domain: &FailureDomain,
) -> Result<Option<Versioned>, PoolError> {
    let descriptor = started.descriptor();
    let card = started.endpoint().access_card();
    let enter = |state: &mut PoolState| {
        let (descriptor, domain) = (descriptor.clone(), domain.clone());
        let (peer, stay, reclaim) = (descriptor.peer, Residency::Stays, Reclaim::default());
        let member = MemoryMember { host, descriptor, dead: false, domain, stay, reclaim };
        let entered = state.enter_memory_node(member)?;
        if let Some(card) = card.as_ref().filter(|_| entered) {
            state.cards.insert(peer.to_raw(), Card { host, card: card.clone(), reads_only: false });
        }
        Ok(entered)
    };
    let (now, entered) = change_state(plane, enter).await?;
    Ok(entered.then_some(now))
}
