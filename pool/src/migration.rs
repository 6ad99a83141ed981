//! How the processes of a coded pool agree on the move of a slab from one living memory node to
//! another.
//!
//! ```text
//! clearing   the headers leave the slab, the place it goes to is cleared
//! copying    all write to both; one fills in what was there before
//! switching  as before, but counters stand still
//! switched   the new slab is the range's; all write to both
//! settling   all write to the new one alone; who began before may still use the old one
//! ```
//! Each stage begins when all processes have taken note of the one before, and have ended what they
//! began before that (see [`crate::Observer::changed`]). So at any time the slab that is read has
//! all that was written, and the pages have all their splits. If one of the two nodes dies, the
//! range goes on with the other's slab as far as that is whole, and the rest is that of a loss.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use selkie_fabric::PeerId;
use selkie_fabric::env::Env;

use crate::control::{ControlPlane, PoolState, RangePlace, Slab};
use crate::error::PoolError;
use crate::membership::change_state;
use crate::pool::Pool;
use crate::registry::ComputeIndex;

/// How far a move has got: see the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Nobody knows of it but who makes it.
    Clearing,
    /// The new slab is being filled.
    Copying,
    /// All is there.
    Switching,
    /// The new slab is in use, and the old one still is.
    Switched,
    /// It is over, or given up, and one of the slabs will be free.
    Settling,
}

/// A slab on its way from one memory node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Migration {
    /// Its range.
    pub range: usize,
    /// Its position in the range.
    pub position: usize,
    /// Where it lies.
    pub from: Slab,
    /// Where it is to lie.
    pub to: Slab,
    /// The compute node that moves it, by index.
    pub by: u16,
    /// How far it is.
    pub stage: Stage,
}

/// The second place of a slab of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Its position.
    pub position: usize,
    /// The place: what is written to the slab at that position is written here as well.
    pub also: Slab,
    /// Counters of the range stand still.
    pub counters_wait: bool,
}

/// Whether a memory node is to stay in its pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stay {
    /// It is.
    #[default]
    Stays,
    /// What it has is being moved elsewhere.
    Leaving,
    /// It has left: nothing was on it any more.
    Left,
}

/// What a memory node that is to leave has to be rid of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Slabs of ranges that lie on it.
    pub slabs: usize,
    /// It has left.
    pub has_left: bool,
}

impl PoolState {
    /// Whether a memory node lives and is to stay.
    #[must_use]
    pub fn stays(&self, memory_node: u16) -> bool {
        self.stay_of(memory_node) == Some(Stay::Stays) && self.lives(memory_node)
    }

    /// Whether a memory node is in the pool and lives.
    #[must_use]
    pub fn lives(&self, memory_node: u16) -> bool {
        self.member(memory_node).is_some_and(|member| !member.dead)
    }

    fn stay_of(&self, memory_node: u16) -> Option<Stay> {
        self.member(memory_node).map(|member| member.stay)
    }

    /// The living memory nodes that are to leave.
    pub fn leaving(&self) -> impl Iterator<Item = u16> {
        let members = self.memory_nodes.iter().flatten();
        let leaving = members.filter(|member| member.stay == Stay::Leaving && !member.dead);
        leaving.map(|member| member.descriptor.peer.index())
    }

    /// Slabs of ranges that lie on a memory node.
    #[must_use]
    pub fn slabs_on(&self, memory_node: u16) -> usize {
        let all = self.ranges.iter().flat_map(|range| &range.slabs);
        all.filter(|slab| slab.node == memory_node).count()
    }

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

    /// The next slab that is to move, and where it could.
    fn next_migration(&self, by: u16) -> Option<Migration> {
        // What a range has lost comes first: that may need the place, and headers can leave only
        // for slabs that live.
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
        Some(Migration { range, position, from, to, by, stage: Stage::Clearing })
    }

    /// Whether a memory node lives and is to leave.
    fn is_leaving(&self, memory_node: u16) -> bool {
        self.lives(memory_node) && !self.stays(memory_node)
    }

