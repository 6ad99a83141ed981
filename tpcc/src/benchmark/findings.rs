//! What a check finds: sums, and rules that do not hold.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Offences named in a report.
const EXAMPLES: usize = 3;

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// What must hold.
    pub rule: &'static str,
    /// For how many rows or keys it does not.
    pub offences: u64,
    /// Some of them, with the values found.
    pub examples: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, offences, examples } = self;
        write!(f, "{rule}: {offences} offending, as {}", examples.join("; "))
    }
}

/// What was found in some part of a database, or in all of it.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    violations: BTreeMap<&'static str, Violation>,
    totals: BTreeMap<&'static str, i64>,
}

impl Findings {
    /// The rules that do not hold.
    pub fn violations(&self) -> impl Iterator<Item = &Violation> {
        self.violations.values()
    }

    /// Whether every rule holds.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.violations.is_empty()
    }

    /// Everything that was counted or summed up.
    #[must_use]
    pub fn totals(&self) -> &BTreeMap<&'static str, i64> {
        &self.totals
    }

    /// A sum.
    #[must_use]
    pub fn total(&self, name: &str) -> i64 {
        self.totals.get(name).copied().unwrap_or(0)
    }

    /// Adds to a sum.
    pub fn add(&mut self, total: &'static str, amount: i64) {
        *self.totals.entry(total).or_default() += amount;
    }

    /// Notes a rule as broken unless it holds.
    pub fn expect(&mut self, holds: bool, rule: &'static str, example: impl FnOnce() -> String) {
        if holds {
            return;
        }
        let none = || Violation { rule, offences: 0, examples: Vec::new() };
        let violation = self.violations.entry(rule).or_insert_with(none);
        violation.offences += 1;
        if violation.examples.len() < EXAMPLES {
            violation.examples.push(example());
        }
    }

    /// Adds what was found elsewhere.
    pub(crate) fn merge(&mut self, other: Self) {
        for (total, amount) in other.totals {
            self.add(total, amount);
        }
        for (rule, found) in other.violations {
            let none = || Violation { rule, offences: 0, examples: Vec::new() };
            let violation = self.violations.entry(rule).or_insert_with(none);
            violation.offences += found.offences;
            let room = EXAMPLES.saturating_sub(violation.examples.len());
            violation.examples.extend(found.examples.into_iter().take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_add_up_and_name_the_first_offences() {
        let mut all = Findings::default();
        assert!(all.hold());
        for part in 0..2 {
            let mut found = Findings::default();
            found.add("rows", 10 + part);
            for row in 0..2 {
                found.expect(row > 5, "rows are large", || format!("row {part}{row}"));
                found.expect(true, "nothing", String::new);
            }
            all.merge(found);
        }
        assert_eq!((all.total("rows"), all.total("none")), (21, 0));
        let violations: Vec<_> = all.violations().map(ToString::to_string).collect();
        assert_eq!(violations, ["rows are large: 4 offending, as row 00; row 01; row 10"]);
        assert!(!all.hold());
    }
}
