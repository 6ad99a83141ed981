//! Registers: a read names the write it saw, but not the order of the other writes.
//!
//! What can be known of the version order follows from the order of transactions. If `R` read what
//! `A` wrote and `W` wrote the same register, then either `W` comes before `A` or after `R`. So
//!
//! ```text
//!   A before W   =>   R before W   (rw)        A always comes before W if R read the initial state
//!   W before R   =>   W before A   (ww)
//! ```
//!
//! applied until nothing new follows. That takes in read-modify-writes (`A` before `W`, because `W`
//! read it) and real time, if it is in the graph. It is the pruning of Cobra (OSDI 2020); what it
//! leaves open is decided by `schedule`. One round costs, for each register, reads times writes.

use super::facts::{Facts, RegisterRead};
use super::graph::{EdgeReason, Graph};
use super::history::{Object, Txn};
use super::lists::report_lost_updates;
use super::order::Order;

/// Adds what the reads say by themselves, and reports lost updates.
pub(super) fn add_dependencies(facts: &mut Facts<'_>, graph: &mut Graph<'_>) {
    let mut updates = Vec::new();
    for (key, register) in &facts.registers {
        let object = Object::Register(*key);
        let mut updates_of_key = Vec::new();
        for RegisterRead { reader, version } in &register.reads {
            let update = register.writes.get(reader);
            if update.is_some() {
                updates_of_key.push((*reader, *version));
            }
            if let Some((value, writer)) = *version {
                graph.add(writer, *reader, EdgeReason::ReadFrom { object, value });
                if let Some(second) = update.copied() {
                    graph.add(
                        writer,
                        *reader,
                        EdgeReason::Overwrote { object, first: value, second },
                    );
                }
            }
        }
        updates.push((object, updates_of_key));
    }
    for (object, updates) in updates {
        report_lost_updates(object, updates.into_iter(), facts);
    }
}

/// Adds what follows from `order`, the closure of the graph: `rw` edges, or else `ww` edges.
/// Returns whether anything did.
pub(super) fn infer(facts: &Facts<'_>, order: &Order, graph: &mut Graph<'_>) -> bool {
    add_all(facts, order, graph, overwriters) || add_all(facts, order, graph, hidden)
}

type Inferred = Vec<(Txn, Txn, EdgeReason)>;

/// What follows for one read of the register `key` from its writers, given first to last.
type Rule = fn(key: u64, &RegisterRead, writers: &[(Txn, u64)], &Order) -> Inferred;

fn add_all(facts: &Facts<'_>, order: &Order, graph: &mut Graph<'_>, rule: Rule) -> bool {
    let mut any = false;
    for (key, register) in &facts.registers {
        let mut writes: Vec<(Txn, u64)> = register.writes.iter().map(|(t, v)| (*t, *v)).collect();
        writes.sort_by_key(|(txn, _)| order.position[*txn]);
        for read in &register.reads {
            for (from, to, why) in rule(*key, read, &writes, order) {
                graph.add(from, to, why);
                any = true;
            }
        }
    }
    any
}

/// The first writers after the version that was read: the reader comes before them.
fn overwriters(
    key: u64,
    read: &RegisterRead,
    first_to_last: &[(Txn, u64)],
    order: &Order,
) -> Inferred {
    let RegisterRead { reader, version } = *read;
    let mut found = Inferred::new();
    for (writer, wrote) in first_to_last.iter().copied().filter(|(writer, _)| *writer != reader) {
        let after = version.is_none_or(|(_, installer)| order.before(installer, writer));
        let implied = order.before(reader, writer)
            || found.iter().any(|(_, earlier, _)| order.before(*earlier, writer));
        if after && !implied {
            let read = version.map(|(value, _)| value);
            let why = EdgeReason::ReadBefore { object: Object::Register(key), read, wrote };
            found.push((reader, writer, why));
        }
    }
    found
}

/// The last writers before the reader: they come before the version that was read, too.
fn hidden(key: u64, read: &RegisterRead, first_to_last: &[(Txn, u64)], order: &Order) -> Inferred {
    let RegisterRead { reader, version } = *read;
    let Some((second, installer)) = version else { return Inferred::new() };
    let mut found = Inferred::new();
    for (writer, first) in first_to_last.iter().rev().copied().filter(|(w, _)| *w != installer) {
        let implied = order.before(writer, installer)
            || found.iter().any(|(later, ..)| order.before(writer, *later));
        if order.before(writer, reader) && !implied {
            let why = EdgeReason::Hidden { object: Object::Register(key), first, second, reader };
            found.push((writer, installer, why));
        }
    }
    found
}
