//! The stages of a move, and what is left when nodes die in one.

use selkie_fabric::{PeerId, RegionKey};

use crate::config::PoolConfig;
use crate::document::{
    Identity, MemoryMember, MemoryNodeDescriptor, Migration, MigrationStage, PoolState, Reclaim,
    Residency, Slab, Timing,
};
use crate::reclaim::ReclaimStep;

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
        let (stay, reclaim) = (Residency::Stays, Reclaim::default());
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
    let why =
        "mem0 cannot leave: 3 memory nodes in 2 failure domains would stay; coding 2+1 needs 3";
    assert_eq!(refusal(&mut state, 0), why);
    state.begin_to_leave(2).unwrap();
    assert!(refusal(&mut state, 3).contains("2 memory nodes in 2 failure domains would stay"));
    state.begin_to_leave(2).unwrap();
}

/// The slab had two places, and the drain was refused for lack of room for one.
#[test]
fn a_slab_that_moves_to_a_node_that_has_just_joined_is_counted_once() {
    let mut state = pool(&["", "", ""]);
    assert!(state.add_range(), "the second range");
    let join = |state: &mut PoolState| {
        let mut member = state.memory_nodes[0].clone().unwrap();
        member.descriptor.peer = PeerId::memory(3);
        assert!(state.enter_memory_node(member).unwrap());
    };
    join(&mut state);
    let stages = [
        MigrationStage::Clearing,
        MigrationStage::Copying,
        MigrationStage::Switching,
        MigrationStage::Switched,
        MigrationStage::Settling,
    ];
    for stage in stages {
        for leaving in 0..3 {
            let mut state = state.clone();
            state.migration = state.next_migration(1);
            assert_eq!(state.migration.unwrap().to.node, 3, "it balances");
            while state.migration.unwrap().stage != stage {
                let task = state.migration.unwrap();
                // As headers are elsewhere by then.
                let on = u8::from(true);
                state.ranges[task.range].homes = vec![0, 0, 0];
                state.ranges[task.range].homes[task.position] = on;
                assert!(state.advance(&task));
            }
            state.begin_to_leave(leaving).unwrap();
        }
    }
}

/// A pool whose node 0 leaves, with the move of its slab in this stage.
fn moving(stage: MigrationStage) -> (PoolState, Migration) {
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
    assert_eq!(moving_in(MigrationStage::Clearing), (0, None));
    assert_eq!(moving_in(MigrationStage::Copying), (0, Some((3, false))));
    assert_eq!(moving_in(MigrationStage::Switching), (0, Some((3, true))));
    assert_eq!(moving_in(MigrationStage::Switched), (3, Some((0, false))));
    assert_eq!(moving_in(MigrationStage::Settling), (3, None));
    let (mut state, task) = moving(MigrationStage::Settling);
    assert!(!state.is_empty(0), "a node may still use the old place");
    state.lost.insert(2, crate::document::Lost::default());
    assert!(state.advance(&task) && state.migration.is_some(), "one that died may still write");
    state.lost.clear();
    assert!(state.advance(&task) && state.is_empty(0));
}

#[test]
fn a_slab_with_headers_is_not_given_up_nor_is_one_in_a_rebuild() {
    let (mut state, task) = moving(MigrationStage::Switching);
    state.ranges[0].homes = vec![0, 0, 0];
    assert!(state.advance(&task));
    assert_eq!(state.migration.unwrap().stage, MigrationStage::Switching);
    assert!(state.leave_headers(0, 0));
    assert_eq!(state.rebuilds.len(), 1);
    state.ranges[0].homes = vec![1, 0, 0];
    assert!(state.advance(&task));
    assert_eq!(
        state.migration.unwrap().stage,
        MigrationStage::Switching,
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
        assert_eq!(state.migration.unwrap().stage, MigrationStage::Settling);
        assert_eq!(state.ranges[0].moving, None);
        state.ranges[0].slabs[0].node
    };
    for stage in [MigrationStage::Clearing, MigrationStage::Copying, MigrationStage::Switching] {
        assert_eq!(after(stage, 0), 0, "it is lost, and regenerated elsewhere");
        assert_eq!(after(stage, 3), 0, "as before");
    }
    assert_eq!(after(MigrationStage::Switched, 3), 0, "what is written is there, too");
    assert_eq!(after(MigrationStage::Switched, 0), 3);
    let (mut state, task) = moving(MigrationStage::Copying);
    state.give_up_migration(4);
    assert_eq!(state.migration, Some(task), "another node's death is not about it");
}

#[test]
fn a_range_that_lost_a_slab_gets_that_again_before_another_moves() {
    for (stage, given_up) in [
        (MigrationStage::Clearing, true),
        (MigrationStage::Copying, true),
        (MigrationStage::Switching, true),
        (MigrationStage::Switched, false),
        (MigrationStage::Settling, false),
    ] {
        let (mut state, task) = moving(stage);
        if let Some(member) = &mut state.memory_nodes[1] {
            member.dead = true;
        }
        state.give_up_migration(1);
        let now = state.migration.unwrap();
        assert_eq!(
            now,
            Migration { stage: if given_up { MigrationStage::Settling } else { stage }, ..task }
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
fn evicting(stage: MigrationStage) -> (PoolState, Migration) {
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
    let (mut state, task) = evicting(MigrationStage::Settling);
    let third = Slab { node: 2, slab: 1 };
    assert_eq!(state.freed_by(&task).collect::<Vec<_>>(), [task.from]);
    // The slab that it had moved to was lost, and regenerated elsewhere before the move was over.
    state.ranges[0].slabs[0] = third;
    assert_eq!(state.freed_by(&task).collect::<Vec<_>>(), [task.from, task.to]);
    assert!(state.advance(&task) && state.migration.is_none());
    let reclaim = state.reclaim_of(0).unwrap();
    assert!(reclaim.evicting.is_empty() && reclaim.withdrawn.contains(0), "{reclaim:?}");
}

#[test]
fn an_evicted_slab_is_withdrawn_when_no_node_uses_it_any_more() {
    for stage in [
        MigrationStage::Clearing,
        MigrationStage::Copying,
        MigrationStage::Switching,
        MigrationStage::Switched,
        MigrationStage::Settling,
    ] {
        let (mut state, task) = evicting(stage);
        assert_eq!((task.from, task.to.node), (Slab { node: 0, slab: 0 }, 3), "{stage:?}");
        state.reclaim(0, &[ReclaimStep::Cancel(0), ReclaimStep::Withdraw(0)]);
        let reclaim = state.reclaim_of(0).unwrap();
        assert!(reclaim.evicting.contains(0) && reclaim.withdrawn.is_empty(), "{stage:?}");
    }
    let (mut state, task) = evicting(MigrationStage::Settling);
    state.lost.insert(2, crate::document::Lost::default());
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
    let (mut state, task) = evicting(MigrationStage::Copying);
    state.memory_nodes[3].as_mut().unwrap().dead = true;
    state.give_up_migration(3);
    let task = Migration { stage: MigrationStage::Settling, ..task };
    assert!(state.advance(&task) && state.migration.is_none());
    let reclaim = state.reclaim_of(0).unwrap();
    assert!(reclaim.evicting.contains(0) && reclaim.withdrawn.is_empty());
    assert_eq!(state.next_migration(1), None, "there is no room");
    state.memory_nodes[3].as_mut().unwrap().dead = false;
    assert!(state.next_migration(1).is_some());
    state.reclaim(0, &[ReclaimStep::Cancel(0)]);
    assert_eq!(state.next_migration(1), None, "memory is free again");
}
