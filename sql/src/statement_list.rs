//! The statements that a server has run, and what they took: what `pg_stat_statements` shows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// Beyond so many, those that are gone are taken out of the list.
const MANY: usize = 4_096;

/// What a statement took, since its text was parsed.
#[derive(Debug)]
pub(crate) struct StatementStats {
    pub(crate) text: Arc<str>,
    calls: AtomicU64,
    rows: AtomicU64,
    micros: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
}

/// The same at a moment. Times are microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatementFigures {
    pub(crate) calls: u64,
    /// Rows that it gave or changed.
    pub(crate) rows: u64,
    pub(crate) micros: u64,
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl StatementStats {
    pub(crate) fn new(text: Arc<str>) -> Self {
        Self {
            text,
            calls: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
        }
    }

    /// It has run once more. `tag` is what it says in the end, with its rows.
    pub(crate) fn note(&self, micros: i64, tag: &str) {
        // A clock may go back.
        let micros = u64::try_from(micros).unwrap_or(0);
        let rows = tag.rsplit(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0);
        // Relaxed: figures, each for itself.
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.least.fetch_min(micros, Ordering::Relaxed);
        self.most.fetch_max(micros, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    /// `None` before it has run.
    pub(crate) fn figures(&self) -> Option<StatementFigures> {
        let read = |own: &AtomicU64| own.load(Ordering::Relaxed);
        let (rows, micros, calls) = (read(&self.rows), read(&self.micros), read(&self.calls));
        let (least, most) = (read(&self.least), read(&self.most));
        (calls > 0).then_some(StatementFigures { calls, rows, micros, least, most })
    }
}

/// The statements that a server keeps plans for, or clients have prepared.
#[derive(Debug, Default)]
pub(crate) struct StatementList(Mutex<Vec<Weak<StatementStats>>>);

impl StatementList {
    pub(crate) fn add(&self, stats: &Arc<StatementStats>) {
        let mut all = self.0.lock();
        if all.len() >= MANY && all.len().is_power_of_two() {
            all.retain(|own| own.strong_count() > 0);
        }
        all.push(Arc::downgrade(stats));
    }

    /// Those that are there.
    pub(crate) fn all(&self) -> Vec<Arc<StatementStats>> {
        let mut all = self.0.lock();
        all.retain(|own| own.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_statement_took_is_counted_as_long_as_it_is_kept() {
        let list = StatementList::default();
        let stats = Arc::new(StatementStats::new("select 1".into()));
        list.add(&stats);
        assert_eq!(stats.figures(), None);
        stats.note(30, "SELECT 2");
        stats.note(10, "INSERT 0 5");
        stats.note(-7, "BEGIN");
        let figures = StatementFigures { calls: 3, rows: 7, micros: 40, least: 0, most: 30 };
        assert_eq!(list.all().first().and_then(|own| own.figures()), Some(figures));
        drop(stats);
        assert!(list.all().is_empty());
    }

    #[test]
    fn statements_that_are_gone_do_not_fill_the_list() {
        let list = StatementList::default();
        for number in 0..3 * MANY {
            list.add(&Arc::new(StatementStats::new(number.to_string().into())));
        }
        assert!(list.0.lock().len() <= 2 * MANY);
    }
}
