//! How a node tells the others which snapshots it has: at the memory node that has the epochs.
//!
//! One caller at a time publishes: it holds the turn. Until its words are in place `published` says
//! nothing, and so it stays if its future is dropped or fails; then everything is published anew.
//! All words of a node go over one queue pair, so what was given up does not come later.

use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_pool::layout;

use super::registry::Begin;
use super::slot::{INCARNATION_AT, LISTED_AT, Listed, OPEN_FROM_AT, word_of};
use super::stamp::Stamp;
use super::state::{Beginning, Published, Snapshot};
use crate::EngineError;
use crate::addressing::executed::{found_at, word_at};
use crate::addressing::reclamation::epoch_node;
use crate::coding::placed::placed;
use crate::core::Core;

/// Words as they lie in memory.
fn buf_of(words: &[u64]) -> Buf {
    let mut buf = Buf::zeroed(8 * words.len());
    buf.words_mut().iter_mut().zip(words).for_each(|(to, word)| *to = word.to_le());
    buf
}

impl Core {
    /// The memory node at which snapshots are published now.
    pub(super) fn snapshot_node(&self) -> Result<usize, EngineError> {
        if self.memory.coded.is_none() {
            return Ok(0);
        }
        let parity = self.pool.descriptor().coding.parity();
        let lost = self.memory.node_count();
        epoch_node(&self.pool).ok_or(EngineError::TooManyLost { lost, parity })
    }

    fn own_slot(&self, node: usize) -> Result<RemoteAddr, EngineError> {
        self.memory.at(node, layout::snapshot_slot_offset(self.me.index()))
    }

    fn own_bit(&self) -> u64 {
        1 << self.me.index()
    }

    async fn post_to(&self, node: usize, chain: Chain) -> Result<Chain, FabricError> {
        self.memory.queue_pair(node).post(chain).await.map_err(|error| error.error)
    }

    /// Begins a snapshot. One round trip; another one in a coded pool unless this node has begun
    /// one lately.
    ///
    /// # Errors
    /// `Timeout`, `Fabric`; the node's error, if it has failed or is closed.
    pub(super) async fn begin_snapshot(&self) -> Result<Snapshot, EngineError> {
        let started = self.env.now();
        loop {
            self.lifecycle.check_alive()?;
            let lost = match self.try_to_begin().await {
                Err(EngineError::Fabric(lost @ FabricError::PeerDead { peer }))
                    if self.memory.coded.is_some() && peer.is_memory() =>
                {
                    lost
                }
                begun => return begun,
            };
            if self.env.now() - started > self.config.request_timeout {
                return Err(lost.into());
            }
            // The pool outlives it, and snapshots are published elsewhere then.
            self.confirm_memory_death(lost).await?;
        }
    }

    async fn try_to_begin(&self) -> Result<Snapshot, EngineError> {
        let node = self.snapshot_node()?;
        let mut clock = None;
        let beginning = match self.register(node) {
            Some(beginning) => beginning,
            None => {
                let _turn = self.snapshots.turn.lock().await;
                match self.register(node) {
                    Some(beginning) => beginning,
                    None => {
                        let (beginning, read) = self.open_registry(node).await?;
                        clock = read;
                        beginning
                    }
                }
            }
        };
        let clock = match clock {
            Some(clock) => clock,
            None => self.read_clock().await?,
        };
        #[cfg(feature = "planted")]
        let clock = match self.config.planted {
            crate::Planted::StaleSnapshot => beginning.lower(),
            _ => clock,
        };
        Ok(beginning.began(clock))
    }

    /// Registers a snapshot, if what is published covers it.
    fn register(&self, node: usize) -> Option<Beginning> {
        let shared = &self.snapshots.shared;
        let mut own = shared.own.lock();
        own.published.filter(|published| published.at == node)?;
        let Begin::Registered(lower) = own.registry.begin() else { return None };
        shared.enter();
        drop(own);
        Some(Beginning::new(lower, shared))
    }

