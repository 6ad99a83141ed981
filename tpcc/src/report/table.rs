//! The report as tables.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::Report;
use crate::check::{CONDITIONS, LookUp};
use crate::config::Affinity;
use crate::units::{bytes, count};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings())?;
        writeln!(f, "{}", self.by_type())?;
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
        let LookUp { committed, looked_for, found, on_lost_pages, missing, examples } =
            self.journal();
        let sample = if looked_for < committed { ", a sample" } else { "" };
        write!(
            f,
            "committed: {} NewOrder and Payment; {} looked for{sample}, {} found as they were",
            count(*committed),
            count(*looked_for),
            count(*found),
        )?;
        if *on_lost_pages > 0 {
            write!(f, ", {} on lost pages", count(*on_lost_pages))?;
        }
        writeln!(f, "{}", if *missing == 0 { ", none missing" } else { "" })?;
        if *missing > 0 {
            let first = examples.join("; ");
            writeln!(f, "committed: {} MISSING or changed, first {first}", count(*missing))?;
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
            Affinity::Shared => "every node works on every warehouse",
            Affinity::Warehouse => "each node keeps to its own warehouses",
        };
        let scale = if config.scale.is_standard() {
            String::new()
        } else {
            format!(
                ", scaled down to {} items",
                count(u64::from(config.scale.items.unsigned_abs()))
            )
        };
        let database = self.load.database_bytes;
        let cache = config.cache_bytes();
        let share = 100.0 * cache as f64 / database.max(1) as f64;
        let mut table = plain();
        let homes = match config.homes {
            Some((first, last)) => format!(", terminals at {first} to {last}"),
            None => String::new(),
        };
        let warehouses = format!("{}{homes}{scale}", config.warehouses);
        table.add_row(vec!["warehouses".to_owned(), warehouses]);
        let nodes = format!("{}, {affinity}", config.compute_nodes);
        table.add_row(vec!["compute nodes".to_owned(), nodes]);
        let tasks = format!("{} a node, on {} threads", config.workers, config.threads);
        table.add_row(vec!["workers".to_owned(), tasks]);
        let lent = bytes(config.pool().bytes_per_node);
        table.add_row(vec![
            "memory nodes".to_owned(),
            format!("{}, {lent} each", config.memory_nodes),
        ]);
        let sizes = format!(
            "{} loaded ({} rows in {:.1} s), {} after the run",
            bytes(database),
            count(self.load.rows),
            self.load.duration.as_secs_f64(),
            bytes(self.interval.database_bytes),
        );
        table.add_row(vec!["database".to_owned(), sizes]);
        let cache = format!("{} a compute node, {share:.0} % of the loaded database", bytes(cache));
        table.add_row(vec!["cache".to_owned(), cache]);
        let line = format!("{} bytes, seed {}", config.gcl_bytes, config.seed);
        table.add_row(vec!["cache line".to_owned(), line]);
        table
    }

    fn by_type(&self) -> Table {
        let mut table = plain();
        table.set_header(vec![
            "transaction",
            "completed",
            "per second",
            "retries",
            "lost",
            "p50 us",
            "p95 us",
            "p99 us",
            "max us",
        ]);
        for (kind, stats) in self.interval.measurements.iter() {
            let latency = stats.latency();
            table.add_row(vec![
                kind.title().to_owned(),
                count(stats.completed),
                format!("{:.0}", self.per_second(stats.completed)),
                count(stats.retries),
                count(stats.lost),
                format!("{:.0}", latency.p50),
                format!("{:.0}", latency.p95),
                format!("{:.0}", latency.p99),
                format!("{:.0}", latency.max),
            ]);
        }
        align(&mut table);
        table
    }

    fn totals(&self) -> Table {
        let interval = &self.interval;
        let traffic = &interval.traffic;
        let mut table = plain();
        let mut line = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        let per_second = format!(
            "{} in {:.1} s",
            count(self.tps().round() as u64),
            interval.elapsed.as_secs_f64()
        );
        line("transactions a second", per_second);
        line("tpmC (NewOrder a minute)", count(self.tpmc().round() as u64));
        line("hit ratio", format!("{:.2} %", 100.0 * self.hit_ratio()));
        line("round trips a transaction", format!("{:.2}", self.per_txn(traffic.chains)));
        line("atomics a transaction", format!("{:.2}", self.per_txn(traffic.atomics)));
        let moved = traffic.bytes_read + traffic.bytes_written;
        line("bytes a transaction", format!("{:.0}", self.per_txn(moved)));
        let invalidations = self.engines(|stats| stats.invalidations);
        line("invalidations a transaction", format!("{:.3}", self.per_txn(invalidations)));
        let evictions = self.engines(|stats| stats.evictions);
        line("evictions a transaction", format!("{:.3}", self.per_txn(evictions)));
        let aborts: Vec<String> = self
            .aborts()
            .filter(|(_, aborts)| *aborts > 0)
            .map(|(cause, aborts)| format!("{} {}", cause.name(), count(aborts)))
            .collect();
        let aborts = if aborts.is_empty() { "none".to_owned() } else { aborts.join(", ") };
        line("aborted attempts", aborts);
        line("lost to dead nodes", format!("{} transactions", count(self.lost())));
        let skipped: u64 = interval.measurements.iter().map(|(_, stats)| stats.skipped).sum();
        line("districts with nothing to deliver", count(skipped));
        line("check", format!("{:.1} s", self.checked.duration.as_secs_f64()));
        table
    }
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

fn plain() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table
}

/// Numbers to the right.
fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{sample, sample_after_a_death};

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
        report.checked.journal.missing = 1;
        report.checked.journal.examples.push("order (1, 2, 3) is not there".to_owned());
        let text = report.to_string();
        assert!(
            text.contains("1 MISSING or changed, first order (1, 2, 3) is not there"),
            "{text}"
        );
    }
}
