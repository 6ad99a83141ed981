//! Inference of edges: a round adds the edges that follow from the order found so far.

use super::anomaly::Anomaly;
use super::facts::Facts;
use super::graph::Graph;
use super::order::Order;
use super::registers;

/// Infers edges until nothing follows or the graph has a cycle. It checks for cycles before each
/// round, as the first edges have the simplest reasons. Returns the cycles.
pub(super) fn infer_all<'h>(facts: &Facts<'h>, graph: &mut Graph<'h>) -> Vec<Anomaly> {
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
