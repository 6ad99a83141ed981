//! The faults of a case: those of its seed, and those of its scenario.

use super::case::Case;
use super::name::Scenario;
use super::{crash, memnode_loss, slab_eviction, straggler};
use crate::plan::Plan;

impl Case {
    /// What goes wrong.
    pub fn plan(self) -> Plan {
        let mut plan = self.draw_plan();
        match self.scenario {
            // The driver waits for its workers on all nodes, and those of a lost one never end.
            Scenario::Tpcc => plan.spare_compute_nodes(),
            Scenario::MemnodeLoss | Scenario::TpccLoss => memnode_loss::lose_nodes(self, &mut plan),
            Scenario::Corruption => plan.spare_all_nodes(),
            Scenario::Straggler => straggler::slow_down(self, &mut plan),
            Scenario::SlabEviction => slab_eviction::lose_nodes(self, &mut plan),
            Scenario::Crash => crash::lose_nodes(self, &mut plan),
            _ => {}
        }
        if self.has_processes() {
            plan.widen(self.seed, self.memory_nodes(), self.compute_nodes(), self.keeps());
        } else if self.has_long_troubles() {
            plan.prolong(self.seed, self.memory_nodes(), self.compute_nodes());
        }
        plan
    }
}
