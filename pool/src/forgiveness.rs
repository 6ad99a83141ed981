//! What a person gives up, as the pool cannot know that it never comes back.
//!
//! - A compute node with whose death pages were lost, and that had a log which no node in the pool
//!   can read. The recovery from its death is made once more, by the nodes in the pool. Pages that
//!   cannot be redone then are lost for good, and the index of the node can be used again.
//! - A memory node that is silent, and that the failure detector does not condemn, as the pool has
//!   lost what it may lose. It is dead from then on, and the pool rebuilds what it can.

use selkie_fabric::PeerId;

use crate::control::ControlPlane;
use crate::document::PoolState;
use crate::error::PoolError;
use crate::membership::change_state;

/// What giving a node up means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forgiveness {
    /// The node.
    pub node: PeerId,
    /// Pages that its death has lost, or ranges whose data goes with it for good.
    pub pages: u64,
    /// Ranges that can be read no more then, of a coded pool.
    pub ranges: u64,
}

impl PoolState {
    /// The nodes that can be given up, apart from memory nodes that are silent.
    #[must_use]
    pub fn forgivable(&self) -> Vec<PeerId> {
        self.dead.iter().copied().map(PeerId::compute).collect()
    }

    /// What it means to give a node up. `lives` says which nodes show that they live.
    ///
    /// # Errors
    /// [`PoolError::NotForgivable`].
    pub fn weigh(
        &self,
        node: PeerId,
        lives: impl Fn(PeerId) -> bool,
    ) -> Result<Forgiveness, PoolError> {
        let refused = |why: &str| Err(PoolError::NotForgivable { node, why: why.to_owned() });
        let index = node.index();
        if !node.is_memory() {
            return match index {
                _ if self.dead.contains(&index) => {
                    let pages = self.lost_pages.len() as u64;
                    Ok(Forgiveness { node, pages, ranges: 0 })
                }
                _ if self.lost.contains_key(&index) => {
                    refused("the others are recovering from its death")
                }
                _ if self.compute_nodes.contains_key(&index) => refused("it is in the pool"),
                _ => refused("no page is lost with it: its index is free"),
            };
        }
        match self.member(index) {
            None => refused("the pool has no such memory node"),
            Some(member) if member.dead => refused("it is dead already, or has left"),
            Some(_) if lives(node) => refused("it lives"),
            Some(member) if self.coding.is_plain() => {
                let pages = self.page_bytes_in(member.descriptor.ranges) / self.gcl_bytes as u64;
                Ok(Forgiveness { node, pages, ranges: 0 })
            }
            Some(_) => {
                let is_gone = |other: u16| other == index || !self.lives(other);
                let lost = self.ranges.iter().filter(|place| {
                    let gone = place.slabs.iter().filter(|slab| is_gone(slab.node)).count();
                    gone > self.coding.parity()
                });
                Ok(Forgiveness { node, pages: 0, ranges: lost.count() as u64 })
            }
        }
    }
}

/// Gives nodes up.
///
/// # Errors
/// [`PoolError::NotForgivable`] if one of them cannot be, and nothing is changed then;
/// [`PoolError::Control`].
pub async fn forgive(
    plane: &dyn ControlPlane,
    nodes: &[PeerId],
    lives: impl Fn(PeerId) -> bool,
) -> Result<Vec<Forgiveness>, PoolError> {
    let give_up = |state: &mut PoolState| {
        let weighed = nodes.iter().map(|node| state.weigh(*node, &lives));
        let weighed = weighed.collect::<Result<Vec<_>, _>>()?;
        for node in nodes {
            if node.is_memory() {
                state.declare_dead(*node);
            } else {
                state.forgive(node.index());
            }
        }
        Ok(weighed)
    };
    Ok(change_state(plane, give_up).await?.1)
}
