//! How the processes of a coded pool agree which node regenerates a lost slab, and where.

use selkie_fabric::env::Env;

use super::view::Pool;
use crate::compute_index::ComputeIndex;
use crate::document::{PoolState, RangePlace, Regeneration, Slab};
use crate::error::PoolError;

impl PoolState {
    /// A slab of a living range whose memory node is dead, and where it could lie.
    fn next_regeneration(&self, by: u16) -> Option<Regeneration> {
        // Headers that could not leave are lost with the slab. They must not be read as zeros.
        let is_lost = |place: &RangePlace, position: usize, slab: &Slab| {
            !self.lives(slab.node) && !place.has_headers(position)
        };
        let (range, position, to) = self.first_to_place(is_lost)?;
        let (begun, ends, attempt) = (false, false, 0);
        Some(Regeneration { range, position, to, by, begun, ends, attempt })
    }
}

impl Pool {
    /// Gives the compute node `by` a slab to regenerate, which no other node does: first one that
    /// it has begun itself, or that a dead node has left. `None` if there is none, or no room for
    /// one.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn claim_regeneration(
        &self,
        by: ComputeIndex,
    ) -> Result<Option<Regeneration>, PoolError> {
        let state = self.state();
        if state.regeneration.is_none() && state.next_regeneration(by.get()).is_none() {
            return Ok(None);
        }
        let claim = |state: &mut PoolState| {
            let members = state.members();
            if !state.rebuilds.is_empty() {
                return Ok(None);
            }
            let task = match state.regeneration {
                Some(task) => {
                    let ends = !state.unfenced().any(|node| node == task.by);
                    let is_free = !members.contains(&task.by) && ends;
                    let task = (task.by == by.get() || is_free).then_some(task);
                    // The node that was to have it may be lost as well.
                    match task {
                        Some(task) if !state.lives(task.to.node) => {
                            state.regeneration = None;
                            state.next_regeneration(by.get())
                        }
                        task => task.map(|task| Regeneration { by: by.get(), ..task }),
                    }
                }
                None => state.next_regeneration(by.get()),
            };
            if task.is_some() {
                state.regeneration = task;
            }
            Ok(task)
        };
        Ok(self.membership().change(claim).await?.1)
    }

    /// Puts the slab into the range. `false` if the task is another node's by now, or headers are
    /// being rebuilt.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn begin_regeneration(
        &self,
        by: ComputeIndex,
        task: Regeneration,
    ) -> Result<bool, PoolError> {
        let begun = Regeneration { begun: true, ..task };
        let begin = |state: &mut PoolState| {
            // The splits must stay as they are while latch words are rebuilt from them.
            let is_quiet = state.rebuilds.is_empty();
            let is_own = state.regeneration == Some(task) && task.by == by.get() && is_quiet;
            if is_own {
                let place = state.ranges.get_mut(task.range);
                #[expect(clippy::expect_used, reason = "a task is of a position of a range")]
                let slab = place
                    .and_then(|place| place.slabs.get_mut(task.position))
                    .expect("the slab that is being regenerated is one of its range");
                *slab = task.to;
                state.regeneration = Some(begun);
            }
            Ok(is_own)
        };
        Ok(self.membership().change(begin).await?.1)
    }

    /// The slab has all its splits. Its copies of counters may be the first from now on. All nodes
    /// see that at the same time, and no node adds to the counters meanwhile.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn end_regeneration(
        &self,
        env: &Env,
        by: ComputeIndex,
        task: Regeneration,
    ) -> Result<(), PoolError> {
        let ends = Regeneration { begun: true, ends: true, ..task };
        let halt = |state: &mut PoolState| {
            let own = state.regeneration.as_mut().filter(|own| own.by == by.get());
            let own = own.filter(|own| Regeneration { ends: true, ..**own } == ends);
            let is_own = own.is_some();
            if let Some(own) = own {
                own.ends = true;
            }
            Ok(is_own)
        };
        let (version, is_own) = self.membership().change(halt).await?;
        if !is_own {
            return Ok(());
        }
        self.membership().until_noticed(env, version).await?;
        let end = |state: &mut PoolState| {
            if state.regeneration == Some(ends) && state.rebuilds.is_empty() {
                state.regeneration = None;
            }
            Ok(())
        };
        self.membership().change(end).await.map(drop)
    }
}
