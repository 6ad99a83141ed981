//! Reads of the pool's clock, for snapshots.
//!
//! In a coded pool the clock has copies. An add returns after it has raised all living ones, and
//! the first one is never behind the others. A snapshot reads all living copies but those that are
//! being made, and takes the least value: every acknowledged stamp is in it; and a commit with a
//! later stamp had not raised one of them yet, so it learns of active snapshots after that read.

use futures_util::future::join_all;
use selkie_fabric::{Buf, Chain, FabricError, Verb};
use selkie_pool::layout;

use super::stamp::Stamp;
use crate::EngineError;
use crate::addressing::executed::word_at;
use crate::addressing::locations::Counter;
use crate::core::Core;

impl Core {
    /// A value of the clock that is no less than every stamp acknowledged before, and less than
    /// every stamp whose commit has not learnt yet what is published now. One round trip.
    pub(super) async fn read_clock(&self) -> Result<Stamp, EngineError> {
        if self.memory.coded.is_none() {
            let at = self.memory.at(0, layout::CLOCK_AT)?;
            let chain = Chain::from([Verb::read(at, Buf::zeroed(8))]);
            let done = self.memory.queue_pair(0).post(chain).await.map_err(|e| e.error)?;
            return Ok(Stamp::new(word_at(&done, 0)));
        }
        let started = self.env.now();
        loop {
            let error = match self.try_to_read_clock().await {
                Ok(Some(value)) => return Ok(value),
                Ok(None) => None,
                Err(EngineError::Fabric(error @ FabricError::PeerDead { peer }))
                    if peer.is_memory() =>
                {
                    self.memory.quiesced.suspect(usize::from(peer.index()));
                    Some(error)
                }
                Err(error) => return Err(error),
            };
            let waited = self.env.now() - started;
            if waited > self.config.request_timeout {
                let addr = Counter::Clock.addr();
                return Err(error.map_or(EngineError::Timeout { addr, waited }, EngineError::from));
            }
            self.lifecycle.check_failed()?;
            self.env.sleep(self.config.tick).await;
        }
    }

    /// Returns `None` while the copies are not known. As `try_to_change` of counters, which it must
    /// not meet with other copies.
    async fn try_to_read_clock(&self) -> Result<Option<Stamp>, EngineError> {
        let _begun = self.memory.quiesced.unlatched.begin();
        // Read after it has begun: a rebuild that is not seen here waits for it.
        let state = self.pool.state();
        if !state.rebuilds.is_empty() {
            return Ok(None);
        }
        let _using = self.memory.placement.using();
        let Some(copies) = self.memory.placement.copies(Counter::Clock) else {
            return Err(EngineError::BadAddress { addr: Counter::Clock.addr() });
        };
        if copies.wait {
            return Ok(None);
        }
        let parity = copies.places.len().saturating_sub(1);
        // Those that are being made have not been raised to what was acknowledged before.
        let complete = copies.places.into_iter().take(copies.complete);
        let living = complete.filter(|(node, _)| state.lives(*node as u16));
        let reads = join_all(living.map(|(node, at)| {
            let chain = Chain::from([Verb::read(at, Buf::zeroed(8))]);
            self.memory.queue_pair(node).post(chain)
        }));
        let mut least: Option<u64> = None;
        for done in reads.await {
            let value = word_at(&done.map_err(|error| error.error)?, 0);
            least = Some(least.map_or(value, |least| least.min(value)));
        }
        match least {
            Some(least) => Ok(Some(Stamp::new(least))),
            None => Err(EngineError::TooManyLost { lost: parity + 1, parity }),
        }
    }
}
