//! A run that failed.

use std::fmt;

use crate::envelope::Envelope;
use crate::error::SimError;
use crate::plan::Plan;
use crate::scenario::Case;

/// A run that failed, with all it takes to see it again.
#[derive(Debug, thiserror::Error)]
pub struct Failure {
    /// What was run.
    pub case: Case,
    /// Under which faults.
    pub plan: Plan,
    /// What went wrong.
    #[source]
    pub error: SimError,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { case, plan, error } = self;
        let Case { scenario, seed, .. } = case;
        writeln!(f, "scenario {scenario} failed with seed {seed}: {error}")?;
        write!(f, "coding {}, ", case.coding())?;
        if let Some(nodes) = case.asked_memory_nodes() {
            write!(f, "{nodes} memory nodes (the command below takes those of the seed), ")?;
        }
        writeln!(f, "plan: {plan}")?;
        write!(f, "replay: selkie sim --seed {seed} --scenario {scenario}")?;
        if case.envelope() != Envelope::default() {
            write!(f, " --envelope {}", case.envelope())?;
        }
        if let Some(coding) = case.asked_coding() {
            write!(f, " --coding {coding}")?;
        }
        match case.asked_protocol() {
            Some(protocol) => write!(f, " --protocol {protocol}"),
            None => Ok(()),
        }
    }
}
