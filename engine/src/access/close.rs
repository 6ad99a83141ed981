//! Close of a compute node: it gives its pages and lines back, and leaves the pool.

use std::sync::atomic::Ordering;
use std::time::Duration;

use selkie_pool::{ComputeIndex, PoolError};

use super::engine::Engine;
use crate::coherence::machine::Event;
use crate::telemetry::stats::EngineStats;
use crate::{EngineError, GAddr};

/// Lines without a copy that a round of closing takes out of their words: bounds the messages under
/// way.
const LEAVES_A_ROUND: usize = 1024;

impl Engine {
    /// Leaves the pool: writes damaged splits again that were found, refuses new accesses, writes
    /// everything back, gives unused lines back. Requests of other nodes are answered as long as a
    /// handle lives. A second call does nothing, or tries again what failed.
    ///
    /// # Errors
    /// `Timeout` naming a line that stayed latched, if nothing has moved for the request timeout;
    /// the others are written back all the same. The node of a coded pool is still in the pool
    /// then. `TaskPanicked` at once if a part of the node has panicked: nothing of it goes home.
    pub async fn close(&self) -> Result<(), EngineError> {
        let core = &self.0;
        // Nobody else knows of the splits that it has found damaged. While headers are made anew
        // nobody knows when that is over.
        let can_repair = core.lifecycle.check_alive().is_ok()
            && !core.config.reads_only
            && core.pool.state().rebuilds.is_empty();
        if let Some(_step) = core.recovery.repairs.begin().filter(|_| can_repair)
            && let Err(error) = core.repair(core.config.request_timeout).await
        {
            tracing::warn!(node = %core.endpoint.id(), %error, "damaged splits are left as they are");
        }
        if core.lifecycle.close() && core.lifecycle.is_leaving() {
            return Ok(());
        }
        core.lifecycle.check_panicked()?;
        let started = core.env.now();
        let node = core.endpoint.id();
        tracing::info!(%node, "closing a compute node");
        core.keep_labels().await;
        let (mut remain, mut last) = self.flush_round();
        let mut moved = started;
        while remain > 0
            && core.env.now() - moved <= core.config.request_timeout
            && !core.lifecycle.has_panicked()
        {
            core.env.sleep(Duration::from_millis(1)).await;
            let (now, one) = self.flush_round();
            if now < remain {
                moved = core.env.now();
            }
            (remain, last) = (now, one);
        }
        core.lifecycle.check_panicked()?;
        if let Some(addr) = last.filter(|_| core.memory.coded.is_some()) {
            // A node that is not in the pool enters nothing in words that are rebuilt: its pages
            // would be lost silently.
            let waited = core.env.now() - started;
            let phase =
                core.cache.shard(addr).lock().get(&addr.to_u64()).map(|active| active.line.phase);
            tracing::warn!(%node, lines = remain, %addr, ?phase, "cannot close: lines are not given up");
            return Err(EngineError::Timeout { addr, waited });
        }
        core.recovery.repairs.retire(&core.env, core.config.request_timeout).await?;
        // Their splits come, or their memory nodes are dead.
        while core.cache.late_frames.load(Ordering::Acquire) > 0
            && core.env.now() - moved <= core.config.request_timeout
        {
            core.env.sleep(Duration::from_millis(1)).await;
        }
        // Each of them, whatever became of the others: who cannot reach all memory has to leave all
        // the same.
        let absent = core.publish_epoch(0).await;
        let given_back = core.give_lines_back().await;
        core.lifecycle.set_leaving(true);
        let left = core.pool.leave(&core.env, ComputeIndex::new(core.me.index() as u16)).await;
        if left.as_ref().is_err_and(PoolError::is_retryable) {
            core.lifecycle.set_leaving(false);
            core.recovery.repairs.reopen();
        }
        let took = core.env.now() - started;
        match last {
            None => {
                let EngineStats { corruptions, repairs, .. } = self.stats();
                tracing::info!(%node, ?took, corruptions, repairs, "closed a compute node");
            }
            Some(_) => {
                tracing::warn!(%node, ?took, lines = remain, "closed with lines not given up")
            }
        }
        absent.and(given_back).and(left.map_err(EngineError::from))?;
        last.map_or(Ok(()), |addr| Err(EngineError::Timeout { addr, waited: took }))
    }

    /// Evicts all that can be evicted now; how many lines remain, and one of them.
    fn flush_round(&self) -> (usize, Option<GAddr>) {
        let core = &self.0;
        let (mut remain, mut last) = (0, None);
        for id in core.cache.frames.ids() {
            let addr = core.cache.frames.get(id).addr();
            if addr.is_null() {
                continue;
            }
            let mut batches = Vec::new();
            if core.give_up(addr, Event::Leave, &mut batches) {
                core.post_batches(batches);
            }
            if core.cache.frames.get(id).addr() == addr {
                (remain, last) = (remain + 1, Some(addr));
            }
        }
        let (mut batches, mut gathered) = (Vec::new(), 0);
        for (number, addr) in core.cache.residual.all().enumerate() {
            (remain, last) = (remain + 1, Some(addr));
            if number >= LEAVES_A_ROUND {
                continue;
            }
            gathered += usize::from(core.give_up(addr, Event::Leave, &mut batches));
            if gathered == core.config.eviction_batch {
                core.post_batches(std::mem::take(&mut batches));
                gathered = 0;
            }
        }
        core.post_batches(batches);
        // Frames may be free before the word says so.
        let under_way = core.cache.line_under_way();
        (remain + usize::from(under_way.is_some()), last.or(under_way))
    }
}
