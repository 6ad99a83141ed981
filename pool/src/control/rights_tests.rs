//! Every kind of change of the document, by every role, to what is its own and to what is
//! another's.

use std::collections::{BTreeMap, BTreeSet};

use selkie_fabric::{NodeCertificate, PeerId, RegionKey, Role};

use super::super::identity::host_number;
use super::*;
use crate::coding::Coding;
use crate::config::PoolConfig;
use crate::document::{
    Identity, Mailbox, MemoryNodeDescriptor, Migration, MigrationStage, RangePlace, Reclaim,
    Regeneration, Slab, SnapshotBarrier, Timing,
};
use crate::token::Token;

const OTHER: u64 = 0xdead_beef;

fn shown(role: Role) -> NodeCertificate {
    NodeCertificate { role, fingerprint: [7; 32] }
}

/// The number of the process that asks: the same for all roles, as only the role differs.
fn own() -> u64 {
    host_number(&shown(Role::Compute), 1 << 40)
}

fn memory(index: u16, host: u64) -> MemoryMember {
    let (peer, region) = (PeerId::memory(index), RegionKey::from_raw(1));
    MemoryMember {
        host,
        descriptor: MemoryNodeDescriptor { peer, region, ranges: 8 },
        dead: false,
        domain: "rack".parse().unwrap(),
        stay: Residency::Stays,
        reclaim: Reclaim::default(),
    }
}

fn card(host: u64, reads_only: bool) -> Card {
    Card { host, card: "127.0.0.1:1 key".to_owned(), reads_only }
}

fn member(host: u64) -> Member {
    let mailboxes = Vec::<Mailbox>::new();
    Member { host, incarnation: 1, mailboxes, renewals: 0, has_log: false, begins: false }
}

/// A pool on three memory nodes, of which 0 is the asker's, with compute nodes 0, the asker's, and
/// 1.
fn pool() -> PoolState {
    let config = PoolConfig {
        memory_nodes: 4,
        bytes_per_node: 8 << 20,
        gcl_bytes: 512,
        range_bytes: 1 << 19,
        max_compute_nodes: 8,
        coding: "2+1".parse::<Coding>().unwrap(),
        log_bytes: 0,
    };
    let identity = Identity { name: "test", id: 7, fabric: "tcp" };
    let mut state = PoolState::new(identity, Timing::default(), &config);
    for (index, host) in [(0, own()), (1, OTHER), (2, OTHER + 1)] {
        state.memory_nodes[usize::from(index)] = Some(memory(index, host));
        state.cards.insert(PeerId::memory(index).to_raw(), card(host, false));
    }
    for (index, host) in [(0, own()), (1, OTHER)] {
        state.compute_nodes.insert(index, member(host));
        state.cards.insert(PeerId::compute(index).to_raw(), card(host, true));
        state.incarnations.insert(index, 1);
    }
    let slabs = (0..3).map(|node| Slab { node, slab: 0 }).collect();
    state.ranges.push(RangePlace { slabs, homes: vec![0; 3], moving: None });
    // Dead since before, and being recovered from.
    state.lost.insert(5, Lost { fenced: true, ..Lost::default() });
    state.incarnations.insert(5, 3);
    state.rebuilds.push(Rebuild { number: 1, memory: 3, ..Rebuild::default() });
    state
}

type Change = fn(&mut PoolState);

fn memory_of(state: &mut PoolState, index: usize) -> &mut MemoryMember {
    state.memory_nodes[index].as_mut().unwrap()
}

fn declare(state: &mut PoolState, node: PeerId) {
    state.declare_dead(node);
}

const M: &[Role] = &[Role::Memory];
const C: &[Role] = &[Role::Compute];
const CR: &[Role] = &[Role::Compute, Role::Reader];
const CRO: &[Role] = &[Role::Compute, Role::Reader, Role::Operator];
const CO: &[Role] = &[Role::Compute, Role::Operator];
const MCO: &[Role] = &[Role::Memory, Role::Compute, Role::Operator];
const MCRO: &[Role] = &Role::ALL;
const NO_ROLE: &[Role] = &[];

