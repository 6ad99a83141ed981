//! Running a scenario.

use std::time::Duration;

use selkie_fabric::sim::TraceSink;

use super::case::Case;
use super::name::Scenario;
use super::outcome::RunOutcome;
use super::start::Tune;
use super::{
    bank, corruption, counter, crash, history, memnode_loss, ring, slab_eviction, straggler, tpcc,
    tree,
};
use crate::failure::Failure;
use crate::plan::Plan;

/// What a run that went well did.
#[derive(Clone, PartialEq, Debug)]
pub struct Summary {
    /// What was run.
    pub case: Case,
    /// Under which faults.
    pub plan: Plan,
    /// Hash of everything that happened.
    pub trace_hash: u64,
    /// Virtual time it took.
    pub virtual_time: Duration,
    /// Operations that clients completed.
    pub operations: u64,
    /// Clients that ended in a typed error, which only a lost node excuses.
    pub gave_up: u64,
}

/// Runs `case` under the faults drawn from its seed.
///
/// # Errors
/// What does not hold, with all it takes to see it again.
pub fn run(case: Case, log: Option<TraceSink>) -> Result<Summary, Box<Failure>> {
    run_with(case, &case.plan(), &|_| {}, log)
}

/// [`run`] under faults of the caller's choice, with engines configured by `tune`, which is given
/// the scenario's own configuration (TPC-C and the rings have none).
///
/// # Errors
/// As [`run`].
pub fn run_with(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<Summary, Box<Failure>> {
    let outcome = match case.scenario {
        Scenario::Counter => counter::run(case, plan, tune, log),
        Scenario::Bank => bank::run(case, plan, tune, log),
        Scenario::History => history::run(case, plan, tune, log),
        Scenario::Tree => tree::run(case, plan, tune, log),
        Scenario::Tpcc => tpcc::run(case, plan, log),
        Scenario::Ring => ring::run(case, plan, log),
        Scenario::MemnodeLoss | Scenario::TpccLoss => memnode_loss::run(case, plan, tune, log),
        Scenario::Corruption => corruption::run(case, plan, tune, log),
        Scenario::Straggler => straggler::run(case, plan, tune, log),
        Scenario::SlabEviction => slab_eviction::run(case, plan, tune, log),
        Scenario::Crash => crash::run(case, plan, tune, log),
    };
    match outcome {
        Ok(RunOutcome { trace_hash, virtual_time, operations, gave_up }) => {
            Ok(Summary { case, plan: plan.clone(), trace_hash, virtual_time, operations, gave_up })
        }
        Err(error) => Err(Box::new(Failure { case, plan: plan.clone(), error })),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::choices;
    use super::super::name::UnknownScenario;
    use super::*;

    /// The codings that a sweep over all scenarios runs this one with.
    fn codings(scenario: Scenario, seeds: std::ops::Range<u64>) -> BTreeSet<String> {
        let own = seeds.filter(|seed| Scenario::of_seed(*seed) == scenario);
        own.map(|seed| Case::of(scenario, seed).coding().to_string()).collect()
    }

    #[test]
    fn a_sweep_over_all_scenarios_has_every_shape_of_each() {
        for (scenario, shapes) in [
            (Scenario::MemnodeLoss, &choices::MEMNODE_LOSS_SHAPES.map(|(coding, _)| coding)[..]),
            (Scenario::Corruption, &choices::CORRUPTION_CODINGS),
            (Scenario::Straggler, &choices::STRAGGLER_CODINGS),
            (Scenario::SlabEviction, &choices::SLAB_EVICTION_CODINGS),
            (Scenario::Crash, &choices::CRASH_CODINGS),
        ] {
            let seen = codings(scenario, 0..1000);
            for shape in shapes {
                let coding: selkie_pool::Coding = shape.parse().unwrap();
                assert!(seen.contains(&coding.to_string()), "{scenario}: {shape} not in {seen:?}");
            }
        }
        let journals = codings(Scenario::MemnodeLoss, 0..400);
        assert!(journals.iter().any(|coding| coding.contains("journal=always")), "{journals:?}");
    }

    #[test]
    fn scenarios_go_by_their_names() {
        for scenario in Scenario::ALL {
            assert_eq!(scenario.name().parse(), Ok(scenario));
            assert!(UnknownScenario(String::new()).to_string().contains(scenario.name()));
        }
        assert!("Counter".parse::<Scenario>().is_err());
    }
}
