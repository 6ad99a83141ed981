//! How a pool that processes share comes to be: it is made, then memory nodes join it.

use std::sync::Arc;

use selkie_fabric::env::Env;
use selkie_fabric::{Fabric, FabricError, PeerId};

use crate::config::PoolConfig;
use crate::control::{
    Beat, Card, ControlPlane, Identity, MemoryMember, PoolState, Timing, Versioned,
};
use crate::domain::FailureDomain;
use crate::error::PoolError;
use crate::membership::{ATTEMPTS, Membership, change_state};
use crate::migration::Stay;
use crate::node::MemoryNode;
use crate::pool::{PoolUsage, start_node};
use crate::reclaim::Reclaim;
use crate::watch::{Watch, WatchConfig, check_watches};

/// Makes a pool where `plane` keeps none yet: `config` says its shape and how many memory nodes are to join. How
/// much memory each of them lends is its own affair.
///
/// # Errors
/// [`PoolError::Config`] for a bad field, [`PoolError::Control`] if there is a pool already.
pub async fn create(
    plane: &dyn ControlPlane,
    identity: Identity<'_>,
    config: &PoolConfig,
    timing: Timing,
) -> Result<(), PoolError> {
    config.plan()?;
    timing.validate()?;
    plane.create(PoolState::new(identity, timing, config)).await?;
    Ok(())
}

/// What a memory node brings into a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Bytes it lends, headers and control page included; only whole ranges are used.
    pub bytes: u64,
    /// What it fails together with.
    pub domain: FailureDomain,
    /// Memory of its host that is to stay free: see [`Lent::watch`].
    pub headroom: Option<u64>,
}

impl From<u64> for Offer {
    /// So many bytes, of a node that fails alone.
    fn from(bytes: u64) -> Self {
        Self { bytes, domain: FailureDomain::ALONE, headroom: None }
    }
}

/// A memory node that this process lends to a pool of many processes, for as long as this is kept.
pub struct Lent {
    node: MemoryNode,
    membership: Membership,
}