    /// Publishes that a snapshot may begin. With what the clock said after that, in a plain pool.
    /// The caller has the turn.
    async fn open_registry(&self, node: usize) -> Result<(Beginning, Option<Stamp>), EngineError> {
        self.lifecycle.check_alive()?;
        let shared = &self.snapshots.shared;
        let (published, lower) = {
            let mut own = shared.own.lock();
            shared.enter();
            let published = own.published.take().filter(|published| published.at == node);
            if published.is_none() {
                own.registry.forget_published();
            }
            (published, own.registry.open())
        };
        // From here on it is taken back if this is given up.
        let beginning = Beginning::new(lower, shared);
        let Some(Published { has_bit, .. }) = published else {
            self.publish_anew(node).await?;
            return Ok((beginning, None));
        };
        let slot = self.own_slot(node)?;
        let open_from = RemoteAddr::new(slot.region, slot.offset + OPEN_FROM_AT);
        let mask = RemoteAddr::new(slot.region, layout::SNAPSHOT_MASK_AT);
        let mut chain = Chain::from([
            Verb::write(open_from, buf_of(&[word_of(Some(lower))])),
            // The write is in place then.
            Verb::fetch_and_add(mask, if has_bit { 0 } else { self.own_bit() }),
        ]);
        let is_plain = self.memory.coded.is_none();
        if is_plain {
            let clock = RemoteAddr::new(slot.region, layout::CLOCK_AT);
            chain.push(Verb::read(clock, Buf::zeroed(8)));
        }
        let done = self.post_to(node, chain).await?;
        let mut own = shared.own.lock();
        own.registry.opened(lower);
        own.published = Some(Published { at: node, has_bit: true });
        Ok((beginning, is_plain.then(|| Stamp::new(word_at(&done, 2)))))
    }

    /// Publishes all that this node has, whatever is there. The caller has the turn.
    pub(super) async fn publish_anew(&self, node: usize) -> Result<(), EngineError> {
        let (open_from, listed) = {
            let mut own = self.snapshots.shared.own.lock();
            own.published = None;
            own.registry.anew()
        };
        let arena = self.snapshots.arena.get();
        let key = arena.map_or(0, |arena| u64::from(arena.region().key().to_raw()) + 1);
        let [a, b, c, d] = listed.map(word_of);
        let words = [key, word_of(open_from), a, b, c, d, self.incarnation_word()];
        self.write_slot(node, &words, open_from.is_some()).await?;
        let mut own = self.snapshots.shared.own.lock();
        if let Some(from) = open_from {
            own.registry.opened(from);
        }
        own.published = Some(Published { at: node, has_bit: open_from.is_some() });
        Ok(())
    }

    /// By which the others know that this node has published itself here. Zero in a plain pool,
    /// whose snapshots stay where they are, and as long as the node is not in the pool.
    fn incarnation_word(&self) -> u64 {
        let incarnation = self.lifecycle.incarnation().filter(|_| self.memory.coded.is_some());
        incarnation.map_or(0, |own| u64::from(own) + 1)
    }

    /// Writes the whole slot, its last word last, and sets or clears the bit.
    async fn write_slot(
        &self,
        node: usize,
        words: &[u64; layout::SNAPSHOT_SLOT_WORDS],
        bit: bool,
    ) -> Result<(), EngineError> {
        let slot = self.own_slot(node)?;
        let mask = RemoteAddr::new(slot.region, layout::SNAPSHOT_MASK_AT);
        let incarnation = RemoteAddr::new(slot.region, slot.offset + INCARNATION_AT);
        let [published @ .., own] = words;
        let chain = Chain::from([
            Verb::write(slot, buf_of(published)),
            Verb::write(incarnation, buf_of(&[*own])),
            Verb::fetch_and_add(mask, 0),
        ]);
        let found = found_at(&self.post_to(node, chain).await?, 2) & self.own_bit();
        let wanted = if bit { self.own_bit() } else { 0 };
        if found != wanted {
            let delta = wanted.wrapping_sub(found);
            self.post_to(node, Chain::from([Verb::fetch_and_add(mask, delta)])).await?;
        }
        Ok(())
    }

