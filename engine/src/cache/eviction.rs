//! Eviction: clock with a second chance, batched per memory node, in the background.
//!
//! The evictor starts when free frames fall below the low-water mark and stops above the high one.
//! A caller that finds no frame at all evicts a batch itself, as the background task may not get a
//! turn on a busy thread.

use std::sync::Weak;

use selkie_fabric::env::yield_now;
use selkie_fabric::{Chain, ChainError};

use crate::coherence::chains::{Batch, old_values};
use crate::coherence::machine::Event;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};

/// Frames the hand passes for one batch at most, relative to the cache: everything twice, so that
/// every used frame had its second chance.
const SWEEPS: usize = 2;

impl Core {
    /// Evicts a batch in the foreground. False: no line could be.
    pub(crate) fn make_room(&self) -> bool {
        self.evict_batch() > 0 || self.cache.frames.free_count() > 0
    }

    /// Picks victims, posts one chain a memory node; how many lines were taken.
    pub(crate) fn evict_batch(&self) -> usize {
        let mut batches = Vec::new();
        let mut taken = 0;
        let passes = SWEEPS * self.cache.frames.count();
        for _ in 0..passes {
            if taken == self.config.eviction_batch {
                break;
            }
            let id = self.cache.frames.advance_hand();
            let frame = self.cache.frames.get(id);
            if frame.latch.second_chance_over() && self.evict_one(frame.addr(), &mut batches) {
                taken += 1;
            }
        }
        self.post_batches(batches);
        taken
    }

    /// Posts what was gathered, one chain a memory node.
    pub(crate) fn post_batches(&self, batches: Vec<Batch>) {
        for (node, batch) in batches.into_iter().enumerate() {
            if !batch.lines.is_empty() {
                self.post_batch(node, batch);
            }
        }
    }

    /// Starts the eviction of one line if it is still cached, at rest and idle.
    pub(crate) fn evict_one(&self, addr: GAddr, batches: &mut Vec<Batch>) -> bool {
        self.give_up(addr, Event::Evict, batches)
    }

    /// Starts to give up one line if it is at rest and idle: its copy, or all the word says of it.
    pub(crate) fn give_up(&self, addr: GAddr, event: Event, batches: &mut Vec<Batch>) -> bool {
        if addr.is_null() {
            return false;
        }
        self.with_line(addr, |open| {
            let settled = open.line.phase.at_rest() && open.waiters.is_empty();
            if let Some(log) = &self.log {
                // A change that is not durable does not leave.
                log.want();
            }
            if settled {
                self.run(addr, open, event, Some(batches));
            }
            let evicting = settled
                && match open.line.phase {
                    // The copy is gone at once where the word need not be told, or there is none.
                    phase if phase.without_copy() => open.frame.is_some(),
                    phase => phase.operation_outstanding(),
                };
            if evicting {
                Counters::add(&self.telemetry.counters.evictions);
            }
            evicting
        })
    }

    fn post_batch(&self, node: usize, batch: Batch) {
        let Batch { chain, lines } = batch;
        let mut completion = self.memory.queue_pair(node).post(chain);
        match completion.try_take() {
            Some(result) => self.batch_completed(&lines, result),
            None => {
                let Some(core) = self.this.upgrade() else { return };
                drop(self.spawn("eviction", async move {
                    let result = completion.await;
                    core.batch_completed(&lines, result);
                }));
            }
        }
    }

    fn batch_completed(&self, lines: &[GAddr], result: Result<Chain, Box<ChainError>>) {
        match result {
            Ok(chain) => {
                let found = old_values(&chain);
                assert_eq!(
                    found.clone().count(),
                    lines.len(),
                    "an atomic for each line of a batch"
                );
                for (addr, old) in lines.iter().zip(found) {
                    self.with_line(*addr, |open| {
                        self.write_done(open);
                        let event = self.completed_with(open, old);
                        self.run(*addr, open, event, None);
                    });
                }
            }
            Err(error) => {
                let failed = error.error;
                // Before the log may be cut short at what these operations took along.
                self.note_dead_memory(&failed);
                for addr in lines {
                    self.with_line(*addr, |open| {
                        self.write_done(open);
                        if !self.quiesce_line(*addr, open, &failed) {
                            self.fail_line(*addr, open, &EngineError::Fabric(failed.clone()));
                        }
                    });
                }
            }
        }
    }
}

/// The background evictor; ends when the engine is gone.
pub(crate) async fn run_evictor(core: Weak<Core>) {
    let Some(bell) = core.upgrade().map(|c| c.cache.evict_bell().clone()) else { return };
    let mut seen = 0;
    loop {
        loop {
            let Some(core) = core.upgrade() else { return };
            let is_short = !core.cache.has_free_frames() && core.evict_batch() > 0;
            if !core.evict_beyond_cache().await && !is_short {
                break;
            }
            drop(core);
            yield_now().await;
        }
        seen = bell.wait_past(seen).await;
    }
}
