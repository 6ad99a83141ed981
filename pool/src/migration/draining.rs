//! Drains a memory node: whether the pool can do without it, and the progress.

use selkie_fabric::PeerId;

use crate::control::ControlPlane;
use crate::document::{MigrationStage, PoolState, Residency};
use crate::error::PoolError;
use crate::membership::change_state;

/// The progress of a memory node that is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainProgress {
    /// Slabs of ranges that lie on it.
    pub slabs: usize,
    /// It has left.
    pub has_left: bool,
}

/// Has a memory node leave its pool: the compute nodes move its slabs elsewhere, and then it is no
/// longer part of the pool. A repeated call tells the progress.
///
/// # Errors
/// [`PoolError::CannotLeave`], [`PoolError::Control`].
pub async fn drain(plane: &dyn ControlPlane, memory_node: u16) -> Result<DrainProgress, PoolError> {
    let (now, ()) = change_state(plane, |state| state.begin_to_leave(memory_node)).await?;
    Ok(now.state.leaving_of(memory_node))
}

impl PoolState {
    pub(crate) fn begin_to_leave(&mut self, memory_node: u16) -> Result<(), PoolError> {
        if self.stays(memory_node) || !self.lives(memory_node) {
            self.check_leaves(memory_node)?;
        }
        if let Some(Some(member)) = self.memory_nodes.get_mut(usize::from(memory_node)) {
            member.stay = Residency::Leaving;
        }
        // No node uses it, and there is no compute node that would let it go.
        if self.compute_nodes.is_empty() && self.is_empty(memory_node) {
            self.leave(memory_node);
        }
        Ok(())
    }

    /// The progress of a memory node that is to leave.
    #[must_use]
    pub fn leaving_of(&self, memory_node: u16) -> DrainProgress {
        let has_left = self.stay_of(memory_node) == Some(Residency::Left);
        DrainProgress { slabs: self.slabs_on(memory_node), has_left }
    }

    /// Whether no slab of a memory node is in use.
    pub(crate) fn is_empty(&self, memory_node: u16) -> bool {
        self.slabs_in_use().all(|slab| slab.node != memory_node)
    }

    pub(crate) fn leave(&mut self, memory_node: u16) {
        self.cards.remove(&PeerId::memory(memory_node).to_raw());
        let slot = self.memory_nodes.get_mut(usize::from(memory_node));
        if let Some(member) = slot.and_then(Option::as_mut) {
            (member.stay, member.dead) = (Residency::Left, true);
        }
    }

    /// Checks that the pool can do without a memory node.
    fn check_leaves(&self, memory_node: u16) -> Result<(), PoolError> {
        let node = usize::from(memory_node);
        let refused = |why| Err(PoolError::CannotLeave { node, why });
        let coding = self.coding;
        let living = self.memory_nodes.iter().flatten();
        let living: Vec<_> = living.filter(|member| !member.dead).collect();
        match self.memory_nodes.get(node).and_then(Option::as_ref) {
            None => return refused("the pool has no such memory node".to_owned()),
            Some(member) if member.stay == Residency::Left => {
                return refused("it has left already".to_owned());
            }
            Some(member) if member.dead => return refused("it is dead".to_owned()),
            Some(_) => {}
        }
        if coding.is_plain() {
            let why = "pages of coding plain lie where they are made, and cannot be moved";
            return refused(why.to_owned());
        }
        let staying = living.iter().copied().filter(|member| {
            member.stay == Residency::Stays && member.descriptor.peer.index() != memory_node
        });
        let nodes = staying.clone().count();
        let (domains, splits) = (Self::domains(staying), coding.splits());
        if domains < splits {
            return refused(format!(
                "{nodes} memory nodes in {domains} failure domains would stay; coding {coding} needs {splits}"
            ));
        }
        self.check_room_without(memory_node)
    }

    /// Checks that the slabs of a memory node, and of those that already are to leave, find room
    /// elsewhere. A slab that is moving has its new place by then, and its old one is free.
    fn check_room_without(&self, memory_node: u16) -> Result<(), PoolError> {
        let mut after = self.clone();
        after.settle_migration();
        if let Some(Some(member)) = after.memory_nodes.get_mut(usize::from(memory_node)) {
            member.stay = Residency::Leaving;
        }
        let slabs: usize = after.leaving().map(|node| after.slabs_on(node)).sum();
        let moved = after.move_all_leaving();
        if moved == slabs {
            return Ok(());
        }
        let why = format!(
            "{slabs} {} to be moved, and the others have room for {moved} of them",
            if slabs == 1 { "slab is" } else { "slabs are" }
        );
        Err(PoolError::CannotLeave { node: usize::from(memory_node), why })
    }

    /// Ends the migration under way as if it had gone well.
    fn settle_migration(&mut self) {
        let Some(task) = self.migration.take() else { return };
        // Later stages have the new place already, or were given up.
        let is_to_come = matches!(
            task.stage,
            MigrationStage::Clearing | MigrationStage::Copying | MigrationStage::Switching
        );
        let place = self.ranges.get_mut(task.range).filter(|_| is_to_come);
        if let Some(slab) = place.and_then(|place| place.slabs.get_mut(task.position)) {
            *slab = task.to;
        }
    }

    /// Moves all slabs of memory nodes that are to leave, as far as they find room. Returns how
    /// many. Where two slabs of a range are to move, one may find its place only when the other has
    /// moved.
    fn move_all_leaving(&mut self) -> usize {
        let Some(mut free) = self.free_slabs() else { return 0 };
        let mut moved = 0;
        loop {
            let before = moved;
            for (range, position) in self.slabs_to_leave() {
                let Some(to) = free.take(self.kept(range, position)) else { continue };
                let place = self.ranges.get_mut(range);
                if let Some(slab) = place.and_then(|place| place.slabs.get_mut(position)) {
                    *slab = to;
                }
                moved += 1;
            }
            if moved == before {
                return moved;
            }
        }
    }

    /// The slabs, by range and position, of memory nodes that are to leave.
    fn slabs_to_leave(&self) -> Vec<(usize, usize)> {
        let all = self.ranges.iter().enumerate().flat_map(|(range, place)| {
            let slabs = place.slabs.iter().enumerate();
            slabs.map(move |(position, slab)| (range, position, slab))
        });
        let leaving = all.filter(|(.., slab)| self.is_leaving(slab.node));
        leaving.map(|(range, position, _)| (range, position)).collect()
    }
}
