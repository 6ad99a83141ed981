//! Ranges of the pool.

use selkie_fabric::env::Env;

use super::view::Pool;
use crate::document::{MAX_RANGES, PoolState};
use crate::error::PoolError;

impl Pool {
    /// Gives a coded pool that has `known` ranges one more, unless another process has done so.
    /// Returns once all know of it: how many ranges all know of, of which another process may have
    /// added more by then; `None` if there is no room for one.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn add_range(&self, env: &Env, known: usize) -> Result<Option<usize>, PoolError> {
        let add = |state: &mut PoolState| {
            let added = state.ranges.len() > known || state.add_range();
            Ok(added.then_some(state.ranges.len()))
        };
        let (version, ranges) = self.membership.change(add).await?;
        if ranges.is_some() {
            self.membership.until_noticed(env, version).await?;
        } else if known >= MAX_RANGES {
            let range_bytes = self.descriptor.range_bytes;
            tracing::warn!(MAX_RANGES, range_bytes, "the pool has as many ranges as it can have");
        }
        Ok(ranges)
    }

    /// Makes sure that a coded pool has a range.
    ///
    /// # Errors
    /// [`PoolError::NoPlaceForRange`]; else as [`Pool::add_range`].
    pub async fn ensure_range(&self, env: &Env) -> Result<(), PoolError> {
        if self.descriptor.coding.is_plain() || self.add_range(env, 0).await?.is_some() {
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
