//! The pool as a process sees it.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_fabric::{Domain, Fabric, PeerId};

use super::descriptor::PoolDescriptor;
use crate::control::{ControlPlane, Versioned};
use crate::document::PoolState;
use crate::error::PoolError;
use crate::membership::{Membership, Observer, SignsOfLife};

/// A pool as one process sees it.
pub struct Pool {
    pub(super) descriptor: PoolDescriptor,
    pub(super) membership: Membership,
    /// A state in which no slab is to move: to find that out takes a look at all ranges.
    at_rest: Mutex<Option<Arc<PoolState>>>,
}

impl Pool {
    /// Opens the pool that `plane` keeps, on the fabric on which its nodes meet, once its memory
    /// nodes are all there. `host` stands for the calling process: random, so that no two share
    /// one.
    ///
    /// # Errors
    /// [`PoolError::Incomplete`] while memory nodes are missing, [`PoolError::Fabric`],
    /// [`PoolError::Control`].
    pub async fn open(
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        host: u64,
    ) -> Result<Arc<Self>, PoolError> {
        let now = plane.load().await?;
        Ok(Arc::new(Self::with_view(host, fabric, plane, now)?))
    }

    /// As [`Pool::open`], with the state `now` that has just been read from `plane`.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn with_view(
        host: u64,
        fabric: Arc<dyn Fabric>,
        plane: Arc<dyn ControlPlane>,
        now: Versioned,
    ) -> Result<Self, PoolError> {
        let state = &now.state;
        let joined = state.memory_nodes.iter().flatten();
        let memory_nodes: Vec<_> = joined.map(|node| node.descriptor.clone()).collect();
        let (joined, wanted) = (memory_nodes.len(), state.memory_nodes.len());
        if joined < wanted {
            return Err(PoolError::Incomplete { joined, nodes: wanted });
        }
        let descriptor = PoolDescriptor {
            gcl_bytes: state.gcl_bytes,
            range_bytes: state.range_bytes,
            max_compute_nodes: state.max_compute_nodes,
            coding: state.coding,
            log_bytes: state.log_bytes,
            memory_nodes,
        };
        let membership = Membership::new(host, fabric, plane, now)?;
        Ok(Self { descriptor, membership, at_rest: Mutex::default() })
    }

    /// How to use the pool's memory.
    #[must_use]
    pub fn descriptor(&self) -> &PoolDescriptor {
        &self.descriptor
    }

    /// The pool's state, as this process knows it.
    #[must_use]
    pub fn state(&self) -> Arc<PoolState> {
        self.membership.state()
    }

    /// The pool's state, as it is when this is called or later. Asks the control plane.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn latest_state(&self) -> Result<Arc<PoolState>, PoolError> {
        self.membership.latest().await
    }

    /// Whether no slab is to move in this state, as [`Pool::set_at_rest`] has said.
    pub(crate) fn is_at_rest(&self, state: &Arc<PoolState>) -> bool {
        self.at_rest.lock().as_ref().is_some_and(|known| Arc::ptr_eq(known, state))
    }

    pub(crate) fn set_at_rest(&self, state: Arc<PoolState>) {
        *self.at_rest.lock() = Some(state);
    }

    /// Whether the pool was destroyed, as far as this process knows.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.membership.is_gone()
    }

    /// Whether the pool is destroyed. Asks the control plane, whose silence says nothing.
    pub async fn is_destroyed(&self) -> bool {
        // Only a plane that answers knows that there is no such pool.
        let _answer = self.membership.latest().await;
        self.is_gone()
    }

    /// The part of this process in the pool.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// Stands for this process among those that use the pool.
    #[must_use]
    pub fn host(&self) -> u64 {
        self.membership.host()
    }

    /// The processes that have shown lately that their nodes live, and this one.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn living_hosts(&self) -> Result<BTreeSet<u64>, PoolError> {
        self.membership.living_hosts().await
    }

    /// The processes that have shown within this time that their nodes live.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn hosts_within(&self, time: Duration) -> Result<BTreeSet<u64>, PoolError> {
        self.membership.hosts_within(time).await
    }

    /// Keeps the view up to date, and the others informed that the nodes of this process live, for
    /// as long as the pool is used. Needed where several processes share a pool.
    pub fn follow(self: &Arc<Self>, env: &Env) {
        let (pool, env) = (Arc::downgrade(self), env.clone());
        drop(env.clone().spawn("pool", async move {
            loop {
                let Some(pool) = pool.upgrade() else { return };
                pool.membership.follow_once(&env).await;
            }
        }));
    }

    /// Has `observer` told of changes, and of nodes that come in, those that are in first.
    pub fn observe(&self, observer: Weak<dyn Observer>) {
        self.membership.observe(observer);
    }

    /// For how long this process could not show that its nodes live, now or a short time ago, and
    /// the lease that it was to keep.
    #[must_use]
    pub fn lateness(&self, now: Duration) -> (Duration, Duration) {
        (self.signs_of_life(now).latest, self.state().timing.lease)
    }

    /// What this process has shown of its nodes.
    #[must_use]
    pub fn signs_of_life(&self, now: Duration) -> SignsOfLife {
        self.membership.signs_of_life(now)
    }

    /// Sets the report that a node of this process sends with its beats from now on, for people who
    /// watch the pool.
    pub fn set_report(&self, node: PeerId, report: String) {
        self.membership.set_report(node, report);
    }

    /// What a compute node that reads only may do at memory nodes: see `SlabGeometry::reading`.
    #[must_use]
    pub fn reading(&self) -> Domain {
        self.state().reading()
    }

    /// Whether a memory node was declared dead, as this process knows.
    #[must_use]
    pub fn is_memory_dead(&self, memory_node: usize) -> bool {
        let state = self.membership.state();
        let member = state.memory_nodes.get(memory_node).and_then(Option::as_ref);
        member.is_none_or(|member| member.dead)
    }

    /// Whether a memory node is silent and waited for, as more are than the pool can spare.
    #[must_use]
    pub fn is_memory_suspected(&self, memory_node: usize) -> bool {
        u16::try_from(memory_node).is_ok_and(|node| self.membership.is_suspected(node))
    }

    /// How long after the death of a memory node it is missed, and declared dead, at the latest;
    /// `None` for one without beats, whose death the next access to it shows.
    #[must_use]
    pub fn missed_within(&self, memory_node: usize) -> Option<Duration> {
        self.membership.missed_within(|node| node == PeerId::memory(memory_node as u16))
    }

    /// As [`Pool::missed_within`], of any node of the pool.
    #[must_use]
    pub fn peer_missed_within(&self, peer: PeerId) -> Option<Duration> {
        self.membership.missed_within(|node| node == peer)
    }

    /// As [`Pool::missed_within`], of the memory node that is missed last.
    #[must_use]
    pub fn all_missed_within(&self) -> Option<Duration> {
        self.membership.missed_within(PeerId::is_memory)
    }
}
