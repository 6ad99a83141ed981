//! Acts upon a change of the document: the fabric meets new nodes, fences dead ones and forgets
//! those that have left; observers are told.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::{Domain, FenceScope, PeerId};

use super::process::{Acted, Membership};
use crate::compute_index::ComputeIndex;
use crate::control::Versioned;
use crate::document::PoolState;
use crate::error::PoolError;

impl Membership {
    pub(super) fn act(&self) -> Result<(), PoolError> {
        let now = self.view.read().clone();
        self.act_upon(now)
    }

    /// Tells the fabric which nodes are new, gone or dead.
    pub(super) fn act_upon(
        &self,
        Versioned { version, state }: Versioned,
    ) -> Result<(), PoolError> {
        let mut acted = self.acted.lock();
        if acted.upto >= version {
            return Ok(());
        }
        let failed = |node, source| PoolError::Fabric { node, source };
        // A name that is in use again belongs to another node.
        acted.fenced.retain(|node, _| !is_in(&state, *node));
        for (raw, card) in &state.cards {
            if card.host != self.host && acted.met.get(raw) != Some(&card.card) {
                let node = PeerId::from_raw(*raw);
                let reading = card.reads_only.then(|| self.reading(&state)).flatten();
                self.fabric
                    .add_peer(node, &card.card, reading.as_ref())
                    .map_err(|error| failed(node, error))?;
                acted.met.insert(*raw, card.card.clone());
            }
        }
        // Without cards a fence reaches everywhere, and the nodes that wait for it make it: see
        // `is_fenced`.
        for node in dead_nodes(&state).filter(|_| !state.cards.is_empty()) {
            if let Entry::Vacant(entry) = acted.fenced.entry(node) {
                let reach = self.fabric.fence(node).map_err(|error| failed(node, error))?;
                tracing::info!(%node, "fenced a dead node");
                entry.insert((reach, version));
            }
        }
        let gone: Vec<u16> =
            acted.met.keys().copied().filter(|raw| !state.cards.contains_key(raw)).collect();
        for raw in gone {
            let node = PeerId::from_raw(raw);
            if !acted.fenced.contains_key(&node) {
                let _ = self.fabric.remove_peer(node);
            }
            acted.met.remove(&raw);
        }
        self.notice_the_gone(&mut acted, &state);
        // Last: messages of earlier owners of an index have arrived, or never will.
        if self.observers_know(&state) {
            acted.upto = version;
        }
        Ok(())
    }

    pub(super) fn notice_the_gone(&self, acted: &mut Acted, state: &PoolState) {
        let members: BTreeSet<u16> =
            state.compute_nodes.keys().chain(state.lost.keys()).copied().collect();
        let gone: Vec<u16> = acted.members.difference(&members).copied().collect();
        for node in gone {
            for observer in self.observers() {
                observer.gone(ComputeIndex::new(node));
            }
            if state.cards.is_empty() {
                acted.to_forget.insert(node);
            }
        }
        acted.to_forget.retain(|node| !members.contains(node));
        acted.members = members;
    }

    /// Removes what nodes that are gone have left behind, once their processes have ended.
    pub(super) fn forget_the_gone(&self, now: Duration, heartbeat: Duration) {
        let due = {
            let mut acted = self.acted.lock();
            if acted.to_forget.is_empty() || now < acted.forget_at {
                return;
            }
            acted.forget_at = now + heartbeat;
            acted.to_forget.clone()
        };
        for node in due {
            if self.fabric.remove_peer(PeerId::compute(node)) {
                self.acted.lock().to_forget.remove(&node);
            }
        }
    }

    /// The rights of a node that reads only at this process's memory nodes. `None`, which is all
    /// rights, if they are compute nodes, into whose memory it writes messages.
    pub(super) fn reading(&self, state: &PoolState) -> Option<Arc<Domain>> {
        let own = state.memory_nodes.iter().flatten().filter(|node| node.host == self.host);
        let ranges = own.map(|node| node.descriptor.ranges).max()?;
        Some(Arc::new(state.geometry().reading(ranges)))
    }

    /// Tells the observers. Returns whether all are ready for the members.
    pub(super) fn observers_know(&self, state: &PoolState) -> bool {
        let observers = self.observers();
        // All observers learn of the change before any is asked about members.
        let unready = observers.iter().filter(|observer| !observer.changed(state)).count();
        unready == 0
            && observers.iter().all(|observer| {
                state.compute_nodes.iter().all(|(node, member)| {
                    observer.joined(ComputeIndex::new(*node), member.incarnation)
                })
            })
    }

    /// Whether no verb of a dead node executes any more, at any node.
    pub async fn is_fenced(&self, node: PeerId) -> Result<bool, PoolError> {
        // The name may be another node's by now.
        self.see(self.load().await?);
        self.act()?;
        let known = self.acted.lock().fenced.get(&node).copied();
        let fenced = match known {
            None if dead_nodes(&self.state()).any(|dead| dead == node) => {
                let failed = |source| PoolError::Fabric { node, source };
                let reach = self.fabric.fence(node).map_err(failed)?;
                let since = self.view.read().version;
                self.acted.lock().fenced.insert(node, (reach, since));
                Some((reach, since))
            }
            known => known,
        };
        match fenced {
            None => Ok(false),
            Some((FenceScope::Everywhere, _)) => Ok(true),
            Some((FenceScope::ThisProcess, since)) => Ok(self.late(since).await?.is_none()),
        }
    }
}

pub(super) fn is_in(state: &PoolState, node: PeerId) -> bool {
    let is_member = !node.is_memory() && state.compute_nodes.contains_key(&node.index());
    is_member || state.cards.contains_key(&node.to_raw())
}

/// All nodes that died and still matter.
pub(super) fn dead_nodes(state: &PoolState) -> impl Iterator<Item = PeerId> {
    let memory = state.memory_nodes.iter().flatten().filter(|node| node.dead);
    let compute = state.lost.keys().chain(&state.dead);
    memory.map(|node| node.descriptor.peer).chain(compute.copied().map(PeerId::compute))
}
