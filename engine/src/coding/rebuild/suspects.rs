//! Memory nodes of a coded pool that verbs of this node found dead.
//!
//! ```text
//! found --> the fabric says that it is dead, or others miss it     --> declared dead
//!       --> others do not miss it in time: it lives. This node tells the pool that it does not
//!           reach it, and waits half a lease for the others to say so
//!           --> none reaches it, and the coding can spare it       --> declared dead
//!           --> else                                               --> this node gives up
//! ```
//! This node cannot write back pages that others rely on. If another reaches the memory node, it
//! recovers from the death of this one. A node that does not use the memory node may not know that
//! it does not reach it: it asks when another says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selkie_fabric::{Buf, Chain, FabricError, PeerId, Verb};
use selkie_pool::layout;

use crate::EngineError;
use crate::coding::quiesced::Suspect;
use crate::core::Core;

/// Ends a task's look at suspected memory nodes, also one that is dropped.
struct Declaring<'a>(&'a AtomicBool);

impl Drop for Declaring<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Core {
    /// Takes the next step with each suspected memory node, unless another task does. A step that
    /// fails is repeated by the next call.
    pub(crate) async fn declare_suspects(&self) -> Result<(), EngineError> {
        let quiesced = &self.memory.quiesced;
        if quiesced.is_declaring.swap(true, Ordering::Acquire) {
            return Ok(());
        }
        let _declaring = Declaring(&quiesced.is_declaring);
        self.ask_for_unreached();
        let suspects = quiesced.suspects.lock().clone();
        for (memory, suspect) in suspects {
            let next = self.after(memory, suspect).await?;
            let mut suspects = quiesced.suspects.lock();
            match next {
                Some(next) => drop(suspects.insert(memory, next)),
                None => drop(suspects.remove(&memory)),
            }
        }
        Ok(())
    }

    /// What follows; `None` if the memory node is dead.
    async fn after(&self, memory: usize, is: Suspect) -> Result<Option<Suspect>, EngineError> {
        let (peer, now) = (PeerId::memory(memory as u16), self.env.now());
        if self.pool.is_memory_dead(memory) {
            return Ok(None);
        }
        let by = match is {
            Suspect::Told { until } if now < until => return Ok(Some(is)),
            Suspect::Told { .. } => return self.is_given_up(peer).await,
            Suspect::Awaited { by } => by,
            // Another node has waited for that already.
            Suspect::Found if self.is_unreached_by_others(memory) => now,
            // Not every fabric can tell: the others miss the memory node if it is dead. No other
            // host watches a memory node of this host.
            Suspect::Found => match self.missed_from_now(peer, self.pool.missed_within(memory)) {
                Some(missed) => now + missed,
                None => {
                    self.pool.declare_memory_dead(peer.index()).await?;
                    return Ok(None);
                }
            },
        };
        // Perhaps nor does the control plane hear of it: it may be cut off, and is waited for. A
        // node that does not know that it is in the pool itself, as after its machine was
        // suspended, may not have heard of the death yet.
        let by = self.news_by(by, !self.may_be_unheard_of(memory));
        if now < by {
            return Ok(Some(Suspect::Awaited { by }));
        }
        match self.pool.note_unreached(peer.index(), self.index()).await {
            Ok(()) => {}
            // A reader: the others do not wait for it.
            Err(denied) if denied.is_denied() => {}
            Err(error) => return Err(error.into()),
        }
        let until = now + self.others_say_so_within();
        tracing::warn!(
            node = %self.endpoint.id(), %peer,
            "does not reach a memory node that lives, and asks whether others do"
        );
        Ok(Some(Suspect::Told { until }))
    }

    /// The links of all ask for signs of life each quarter of a lease.
    fn others_say_so_within(&self) -> Duration {
        self.pool.state().timing.lease / 2
    }

    /// Either the memory node goes, or this node.
    async fn is_given_up(&self, peer: PeerId) -> Result<Option<Suspect>, EngineError> {
        let is_dead = match self.pool.condemn_unreached(peer.index()).await {
            Err(denied) if denied.is_denied() => false,
            condemned => condemned?,
        };
        if is_dead {
            tracing::warn!(%peer, "no compute node reaches this memory node: it is given up");
            return Ok(None);
        }
        self.end_unreachable(peer);
        self.lifecycle.check_failed()?;
        Ok(None)
    }

    fn is_unreached_by_others(&self, memory: usize) -> bool {
        self.pool.unreached_by_others(self.index()).contains(&memory)
    }

    /// Reads from memory nodes that others do not reach.
    fn ask_for_unreached(&self) {
        for memory in self.pool.unreached_by_others(self.index()) {
            let Some(core) = self.this.upgrade() else { return };
            let is_known = self.memory.quiesced.is_suspect(memory);
            if is_known || !self.memory.quiesced.asked.lock().insert(memory) {
                continue;
            }
            drop(self.spawn("probe", async move {
                if let Ok(at) = core.memory.at(memory, layout::GLOBAL_EPOCH_AT) {
                    let chain = Chain::from([Verb::read(at, Buf::zeroed(8))]);
                    let read = core.memory.queue_pair(memory).post(chain).await;
                    let is_dead = |error: &_| matches!(error, FabricError::PeerDead { .. });
                    if read.is_err_and(|lost| is_dead(&lost.error)) {
                        core.memory.quiesced.suspect(memory);
                    }
                }
                core.memory.quiesced.asked.lock().remove(&memory);
            }));
        }
    }
}
