//! Migration of slabs from one living memory node to another: this node's part in it
//! (docs/design.md, Coded pages).
//!
//! [`selkie_pool::Migration`] defines the stages, and says why nothing is lost at any time.
//! Writers write to both places, by the placement map. The node that migrates a slab moves the
//! headers out of the slab, clears the new place, copies the splits page by page under shared
//! latches, and advances from stage to stage.

use std::sync::Arc;

use selkie_pool::MigrationStage;

use crate::EngineError;
use crate::core::Core;

impl Core {
    /// Migrates one slab, as far as possible now, if one is to move and no other node migrates it.
    /// Lets empty memory nodes leave.
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
                MigrationStage::Clearing => {
                    if self.pool.leave_headers(&task).await? {
                        return Ok(());
                    }
                    if let Err(error) = self.clear_slab(task.to).await {
                        // Another node may reach that memory node.
                        self.pool.leave_migration(&task).await?;
                        return Err(error);
                    }
                }
                MigrationStage::Copying => {
                    self.pool.until_all_know(&self.env).await?;
                    #[cfg(feature = "planted")]
                    if self.config.planted == crate::Planted::EarlyGiveBack {
                        self.clear_slab(task.from).await?;
                    }
                    self.fill(task.range, task.position, usize::from(task.to.node)).await?;
                }
                MigrationStage::Switching => {
                    if self.pool.leave_headers(&task).await? {
                        return Ok(());
                    }
                }
                MigrationStage::Switched => {}
                MigrationStage::Settling => {
                    // Accesses that began before may still use the slab that becomes free.
                    self.pool.until_all_know(&self.env).await?;
                    let state = self.pool.state();
                    if state.lost.values().any(|lost| !lost.fenced) {
                        // A dead node that is not fenced may still write there, also after the
                        // slab was cleared.
                        return Ok(());
                    }
                    for free in state.freed_by(&task) {
                        // The memory node itself zeroes a slab that it takes back.
                        if state.stays(free.node) && !state.is_evicted(&free) {
                            self.clear_slab(free).await?;
                        }
                    }
                }
            }
            match self.pool.advance_migration(&self.env, &task).await? {
                Some(next) if next.stage != task.stage => task = next,
                // Another task of the pool must end first.
                Some(_) => return Ok(()),
                None => break,
            }
        }
        let took = self.env.now() - started;
        tracing::info!(node = %me, ?task, ?took, "moved a slab");
        Ok(())
    }
}
