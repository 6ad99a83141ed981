//! Commit stamps, and what a commit has to know of the snapshots of all nodes; the horizon.

use std::sync::atomic::Ordering;

use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_pool::layout;

use super::active::ActiveSnapshots;
use super::images::horizon;
use super::slot::{INCARNATION_AT, LISTED, LISTED_AT, OPEN_FROM_AT, add_published};
use super::stamp::Stamp;
use crate::EngineError;
use crate::addressing::executed::{found_at, read_at, word_at};
use crate::addressing::locations::Counter;
use crate::coherence::word::MAX_COMPUTE_NODES;
use crate::core::Core;

impl Core {
    pub(super) async fn draw_stamp(&self) -> Result<(Stamp, ActiveSnapshots), EngineError> {
        self.config.check_writes()?;
        if self.memory.coded.is_some() {
            return Box::pin(self.draw_stamp_of_coded()).await;
        }
        let clock = self.memory.at(0, layout::CLOCK_AT)?;
        let mask = RemoteAddr::new(clock.region, layout::SNAPSHOT_MASK_AT);
        // The mask is read after the stamp is drawn: a snapshot that read the clock before has
        // published itself before that.
        let chain = Chain::from([Verb::fetch_and_add(clock, 1), Verb::read(mask, Buf::zeroed(8))]);
        let done = self.memory.queue_pair(0).post(chain).await.map_err(|e| e.error)?;
        let stamp = Stamp::new(found_at(&done, 0) + 1);
        let mut active = ActiveSnapshots::none();
        self.snapshots.add_own(&mut active, stamp);
        let others = self.others_in(word_at(&done, 1));
        if others != 0 {
            Box::pin(self.add_others(0, others, &mut active, stamp)).await?;
        }
        if !active.is_empty() {
            self.make_room_for_images().await;
        }
        Ok((stamp, active))
    }

    async fn draw_stamp_of_coded(&self) -> Result<(Stamp, ActiveSnapshots), EngineError> {
        let mut active = ActiveSnapshots::none();
        let stamp = Stamp::new(self.add_to_copies(Counter::Clock, 1).await? + 1);
        self.snapshots.add_own(&mut active, stamp);
        self.add_others_of_coded(&mut active, stamp).await?;
        Ok((stamp, active))
    }

    /// The bits of other nodes that are in the pool. What others say is old, or not yet theirs.
    fn others_in(&self, mask: u64) -> u64 {
        let mut others = mask & !(1 << self.me.index());
        if others != 0 {
            let members = self.pool.members();
            let bits = members.iter().fold(0, |bits, node| bits | 1 << node.as_usize());
            others &= bits;
        }
        others
    }

    /// As in a plain pool, once the stamp is drawn; the mask may move meanwhile.
    async fn add_others_of_coded(
        &self,
        active: &mut ActiveSnapshots,
        stamp: Stamp,
    ) -> Result<(), EngineError> {
        let started = self.env.now();
        loop {
            let lost = match self.try_to_add_others(active, stamp).await {
                Err(EngineError::Fabric(lost @ FabricError::PeerDead { peer }))
                    if peer.is_memory() =>
                {
                    lost
                }
                added => break added?,
            };
            if self.env.now() - started > self.config.request_timeout {
                return Err(lost.into());
            }
            self.confirm_memory_death(lost).await?;
        }
        if !active.is_empty() {
            self.make_room_for_images().await;
        }
        Ok(())
    }

    async fn try_to_add_others(
        &self,
        active: &mut ActiveSnapshots,
        stamp: Stamp,
    ) -> Result<(), EngineError> {
        let node = self.snapshot_node()?;
        let is_settled = || self.snapshots.settled_at.load(Ordering::Relaxed) == node + 1;
        if self.memory.coded.is_some() && !is_settled() {
            return self.add_unsettled(node, active, stamp).await;
        }
        let mask = self.memory.at(node, layout::SNAPSHOT_MASK_AT)?;
        let chain = Chain::from([Verb::read(mask, Buf::zeroed(8))]);
        let done = self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        let others = self.others_in(word_at(&done, 0));
        if others != 0 {
            self.add_others(node, others, active, stamp).await?;
        }
        Ok(())
    }