/// A change, and the roles that may make it.
struct Row {
    name: &'static str,
    change: Box<dyn Fn(&mut PoolState)>,
    allowed: &'static [Role],
}

/// What the change returns does not matter.
fn row<T: 'static>(
    name: &'static str,
    change: fn(&mut PoolState) -> T,
    allowed: &'static [Role],
) -> Row {
    Row { name, change: Box::new(move |state| drop(change(state))), allowed }
}

/// All kinds of changes.
fn changes() -> Vec<Row> {
    let mut all = shape();
    all.extend(memory_nodes());
    all.extend(compute_nodes());
    all.extend(shared());
    all
}

fn shape() -> Vec<Row> {
    vec![
        row("nothing", |_| {}, MCRO),
        row("format", |s| s.format += 1, NO_ROLE),
        row("name", |s| s.name.push('x'), NO_ROLE),
        row("id", |s| s.id += 1, NO_ROLE),
        row("fabric", |s| s.fabric = "shm".to_owned(), NO_ROLE),
        row("timing", |s| s.timing.lease *= 2, NO_ROLE),
        row("gcl_bytes", |s| s.gcl_bytes *= 2, NO_ROLE),
        row("range_bytes", |s| s.range_bytes *= 2, NO_ROLE),
        row("max_compute_nodes", |s| s.max_compute_nodes += 1, NO_ROLE),
        row("coding", |s| s.coding = Coding::PLAIN, NO_ROLE),
        row("log_bytes", |s| s.log_bytes = 1 << 20, NO_ROLE),
        row(
            "token",
            |s| s.token = Some(Token::parse(&"0".repeat(64)).unwrap().verifier()),
            NO_ROLE,
        ),
    ]
}

fn memory_nodes() -> Vec<Row> {
    vec![
        row("a memory node of its own enters", |s| enter_memory(s, own()), M),
        row("a memory node of another enters", |s| enter_memory(s, OTHER), NO_ROLE),
        row(
            "a memory node beyond those that were to be",
            |s| s.memory_nodes.push(Some(memory(4, own()))),
            M,
        ),
        row("an empty place", |s| s.memory_nodes.push(None), NO_ROLE),
        row("no place", |s| s.memory_nodes.pop(), NO_ROLE),
        row(
            "a memory node under another's name",
            |s| s.memory_nodes[3] = Some(memory(2, own())),
            NO_ROLE,
        ),
        row("its own memory node is another's", |s| memory_of(s, 0).host = OTHER, NO_ROLE),
        row("another's memory node is its own", |s| memory_of(s, 1).host = own(), NO_ROLE),
        row("its own descriptor", |s| memory_of(s, 0).descriptor.ranges += 1, M),
        row("another's descriptor", |s| memory_of(s, 1).descriptor.ranges += 1, NO_ROLE),
        row("its own domain", |s| memory_of(s, 0).domain = "other".parse().unwrap(), M),
        row("another's domain", |s| memory_of(s, 1).domain = "other".parse().unwrap(), NO_ROLE),
        row("it withdraws a slab", |s| memory_of(s, 0).reclaim.withdrawn.insert(3), M),
        row("another withdraws a slab", |s| memory_of(s, 1).reclaim.withdrawn.insert(3), NO_ROLE),
        row("it watches its memory", |s| memory_of(s, 0).reclaim.is_watching = true, M),
        row("another watches its memory", |s| memory_of(s, 1).reclaim.is_watching = true, NO_ROLE),
        row("another's memory node is to leave", |s| memory_of(s, 1).stay = Residency::Leaving, CO),
        row(
            "another's memory node stays after all",
            |s| memory_of(s, 1).stay = Residency::Left,
            NO_ROLE,
        ),
        row("a memory node with slabs has left", |s| s.leave(1), NO_ROLE),
        row("another's memory node dies", |s| declare(s, PeerId::memory(1)), MCO),
        row("its own memory node dies", |s| declare(s, PeerId::memory(0)), MCRO),
        row("another's memory node is dead, and no more", |s| memory_of(s, 1).dead = true, NO_ROLE),
    ]
}

