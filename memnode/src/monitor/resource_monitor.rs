//! Monitors the memory of a memory node's host: asks the pool for the steps that the
//! [`ReclaimPolicy`] decides, and gives the memory of withdrawn slabs back to the host.
//!
//! The memory of a slab is given back only when the pool's state says that it is withdrawn, and
//! never while the node may have offered it again. Only the node itself can offer a slab, and an
//! offered slab counts as given back until the state shows it as available. So a slab in use is
//! never discarded, even where the answer to an offer was lost.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use selkie_fabric::env::Env;

use selkie_pool::control::{PoolState, Slab};
use selkie_pool::{Membership, PoolError, ReclaimStep, SlabSet};

use super::free_memory::FreeMemory;
use super::policy::{Observation, ReclaimPolicy, SlabObservation, SlabUse};
use crate::node::MemoryNode;

/// Bytes that are given back, or restored, at once.
const PIECE_BYTES: usize = 32 << 20;

/// How a memory node monitors the memory of its host.
pub struct MonitorConfig {
    /// Memory of the host to keep free, bytes.
    pub headroom: u64,
    /// How often it looks.
    pub every: Duration,
    /// Tells how much is free.
    pub source: Box<dyn FreeMemory>,
}

impl MonitorConfig {
    /// Once a second.
    #[must_use]
    pub fn new(headroom: u64, source: impl FreeMemory + 'static) -> Self {
        Self { headroom, every: Duration::from_secs(1), source: Box::new(source) }
    }
}

/// The monitor's state from one look to the next.
pub(crate) struct ResourceMonitor {
    config: MonitorConfig,
    /// Withdrawn slabs whose memory was given back, or that are to be available again.
    given_back: SlabSet,
    /// Slabs that take memory.
    touched: SlabSet,
    /// Accesses to slabs, as of the last look.
    activity: BTreeMap<u32, u64>,
    /// The memory of the host could not be read.
    is_blind: bool,
}

impl ResourceMonitor {
    pub(crate) fn new(config: MonitorConfig, node: &MemoryNode) -> Self {
        let all = 0..node.descriptor().ranges;
        let touched = all.filter(|_| node.region().is_committed()).collect();
        let (given_back, activity) = (SlabSet::default(), BTreeMap::new());
        Self { config, given_back, touched, activity, is_blind: false }
    }

    pub(crate) fn every(&self) -> Duration {
        self.config.every
    }

    /// Looks, and does what is to be done.
    pub(crate) async fn look(
        &mut self,
        membership: &Membership,
        node: &MemoryNode,
        env: &Env,
    ) -> Result<(), PoolError> {
        let own = node.descriptor().peer.index();
        let state = membership.state();
        if !state.stays(own) {
            return Ok(());
        }
        if !state.reclaim_of(own).is_some_and(|reclaim| reclaim.is_watching) {
            let watches = |state: &mut PoolState| {
                state.set_watching(own);
                Ok(())
            };
            membership.change(watches).await?;
        }
        self.give_back(node, &state, env).await;
        let Some(free_bytes) = self.free_bytes() else { return Ok(()) };
        let slabs = self.slabs(node, &state);
        let slab_bytes = state.geometry().slab_bytes();
        let seen = Observation { free_bytes, slab_bytes, slabs: &slabs };
        // The bias of a remainder does not matter here.
        #[expect(clippy::expect_used, reason = "the policy draws only from slabs that there are")]
        let mut below = |n: u64| env.random_u64().checked_rem(n).expect("a number below zero");
        let acts = ReclaimPolicy { headroom: self.config.headroom }.decide(seen, &mut below);
        let mut done = Vec::new();
        for act in acts {
            if can_do(act, node, &state, env).await {
                done.push(act);
            }
        }
        let acts = done;
        if acts.is_empty() {
            return Ok(());
        }
        tracing::info!(node = %node.descriptor().peer, free_bytes, acts = acts.len(), "memory is taken back, or lent again");
        tracing::debug!(?acts);
        let reclaim = |state: &mut PoolState| {
            state.reclaim(own, &acts);
            Ok(())
        };
        membership.change(reclaim).await?;
        self.give_back(node, &membership.state(), env).await;
        Ok(())
    }

