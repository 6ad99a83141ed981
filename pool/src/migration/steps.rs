//! The move of one slab, from stage to stage.

use std::collections::BTreeSet;

use crate::document::{Migration, MigrationStage, PoolState, RangePlace, SecondPlace, Slab};

impl PoolState {
    /// The living memory nodes that a range lies on but for one position.
    pub(crate) fn kept(&self, range: usize, position: usize) -> Vec<u16> {
        let place = self.ranges.get(range);
        let slabs = place.into_iter().flat_map(|place| place.slabs.iter().enumerate());
        let others = slabs.filter(|(own, _)| *own != position).map(|(_, slab)| slab);
        let moving =
            self.migration.iter().filter(|task| task.range == range && task.position != position);
        let moving = moving.flat_map(|task| [&task.from, &task.to]);
        let all: BTreeSet<u16> = others.chain(moving).map(|slab| slab.node).collect();
        all.into_iter().filter(|node| self.lives(*node)).collect()
    }

    /// The next slab that is to move, and a place for it.
    pub(crate) fn next_migration(&self, by: u16) -> Option<Migration> {
        // Lost slabs of a range come first: they may need the place, and headers can leave only for
        // living slabs.
        let is_whole = |place: &RangePlace| place.slabs.iter().all(|slab| self.lives(slab.node));
        let is_to_go = |place: &RangePlace, _, slab: &Slab| {
            (self.is_leaving(slab.node) || self.is_evicted(slab)) && is_whole(place)
        };
        let to_balance = || {
            let (range, position, to) = self.next_to_balance()?;
            Some((range, position, self.free_slab(to)))
        };
        let (range, position, to) = self.first_to_place(is_to_go).or_else(to_balance)?;
        let from = *self.ranges.get(range)?.slabs.get(position)?;
        Some(Migration { range, position, from, to, by, stage: MigrationStage::Clearing })
    }

    /// A memory node died: a slab that was moving from it or to it stays where it is whole. So does
    /// a slab of a range that has lost another slab: the lost one may need the place, and the
    /// headers may have nowhere to go.
    pub(crate) fn give_up_migration(&mut self, memory_node: u16) {
        let Some(task) = &mut self.migration else { return };
        let is_lost = |slab: &Slab| slab.node == memory_node;
        let is_underway = matches!(
            task.stage,
            MigrationStage::Clearing | MigrationStage::Copying | MigrationStage::Switching
        );
        let place = self.ranges.get(task.range);
        let lost_another =
            is_underway && place.is_some_and(|place| place.slabs.iter().any(is_lost));
        if !is_lost(&task.from) && !is_lost(&task.to) && !lost_another {
            return;
        }
        let was_switched = task.stage == MigrationStage::Switched;
        let (range, position, from) = (task.range, task.position, task.from);
        let is_lost = was_switched && task.to.node == memory_node;
        // The slab that is not used any more is free once all earlier operations have ended.
        task.stage = MigrationStage::Settling;
        // Headers that have moved there meanwhile are lost, and rebuilt from the other splits.
        let goes_back = is_lost && !self.has_headers(range, position);
        let Some(place) = self.ranges.get_mut(range) else { return };
        place.moving = None;
        if let Some(slab) = place.slabs.get_mut(position).filter(|_| goes_back) {
            *slab = from;
        }
    }

    /// Advances the migration under way to its next stage, if it is `task`. Returns whether it is.
    pub(crate) fn advance(&mut self, task: &Migration) -> bool {
        if self.migration != Some(*task) {
            return false;
        }
        let all_fenced = self.unfenced().next().is_none();
        let Migration { range, position, from, to, .. } = *task;
        let is_quiet = self.rebuilds.is_empty();
        let has_headers = self.has_headers(range, position);
        let Some(place) = self.ranges.get_mut(range) else { return false };
        let both = |also, counters_wait| Some(SecondPlace { position, also, counters_wait });
        let stage = match task.stage {
            MigrationStage::Clearing if !has_headers && is_quiet => {
                place.moving = both(to, false);
                MigrationStage::Copying
            }
            MigrationStage::Copying => {
                place.moving = both(to, true);
                MigrationStage::Switching
            }
            MigrationStage::Switching if !has_headers && is_quiet => {
                place.moving = both(from, false);
                if let Some(slab) = place.slabs.get_mut(position) {
                    *slab = to;
                }
                MigrationStage::Switched
            }
            MigrationStage::Switched => {
                place.moving = None;
                MigrationStage::Settling
            }
            // A dead node may still write as long as it is not fenced.
            MigrationStage::Settling if all_fenced => {
                self.migration = None;
                self.freed_by(task).for_each(|slab| self.give_back(slab));
                return true;
            }
            stage => stage,
        };
        if let Some(task) = &mut self.migration {
            task.stage = stage;
        }
        true
    }

    /// The slabs of a migration that are free once it is over: one of them; both where the range
    /// has got a third meanwhile, as one was lost.
    pub fn freed_by(&self, task: &Migration) -> impl Iterator<Item = Slab> + use<> {
        let place = self.ranges.get(task.range);
        let kept = place.and_then(|place| place.slabs.get(task.position)).copied();
        [task.from, task.to].into_iter().filter(move |slab| Some(*slab) != kept)
    }
}
