//! What the reports of the drivers come to.

use selkie_tpcc::units;
use serde_json::Value;

/// What the drivers have found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct DemoVerdict {
    pub(super) transactions: u64,
    /// NewOrder and Payment transactions that were committed, looked for, and found.
    committed: u64,
    looked_for: u64,
    found: u64,
    /// What does not hold, of whichever driver.
    broken: Vec<String>,
}

impl DemoVerdict {
    /// Of what the drivers have printed.
    pub(super) fn of(reports: &[String]) -> Self {
        let mut verdict = Self::default();
        for (driver, report) in (1..).zip(reports) {
            let Ok(report) = serde_json::from_str::<Value>(report) else {
                verdict.broken.push(format!("driver {driver} has ended without a report"));
                continue;
            };
            let number = |pointer: &str| report.pointer(pointer).and_then(Value::as_u64);
            for (pointer, sum) in [
                ("/transactions", &mut verdict.transactions),
                ("/journal/committed", &mut verdict.committed),
                ("/journal/looked_for", &mut verdict.looked_for),
                ("/journal/found", &mut verdict.found),
            ] {
                match number(pointer) {
                    Some(number) => *sum += number,
                    None => {
                        verdict.broken.push(format!("driver {driver} reports no {pointer}"));
                    }
                }
            }
            match report.get("consistency") {
                Some(consistency) if consistency == "ok" => {}
                Some(consistency) => {
                    verdict.broken.push(format!("driver {driver}: {consistency}"));
                }
                None => verdict.broken.push(format!("driver {driver} has checked nothing")),
            }
            if number("/lost/pages") != Some(0) {
                verdict.broken.push(format!("driver {driver} has lost pages"));
            }
        }
        if verdict.found < verdict.looked_for || verdict.looked_for == 0 {
            let missing = verdict.looked_for - verdict.found.min(verdict.looked_for);
            let are = if missing == 1 { "is" } else { "are" };
            verdict.broken.push(format!("{} {are} missing", units::plural(missing, "commit")));
        }
        verdict
    }

    pub(super) fn holds(&self) -> bool {
        self.broken.is_empty()
    }

    /// In words.
    pub(super) fn text(&self) -> String {
        if !self.holds() {
            return format!("NOT ok: {}", self.broken.join("; "));
        }
        let (committed, found) = (units::count(self.committed), units::count(self.found));
        let found = match self.looked_for == self.committed {
            true => format!("every one of {committed} commits was looked for and found"),
            false => format!("of {committed} commits {found} were looked for, and every one found"),
        };
        format!("ok: {found}; the consistency conditions of TPC-C hold; nothing was lost")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(found: u64, consistency: &str, lost: u64) -> String {
        let journal = json!({ "committed": 1_500, "looked_for": 1_500, "found": found });
        json!({
            "transactions": 2_000, "journal": journal, "consistency": consistency,
            "lost": { "pages": lost },
        })
        .to_string()
    }

    #[test]
    fn all_must_be_found_of_both_drivers() {
        let good = DemoVerdict::of(&[report(1_500, "ok", 0), report(1_500, "ok", 0)]);
        assert!(good.holds() && good.transactions == 4_000, "{good:?}");
        assert!(good.text().starts_with("ok: every one of 3,000 commits"), "{}", good.text());
        for (bad, says) in [
            (report(1_499, "ok", 0), "1 commit is missing"),
            (report(1_500, "partial", 0), "driver 2: \"partial\""),
            (report(1_500, "ok", 3), "driver 2 has lost pages"),
            (String::new(), "driver 2 has ended without a report"),
            (json!({ "consistency": "ok" }).to_string(), "driver 2 reports no /journal/found"),
        ] {
            let bad = DemoVerdict::of(&[report(1_500, "ok", 0), bad]);
            assert!(!bad.holds() && bad.text().contains(says), "{}", bad.text());
        }
        assert!(!DemoVerdict::of(&[]).holds(), "nothing was looked for");
    }
}
