//! Ranges of the pool.

use selkie_fabric::env::Env;

use super::view::Pool;
use crate::document::{MAX_RANGES, PoolState};
use crate::error::PoolError;

impl Pool {
    /// Gives a coded pool that has `known` ranges one more, unless another process has done so.
    /// Returns once all know of it; `false` if there is no room for one.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn add_range(&self, env: &Env, known: usize) -> Result<bool, PoolError> {
        let add = |state: &mut PoolState| Ok(state.ranges.len() > known || state.add_range());
        let (version, added) = self.membership.change(add).await?;
        if added {
            self.membership.until_noticed(env, version).await?;
        } else if known >= MAX_RANGES {
            let range_bytes = self.descriptor.range_bytes;
            tracing::warn!(MAX_RANGES, range_bytes, "the pool has as many ranges as it can have");
        }
        Ok(added)
    }

    /// Makes sure that a coded pool has a range.
    ///
    /// # Errors
    /// [`PoolError::NoPlaceForRange`]; else as [`Pool::add_range`].
    pub async fn ensure_range(&self, env: &Env) -> Result<(), PoolError> {
        if self.descriptor.coding.is_plain() || self.add_range(env, 0).await? {
            return Ok(());
        }
        Err(self.state().no_room())
    }

    /// Extents there are; in a coded pool, those of the ranges it has and of as many more as there
    /// is room for.
    #[must_use]
    pub fn extents(&self) -> u64 {
        let (state, geometry) = (self.state(), self.descriptor.geometry());
        if !state.coding.is_plain() {
            return state.most_ranges() as u64 * geometry.extents_per_range();
        }
        let nodes = state.memory_nodes.iter().flatten();
        nodes.map(|node| geometry.extents_per_node(node.descriptor.ranges)).sum()
    }
}
