//! What a process may change through a relay, by the role in its certificate. Pure: a change is
//! judged by the document before it and after it, and by what is known of the process that asks.
//!
//! ```text
//!                                     memory   compute   reader   operator
//! shape, name, timing of the pool       -         -         -         -
//! memory nodes: enter, reclaim         own        -         -         -
//! memory nodes: to leave                -        yes        -        yes
//! cards, compute nodes, incarnations   own       own     own, reads  grow
//! deaths, with all that follows        yes       yes       own       yes
//! index that is free next               -        yes       yes        -
//! acknowledge a death, note a rebuild   -        yes       own       yes
//! ranges, rebuilds, moves, pages,
//!   barriers, recoveries, labels        -        yes        -        yes
//! beats                                own       own       own        -
//! ```
//! *Own* is what carries a number made from the certificate ([`super::identity`]), and what no
//! process has yet. Processes that share a certificate are one here. All roles may read: the
//! document has no secrets. What compute nodes share, each of them may change, as each may have to
//! take over the task of another that died. A death may be declared by every process that watches
//! others; what follows from it in the document is computed here, so that nothing else passes for
//! it.

use std::collections::{BTreeMap, BTreeSet};

use selkie_fabric::{NodeCertificate, PeerId, Role};

use super::identity::is_host_of;
use super::plane::Beat;
use crate::document::{Card, Lost, Member, MemoryMember, PoolState, Rebuild, Residency};

/// A role does not allow something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a certificate of role {role} must not change {what}{}; `selkie cert node --role` makes \
     certificates of other roles",
    takes(.by)
)]
pub struct Refused {
    /// The role in the certificate.
    pub role: Role,
    /// What was to be changed.
    pub what: String,
    /// The roles that may change it, maybe only where it is their own.
    pub by: &'static [Role],
}

fn takes(by: &[Role]) -> String {
    let names: Vec<&str> = by.iter().map(|role| role.name()).collect();
    match names.is_empty() {
        true => ", nor must any other through a relay".to_owned(),
        false => format!(": that takes role {}", names.join(" or ")),
    }
}

const NONE: &[Role] = &[];
const MEMORY: &[Role] = &[Role::Memory];
const MEMBERS: &[Role] = &[Role::Compute, Role::Reader];
const NODES: &[Role] = &[Role::Memory, Role::Compute, Role::Reader];
const WATCHERS: &[Role] = &[Role::Memory, Role::Compute, Role::Operator];
const MANAGERS: &[Role] = &[Role::Compute, Role::Operator];

/// Whether `by` may replace `before` by `after`.
///
/// # Errors
/// What it may not change, and who may.
pub fn may_change(
    by: &NodeCertificate,
    before: &PoolState,
    after: &PoolState,
) -> Result<(), Refused> {
    let judge = Judge { by, expected: with_deaths(by, before, after)?, before, after };
    judge.shape()?;
    judge.memory_nodes()?;
    judge.cards()?;
    judge.compute_nodes()?;
    judge.incarnations()?;
    judge.directories()?;
    judge.tasks()
}

/// Whether `by` may give this sign of life in a pool of this state.
///
/// # Errors
/// The beat is not of a node of its own.
pub fn may_beat(by: &NodeCertificate, state: &PoolState, beat: &Beat) -> Result<(), Refused> {
    let node = beat.node;
    let card = state.cards.get(&node.to_raw()).map(|card| card.host);
    let member = match node.is_memory() {
        true => state.member(node.index()).filter(|member| !member.dead).map(|m| m.host),
        false => state.compute_nodes.get(&node.index()).map(|member| member.host),
    };
    let is_own = |host: Option<u64>| host.is_none_or(|host| is_host_of(by, host));
    if by.role.may_be(node) && is_host_of(by, beat.host) && is_own(card) && is_own(member) {
        return Ok(());
    }
    Err(Refused { role: by.role, what: format!("the sign of life of {node}"), by: NODES })
}

/// `before` with the deaths that `after` declares, and all that follows from them.
fn with_deaths(
    by: &NodeCertificate,
    before: &PoolState,
    after: &PoolState,
) -> Result<PoolState, Refused> {
    let mut expected = before.clone();
    for (node, host) in deaths(before, after) {
        if !WATCHERS.contains(&by.role) && !is_host_of(by, host) {
            let what = format!("{node} to dead");
            return Err(Refused { role: by.role, what, by: WATCHERS });
        }
        expected.declare_dead(node);
    }
    Ok(expected)
}