impl Lent {
    /// Joins a pool that has no memory node of this index yet as the lowest such node, and lends it what is offered.
    /// `host` stands for the calling process: random, so that no two share one. [`Lent::follow`] is to be called from
    /// then on.
    ///
    /// # Errors
    /// [`PoolError::MemoryNodeRefused`] if all memory nodes have joined, or those there are to be could no more be of
    /// as many failure domains as a page has splits; [`PoolError::TooManyRanges`], [`PoolError::Config`] if the bytes are
    /// too few for a range, or memory is to stay free and the pool is not coded,
    /// [`PoolError::MemoryNode`], [`PoolError::Control`].
    pub async fn join(
        fabric: &Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        env: &Env,
        host: u64,
        offer: impl Into<Offer>,
    ) -> Result<Arc<Self>, PoolError> {
        let Offer { bytes, domain, headroom } = offer.into();
        for _ in 0..ATTEMPTS {
            let state = plane.load().await?.state;
            if let Some(headroom) = headroom {
                check_watches(&state, headroom)?;
            }
            let nodes = state.memory_nodes.len();
            let Some(node) = state.memory_nodes.iter().position(Option::is_none) else {
                let why = format!("all {nodes} memory nodes of the pool have joined");
                return Err(PoolError::MemoryNodeRefused { node: nodes, why });
            };
            let config = PoolConfig {
                memory_nodes: nodes,
                bytes_per_node: bytes,
                gcl_bytes: state.gcl_bytes,
                range_bytes: state.range_bytes,
                max_compute_nodes: state.max_compute_nodes,
                coding: state.coding,
            };
            match start_node(fabric, node, &config.plan()?) {
                Err(PoolError::MemoryNode {
                    source: FabricError::AlreadyJoined { .. }, ..
                }) => {
                    // Another process is about to enter it.
                    env.sleep(plane.pace()).await;
                }
                Err(error) => return Err(error),
                Ok(started) => {
                    // Before it is in: who has shown nothing for a lease is dead.
                    let peer = started.descriptor().peer;
                    let beat = Beat { node: peer, host, seen: 0, report: String::new() };
                    plane.beat(beat).await?;
                    let entered = match enter(&*plane, &started, host, &domain).await {
                        Ok(entered) => entered,
                        Err(error) => {
                            // It may be in all the same.
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
                        membership.mark_looks_in(Arc::clone(started.region()));
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

    /// Lets in whom the pool lets in and keeps out its dead, and shows that the node lives, for as long as it is
    /// kept.
    pub fn follow(self: &Arc<Self>, env: &Env) {
        let (lent, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("memory node", async move {
            loop {
                let Some(lent) = lent.upgrade() else { return };
                lent.membership.follow_once(&env).await;
            }
        }));
    }

    /// Has the node look after its host's memory for as long as it is kept: when less is free than is to be, it lends
    /// less, once what lies there has moved elsewhere; when there is more, it lends again.
    pub fn watch(self: &Arc<Self>, env: &Env, config: WatchConfig) {
        let mut watch = Watch::new(config, &self.node);
        let (lent, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("resource monitor", async move {
            loop {
                env.sleep(watch.every()).await;
                let Some(lent) = lent.upgrade() else { return };
                if let Err(error) = watch.look(&lent.membership, &lent.node, &env).await {
                    tracing::debug!(%error, "the resource monitor cannot change the pool");
                }
            }
        }));
    }

    /// Slabs that are to be moved elsewhere, as the node wants them back, and those that it does not lend.
    #[must_use]
    pub fn reclaimed(&self) -> (u64, u64) {
        let state = self.membership.state();
        let own = state.reclaim_of(self.node.descriptor().peer.index());
        own.map_or((0, 0), |own| (own.evicting.len() as u64, own.withdrawn.len() as u64))
    }

    /// How much of the node is leased to compute nodes; in a coded pool, how much lies in the slabs that ranges have.
    #[must_use]
    pub fn usage(&self) -> PoolUsage {
        self.node.usage(&self.membership.state())
    }

    /// Why the node is of no use any more, as far as is known.
    #[must_use]
    pub fn end(&self) -> Option<LentEnd> {
        if self.membership.is_gone() {
            return Some(LentEnd::PoolGone);
        }
        let state = self.membership.state();
        let member = state.memory_nodes.get(usize::from(self.node.descriptor().peer.index()));
        match member.and_then(Option::as_ref) {
            Some(member) if member.stay == Stay::Left => Some(LentEnd::Left),
            Some(member) if !member.dead => None,
            _ => Some(LentEnd::Dead),
        }
    }

    /// What the node says of itself with its beats from now on, for people who look on.
    pub fn set_report(&self, report: String) {
        self.membership.set_report(self.node.descriptor().peer, report);
    }
}

/// Undoes [`enter`], so that another node can take the place. What is wrong with that matters less than why.
async fn take_back(plane: &dyn ControlPlane, started: &MemoryNode, host: u64) {
    let descriptor = started.descriptor();
    let leave = |state: &mut PoolState| {
        let slot = state.memory_nodes.get_mut(usize::from(descriptor.peer.index()));
        if let Some(slot) = slot
            && slot.as_ref().is_some_and(|own| own.host == host && own.descriptor == *descriptor)
        {
            *slot = None;
            state.cards.remove(&descriptor.peer.to_raw());
        }
        Ok(())
    };
    let _ = change_state(plane, leave).await;
}

/// Why a memory node that lives is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LentEnd {
    /// The pool has declared it dead, as it did not show in time that it lives.
    Dead,
    /// The pool was removed.
    PoolGone,
    /// It was to leave, and nothing is on it any more.
    Left,
}

/// `None` if there is another memory node of this index.
async fn enter(
    plane: &dyn ControlPlane,
    started: &MemoryNode,
    host: u64,
    domain: &FailureDomain,
) -> Result<Option<Versioned>, PoolError> {
    let descriptor = started.descriptor();
    let card = started.endpoint().card();
    let enter = |state: &mut PoolState| {
        let peer: PeerId = descriptor.peer;
        match state.memory_nodes.get_mut(usize::from(peer.index())) {
            Some(slot @ None) => {
                let (descriptor, domain) = (descriptor.clone(), domain.clone());
                let (stay, reclaim) = (Stay::Stays, Reclaim::default());
                *slot = Some(MemoryMember { host, descriptor, dead: false, domain, stay, reclaim });
            }
            _ => return Ok(false),
        }
        state.check_domain_of(peer.index())?;
        state.check_ranges()?;
        if let Some(card) = &card {
            state.cards.insert(peer.to_raw(), Card { host, card: card.clone(), reads_only: false });
        }
        Ok(true)
    };
    let (now, entered) = change_state(plane, enter).await?;
    Ok(entered.then_some(now))
}
