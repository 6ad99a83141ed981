//! The verdict: facts, graph, inference, and at last a serial order.

use std::collections::BTreeSet;

use super::anomaly::{Anomaly, AnomalyKind};
use super::facts::Facts;
use super::graph::{EdgeReason, Graph};
use super::history::{Level, Status, Transaction, Txn};
use super::inference::infer_all;
use super::{lists, registers, schedule};

/// Whether the history satisfies `level`.
///
/// # Errors
/// What is wrong with it, never empty. [`AnomalyKind::Undecided`](super::AnomalyKind::Undecided)
/// says that there was no verdict.
pub fn serializable(history: &[Transaction], level: Level) -> Result<(), Vec<Anomaly>> {
    let mut facts = Facts::gather(history)?;
    let mut graph = Graph::new(history);
    registers::add_dependencies(&mut facts, &mut graph);
    lists::add_dependencies(&mut facts, &mut graph);
    let mut anomalies = std::mem::take(&mut facts.anomalies);
    anomalies.extend(infer_all(&facts, &mut graph));
    if anomalies.is_empty() && level == Level::StrictSerializable {
        add_real_time(&facts, &mut graph);
        anomalies.extend(infer_all(&facts, &mut graph));
        // Also where real time is only a reason for an inferred edge.
        anomalies.iter_mut().for_each(|anomaly| anomaly.kind = AnomalyKind::RealTime);
    }
    if anomalies.is_empty() {
        anomalies.extend(schedule::find(&facts, &graph, schedule::MAX_TRIES));
    }
    if anomalies.is_empty() { Ok(()) } else { Err(anomalies) }
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
                graph.add(*before, txn, EdgeReason::RealTime { returned: *returned, invoked: at });
            }
        }
    }
}
