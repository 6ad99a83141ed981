//! Nodes die, and what compute nodes had is recovered.

use std::collections::BTreeSet;

use selkie_fabric::PeerId;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{Lost, PoolState};
use crate::error::PoolError;

impl Pool {
    /// Declares a compute node dead: it is in the pool no more, and the others begin to recover
    /// from its death. Its index is used again only after that.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn declare_dead(&self, node: ComputeIndex) -> Result<(), PoolError> {
        let declare = |state: &mut PoolState| {
            state.declare_dead(PeerId::compute(node.get()));
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    /// Declares a memory node dead: every access to it ends in an error from now on.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn declare_memory_dead(&self, node: u16) -> Result<(), PoolError> {
        let declare = |state: &mut PoolState| {
            state.declare_dead(PeerId::memory(node));
            Ok(())
        };
        self.membership.change(declare).await.map(drop)
    }

    /// The compute nodes whose recovery is under way, and how far it has got, as this process
    /// knows.
    #[must_use]
    pub fn lost(&self) -> Vec<(ComputeIndex, Lost)> {
        let state = self.membership.state();
        let lost = state.lost.iter();
        lost.map(|(node, lost)| (ComputeIndex::new(*node), lost.clone())).collect()
    }

    /// Whether a compute node died, and is recovered from or not.
    #[must_use]
    pub fn is_dead(&self, node: ComputeIndex) -> bool {
        let state = self.membership.state();
        state.lost.contains_key(&node.get()) || state.dead.contains(&node.get())
    }

    /// The compute nodes that died and are named in lost pages for ever.
    #[must_use]
    pub fn dead(&self) -> Vec<ComputeIndex> {
        self.membership.state().dead.iter().copied().map(ComputeIndex::new).collect()
    }

    /// The GCLs (global addresses) that were lost with the nodes that held them.
    #[must_use]
    pub fn lost_pages(&self) -> Vec<u64> {
        self.membership.state().lost_pages.iter().copied().collect()
    }
}

/// Recovery from the death of a compute node.
impl Pool {
    /// Goes on with the fence around a lost node, until no verb of it executes any more (F1);
    /// whether it is known by then that none does. May block for some milliseconds.
    ///
    /// # Errors
    /// [`PoolError::Fabric`], [`PoolError::Control`].
    pub async fn fence(&self, node: ComputeIndex) -> Result<bool, PoolError> {
        if !self.membership.is_fenced(PeerId::compute(node.get())).await? {
            return Ok(false);
        }
        let fenced = |state: &mut PoolState| {
            if let Some(lost) = state.lost.get_mut(&node.get()) {
                lost.fenced = true;
            }
            Ok(())
        };
        self.membership.change(fenced).await?;
        Ok(true)
    }

    /// Says that the compute node `by` has taken note of a death (F4).
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn acknowledge(&self, node: ComputeIndex, by: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if let Some(lost) = state.lost.get_mut(&node.get()) {
                    lost.acknowledged.insert(by.get());
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Whether the compute node `by` is to take a lost one out of the latch words (F5): all have
    /// taken note, and nobody else who lives does.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_sweep(
        &self,
        node: ComputeIndex,
        by: ComputeIndex,
    ) -> Result<bool, PoolError> {
        let claim = |state: &mut PoolState| {
            let members: BTreeSet<u16> = state.compute_nodes.keys().copied().collect();
            // One that died in a sweep must not be able to go on with it.
            let fenced = state.lost.values().all(|lost| lost.fenced);
            let Some(lost) = state.lost.get_mut(&node.get()) else { return Ok(false) };
            let ready = members.is_subset(&lost.acknowledged);
            let taken = lost.sweeper.is_some_and(|other| members.contains(&other));
            let own = lost.sweeper == Some(by.get());
            if ready && !taken {
                lost.sweeper = Some(by.get());
            }
            Ok(ready && fenced && (own || !taken))
        };
        Ok(self.membership.change(claim).await?.1)
    }

    /// Leaves a sweep that cannot go on to others.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_sweep(&self, node: ComputeIndex, by: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if let Some(lost) = state.lost.get_mut(&node.get())
                    && lost.sweeper == Some(by.get())
                {
                    lost.sweeper = None;
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Ends the recovery from a death, which had these GCLs (global addresses) as the only one, of
    /// which some were not made again, for the compute node `by` whose sweep it was; nothing
    /// happens if it is another's by now.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn finish_recovery(
        &self,
        node: ComputeIndex,
        by: ComputeIndex,
        had: &[u64],
        lost_pages: &[u64],
    ) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                let lost = state.lost.get(&node.get());
                let is_sweeper = lost.is_some_and(|lost| lost.sweeper == Some(by.get()));
                let member = state.compute_nodes.get(&by.get());
                if is_sweeper && member.is_some_and(|member| member.host == self.host()) {
                    let recovered = state.lost.remove(&node.get());
                    for page in had {
                        state.lost_pages.remove(page);
                    }
                    state.lose_pages(node.get(), lost_pages);
                    // All that it had was made again, or what was said to be lost before is not all
                    // here.
                    let is_whole = !had.is_empty() && lost_pages.is_empty();
                    if recovered.is_some_and(|lost| lost.has_lost_pages) && !is_whole {
                        state.dead.insert(node.get());
                    }
                    state.forget_crash_groups();
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Begins the recovery from a node anew with which GCLs were lost, as they can be made again
    /// now. All who are in the pool take note of its death once more: so none of them is about to
    /// enter itself in a word.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn recover_again(&self, node: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if state.dead.remove(&node.get()) {
                    let lost = Lost { fenced: true, has_lost_pages: true, ..Lost::default() };
                    state.lost.insert(node.get(), lost);
                }
                Ok(())
            })
            .await
            .map(drop)
    }
}
