//! Slabs on their way from one living memory node to another: this node's part in it (DESIGN §7).
//!
//! What the stages are, and why nothing is lost at any moment, says [`selkie_memnode::Migration`];
//! who writes pages does so at both places by the placement map. Here is what the node does that
//! makes the move: it has the headers leave the slab, clears the new place, fills in what was there
//! before, page by page under its shared latch, and goes from stage to stage.

use std::sync::Arc;

use selkie_memnode::Stage;

use crate::EngineError;
use crate::core::Core;

impl Core {
    /// Moves one slab, or a step of the way, if there is one to be moved and nobody else does it;
    /// and lets memory nodes go that are empty.
    pub(crate) async fn migrate(self: &Arc<Self>) -> Result<(), EngineError> {
        if self.memory.coded.is_none() || self.config.reads_only {
            return Ok(());
        }
        let me = self.endpoint.id();
        for memory in self.pool.let_go(&self.env).await? {
            tracing::info!(node = %me, memory, "a memory node is empty, and leaves");
        }
        let Some(mut task) = self.pool.claim_migration(self.index()).await? else { return Ok(()) };
        let started = self.env.now();
        loop {
            self.lifecycle.check_alive()?;
            match task.stage {
                Stage::Clearing => {
                    if self.pool.leave_headers(&task).await? {
                        return Ok(());
                    }
                    if let Err(error) = self.clear_slab(task.to).await {
                        // Others may have a way there.
                        self.pool.leave_migration(&task).await?;
                        return Err(error);
                    }
                }
                Stage::Copying => {
                    self.pool.until_all_know(&self.env).await?;
                    #[cfg(feature = "planted")]
                    if self.config.planted == crate::Planted::EarlyGiveBack {
                        self.clear_slab(task.from).await?;
                    }
                    self.fill(task.range, task.position, usize::from(task.to.node)).await?;
                }
                Stage::Switching => {
                    if self.pool.leave_headers(&task).await? {
                        return Ok(());
                    }
                }
                Stage::Switched => {}
                Stage::Settling => {
                    // Who began before may still use the one that will be free.
                    self.pool.until_all_know(&self.env).await?;
                    let state = self.pool.state();
                    if state.lost.values().any(|lost| !lost.fenced) {
                        // Who died may still write there, also after it was cleared.
                        return Ok(());
                    }
                    for free in state.freed_by(&task) {
                        // What its memory node takes back, that makes zero.
                        if state.stays(free.node) && !state.is_evicted(&free) {
                            self.clear_slab(free).await?;
                        }
                    }
                }
            }
            match self.pool.advance_migration(&self.env, &task).await? {
                Some(next) if next.stage != task.stage => task = next,
                // Something else has to be over first.
                Some(_) => return Ok(()),
                None => break,
            }
        }
        let took = self.env.now() - started;
        tracing::info!(node = %me, ?task, ?took, "moved a slab");
        Ok(())
    }
}
