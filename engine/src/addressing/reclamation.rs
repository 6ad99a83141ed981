//! The driver of reclamation: publishes this node's epoch, advances the pool's, releases freed
//! lines.

use std::time::Duration;

use futures_util::lock::Mutex as TurnLock;
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

/// The global epoch is held back for so long by a node that is not in the pool until the control
/// plane is asked about it.
const STRANGERS_AFTER: Duration = Duration::from_secs(2);

/// Held by the task that publishes this node's epoch and marks its lines, and by a node that
/// leaves: nothing is written for a node after that has said that it is absent.
pub(crate) type Reclamation = TurnLock<Published>;

/// What a node has published, and what it has seen of others.
#[derive(Default)]
pub(crate) struct Published {
    /// The memory node that was told, and the epoch.
    own: Option<(usize, u64)>,
    /// Since when words of nodes that are not in the pool are there.
    strangers_since: Option<Duration>,
}

/// The epochs in the pool.
struct EpochsRead {
    global: u64,
    /// The oldest that a node has published.
    oldest: u64,
    /// Words of nodes that are not in the pool, as far as this node knows, and hold the epoch back.
    strangers: Vec<(u16, u64)>,
}

impl Core {
    /// A word of the epochs, and the memory node that has them.
    pub(super) fn epoch_word(&self, offset: u64) -> Option<(usize, RemoteAddr)> {
        let node = epoch_node(&self.pool)?;
        Some((node, self.memory.at(node, offset).ok()?))
    }

    /// Reads the epochs. Takes note of what others say of free lines.
    async fn read_epochs(&self) -> Result<Option<EpochsRead>, EngineError> {
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
        let published = (0..).zip(words);
        // A published epoch is stored plus one: 0 is an absent node, or one that has not published
        // here yet.
        let is_member = |index| self.pool.is_member(ComputeIndex::new(index));
        let is_missing = |(index, word): (u16, u64)| word == 0 && is_member(index);
        let present = published.clone().filter(|(_, word)| *word != 0);
        let oldest = match published.clone().any(is_missing) {
            true => 0,
            // A node that has just come in counts before this one knows of it.
            false => present.clone().map(|(_, word)| word - 1).min().unwrap_or(global),
        };
        let is_strange = |(index, word): &(u16, u64)| *word <= global && !is_member(*index);
        Ok(Some(EpochsRead { global, oldest, strangers: present.filter(is_strange).collect() }))
    }

    /// Clears the epochs of nodes that are not in the pool, and were not recovered from: their
    /// processes ended before they came in. A node that is coming in publishes its epoch once more
    /// when it is a member.
    async fn clear_strangers(&self, strangers: &[(u16, u64)]) -> Result<(), EngineError> {
        let state = self.pool.latest_state().await?;
        let is_known = |index: u16| {
            state.compute_nodes.contains_key(&index) || state.lost.contains_key(&index)
        };
        for (index, word) in strangers.iter().copied().filter(|(index, _)| !is_known(*index)) {
            let offset = layout::node_epoch_offset(usize::from(index));
            let Some((node, at)) = self.epoch_word(offset) else { return Ok(()) };
            let clear = Chain::from([Verb::compare_and_swap(at, word, 0)]);
            self.memory.queue_pair(node).post(clear).await.map_err(|e| e.error)?;
            tracing::debug!(
                node = index,
                epoch = word - 1,
                "cleared the epoch of a node that never came in"
            );
        }
        Ok(())
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
    pub(crate) async fn move_epochs(&self) -> Result<(), EngineError> {
        // A node that leaves holds it: it says that it is absent, and nothing else after that.
        let Some(mut published) = self.reclamation.try_lock() else { return Ok(()) };
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        let Some((node, at)) = self.epoch_word(layout::GLOBAL_EPOCH_AT) else { return Ok(()) };
        let Some(EpochsRead { global, .. }) = self.read_epochs().await? else { return Ok(()) };
        let own = self.epochs.follow(global);
        if published.own != Some((node, own)) {
            // Once: housekeeping does not wait for the death of a memory node.
            self.write_epoch_of(self.me, own + 1).await?;
            published.own = Some((node, own));
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
        let Some(EpochsRead { global, oldest, strangers }) = self.read_epochs().await? else {
            return Ok(());
        };
        self.allocator.ripen(oldest);
        if strangers.is_empty() {
            published.strangers_since = None;
        } else {
            let now = self.env.now();
            if now - *published.strangers_since.get_or_insert(now) >= STRANGERS_AFTER {
                self.clear_strangers(&strangers).await?;
                published.strangers_since = None;
            }
        }
        if oldest == global {
            let chain = Chain::from([Verb::compare_and_swap(at, global, global + 1)]);
            // Another node may have advanced it, which is as good.
            self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
        }
        Ok(())
    }
}
