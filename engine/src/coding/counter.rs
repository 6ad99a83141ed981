//! Counters that outlive memory nodes: a counter in a coded pool has r + 1 copies.
//!
//! The first copy whose memory node lives has the value of the counter. An add raises the other
//! copies to the new value before it returns. So after a loss the next first copy is not less than
//! any value that was returned, even if the node that added died in between. The first copy changes
//! for all nodes at the same time: adds wait during a rebuild, and a rebuild waits for adds that
//! have begun. The same holds when a copy moves to another memory node.

use super::header_versions::versions_bytes;
use super::placed::placed;
use super::tag::{Tag, Version, Versions};
use super::unlatched::UnlatchedAccess;
use crate::addressing::executed::found_at;
use crate::addressing::locations::Counter;
use crate::core::Core;
use crate::{EngineError, GAddr};
use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_pool::layout::{LATCH_AT, SPLIT_VERSION_AT};

/// A change of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CounterChange {
    Add(u64),
    /// The counter becomes at least this.
    Raise(u64),
}

impl Core {
    /// Begins an unlatched access; waits for rebuilds to end.
    pub(crate) async fn begin_unlatched(&self) -> Result<UnlatchedAccess<'_>, EngineError> {
        loop {
            let begun = self.memory.quiesced.unlatched.begin();
            // Read after it has begun: a rebuild that is not seen here waits for it.
            if self.pool.state().rebuilds.is_empty() {
                return Ok(begun);
            }
            drop(begun);
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Marks a line as a counter, in the tags of its copies and in its header. No other node knows
    /// the line yet.
    pub(crate) async fn mark_counter(&self, counter: GAddr) -> Result<(), EngineError> {
        let _begun = self.begin_unlatched().await?;
        let _using = self.memory.placement.using();
        let (Some(home), Some(copies)) = (
            self.memory.placement.home(counter),
            self.memory.placement.copies(Counter::Line(counter)),
        ) else {
            return Err(EngineError::BadAddress { addr: counter });
        };
        let parity = self.pool.descriptor().coding.parity();
        let mut versions = Versions::default();
        versions.iter_mut().take(parity + 1).for_each(|version| *version = Version::COUNTER);
        for copy in copies.places {
            self.tag_counter(copy).await?;
        }
        let at = home.latch.offset - LATCH_AT + SPLIT_VERSION_AT;
        let bytes = Buf::copy_of(&versions_bytes(&versions));
        let write = placed(RemoteAddr::new(home.latch.region, at), bytes);
        self.post_to_living(home.node, write).await
    }

    pub(crate) async fn tag_counter(&self, copy: (usize, RemoteAddr)) -> Result<(), EngineError> {
        let (node, at) = copy;
        let payload = self.pool.descriptor().geometry().payload_bytes() as u64;
        let tag = Tag { version: Version::COUNTER, checksum: 0 };
        let word = Buf::copy_of(&tag.to_word().to_le_bytes());
        let write = placed(RemoteAddr::new(at.region, at.offset + payload), word);
        self.post_to_living(node, write).await
    }

    /// Posts a write; what a dead memory node had is regenerated.
    async fn post_to_living(&self, node: usize, chain: Chain) -> Result<(), EngineError> {
        match self.memory.queue_pair(node).post(chain).await.map_err(|error| error.error) {
            Ok(_) => Ok(()),
            Err(error) => self.confirm_memory_death(error).await,
        }
    }

    /// Adds to a counter, and returns its value before. One round trip for each copy.
    pub(crate) async fn add_to_copies(
        &self,
        counter: Counter,
        delta: u64,
    ) -> Result<u64, EngineError> {
        self.change_copies(counter, CounterChange::Add(delta)).await
    }

    /// Changes a counter, and returns its value before an add. An add takes one round trip for each
    /// copy, a raise perhaps more.
    pub(crate) async fn change_copies(
        &self,
        counter: Counter,
        change: CounterChange,
    ) -> Result<u64, EngineError> {
        let started = self.env.now();
        loop {
            let error = match self.try_to_change(counter, change).await {
                Err(EngineError::Fabric(error @ FabricError::PeerDead { peer }))
                    if self.memory.coded.is_some() && peer.is_memory() =>
                {
                    self.memory.quiesced.suspect(usize::from(peer.index()));
                    Some(error)
                }
                Ok(None) => None,
                Ok(Some(old)) => return Ok(old),
                Err(error) => return Err(error),
            };
            if self.env.now() - started > self.config.request_timeout {
                let waited = self.env.now() - started;
                let addr = counter.addr();
                return Err(error.map_or(EngineError::Timeout { addr, waited }, EngineError::from));
            }
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Returns `None` while the first copy is not known.
    async fn try_to_change(
        &self,
        counter: Counter,
        change: CounterChange,
    ) -> Result<Option<u64>, EngineError> {
        let _begun = self.memory.quiesced.unlatched.begin();
        // Read after it has begun: a rebuild that is not seen here waits for it.
        let state = self.pool.state();
        if !state.rebuilds.is_empty() {
            return Ok(None);
        }
        let _using = self.memory.placement.using();
        let Some(copies) = self.memory.placement.copies(counter) else {
            return Err(EngineError::BadAddress { addr: counter.addr() });
        };
        if copies.wait {
            return Ok(None);
        }
        let copies = copies.places;
        let lives = |(node, _): &&(usize, RemoteAddr)| {
            // By that very state: a node that dies after it keeps the first copy until the rebuild.
            self.memory.coded.is_none() || state.lives(*node as u16)
        };
        let mut living = copies.iter().filter(lives);
        let Some((node, at)) = living.next() else {
            let (lost, parity) = (copies.len(), copies.len().saturating_sub(1));
            return Err(EngineError::TooManyLost { lost, parity });
        };
        let (old, now) = match change {
            CounterChange::Add(delta) => {
                let chain = Chain::from([Verb::fetch_and_add(*at, delta)]);
                let done = self.memory.queue_pair(*node).post(chain).await.map_err(|e| e.error)?;
                let old = found_at(&done, 0);
                (old, old.saturating_add(delta))
            }
            CounterChange::Raise(least) => {
                self.raise(*node, *at, least).await?;
                (least, least)
            }
        };
        for (node, at) in living {
            match self.raise(*node, *at, now).await {
                // A copy on a dead memory node is read no more.
                Err(EngineError::Fabric(error)) => self.confirm_memory_death(error).await?,
                raised => raised?,
            }
        }
        Ok(Some(old))
    }

    /// Sets a copy of a counter to `least`, unless it is more.
    pub(crate) async fn raise(
        &self,
        node: usize,
        at: RemoteAddr,
        least: u64,
    ) -> Result<(), EngineError> {
        let mut known = least.saturating_sub(1);
        while known < least {
            let chain = Chain::from([Verb::compare_and_swap(at, known, least)]);
            let done = self.memory.queue_pair(node).post(chain).await.map_err(|e| e.error)?;
            let old = found_at(&done, 0);
            if old == known {
                break;
            }
            known = old;
        }
        Ok(())
    }
}
