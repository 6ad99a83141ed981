//! The report as tables.

use std::fmt;

use comfy_table::Table;

use super::result::Report;
use crate::figures::units::count;
use crate::figures::{columns, plain};
use crate::tpcc::affinity::Affinity;
use crate::tpcc::by_sql::Via;
use crate::tpcc::check::{CONDITIONS, CommitVerification};

/// Which transactions fail as the standard has it.
const FAILED: &str =
    "one NewOrder of a hundred, with an unused item, is rolled back (clause 2.4.1.4)";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings())?;
        writeln!(f, "{}", self.interval.types_table())?;
        writeln!(f, "{}", columns(FAILED))?;
        writeln!(f, "{}", self.totals())?;
        self.say_committed(f)?;
        if self.lost_pages() > 0 {
            self.say_lost(f)?;
        }
        if !self.is_consistent() {
            writeln!(f, "consistency: BROKEN")?;
            return self.broken().iter().try_for_each(|broken| writeln!(f, "  {broken}"));
        }
        let judged = if self.lost_pages() > 0 { ", on what can be read" } else { "" };
        writeln!(f, "consistency: ok, conditions 1 to {CONDITIONS} hold{judged}")
    }
}

impl Report {
    /// What became of the driver's own transactions.
    fn say_committed(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.commits();
        let committed = count(all.committed);
        writeln!(f, "committed: {committed} NewOrder and Payment; {}", what_became_of(all))?;
        for (path, commits) in &self.checked.of_files {
            let (path, committed) = (path.display(), count(commits.committed));
            writeln!(f, "  of these {committed} in {path}: {}", what_became_of(commits))?;
        }
        if all.missing > 0 {
            let first = all.examples.join("; ");
            writeln!(f, "committed: {} MISSING or changed, first {first}", count(all.missing))?;
        }
        Ok(())
    }

    /// What dead nodes took with them, and what that means for the conditions.
    fn say_lost(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.checked.unread.iter().map(|rows| match rows.at_least {
            Some(least) => format!("{} {}", rows.table, count(least)),
            None => format!("{} some", rows.table),
        });
        let rows: Vec<_> = rows.collect();
        writeln!(
            f,
            "lost to dead nodes: {} pages; rows that cannot be read, at least: {}",
            count(self.lost_pages() as u64),
            rows.join(", "),
        )?;
        let unjudged = self.checked.judgement.unjudged.iter();
        let unjudged: Vec<_> = unjudged
            .map(|(condition, keys)| {
                let what = what_it_is_about(*condition);
                format!("{condition} for {} {what}", count(*keys))
            })
            .collect();
        if unjudged.is_empty() {
            return Ok(());
        }
        writeln!(f, "conditions not judged: {}", unjudged.join(", "))
    }

    fn settings(&self) -> Table {
        let config = &self.config;
        let affinity = match config.affinity {
            Affinity::Shared => ", every node works on every warehouse",
            Affinity::Warehouse => ", each node keeps to its own warehouses",
            Affinity::Partitioned => ", each node has its own warehouses: two-phase commit",
        };
        let scale = if config.scale.is_standard() {
            String::new()
        } else {
            format!(
                ", scaled down to {} items",
                count(u64::from(config.scale.items.unsigned_abs()))
            )
        };
        let mut table = plain();
        let homes = match config.homes {
            Some((first, last)) => format!(", terminals at {first} to {last}"),
            None => String::new(),
        };
        let remote = match config.remote_percent {
            Some(percent) => format!(", {percent} % of NewOrder and Payment beyond the node's own"),
            None => String::new(),
        };
        let warehouses = format!("{}{homes}{remote}{scale}", config.warehouses);
        table.add_row(vec!["warehouses".to_owned(), warehouses]);
        let after = self.interval.database_bytes;
        config.shape().say(affinity, &self.load, after, &mut table);
        if let Via::Sql(connector) = &config.via {
            table.add_row(vec!["via".to_owned(), connector.name().to_owned()]);
        }
        table
    }

    fn totals(&self) -> Table {
        let interval = &self.interval;
        let mut table =
            interval.totals_table(("tpmC (NewOrder completed, by the minute)", self.tpmc()), "s");
        let mut line = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        line("lost to dead nodes", format!("{} transactions", count(self.lost())));
        let skipped: u64 = interval.measurements.iter().map(|(_, stats)| stats.skipped).sum();
        line("districts with nothing to deliver", count(skipped));
        line("check", format!("{:.1} s", self.checked.duration.as_secs_f64()));
        table
    }
}

/// What was found of transactions that were committed.
fn what_became_of(commits: &CommitVerification) -> String {
    let CommitVerification { committed, looked_for, found, on_lost_pages, missing, .. } = commits;
    let sample = if looked_for < committed { ", a sample" } else { "" };
    let lost = match on_lost_pages {
        0 => String::new(),
        lost => format!(", {} on lost pages", count(*lost)),
    };
    let missing = match missing {
        0 => "none missing".to_owned(),
        missing => format!("{} missing", count(*missing)),
    };
    let (looked_for, found) = (count(*looked_for), count(*found));
    format!("{looked_for} looked for{sample}, {found} found as they were{lost}, {missing}")
}

/// What a condition is judged for one by one.
fn what_it_is_about(condition: u8) -> &'static str {
    match condition {
        1 | 8 => "warehouses",
        5..=7 => "orders",
        10 | 12 => "customers",
        _ => "districts",
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{sample, sample_after_a_death};
    use crate::tpcc::check::CommitVerification;

    #[test]
    fn people_find_what_they_look_for() {
        let mut report = sample();
        let text = report.to_string();
        assert!(text.contains("4.0 MiB a compute node, 50 % of the loaded database"), "{text}");
        assert!(text.contains("StockLevel") && text.contains("90.00 %"), "{text}");
        assert!(text.contains("BROKEN") && text.contains("condition 3 (clause 3.3.2.3): a rule"));
        report.checked.judgement.broken.clear();
        let text = report.to_string();
        assert!(text.contains("conditions 1 to 12 hold\n"), "{text}");
        assert!(text.contains("2 looked for, a sample, 2 found as they were, none missing"));
    }

    #[test]
    fn losses_are_said_and_what_is_missing_is_cried_out() {
        let mut report = sample_after_a_death();
        let text = report.to_string();
        for expected in [
            "7 transactions",
            "20 looked for, a sample, 18 found as they were, 2 on lost pages, none missing",
            "lost to dead nodes: 3 pages; rows that cannot be read, at least: customer 12, history some",
            "conditions not judged: 1 for 4 warehouses, 10 for 30 customers",
            "conditions 1 to 12 hold, on what can be read",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        let of_file = CommitVerification {
            committed: 1_200,
            looked_for: 1_200,
            found: 1_199,
            missing: 1,
            ..CommitVerification::default()
        };
        report.checked.of_files.push(("killed.commits".into(), of_file));
        let text = report.to_string();
        let said = "of these 1,200 in killed.commits: 1,200 looked for, 1,199 found as they were, 1 missing";
        assert!(text.contains(said), "{text}");
        report.checked.commits.missing = 1;
        report.checked.commits.examples.push("order (1, 2, 3) is not there".to_owned());
        let text = report.to_string();
        assert!(
            text.contains("1 MISSING or changed, first order (1, 2, 3) is not there"),
            "{text}"
        );
    }
}
