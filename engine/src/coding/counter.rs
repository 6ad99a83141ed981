//! Counters that outlive memory nodes: a counter in a coded pool has r + 1 copies.
//!
//! The first copy whose memory node lives says what the counter is; the others are raised to that
//! before the sum is returned. So whichever is the first after a loss is beyond everything that was
//! returned, also where who added died between the two. It becomes the first for all at the same
//! time: adds wait while a rebuild is under way, and a rebuild waits for those that have begun. The
//! same holds when a copy moves to another memory node.

use super::header_versions::versions_bytes;
use super::placed::placed;
use super::tag::{Tag, Version, Versions};
use super::unlatched::UnlatchedAccess;
use crate::addressing::placement::Counter;
use crate::core::Core;
use crate::{EngineError, GAddr};
use selkie_fabric::{Buf, Chain, FabricError, RemoteAddr, Verb};
use selkie_memnode::layout::{LATCH_AT, SPLIT_VERSION_AT};

/// What becomes of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CounterChange {
    Add(u64),
    /// It is this afterwards, unless it is more.
    Raise(u64),
}

impl Core {
    /// Begins something that must not meet a rebuild; waits for one to end.
    pub(crate) async fn begin_unlatched(&self) -> Result<UnlatchedAccess<'_>, EngineError> {
        loop {
            let begun = self.memory.quiesced.unlatched.begin();
            // After it has begun: a rebuild that is not seen here waits for it.
            if self.pool.state().rebuilds.is_empty() {
                return Ok(begun);
            }
            drop(begun);
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Says of a line that it is a counter: in the tags of its copies, and in its header. Nobody
    /// knows the line yet.
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

    /// What is lost already is made again.
    async fn post_to_living(&self, node: usize, chain: Chain) -> Result<(), EngineError> {
        match self.memory.queue_pair(node).post(chain).await.map_err(|error| error.error) {
            Ok(_) => Ok(()),
            Err(error) => self.gone(error).await,
        }
    }

    /// Adds to a counter, and returns what it was. A round trip, and one more for each further
    /// copy.
    pub(crate) async fn add_to_copies(
        &self,
        counter: Counter,
        delta: u64,
    ) -> Result<u64, EngineError> {
        self.change_copies(counter, CounterChange::Add(delta)).await
    }

    /// Changes a counter; what it was before an add. A round trip, and one more for each further
    /// copy; of a raise, some.
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

    /// `None` while it is not known which copy is the first.
    async fn try_to_change(
        &self,
        counter: Counter,
        change: CounterChange,
    ) -> Result<Option<u64>, EngineError> {
        let _begun = self.memory.quiesced.unlatched.begin();
        // After it has begun: a rebuild that is not seen here waits for it.
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
            // As of that very state: who dies after it is the first until the rebuild is over.
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
                let old = done.old(0).unwrap_or_default();
                (old, old.saturating_add(delta))
            }
            CounterChange::Raise(least) => {
                self.raise(*node, *at, least).await?;
                (least, least)
            }
        };
        for (node, at) in living {
            match self.raise(*node, *at, now).await {
                // It is raised no more, nor asked.
                Err(EngineError::Fabric(error)) => self.gone(error).await?,
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
            let old = done.old(0).unwrap_or(least);
            if old == known {
                break;
            }
            known = old;
        }
        Ok(())
    }
}
