//! Lists: the longest read of a list is its version order, and every other read is a prefix of it
//! (Elle §4, VLDB 2020).
//!
//! An element that no transaction read was appended after all elements that were read, in an order
//! that does not matter. So the edges are all that can be known, and an acyclic graph has a serial
//! order. Edges: linear in the reads and appends of a list, but readers of the newest version times
//! appends that no transaction read.

use std::collections::{BTreeMap, BTreeSet};

use super::anomaly::AnomalyKind;
use super::facts::{Facts, List};
use super::graph::{EdgeReason, Graph};
use super::history::{Object, Txn};

/// Adds the dependencies of all lists to the graph, and reports reads without a common order and
/// lost updates.
pub(super) fn add_dependencies(facts: &mut Facts<'_>, graph: &mut Graph<'_>) {
    for (key, list) in std::mem::take(&mut facts.lists) {
        let object = Object::List(key);
        let Some(order) = version_order(object, &list, facts) else { continue };
        if !keeps_own_orders(object, &list, order, facts) {
            continue;
        }
        let writer = |value: u64| facts.writers.get(&(object, value)).map(|writer| writer.txn);
        let installed: Vec<(Txn, u64)> =
            order.iter().filter_map(|value| writer(*value).map(|txn| (txn, *value))).collect();
        link(object, &list, &installed, graph);

        let found = list.reads.iter().map(|read| (read.reader, read.found));
        let found: BTreeMap<Txn, usize> = found.collect();
        let updates = found.iter().filter(|(txn, _)| list.appends.contains_key(txn));
        report_lost_updates(object, updates.map(|(txn, found)| (*txn, *found)), facts);
    }
}

/// Reports all that wrote an object after reading the same version of it.
pub(super) fn report_lost_updates<V: Ord>(
    object: Object,
    updates: impl Iterator<Item = (Txn, V)>,
    facts: &mut Facts<'_>,
) {
    let mut by_version: BTreeMap<V, Vec<Txn>> = BTreeMap::new();
    for (txn, version) in updates {
        by_version.entry(version).or_default().push(txn);
    }
    for lost in by_version.into_values().filter(|txns| txns.len() > 1) {
        let names: Vec<String> = lost.iter().map(Txn::to_string).collect();
        let reason = format!("{} all updated the same version of {object}", names.join(", "));
        facts.report(AnomalyKind::LostUpdate, lost, reason);
    }
}

/// The longest read; none if another is not a prefix of it.
fn version_order<'h>(object: Object, list: &List<'h>, facts: &mut Facts<'h>) -> Option<&'h [u64]> {
    let Some(longest) = list.reads.iter().max_by_key(|read| read.list.len()) else {
        return Some(&[]);
    };
    let conflict = list.reads.iter().find(|read| !longest.list.starts_with(read.list));
    if let Some(other) = conflict {
        let reason = format!("{object} was read as {:?} and as {:?}", other.list, longest.list);
        facts.report(AnomalyKind::IncompatibleOrder, [other.reader, longest.reader], reason);
        return None;
    }
    Some(longest.list)
}

/// Whether the list has what each transaction appended in its order and without gaps.
fn keeps_own_orders(object: Object, list: &List<'_>, order: &[u64], facts: &mut Facts<'_>) -> bool {
    let mut read: BTreeMap<Txn, Vec<u64>> = BTreeMap::new();
    for value in order {
        if let Some(writer) = facts.writers.get(&(object, *value)) {
            read.entry(writer.txn).or_default().push(*value);
        }
    }
    let appended = |txn| list.appends.get(txn).map_or(&[][..], Vec::as_slice);
    let broken = read.iter().find(|(txn, read)| !appended(txn).starts_with(read));
    if let Some((txn, read)) = broken {
        let appended = appended(txn);
        let reason = format!("{txn} appended {appended:?} to {object}, read as {read:?}");
        facts.report(AnomalyKind::IncompatibleOrder, [*txn], reason);
    }
    broken.is_none()
}

fn link(object: Object, list: &List<'_>, installed: &[(Txn, u64)], graph: &mut Graph<'_>) {
    let in_order: BTreeSet<u64> = installed.iter().map(|(_, value)| *value).collect();
    let appends = list.appends.iter().flat_map(|(txn, values)| values.iter().map(|v| (*txn, *v)));
    let unread: Vec<(Txn, u64)> = appends.filter(|(_, value)| !in_order.contains(value)).collect();

    for ((from, first), (to, second)) in installed.iter().zip(installed.iter().skip(1)) {
        graph.add(*from, *to, EdgeReason::Overwrote { object, first: *first, second: *second });
    }
    if let Some((from, first)) = installed.last() {
        for (to, second) in &unread {
            graph.add(*from, *to, EdgeReason::Overwrote { object, first: *first, second: *second });
        }
    }
    for read in &list.reads {
        let newest = read.found.checked_sub(1).and_then(|last| installed.get(last));
        if let Some((writer, value)) = newest {
            graph.add(*writer, read.reader, EdgeReason::ReadFrom { object, value: *value });
        }
        let next = match installed.get(read.found) {
            Some(next) => std::slice::from_ref(next),
            None => &unread,
        };
        for (writer, wrote) in next {
            let read_value = newest.map(|(_, value)| *value);
            let why = EdgeReason::ReadBefore { object, read: read_value, wrote: *wrote };
            graph.add(read.reader, *writer, why);
        }
    }
}
