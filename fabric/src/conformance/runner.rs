//! Runs all checks and reports their outcomes.

use std::fmt;

use super::check::{Check, CheckResult, Subject};
use super::{concurrency, death, doorbells, errors, order, verbs};

/// All checks.
pub fn checks() -> Vec<Check> {
    [
        verbs::CHECKS,
        order::CHECKS,
        errors::CHECKS,
        concurrency::CHECKS,
        doorbells::CHECKS,
        death::CHECKS,
    ]
    .concat()
}

/// Runs every check, each on a fresh subject.
pub fn run_all(make: &dyn Fn() -> Subject) -> Report {
    let outcomes = checks().into_iter().map(|check| (check.name, check.run(make()))).collect();
    Report { outcomes }
}

/// The outcomes of all checks.
#[must_use = "a report says whether the checks passed"]
#[derive(Debug)]
pub struct Report {
    /// The checks by name.
    pub outcomes: Vec<(&'static str, CheckResult)>,
}

impl Report {
    /// Whether all checks passed.
    pub fn passed(&self) -> bool {
        self.outcomes.iter().all(|(_, outcome)| outcome.is_ok())
    }

    /// For tests.
    ///
    /// # Panics
    /// With the list of outcomes, if a check failed.
    pub fn assert_passed(&self) {
        assert!(self.passed(), "the fabric breaks its contract:\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, outcome) in &self.outcomes {
            match outcome {
                Ok(()) => writeln!(f, "ok      {name}")?,
                Err(failure) => writeln!(f, "FAILED  {name}: {failure}")?,
            }
        }
        Ok(())
    }
}
