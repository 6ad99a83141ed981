//! Findings about one condition, and the judgement of all.

use std::fmt;

use serde::Serialize;

/// Offending keys named in a report.
const EXAMPLES: usize = 3;

/// A condition that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BrokenCondition {
    /// Its number, 1 to 12: clause 3.3.2.*number*.
    pub condition: u8,
    /// What must hold.
    pub rule: &'static str,
    /// Keys for which it does not.
    pub offences: u64,
    /// The first of them, with the values found.
    pub examples: Vec<String>,
}

impl fmt::Display for BrokenCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { condition, rule, offences, examples } = self;
        write!(f, "condition {condition} (clause 3.3.2.{condition}): {rule}: ")?;
        write!(f, "{offences} offending, first {}", examples.join("; "))
    }
}

/// The judgement of the conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Those that do not hold.
    pub broken: Vec<BrokenCondition>,
    /// Conditions that are not judged for all that they speak about, as rows are on lost pages; for
    /// how many of the warehouses, districts, customers or orders that were read.
    pub unjudged: Vec<(u8, u64)>,
    /// How many conditions are judged for something.
    pub judged: usize,
}

/// What is found about one condition while it is checked.
pub(super) struct ConditionFindings {
    pub(super) broken: BrokenCondition,
    pub(super) judged: u64,
    pub(super) unjudged: u64,
}

impl ConditionFindings {
    pub(super) fn new(condition: u8, rule: &'static str) -> Self {
        let broken = BrokenCondition { condition, rule, offences: 0, examples: Vec::new() };
        Self { broken, judged: 0, unjudged: 0 }
    }

    /// Notes an offence unless `holds`.
    pub(super) fn expect(&mut self, holds: bool, example: impl FnOnce() -> String) {
        if !holds {
            self.broken.offences += 1;
            if self.broken.examples.len() < EXAMPLES {
                self.broken.examples.push(example());
            }
        }
    }

    /// Returns whether to judge an item, and counts it as judged or unjudged. An item is judged
    /// only if everything about it was `readable`.
    pub(super) fn judges(&mut self, readable: bool) -> bool {
        self.judged += u64::from(readable);
        self.unjudged += u64::from(!readable);
        readable
    }
}