    /// Adds what the slots of these nodes say. One round trip.
    async fn add_others(
        &self,
        node: usize,
        others: u64,
        active: &mut ActiveSnapshots,
        before: Stamp,
    ) -> Result<(), EngineError> {
        let page = self.memory.at(node, 0)?;
        let mut chain = Chain::new();
        for other in (0..MAX_COMPUTE_NODES).filter(|other| others >> other & 1 != 0) {
            reads_of(page, other).into_iter().for_each(|read| chain.push(read));
        }
        let done = self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        (0..others.count_ones() as usize)
            .for_each(|other| add_read(active, &done, 2 * other, before));
        Ok(())
    }

    /// Adds what all members say at a memory node at which some may not have published themselves
    /// yet, as what was there before is lost: of those, any snapshot may be active. One round trip.
    async fn add_unsettled(
        &self,
        node: usize,
        active: &mut ActiveSnapshots,
        before: Stamp,
    ) -> Result<(), EngineError> {
        let state = self.pool.state();
        let page = self.memory.at(node, 0)?;
        let others = state.compute_nodes.iter().filter(|(own, _)| **own != self.index().get());
        let incarnations: Vec<u64> =
            others.clone().map(|(_, own)| own.incarnation.into()).collect();
        let mut chain = Chain::new();
        for (other, _) in others {
            let slot = layout::snapshot_slot_offset(usize::from(*other));
            let incarnation = RemoteAddr::new(page.region, slot + INCARNATION_AT);
            chain.push(Verb::read(incarnation, Buf::zeroed(8)));
            reads_of(page, usize::from(*other)).into_iter().for_each(|read| chain.push(read));
        }
        let mut is_settled = true;
        if !incarnations.is_empty() {
            let done = self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
            for (number, incarnation) in incarnations.into_iter().enumerate() {
                let read = 3 * number;
                if word_at(&done, read) == incarnation + 1 {
                    add_read(active, &done, read + 1, before);
                } else {
                    active.add_from(Stamp::default());
                    is_settled = false;
                }
            }
        }
        if is_settled {
            self.snapshots.settled_at.store(node + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Reads how old a snapshot can be, at any node, and frees images before that. The clock is
    /// read first, so that a snapshot that is not published yet is not older.
    async fn read_horizon(&self) -> Result<(), EngineError> {
        let clock = self.read_clock().await?;
        let mut active = ActiveSnapshots::none();
        self.try_to_add_others(&mut active, clock).await?;
        let own = {
            let mut own = self.snapshots.shared.own.lock();
            own.registry.note_clock(clock);
            own.registry.oldest()
        };
        let horizon = horizon(clock, &active, own);
        #[cfg(feature = "planted")]
        let horizon = match self.config.planted {
            crate::Planted::EarlyFree => clock,
            _ => horizon,
        };
        self.snapshots.horizon.fetch_max(horizon.get(), Ordering::AcqRel);
        if let Some(arena) = self.snapshots.arena.get() {
            arena.images().lock().retire(self.snapshot_horizon());
        }
        Ok(())
    }

    pub(super) fn snapshot_horizon(&self) -> Stamp {
        Stamp::new(self.snapshots.horizon.load(Ordering::Acquire))
    }

    /// The part of housekeeping for snapshots: every tick.
    pub(crate) async fn tend_snapshots(&self) -> Result<(), EngineError> {
        self.narrow_snapshots().await?;
        let has_images =
            self.snapshots.arena.get().is_some_and(|arena| !arena.images().lock().is_empty());
        if self.snapshots.horizon_is_wanted.swap(false, Ordering::Relaxed) || has_images {
            self.read_horizon().await?;
        }
        Ok(())
    }
}

/// Reads what a node has published, from the control page `page`. In this order: see `slot`.
fn reads_of(page: RemoteAddr, node: usize) -> [Verb; 2] {
    let slot = layout::snapshot_slot_offset(node);
    let at = |offset| RemoteAddr::new(page.region, slot + offset);
    [
        Verb::read(at(OPEN_FROM_AT), Buf::zeroed(8)),
        Verb::read(at(LISTED_AT), Buf::zeroed(8 * LISTED)),
    ]
}

/// Adds what [`reads_of`] have found, the first of which is the verb `read` of the chain.
fn add_read(active: &mut ActiveSnapshots, done: &Chain, read: usize, before: Stamp) {
    let listed = read_at(done, read + 1).words().iter().map(|word| u64::from_le(*word));
    add_published(active, word_at(done, read), listed, before);
}
