//! The report as tables.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};

use super::Report;
use crate::check::CONDITIONS;
use crate::config::Affinity;
use crate::units::{bytes, count};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.settings())?;
        writeln!(f, "{}", self.by_type())?;
        writeln!(f, "{}", self.totals())?;
        if self.is_consistent() {
            return writeln!(f, "consistency: ok, conditions 1 to {CONDITIONS} hold");
        }
        writeln!(f, "consistency: BROKEN")?;
        self.broken().iter().try_for_each(|broken| writeln!(f, "  {broken}"))
    }
}

impl Report {
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
        table.add_row(vec!["warehouses".to_owned(), format!("{}{scale}", config.warehouses)]);
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
        let skipped: u64 = interval.measurements.iter().map(|(_, stats)| stats.skipped).sum();
        line("districts with nothing to deliver", count(skipped));
        line("check", format!("{:.1} s", self.check_duration.as_secs_f64()));
        table
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
    use super::super::tests::sample;

    #[test]
    fn people_find_what_they_look_for() {
        let mut report = sample();
        let text = report.to_string();
        assert!(text.contains("4.0 MiB a compute node, 50 % of the loaded database"), "{text}");
        assert!(text.contains("StockLevel") && text.contains("90.00 %"), "{text}");
        assert!(text.contains("BROKEN") && text.contains("condition 3 (clause 3.3.2.3): a rule"));
        report.broken.clear();
        assert!(report.to_string().contains("conditions 1 to 12 hold"));
    }
}