    fn free_bytes(&mut self) -> Option<u64> {
        match self.config.source.free_bytes() {
            Ok(bytes) => {
                self.is_blind = false;
                Some(bytes)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!(%error, "cannot tell how much memory is free: none is taken back");
                }
                None
            }
        }
    }

    /// Gives the memory of withdrawn slabs back to the host, zero.
    async fn give_back(&mut self, node: &MemoryNode, state: &PoolState, env: &Env) {
        let own = node.descriptor().peer.index();
        let withdrawn: BTreeSet<u32> = state.withdrawn(own).collect();
        for slab in self.given_back.iter().filter(|slab| !withdrawn.contains(slab)) {
            // It is available again.
            if node.region().is_committed() {
                self.touched.insert(slab);
            }
        }
        self.given_back.retain(|slab| withdrawn.contains(&slab));
        for slab in withdrawn {
            // Also slabs that seem untouched: one may have been used between two looks.
            if self.given_back.insert(slab) {
                for piece in pieces_of(bytes_of(state, slab)) {
                    node.region().discard(piece);
                    env.yield_now().await;
                }
                self.touched.remove(slab);
            }
        }
    }

    /// The slabs of the node, as the monitor sees them.
    fn slabs(&mut self, node: &MemoryNode, state: &PoolState) -> Vec<SlabObservation> {
        let (own, geometry) = (node.descriptor().peer.index(), state.geometry());
        let number = |slab: &Slab| (slab.node == own).then_some(slab.slab);
        let used: BTreeSet<u32> = state.slabs_in_use().filter_map(number).collect();
        let moving = state.migration.and_then(|task| number(&task.from));
        let reclaim = state.reclaim_of(own);
        let slab = |slab: u32| {
            let is_evicting = reclaim.is_some_and(|own| own.evicting.contains(slab));
            let used = match slab {
                _ if is_evicting && moving == Some(slab) => SlabUse::Moving,
                _ if is_evicting => SlabUse::Evicting,
                _ if used.contains(&slab) => SlabUse::Used,
                _ if reclaim.is_some_and(|own| own.withdrawn.contains(slab)) => SlabUse::Withdrawn,
                _ => SlabUse::Free,
            };
            let mut activity = 0;
            if matches!(used, SlabUse::Used | SlabUse::Evicting | SlabUse::Moving) {
                // Each look sees all slabs that are in use for longer than the time between looks.
                self.touched.insert(slab);
                let now = node.region().load(geometry.activity_offset(slab) as usize);
                let before = self.activity.insert(slab, now).unwrap_or(0);
                // The counter is lower if the slab was free meanwhile.
                activity = now.checked_sub(before).unwrap_or(now);
            }
            SlabObservation { slab, used, is_touched: self.touched.contains(slab), activity }
        };
        (0..node.descriptor().ranges).map(slab).collect()
    }
}

/// Restores the memory of a slab that is to be offered again. Returns whether the step can be done.
async fn can_do(act: ReclaimStep, node: &MemoryNode, state: &PoolState, env: &Env) -> bool {
    let ReclaimStep::Offer(slab) = act else { return true };
    for piece in pieces_of(bytes_of(state, slab)) {
        if let Err(error) = node.region().restore(piece) {
            tracing::warn!(node = %node.descriptor().peer, %error, "a slab cannot be lent again");
            return false;
        }
        env.yield_now().await;
    }
    true
}

/// Pieces of a slab: a slab may be large, and the thread has to send beats meanwhile.
fn pieces_of(bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = bytes.end;
    bytes.step_by(PIECE_BYTES).map(move |at| at..end.min(at + PIECE_BYTES))
}

fn bytes_of(state: &PoolState, slab: u32) -> Range<usize> {
    let geometry = state.geometry();
    geometry.slab_offset(slab) as usize..geometry.slab_offset(slab + 1) as usize
}

/// Refuses a pool whose slabs cannot be taken back.
pub(crate) fn check_can_reclaim(state: &PoolState, headroom: u64) -> Result<(), PoolError> {
    if !state.coding.is_plain() {
        return Ok(());
    }
    let allowed = "in a pool of coding plain pages lie where they are made, and a memory node cannot give back what it lends";
    Err(PoolError::Config {
        key: "headroom",
        value: headroom.to_string(),
        allowed: allowed.to_owned(),
    })
}