fn compute_nodes() -> Vec<Row> {
    vec![
        row("another's compute node dies", |s| declare(s, PeerId::compute(1)), MCO),
        row("its own compute node dies", |s| declare(s, PeerId::compute(0)), MCRO),
        row(
            "several die",
            |s| {
                declare(s, PeerId::memory(1));
                declare(s, PeerId::compute(1));
            },
            MCO,
        ),
        row("another's compute node is gone", |s| s.compute_nodes.remove(&1), NO_ROLE),
        row("another's card is gone", |s| s.cards.remove(&PeerId::compute(1).to_raw()), NO_ROLE),
        row(
            "its own compute node leaves",
            |s| {
                s.cards.remove(&PeerId::compute(0).to_raw());
                s.compute_nodes.remove(&0);
            },
            CR,
        ),
        row("a card of its own that reads", |s| enter_card(s, own(), true), CR),
        row("a card of its own that writes", |s| enter_card(s, own(), false), C),
        row(
            "its own card writes from now on",
            |s| s.cards.get_mut(&PeerId::compute(0).to_raw()).unwrap().reads_only = false,
            C,
        ),
        row("a card in another's name", |s| enter_card(s, OTHER, true), NO_ROLE),
        row(
            "another's card is replaced",
            |s| s.cards.insert(PeerId::compute(1).to_raw(), card(own(), true)),
            NO_ROLE,
        ),
        row(
            "a memory node's card is replaced",
            |s| s.cards.insert(PeerId::memory(1).to_raw(), card(own(), false)),
            NO_ROLE,
        ),
        row(
            "its own memory node's card",
            |s| s.cards.get_mut(&PeerId::memory(0).to_raw()).unwrap().card.push('x'),
            M,
        ),
        row("a compute node of its own enters", |s| enter_compute(s, own(), 1), CR),
        row("one that has been in too often", |s| enter_compute(s, own(), 2), NO_ROLE),
        row("a compute node of another enters", |s| enter_compute(s, OTHER, 1), NO_ROLE),
        row(
            "its own compute node renews",
            |s| s.compute_nodes.get_mut(&0).unwrap().renewals += 1,
            CR,
        ),
        row("another's renews", |s| s.compute_nodes.get_mut(&1).unwrap().renewals += 1, NO_ROLE),
        row("a count of nodes falls", |s| s.incarnations.insert(1, 0), NO_ROLE),
        row("a count of nodes grows alone", |s| s.incarnations.insert(1, 2), &[Role::Operator]),
        row("a directory of its own", |s| directory(s, 0), M),
        row("a directory of another", |s| directory(s, 1), NO_ROLE),
    ]
}

