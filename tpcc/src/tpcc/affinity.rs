//! Which compute node works on which warehouse.

use serde::Serialize;

/// Which warehouses a compute node works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Every node on every warehouse.
    Shared,
    /// Each node on its own, which are neighbours, remote accesses of the mix aside.
    Warehouse,
    /// Each node on its own, and no other node on their pages: what a transaction needs of another
    /// node's warehouses that node does for it, and all commit by two-phase commit.
    Partitioned,
}

/// The position among `nodes` of the one that works on a warehouse, one of so many from 1, where
/// each has its own. Neighbours have the same: the last rows of a warehouse share pages with the
/// first of the next.
pub(crate) fn owner_of(warehouse: i32, warehouses: i32, nodes: usize) -> usize {
    let before = (warehouse.unsigned_abs() as usize).saturating_sub(1);
    (before * nodes / (warehouses.unsigned_abs() as usize).max(1)).min(nodes.saturating_sub(1))
}
