//! What a driver remembers of its own committed transactions, to look for each of them after the run.
//!
//! The consistency conditions say whether a database fits together, not whether it is the one that was written:
//! an order that is gone with all its rows breaks none of them. So every worker notes of its NewOrder and Payment
//! transactions, after their commit, what they must have left behind. The notes are bounded: of more than
//! [`JOURNAL_ENTRIES`] each driver keeps a sample in which every transaction is with the same probability
//! (reservoir sampling, Vitter's algorithm R, worker by worker).

use crate::random::Random;

/// Most transactions that a driver keeps; each takes 32 bytes.
pub const JOURNAL_ENTRIES: usize = 1 << 18;

/// What a committed transaction left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// A NewOrder: a row of ORDER, and its lines.
    Order {
        /// `O_W_ID`.
        warehouse: i32,
        /// `O_D_ID`.
        district: i32,
        /// `O_ID`.
        order: i32,
        /// Rows of ORDER-LINE.
        lines: i32,
        /// Sum of `OL_AMOUNT`.
        amount: i64,
    },
    /// A Payment: a row of HISTORY.
    Payment {
        /// `H_W_ID`.
        warehouse: i32,
        /// `H_WRITER`.
        writer: i32,
        /// `H_D_ID`.
        district: i32,
        /// `H_SEQUENCE`.
        sequence: i64,
        /// `H_AMOUNT`.
        amount: i64,
    },
}

const _: () = assert!(size_of::<Entry>() == 32);

/// Committed transactions, or a sample of them.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    entries: Vec<Entry>,
    committed: u64,
}

impl Journal {
    /// Transactions that were noted.
    #[must_use]
    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Transactions that are kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.entries.len()
    }

    /// What is kept, neighbours in a table side by side.
    pub(crate) fn into_sorted(mut self) -> Vec<Entry> {
        self.entries.sort_unstable();
        self.entries
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.committed += other.committed;
    }
}

/// Keeps the journal of one worker.
pub(crate) struct Recorder {
    journal: Journal,
    limit: usize,
    random: Random,
}

impl Recorder {
    /// Of one of so many workers of a driver.
    pub(crate) fn new(workers: usize, random: Random) -> Self {
        let limit = (JOURNAL_ENTRIES / workers.max(1)).max(1);
        Self { journal: Journal::default(), limit, random }
    }

    /// Notes a transaction that has committed.
    pub(crate) fn note(&mut self, entry: Entry) {
        let Self { journal: Journal { entries, committed }, limit, random } = self;
        *committed += 1;
        if entries.len() < *limit {
            entries.push(entry);
            return;
        }
        let last = i64::try_from(*committed - 1).unwrap_or(i64::MAX);
        let place = usize::try_from(random.amount(0, last)).unwrap_or(usize::MAX);
        if let Some(kept) = entries.get_mut(place) {
            *kept = entry;
        }
    }

    pub(crate) fn finish(self) -> Journal {
        self.journal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: i32) -> Entry {
        Entry::Order { warehouse: 1, district: 2, order: number, lines: 5, amount: 7 }
    }

    fn record(workers: usize, count: i32) -> Journal {
        let mut recorder = Recorder::new(workers, Random::stream(1, 2));
        for number in 0..count {
            recorder.note(order(number));
        }
        recorder.finish()
    }

    #[test]
    fn few_are_all_kept() {
        let mut journal = record(4, 100);
        journal.add(record(4, 1));
        assert_eq!((journal.committed(), journal.kept()), (101, 101));
        let sorted = journal.into_sorted();
        assert_eq!(sorted.first(), Some(&order(0)));
        assert_eq!(sorted.last(), Some(&order(99)));
    }

    #[test]
    fn of_many_a_sample_is_kept_that_prefers_none() {
        // A worker of so many has room for 64.
        let workers = JOURNAL_ENTRIES / 64;
        let mut first_half = 0;
        for seed in 0..50 {
            let mut recorder = Recorder::new(workers, Random::stream(seed, 2));
            for number in 0..1_000 {
                recorder.note(order(number));
            }
            let journal = recorder.finish();
            assert_eq!((journal.committed(), journal.kept()), (1_000, 64));
            let kept = journal.into_sorted();
            assert!(kept.windows(2).all(|pair| pair[0] != pair[1]), "one is kept twice");
            first_half += kept.iter().filter(|entry| **entry < order(500)).count();
        }
        // 1,600 expected, with a standard deviation of 28.
        assert!((1_400..1_800).contains(&first_half), "{first_half} of 3200");
    }
}