fn shared() -> Vec<Row> {
    vec![
        row("next_index", |s| s.next_index += 1, CR),
        row("ranges", |s| s.ranges[0].homes[0] = 1, CO),
        row("rebuilds_begun", |s| s.rebuilds_begun += 1, CO),
        row("a rebuild is over", |s| s.rebuilds.clear(), CO),
        row("its own node is quiet", |s| s.rebuilds[0].quiet.insert(0), CRO),
        row("its own node has entered", |s| s.rebuilds[0].entered.insert(0), CRO),
        row("another's node is quiet", |s| s.rebuilds[0].quiet.insert(1), CO),
        row("a rebuild is claimed", |s| s.rebuilds[0].by = Some(0), CO),
        row("regeneration", |s| s.regeneration = Some(regeneration()), CO),
        row("migration", |s| s.migration = Some(migration()), CO),
        row("abandoned pages", |s| s.abandoned_pages.insert(64), CO),
        row("ranges of abandoned pages", |s| s.abandoned_ranges.insert(1), CO),
        row("a repair begins", |s| s.repairer = Some(0), CO),
        row("its own node acknowledges", |s| acknowledge(s, 0), CRO),
        row("another's node acknowledges", |s| acknowledge(s, 1), CO),
        row("a sweep is claimed", |s| s.lost.get_mut(&5).unwrap().sweeper = Some(0), CO),
        row("a recovery is over", |s| s.lost.remove(&5), CO),
        row("dead", |s| s.dead.insert(6), CO),
        row("crash_groups", |s| s.crash_groups.push(BTreeMap::from([(5, 3)])), CO),
        row("lost_pages", |s| s.lost_pages.insert(64), CO),
        row("barrier", |s| s.barrier = Some(SnapshotBarrier { number: 1, by: 0 }), CO),
        row("barriers_begun", |s| s.barriers_begun += 1, CO),
        row("labels", |s| s.labels.insert("a".to_owned(), "b".to_owned()), CO),
    ]
}

fn enter_memory(state: &mut PoolState, host: u64) {
    state.memory_nodes[3] = Some(memory(3, host));
    state.cards.insert(PeerId::memory(3).to_raw(), card(host, false));
}

fn enter_card(state: &mut PoolState, host: u64, reads_only: bool) {
    state.cards.insert(PeerId::compute(2).to_raw(), card(host, reads_only));
}

fn enter_compute(state: &mut PoolState, host: u64, incarnation: u32) {
    enter_card(state, host, true);
    state.compute_nodes.insert(2, Member { incarnation, ..member(host) });
    state.incarnations.insert(2, incarnation);
}