/// The nodes, with their processes, that live in `before` and are dead in `after`, in the order in
/// which a failure detector declares them dead.
fn deaths(before: &PoolState, after: &PoolState) -> BTreeMap<PeerId, u64> {
    let memory = before.memory_nodes.iter().enumerate().filter_map(|(index, member)| {
        let member = member.as_ref().filter(|member| !member.dead)?;
        let now = after.memory_nodes.get(index).and_then(Option::as_ref);
        now.is_none_or(|now| now.dead).then_some((member.descriptor.peer, member.host))
    });
    let members = before.compute_nodes.iter().map(|(i, m)| (PeerId::compute(*i), m.host));
    let cards = before.cards.iter().map(|(raw, card)| (PeerId::from_raw(*raw), card.host));
    let is_lost = |node: &PeerId| {
        let lost = |state: &PoolState| state.lost.contains_key(&node.index());
        !node.is_memory() && lost(after) && !lost(before)
    };
    memory.chain(cards.chain(members).filter(|(node, _)| is_lost(node))).collect()
}

struct Judge<'s> {
    by: &'s NodeCertificate,
    before: &'s PoolState,
    /// `before`, and the deaths.
    expected: PoolState,
    after: &'s PoolState,
}

impl Judge<'_> {
    fn refuse<T>(&self, what: impl Into<String>, by: &'static [Role]) -> Result<T, Refused> {
        Err(Refused { role: self.by.role, what: what.into(), by })
    }

    fn is(&self, roles: &[Role]) -> bool {
        roles.contains(&self.by.role)
    }

    fn owns(&self, host: u64) -> bool {
        is_host_of(self.by, host)
    }

    /// Whether it has this number, or there is none yet.
    fn is_own(&self, host: Option<u64>) -> bool {
        host.is_none_or(|host| self.owns(host))
    }

    /// Refuses a change by other roles.
    fn same<T: PartialEq>(
        &self,
        (expected, after): (&T, &T),
        what: &str,
        roles: &'static [Role],
    ) -> Result<(), Refused> {
        if expected == after || self.is(roles) { Ok(()) } else { self.refuse(what, roles) }
    }

    /// What stays as it was made.
    fn shape(&self) -> Result<(), Refused> {
        let of = |state: &PoolState| {
            let identity = (state.format, state.name.clone(), state.id, state.fabric.clone());
            let sizes = (state.gcl_bytes, state.range_bytes, state.log_bytes);
            (identity, state.timing, sizes, state.max_compute_nodes, state.coding)
        };
        self.same((&of(&self.expected), &of(self.after)), "the shape of the pool", NONE)
    }

    fn memory_nodes(&self) -> Result<(), Refused> {
        let (expected, after) = (&self.expected.memory_nodes, &self.after.memory_nodes);
        if after.len() < expected.len() {
            return self.refuse("the list of memory nodes", NONE);
        }
        for (index, now) in after.iter().enumerate() {
            let was = expected.get(index).and_then(Option::as_ref);
            let now = now.as_ref();
            let is_new = index >= expected.len();
            if was == now && !is_new {
                continue;
            }
            let what = format!("memory node {index}");
            let may = match (self.by.role, was, now) {
                (Role::Memory, was, now) => self.may_hold_memory(index, was, now),
                (Role::Compute | Role::Operator, Some(was), Some(now)) => self.is_managed(was, now),
                _ => false,
            };
            if !may {
                let is_managed = was.zip(now).is_some_and(|(was, now)| self.is_managed(was, now));
                return self.refuse(what, if is_managed { MANAGERS } else { MEMORY });
            }
        }
        Ok(())
    }

    /// A memory node's own entry. What has died does not live again.
    fn may_hold_memory(
        &self,
        index: usize,
        was: Option<&MemoryMember>,
        now: Option<&MemoryMember>,
    ) -> bool {
        let is_own = self.is_own(was.map(|was| was.host)) && self.is_own(now.map(|now| now.host));
        let peer = now.map(|now| now.descriptor.peer);
        // Places are added with the nodes that take them.
        let is_in = index < self.expected.memory_nodes.len();
        let fits =
            peer.map_or(is_in, |peer| peer.is_memory() && usize::from(peer.index()) == index);
        let revives = was.is_some_and(|was| was.dead) && now.is_some_and(|now| !now.dead);
        is_own && fits && !revives
    }

    /// A memory node is to leave, has left as nothing is on it, or its slabs have moved.
    fn is_managed(&self, was: &MemoryMember, now: &MemoryMember) -> bool {
        let stay = match (was.stay, now.stay) {
            (was, now) if was == now => true,
            (Residency::Stays, Residency::Leaving) => true,
            (Residency::Leaving | Residency::Stays, Residency::Left) => {
                now.dead && self.before.is_empty(was.descriptor.peer.index())
            }
            _ => false,
        };
        let mut reclaim = was.reclaim.clone();
        for slab in was.reclaim.evicting.iter() {
            if !now.reclaim.evicting.contains(slab) {
                reclaim.evicting.remove(slab);
                reclaim.withdrawn.insert(slab);
            }
        }
        stay && *now == MemoryMember { stay: now.stay, reclaim, ..was.clone() }
    }

    fn cards(&self) -> Result<(), Refused> {
        for raw in changed_keys(&self.expected.cards, &self.after.cards) {
            let (was, now) = (self.expected.cards.get(&raw), self.after.cards.get(&raw));
            let node = PeerId::from_raw(raw);
            let host = |card: Option<&Card>| card.map(|card| card.host);
            let is_own = self.is_own(host(was)) && self.is_own(host(now));
            if !is_own || !self.by.role.may_be(node) {
                let roles = if node.is_memory() { MEMORY } else { MEMBERS };
                return self.refuse(format!("the access card of {node}"), roles);
            }
            if self.by.role == Role::Reader && now.is_some_and(|now| !now.reads_only) {
                let what = format!("pages as {node}, which joins with more than reads");
                return self.refuse(what, &[Role::Compute]);
            }
        }
        Ok(())
    }

    fn compute_nodes(&self) -> Result<(), Refused> {
        let (expected, after) = (&self.expected.compute_nodes, &self.after.compute_nodes);
        for index in changed_keys(expected, after) {
            let host = |member: Option<&Member>| member.map(|member| member.host);
            let (was, now) = (host(expected.get(&index)), host(after.get(&index)));
            let card = self.after.cards.get(&PeerId::compute(index).to_raw());
            let has_others_card = now.is_some() && !self.is_own(card.map(|card| card.host));
            let is_own = self.is_own(was) && self.is_own(now) && !has_others_card;
            if !is_own || !self.is(MEMBERS) {
                return self.refuse(format!("compute node {index}"), MEMBERS);
            }
        }
        Ok(())
    }

    /// They grow: with a node that enters, or all at once in a pool that had none.
    fn incarnations(&self) -> Result<(), Refused> {
        let (expected, after) = (&self.expected.incarnations, &self.after.incarnations);
        let begins = expected.is_empty() && self.is(MANAGERS);
        for index in changed_keys(expected, after) {
            let was = expected.get(&index).copied().unwrap_or(0);
            let now = after.get(&index).copied().unwrap_or(0);
            let entered = self.after.compute_nodes.get(&index);
            let enters = entered.is_some_and(|own| {
                self.owns(own.host) && own.incarnation == now && now == was.saturating_add(1)
            });
            let grows = now > was;
            if !(enters || begins || grows && self.by.role == Role::Operator) {
                return self.refuse(format!("the count of compute nodes {index}"), MEMBERS);
            }
        }
        Ok(())
    }

    fn directories(&self) -> Result<(), Refused> {
        for index in changed_keys(&self.expected.directories, &self.after.directories) {
            let node = self.after.memory_nodes.get(index).and_then(Option::as_ref);
            let is_own = node.is_some_and(|node| self.owns(node.host));
            if !is_own || self.by.role != Role::Memory {
                return self.refuse(format!("the directory at memory node {index}"), MEMORY);
            }
        }
        Ok(())
    }

    /// What compute nodes share.
    fn tasks(&self) -> Result<(), Refused> {
        let e = &self.expected;
        // Every field, so that a new one is not forgotten; those with `_` are judged elsewhere.
        let PoolState {
            format: _,
            name: _,
            id: _,
            fabric: _,
            timing: _,
            gcl_bytes: _,
            range_bytes: _,
            max_compute_nodes: _,
            coding: _,
            log_bytes: _,
            memory_nodes: _,
            compute_nodes: _,
            cards: _,
            incarnations: _,
            directories: _,
            token: _,
            ranges,
            rebuilds,
            rebuilds_begun,
            regeneration,
            migration,
            next_index,
            lost,
            dead,
            crash_groups,
            lost_pages,
            abandoned_pages,
            abandoned_ranges,
            unreached,
            repairer,
            barrier,
            barriers_begun,
            labels,
        } = self.after;
        self.same((&e.token, &self.after.token), "the token of the pool", NONE)?;
        self.same((&e.next_index, next_index), "the index that is free next", MEMBERS)?;
        self.same((&e.ranges, ranges), "the places of ranges", MANAGERS)?;
        self.same((&e.rebuilds_begun, rebuilds_begun), "rebuilds", MANAGERS)?;
        self.same((&e.regeneration, regeneration), "the regeneration of a slab", MANAGERS)?;
        self.same((&e.migration, migration), "the move of a slab", MANAGERS)?;
        self.same((&e.dead, dead), "dead compute nodes", MANAGERS)?;
        self.same((&e.crash_groups, crash_groups), "dead compute nodes", MANAGERS)?;
        self.same((&e.lost_pages, lost_pages), "lost pages", MANAGERS)?;
        self.same((&e.abandoned_pages, abandoned_pages), "lost pages", MANAGERS)?;
        self.same((&e.abandoned_ranges, abandoned_ranges), "lost pages", MANAGERS)?;
        self.same((&e.unreached, unreached), "unreached memory nodes", MANAGERS)?;
        self.same((&e.repairer, repairer), "the repair of the pool", MANAGERS)?;
        self.same((&e.barrier, barrier), "the snapshot barrier", MANAGERS)?;
        self.same((&e.barriers_begun, barriers_begun), "the snapshot barrier", MANAGERS)?;
        self.same((&e.labels, labels), "labels", MANAGERS)?;
        if self.by.role == Role::Reader {
            let own = self.own_indexes();
            let (was, now) = (but_for(&e.lost, &own), but_for(lost, &own));
            self.same((&was, &now), "the recovery from a dead node", MANAGERS)?;
            let (was, now) = (quiet_but_for(&e.rebuilds, &own), quiet_but_for(rebuilds, &own));
            return self.same((&was, &now), "rebuilds", MANAGERS);
        }
        self.same((&e.lost, lost), "the recovery from a dead node", MANAGERS)?;
        self.same((&e.rebuilds, rebuilds), "rebuilds", MANAGERS)
    }

    /// The compute nodes of the process that asks.
    fn own_indexes(&self) -> BTreeSet<u16> {
        let all = self.before.compute_nodes.iter();
        all.filter(|(_, member)| self.owns(member.host)).map(|(index, _)| *index).collect()
    }
}

/// The keys whose values differ.
fn changed_keys<K: Ord + Copy, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> BTreeSet<K> {
    let keys = before.keys().chain(after.keys()).copied();
    keys.filter(|key| before.get(key) != after.get(key)).collect()
}

/// Recoveries without what these nodes have acknowledged.
fn but_for(lost: &BTreeMap<u16, Lost>, own: &BTreeSet<u16>) -> BTreeMap<u16, Lost> {
    let mut lost = lost.clone();
    lost.values_mut().for_each(|lost| lost.acknowledged.retain(|node| !own.contains(node)));
    lost
}

/// Rebuilds without what these nodes have noted.
fn quiet_but_for(rebuilds: &[Rebuild], own: &BTreeSet<u16>) -> Vec<Rebuild> {
    let mut rebuilds = rebuilds.to_vec();
    for rebuild in &mut rebuilds {
        rebuild.quiet.retain(|node| !own.contains(node));
        rebuild.entered.retain(|node| !own.contains(node));
    }
    rebuilds
}

#[cfg(test)]
#[path = "rights_tests.rs"]
mod tests;