    /// A memory node died: what was on its way from it or to it stays where it is whole. So does
    /// what has not got there yet of a range that has lost another slab: that one may need the
    /// place, and the headers may have nowhere to go.
    pub(crate) fn give_up_migration(&mut self, memory_node: u16) {
        let Some(task) = &mut self.migration else { return };
        let is_lost = |slab: &Slab| slab.node == memory_node;
        let is_underway = matches!(task.stage, Stage::Clearing | Stage::Copying | Stage::Switching);
        let place = self.ranges.get(task.range);
        let lost_another =
            is_underway && place.is_some_and(|place| place.slabs.iter().any(is_lost));
        if !is_lost(&task.from) && !is_lost(&task.to) && !lost_another {
            return;
        }
        let was_switched = task.stage == Stage::Switched;
        let (range, position, from) = (task.range, task.position, task.from);
        let is_lost = was_switched && task.to.node == memory_node;
        // The one that is not used any more is free once those who began before have ended.
        task.stage = Stage::Settling;
        // Headers that have got there meanwhile are lost, and made anew from what is left.
        let goes_back = is_lost && !self.has_headers(range, position);
        let Some(place) = self.ranges.get_mut(range) else { return };
        place.moving = None;
        if let Some(slab) = place.slabs.get_mut(position).filter(|_| goes_back) {
            *slab = from;
        }
    }