fn directory(state: &mut PoolState, index: usize) {
    let mailbox = serde_json::from_str(r#"{"peer":1,"region":1,"ring_bytes":8,"peers":1}"#);
    state.directories.insert(index, mailbox.unwrap());
}

fn acknowledge(state: &mut PoolState, by: u16) {
    state.lost.get_mut(&5).unwrap().acknowledged.insert(by);
}

fn regeneration() -> Regeneration {
    let to = Slab { node: 1, slab: 1 };
    Regeneration { range: 0, position: 0, to, by: 0, begun: false, ends: false, attempt: 0 }
}

fn migration() -> Migration {
    let [from, to] = [0, 1].map(|slab| Slab { node: 1, slab });
    Migration { range: 0, position: 1, from, to, by: 0, stage: MigrationStage::Clearing }
}

#[test]
fn each_role_may_make_the_changes_that_it_takes_and_no_others() {
    let before = pool();
    for Row { name, change, allowed } in changes() {
        let mut after = before.clone();
        change(&mut after);
        for role in Role::ALL {
            let judged = may_change(&shown(role), &before, &after);
            assert_eq!(judged.is_ok(), allowed.contains(&role), "{role}: {name}: {judged:?}");
            let Err(refused) = judged else { continue };
            assert_eq!(refused.role, role);
            let said = refused.to_string();
            let start = format!("a certificate of role {role} must not change {}", refused.what);
            assert!(said.starts_with(&start), "{said}");
        }
    }
}

#[test]
fn every_field_of_the_document_is_in_the_table() {
    let before = pool();
    let fields = |state: &PoolState| {
        let value = serde_json::to_value(state).unwrap();
        value.as_object().unwrap().clone()
    };
    let mut changed = BTreeSet::new();
    for Row { change, .. } in changes() {
        let mut after = before.clone();
        change(&mut after);
        let (was, now) = (fields(&before), fields(&after));
        let keys = was.keys().chain(now.keys());
        changed.extend(keys.filter(|key| was.get(*key) != now.get(*key)).cloned());
    }
    let all: BTreeSet<String> = fields(&before).keys().cloned().collect();
    let missing: Vec<_> = all.difference(&changed).collect();
    assert!(missing.is_empty(), "no change of {missing:?} is judged in a test");
}

#[test]
fn a_death_brings_nothing_with_it_but_what_follows_from_it() {
    let before = pool();
    let mut after = before.clone();
    declare(&mut after, PeerId::compute(1));
    assert_eq!(may_change(&shown(Role::Memory), &before, &after), Ok(()));
    let more: [Change; 4] = [
        |s| {
            s.lost_pages.insert(64);
        },
        |s| {
            s.dead.insert(1);
        },
        |s| s.lost.get_mut(&1).unwrap().held_nothing ^= true,
        |s| {
            s.cards.remove(&PeerId::memory(2).to_raw());
        },
    ];
    for more in more {
        let mut after = after.clone();
        more(&mut after);
        assert!(may_change(&shown(Role::Memory), &before, &after).is_err());
    }
}

#[test]
fn an_empty_memory_node_leaves_and_slabs_that_have_moved_are_withdrawn() {
    let mut before = pool();
    before.ranges.clear();
    before.rebuilds.clear();
    memory_of(&mut before, 1).stay = Residency::Leaving;
    let mut after = before.clone();
    after.leave(1);
    let allowed = |before: &PoolState, after: &PoolState| {
        Role::ALL.map(|role| may_change(&shown(role), before, after).is_ok())
    };
    assert_eq!(allowed(&before, &after), [false, true, false, true]);

    let mut before = pool();
    memory_of(&mut before, 1).reclaim.evicting.insert(3);
    let mut after = before.clone();
    after.give_back(Slab { node: 1, slab: 3 });
    assert_eq!(allowed(&before, &after), [false, true, false, true]);
    memory_of(&mut after, 1).reclaim.withdrawn.insert(4);
    assert_eq!(allowed(&before, &after), [false; 4], "4 was not to move");
}

#[test]
fn the_dead_do_not_live_again() {
    let mut before = pool();
    declare(&mut before, PeerId::memory(0));
    declare(&mut before, PeerId::compute(0));
    let mut after = before.clone();
    memory_of(&mut after, 0).dead = false;
    for role in Role::ALL {
        assert!(may_change(&shown(role), &before, &after).is_err(), "{role}");
    }
}

#[test]
fn the_counts_of_a_pool_that_had_none_are_set_at_once() {
    let mut before = pool();
    before.incarnations.clear();
    before.compute_nodes.clear();
    before.lost.clear();
    let mut after = before.clone();
    after.incarnations = BTreeMap::from([(0, 3), (7, 1)]);
    let allowed = Role::ALL.map(|role| may_change(&shown(role), &before, &after).is_ok());
    assert_eq!(allowed, [false, true, false, true]);
}

#[test]
fn signs_of_life_are_given_of_its_own_nodes() {
    let state = pool();
    let may = |role, node, host| {
        let beat = Beat { node, host, seen: 1, report: String::new() };
        may_beat(&shown(role), &state, &beat).is_ok()
    };
    for role in Role::ALL {
        let (is_memory, is_compute) = (role == Role::Memory, CR.contains(&role));
        assert_eq!(may(role, PeerId::memory(0), own()), is_memory, "{role}");
        assert_eq!(may(role, PeerId::memory(3), own()), is_memory, "{role}: about to enter");
        assert_eq!(may(role, PeerId::compute(0), own()), is_compute, "{role}");
        assert_eq!(may(role, PeerId::compute(4), own()), is_compute, "{role}: about to enter");
        for (node, host) in [
            (PeerId::memory(1), own()),
            (PeerId::memory(1), OTHER),
            (PeerId::compute(1), own()),
            (PeerId::compute(1), OTHER),
            (PeerId::compute(4), OTHER),
        ] {
            assert!(!may(role, node, host), "{role}: {node} of {host:#x}");
        }
    }
}
