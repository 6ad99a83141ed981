//! Deaths of nodes, and the steps of the recovery from them.

use std::collections::BTreeSet;

use selkie_fabric::PeerId;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{Lost, PoolState};
use crate::error::PoolError;

impl Pool {
    /// Declares a compute node dead: it is out of the pool, and the others begin to recover from
    /// its death. Its index is used again only after that.
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

    /// Declares a memory node dead whose process is known to be gone, or that a person gives up:
    /// its memory is lost, and every access to it ends in an error from now on. Silence is no
    /// reason: the failure detector alone judges by that.
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

    /// Says that the compute node `by` does not reach a memory node that others do not miss. Others
    /// that do not reach it either say so too, and [`Pool::condemn_unreached`] follows.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn note_unreached(&self, memory: u16, by: ComputeIndex) -> Result<(), PoolError> {
        let note = |state: &mut PoolState| {
            state.note_unreached(memory, by);
            Ok(())
        };
        self.membership.change(note).await.map(drop)
    }

    /// Declares a memory node of a coded pool dead that no compute node reaches, if the coding can
    /// spare it, and all others that some compute node does not reach. Whether it is dead then.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn condemn_unreached(&self, memory: u16) -> Result<bool, PoolError> {
        let condemn = |state: &mut PoolState| Ok(state.condemn_unreached(memory));
        Ok(self.membership.change(condemn).await?.1)
    }

    /// Memory nodes that another compute node says it does not reach, and that are not missed.
    #[must_use]
    pub fn unreached_by_others(&self, own: ComputeIndex) -> Vec<usize> {
        self.membership.state().unreached_by_others(own)
    }

    /// The compute nodes whose recovery is under way, and how far it has got, as this process
    /// knows.
    #[must_use]
    pub fn lost(&self) -> Vec<(ComputeIndex, Lost)> {
        let state = self.membership.state();
        let lost = state.lost.iter();
        lost.map(|(node, lost)| (ComputeIndex::new(*node), lost.clone())).collect()
    }

    /// Whether a compute node died, whether or not the recovery from its death is over.
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

    /// The GCLs (global addresses) that were lost with the nodes that held them, for now or for
    /// good.
    #[must_use]
    pub fn lost_pages(&self) -> Vec<u64> {
        let state = self.membership.state();
        state.lost_pages.union(&state.abandoned_pages).copied().collect()
    }
}

/// Recovery from the death of a compute node.
impl Pool {
    /// Continues the fence around a lost node, until no verb of it executes any more (F1). Returns
    /// whether it is known that none does. May block for some milliseconds.
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

    /// Whether the compute node `by` is to take a lost one out of the latch words (F5): all nodes
    /// have taken note, and no other living node has claimed the sweep.
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
            // A node that died in a sweep must not be able to continue it.
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

    /// Leaves a sweep that cannot continue to other nodes.
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

    /// Notes pages that are lost for good, before their words say so. `false` if that may be known
    /// of them later, or the sweep is another node's by now.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn abandon(
        &self,
        node: ComputeIndex,
        by: ComputeIndex,
        pages: &[u64],
    ) -> Result<bool, PoolError> {
        let abandon = |state: &mut PoolState| {
            let lost = state.lost.get(&node.get());
            let is_sweeper = lost.is_some_and(|lost| lost.sweeper == Some(by.get()));
            let are_lost = is_sweeper && state.are_lost_for_good(node.get());
            if are_lost {
                state.abandon_pages(pages);
            }
            Ok(are_lost)
        };
        Ok(self.membership.change(abandon).await?.1)
    }

    /// Ends the recovery from the death of `node`, for the compute node `by` that made the sweep.
    /// `had` are the GCLs (global addresses) of which `node` had the only copy, `lost_pages` those
    /// of them that were not redone and may be later: their words name the node. Nothing happens if
    /// the sweep is another node's by now.
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
                    // Only if all its pages were redone, the pages that were lost before are back.
                    // Without a log no word names it any more.
                    let is_whole = !had.is_empty() && lost_pages.is_empty();
                    let keeps_name = |lost: Lost| lost.has_lost_pages && lost.has_log;
                    if recovered.is_some_and(keeps_name) && !is_whole {
                        state.dead.insert(node.get());
                    }
                    state.forget_crash_groups();
                }
                Ok(())
            })
            .await
            .map(drop)
    }

    /// Exactly these pages are lost for good, as the words of all lines said since the pool had so
    /// many rebuilds. For a node that is alone in the pool. Nothing happens if there are too many,
    /// or a rebuild has begun since.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn remember_abandoned(
        &self,
        pages: &BTreeSet<u64>,
        rebuilds_begun: u64,
    ) -> Result<(), PoolError> {
        let remember = |state: &mut PoolState| {
            let is_same = state.rebuilds_begun == rebuilds_begun && state.rebuilds.is_empty();
            if is_same && state.lost.is_empty() {
                state.remember_abandoned(pages);
            }
            Ok(())
        };
        self.membership.change(remember).await.map(drop)
    }

    /// Forgets pages that were lost for good, and whose lines are free now.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn forget_abandoned(&self, pages: &[u64]) -> Result<(), PoolError> {
        let forget = |state: &mut PoolState| {
            for page in pages {
                state.abandoned_pages.remove(page);
            }
            Ok(())
        };
        self.membership.change(forget).await.map(drop)
    }

    /// Begins anew the recovery from a node with which GCLs were lost, as they can be redone now.
    /// All nodes in the pool take note of its death once more, so that none of them is about to
    /// enter itself in a word.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn recover_again(&self, node: ComputeIndex) -> Result<(), PoolError> {
        self.membership
            .change(|state| {
                if state.dead.remove(&node.get()) {
                    let (fenced, has_lost_pages, has_log) = (true, true, true);
                    let lost = Lost { fenced, has_lost_pages, has_log, ..Lost::default() };
                    state.lost.insert(node.get(), lost);
                }
                Ok(())
            })
            .await
            .map(drop)
    }
}