    /// Clears what an earlier node of this index has left, before this one is in the pool.
    pub(crate) async fn clear_snapshots(&self) -> Result<(), EngineError> {
        let _turn = self.snapshots.turn.lock().await;
        loop {
            let cleared = self.publish_anew(self.snapshot_node()?).await;
            let Err(EngineError::Fabric(lost)) = cleared else { return cleared };
            if self.memory.coded.is_none() {
                return Err(lost.into());
            }
            self.confirm_memory_death(lost).await?;
        }
    }

    /// Takes back what this node has published, as it leaves: it publishes nothing after that.
    /// Others ignore what a node that has left says.
    pub(crate) async fn withdraw_snapshots(&self) {
        let _turn = self.snapshots.turn.lock().await;
        let Some(Published { at, .. }) = self.snapshots.shared.own.lock().published.take() else {
            return;
        };
        if let Err(error) = self.write_slot(at, &[0; layout::SNAPSHOT_SLOT_WORDS], false).await {
            tracing::debug!(%error, "snapshots are not taken back");
        }
    }

    /// Publishes what is active more exactly: see [`super::registry`]. Every tick.
    pub(super) async fn narrow_snapshots(&self) -> Result<(), EngineError> {
        // A caller that publishes now leaves the rest to the next tick.
        let Some(_turn) = self.snapshots.turn.try_lock() else { return Ok(()) };
        if self.lifecycle.is_closed() {
            return Ok(());
        }
        let node = self.snapshot_node()?;
        let published = self.snapshots.shared.own.lock().published;
        let Some(published) = published.filter(|published| published.at == node) else {
            return self.publish_anew(node).await;
        };
        let Some((chain, has_bit)) = self.narrower(published)? else { return Ok(()) };
        self.post_to(node, chain).await?;
        self.snapshots.shared.own.lock().published = Some(Published { at: node, has_bit });
        Ok(())
    }

    /// What is to be published, and whether the bit is set then; nothing if that is so already.
    fn narrower(&self, before: Published) -> Result<Option<(Chain, bool)>, EngineError> {
        let mut own = self.snapshots.shared.own.lock();
        let (listed, raised) = (own.registry.list(), own.registry.raise());
        let is_over = before.has_bit && own.registry.is_closed_and_empty();
        if listed.is_none() && raised.is_none() && !is_over {
            return Ok(None);
        }
        own.published = None;
        let chain = self.narrowing_chain(before.at, listed, raised, is_over)?;
        Ok(Some((chain, before.has_bit && !is_over)))
    }

    /// First what is listed: a node that sees the `open_from` behind it sees that, too.
    fn narrowing_chain(
        &self,
        node: usize,
        listed: Option<Listed>,
        raised: Option<Option<Stamp>>,
        is_over: bool,
    ) -> Result<Chain, EngineError> {
        let slot = self.own_slot(node)?;
        let at = |offset| RemoteAddr::new(slot.region, slot.offset + offset);
        let mut chain = Chain::new();
        if let Some(listed) = listed {
            chain.push(Verb::write(at(LISTED_AT), buf_of(&listed.map(word_of))));
        }
        if let Some(open_from) = raised {
            chain.push(Verb::write(at(OPEN_FROM_AT), buf_of(&[word_of(open_from)])));
        }
        if is_over {
            let mask = RemoteAddr::new(slot.region, layout::SNAPSHOT_MASK_AT);
            chain.push(Verb::fetch_and_add(mask, self.own_bit().wrapping_neg()));
        }
        Ok(chain)
    }

    /// Publishes the key of this node's arena. The caller has the turn.
    pub(super) async fn publish_arena(&self, key: u64) -> Result<(), EngineError> {
        let node = self.snapshot_node()?;
        let slot = self.own_slot(node)?;
        self.post_to(node, placed(slot, buf_of(&[key + 1]))).await?;
        Ok(())
    }
}
