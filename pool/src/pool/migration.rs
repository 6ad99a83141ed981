//! Compute nodes move slabs to other memory nodes: see `crate::migration`.

use selkie_fabric::env::Env;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{Migration, MigrationStage, PoolState};
use crate::error::PoolError;
use crate::migration::DrainProgress;

impl Pool {
    /// As [`drain`](crate::drain).
    ///
    /// # Errors
    /// [`PoolError::CannotLeave`], [`PoolError::Control`].
    pub async fn drain(&self, memory_node: u16) -> Result<DrainProgress, PoolError> {
        self.membership().change(|state| state.begin_to_leave(memory_node)).await?;
        Ok(self.state().leaving_of(memory_node))
    }

    /// Gives the compute node `by` a slab to move, which no other node does: first one that it has
    /// begun itself, or that a dead node has left. `None` if there is none, or no room for one, or
    /// while headers or slabs are being rebuilt.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_migration(&self, by: ComputeIndex) -> Result<Option<Migration>, PoolError> {
        let choose = |state: &PoolState| match state.migration {
            Some(task) => {
                let ends = !state.unfenced().any(|node| node == task.by);
                let is_free = !state.compute_nodes.contains_key(&task.by) && ends;
                let can_have = task.by == by.get() || is_free;
                can_have.then_some(Migration { by: by.get(), ..task })
            }
            None if state.regeneration.is_some() || !state.rebuilds.is_empty() => None,
            None => state.next_migration(by.get()),
        };
        let known = self.state();
        if self.is_at_rest(&known) {
            return Ok(None);
        }
        if choose(&known).is_none() {
            if known.migration.is_none() {
                self.set_at_rest(known);
            }
            return Ok(None);
        }
        let claim = |state: &mut PoolState| {
            let task = choose(state);
            if task.is_some() {
                state.migration = task;
            }
            Ok(task)
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// Gives up a migration that cannot continue, so that the next claim chooses one afresh. Only
    /// in the first stage, in which no other node takes part.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_migration(&self, task: &Migration) -> Result<(), PoolError> {
        let leave = |state: &mut PoolState| {
            if task.stage == MigrationStage::Clearing && state.migration == Some(*task) {
                state.migration = None;
            }
            Ok(())
        };
        self.membership().change(leave).await.map(drop)
    }

    /// Advances a migration to its next stage, once all processes have taken note of this one and
    /// ended what they began before it. Returns the migration as it is then, in the same stage if a
    /// rebuild or a fence has to end first; `None` if it is over or another node's.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn advance_migration(
        &self,
        env: &Env,
        task: &Migration,
    ) -> Result<Option<Migration>, PoolError> {
        if task.stage != MigrationStage::Clearing {
            self.until_all_know(env).await?;
        }
        let advance = |state: &mut PoolState| {
            let is_own = state.advance(task);
            Ok(state.migration.filter(|_| is_own))
        };
        Ok(self.membership().change(advance).await?.1)
    }

    /// Has the headers leave the slab that a migration is to move. Returns whether there are any.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_headers(&self, task: &Migration) -> Result<bool, PoolError> {
        let leave = |state: &mut PoolState| {
            // Headers of a rebuild under way have not left yet.
            let has_headers = state.has_headers(task.range, task.position);
            if state.migration == Some(*task) && has_headers && state.rebuilds.is_empty() {
                state.leave_headers(task.from.node, task.range);
            }
            Ok(has_headers || !state.rebuilds.is_empty())
        };
        Ok(self.membership().change(leave).await?.1)
    }

    /// Waits until all processes work by the state as it is now, and have ended what they began
    /// before.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn until_all_know(&self, env: &Env) -> Result<(), PoolError> {
        let (version, ()) = self.membership().change(|_| Ok(())).await?;
        self.membership().until_noticed(env, version).await
    }

    /// Lets memory nodes go that are to leave and have no slabs any more. Returns which.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn let_go(&self, env: &Env) -> Result<Vec<u16>, PoolError> {
        let state = self.state();
        if !state.leaving().any(|node| state.is_empty(node)) {
            return Ok(Vec::new());
        }
        // Epochs are elsewhere by now.
        self.until_all_know(env).await?;
        let let_go = |now: &mut PoolState| {
            let known = state.leaving().filter(|node| state.is_empty(*node));
            let empty: Vec<u16> =
                known.filter(|node| now.lives(*node) && now.is_empty(*node)).collect();
            empty.iter().for_each(|node| now.leave(*node));
            Ok(empty)
        };
        Ok(self.membership().change(let_go).await?.1)
    }
}