    /// Goes on to the next stage of the migration `task`, if it is that; whether it is.
    fn advance(&mut self, task: &Migration) -> bool {
        if self.migration != Some(*task) {
            return false;
        }
        let all_fenced = self.unfenced().next().is_none();
        let Migration { range, position, from, to, .. } = *task;
        let is_quiet = self.rebuilds.is_empty();
        let has_headers = self.has_headers(range, position);
        let Some(place) = self.ranges.get_mut(range) else { return false };
        let both = |also, counters_wait| Some(Moving { position, also, counters_wait });
        let stage = match task.stage {
            Stage::Clearing if !has_headers && is_quiet => {
                place.moving = both(to, false);
                Stage::Copying
            }
            Stage::Copying => {
                place.moving = both(to, true);
                Stage::Switching
            }
            Stage::Switching if !has_headers && is_quiet => {
                place.moving = both(from, false);
                if let Some(slab) = place.slabs.get_mut(position) {
                    *slab = to;
                }
                Stage::Switched
            }
            Stage::Switched => {
                place.moving = None;
                Stage::Settling
            }
            // Who died may still write, as long as it is not fenced.
            Stage::Settling if all_fenced => {
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

    /// Whether headers lie in the slab at a position of a range.
    fn has_headers(&self, range: usize, position: usize) -> bool {
        self.ranges.get(range).is_some_and(|place| place.has_headers(position))
    }

    /// Whether a memory node that is to leave has nothing any more.
    fn is_empty(&self, memory_node: u16) -> bool {
        self.slabs_in_use().all(|slab| slab.node != memory_node)
    }

    fn leave(&mut self, memory_node: u16) {
        self.cards.remove(&PeerId::memory(memory_node).to_raw());
        let slot = self.memory_nodes.get_mut(usize::from(memory_node));
        if let Some(member) = slot.and_then(Option::as_mut) {
            (member.stay, member.dead) = (Stay::Left, true);
        }
    }

    /// Looks whether the pool can do without a memory node.
    fn check_leaves(&self, memory_node: u16) -> Result<(), PoolError> {
        let node = usize::from(memory_node);
        let refused = |why| Err(PoolError::CannotLeave { node, why });
        let coding = self.coding;
        let living = self.memory_nodes.iter().flatten();
        let living: Vec<_> = living.filter(|member| !member.dead).collect();
        match self.memory_nodes.get(node).and_then(Option::as_ref) {
            None => return refused("the pool has no such memory node".to_owned()),
            Some(member) if member.stay == Stay::Left => {
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
            member.stay == Stay::Stays && member.descriptor.peer.index() != memory_node
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

    /// Looks whether the slabs of a memory node, and of those that are to leave already, find room
    /// elsewhere.
    fn check_room_without(&self, memory_node: u16) -> Result<(), PoolError> {
        let mut after = self.clone();
        if let Some(Some(member)) = after.memory_nodes.get_mut(usize::from(memory_node)) {
            member.stay = Stay::Leaving;
        }
        let slabs: usize = after.leaving().map(|node| self.slabs_on(node)).sum();
        let moved = after.move_all_leaving();
        if moved == slabs {
            return Ok(());
        }
        let why =
            format!("{slabs} slabs are to be moved, and the others have room for {moved} of them");
        Err(PoolError::CannotLeave { node: usize::from(memory_node), why })
    }

    /// Moves all slabs of memory nodes that are to leave, as far as they find room; how many. Where
    /// two of a range are to move, one may find its place only when the other has gone.
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

/// Has a memory node leave its pool: the compute nodes move elsewhere what it has, and then it is
/// of no use any more. Called again it tells how far that is.
///
/// # Errors
/// [`PoolError::CannotLeave`], [`PoolError::Control`].
pub async fn drain(plane: &dyn ControlPlane, memory_node: u16) -> Result<Leaving, PoolError> {
    let (now, ()) = change_state(plane, |state| state.begin_to_leave(memory_node)).await?;
    Ok(now.state.leaving_of(memory_node))
}

impl PoolState {
    pub(crate) fn begin_to_leave(&mut self, memory_node: u16) -> Result<(), PoolError> {
        if self.stays(memory_node) || !self.lives(memory_node) {
            self.check_leaves(memory_node)?;
        }
        if let Some(Some(member)) = self.memory_nodes.get_mut(usize::from(memory_node)) {
            member.stay = Stay::Leaving;
        }
        // Nobody uses it, and nobody would do the rest.
        if self.compute_nodes.is_empty() && self.is_empty(memory_node) {
            self.leave(memory_node);
        }
        Ok(())
    }

    /// What a memory node that is to leave has to be rid of.
    #[must_use]
    pub fn leaving_of(&self, memory_node: u16) -> Leaving {
        let has_left = self.stay_of(memory_node) == Some(Stay::Left);
        Leaving { slabs: self.slabs_on(memory_node), has_left }
    }
}

impl Pool {
    /// As [`drain`].
    ///
    /// # Errors
    /// [`PoolError::CannotLeave`], [`PoolError::Control`].
    pub async fn drain(&self, memory_node: u16) -> Result<Leaving, PoolError> {
        self.membership().change(|state| state.begin_to_leave(memory_node)).await?;
        Ok(self.state().leaving_of(memory_node))
    }

    /// Gives the compute node `by` a slab to move, which nobody else does: first what others have
    /// left, or what it has begun itself. `None` if there is none, or no room for one, or there are
    /// things to be made good first.
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

    /// Leaves a migration that cannot go on to whoever chooses one next. Of those that are in their
    /// first stage, in which nobody else has to do with it.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_migration(&self, task: &Migration) -> Result<(), PoolError> {
        let leave = |state: &mut PoolState| {
            if task.stage == Stage::Clearing && state.migration == Some(*task) {
                state.migration = None;
            }
            Ok(())
        };
        self.membership().change(leave).await.map(drop)
    }

    /// Goes on to the next stage of a migration, once all processes have taken note of this one and
    /// ended what they began before it. The migration as it is then, in the same stage where
    /// something else has to be over before; `None` if it is over or another's.
    ///
    /// # Errors
    /// [`PoolError::Unresponsive`], [`PoolError::Control`].
    pub async fn advance_migration(
        &self,
        env: &Env,
        task: &Migration,
    ) -> Result<Option<Migration>, PoolError> {
        if task.stage != Stage::Clearing {
            self.until_all_know(env).await?;
        }
        let advance = |state: &mut PoolState| {
            let is_own = state.advance(task);
            Ok(state.migration.filter(|_| is_own))
        };
        Ok(self.membership().change(advance).await?.1)
    }

    /// Has the headers leave the slab that a migration is to move; whether there are any.
    ///
    /// # Errors
    /// [`PoolError::Control`].
    pub async fn leave_headers(&self, task: &Migration) -> Result<bool, PoolError> {
        let leave = |state: &mut PoolState| {
            // Those that are on their way have not left.
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

    /// Lets memory nodes go that are to leave and have nothing any more; which.
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

#[cfg(test)]
mod tests {
    use selkie_fabric::RegionKey;

    use super::*;
    use crate::config::PoolConfig;
    use crate::control::{Identity, MemoryMember, Timing};
    use crate::descriptor::MemoryNodeDescriptor;
    use crate::reclaim::{Reclaim, ReclaimStep};

    /// A pool of coding 2+1 with a range, of memory nodes of these failure domains.
    fn pool(domains: &[&str]) -> PoolState {
        let config = PoolConfig {
            memory_nodes: domains.len(),
            bytes_per_node: 1 << 20,
            gcl_bytes: 512,
            range_bytes: 1 << 18,
            max_compute_nodes: 4,
            coding: "2+1".parse().unwrap(),
            log_bytes: 0,
        };
        let identity = Identity { name: "test", id: 1, fabric: "mem" };
        let mut state = PoolState::new(identity, Timing::default(), &config);
        let member = |(node, domain): (u16, &&str)| {
            let (peer, region) = (PeerId::memory(node), RegionKey::from_raw(0));
            let descriptor = MemoryNodeDescriptor { peer, region, ranges: 2 };
            let domain = domain.parse().unwrap_or_default();
            let (stay, reclaim) = (Stay::Stays, Reclaim::default());
            Some(MemoryMember { host: 0, descriptor, dead: false, domain, stay, reclaim })
        };
        state.memory_nodes = (0..).zip(domains).map(member).collect();
        assert!(state.add_range());
        state
    }

    fn refusal(state: &mut PoolState, node: u16) -> String {
        state.begin_to_leave(node).unwrap_err().to_string()
    }

    #[test]
    fn failure_domains_that_would_be_missing_are_counted() {
        let mut state = pool(&["a", "b", "c", "c"]);
        let why = "memory node 0 cannot leave: 3 memory nodes in 2 failure domains would stay; coding 2+1 needs 3";
        assert_eq!(refusal(&mut state, 0), why);
        state.begin_to_leave(2).unwrap();
        assert!(refusal(&mut state, 3).contains("2 memory nodes in 2 failure domains would stay"));
        state.begin_to_leave(2).unwrap();
    }

    /// A pool whose node 0 leaves, with the move of its slab in this stage.
    fn moving(stage: Stage) -> (PoolState, Migration) {
        let mut state = pool(&["", "", "", "", ""]);
        state.begin_to_leave(0).unwrap();
        let task = state.next_migration(1).unwrap();
        assert_eq!((task.from.node, task.to.node), (0, 3));
        state.migration = Some(task);
        while state.migration.unwrap().stage != stage {
            let task = state.migration.unwrap();
            state.ranges[0].homes = vec![1, 0, 0];
            assert!(state.advance(&task));
        }
        let task = state.migration.unwrap();
        (state, task)
    }

    #[test]
    fn a_slab_is_written_at_both_places_until_all_know_the_new_one() {
        let moving_in = |stage| {
            let (state, _) = moving(stage);
            let moving = state.ranges[0].moving.map(|own| (own.also.node, own.counters_wait));
            (state.ranges[0].slabs[0].node, moving)
        };
        assert_eq!(moving_in(Stage::Clearing), (0, None));
        assert_eq!(moving_in(Stage::Copying), (0, Some((3, false))));
        assert_eq!(moving_in(Stage::Switching), (0, Some((3, true))));
        assert_eq!(moving_in(Stage::Switched), (3, Some((0, false))));
        assert_eq!(moving_in(Stage::Settling), (3, None));
        let (mut state, task) = moving(Stage::Settling);
        assert!(!state.is_empty(0), "somebody may still use the old place");
        state.lost.insert(2, crate::control::Lost::default());
        assert!(state.advance(&task) && state.migration.is_some(), "one that died may still write");
        state.lost.clear();
        assert!(state.advance(&task) && state.is_empty(0));
    }

    #[test]
    fn a_slab_with_headers_is_not_given_up_nor_is_one_in_a_rebuild() {
        let (mut state, task) = moving(Stage::Switching);
        state.ranges[0].homes = vec![0, 0, 0];
        assert!(state.advance(&task));
        assert_eq!(state.migration.unwrap().stage, Stage::Switching);
        assert!(state.leave_headers(0, 0));
        assert_eq!(state.rebuilds.len(), 1);
        state.ranges[0].homes = vec![1, 0, 0];
        assert!(state.advance(&task));
        assert_eq!(
            state.migration.unwrap().stage,
            Stage::Switching,
            "the headers are on their way"
        );
    }

    #[test]
    fn a_death_leaves_the_range_with_a_whole_slab_if_there_is_one() {
        let after = |stage, dead: u16| {
            let (mut state, _) = moving(stage);
            if let Some(member) = &mut state.memory_nodes[usize::from(dead)] {
                member.dead = true;
            }
            state.give_up_migration(dead);
            assert_eq!(state.migration.unwrap().stage, Stage::Settling);
            assert_eq!(state.ranges[0].moving, None);
            state.ranges[0].slabs[0].node
        };
        for stage in [Stage::Clearing, Stage::Copying, Stage::Switching] {
            assert_eq!(after(stage, 0), 0, "it is lost, and made again elsewhere");
            assert_eq!(after(stage, 3), 0, "as before");
        }
        assert_eq!(after(Stage::Switched, 3), 0, "what is written is there, too");
        assert_eq!(after(Stage::Switched, 0), 3);
        let (mut state, task) = moving(Stage::Copying);
        state.give_up_migration(4);
        assert_eq!(state.migration, Some(task), "another node's death is not about it");
    }

    #[test]
    fn a_range_that_lost_a_slab_gets_that_again_before_another_moves() {
        for (stage, given_up) in [
            (Stage::Clearing, true),
            (Stage::Copying, true),
            (Stage::Switching, true),
            (Stage::Switched, false),
            (Stage::Settling, false),
        ] {
            let (mut state, task) = moving(stage);
            if let Some(member) = &mut state.memory_nodes[1] {
                member.dead = true;
            }
            state.give_up_migration(1);
            let now = state.migration.unwrap();
            assert_eq!(
                now,
                Migration { stage: if given_up { Stage::Settling } else { stage }, ..task }
            );
            assert_eq!(state.ranges[0].slabs[0].node, if given_up { 0 } else { 3 });
            if given_up {
                assert_eq!(state.ranges[0].moving, None);
                assert!(state.advance(&now) && state.migration.is_none());
                assert_eq!(state.next_migration(1), None, "though its node is still to leave");
                state.ranges[0].slabs[1] = state.free_slab(3);
                let next = state.next_migration(1).unwrap();
                assert_eq!((next.from.node, next.to.node), (0, 4));
            }
        }
    }

    fn free_slabs_of(state: &PoolState, node: u16) -> Option<u32> {
        let place = state.places().into_iter().find(|place| place.node == node)?;
        Some(place.free())
    }

    #[test]
    fn a_slab_that_is_not_lent_gets_nothing() {
        let mut state = pool(&["", "", "", ""]);
        assert_eq!(state.most_ranges(), 2);
        state.reclaim(3, &[ReclaimStep::Withdraw(1), ReclaimStep::Withdraw(0)]);
        state.reclaim(0, &[ReclaimStep::Withdraw(0), ReclaimStep::Evict(1)]);
        assert_eq!(state.reclaim_of(0), Some(&Reclaim::default()), "it is in use; it is not");
        assert_eq!([0, 3].map(|node| free_slabs_of(&state, node)), [Some(1), Some(0)]);
        let mut free = state.free_slabs().unwrap();
        assert_eq!(free.take(vec![0, 1]), Some(Slab { node: 2, slab: 1 }));
        assert_eq!(free.take(vec![0, 1]), None, "though that is its place but for this");
        assert!(state.add_range() && state.ranges[1].slabs.iter().all(|slab| slab.node < 3));
        assert!(!state.add_range());
        state.reclaim(3, &[ReclaimStep::Offer(1)]);
        assert_eq!(free_slabs_of(&state, 3), Some(1));
        assert_eq!(state.free_slabs().unwrap().take(vec![0, 1]), Some(Slab { node: 3, slab: 1 }));
        let mut other = pool(&["", "", "", ""]);
        other.reclaim(3, &[ReclaimStep::Withdraw(0)]);
        assert!(other.add_range());
        assert!(other.ranges[1].slabs.contains(&Slab { node: 3, slab: 1 }), "{:?}", other.ranges);
        state.coding = crate::coding::Coding::PLAIN;
        state.reclaim(3, &[ReclaimStep::Withdraw(1)]);
        assert_eq!(free_slabs_of(&state, 3), Some(1), "a plain pool has nothing withdrawn");
    }

    /// A pool whose node 0 has its slab evicted, with the move in this stage.
    fn evicting(stage: Stage) -> (PoolState, Migration) {
        let mut state = pool(&["", "", "", ""]);
        state.reclaim(0, &[ReclaimStep::Evict(0)]);
        assert_eq!(free_slabs_of(&state, 0), Some(0), "it gets no other meanwhile");
        state.migration = state.next_migration(1);
        state.ranges[0].homes = vec![1, 0, 0];
        while state.migration.unwrap().stage != stage {
            let task = state.migration.unwrap();
            assert!(state.advance(&task));
        }
        let task = state.migration.unwrap();
        (state, task)
    }

    #[test]
    fn both_slabs_of_a_move_are_free_where_the_range_has_got_a_third() {
        let (mut state, task) = evicting(Stage::Settling);
        let third = Slab { node: 2, slab: 1 };
        assert_eq!(state.freed_by(&task).collect::<Vec<_>>(), [task.from]);
        // The one that it had moved to was lost, and made again elsewhere before the move was over.
        state.ranges[0].slabs[0] = third;
        assert_eq!(state.freed_by(&task).collect::<Vec<_>>(), [task.from, task.to]);
        assert!(state.advance(&task) && state.migration.is_none());
        let reclaim = state.reclaim_of(0).unwrap();
        assert!(reclaim.evicting.is_empty() && reclaim.withdrawn.contains(0), "{reclaim:?}");
    }

    #[test]
    fn an_evicted_slab_is_withdrawn_when_nobody_uses_it_any_more() {
        for stage in
            [Stage::Clearing, Stage::Copying, Stage::Switching, Stage::Switched, Stage::Settling]
        {
            let (mut state, task) = evicting(stage);
            assert_eq!((task.from, task.to.node), (Slab { node: 0, slab: 0 }, 3), "{stage:?}");
            state.reclaim(0, &[ReclaimStep::Cancel(0), ReclaimStep::Withdraw(0)]);
            let reclaim = state.reclaim_of(0).unwrap();
            assert!(reclaim.evicting.contains(0) && reclaim.withdrawn.is_empty(), "{stage:?}");
        }
        let (mut state, task) = evicting(Stage::Settling);
        state.lost.insert(2, crate::control::Lost::default());
        assert!(state.advance(&task));
        assert!(state.reclaim_of(0).unwrap().withdrawn.is_empty(), "one that died may still write");
        state.lost.clear();
        assert!(state.advance(&task) && state.migration.is_none());
        let reclaim = state.reclaim_of(0).unwrap();
        assert!(reclaim.evicting.is_empty() && reclaim.withdrawn.contains(0));
        assert_eq!(state.ranges[0].slabs[0], task.to);
        assert_eq!(state.next_migration(1), None);
    }

    #[test]
    fn an_evicted_slab_whose_move_is_given_up_stays_and_moves_later() {
        let (mut state, task) = evicting(Stage::Copying);
        state.memory_nodes[3].as_mut().unwrap().dead = true;
        state.give_up_migration(3);
        let task = Migration { stage: Stage::Settling, ..task };
        assert!(state.advance(&task) && state.migration.is_none());
        let reclaim = state.reclaim_of(0).unwrap();
        assert!(reclaim.evicting.contains(0) && reclaim.withdrawn.is_empty());
        assert_eq!(state.next_migration(1), None, "there is no room");
        state.memory_nodes[3].as_mut().unwrap().dead = false;
        assert!(state.next_migration(1).is_some());
        state.reclaim(0, &[ReclaimStep::Cancel(0)]);
        assert_eq!(state.next_migration(1), None, "memory is free again");
    }
}
