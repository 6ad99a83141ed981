//! What the endpoints and queue pairs of a `FaultFabric` share: the plan, the counters, and which
//! peers live.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::plan::{FaultPlan, Tally};
use crate::env::{Env, SplitMix};
use crate::error::FabricError;
use crate::id::PeerId;

/// See the module.
pub(crate) struct FaultState {
    pub(crate) plan: FaultPlan,
    pub(crate) env: Env,
    pub(crate) tally: Tally,
    peers: Mutex<HashMap<PeerId, Arc<PeerLife>>>,
    queue_pairs: AtomicU64,
}

/// Whether one peer lives, by the plan.
pub(crate) struct PeerLife {
    id: PeerId,
    dead: AtomicBool,
    /// Chains that were posted to it.
    chains: AtomicU64,
    dies_after: u64,
}

impl FaultState {
    pub(crate) fn new(plan: FaultPlan, env: Env) -> Self {
        Self {
            plan,
            env,
            tally: Tally::default(),
            peers: Mutex::default(),
            queue_pairs: AtomicU64::new(0),
        }
    }

    /// The random sequence of a new queue pair.
    pub(crate) fn new_sequence(&self) -> SplitMix {
        let stream = self.queue_pairs.fetch_add(1, Ordering::Relaxed);
        SplitMix::of_stream(self.plan.seed, stream)
    }

    /// The peer `id`; it lives at first.
    pub(crate) fn peer(&self, id: PeerId) -> Arc<PeerLife> {
        let mut peers = self.peers.lock();
        let peer = peers.entry(id).or_insert_with(|| {
            let deaths = self.plan.deaths.iter().filter(|death| death.peer == id);
            Arc::new(PeerLife {
                id,
                dead: AtomicBool::new(false),
                chains: AtomicU64::new(0),
                dies_after: deaths.map(|death| death.after_chains).min().unwrap_or(u64::MAX),
            })
        });
        Arc::clone(peer)
    }
}

impl PeerLife {
    /// Lets the peer die.
    pub(crate) fn die(&self) {
        // Release: pairs with `check_alive`; a thread that sees the death sees what led to it.
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn check_alive(&self) -> Result<(), FabricError> {
        // Acquire: pairs with `die`.
        if self.dead.load(Ordering::Acquire) {
            return Err(FabricError::PeerDead { peer: self.id });
        }
        Ok(())
    }

    /// Counts a chain that is posted to this peer. The peer dies if the plan allows no more.
    pub(crate) fn accept(&self) -> Result<(), FabricError> {
        if self.chains.fetch_add(1, Ordering::Relaxed) >= self.dies_after {
            self.die();
        }
        self.check_alive()
    }
}
