//! The driver of reclamation: publishes this node's epoch, advances the pool's, releases freed
//! lines.

use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_pool::{ComputeIndex, Pool, layout};

use crate::EngineError;
use crate::addressing::executed::read_at;
use crate::coherence::word::ComputeId;
use crate::core::Core;

/// The memory node that has the epochs: the first, or in a coded pool the first that lives and is
/// to stay.
pub(crate) fn epoch_node(pool: &Pool) -> Option<usize> {
    let state = pool.state();
    let stays = |node: &usize| pool.descriptor().coding.is_plain() || state.stays(*node as u16);
    (0..state.memory_nodes.len()).find(stays)
}

impl Core {
    /// A word of the epochs, and the memory node that has them.
    pub(super) fn epoch_word(&self, offset: u64) -> Option<(usize, RemoteAddr)> {
        let node = epoch_node(&self.pool)?;
        Some((node, self.memory.at(node, offset).ok()?))
    }

    /// Global epoch, and the oldest epoch that any node has published. Takes note of what others
    /// say of free lines.
    async fn read_epochs(&self) -> Result<Option<(u64, u64)>, EngineError> {
        let nodes = self.pool.descriptor().max_compute_nodes;
        let bytes = (layout::NODE_EPOCHS_AT - layout::SHORT_OF_LINES_AT) as usize + 8 * nodes;
        let Some((node, at)) = self.epoch_word(layout::SHORT_OF_LINES_AT) else { return Ok(None) };
        let chain = Chain::from([Verb::read(at, Buf::zeroed(bytes))]);
        let done = self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        let mut words = read_at(&done, 0).words().iter().map(|word| u64::from_le(*word));
        let (Some(requests), Some(given), Some(global)) =
            (words.next(), words.next(), words.next())
        else {
            return Ok(None);
        };
        self.allocator.search.note(requests, given, self.env.now());
        let published = words;
        // A published epoch is stored plus one: 0 is an absent node, or one that has not published
        // here yet.
        let is_member = |index: usize| self.pool.is_member(ComputeIndex::new(index as u16));
        let missing = |(index, epoch): (usize, u64)| epoch == 0 && is_member(index);
        if published.clone().enumerate().any(missing) {
            return Ok(Some((global, 0)));
        }
        let present = published.filter(|epoch| *epoch != 0);
        Ok(Some((global, present.min().map_or(global, |e| e - 1))))
    }

    /// Publishes this node's epoch (plus one), or its absence (0).
    pub(crate) async fn publish_epoch(&self, stored: u64) -> Result<(), EngineError> {
        self.publish_epoch_of(self.me, stored).await
    }

    /// As [`Core::publish_epoch`], for a node that is not there to do it.
    pub(crate) async fn publish_epoch_of(
        &self,
        node: ComputeId,
        stored: u64,
    ) -> Result<(), EngineError> {
        loop {
            let Err(lost) = self.write_epoch_of(node, stored).await else { return Ok(()) };
            if self.memory.coded.is_none() {
                return Err(lost.into());
            }
            // The pool outlives it, and has its epochs at another memory node then.
            self.confirm_memory_death(lost).await?;
        }
    }

    async fn write_epoch_of(&self, node: ComputeId, stored: u64) -> Result<(), FabricError> {
        let offset = layout::node_epoch_offset(node.index());
        let Some((memory, at)) = self.epoch_word(offset) else { return Ok(()) };
        let chain = Chain::from([Verb::write(at, Buf::copy_of(&stored.to_le_bytes()))]);
        self.memory.queue_pair(memory).post(chain).await.map(drop).map_err(|lost| lost.error)
    }

    /// Follows, publishes, ripens freed lines and, if it waits for some, moves the global epoch.
    pub(crate) async fn move_epochs(
        &self,
        published: &mut Option<(usize, u64)>,
    ) -> Result<(), EngineError> {
        let Some((node, at)) = self.epoch_word(layout::GLOBAL_EPOCH_AT) else { return Ok(()) };
        let Some((global, _)) = self.read_epochs().await? else { return Ok(()) };
        let own = self.epochs.follow(global);
        if *published != Some((node, own)) {
            if self.lifecycle.is_closed() {
                // It says that it is absent, and nothing else after that.
                return Ok(());
            }
            // Once: housekeeping does not wait for the death of a memory node.
            self.write_epoch_of(self.me, own + 1).await?;
            *published = Some((node, own));
        }
        if global < own {
            // The memory node that had the epochs is lost: here they go on from where they were.
            let chain = Chain::from([Verb::compare_and_swap(at, global, own)]);
            self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
            return Ok(());
        }
        self.mark_again().await?;
        if self.allocator.search.gives(self.env.now()) {
            self.give_surplus().await?;
        }
        if !self.allocator.has_limbo() {
            return Ok(());
        }
        self.mark_freed().await?;
        let Some((global, oldest)) = self.read_epochs().await? else { return Ok(()) };
        self.allocator.ripen(oldest);
        if oldest == global {
            let chain = Chain::from([Verb::compare_and_swap(at, global, global + 1)]);
            // Another node may have advanced it, which is as good.
            self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        }
        Ok(())
    }
}
