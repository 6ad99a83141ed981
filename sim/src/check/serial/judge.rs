//! The verdict: facts, graph, inference until nothing follows, and at last a serial order.

use std::collections::BTreeSet;

use super::anomaly::{Anomaly, Kind};
use super::facts::Facts;
use super::graph::{Graph, Why};
use super::history::{Level, Status, Transaction, Txn};
use super::order::Order;
use super::{lists, registers, schedule};

/// Whether the history satisfies `level`.
///
/// # Errors
/// What is wrong with it, never empty. [`Kind::Undecided`](super::Kind::Undecided) says that there
/// was no verdict.
pub fn serializable(history: &[Transaction], level: Level) -> Result<(), Vec<Anomaly>> {
    let mut facts = Facts::gather(history)?;
    let mut graph = Graph::new(history);
    registers::add_dependencies(&mut facts, &mut graph);
    lists::add_dependencies(&mut facts, &mut graph);
    let mut anomalies = std::mem::take(&mut facts.anomalies);
    anomalies.extend(close(&facts, &mut graph));
    if anomalies.is_empty() && level == Level::StrictSerializable {
        add_real_time(&facts, &mut graph);
        anomalies.extend(close(&facts, &mut graph));
        // Also where only the reason for an edge is in real time.
        anomalies.iter_mut().for_each(|anomaly| anomaly.kind = Kind::RealTime);
    }
    if anomalies.is_empty() {
        anomalies.extend(schedule::find(&facts, &graph, schedule::MAX_TRIES));
    }
    if anomalies.is_empty() { Ok(()) } else { Err(anomalies) }
}

/// Infers edges until nothing follows or there is a cycle: what is found first has the plainest
/// reasons. Returns the cycles.
pub(super) fn close<'h>(facts: &Facts<'h>, graph: &mut Graph<'h>) -> Vec<Anomaly> {
    loop {
        let cycles = graph.cycles();
        if !cycles.is_empty() {
            return cycles;
        }
        let order = Order::of(graph, facts.history);
        if !registers::infer(facts, &order, graph) {
            return Vec::new();
        }
    }
}

/// Links each transaction to those that returned before it was invoked, but for what already
/// follows: the *frontier* are the returned ones that precede no other returned one.
fn add_real_time(facts: &Facts<'_>, graph: &mut Graph<'_>) {
    let mut events = Vec::new();
    for (txn, transaction) in facts.transactions() {
        events.push((transaction.invoked, false, txn, transaction.invoked));
        // What is unknown may take effect after its client gave up.
        let returned = transaction.returned.filter(|_| transaction.status == Status::Committed);
        events.extend(returned.map(|returned| (returned, true, txn, transaction.invoked)));
    }
    // Of one instant the invocations first: they do not follow what returns then.
    events.sort_unstable();
    let mut frontier: BTreeSet<(u64, Txn)> = BTreeSet::new();
    for (at, returns, txn, invoked) in events {
        if returns {
            frontier.retain(|(returned, _)| *returned >= invoked);
            frontier.insert((at, txn));
        } else {
            for (returned, before) in &frontier {
                graph.add(*before, txn, Why::RealTime { returned: *returned, invoked: at });
            }
        }
    }
}
