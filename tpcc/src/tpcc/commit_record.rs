//! What a driver remembers of its own committed transactions, to look for each of them after the
//! run.
//!
//! The consistency conditions say whether a database fits together, not whether it is the one that
//! was written: an order that is gone with all its rows breaks none of them. So every worker notes
//! of its NewOrder and Payment transactions, after their commit, what they must have left behind.
//! The notes are bounded: of more than [`MAX_COMMIT_RECORDS`] each driver keeps a sample in which
//! every transaction is with the same probability (reservoir sampling, Vitter's algorithm R, worker
//! by worker).
//!
//! A driver may also note each of them in a file as soon as it has committed, so that another can
//! look for it when the first was killed.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::TpccError;
use crate::workload::Random;

/// Most transactions that a driver keeps; each takes 32 bytes.
pub const MAX_COMMIT_RECORDS: usize = 1 << 18;

/// What a committed transaction left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CommittedTransaction {
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

const _: () = assert!(size_of::<CommittedTransaction>() == 32);

impl CommittedTransaction {
    /// The home warehouse.
    pub(crate) fn warehouse(&self) -> i32 {
        match *self {
            Self::Order { warehouse, .. } | Self::Payment { warehouse, .. } => warehouse,
        }
    }

    /// That of a line of a file of commits.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        let kind = words.next()?;
        let numbers: Vec<i64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let small = |number: i64| i32::try_from(number).ok();
        match (kind, numbers.as_slice()) {
            ("order", &[warehouse, district, order, lines, amount]) => Some(Self::Order {
                warehouse: small(warehouse)?,
                district: small(district)?,
                order: small(order)?,
                lines: small(lines)?,
                amount,
            }),
            ("payment", &[warehouse, writer, district, sequence, amount]) => Some(Self::Payment {
                warehouse: small(warehouse)?,
                writer: small(writer)?,
                district: small(district)?,
                sequence,
                amount,
            }),
            _ => None,
        }
    }
}

/// A line of a file of commits.
impl fmt::Display for CommittedTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Order { warehouse, district, order, lines, amount } => {
                write!(f, "order {warehouse} {district} {order} {lines} {amount}")
            }
            Self::Payment { warehouse, writer, district, sequence, amount } => {
                write!(f, "payment {warehouse} {writer} {district} {sequence} {amount}")
            }
        }
    }
}

/// A file in which each committed transaction is noted at once.
#[derive(Clone)]
pub(crate) struct CommitFile {
    file: Arc<File>,
    path: Arc<Path>,
}

impl CommitFile {
    /// One that is added to.
    pub(crate) fn open(path: &Path) -> Result<Self, TpccError> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|error| TpccError::commits(path, error))?;
        Ok(Self { file: Arc::new(file), path: path.into() })
    }

    /// In one write, which outlives the process whatever becomes of that.
    fn note(&self, entry: CommittedTransaction) -> Result<(), TpccError> {
        let line = format!("{entry}\n");
        (&*self.file)
            .write_all(line.as_bytes())
            .map_err(|error| TpccError::commits(&self.path, error))
    }
}

/// The transactions that a file of commits tells of; half a line at its end tells of none.
pub(crate) fn committed_in(path: &PathBuf) -> Result<CommitRecords, TpccError> {
    let text = std::fs::read_to_string(path).map_err(|error| TpccError::commits(path, error))?;
    let mut entries = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let Some(line) = line.strip_suffix('\n') else { break };
        let entry = CommittedTransaction::of_line(line).ok_or_else(|| {
            let what = format!("line {}: {line:?} is no committed transaction", number + 1);
            TpccError::commits(path, io::Error::new(io::ErrorKind::InvalidData, what))
        })?;
        entries.push(entry);
    }
    Ok(CommitRecords { committed: entries.len() as u64, entries })
}

/// Committed transactions, or a sample of them.
#[derive(Clone, Debug, Default)]
pub struct CommitRecords {
    entries: Vec<CommittedTransaction>,
    committed: u64,
}

impl CommitRecords {
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
    pub(crate) fn into_sorted(mut self) -> Vec<CommittedTransaction> {
        self.entries.sort_unstable();
        self.entries
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.entries.extend(other.entries);
        self.committed += other.committed;
    }
}

/// Keeps the journal of one worker.
pub(crate) struct CommitRecorder {
    journal: CommitRecords,
    limit: usize,
    random: Random,
    file: Option<CommitFile>,
}

impl CommitRecorder {
    /// Of one of so many workers of a driver.
    pub(crate) fn new(workers: usize, random: Random) -> Self {
        let limit = (MAX_COMMIT_RECORDS / workers.max(1)).max(1);
        Self { journal: CommitRecords::default(), limit, random, file: None }
    }

    /// Notes all in a file as well, if there is one.
    pub(crate) fn noting_in(self, file: Option<CommitFile>) -> Self {
        Self { file, ..self }
    }

    /// Notes a transaction that has committed.
    pub(crate) fn note(&mut self, entry: CommittedTransaction) -> Result<(), TpccError> {
        if let Some(file) = &self.file {
            file.note(entry)?;
        }
        self.keep(entry);
        Ok(())
    }

    fn keep(&mut self, entry: CommittedTransaction) {
        let Self { journal: CommitRecords { entries, committed }, limit, random, .. } = self;
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

    pub(crate) fn finish(self) -> CommitRecords {
        self.journal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(number: i32) -> CommittedTransaction {
        CommittedTransaction::Order {
            warehouse: 1,
            district: 2,
            order: number,
            lines: 5,
            amount: 7,
        }
    }

    fn record(workers: usize, count: i32) -> CommitRecords {
        let mut recorder = CommitRecorder::new(workers, Random::stream(1, 2));
        for number in 0..count {
            recorder.note(order(number)).unwrap();
        }
        recorder.finish()
    }

    #[test]
    fn what_is_noted_in_a_file_is_read_again_but_for_half_a_line() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("commits");
        let payment = CommittedTransaction::Payment {
            warehouse: 3,
            writer: 9,
            district: 4,
            sequence: 1 << 40,
            amount: -5,
        };
        let file = CommitFile::open(&path).unwrap();
        let mut recorder = CommitRecorder::new(1, Random::stream(1, 2)).noting_in(Some(file));
        for entry in [order(7), payment] {
            recorder.note(entry).unwrap();
        }
        let whole = committed_in(&path).unwrap();
        assert_eq!((whole.committed(), whole.into_sorted()), (2, vec![order(7), payment]));
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"order 1 2")
            .unwrap();
        assert_eq!(committed_in(&path).unwrap().kept(), 2);
        std::fs::write(&path, "order 1 2 3 4 5\npayment 1\n").unwrap();
        let refused = committed_in(&path).err().unwrap().to_string();
        assert!(refused.contains("line 2") && refused.contains("commits"), "{refused}");
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
        let workers = MAX_COMMIT_RECORDS / 64;
        let mut first_half = 0;
        for seed in 0..50 {
            let mut recorder = CommitRecorder::new(workers, Random::stream(seed, 2));
            for number in 0..1_000 {
                recorder.note(order(number)).unwrap();
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
