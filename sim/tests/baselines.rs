//! The baselines are measured against, so they must be right as well.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use selkie_engine::Coherence;
use selkie_sim::{Case, Scenario, run_with};

fn holds(coherence: Coherence) {
    for seed in 0..60 {
        let scenario = [Scenario::Counter, Scenario::Bank, Scenario::Tree][seed as usize % 3];
        let case = Case::gentle(scenario, seed);
        let tune = |config: &mut selkie_engine::EngineConfig| config.coherence = coherence;
        run_with(case, &case.plan(), &tune, None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn the_baseline_without_a_cache_is_coherent() {
    holds(Coherence::Sel);
}

#[test]
fn the_baseline_with_directories_is_coherent() {
    holds(Coherence::Rpc);
}
